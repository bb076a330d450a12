"""Pages of docs/ that are made from the code; ``make docs`` writes them."""

from __future__ import annotations

from pathlib import Path

from stef_core.findings import CODES

FINDINGS = Path(__file__).parents[1] / "docs" / "findings.md"


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


if __name__ == "__main__":
    FINDINGS.write_text(findings_page(), encoding="utf-8")
