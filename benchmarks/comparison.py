"""How long a comparison takes beside datacompy's on its sorted-frame path: the same shuffled frames, the same answer, one run.

    python -m benchmarks.comparison [--rows 100000] [--repeat 3] [--json figures.json]

Needs ``pip install 'datacompy>=0.12,<0.19'``, which this project does not depend on; with a pandas that it takes, best in an
environment of its own. Ours starts from the rows of a database driver, datacompy from pandas frames made before its clock
starts. datacompy has no key to join the rows on, so both frames are sorted by all their columns and joined on their new index.
The bound is for frames that are the same; one cell that differs is measured too.
"""

from __future__ import annotations

import argparse
import json
import pickle
import random
import statistics
import sys
import time
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from benchmarks.results import keep
from stef_core.experiments.compare_results import CompareOptions, ResultSet, same_result

COLUMNS = tuple("id site nurse minutes cost score day code share note".split())
ALLOWED = 0.2
"""Share of datacompy's time that ours may take."""


def rows_of(count: int, seed: int) -> list[tuple[Any, ...]]:
    """Rows of ten columns: four of numbers, one of dates, five of text with few and with many values."""
    chance = random.Random(seed)
    sites, nurses = [f"site {k}" for k in range(20)], [f"nurse {k}" for k in range(500)]
    start = date(2024, 1, 1)
    return [
        (
            k,
            chance.choice(sites),
            chance.choice(nurses),
            chance.randrange(5, 240),
            chance.random() * 1000,
            round(chance.random() * 5, 2),
            start + timedelta(days=chance.randrange(366)),
            f"{chance.randrange(16**6):06x}",
            chance.random(),
            f"note {k % 977} of {chance.randrange(10_000)}",
        )
        for k in range(count)
    ]


def timed(work: Callable[[], bool], repeat: int) -> tuple[bool, float]:
    """The answer, and the median of the seconds it took."""
    seconds, answer = [], False
    for _ in range(repeat):
        start = time.perf_counter()
        answer = work()
        seconds.append(time.perf_counter() - start)
    return answer, statistics.median(seconds)


def datacompy_answer(left: Any, right: Any) -> bool:
    """Whether datacompy finds two pandas frames equal once both are sorted by all columns."""
    import datacompy

    names = list(left.columns)
    left, right = (frame.sort_values(names).reset_index(drop=True) for frame in (left, right))
    compared = datacompy.Compare(left, right, on_index=True, abs_tol=1e-10, rel_tol=1e-10)
    return bool(compared.matches())


def main() -> int:
    """Measure, print the figures, and say by the exit code whether the bound holds and the answers agree."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    try:
        import datacompy
        import pandas as pd
    except ImportError as error:
        print(f"{error}; pip install 'datacompy>=0.12,<0.19'", file=sys.stderr)
        return 2
    gold = rows_of(arguments.rows, seed=7)
    # as another query would return them: equal cells, and none of the same objects
    shuffled = pickle.loads(pickle.dumps(random.Random(8).sample(gold, len(gold))))
    wrong = [*shuffled[:-1], (*shuffled[-1][:3], shuffled[-1][3] + 1, *shuffled[-1][4:])]
    figures: dict[str, Any] = {"rows": len(gold), "columns": len(COLUMNS), "datacompy": datacompy.__version__, "cases": {}}
    holds = True
    for name, other, expected in (("the same rows shuffled", shuffled, True), ("one cell differs", wrong, False)):
        left, right = ResultSet(COLUMNS, gold), ResultSet(COLUMNS, other)
        frames = [pd.DataFrame(rows, columns=list(COLUMNS)) for rows in (gold, other)]
        ours, our_s = timed(lambda a=left, b=right: same_result(a, b, CompareOptions()).same, arguments.repeat)  # type: ignore[misc]
        theirs, their_s = timed(lambda f=frames: datacompy_answer(*f), arguments.repeat)  # type: ignore[misc]
        agree = ours == theirs == expected
        within = our_s <= ALLOWED * their_s
        # the bound is for the same answer on frames that are equal; the other case is for information
        holds = holds and agree and (within or not expected)
        print(f"{name}: ours {our_s:.3f} s, datacompy {their_s:.3f} s, ratio {our_s / their_s:.3f}; answers agree: {agree}")
        figures["cases"][name] = {"ours_s": our_s, "datacompy_s": their_s, "ratio": our_s / their_s, "agree": agree}
    figures["holds"] = holds
    print(json.dumps(figures))
    keep(arguments.json, figures)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
