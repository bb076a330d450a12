"""Cells that drivers return, brought to one form: numbers as numbers, moments as instants, the rest as exact text.

A cell is either a finite number or a token. Tokens are text: the text itself, or, for what is no text, a text that starts with
NUL and names its kind. Two cells are equal if their tokens are, or if their numbers lie within the tolerance.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np
import numpy.typing as npt
import polars as pl

Codes: TypeAlias = npt.NDArray[np.uint64]
Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]

NULL = "\0null"
EXACT_INTEGERS_BELOW = 1e-6
"""Relative tolerances under this stand for the rounding of floating point, which integers do not have."""

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - moments without a zone are read as UTC
_MICROSECOND = dt.timedelta(microseconds=1)
_DOUBLE_HOLDS = 2**53  # integers up to here survive in a float
_FLOAT_HOLDS = 10**300
_ISO = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
_INSTANT = "\0instant "
_OF_INSTANTS = np.uint64(0xA0761D6478BD642F)  # keeps the codes of moments and of numbers apart
_ISO_START = r"^\d{4}-\d\d-\d\d"


def canonical(value: Any, *, ignore_case: bool = False) -> int | float | str:
    """One cell: a finite number (int only where the engine says that it is one), or a token.

    True and False are 1 and 0, as SQLite has them. A text that is a whole ISO 8601 date or timestamp is that instant; moments
    without a zone are read as UTC. Everything else of type text stays exact, but for its case with `ignore_case`.
    """
    if value is None:
        return NULL
    if isinstance(value, str):
        return _text(value, ignore_case)
    if isinstance(value, int):
        return int(value) if -_FLOAT_HOLDS < value < _FLOAT_HOLDS else f"\0integer {value}"
    if isinstance(value, float):
        return _float(float(value))
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, dt.datetime):
        return _instant(value)
    if isinstance(value, dt.date):
        return _instant(dt.datetime(value.year, value.month, value.day))  # noqa: DTZ001
    return _rarer(value, ignore_case)


def _text(value: str, ignore_case: bool) -> str:
    if len(value) >= 10 and value[4] == "-" and _ISO.fullmatch(value):
        try:
            return _instant(_parsed(value))
        except (ValueError, OverflowError):
            pass  # 2024-02-30 is a text and no day
    if value.startswith("\0"):
        value = "\0text " + value
    return value.casefold() if ignore_case else value


def _parsed(text: str) -> dt.datetime:
    """Python 3.11 and above read these forms, but for fractions finer than a microsecond, which no engine here keeps."""
    return dt.datetime.fromisoformat(re.sub(r"([.,]\d{6})\d+", r"\1", text))


def _float(value: float) -> float | str:
    if math.isfinite(value):
        return value + 0.0  # -0.0 is 0
    return "\0nan" if math.isnan(value) else f"\0{value}"


def _decimal(value: Decimal) -> int | float | str:
    if not value.is_finite():
        return "\0nan" if value.is_nan() else _float(float(value))
    if abs(value) >= _FLOAT_HOLDS:
        return f"\0integer {value.normalize():f}"
    return int(value) if value == value.to_integral_value() else float(value)


def _instant(value: dt.datetime) -> str:
    if value.tzinfo is not None:
        value = value.replace(tzinfo=None) - (value.utcoffset() or dt.timedelta())
    return f"{_INSTANT}{(value - _EPOCH) // _MICROSECOND}"


def _rarer(value: Any, ignore_case: bool) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return f"\0bytes {bytes(value).hex()}"
    if isinstance(value, dt.time):
        return f"\0time {value.isoformat()}"
    if isinstance(value, dt.timedelta):
        return f"\0interval {value // _MICROSECOND}"
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        members = sorted((str(key), _member(member, ignore_case)) for key, member in value.items())
        return f"\0object {members!r}"
    if isinstance(value, list | tuple):
        return f"\0list {[_member(member, ignore_case) for member in value]!r}"
    return f"\0{type(value).__name__} {value}"


def _member(value: Any, ignore_case: bool) -> str:
    """A cell inside a list or an object: its number to 12 digits, for a tolerance cannot reach it there."""
    cell = canonical(value, ignore_case=ignore_case)
    if isinstance(cell, str):
        return cell
    return str(cell) if isinstance(cell, int) else str(int(cell)) if cell.is_integer() else f"{cell:.12g}"


def integers_are_exact(abs_tol: float, rel_tol: float) -> bool:
    """Whether a tolerance is so fine that it stands for the rounding of floating point only."""
    return rel_tol < EXACT_INTEGERS_BELOW and abs_tol < 1


def same_number(a: float, b: float, abs_tol: float, rel_tol: float) -> bool:
    """Whether two finite numbers are equal: within the tolerance, and two integers exactly unless the tolerance is coarse."""
    if a == b:
        return True
    if isinstance(a, int) and isinstance(b, int) and integers_are_exact(abs_tol, rel_tol):
        return False
    return math.isclose(a, b, rel_tol=rel_tol, abs_tol=abs_tol)


def same_cell(a: Any, b: Any, *, abs_tol: float, rel_tol: float, ignore_case: bool) -> bool:
    """Whether two cells as the driver returned them are equal."""
    x, y = canonical(a, ignore_case=ignore_case), canonical(b, ignore_case=ignore_case)
    if isinstance(x, str) or isinstance(y, str):
        return isinstance(x, str) and isinstance(y, str) and x == y
    return same_number(x, y, abs_tol, rel_tol)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a result in arrays, one member for each row."""

    codes: Codes  # equal cells have equal codes; numbers too, where they are exactly equal
    numbers: Floats  # NaN where the cell is no finite number
    integers: Flags  # cells that are integers

    @property
    def is_whole(self) -> bool:
        """Every number is an integer."""
        return bool((self.integers | np.isnan(self.numbers)).all())


def read_column(values: Sequence[Any], *, ignore_case: bool = False) -> Column:
    """A column in arrays. Columns of one plain type are read at once, others cell by cell."""
    kinds = set(map(type, values)) - {type(None)}
    column: Column | None = None
    if kinds == {int}:
        column = _integers(values)
    elif kinds == {str}:
        column = None if ignore_case else _texts(values)
    elif kinds == {float}:
        column = _floats(values)
    elif kinds in ({dt.date}, {dt.datetime}):
        column = _moments(values, *kinds)
    return column if column is not None else _cell_by_cell(values, ignore_case)


def _integers(values: Sequence[Any]) -> Column | None:
    try:
        series = pl.Series(values, dtype=pl.Int64, strict=True)
    except (OverflowError, TypeError, pl.exceptions.PolarsError):
        return None
    absent = series.is_null().to_numpy()
    whole = series.fill_null(0).to_numpy()
    codes = _integer_codes(whole)
    codes[absent] = _NULL_CODE
    numbers = whole.astype(np.float64)
    numbers[absent] = np.nan
    return Column(codes, numbers, ~absent)


def _floats(values: Sequence[Any]) -> Column:
    series = pl.Series(values, dtype=pl.Float64)
    absent = series.is_null().to_numpy()
    numbers = series.fill_null(0.0).to_numpy().copy()
    finite = np.isfinite(numbers)
    codes = number_codes(numbers)
    codes[np.isnan(numbers)] = _NAN_CODE
    codes[np.isposinf(numbers)] = _INF_CODE
    codes[np.isneginf(numbers)] = _MINUS_INF_CODE
    codes[absent] = _NULL_CODE
    numbers[~finite | absent] = np.nan
    return Column(codes, numbers, np.zeros(len(codes), dtype=np.bool_))


def _texts(values: Sequence[Any]) -> Column | None:
    try:
        series = pl.Series(values, dtype=pl.String)
    except (TypeError, UnicodeError, pl.exceptions.PolarsError):
        return None
    if series.str.contains(_ISO_START).any() or series.str.starts_with("\0").any():
        return None
    return _tokens(series.fill_null(NULL))


def _moments(values: Sequence[Any], kind: type) -> Column | None:
    if kind is dt.datetime and any(value is not None and value.tzinfo is not None for value in values):
        return None
    series = pl.Series(values, dtype=pl.Date if kind is dt.date else pl.Datetime("us")).cast(pl.Datetime("us")).cast(pl.Int64)
    absent = series.is_null().to_numpy()
    codes = _instant_codes(series.fill_null(0).to_numpy())
    codes[absent] = _NULL_CODE
    return Column(codes, np.full(len(codes), np.nan), np.zeros(len(codes), dtype=np.bool_))


def _instant_codes(microseconds: npt.NDArray[np.int64]) -> Codes:
    return mixed(microseconds.view(np.uint64) ^ _OF_INSTANTS)


def _cell_by_cell(values: Sequence[Any], ignore_case: bool) -> Column:
    cells = [canonical(value, ignore_case=ignore_case) for value in values]
    count = len(cells)
    integers = np.fromiter((isinstance(cell, int) for cell in cells), dtype=np.bool_, count=count)
    numbers = np.fromiter((math.nan if isinstance(cell, str) else float(cell) for cell in cells), dtype=np.float64, count=count)
    # integers that a float cannot hold are told apart by their digits
    wide = [isinstance(cell, int) and abs(cell) > _DOUBLE_HOLDS for cell in cells]
    tokens = [cell if isinstance(cell, str) else f"\0wide {cell}" if far else "" for cell, far in zip(cells, wide, strict=True)]
    codes = _hashed(pl.Series(_encodable(tokens), dtype=pl.String))
    plain = ~np.isnan(numbers) & ~np.array(wide, dtype=np.bool_)
    codes[plain] = number_codes(numbers[plain])
    moments = [k for k, token in enumerate(tokens) if token.startswith(_INSTANT)]
    if moments:
        passed = np.array([int(tokens[k].removeprefix(_INSTANT)) for k in moments], dtype=np.int64)
        codes[moments] = _instant_codes(passed)
    return Column(codes, numbers, integers)


def _encodable(tokens: list[str]) -> list[str]:
    """Lone surrogates, which come from broken encodings, cannot be written as UTF-8."""
    return [token if token.isascii() else token.encode("utf-8", "backslashreplace").decode() for token in tokens]


def _tokens(series: pl.Series) -> Column:
    codes = _hashed(series)
    return Column(codes, np.full(len(codes), np.nan), np.zeros(len(codes), dtype=np.bool_))


def _hashed(series: pl.Series) -> Codes:
    return series.hash(seed=20240229).to_numpy().copy()


def _integer_codes(whole: npt.NDArray[np.int64]) -> Codes:
    codes = number_codes(whole.astype(np.float64))
    wide = (whole > _DOUBLE_HOLDS) | (whole < -_DOUBLE_HOLDS)
    if wide.any():
        codes[wide] = _hashed(pl.Series([f"\0wide {value}" for value in whole[wide].tolist()], dtype=pl.String))
    return codes


def number_codes(numbers: Floats) -> Codes:
    """Codes of finite numbers; equal only for equal numbers."""
    # adding zero turns -0.0 into 0.0
    return mixed((numbers + 0.0).view(np.uint64))


def mixed(codes: Codes) -> Codes:
    """Spread 64 bits over 64 bits, one to one (the finaliser of SplitMix64, Steele et al. 2014)."""
    codes = (codes ^ (codes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    codes = (codes ^ (codes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return codes ^ (codes >> np.uint64(31))


_NULL_CODE, _NAN_CODE, _INF_CODE, _MINUS_INF_CODE = _hashed(pl.Series([NULL, "\0nan", "\0inf", "\0-inf"]))
