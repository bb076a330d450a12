"""What is found as personal data, in which spellings, and what is left alone."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest

from stef_core.redact import Redaction
from stef_core.rules import RedactKind, RedactPattern, Rules
from stef_core.sensitive import (
    NATIONAL_IDS,
    PATTERN_MAX,
    Detectors,
    Dictionary,
    Forms,
    _pieces,
    _windows,
    clusters,
    detectors_of,
    folded,
    view_of,
)

EMAIL, CARD, IBAN = RedactKind(kind="email"), RedactKind(kind="card"), RedactKind(kind="iban")
PHONE, ABROAD = RedactKind(kind="phone", region=("DE", "US")), RedactKind(kind="phone")
CUSTOMER = RedactPattern(pattern=r"K-\d{6}", name="customer_no")


def national(*regions: str) -> RedactKind:
    return RedactKind(kind="national_id", region=regions)


def masked(text: str, *entries: RedactKind | RedactPattern) -> str:
    return Redaction((), detectors=detectors_of(entries)).mask(text)


def identities(text: str, *entries: RedactKind | RedactPattern) -> list[str]:
    return [hit.identity for hit in detectors_of(entries).find(view_of(text))]


@pytest.mark.parametrize(
    ("entry", "text", "expected"),
    [
        (EMAIL, "Orders of Kim.Lund+x@mail.example.org, please", "Orders of [redacted], please"),
        (EMAIL, "who is <ann@example.org>?", "who is <[redacted]>?"),
        (EMAIL, "LIKE '%ann@example.org%'", "LIKE '%[redacted]%'"),
        (EMAIL, "mail an jörg@müller.example.de.", "mail an [redacted]."),
        (EMAIL, "邮箱ann@example.org的订单", "邮箱[redacted]的订单"),
        (PHONE, "call +49 30 901820 now", "call [redacted] now"),
        (PHONE, "call +49 (0)30 901820 now", "call [redacted] now"),
        (PHONE, "call 030/901820 or (212) 555-2368", "call [redacted] or [redacted]"),
        (PHONE, "phone IN (2125552368, 2125552369)", "phone IN ([redacted], [redacted])"),
        (PHONE, "LIKE '%2125552368%'", "LIKE '%[redacted]%'"),
        (RedactKind(kind="phone", region="DE"), "in 2024 030 / 901820, 2024", "in 2024 [redacted], 2024"),
        (PHONE, "ids 7 2125552368 8", "ids 7 [redacted] 8"),
        (ABROAD, "call +12125552368, not 2125552369", "call [redacted], not 2125552369"),
        (CARD, "card 4111 1111 1111 1111?", "card [redacted]?"),
        (CARD, "card 4111-1111-1111-1111 (Visa)", "card [redacted] (Visa)"),
        (CARD, "card_4111111111111111", "card_[redacted]"),
        (CARD, "amex 3782 822463 10005", "amex [redacted]"),
        (CARD, "卡号4111111111111111的", "卡号[redacted]的"),
        (CARD, "4111 1111 1111 1111 123", "[redacted] 123"),
        (IBAN, "to DE89 3704 0044 0532 0130 00 today", "to [redacted] today"),
        (IBAN, "to de89370400440532013000", "to [redacted]"),
        (IBAN, "to NO9386011117947", "to [redacted]"),
        (national("PL"), "patient 44051401458", "patient [redacted]"),
        (national("DE"), "tax id 36 574 261 809", "tax id [redacted]"),
        (national("IT"), "RCC MNL 83S18 D969H", "[redacted]"),
        (national("FI", "SE"), "hetu 131052-308T", "hetu [redacted]"),
        (national("US"), "SSN 123-45-6789 or 123456789", "SSN [redacted] or [redacted]"),
        (CUSTOMER, "orders of k-123456, K-1234567", "orders of [redacted], [redacted]7"),
    ],
)
def test_a_value_is_found_in_its_usual_spellings(entry: RedactKind | RedactPattern, text: str, expected: str) -> None:
    assert masked(text, entry) == expected


@pytest.mark.parametrize(
    "text",
    [
        "orders between 2024-01-01 and 2024-12-31 23:59:59",
        "from 01/02/2024 to 01.03.2024 at 12:30",
        "sum above 1,234,567.89 or 12345.678",
        "order 4111111111111112",  # its check digit is wrong
        "id 1700000000000000000 at 1700000000000",
        "GB82 WEST 1234 5698 7654 33",
        "version 10.20.30.40 of a@b",
        "SELECT @x, user@ FROM t LIMIT 1000",
        "patient 44051401459",
        "2024 12345",
        "k-12345",
        "K-12 34 56",
    ],
)
def test_what_is_no_value_stays(text: str) -> None:
    assert masked(text, EMAIL, PHONE, CARD, IBAN, national("PL", "DE", "US"), CUSTOMER) == text


@pytest.mark.parametrize(
    ("entry", "spellings"),
    [
        (EMAIL, ["Kim.Lund@Example.org", "kim.lund@example.org", "kim.lund\u200b@example.org", "ＫＩＭ.lund@example.org"]),
        (
            PHONE,
            ["+49 30 901820", "+49-30-901820", "030 901820", "0049 30 901820", "+49 (0)30 901820", "+４９３０９０１８２０"],
        ),
        (
            CARD,
            ["4111 1111 1111 1111", "4111111111111111", "4111‑1111‑1111‑1111", "٤١١١١١١١١١١١١١١١", "4111\u00a01111 11111111"],
        ),
        (IBAN, ["DE89 3704 0044 0532 0130 00", "de89370400440532013000", "DE89-3704-0044-0532-0130-00"]),
        (national("PL"), ["44051401458", "440514 01458", "440514-01458"]),
        (CUSTOMER, ["K-123456", "k-123456", "K–123456"]),
    ],
    ids=["email", "phone", "card", "iban", "national id", "pattern"],
)
def test_spellings_of_one_value_have_one_identity(entry: RedactKind | RedactPattern, spellings: list[str]) -> None:
    found = [set(identities(spelling, entry)) for spelling in spellings]

    assert len(found[0]) == 1
    assert found == [found[0]] * len(spellings)


def test_two_values_have_two_identities() -> None:
    assert len(set(identities("+49 30 901820 and +49 30 901821", PHONE))) == 2


@pytest.mark.parametrize("region", sorted(NATIONAL_IDS))
def test_every_region_has_ids_that_its_library_checks(region: str) -> None:
    assert identities("no number here, 12 34", national(region)) == []


def test_a_number_that_its_library_fails_on_is_kept_back() -> None:
    number = "455581199601011237"  # of a county that python-stdnum does not know, which it answers with a KeyError

    assert masked(f"id {number}", national("CN")) == "id [redacted]"


def test_overlapping_values_are_masked_as_one() -> None:
    address = "4111111111111111@example.org"

    found = clusters(address, lambda text: detectors_of((CARD, EMAIL)).find(view_of(text)))

    assert [(part.start, part.end, part.identities) for part in found] == [(0, len(address), (f"email:{address}",))]


def test_values_that_overlap_in_part_leave_nothing_of_either() -> None:
    left, right = RedactPattern(pattern="one two", name="a"), RedactPattern(pattern="two three", name="b")

    assert masked("zero one two three four", left, right) == "zero [redacted] four"


def test_a_value_that_hides_behind_another_is_found_too() -> None:
    greedy = RedactPattern(pattern=r"\d{4}-", name="prefix")

    assert "30 901820" not in masked("1234-+49 30 901820", greedy, PHONE)


# --- how it is searched ---------------------------------------------------------------------------------------------


def test_the_work_on_a_text_of_numbers_grows_with_its_length_alone() -> None:
    def windows(length: int) -> int:
        return sum(1 for _ in _windows("1 " * length, 34, lambda _: True))

    assert windows(2_000) <= 10 * 2_000
    assert windows(4_000) <= 2 * windows(2_000) + 100


def test_a_pattern_sees_a_long_text_in_pieces_that_overlap_by_its_longest_value() -> None:
    text = "x" * 20_000

    pieces = list(_pieces(text))

    assert max(len(piece) for _, piece in pieces) <= 4_000
    assert pieces[-1][0] + len(pieces[-1][1]) == len(text)
    for (first, piece), (second, _) in itertools.pairwise(pieces):
        assert first + len(piece) - second == PATTERN_MAX


@pytest.mark.parametrize("place", [0, 3_490, 3_499, 3_500, 3_999, 4_000, 19_990])
def test_a_pattern_finds_its_values_across_the_pieces_of_a_long_text(place: int) -> None:
    text = "x" * place + "K-123456" + "x" * (20_000 - place)

    assert masked(text, CUSTOMER) == text.replace("K-123456", "[redacted]")


HOSTILE = {
    "ats": "a@" * 50_000,
    "dots": "x@" + "a." * 50_000,
    "ones": "1" * 100_000,
    "brackets": "(" * 100_000,
    "plus": "+4, " * 20_000,
    "accents": "e" + "\u0301" * 50_000,
    "invisible": "4\u200b" * 50_000,
    "pattern that looks to the end": "q" * 20_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_come_back_as_they_are(text: str) -> None:
    looks_far = RedactPattern(pattern="q.*z|zz", name="far")

    assert masked(text, EMAIL, PHONE, CARD, IBAN, national("PL", "US"), looks_far) == text


def test_figures_that_go_on_and_on_are_kept_back_as_they_are() -> None:
    assert masked("x " + "12 " * 100 + "y", PHONE) == "x [redacted] y"


def test_what_was_found_in_a_text_is_remembered() -> None:
    asked = []

    def search(text: str) -> Iterator[object]:
        asked.append(text)
        return iter(())

    detectors = Detectors([search])  # type: ignore[list-item]  # finds nothing

    for _ in range(3):
        detectors.find(view_of("short"))

    assert asked == ["short"]


# --- known values ---------------------------------------------------------------------------------------------------


def test_a_known_text_is_found_whatever_its_case_spacing_and_form() -> None:
    known = Dictionary([("Straße Am  Tor", "a"), ("ann", "b")])

    text = "In der STRASSE am Tor, Ann's; annual"
    found = [(text[hit.start : hit.end], hit.identity) for hit in known.find(text)]

    assert found == [("STRASSE am Tor", "a"), ("Ann", "b")]


def test_of_known_texts_that_begin_alike_the_longest_counts() -> None:
    (hit,) = Dictionary([("a b", "short"), ("a b c", "long")]).find("x a b c d")

    assert hit.identity == "long"


def test_a_text_of_many_words_is_known_as_a_whole() -> None:
    long = " ".join(f"word{n}" for n in range(300))
    known = Redaction((long,))

    assert known.mask(f"before {long} after") == "before [redacted] after"


def test_a_known_number_is_found_in_every_grouping() -> None:
    forms = Forms([("4930901820", "phone")])
    text = "4930901820, 49 30 901820, +49-30-901820, 49309018200"

    assert [text[hit.start : hit.end] for hit in forms.find(view_of(text))] == ["4930901820", "49 30 901820", "+49-30-901820"]


def test_a_plain_text_remembers_where_its_characters_stood() -> None:
    source = "ﬁne\u200b ４２"

    view = view_of(source)

    assert view.text == "fine 42"
    assert source[slice(*view.span(0, 4))] == "ﬁne"
    assert source[slice(*view.span(5, 7))] == "４２"


def test_folding_is_one_for_both_forms_of_an_accent() -> None:
    assert folded("Jose\u0301  LUIS") == folded("josé luis")


def test_rules_list_columns_and_values_apart() -> None:
    rules = Rules(redact=["email", EMAIL, CUSTOMER, "ph*"])

    assert rules.redacted_columns == ("email", "ph*")
    assert rules.redacted_values == (EMAIL, CUSTOMER)
    assert json.loads(rules.canonical)["redact"][1] == {"kind": "email", "region": None}
