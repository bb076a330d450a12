"""Normal form of values, shared by the question side and the SQL side (method.md section 2)."""

from __future__ import annotations

import datetime as dt
import re
import unicodedata
from functools import lru_cache

# leading zeros make a code (a postal code, an article number), not a number
_NUMBER = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:\.\d+)?", re.ASCII)
_DATE = re.compile(
    r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})"
    r"(?:[t ]+(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d+))?)?\s*(z|utc|[+-]\d{2}(?::?\d{2})?)?)?",
    re.ASCII,
)
_NAME_MAX = 100  # characters of a name that is worth remembering


def normal_text(text: str) -> str:
    """Text in NFKC, case-folded, with runs of white space collapsed to one blank and none at the ends."""
    if text.isascii():  # is in NFKC, and folds to lower case
        return " ".join(text.lower().split())
    # folding can undo NFKC (and the reverse), so the form is taken once more
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split())


def normal_name(name: str) -> str:
    """An identifier as it is compared: quoting, case and a trailing or doubled blank do not tell names apart."""
    return _normal_name(name) if len(name) <= _NAME_MAX else normal_text(name.strip('`"[]'))


@lru_cache(maxsize=32_768)  # a query asks for each of its names ten times over, and a log for the same ones all day
def _normal_name(name: str) -> str:
    return normal_text(name.strip('`"[]'))


def normal_number(text: str) -> int | float | None:
    """The number a text stands for, or None; ``"02139"`` is a code and stays text, as do exponents and separators."""
    stripped = text.strip()
    if not _NUMBER.fullmatch(stripped):
        return None
    if "." not in stripped:
        return int(stripped) if len(stripped) <= 400 else None
    return folded_number(float(stripped))


def folded_number(number: float) -> int | float:
    """A float without a fractional part as an int, so that ``1.0`` equals ``1`` in every format it is written to."""
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


def normal_date(text: str) -> str | None:
    """A year-first date as ``YYYY-MM-DD``, with ``HH:MM:SS`` where a time other than midnight is given; None if it is no date.

    Day-first and month-first spellings are ambiguous and are left alone. A zone of zero offset is dropped, another one kept.
    """
    match = _DATE.fullmatch(text.strip().lower())
    if not match:
        return None
    year, _, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        moment = dt.datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0))  # noqa: DTZ001
    except ValueError:
        return None
    date = f"{moment:%Y-%m-%d}" if moment.year >= 1000 else f"{moment.year:04d}-{moment:%m-%d}"
    fraction = (fraction or "").rstrip("0")
    offset = "" if not zone or zone in ("z", "utc") or not zone.strip("+-0:") else zone
    if not (moment.hour or moment.minute or moment.second or fraction or offset):
        return date
    return f"{date} {moment:%H:%M:%S}" + (f".{fraction}" if fraction else "") + offset


def normal_value(value: str | int | float | bool | None) -> str | int | float | bool | None:
    """One constant in normal form: text folded, numeric text a number, year-first dates ``YYYY-MM-DD``.

    Truth values and NULL are themselves; ``'1'``, ``1`` and ``1.0`` are all ``1``, while ``'02139'`` stays text.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return folded_number(value)
    text = normal_text(value)  # first, as folding may make digits of signs that only look like them
    number = normal_number(text)
    if number is not None:
        return number
    return normal_date(text) or text
