"""Measure on labelled answers how far Φ and p_right can be trusted, and write the report of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from stef_core.calibration import RESAMPLES, THRESHOLD, Plan
from stef_core.judge.fitting import FOLDS
from tasks.calibrate import Calibrated, Request, check_request, labelled_of, run_calibration, takes_published
from tasks.calibration_report import write_calibration
from tasks.passing import as_is
from tasks.retrying import DELAYS_S, is_transient
from tasks.secrets import with_secret
from tasks.settings import load_settings

measure = task(
    name="calibrate",
    retries=len(DELAYS_S),
    retry_delay_seconds=list(DELAYS_S),
    retry_condition_fn=is_transient,
    cache_policy=NO_CACHE,
)(run_calibration)
write = task(name="write-calibration", cache_policy=NO_CACHE)(write_calibration)


@flow(name="calibration")
def calibration(
    labelled: str | None = None,
    judge: str | None = None,
    model: str | None = None,
    rules: str | None = None,
    threshold: float = THRESHOLD,
    sources: list[str] | None = None,
    columns: dict[str, str] | None = None,
    catalogue: bool = True,
    refit_folds: bool = False,
    folds: int = FOLDS,
    seed: int = 7,
    resamples: int = RESAMPLES,
    out: str | None = None,
) -> dict[str, Any]:
    """Measure how far Φ and p_right can be trusted.

    Args:
        labelled: A file of labelled answers, or the URL of a warehouse whose users gave feedback; ``STEF_LABELLED`` when None.
        judge: ``symbolic`` or ``openai``; of a warehouse the published scores are taken where None.
        model: Model id at the endpoint.
        rules: Folder of rules files.
        threshold: Φ from which on an answer counts as right, 0-100.
        sources: Keep only rows of these sources.
        columns: The file's name of a column, where it differs.
        catalogue: Hold each row against what the others show of tables, columns and joins.
        refit_folds: Judge each row by a symbolic model fitted on the other folds.
        folds: Parts for fitting.
        seed: Of folds and resamples.
        resamples: Of the bootstrap.
        out: HTML report to write; none where None.

    Returns:
        The object of ``stef calibrate --json``.

    Raises:
        InputError: The file, a column or a value is wrong.
        RuleError: Options, settings or rules are wrong.
        TransientError: The endpoint answered for no row, or the warehouse is held.
    """
    settings = with_secret(load_settings({"judge": judge, "model": model, "rules": rules}))
    labelled = labelled_of(labelled, settings)
    request = Request(
        labelled=labelled,
        columns=columns or {},
        sources=tuple(sources or ()),
        catalogue=catalogue,
        refit=refit_folds,
        published=takes_published(labelled, judge, refit=refit_folds),
        plan=Plan(threshold=threshold, folds=folds, seed=seed, resamples=resamples),
    )
    check_request(request, settings)
    found: Calibrated = measure(as_is(request), as_is(settings))
    if out is not None:
        write(as_is(found), Path(out))
    create_markdown_artifact(key="calibration", markdown=summary(found), description="How far the scores can be trusted")
    return found.to_json()


def summary(calibrated: Calibrated) -> str:
    """The calibration in a few lines of Markdown."""
    found = calibrated.found
    lines = [f"# Calibration: {found.scored} of {found.rows} labelled answers scored", "", calibrated.sample_text, ""]
    for name, figures in (("Φ", found.phi), ("p_right", found.p_right)):
        if figures is not None and figures.auroc.value is not None and figures.decision.accuracy.value is not None:
            accuracy = figures.decision.accuracy.value
            lines.append(f"- {name}: AUROC {figures.auroc.value:.3f}, accuracy at {figures.cut:g} {accuracy:.3f}")
    return "\n".join(lines)
