"""Dates and periods of a question: days, months, quarters, years, ranges of them, and moments relative to now."""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass

from stef_core.extract.question_tokens import Token
from stef_core.records import Column, DatePart, Filter, Now
from stef_core.vocabulary import ENTITY_NOUNS, word_set

MONTHS = {name.casefold(): i for i, name in enumerate(calendar.month_name) if name}
MONTHS |= {name.casefold(): i for i, name in enumerate(calendar.month_abbr) if name} | {"sept": 9}
_QUARTERS = {"q1": 1, "q2": 2, "q3": 3, "q4": 4}
_HALVES = {"h1": 1, "h2": 2}
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "last": 4}
UNITS = {
    **{u: u for u in ("day", "week", "month", "quarter", "year", "hour", "minute")},
    **{f"{u}s": u for u in ("day", "week", "month", "quarter", "year", "hour", "minute")},
}
_YEAR_LEADS = frozenset(
    "in of during since before after from until till by year years between through to for throughout within season".split()
)
_ISO = re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:[T ](\d{1,2}:\d{2}(?::\d{2})?)(?:\.\d+)?)?$")
_SLASH = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})(?: (\d{1,2}):(\d{2})(?::(\d{2}))?(?: ([AP]M))?)?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Period:
    """A stretch of time. ``unit``: day, moment, month, quarter, half, year, month_of_year; relative to now: last, this, ago."""

    unit: str
    start: str = ""  # first day, YYYY-MM-DD (with a time for a moment)
    end: str = ""  # last day
    number: int = 0  # the year, the month of any year, or the amount of units
    of: str = ""  # unit of a relative period
    mention: str = ""  # YYYY, YYYY-MM or YYYY-MM-DD


def merge_dates(tokens: list[Token]) -> list[Token]:
    """Tokens with every date phrase turned into one token of kind ``d`` whose value is a `Period`."""
    out: list[Token] = []
    i = 0
    while i < len(tokens):
        period, length = _at(tokens, i)
        if period is None:
            out.append(tokens[i])
            i += 1
            continue
        text = " ".join(t.text for t in tokens[i : i + length])
        out.append(Token("d", text, text.casefold(), text.casefold(), value=period))
        i += length
    return out


def _at(tokens: list[Token], i: int) -> tuple[Period | None, int]:
    token = tokens[i]
    if token.kind == "t":
        return _written(token.text), 1
    if token.kind == "n":
        return _from_number(tokens, i)
    if token.kind != "w":
        return None, 0
    low = token.low
    if low in MONTHS and (token.capital or low not in ("may", "march", "mar", "sun", "sat", "dec", "jan")):
        return _from_month(tokens, i)
    if low in _QUARTERS:
        year, used = _year_after(tokens, i + 1)
        return (_quarter(year, _QUARTERS[low]), 1 + used) if year else (None, 0)
    if low in _HALVES or (low in ("first", "second", "last") and _low(tokens, i + 1) == "half"):
        used = 1 if low in _HALVES else 2
        year, more = _year_after(tokens, i + used)
        return (_half(year, 1 if low in ("h1", "first") else 2), used + more) if year else (None, 0)
    if low in _ORDINALS and _low(tokens, i + 1) == "quarter":
        year, used = _year_after(tokens, i + 2)
        return (_quarter(year, _ORDINALS[low]), 2 + used) if year else (None, 0)
    return _relative(tokens, i)


def _low(tokens: list[Token], i: int) -> str:
    return tokens[i].low if 0 <= i < len(tokens) else ""


def _whole(token: Token) -> int | None:
    return token.value if isinstance(token.value, int) and not isinstance(token.value, bool) else None


def _year_token(tokens: list[Token], i: int) -> int | None:
    if not 0 <= i < len(tokens) or tokens[i].kind != "n":
        return None
    year = _whole(tokens[i])
    return year if year is not None and 1500 <= year <= 2199 and len(tokens[i].text) == 4 else None


def _year_after(tokens: list[Token], i: int) -> tuple[int | None, int]:
    used = 0
    while _low(tokens, i + used) in (",", "of", "in", "the", "year") and used < 3:
        used += 1
    year = _year_token(tokens, i + used)
    return (year, used + 1) if year else (None, 0)


def _from_number(tokens: list[Token], i: int) -> tuple[Period | None, int]:
    number = _whole(tokens[i])
    if number is None:
        return None, 0
    j = i + 1 + (_low(tokens, i + 1) == "of")
    month = MONTHS.get(_low(tokens, j).rstrip("."))
    if month and 1 <= number <= 31 and not tokens[i].spelled:
        year, used = _year_after(tokens, j + 1)
        if year:
            return _day(year, month, number), j + 1 + used - i
    year = _year_token(tokens, i)
    if year and _is_year(tokens, i):
        return Period("year", f"{year}-01-01", f"{year}-12-31", number=year, mention=str(year)), 1
    return None, 0


def _is_year(tokens: list[Token], i: int) -> bool:
    year = _year_token(tokens, i) or 0
    if not 1700 <= year <= 2100:
        return False
    before, two, after = _low(tokens, i - 1), tokens[i - 2] if i > 1 else None, tokens[i + 1] if i + 1 < len(tokens) else None
    if before in ("year", "years", "season"):
        return True
    if (
        after is not None
        and after.kind == "w"
        and after.lemma in ("people", "person", "meter", "dollar", "km", "euro", "pound", "unit")
    ):
        return False
    if before in ("and", "or", "to", ",", "through", "until", "till"):
        return any(_year_token(tokens, j) and _is_year(tokens, j) for j in range(max(0, i - 3), i - 1)) or (
            before in ("through", "until", "till")
        )
    if before == "of":
        return two is not None and (
            two.lemma in ENTITY_NOUNS or two.lemma in ("start", "end", "beginning", "summer", "winter", "spring")
        )
    if before in ("to", "for", "by", "within", "from"):
        return before != "to" and (two is None or two.lemma not in ("id", "number", "range", "score"))
    if before in ("than",):
        return _low(tokens, i - 2) in ("later", "earlier")
    if before in _YEAR_LEADS:
        return True
    return before in ("the", "late", "early") and after is not None and (after.capital or after.low in ("season", "edition"))


def _from_month(tokens: list[Token], i: int) -> tuple[Period | None, int]:
    month = MONTHS[tokens[i].low]
    j = i + 1 + (_low(tokens, i + 1) == ".")
    if j < len(tokens) and tokens[j].kind == "n":
        day = _whole(tokens[j])
        year, used = _year_after(tokens, j + 1)
        if day and 1 <= day <= 31 and year:
            return _day(year, month, day), j + 1 + used - i
    year, used = _year_after(tokens, j)
    if year:
        last = calendar.monthrange(year, month)[1]
        mention = f"{year}-{month:02d}"
        return Period("month", f"{mention}-01", f"{mention}-{last:02d}", number=month, mention=mention), j + used - i
    if i + 1 < len(tokens) and tokens[i + 1].kind == "w" and tokens[i + 1].capital:
        return None, 0  # "September Meeting" is a name
    if _low(tokens, i - 1) in ("in", "during", "of", "since", "before", "after", "every", "for", "until", "between", "from"):
        return Period("month_of_year", number=month), 1
    return None, 0


def with_year(period: Period, other: Period) -> Period:
    """A month without a year in the year of another period: "between August and November 2013"."""
    if period.unit != "month_of_year" or other.unit != "month":
        return period
    year = int(other.start[:4])
    last = calendar.monthrange(year, period.number)[1]
    mention = f"{year}-{period.number:02d}"
    return Period("month", f"{mention}-01", f"{mention}-{last:02d}", number=period.number, mention=mention)


def _day(year: int, month: int, day: int) -> Period | None:
    if not (1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1]):
        return None
    text = f"{year:04d}-{month:02d}-{day:02d}"
    return Period("day", text, text, mention=text)


def _quarter(year: int, quarter: int) -> Period:
    first, last = 3 * quarter - 2, 3 * quarter
    end = calendar.monthrange(year, last)[1]
    return Period("quarter", f"{year}-{first:02d}-01", f"{year}-{last:02d}-{end}", number=quarter, mention=str(year))


def _half(year: int, half: int) -> Period:
    start, end = ("01-01", "06-30") if half == 1 else ("07-01", "12-31")
    return Period("half", f"{year}-{start}", f"{year}-{end}", number=half, mention=str(year))


def _written(text: str) -> Period | None:
    iso = _ISO.match(text)
    if iso:
        day = _day(max(1, int(iso[1])), int(iso[2]), int(iso[3]))
        return _timed(day, iso[4]) if day else None
    slash = _SLASH.match(text)
    if slash is None:
        return None
    day = _day(max(1, int(slash[3])), int(slash[1]), int(slash[2])) or _day(max(1, int(slash[3])), int(slash[2]), int(slash[1]))
    if day is None or slash[4] is None:
        return day
    hour = int(slash[4]) % 12 + 12 * (slash[7].upper() == "PM") if slash[7] else int(slash[4])
    return _timed(day, f"{hour}:{slash[5]}:{slash[6] or '00'}")


def _timed(day: Period, clock: str | None) -> Period:
    if not clock:
        return day
    hour, minute, *second = clock.split(":")
    moment = f"{day.start} {int(hour):02d}:{minute}:{second[0] if second else '00'}"
    return Period("moment", moment, moment, mention=day.mention)


def _relative(tokens: list[Token], i: int) -> tuple[Period | None, int]:
    low = tokens[i].low
    if low == "today":
        return Period("this", of="day"), 1
    if low == "yesterday":
        return Period("previous", number=1, of="day"), 1
    if low in ("last", "past", "previous", "preceding"):
        number = tokens[i + 1].value if i + 1 < len(tokens) and tokens[i + 1].kind == "n" else None
        unit = UNITS.get(_low(tokens, i + 2))
        if isinstance(number, int) and unit:
            return Period("last", number=number, of=unit), 3
        unit = UNITS.get(_low(tokens, i + 1))
        if unit and _low(tokens, i - 1) in ("the", "past") and low == "past":
            return Period("last", number=1, of=unit), 2
        if unit and unit not in ("hour", "minute") and _low(tokens, i + 1) == unit and _low(tokens, i + 2) not in ("of",):
            return Period("previous", number=1, of=unit), 2
        return None, 0
    if low in ("this", "current"):
        unit = UNITS.get(_low(tokens, i + 1))
        if unit and _low(tokens, i + 1) == unit and not (low == "this" and _low(tokens, i - 1) == "of" and unit == "day"):
            return Period("this", of=unit), 2
    return None, 0


# --- as conditions ------------------------------------------------------------------------------------------------------


def period_filters(period: Period, column: Column, direction: str, text: str, *, negated: bool = False) -> list[Filter]:
    """The conditions that a period sets on a date column.

    Args:
        period: The stretch of time.
        column: The date column, a guess from the words around it.
        direction: ``in before after since until``.
        text: The phrase it was read from.
        negated: Whether the question excludes it.
    """
    name = column if isinstance(column, str) else column.column

    def one(op: str, value: object, target: Column = name) -> list[Filter]:
        return [Filter(column=target, op=op, value=value, text=text, clause="question")]  # type: ignore[arg-type]

    bound = {"before": "<", "after": ">", "since": ">=", "until": "<="}.get(direction)
    if period.unit == "year":
        op = bound or ("!=" if negated else "=")
        return one(op, period.number, DatePart(part="year", column=name))
    if period.unit == "month_of_year":
        op = bound or ("!=" if negated else "=")
        return one(op, period.number, DatePart(part="month", column=name))
    if period.unit in ("day", "moment"):
        return one(bound or ("!=" if negated else "="), period.start)
    if period.unit in ("month", "quarter", "half"):
        if bound:
            return one(bound, period.start if direction in ("before", "since") else period.end)
        return one("not_between" if negated else "between", (period.start, period.end))
    if period.unit == "last":
        return one("<" if negated or direction == "before" else ">=", Now(amount=period.number, unit=period.of))
    trunc = None if period.of in ("hour", "minute") else period.of
    start = Now(amount=period.number if period.unit == "previous" else 0, unit=period.of, trunc=trunc)
    if period.unit == "this":
        return one("<" if direction == "before" else ">=", start)
    return one(">=", start) + one("<", Now(amount=0, unit=period.of, trunc=trunc))


def between_periods(first: Period, last: Period, column: str, text: str) -> Filter:
    """A closed range from one period to another."""
    if first.unit == last.unit == "year":
        part = DatePart(part="year", column=column)
        return Filter(column=part, op="between", value=(first.number, last.number), text=text, clause="question")
    if first.unit == last.unit == "month_of_year":
        part = DatePart(part="month", column=column)
        return Filter(column=part, op="between", value=(first.number, last.number), text=text, clause="question")
    return Filter(column=column, op="between", value=(first.start, last.end), text=text, clause="question")


_CONVENTIONS = {
    "create": "created_at",
    "update": "updated_at",
    "modify": "updated_at",
    "issue": "issued_on",
    "pay": "paid_on",
    "cancel": "cancelled_on",
    "close": "closed_at",
    "resolve": "resolved_at",
    "borrow": "borrowed_on",
    "measure": "measured_at",
    "record": "recorded_at",
    "born": "birth_date",
    "bear": "birth_date",
    "die": "death_date",
    "sign": "signup_date",
    "register": "registration_date",
    "open": "opened_at",
    "admit": "admission_date",
    "found": "founded",
    "establish": "founded",
}
_VAGUE = word_set("place make take happen occur hold get come do receive have earn give")
_NOUN_CONVENTIONS = {
    "order": "order_date",
    "ticket": "created_at",
    "signup": "signup_date",
    "invoice": "issued_on",
    "sale": "sale_date",
}


def date_column(verb: str | None, noun: str | None) -> str:
    """The usual name of the date column of an event (``order`` → ``order_date``) or of a kind of row."""
    if verb and verb not in _VAGUE:
        return _CONVENTIONS.get(verb, f"{verb}_date")
    return _NOUN_CONVENTIONS.get(noun or "", "date")
