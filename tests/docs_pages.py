"""Pages of docs/ that are made from the code; ``make docs`` writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.page import PAGE as BENCHMARKS
from benchmarks.page import page as benchmarks_page
from stef_core.findings import CODES
from tests.docs_concepts import CONCEPTS, concepts_page
from tests.docs_reference import cli_page, python_page, reasons_page, settings_page, tables_page
from tests.docs_rules import RULES_PAGE, rules_page

DOCS = Path(__file__).parents[1] / "docs"
FINDINGS = DOCS / "findings.md"


def findings_page() -> str:
    """``docs/findings.md``: every finding code with all that the code knows of it."""
    lines = [
        "# Findings",
        "",
        "Each departure of an answer is a finding: a code, its dimension and severity, the stage at fault (`enrichment`,",
        "`generation` or `evaluation`), the part of the question and of the SQL, and a message. Two published taxonomies map",
        "onto the codes: NL2SQL-BUGS (main and sub type, `–` where it has none) and the eight error codes of experiments. This",
        "page is made from `stef_core/findings.py` by `make docs`.",
        "",
        "| code | meaning | severity | dimension | NL2SQL-BUGS | error code |",
        "|---|---|---|---|---|---|",
    ]
    for name, code in CODES.items():
        bugs = "<br>".join(code.bugs) or "–"
        lines.append(f"| `{name}` | {code.meaning} | {code.severity} | {code.dimension} | {bugs} | `{code.error_code}` |")
    return "\n".join(lines) + "\n"


PAGES: dict[Path, Callable[[], str]] = {
    FINDINGS: findings_page,
    CONCEPTS: concepts_page,
    RULES_PAGE: rules_page,
    BENCHMARKS: benchmarks_page,
    DOCS / "reference" / "cli.md": cli_page,
    DOCS / "reference" / "settings.md": settings_page,
    DOCS / "reference" / "tables.md": tables_page,
    DOCS / "reference" / "python.md": python_page,
    DOCS / "reference" / "reasons.md": reasons_page,
}

if __name__ == "__main__":
    for path, page in PAGES.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(page(), encoding="utf-8")
