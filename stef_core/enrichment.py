"""Is the reformulated question true to the question? A signal of its own, judged without the SQL.

Conservative: a clause of evidence explains, an abbreviation or date may be written out, and what the reader only guessed proves
nothing. Source: method.md section 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stef_core.findings import finding
from stef_core.lexicon import attribute_of, base_column, column_similarity, lemma, same_concept, value_key, words
from stef_core.records import (
    AllOf,
    AnyOf,
    Column,
    Condition,
    DatePart,
    DateTrunc,
    Enrichment,
    EnrichmentStatus,
    Filter,
    Finding,
    QueryRecord,
    QuestionSpec,
    Reading,
)
from stef_core.rules import Rules

_PRECEDENCE: tuple[EnrichmentStatus, ...] = ("contradicts", "drops", "adds")
SAME_COLUMN = 0.8  # from here on two guessed columns are one
_DOWN, _UP = ("<", "<="), (">", ">=")
_CORE_FUNCTIONS = frozenset(("count", "sum", "avg", "min", "max"))


def compare_enrichment(record: QueryRecord, reading: Reading, rules: Rules) -> Enrichment:
    """Compare the enriched question with the question.

    Args:
        record: The row of the log.
        reading: Both sides, read.
        rules: R_app; column mappings and value mappings count as the same words.

    Returns:
        ``absent`` without an enriched question; else ``contradicts`` before ``drops`` before ``adds`` before ``faithful``, with
        a finding of stage ``enrichment`` for each departure.
    """
    if not (record.enriched_question or "").strip() or reading.enriched is None:
        return Enrichment(status="absent")
    question, enriched = reading.question, reading.enriched
    if question.language != "en" or enriched.language != "en":
        return Enrichment(status="faithful")  # not read offline: nothing is known against it
    comparison = _Comparison(record, question, enriched, rules)
    findings = [*comparison.contradictions(), *comparison.drops(), *comparison.additions()]
    status: EnrichmentStatus = "faithful"
    for candidate in _PRECEDENCE:
        if any(f.code == f"enrichment_{candidate}" for f in findings):
            status = candidate
            break
    return Enrichment(status=status, findings=tuple(findings))


def _leaves(conditions: Sequence[Condition]) -> Iterator[Filter]:
    for condition in conditions:
        if isinstance(condition, AnyOf | AllOf):
            yield from _leaves(condition.conditions)
        else:
            yield condition


class _Comparison:
    """One comparison; holds what its steps share."""

    def __init__(self, record: QueryRecord, question: QuestionSpec, enriched: QuestionSpec, rules: Rules) -> None:
        self.asked_text = (record.user_question or "").strip()
        self.told_text = (record.enriched_question or "").strip()
        self.question, self.enriched, self.rules = question, enriched, rules
        self.asked = list(_leaves(question.filters))
        self.told = list(_leaves(enriched.filters))
        # evidence explains the question; only a text of its own can lose or invent anything
        self.repeats = " ".join(self.asked_text.casefold().split()) in " ".join(self.told_text.casefold().split())
        self.asked_words = self._vocabulary(self.asked_text)
        self.told_words = self._vocabulary(self.told_text)
        self.paired: set[int] = set()

    @staticmethod
    def _vocabulary(text: str) -> frozenset[str]:
        found = {value_key(w) for w in words(text)} | set(words(text))
        return frozenset(found)

    # --- helpers ----------------------------------------------------------------------------------------------------

    def _same_column(self, a: Column | None, b: Column | None) -> bool:
        if a is None or b is None:
            return False
        left, right = base_column(a), base_column(b)
        return self.rules.same_column(left, right) or column_similarity(left, right) >= SAME_COLUMN

    def _keys(self, f: Filter) -> frozenset[str]:
        values = f.value if isinstance(f.value, tuple) else (f.value,)
        return frozenset(value_key(str(self.rules.mapped_value(None, v))) for v in values)

    def _same_values(self, a: Filter, b: Filter) -> bool:
        left, right = self._keys(a), self._keys(b)
        return (
            left == right
            or bool(left & right)
            or any(x in y or y in x for x in left for y in right if len(x) > 2 and len(y) > 2)
        )

    def _said(self, f: Filter, vocabulary: frozenset[str], text: str) -> bool:
        """Whether every value of a condition is spelled somewhere in a text."""
        low = " ".join(text.casefold().split())
        for value in f.value if isinstance(f.value, tuple) else (f.value,):
            key = value_key(str(value))
            parts = key.split()
            if str(value).casefold() in low or key in low or (parts and all(p in vocabulary for p in parts)):
                continue
            if isinstance(value, str) and _spelled_out(value, low):
                continue
            return False
        return True

    # --- the three verdicts --------------------------------------------------------------------------------------------

    def contradictions(self) -> Iterator[Finding]:
        """Another value, direction, metric, grain or negation than the user's."""
        if self.repeats:
            return
        yield from self._other_values()
        yield from self._other_metric()
        yield from self._other_grain()
        if self.question.negated != self.enriched.negated and self._negation_matters():
            said = "asks for what is not there" if self.question.negated else "asks for what is there"
            yield self._finding("contradicts", f"The question {said}, the reformulation for the opposite.", kind="negation")
        if self.question.limit and self.enriched.limit and self.question.limit != self.enriched.limit:
            message = f"The question asks for {self.question.limit} rows, the reformulation for {self.enriched.limit}."
            yield self._finding("contradicts", message, kind="limit")
        asked_end, told_end = self.question.superlative, self.enriched.superlative
        if asked_end and told_end and asked_end != told_end:
            yield self._finding("contradicts", "The reformulation picks from the other end.", kind="superlative")

    def _other_values(self) -> Iterator[Finding]:
        for f in self.asked:
            if not f.certain:
                continue
            rivals = [(i, g) for i, g in enumerate(self.told) if g.certain and self._same_column(f.column, g.column)]
            if f.column is None:
                rivals = [(i, g) for i, g in enumerate(self.told) if self._same_values(f, g)]
            if not rivals or any(self._agree(f, g) for _, g in rivals):
                continue
            index, rival = rivals[0]
            if isinstance(f.value, str) and isinstance(rival.value, str) and self._said(f, self.told_words, self.told_text):
                continue
            if _dated(f) != _dated(rival) or (_dated(f) and _side(f.op) == _side(rival.op) and self._same_period(f, rival)):
                continue
            self.paired.add(index)
            message = f"The question says {f.text or f.value!r}, the reformulation {rival.text or rival.value!r}."
            yield self._finding("contradicts", message, part=f.text, kind="value")

    def _agree(self, f: Filter, g: Filter) -> bool:
        if _side(f.op) != _side(g.op) and "between" not in (f.op, g.op):
            return False
        return self._same_values(f, g) or f.value == g.value

    @staticmethod
    def _same_period(f: Filter, g: Filter) -> bool:
        """One period in two spellings: a year or month against a range of days in it."""
        left, right = (
            str(f.value if not isinstance(f.value, tuple) else f.value[0]),
            str(g.value if not isinstance(g.value, tuple) else g.value[0]),
        )
        return left[:4] == right[:4] and (len(left) == 4 or len(right) == 4 or left[:7] == right[:7])

    def _other_metric(self) -> Iterator[Finding]:
        asked = {a.func for a in self.question.aggregations if a.certain} & _CORE_FUNCTIONS
        told = {a.func for a in self.enriched.aggregations if a.certain} & _CORE_FUNCTIONS
        if asked and told and not asked & told and not self.enriched.ratio and not self.question.ratio:
            message = f"The question asks for {'/'.join(sorted(asked))}, the reformulation for {'/'.join(sorted(told))}."
            yield self._finding("contradicts", message, kind="metric")
            return
        for a in self.question.aggregations:
            for b in self.enriched.aggregations:
                if a.func != b.func or not (a.certain and b.certain) or "*" in (a.column, b.column):
                    continue
                left, right = base_column(a.column), base_column(b.column)
                alike = self.rules.same_column(left, right) or column_similarity(left, right) > 0.3 or same_concept(left, right)
                if not alike and not set(words(left.replace("_", " "))) & self.told_words:
                    message = f"The question asks for the {a.func} of {left}, the reformulation of {right}."
                    yield self._finding("contradicts", message, part=a.text, kind="metric")

    def _other_grain(self) -> Iterator[Finding]:
        asked, told = _grain(self.question.group_by), _grain(self.enriched.group_by)
        if asked and told and asked != told:
            yield self._finding("contradicts", f"The question wants it by {asked}, the reformulation by {told}.", kind="grain")
            return
        for a in self.question.group_by:
            others = [b for b in self.enriched.group_by if isinstance(b, str)]
            if not isinstance(a, str) or not others or len(self.question.group_by) != len(self.enriched.group_by):
                continue
            kin = any(self.rules.same_column(a, b) or column_similarity(a, b) > 0.3 for b in others)
            if not kin and not set(words(a.replace("_", " "))) & self.told_words:
                yield self._finding(
                    "contradicts", f"The question groups by {a}, the reformulation by {others[0]}.", kind="grain"
                )

    def _negation_matters(self) -> bool:
        spec = self.question if self.question.negated else self.enriched
        if any(f.op in ("!=", "not_in", "is_null", "not_between", "not_like") for f in _leaves(spec.filters)):
            return False  # compared as values
        text = (self.asked_text if self.question.negated else self.told_text).casefold()
        other = (self.told_text if self.question.negated else self.asked_text).casefold()
        if any(
            w in other.split()
            for w in ("except", "excluding", "lack", "lacking", "missing", "zero", "0", "other", "unless", "outside", "null")
        ):
            return False
        return any(w in text for w in (" not ", " never ", "n't ", " without ", " no "))

    def drops(self) -> Iterator[Finding]:
        """Conditions, figures, quoted values and dates of the question that the reformulation no longer has."""
        if self.repeats:
            return
        told_numbers = set(self.enriched.mentions.numbers)
        seen: set[str] = set()
        for f in self.asked:
            if not f.certain or f.op in ("is_null", "is_not_null"):
                continue
            if any(self._same_values(f, g) for g in self.told) or any(self._same_column(f.column, g.column) for g in self.told):
                continue
            if self._said(f, self.told_words, self.told_text) or (_dated(f) and self._period_said(f)):
                continue
            if isinstance(f.value, str | int | float | tuple):
                seen |= self._keys(f)
                yield self._finding("drops", f"The reformulation leaves out {f.text or f.value!r}.", part=f.text, kind="filter")
        for number in self.question.mentions.numbers:
            key = value_key(f"{number:g}")
            if (
                number in told_numbers
                or key in seen
                or key in self.told_words
                or number in (0.0, 1.0)
                or number == self.question.limit
            ):
                continue
            if any(f"{number:g}" in d for d in self.enriched.mentions.dates) or f"{number:g}" in self.told_text.replace(
                ",", ""
            ):
                continue
            if _month_or_quarter(number, self.told_text):
                continue
            seen.add(key)
            yield self._finding("drops", f"The reformulation leaves out {number:g}.", part=f"{number:g}", kind="number")
        low = " ".join(self.told_text.casefold().split())
        for text in self.question.mentions.quoted:
            key = value_key(text)
            if text.casefold() not in low and key not in seen and not set(key.split()) <= self.told_words:
                yield self._finding("drops", f"The reformulation leaves out {text!r}.", part=text, kind="quoted")
        wanted = self.question.limit or 0
        if wanted > 1 and not self.enriched.limit and not self.enriched.superlative and float(wanted) not in told_numbers:
            yield self._finding("drops", f"The question asks for {wanted} rows, the reformulation for all.", kind="limit")

    def _period_said(self, f: Filter) -> bool:
        values = f.value if isinstance(f.value, tuple) else (f.value,)
        years = {str(v)[:4] for v in values if str(v)[:4].isdigit()}
        mentioned = {d[:4] for d in self.enriched.mentions.dates} | {f"{n:g}" for n in self.enriched.mentions.numbers}
        return bool(years) and years <= mentioned

    def additions(self) -> Iterator[Finding]:
        """Conditions that only the reformulation has and that explain nothing in the question."""
        if self.repeats:
            yield from self._added_by_hints()
            return
        for i, f in enumerate(self.told):
            if not f.certain or i in self.paired or f.op == "is_not_null":
                continue
            if any(self._same_values(f, g) or self._same_column(f.column, g.column) for g in self.asked):
                continue
            if self._said(f, self.asked_words, self.asked_text) or (_dated(f) and self._dates_asked()):
                continue
            yield self._finding("adds", f"Only the reformulation says {f.text or f.value!r}.", part=f.text, kind="filter")
        if self.enriched.limit and not self.question.limit and not self.question.superlative and self.enriched.asks_limit:
            message = f"Only the reformulation asks for {self.enriched.limit} rows."
            yield self._finding("adds", message, kind="limit")

    def _dates_asked(self) -> bool:
        return bool(self.question.mentions.dates) or any(_dated(g) for g in self.asked)

    def _added_by_hints(self) -> Iterator[Finding]:
        """A clause of evidence that sets a value and touches no word of the question adds a condition."""
        for hint in self.enriched.hints:
            if hint.relevant or hint.column is None or hint.op is None or hint.value is None or hint.expression or hint.agg:
                continue
            if not hint.phrase or hint.phrase == hint.text or value_key(str(hint.value)) in self.asked_words:
                continue
            if any(lemma(w) in self.asked_words for w in words(hint.text)) or self._kin(hint.phrase):
                continue
            if any(a in self.asked_words for a in attribute_of(str(hint.value))):
                continue
            yield self._finding("adds", f"The evidence sets {hint.text!r}, of which the question says nothing.", kind="hint")

    def _kin(self, phrase: str) -> bool:
        return any(same_concept(w, q) for w in words(phrase) for q in self.asked_words)

    @staticmethod
    def _finding(what: str, message: str, *, part: str | None = None, kind: str = "") -> Finding:
        return finding(f"enrichment_{what}", message, stage="enrichment", question_part=part or None, kind=kind)


def _side(op: str) -> str:
    if op in _UP:
        return "up"
    if op in _DOWN:
        return "down"
    return "not" if op.startswith(("!", "not")) else "is"


def _dated(f: Filter) -> bool:
    if isinstance(f.column, DatePart | DateTrunc):
        return True
    values = f.value if isinstance(f.value, tuple) else (f.value,)
    return any(isinstance(v, str) and len(v) >= 10 and v[4:5] == "-" and v[:4].isdigit() for v in values)


def _grain(columns: Sequence[Column]) -> str | None:
    for column in columns:
        if isinstance(column, DatePart):
            return column.part
        if isinstance(column, DateTrunc):
            return column.unit
    return None


def _spelled_out(value: str, text: str) -> bool:
    """Whether an abbreviation is written out in a text: the initials of neighbouring words, or a beginning of one word."""
    if not 2 <= len(value) <= 5 or not value.isalpha():
        return False
    found = text.replace("-", " ").split()
    initials = "".join(w[0] for w in found if w)
    return value in initials or any(w.startswith(value) and len(w) > len(value) + 1 for w in found)


def _month_or_quarter(number: float, text: str) -> bool:
    names = "january february march april may june july august september october november december".split()
    low = text.casefold()
    if number.is_integer() and 1 <= number <= 12 and (names[int(number) - 1] in low or f"-{int(number):02d}" in low):
        return True
    return number.is_integer() and 1 <= number <= 31 and f"-{int(number):02d}" in low
