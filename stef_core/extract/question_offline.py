"""Reads a question by patterns: no model, no network, the same answer every time, in well under a millisecond.

What it is sure of carries ``certain=True``; what it guesses does not count as a missing filter; what it saw and could not place
stands in ``unread``. Source: method.md section 1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from stef_core.errors import RowLimitError
from stef_core.extract.question_dates import Period, merge_dates
from stef_core.extract.question_draft import Draft
from stef_core.extract.question_filters import (
    is_negated,
    join_conditions,
    name_end,
    read_absences,
    read_adjectives,
    read_dates,
    read_names,
    read_quoted,
    read_value_nouns,
    read_workplaces,
)
from stef_core.extract.question_hints import bracket_hints, read_hints
from stef_core.extract.question_numbers import ratio_words, read_comparisons, read_figures
from stef_core.extract.question_shape import (
    read_aggregates,
    read_distinct,
    read_groups,
    read_order,
    read_outputs,
    read_superlatives,
)
from stef_core.extract.question_text import clean, language_of, parentheses, split_evidence, without_parentheses
from stef_core.extract.question_tokens import Token, tokenize
from stef_core.guard import guarded
from stef_core.lexicon import words
from stef_core.limits import ROW_LIMIT, weigh_question, weigh_sql
from stef_core.records import Aggregation, AllOf, AnyOf, Column, Condition, Filter, Hint, Mentions, QueryRecord, QuestionSpec
from stef_core.redact import unified
from stef_core.rules import Rules
from stef_core.vocabulary import ORDER_SIGNS_ELSEWHERE, ORDER_WORDS_ELSEWHERE, STOP_WORDS

if TYPE_CHECKING:
    from stef_core.evaluate import QuestionPair

MAX_LENGTH = 4_000  # characters read; what is beyond is named in `unread`
_DEFINITION = re.compile(
    r"(?:^|(?<=[.?!;])\s*)(?P<word>[A-Za-z][\w ]{1,40}?)\s+(?:is|means|equals|is defined as|is calculated as|refers to)\s+"
    r"(?:the\s+)?(?P<func>sum|total|average|mean|number|count|maximum|minimum|max|min)\s+(?:of\s+)?(?:the\s+|all\s+)?"
    r"(?P<column>[A-Za-z]\w*(?:\s\w+)?)\s*(?:[.?!;]|$)",
    re.IGNORECASE,
)
_BEFORE_BRACKET = re.compile(r"(?<![\w'-])((?:[\w'-]+\s+){1,3})\(")
_DEFINED = {"sum": "sum", "total": "sum", "average": "avg", "mean": "avg", "number": "count", "count": "count"}
_SET_WORDS = (("but", "not"), ("but", "do", "not"), ("but", "does", "not"), ("but", "did", "not"), ("but", "have", "not"))


class OfflineReader:
    """The built-in question reader."""

    name = "offline"
    prompt_version: str | None = None

    def read_many(self, records: Sequence[QueryRecord], rules: Sequence[Rules]) -> list[QuestionPair]:
        """Read the question and, where there is one, its reformulation; one answer a record, in order.

        What exceeds a limit of `stef_core.limits` is not read; the reason is ``row_limit``.
        """
        return [self._within_limits(record, own) for record, own in zip(records, rules, strict=True)]

    def _within_limits(self, record: QueryRecord, rules: Rules) -> QuestionPair:
        from stef_core.evaluate import QuestionPair  # evaluate imports this module

        weight, why = weigh_question(record.user_question, record.enriched_question)
        # what the rules redact is looked for in the SQL too
        if weight == "plain" and (not rules.redact or weigh_sql(record.generated_sql)[0] == "plain"):
            return self.read_one(record, rules)
        try:
            if weight == "beyond":
                raise RowLimitError(why)
            if weigh_sql(record.generated_sql)[0] == "beyond":
                record = replace(record, generated_sql=None)
            pair: QuestionPair = guarded("question", replace(record, extra=None), rules)
        except RowLimitError as error:
            return QuestionPair(question=None, reason=ROW_LIMIT, message=f"The question is not read: {error}.")
        return pair

    def read_one(self, written: QueryRecord, rules: Rules) -> QuestionPair:
        """Read one row in place, whatever its size."""
        from stef_core.evaluate import QuestionPair  # evaluate imports this module

        record = unified(written, rules)
        question, enriched = record.user_question or "", record.enriched_question
        if enriched is None or not enriched.strip():
            return QuestionPair(question=extract_question(question, rules))
        text, evidence = split_evidence(clean(enriched).text, clean(question).text)
        asked = extract_question(question, rules, hints_from=evidence or None)
        same = text.strip() == clean(question).text
        told = asked if same else extract_question(text, rules, hints_from=evidence or None)
        notes = clean(enriched).notes
        if notes:
            told = replace(told, notes=tuple(dict.fromkeys((*told.notes, *notes))))
        return QuestionPair(question=asked, enriched=told)


def extract_question(text: str, rules: Rules, *, hints_from: str | None = None) -> QuestionSpec:
    """Read one question.

    Args:
        text: The question, in any language; only English is read, other languages are named and left to a model.
        rules: R_app; its metric definitions and value mappings are applied.
        hints_from: Evidence that explains the question.

    Returns:
        What it asks for; no text makes it raise.
    """
    spec = _read(text or "", hints_from)
    return _apply(spec, rules) if rules.metric_definitions or rules.value_mappings else spec


def _order_elsewhere(text: str) -> bool:
    """Whether a text in another language asks for an order, by the words that languages have for it."""
    folded = text.casefold()
    named = bool(ORDER_WORDS_ELSEWHERE & set(re.findall(r"[^\W\d_]+", folded)))
    return named or any(sign in folded for sign in ORDER_SIGNS_ELSEWHERE)


@lru_cache(maxsize=4_096)
def _read(text: str, evidence: str | None) -> QuestionSpec:
    cleaned = clean(text)
    end = _readable(cleaned.text)
    content, notes = cleaned.text[:end], cleaned.notes
    language = language_of(content)
    if language != "en":
        return QuestionSpec(
            language=language,
            mentions=_mentions(merge_dates(tokenize(content))),
            asks_order=_order_elsewhere(content),
            hints=read_hints(evidence or "", content),
            unread=(content,),
            notes=(*notes, f"language {language} is not read offline"),
        )
    brackets = parentheses(content)
    hints = (*bracket_hints(brackets, content), *read_hints(evidence or "", content))
    defined = _definitions(content)
    body = _DEFINITION.sub(" ", without_parentheses(content)) if defined else without_parentheses(content)
    draft = Draft(merge_dates(tokenize(body)))
    _run(draft)
    filters = _with_brackets(join_conditions(draft), _bracket_filters(hints, len(brackets)), content)
    aggregations = _aggregations(draft, defined)
    every = draft.tokens if not brackets and not defined else merge_dates(tokenize(content))
    return QuestionSpec(
        projections=tuple(dict.fromkeys(p for p in draft.projections if p not in defined)),
        aggregations=aggregations,
        filters=filters,
        group_by=tuple(dict.fromkeys(draft.group_by)),
        order_by=tuple(dict.fromkeys(draft.order_by)),
        limit=draft.limit,
        distinct=draft.distinct,
        asks_order=draft.asks_order,
        asks_limit=draft.asks_limit,
        superlative=draft.superlative,  # type: ignore[arg-type]  # max or min
        per_group_limit=bool(draft.asks_limit and draft.group_by),
        set_op=draft.set_op,
        negated=draft.negated,
        ratio=draft.ratio,
        target=draft.target,
        mentions=_mentions(every),
        hints=tuple(dict.fromkeys(hints)),
        unread=(*draft.unread, *((cleaned.text[end:],) if end < len(cleaned.text) else ())),
        notes=(*notes, *draft.notes),
    )


def _readable(text: str) -> int:
    """How much of a text is read: whole words, as half a value could not be told to be one."""
    return len(text) if len(text) <= MAX_LENGTH else text.rfind(" ", 0, MAX_LENGTH) + 1 or MAX_LENGTH


def _run(draft: Draft) -> None:
    """Each reader in turn; earlier ones take the tokens that later ones could misread."""
    draft.negated = is_negated(draft)
    draft.ratio = ratio_words(draft)
    read_quoted(draft)
    read_dates(draft)
    read_order(draft)
    read_superlatives(draft)
    read_value_nouns(draft)
    read_workplaces(draft)
    read_comparisons(draft)
    read_groups(draft)
    read_superlatives_done = list(draft.order_by)
    read_aggregates(draft)
    read_names(draft)
    read_adjectives(draft)
    read_absences(draft)
    read_figures(draft)
    read_distinct(draft)
    read_outputs(draft)
    draft.order_by = read_superlatives_done
    for i, token in enumerate(draft.tokens):
        if token.low == "but" and any(draft.matches(i, p) for p in _SET_WORDS):
            draft.set_op = "except"
        if token.low in ("excluding", "except", "besides") and not any(draft.used[i + 1 : i + 4]):
            draft.unread.append(draft.text(i, i + 4))
        if token.kind in ("q", "d") and not draft.used[i]:
            draft.unread.append(token.text)
        elif token.kind == "n" and not draft.used[i] and not token.spelled and not token.ordinal:
            draft.unread.append(draft.text(max(0, i - 2), i + 2))


def _bracket_filters(hints: Sequence[Hint], brackets: int) -> list[Filter]:
    if not brackets:
        return []
    return [
        Filter(column=h.column, op=h.op, value=h.value, text=h.text, clause="question")
        for h in hints
        if h.column and h.op and h.agg is None and h.expression is None and h.phrase == h.text
    ]


def _with_brackets(conditions: tuple[Condition, ...], explained: list[Filter], content: str) -> tuple[Condition, ...]:
    """Both, where a bracket just behind a word such as "unpaid" says what the word means: then the word itself is a guess."""
    if not explained:
        return conditions
    near = {w for match in _BEFORE_BRACKET.finditer(content) for w in match.group(1).casefold().split()}
    softened = (
        replace(c, certain=False) if isinstance(c, Filter) and isinstance(c.value, str) and c.value in near else c
        for c in conditions
    )
    return (*softened, *explained)


def _definitions(content: str) -> dict[str, tuple[str, str]]:
    found = {}
    for match in _DEFINITION.finditer(content):
        word = " ".join(match["word"].casefold().split())
        if word.split()[0] in ("what", "which", "who", "how", "where", "when", "it", "this", "that", "there", "whose"):
            continue
        func = _DEFINED.get(match["func"].casefold(), match["func"].casefold()[:3])
        column = "*" if func == "count" else "_".join(match["column"].casefold().split())
        found[word] = (func, column)
    return found


def _aggregations(draft: Draft, defined: dict[str, tuple[str, str]]) -> tuple[Aggregation, ...]:
    out = [_with_definition(a, defined) for a in draft.aggregations]
    for word, (func, column) in defined.items():
        named = draft.target in word.split() or word in draft.projections
        if named and not any(a.column == column for a in out):
            out.append(Aggregation(func=func, column=column, text=word))
            draft.target = None
    return tuple(dict.fromkeys(out))


def _with_definition(aggregation: Aggregation, defined: dict[str, tuple[str, str]]) -> Aggregation:
    column = aggregation.column
    if not isinstance(column, str) or column == "*":
        return aggregation
    meaning = defined.get(column.replace("_", " "))
    if meaning is None:
        return aggregation
    func = meaning[0] if aggregation.func in ("sum", "count") else aggregation.func
    return replace(aggregation, func=func, column=meaning[1])


def lemmas_of(text: str) -> frozenset[str]:
    """The lemmas that a text names, as `Mentions` holds them."""
    return _mentions(tokenize(text)).lemmas


def _mentions(tokens: Sequence[Token]) -> Mentions:
    lemmas: list[str] = []
    numbers: list[float] = []
    dates: list[str] = []
    quoted: list[str] = []
    names: list[str] = []
    unused = [False] * len(tokens)
    i = 0
    while i < len(tokens):
        token = tokens[i]
        if token.kind == "w":
            if token.low not in STOP_WORDS:
                lemmas.append(token.lemma)
                lemmas.extend(words(token.text))
            if token.capital and (i > 0 or token.code):
                end = name_end(tokens, unused, i)
                names.append(" ".join(t.text for t in tokens[i:end]))
                for inner in tokens[i + 1 : end]:
                    if inner.kind == "w" and inner.low not in STOP_WORDS:
                        lemmas.append(inner.lemma)
                        names.append(inner.text)
                    elif inner.kind == "n" and isinstance(inner.value, int | float):
                        numbers.append(float(inner.value))
                i = end
                continue
            if token.low in ("twice", "once", "thrice"):
                numbers.append({"once": 1.0, "twice": 2.0, "thrice": 3.0}[token.low])
            elif token.code and token.text.isascii() and token.text.isdigit() and len(token.text) < 16:
                numbers.append(float(token.text))
        elif token.kind == "n" and isinstance(token.value, int | float):
            numbers.append(float(token.value))
            if token.spelled:
                lemmas.append(token.lemma)
        elif token.kind == "d" and isinstance(token.value, Period):
            if token.value.mention:
                dates.append(token.value.mention)
            if token.value.number:
                numbers.append(float(token.value.number))
            lemmas.extend(words(token.text))
        elif token.kind == "q":
            quoted.append(str(token.value))
            lemmas.extend(words(str(token.value)))
        i += 1
    return Mentions(
        lemmas=frozenset(lemmas),
        numbers=tuple(dict.fromkeys(n for n in numbers)),
        dates=tuple(dict.fromkeys(dates)),
        quoted=tuple(dict.fromkeys(quoted)),
        names=tuple(dict.fromkeys(names)),
    )


# --- rules of the application ---------------------------------------------------------------------------------------------


def _apply(spec: QuestionSpec, rules: Rules) -> QuestionSpec:
    metrics = {word.casefold(): metric for word, metric in rules.metric_definitions.items()}

    def metric_of(aggregation: Aggregation) -> Aggregation:
        name = aggregation.column.replace("_", " ") if isinstance(aggregation.column, str) else ""
        metric = metrics.get(name) or metrics.get(name.replace(" ", "_"))
        if metric is None or aggregation.func not in ("sum", "count"):
            return aggregation
        return replace(aggregation, func=metric.func, column=metric.column)

    aggregations = [metric_of(a) for a in spec.aggregations]
    if spec.target in metrics and not aggregations:
        meant = metrics[spec.target]
        aggregations.append(Aggregation(func=meant.func, column=meant.column, text=spec.target))
    projections: list[Column] = []
    for column in spec.projections:
        name = column.replace("_", " ") if isinstance(column, str) else ""
        metric = metrics.get(name) or metrics.get(name.replace(" ", "_"))
        if metric is None:
            projections.append(column)
        else:
            aggregations.append(Aggregation(func=metric.func, column=metric.column, text=name))
    return replace(
        spec,
        projections=tuple(projections),
        aggregations=tuple(dict.fromkeys(aggregations)),
        filters=tuple(_mapped(f, rules) for f in spec.filters),
    )


def _mapped(condition: Condition, rules: Rules) -> Condition:
    if isinstance(condition, AnyOf):
        return AnyOf(conditions=tuple(_mapped(c, rules) for c in condition.conditions))
    if isinstance(condition, AllOf):
        return AllOf(conditions=tuple(_mapped(c, rules) for c in condition.conditions))
    column = condition.column if isinstance(condition.column, str) else None
    if column is None and condition.column is not None:
        return condition

    def one(value: object) -> object:
        mapped = rules.mapped_value(column, value)
        return " ".join(mapped.casefold().split()) if isinstance(mapped, str) else mapped

    value = condition.value
    new = tuple(one(v) for v in value) if isinstance(value, tuple) else one(value)
    return condition if new == value else replace(condition, value=new)  # type: ignore[arg-type]
