"""What a question has given so far: its tokens, which of them are spoken for, and the conditions found where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from stef_core.extract.question_tokens import Token
from stef_core.lexicon import attribute_groups, lemma
from stef_core.records import Aggregation, Column, Condition, Filter, OrderKey
from stef_core.vocabulary import ENTITY_NOUNS, STOP_WORDS, word_set

COMMANDS = word_set(
    """list show find give get return display tell name provide state identify report select present mention indicate describe
    calculate compute compare lists enumerate write fetch retrieve output print search determine specify count please point pick
    explain summarize summarise check see want know like need let many much"""
)
_VERBS = word_set(
    """be have do list show find give get return display tell provide identify report select present contain belong live
    make come go take hold play work use own offer teach attend visit win lose serve include run produce write direct sing speak
    earn weigh last exceed spend belong locate know call reside study receive sell buy pay join leave arrive depart
    fly travel stay
    happen occur appear become begin end start finish participate perform compete conduct sign create hire issue register
    place order reopen ship deliver return cancel open close"""
)
_PARTICIPLES = word_set(
    """aged born made held taken given written sold bought paid won lost built led flown known spent taught worn sung
    left met sent
    shown seen chosen begun run driven gone earned got gotten broken kept"""
)
_NOUN_LEADS = word_set("average total mean the maximum minimum highest lowest of per with a an whose their its")
_NOUN_TAILS = word_set("date dates time times name names number numbers price prices rate rates type types code codes status")
_NOT_NAMES = word_set("id name title number date year code type amount total price color status")


class _Words(dict[int, str]):
    """What stands at each position; empty outside."""

    def __missing__(self, position: int) -> str:
        return ""


@dataclass(slots=True)
class Found:
    """A condition and the tokens it came from."""

    start: int
    end: int  # one past the last
    condition: Condition
    negated: bool = False


@dataclass(slots=True)
class Draft:
    """The reading in progress."""

    tokens: list[Token]
    used: list[bool] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)
    projections: list[Column] = field(default_factory=list)
    aggregations: list[Aggregation] = field(default_factory=list)
    group_by: list[Column] = field(default_factory=list)
    order_by: list[OrderKey] = field(default_factory=list)
    limit: int | None = None
    distinct: bool = False
    asks_order: bool = False
    asks_limit: bool = False
    superlative: str | None = None
    per_group_limit: bool = False
    set_op: str | None = None
    negated: bool = False
    ratio: bool = False
    target: str | None = None
    unread: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # the lower-case token, the lemma and the kind of the token at a position, empty outside: fields rather than methods, as
    # readers ask hundreds of times a question
    low: Callable[[int], str] = field(init=False)
    lemma: Callable[[int], str] = field(init=False)
    kind: Callable[[int], str] = field(init=False)
    _verbs: dict[int, bool] = field(default_factory=dict)  # what `is_verb` said

    def __post_init__(self) -> None:
        self.used = [False] * len(self.tokens)
        self.low = _Words(enumerate(token.low for token in self.tokens)).__getitem__
        self.lemma = _Words(enumerate(token.lemma for token in self.tokens)).__getitem__
        self.kind = _Words(enumerate(token.kind for token in self.tokens)).__getitem__

    # --- looking ----------------------------------------------------------------------------------------------------

    def text(self, start: int, end: int) -> str:
        """The words from one position up to another."""
        return " ".join(t.text for t in self.tokens[max(0, start) : end])

    def matches(self, i: int, phrase: Sequence[str]) -> bool:
        """Whether these words stand at a position."""
        low = self.low
        for position, word in enumerate(phrase, i):  # noqa: SIM110  # no generator: asked hundreds of times a question
            if low(position) != word:
                return False
        return True

    def is_verb(self, i: int) -> bool:
        """Whether a word acts as a verb, by its form and its neighbours."""
        known = self._verbs.get(i)
        if known is None:
            known = self._verbs[i] = self._is_verb(i)
        return known

    def _is_verb(self, i: int) -> bool:
        token = self.tokens[i] if 0 <= i < len(self.tokens) else None
        if token is None or token.kind != "w" or token.code:
            return False
        low = token.low
        if low in _PARTICIPLES or (
            low in COMMANDS and (i == 0 or self.low(i - 1) in ("and", ",", ".", "please", "to", "then"))
        ):
            return True
        if low.endswith("ed") and len(low) > 4 and token.lemma != low:
            return not self._is_modifier(i)
        before = self.low(i - 1)
        if self.kind(i - 1) == "n" and low != token.lemma:
            return False  # "3 wins"
        if low == token.lemma and self.low(i + 1) in _NOUN_TAILS:
            return False  # "hire date"
        if before in _NOUN_LEADS and token.lemma == low:
            return False
        if (
            before in ("to", "can", "could", "will", "did", "does", "do", "should", "who", "that", "which")
            and token.lemma in _VERBS
        ):
            return True
        return (
            token.lemma in _VERBS and token.lemma not in ENTITY_NOUNS and low not in ("last", "open", "own", "order", "orders")
        )

    def _is_modifier(self, i: int) -> bool:
        return bool(attribute_groups(self.low(i))) and self.kind(i + 1) == "w" and self.lemma(i + 1) in ENTITY_NOUNS

    def is_noun(self, i: int) -> bool:
        """Whether a word can be part of a noun phrase."""
        if self.kind(i) != "w" or self.used_by_condition(i):
            return False
        low = self.low(i)
        return low not in STOP_WORDS and not self.is_verb(i) and low not in _NOISE

    def used_by_condition(self, i: int) -> bool:
        """Whether a token already belongs to a condition."""
        return self.used[i]

    def phrase_before(self, i: int) -> tuple[int, int]:
        """The noun phrase that ends just before a position, as (start, end); empty where there is none."""
        end = i
        start = end
        while start > 0 and end - start < 4 and self.is_noun(start - 1):
            start -= 1
        return start, end

    def phrase_after(self, i: int) -> tuple[int, int]:
        """The noun phrase that starts at a position, determiners skipped."""
        start = i
        while self.low(start) in _DETERMINERS and start < len(self.tokens):
            start += 1
        end = start
        while end < len(self.tokens) and end - start < 5 and self.is_noun(end):
            end += 1
        return start, end

    def column(self, start: int, end: int) -> str:
        """A noun phrase as a column name in snake_case: singular, an entity before a measure left out."""
        tokens = [t for t in self.tokens[start:end] if t.kind in ("w", "n")]
        while len(tokens) > 1 and tokens[0].low in _FILLERS:
            tokens = tokens[1:]
        return column_name([t.low for t in tokens], [t.lemma for t in tokens])

    # --- writing ----------------------------------------------------------------------------------------------------

    def add(self, start: int, end: int, condition: Condition, *, negated: bool = False) -> None:
        """Keep a condition and mark its tokens."""
        if isinstance(condition, Filter) and not condition.text:
            condition = replace(condition, text=self.text(start, end), clause="question")
        self.found.append(Found(start, end, condition, negated))
        self.use(start, end)

    def use(self, start: int, end: int) -> None:
        """Mark tokens as spoken for."""
        for i in range(max(0, start), min(end, len(self.tokens))):
            self.used[i] = True


_DETERMINERS = word_set(
    "the a an this that these those its their his her our my your all any some each every distinct different unique overall"
)
_NOISE = word_set(
    """different distinct unique respective corresponding total average mean maximum minimum highest lowest most least following
    certain specific overall other please together separately respectively exactly currently still already than also
    per everyone
    anyone someone one ones list show find give return display"""
)
_FILLERS = word_set("different distinct unique respective corresponding own overall full-fledged various individual")
_MEASURES = word_set("amount value total price cost quantity date status revenue")
_NAMES = {
    "email address": "email",
    "email addresses": "email",
    "e-mail address": "email",
    "e-mail addresses": "email",
    "ids": "id",
}


def column_name(lows: Sequence[str], lemmas: Sequence[str]) -> str:
    """Words as a column name: ``("order", "amount")`` is ``amount``, ``("email", "addresses")`` is ``email``."""
    known = _NAMES.get(" ".join(lows))
    if known:
        return known
    base = [lemma(w) if i == len(lows) - 1 else low for i, (w, low) in enumerate(zip(lemmas, lows, strict=True))]
    if len(base) == 2 and lemmas[0] in ENTITY_NOUNS and base[-1] in _MEASURES | {"name", "title", "names"}:
        base = base[-1:]
    return "_".join("_".join(w.replace("'", "").replace("-", " ").replace("/", " ").split()) for w in base if w)


def entity_key(noun: str) -> str:
    """The usual key column of a kind of row: ``customer`` → ``customer_id``."""
    return "id" if noun in _NOT_NAMES else f"{noun}_id"
