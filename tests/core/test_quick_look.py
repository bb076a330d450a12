"""The quick look changes no answer: it rules out only what no pattern would have found."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from stef_core import injection_words
from stef_core.injection_words import ABOUT, BESIDE, COVERT, ELSEWHERE, ENGLISH, GLUED, HINTS, LATIN, NAMES, SAID, TRACES
from stef_core.quick_look import TOGETHER, QuickLook, loosened

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "injection.json").read_text(encoding="utf-8"))
GROUPS = {
    "english": ENGLISH,
    "latin": LATIN,
    "said": SAID,
    "beside": BESIDE,
    "names": NAMES,
    "traces": TRACES,
    "hints": (HINTS, ELSEWHERE, ABOUT),
    "covert": (COVERT, GLUED),
}
LOOKS = {name: QuickLook(patterns) for name, patterns in GROUPS.items()}
TEXTS = [
    *GOLDEN["phrases"],
    *GOLDEN["honest"],
    *GOLDEN["literals"],
    *(text for attempt in GOLDEN["attempts"] for text in attempt["with"].values() if text),
]
FRAGMENTS = sorted(set(re.findall(r"[a-z]{2,}", Path(injection_words.__file__).read_text(encoding="utf-8"))))


@pytest.mark.parametrize("name", GROUPS)
def test_a_quick_look_finds_what_the_patterns_find_in_every_golden_text(name: str) -> None:
    texts = [form for text in TEXTS for form in (text, text.lower(), re.sub(r"[\W_]+", "", text.lower()))]
    plain = [any(pattern.search(text) for pattern in GROUPS[name]) for text in texts]

    assert [LOOKS[name](text) for text in texts] == plain
    assert not [text for text, found in zip(texts, plain, strict=True) if found and LOOKS[name].rules_out(text)]


@given(
    st.lists(st.sampled_from([*FRAGMENTS, *'.,:;!?"()<>{}#-=*/', "\n", "\t", "\x0b", "\x1c", "é", "1.0", "100"]), max_size=24)
)
def test_a_quick_look_finds_what_the_patterns_find_in_any_row_of_their_words(words: list[str]) -> None:
    text = " ".join(words)

    for name, patterns in GROUPS.items():
        assert LOOKS[name](text) == any(pattern.search(text) for pattern in patterns)


@pytest.mark.parametrize(
    ("pattern", "loose"),
    [
        (r"(?<!\w)a b (?=c|(?:d))", r"ab"),
        (r"^(?:a|(b))$", r"(?:a|(?:b))"),
        (r"a{0,3} b{2,5}? c{4}", r"a*b{2,}?c{4,}"),
        (r"[ ^$(]x\#\ [^\]{]", r"[ ^$(]x\#\ [^\]{]"),
    ],
)
def test_a_looser_pattern_has_no_lookaround_no_anchor_and_no_most(pattern: str, loose: str) -> None:
    assert loosened(pattern) == loose
    assert re2.compile(loose) is not None


def test_a_text_whose_characters_re2_puts_elsewhere_is_left_to_the_patterns() -> None:
    look = QuickLook([re.compile(r"a\sb")])

    assert look("a\x1cb")  # white space for Python alone
    assert not look.rules_out("é")
    assert look.rules_out("ab")


def test_patterns_beyond_one_automaton_are_all_asked() -> None:
    look = QuickLook([re.compile(f"w{n}x") for n in range(2 * TOGETHER + 1)])

    assert all(look(f"a w{n}x") for n in range(2 * TOGETHER + 1))
    assert not look(f"a w{2 * TOGETHER + 1}x")


def test_a_pattern_that_would_rule_no_text_out_is_refused() -> None:
    look = QuickLook([re.compile("(?=a)")])

    with pytest.raises(ValueError, match="rules no text out"):
        look("a")
