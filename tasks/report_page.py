"""Pages of HTML that stand alone: how they are rendered and written, and how strangers' text is made harmless on them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from stef_core.errors import RuleError
from stef_core.highlight import places
from stef_core.wording import plain_text

NAME = 48  # characters of an agent's, application's or version's name that are shown
_CUT = " …"
# what could end the element, or a line of a script, early
_JSON_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def page_environment() -> Environment:
    """Templates of this package, with everything that comes from strangers escaped and made plain."""
    environment = Environment(
        loader=PackageLoader("tasks", "report_templates"),
        autoescape=True,  # questions, SQL and names come from strangers
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: plain_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    environment.filters |= {
        "one": one,
        "signed": signed,
        "percent": percent,
        "count": count,
        "money": money,
        "words": words,
        "short": short,
        "span": span,
    }
    return environment


def write_page(page: str, out: Path) -> Path:
    """Write a page, in whole or not at all; its folder is made where absent, an older file is replaced.

    Raises:
        RuleError: The file cannot be written; the message says why.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.", suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(page)
            Path(name).chmod(0o644)
            Path(name).replace(out)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise RuleError(f"{out}: the report cannot be written: {error.strerror or error}; choose another file") from error
    return out


def script_and_hash(name: str) -> tuple[Markup, str]:
    """A script of this package and its hash, as a Content-Security-Policy names it."""
    text = (files("tasks") / "report_templates" / name).read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return Markup(text), f"sha256-{digest}"  # noqa: S704  # ours, and no text of strangers is put into it


def json_for_page(value: Any) -> Markup:
    """JSON that cannot end its script element, for a reader that inserts it as text only."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return Markup(text.translate(_JSON_ESCAPES))  # noqa: S704  # no sign of markup is left in it


def marked(text: str, parts: Iterable[str | None], limit: int) -> Markup:
    """A stranger's text, escaped, with the parts that findings name in ``<mark>``, and cut after `limit` characters."""
    plain = plain_text(text)
    shown = plain[:limit]
    pieces, at = [], 0
    for start, end in places(shown, (plain_text(part) for part in parts if part)):
        pieces += [Markup.escape(shown[at:start]), Markup("<mark>{}</mark>").format(shown[start:end])]
        at = end
    pieces.append(Markup.escape(shown[at:]))
    if len(plain) > limit:
        pieces.append(Markup('{}<span class="quiet"> {} more characters</span>').format(_CUT, count(len(plain) - limit)))
    return Markup("").join(pieces)


def short(text: str | None, limit: int = NAME) -> str:
    """A stranger's name or sentence in one line, cut."""
    plain = re.sub(r"\s+", " ", plain_text(text)).strip()
    return plain if len(plain) <= limit else plain[: limit - 1].rstrip() + "…"


# --- figures; the report's script has the same rules ----------------------------------------------------------------


def one(value: float | None) -> str:
    """A figure with one decimal, a half away from zero."""
    return "–" if value is None else f"{rounded(value, 1):.1f}".replace("-", "−")


def signed(value: float | None) -> str:
    """A difference with its sign."""
    text = one(value)
    return text if value is None or text.startswith("−") else f"+{text}"


def percent(value: float | None, digits: int = 1) -> str:
    """A share of 0-1 as per cent."""
    return "–" if value is None else f"{rounded(100 * value, digits):.{digits}f}\u00a0%"


def count(value: int | None) -> str:
    """A number of things, its thousands apart."""
    return "–" if value is None else f"{value:,}".replace(",", "\u202f")


def money(value: float | None) -> str:
    """An amount of money: cents, and parts of cents where it is less than one."""
    if value is None:
        return "–"
    digits = 2 if value >= 1 or value == 0 else 4
    return f"{rounded(value, digits):.{digits}f}"


def words(value: str | None) -> str:
    """A code as words."""
    return (value or "–").replace("_", " ")


def span(value: tuple[float, float] | None, *, sign: bool = False) -> str:
    """An interval; nothing where there is none."""
    if value is None:
        return ""
    low, high = (signed(end) if sign else one(end) for end in value)
    return f"{low} to {high}"


def rounded(value: float, digits: int) -> float:
    """Rounded as JavaScript's ``toFixed`` rounds: by the exact binary value, a half away from zero."""
    result = float(Decimal(value).quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP))
    return result or 0.0  # no −0.0
