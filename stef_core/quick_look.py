"""Whether any of many regular expressions occurs in a text: one automaton rules nearly all texts out before they are tried.

Python tries the alternatives of a pattern one by one at each character; RE2 runs through a text once, whatever their number,
but knows no lookaround and takes word characters and blanks for ASCII. So RE2 is asked with looser patterns, which let through
whatever the patterns match, and only about texts on which both agree; what it lets through is held against the patterns
themselves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

TOGETHER = 13  # patterns of one automaton: more need more states than RE2's default memory (8 MiB) holds
_ALIKE = re.compile(r"[\t\n\r -~]*")  # characters that RE2 and Python put into the same classes
_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?(?:<?[=!]|:)|\(|\)|\{\d+(?:,\d*)?\}|\s+|.", re.DOTALL)
_LOOKAROUND = frozenset({"(?=", "(?!", "(?<=", "(?<!"})


class QuickLook:
    """Some patterns as one question: does any of them occur?

    Raises:
        ValueError: When first asked: a looser pattern would rule no text out.
    """

    def __init__(self, patterns: Sequence[re.Pattern[str]]) -> None:
        """Keep the patterns, which have no flag but the verbose one."""
        self._groups = [patterns[start : start + TOGETHER] for start in range(0, len(patterns), TOGETHER)]

    @cached_property
    def _loose(self) -> list[Any]:
        return [_automaton(group) for group in self._groups]  # when first asked, as it takes milliseconds

    def __call__(self, text: str) -> bool:
        """Whether any of the patterns occurs in a text."""
        if _ALIKE.fullmatch(text) is None:
            return any(pattern.search(text) for group in self._groups for pattern in group)
        for loose, group in zip(self._loose, self._groups, strict=True):
            if loose.search(text) is not None and any(pattern.search(text) for pattern in group):
                return True
        return False

    def rules_out(self, text: str) -> bool:
        """Whether none of the patterns can occur; False also where only the patterns themselves could tell."""
        return _ALIKE.fullmatch(text) is not None and all(loose.search(text) is None for loose in self._loose)


def loosened(pattern: str, *, verbose: bool = True) -> str:
    """A pattern for RE2 that matches wherever the given one does: no lookaround, no anchors, no repeat with a most.

    Args:
        pattern: For Python.
        verbose: White space in it means nothing.
    """
    out: list[str] = []
    opened: list[bool] = []  # of each open bracket: whether it is a lookaround
    for piece in _PIECE.findall(pattern):
        if piece in _LOOKAROUND or piece in ("(", "(?:"):
            if not any(opened) and piece not in _LOOKAROUND:
                out.append("(?:")
            opened.append(piece in _LOOKAROUND)
        elif piece == ")":
            inside = any(opened)
            opened.pop()
            if not inside:
                out.append(piece)
        elif any(opened) or piece in ("^", "$") or (verbose and piece.isspace()):
            continue
        elif piece[0] == "{" and len(piece) > 1:
            least = piece[1:-1].partition(",")[0]
            out.append("*" if int(least) == 0 else f"{{{least},}}")  # an upper bound costs states and rules little out
        else:
            out.append(piece)
    return "".join(out)


def _automaton(patterns: Sequence[re.Pattern[str]]) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    loose = [loosened(pattern.pattern, verbose=bool(pattern.flags & re.VERBOSE)) for pattern in patterns]
    automaton = re2.compile("|".join(f"(?:{each})" for each in loose), options)
    if automaton.search("") is not None:
        raise ValueError(f"rules no text out: {loose}")
    return automaton
