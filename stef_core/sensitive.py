"""Finds personal data in text: e-mail addresses, phone numbers, payment cards, IBANs, national ids and patterns of one's own.

Text is read as a person sees it: compatibility forms, digits of any script, dashes and spaces are made plain first, invisible
characters are passed over. Each value has an `identity` that its spelling does not change, so that two spellings of one value
can be told to be the same. Every search takes time linear in the length of the text.
"""

from __future__ import annotations

import functools
import importlib
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from stef_core.rules import RedactEntry

# --- text as it is seen ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class View:
    """A text made plain, and where each of its characters came from."""

    text: str
    starts: Sequence[int] | None = None  # of each character in the source; None: both texts are alike
    ends: Sequence[int] | None = None

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where a part of the plain text, not empty, stands in the source."""
        if self.starts is None or self.ends is None:
            return start, end
        return self.starts[start], self.ends[end - 1]


def view_of(text: str, *, folded: bool = False) -> View:
    """A text made plain.

    Args:
        text: Any text.
        folded: Fold the case of letters too.
    """
    if text.isascii() and "\0" not in text:
        return View(text.lower() if folded else text)
    out: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    position = 0
    while position < len(text):
        end = position + 1
        while end < len(text) and unicodedata.combining(text[end]):  # accents belong to the letter before them
            end += 1
        plain = _plain(text[position:end])
        plain = plain.casefold() if folded else plain
        out.append(plain)
        starts += [position] * len(plain)
        ends += [end] * len(plain)
        position = end
    return View("".join(out), starts, ends)


@functools.lru_cache(maxsize=8_192)
def _plain(character: str) -> str:
    if len(character) == 1:
        category = unicodedata.category(character)
        if character == "\0" or category in ("Cf", "Cs"):  # what nobody sees, and halves of characters, which no text may hold
            return ""
        if category == "Nd":
            return str(unicodedata.decimal(character))
        if category == "Pd" or character == "\u2212":
            return "-"
        if category == "Zs":
            return " "
    return unicodedata.normalize("NFKC", character)


def folded(text: str) -> str:
    """One spelling for texts that differ in case, white space or Unicode form alone."""
    return " ".join(view_of(text, folded=True).text.split())


# --- what is found --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A value in a text, at ``[start, end)``."""

    start: int
    end: int
    identity: str
    what: str  # its kind, or the name of its pattern
    compact: str  # its plainest spelling
    forms: tuple[str, ...] = ()  # letters and figures, in capitals, of its other spellings


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A part of a text that values cover, several where they overlap; `identities` name what the whole of it says."""

    start: int
    end: int
    identities: tuple[str, ...]
    found: Found | None = None  # the one value that covers it all


Search: TypeAlias = Callable[[str], Iterable[Found]]


class Detectors:
    """Finds the values that some entries of `Rules.redact` describe.

    Args:
        searches: Of each entry, over plain text.
    """

    def __init__(self, searches: Sequence[Search]) -> None:
        self._searches = tuple(searches)
        self._remembered = functools.lru_cache(maxsize=8_192)(self._find)  # a row says the same thing many times

    def find(self, view: View) -> list[Found]:
        """Every value in a plain text, with its place in the source; values may overlap."""
        found = self._remembered(view.text) if len(view.text) <= REMEMBERED else self._find(view.text)
        return [_placed(hit, view) for hit in found]

    def _find(self, text: str) -> list[Found]:
        return [hit for search in self._searches for hit in search(text)]


REMEMBERED = 2_000  # characters of a text whose values are kept in mind


def _placed(hit: Found, view: View) -> Found:
    if view.starts is None:
        return hit
    start, end = view.span(hit.start, hit.end)
    return replace(hit, start=start, end=end)


def clusters(text: str, search: Callable[[str], Sequence[Found]], hidden: Iterable[tuple[int, int]] = ()) -> list[Cluster]:
    """What is found in a text, joined where it overlaps, in the order of the text.

    Args:
        text: Any text.
        search: Finds values in it; asked again with what it found covered up, as one value may hide its neighbour.
        hidden: Parts of the text to be passed over.
    """
    shown = _covered(text, hidden)
    found: list[Cluster] = []
    for _ in range(ROUNDS):
        joined = _joined(shown, [part for hit in search(shown) for part in _uncovered(hit, shown)])
        if not joined:
            break
        found += joined
        shown = _covered(shown, ((each.start, each.end) for each in joined))
    return sorted(found, key=lambda each: each.start)


COVER = "\ue000"  # a character of no meaning, next to which nothing is found or missed
ROUNDS = 4


def _covered(text: str, spans: Iterable[tuple[int, int]]) -> str:
    out, last = [], 0
    for start, end in spans:
        out += [text[last:start], COVER * (end - start)]
        last = end
    return "".join([*out, text[last:]]) if out else text


def _uncovered(hit: Found, shown: str) -> Iterator[Found]:
    """The parts of a value that are not covered up."""
    text = shown[hit.start : hit.end]
    if COVER not in text:
        yield hit
        return
    for match in re.finditer(rf"[^\s{COVER}](?:[^{COVER}]*[^\s{COVER}])?", text):
        part = match.group()
        start, end = hit.start + match.start(), hit.start + match.end()
        yield Found(start=start, end=end, identity=f"text:{folded(part)}", what=hit.what, compact=part)


def _joined(text: str, hits: Sequence[Found]) -> list[Cluster]:
    groups: list[list[Found]] = []
    end = -1
    for hit in sorted(hits, key=lambda h: (h.start, -h.end)):
        if groups and hit.start < end:
            groups[-1].append(hit)
        else:
            groups.append([hit])
        end = max(end, hit.end)
    out = []
    for group in groups:
        start, end = group[0].start, max(hit.end for hit in group)
        whole = [hit for hit in group if (hit.start, hit.end) == (start, end)]
        names = [hit.identity for hit in whole] or [f"text:{folded(text[start:end])}"]
        out.append(Cluster(start=start, end=end, identities=tuple(dict.fromkeys(names)), found=whole[0] if whole else None))
    return out


@functools.lru_cache(maxsize=64)
def detectors_of(entries: tuple[RedactEntry, ...]) -> Detectors:
    """What finds the values of these entries; column names among them are passed over."""
    searches: list[Search] = []
    for entry in entries:
        if isinstance(entry, str):
            continue
        kind = getattr(entry, "kind", None)
        if kind is None:
            searches.append(_pattern_search(entry.pattern, entry.name))  # type: ignore[union-attr]  # has no kind
        elif kind == "phone":
            searches.append(_phone_search(entry.regions))  # type: ignore[union-attr]
        elif kind == "national_id":
            searches.append(_id_search(entry.regions))  # type: ignore[union-attr]
        else:
            searches.append({"email": _emails, "card": _cards, "iban": _ibans}[kind])
    return Detectors(searches)


# --- e-mail addresses -----------------------------------------------------------------------------------------------

# letters of scripts that put spaces between words; an address ends where another script goes on
_LETTER = "0-9A-Za-z_\u00b5-\u0dff\u1e00-\u1fff"
_EMAIL = re.compile(rf"(?<![{_LETTER}.+-])[{_LETTER}.+-]++@[{_LETTER}-]++(?:\.[{_LETTER}-]++)++")


def _emails(text: str) -> Iterator[Found]:
    if "@" not in text:
        return
    for match in _EMAIL.finditer(text):
        local, _, domain = match.group().partition("@")
        start = match.start() + len(local) - len(local.lstrip("._-+"))
        last = domain.rpartition(".")[2].strip("-_")
        if start == match.start() + len(local) or len(last) < 2 or last.isdigit():
            continue
        found = text[start : match.end()].rstrip("-_")
        yield Found(start=start, end=start + len(found), identity=f"email:{folded(found)}", what="email", compact=found.lower())


# --- numbers that are written in groups -----------------------------------------------------------------------------

_GROUP = re.compile("[0-9A-Za-z]+")
_BETWEEN = re.compile(r"[-./+()\s_]{1,3}")  # what may stand between two groups of one number
_MOST_GROUPS = 10  # of one number
_FEW_DIGITS = 4  # no kind of number has fewer
_HAS_DIGITS = re.compile(rf"\d(?:\D*\d){{{_FEW_DIGITS - 1}}}")


@dataclass(frozen=True, slots=True)
class _Window:
    """Groups that follow each other: where they stand, and their letters and figures in capitals."""

    start: int
    end: int
    compact: str
    shortest: int  # length of the shortest group but the last; of a single group its own


def _windows(text: str, most: int, begins: Callable[[str], bool]) -> Iterator[_Window]:
    """Runs of groups of at most `most` letters and figures, from each group that `begins` accepts (in capitals)."""
    groups = [match.span() for match in _GROUP.finditer(text)]
    for first, (start, end) in enumerate(groups):
        if end - start > most or not begins(text[start:end].upper()):
            continue
        compact, shortest, last = text[start:end].upper(), end - start, first
        yield _Window(start, end, compact, shortest)
        while last + 1 < min(len(groups), first + _MOST_GROUPS):
            before, (left, right) = groups[last], groups[last + 1]
            if len(compact) + right - left > most or not _BETWEEN.fullmatch(text, before[1], left):
                break
            shortest = min(shortest, before[1] - before[0])
            compact += text[left:right].upper()
            last += 1
            yield _Window(start, right, compact, shortest)


def _digits(text: str) -> int:
    return sum(character.isdigit() for character in text)


CARD_DIGITS = (13, 19)


def _cards(text: str) -> Iterator[Found]:
    """Payment cards: 13 to 19 digits with a right check digit, of a network's range, in groups as cards print them."""
    from stdnum import luhn

    low, high = CARD_DIGITS
    if not _HAS_DIGITS.search(text):
        return
    for window in _windows(text, high, lambda group: group.isdigit() and group[0] in "23456"):
        number = window.compact
        # shorter groups are dates and times
        if len(number) >= low and number.isdigit() and window.shortest >= 4 and luhn.is_valid(number):
            yield Found(
                start=window.start, end=window.end, identity=f"card:{number}", what="card", compact=number, forms=(number,)
            )


IBAN_LENGTH = 34


def _ibans(text: str) -> Iterator[Found]:
    from stdnum import iban

    if not _HAS_DIGITS.search(text):
        return
    for window in _windows(text, IBAN_LENGTH, lambda group: len(group) >= 4 and group[:2].isalpha() and group[2:4].isdigit()):
        if len(window.compact) >= 15 and _accepts(functools.partial(iban.validate, check_country=False), window.compact):
            number = window.compact
            yield Found(
                start=window.start, end=window.end, identity=f"iban:{number}", what="iban", compact=number, forms=(number,)
            )


@dataclass(frozen=True, slots=True)
class _NationalId:
    """A module of stdnum, the letters and figures that its numbers have, and how they may be written where that matters."""

    module: str
    lengths: tuple[int, ...]
    form: re.Pattern[str] | None = None


# personal numbers of stdnum by ISO 3166 code; a form is given where no check digit tells a number from any other
NATIONAL_IDS: dict[str, tuple[_NationalId, ...]] = {
    "AT": (_NationalId("at.vnr", (10,)),),
    "AU": (_NationalId("au.tfn", (8, 9)),),
    "BE": (_NationalId("be.nn", (11,)), _NationalId("be.bis", (11,))),
    "BG": (_NationalId("bg.egn", (10,)),),
    "BR": (_NationalId("br.cpf", (11,)),),
    "CA": (_NationalId("ca.sin", (9,)),),
    "CH": (_NationalId("ch.ssn", (13,)),),
    "CL": (_NationalId("cl.rut", (8, 9)),),
    "CN": (_NationalId("cn.ric", (18,)),),
    "CZ": (_NationalId("cz.rc", (9, 10)),),
    "DE": (_NationalId("de.idnr", (11,)),),
    "DK": (_NationalId("dk.cpr", (10,), re.compile(r"\d{6}[ -]?\d{4}")),),
    "EE": (_NationalId("ee.ik", (11,)),),
    "ES": (_NationalId("es.dni", (9,)), _NationalId("es.nie", (9,))),
    "FI": (_NationalId("fi.hetu", (10, 11)),),
    "FR": (_NationalId("fr.nir", (15,)),),
    "GB": (_NationalId("gb.nhs", (10,)),),
    "GR": (_NationalId("gr.amka", (11,)),),
    "HR": (_NationalId("hr.oib", (11,)),),
    "IE": (_NationalId("ie.pps", (8, 9)),),
    "IL": (_NationalId("il.idnr", (9,)),),
    "IN": (_NationalId("in_.aadhaar", (12,)), _NationalId("in_.pan", (10,))),
    "IS": (_NationalId("is_.kennitala", (10,)),),
    "IT": (_NationalId("it.codicefiscale", (16,)),),
    "KR": (_NationalId("kr.rrn", (13,)),),
    "LT": (_NationalId("lt.asmens", (11,)),),
    "LV": (_NationalId("lv.pvn", (11,)),),
    "MX": (_NationalId("mx.curp", (18,)),),
    "MY": (_NationalId("my.nric", (12,)),),
    "NL": (_NationalId("nl.bsn", (9,)),),
    "NO": (_NationalId("no.fodselsnummer", (11,)),),
    "PL": (_NationalId("pl.pesel", (11,)),),
    "PT": (_NationalId("pt.cc", (12,)),),
    "RO": (_NationalId("ro.cnp", (13,)),),
    "SE": (_NationalId("se.personnummer", (10, 12)),),
    "SI": (_NationalId("si.emso", (13,)),),
    "SK": (_NationalId("sk.rc", (9, 10)),),
    "TH": (_NationalId("th.pin", (13,)),),
    "TR": (_NationalId("tr.tckimlik", (11,)),),
    "US": (_NationalId("us.ssn", (9,), re.compile(r"\d{9}|\d{3}([ -])\d{2}\1\d{4}")),),
    "ZA": (_NationalId("za.idnr", (13,)),),
}


def _id_search(regions: Sequence[str]) -> Search:
    wanted = [(each, importlib.import_module(f"stdnum.{each.module}")) for region in regions for each in NATIONAL_IDS[region]]
    longest = max(length for each, _ in wanted for length in each.lengths)
    lengths = {length for each, _ in wanted for length in each.lengths}

    def search(text: str) -> Iterator[Found]:
        if not _HAS_DIGITS.search(text):
            return
        for window in _windows(text, longest, lambda _: True):
            number = window.compact
            if len(number) not in lengths or _digits(number) < _FEW_DIGITS:
                continue
            written = text[window.start : window.end]
            signed = "-" in written or "+" in written
            for each, module in wanted:
                if len(number) not in each.lengths or (each.form is not None and not each.form.fullmatch(written)):
                    continue
                # a sign may stand for the century, so a number is read with its signs too
                if _accepts(module.validate, number) or (signed and _accepts(module.validate, written)):
                    yield Found(
                        start=window.start,
                        end=window.end,
                        identity=f"national_id:{number}",
                        what="national_id",
                        compact=number,
                        forms=_number_forms(number),
                    )
                    break

    return search


def _accepts(validate: Callable[[str], Any], text: str) -> bool:
    from stdnum.exceptions import ValidationError

    try:
        validate(text)
    except ValidationError:
        return False
    except Exception:  # noqa: BLE001  # a fault of the library leaves open what the number is, so it is kept back
        return True
    return True


def _number_forms(*numbers: str) -> tuple[str, ...]:
    """Spellings without separators, among them those of a number that lost its leading zeros; too short ones say nothing."""
    forms = [form for number in numbers for form in (number, number.lstrip("0"))]
    return tuple(dict.fromkeys(form for form in forms if len(form) >= 7))


# --- phone numbers --------------------------------------------------------------------------------------------------

# next to a number phonenumbers takes these for a sum of money or a share; in SQL they are wildcards
_NO_PUNCTUATION = str.maketrans("%$€£_", "     ")
_FIGURES = re.compile(r"\d+")
_PHONE_DIGITS = (7, 17)  # with the two zeros that stand for a plus
_DATE = re.compile(r"\d{4}([-/.])\d{1,2}\1\d{1,2}\b|\d{1,2}([-/.])\d{1,2}\2\d{4}\b")
_RUN_MAX = 40  # groups of figures that follow each other; more are no phone numbers, and are kept back as they are


def _phone_search(regions: Sequence[str]) -> Search:
    from phonenumbers import (
        Leniency,
        PhoneNumber,
        PhoneNumberFormat,
        PhoneNumberMatcher,
        format_number,
        national_significant_number,
    )

    wanted = regions or (None,)

    def found(start: int, end: int, number: PhoneNumber) -> Found:
        full = format_number(number, PhoneNumberFormat.E164)
        national = format_number(number, PhoneNumberFormat.NATIONAL).partition(" ext")[0]
        forms = _number_forms(full[1:], f"00{full[1:]}", national_significant_number(number), re.sub(r"\D", "", national))
        return Found(start=start, end=end, identity=f"phone:{full}", what="phone", compact=full, forms=forms)

    def matches(text: str) -> Iterator[Found]:
        for region in wanted:
            for match in PhoneNumberMatcher(text, region, leniency=Leniency.VALID, max_tries=len(text) + 1):
                shown = text[match.start : match.end]
                spare = len(shown) - len(shown.lstrip()) + (shown.startswith("(") and ")" not in shown)  # a bracket of SQL
                yield found(match.start + spare, match.end, match.number)

    @functools.lru_cache(maxsize=8_192)
    def whole(text: str) -> Found | None:
        return next((hit for hit in matches(text) if hit.end - hit.start == len(text)), None)

    def search(text: str) -> Iterator[Found]:
        if not _HAS_DIGITS.search(text):
            return
        plain = text.translate(_NO_PUNCTUATION)
        hits = dict.fromkeys(matches(plain))
        yield from hits
        places = {(hit.start, hit.end) for hit in hits}
        # a number next to other figures is part of something longer to phonenumbers: "in 2024 030 901820"
        for run in _runs(plain):
            if len(run) > _RUN_MAX:
                start, end = run[0][0], run[-1][1]
                shown = text[start:end]
                yield Found(start=start, end=end, identity=f"text:{folded(shown)}", what="phone", compact=shown)
                continue
            for start, end in _parts(plain, run):
                part = None if (start, end) in places else whole(plain[start:end])
                if part is not None:
                    yield replace(part, start=start, end=end)

    return search


def _runs(text: str) -> Iterator[list[tuple[int, int]]]:
    """Groups of figures that follow each other as those of one number may, two or more."""
    run: list[tuple[int, int]] = []
    for match in _FIGURES.finditer(text):
        if run and not _BETWEEN.fullmatch(text, run[-1][1], match.start()):
            if len(run) > 1:
                yield run
            run = []
        run.append(match.span())
    if len(run) > 1:
        yield run


def _parts(text: str, run: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Parts of a run that could be a phone number, from one white space to another."""
    low, high = _PHONE_DIGITS
    for first, (left, _) in enumerate(run):
        start = left
        while start > 0 and text[start - 1] in "+(":
            start -= 1
        if (first and not text[start - 1].isspace()) or _DATE.match(text, left):
            continue
        digits = 0
        for last in range(first, len(run)):
            digits += run[last][1] - run[last][0]
            if digits > high:
                break
            if digits >= low and (last + 1 == len(run) or text[run[last][1]].isspace()):
                yield start, run[last][1]


# --- patterns of one's own ------------------------------------------------------------------------------------------

PATTERN_MAX = 500  # characters that one value of a pattern may have in a text longer than _PIECE
_PIECE = 4_000  # a pattern such as a.*b|a looks from each match to the end of its text: pieces keep that linear


def compile_pattern(pattern: str) -> Any:
    """A pattern in RE2's syntax, which matches in linear time; the case of letters does not count.

    Raises:
        ValueError: The pattern is wrong, or matches the empty text.
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error)
        raise ValueError(f"is no pattern that RE2 takes: {reason}") from error
    if compiled.search("") is not None:
        raise ValueError("matches the empty text, so it would match everywhere; ask for at least one character")
    return compiled


def _pattern_search(pattern: str, name: str) -> Search:
    compiled = compile_pattern(pattern)

    def search(text: str) -> Iterator[Found]:
        for offset, piece in _pieces(text):
            for match in compiled.finditer(piece):
                start, end = match.span()
                if start == end:
                    continue
                value = match.group()
                yield Found(start=offset + start, end=offset + end, identity=f"text:{folded(value)}", what=name, compact=value)

    return search


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    for offset in range(0, max(1, len(text) - PATTERN_MAX), _PIECE - PATTERN_MAX):
        yield offset, text[offset : offset + _PIECE]


# --- values that are known ------------------------------------------------------------------------------------------

_ATOM = re.compile(r"\w+|[^\w\s]")
_FEW_TEXTS = 50  # beginnings that are looked for before a text is taken apart
_ATOMS = 64  # a longer text is known by its pieces, which overlap by one word so that they join


class Dictionary:
    """Finds known texts in others, whatever their case and spacing, where they stand as whole words.

    Args:
        known: Texts, each with its identity; of equal texts the first counts.
    """

    def __init__(self, known: Iterable[tuple[str, str]]) -> None:
        self._root: dict[str, Any] = {}  # by their words, one below the other; "" holds the identity of what ends there
        for text, identity in known:
            atoms = [name for name, _, _ in _atoms(view_of(text, folded=True).text)]
            for start in range(0, max(1, len(atoms) - 1), _ATOMS - 1):
                node = self._root
                for name in (first.lstrip() if n == 0 else first for n, first in enumerate(atoms[start : start + _ATOMS])):
                    node = node.setdefault(name, {})
                if atoms:
                    node.setdefault("", identity)

    def find(self, text: str) -> list[Found]:
        """Every known text in another one, the longest from each place."""
        view = view_of(text, folded=True)
        if not self._root or (len(self._root) < _FEW_TEXTS and not any(name in view.text for name in self._root)):
            return []
        atoms = _atoms(view.text)
        hits = []
        for first, (name, start, _) in enumerate(atoms):
            node, last, best = self._root.get(name.lstrip()), first, None
            while node is not None:
                if "" in node:
                    best = last, node[""]
                last += 1
                node = node.get(atoms[last][0]) if last < len(atoms) else None
            if best is not None:
                left, right = view.span(start, atoms[best[0]][2])
                hits.append(Found(start=left, end=right, identity=best[1], what="literal", compact=text[left:right]))
        return hits


def _atoms(plain: str) -> list[tuple[str, int, int]]:
    """Words and signs with their places; all but the first say whether white space stands before them."""
    out: list[tuple[str, int, int]] = []
    before = 0
    for match in _ATOM.finditer(plain):
        gap = " " if out and match.start() > before else ""
        out.append((gap + match.group(), match.start(), match.end()))
        before = match.end()
    return out


class Forms:
    """Finds other spellings of known numbers, separators or not.

    Args:
        known: Letters and figures in capitals, each with its identity; of equal ones the first counts.
    """

    def __init__(self, known: Iterable[tuple[str, str]]) -> None:
        self._known: dict[str, str] = {}
        for form, identity in known:
            self._known.setdefault(form, identity)
        self._most = max(map(len, self._known), default=0)
        self._sorted = sorted(self._known)

    def find(self, view: View) -> Iterator[Found]:
        """Every spelling in a plain text, with its place in the source."""
        if not self._known:
            return
        text = view.text
        if not _HAS_DIGITS.search(text):
            return
        for window in _windows(text, self._most, self._begins):
            identity = self._known.get(window.compact)
            if identity is not None:
                start = window.start - 1 if window.start and text[window.start - 1] == "+" else window.start
                left, right = view.span(start, window.end)
                yield Found(start=left, end=right, identity=identity, what="number", compact=window.compact)

    def _begins(self, group: str) -> bool:
        place = bisect_left(self._sorted, group)
        return place < len(self._sorted) and self._sorted[place].startswith(group)


_HEAD = 4  # letters and figures that a beginning has at least; fewer may begin anything
_WORD_START = re.compile(r"(?<![^\W_])[^\W_]")
_NUMBER_MAX = 60  # characters of a number with its separators


class Beginnings:
    """Finds the beginning of a known text at the end of another, which was cut off there.

    Args:
        known: Texts, each with its identity; of texts that begin alike the first counts.
    """

    def __init__(self, known: Iterable[tuple[str, str]]) -> None:
        spelled = {folded(text): identity for text, identity in reversed(list(known))}
        compact = {_compact(text): identity for text, identity in spelled.items() if _HAS_DIGITS.search(text)}
        self._texts, self._numbers = dict(sorted(spelled.items())), dict(sorted(compact.items()))
        self._sorted_texts, self._sorted_numbers = list(self._texts), list(self._numbers)
        self._heads = {text[:_HEAD] for text in self._texts}

    def at_end(self, text: str) -> tuple[int, str] | None:
        """The longest end of a text that begins a known one: its length, and the identity."""
        view = view_of(text, folded=True)
        for match in _WORD_START.finditer(view.text):
            start = match.start()
            tail = view.text[start:]
            identity = None
            if tail[:_HEAD] in self._heads:
                identity = _begun(" ".join(tail.split()), self._sorted_texts, self._texts)
            if identity is None and len(tail) <= _NUMBER_MAX and match.group() in _NUMBER_SIGNS:
                identity = _begun(_compact(tail), self._sorted_numbers, self._numbers)
            if identity is not None:
                return len(text) - view.span(start, start + 1)[0], identity
        return None


_NUMBER_SIGNS = "0123456789abcdefghijklmnopqrstuvwxyz"


def _compact(text: str) -> str:
    return re.sub(r"[^0-9a-z]", "", text)


def _begun(beginning: str, ordered: Sequence[str], identities: Mapping[str, str]) -> str | None:
    place = bisect_left(ordered, beginning)
    known = ordered[place] if len(beginning) >= _HEAD and place < len(ordered) else ""
    return identities[known] if known.startswith(beginning) and beginning else None
