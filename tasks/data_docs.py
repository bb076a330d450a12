"""Data Docs of a run: Great Expectations' own page of each gate, kept as files that ask no network.

The pages that Great Expectations renders load styles, scripts and pictures from elsewhere. Here they are stripped of all that
and given a small style of their own, so that they read alike on a machine without a network, years later.
"""

from __future__ import annotations

import html
import logging
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.gates import GateResult

logger = logging.getLogger(__name__)

# elements that load something, run something or do nothing without a script, with all that is in them
DROPPED = frozenset({"script", "style", "link", "img", "form", "input", "label", "button", "iframe", "object", "footer", "svg"})
VOID = frozenset({"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"})
# parts of a site that is not there, and what works by a script: each with all of these classes
NAVIGATION = ({"navbar-expand-md"}, {"modal"}, {"card", "mb-3"})
STYLE = """
body{font:15px/1.45 system-ui,sans-serif;color:#1c2430;background:#fff;margin:0 auto;max-width:76rem;padding:1.5rem}
h1,h2,h3,h4{line-height:1.2;margin:1.2em 0 .4em}table{border-collapse:collapse;margin:.4rem 0;width:100%}
th,td{border-bottom:1px solid #d8dee6;padding:.3rem .6rem;text-align:left;vertical-align:top;overflow-wrap:break-word}
.alert{padding:.5rem .8rem;border-left:4px solid #b7c0cc;background:#f4f6f9;margin:.5rem 0}.alert p{margin:.2rem 0}
.alert-danger,.alert-warning{border-color:#b3261e;background:#fbeceb}.alert-success{border-color:#1d7a3d;background:#e9f5ed}
.badge{background:#e7ebf0;border-radius:3px;padding:0 .35em;font-family:ui-monospace,monospace}a{color:#1a5fb4}
.failed{color:#b3261e}.warned{color:#8a5a00}.passed{color:#1d7a3d}ul{padding-left:1.2rem}.card-header{font-weight:600}
.text-success::before{content:"✓";color:#1d7a3d}.text-danger::before,.text-warning::before{content:"✗";color:#b3261e}
nav ul{columns:3;list-style:none;padding:0}
"""


def write_data_docs(folder: Path, run: Mapping[str, Any], gates: Sequence[GateResult]) -> Path:
    """Write a page for each gate and an index; returns the index.

    Args:
        folder: Where Data Docs are kept; the run gets a folder of its own in it, named by its ``run_id``.
        run: ``run_id dt started_at`` of the run.
        gates: What its gates found.

    Raises:
        OSError: The folder cannot be written.
    """
    from great_expectations.core.run_identifier import RunIdentifier  # slow imports: pay when docs are kept
    from great_expectations.render.renderer import ValidationResultsPageRenderer
    from great_expectations.render.view import DefaultJinjaPageView

    render: Any = DefaultJinjaPageView().render  # it has no types
    home = folder / str(run["run_id"])
    home.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, gate in enumerate(gates, 1):
        name = f"{number:02d}-{gate.validation.suite_name}.html"
        gate.validation.meta["run_id"] = RunIdentifier(run_name=run["run_id"], run_time=run["started_at"])
        page = render(ValidationResultsPageRenderer().render(gate.validation))
        (home / name).write_text(offline(page), encoding="utf-8")
        lines.append(_line(name, gate))
    index = home / "index.html"
    title = html.escape(f"Gates of {run['dt']}")
    index.write_text(
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style></head>'
        f"<body><h1>{title}</h1><p>Run {html.escape(run['run_id'])}</p><ul>{''.join(lines)}</ul></body></html>\n",
        encoding="utf-8",
    )
    return index


def offline(page: str) -> str:
    """A page of Great Expectations without anything that is loaded from elsewhere or runs."""
    kept = _Kept()
    kept.feed(page)
    kept.close()
    return "<!doctype html>\n" + "".join(kept.parts).replace("</head>", f"<style>{STYLE}</style></head>", 1)


@task(name="data-docs", task_run_name="data-docs-{run[dt]}", cache_policy=NO_CACHE)
def keep_data_docs(folder: Path, run: Mapping[str, Any], gates: Sequence[GateResult]) -> str | None:
    """Keep the Data Docs of a run: the path of their index, or None where it cannot be written, which stops nothing."""
    try:
        return str(write_data_docs(folder, run, gates).resolve())
    except Exception as error:  # noqa: BLE001 - whatever keeps a page from being rendered, the day is worth more
        logger.warning("STEF_DATA_DOCS: %s: the pages of %s cannot be written: %s", folder, run["dt"], error)
        return None


def _line(name: str, gate: GateResult) -> str:
    failed = [failure.message for failure in gate.failures if failure.severity == "critical"]
    state = "failed" if failed else "warned" if gate.warnings else "passed"
    told = "".join(f"<li>{html.escape(message)}</li>" for message in (*failed, *gate.warnings))
    suite = html.escape(gate.validation.suite_name)
    return (
        f'<li><a href="{html.escape(name)}">{suite}</a> <b class="{state}">{state}</b>{f"<ul>{told}</ul>" if told else ""}</li>'
    )


class _Kept(HTMLParser):
    """Collects a page, less the elements that are dropped."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.parts: list[str] = []
        self.inside: list[str] = []  # open elements within the one that is dropped, itself first

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self.inside:
            if tag not in VOID:
                self.inside.append(tag)
            return
        given = dict(attrs)
        classes = set((given.get("class") or "").split())
        if tag in DROPPED or (tag == "a" and "data-toggle" in given) or any(part <= classes for part in NAVIGATION):
            if tag not in VOID:
                self.inside.append(tag)
            return
        kept = "".join(f' {name}="{html.escape(value or "", quote=True)}"' for name, value in attrs if _harmless(name, value))
        self.parts.append(f"<{tag}{kept}>")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in VOID:
            self.handle_starttag(tag, attrs)
        else:
            self.handle_starttag(tag, attrs)
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.inside:
            if tag not in VOID:
                self.parts.append(f"</{tag}>")
        elif tag in self.inside:
            while self.inside.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if not self.inside:
            self.parts.append(data)

    def handle_entityref(self, name: str) -> None:
        self.handle_data(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self.handle_data(f"&#{name};")


def _harmless(name: str, value: str | None) -> bool:
    if name.startswith("on") or name in ("srcset", "style"):
        return False
    return name not in ("href", "src", "action", "data") or (value or "").startswith("#")
