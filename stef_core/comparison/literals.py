"""Literals, names and words of one side that the other does not know."""

from __future__ import annotations

import re
from collections import Counter

from stef_core.comparison.common import (
    Comparison,
    base_name,
    explained_by,
    leaves,
    names_used,
    relevant_hints,
    whole,
    words_of,
)
from stef_core.lexicon import attribute_of, column_similarity, identifier_words, same_value, word_similarity, words
from stef_core.records import (
    Filter,
)


def compare_literals(c: Comparison) -> None:
    """Numbers, dates and quoted words of the question that are nowhere in the SQL, literals of the SQL that nobody named, and
    columns that the reformulation names and the SQL does not use.
    """
    sql, question = c.sql, c.question
    texts = " ".join((*sql.literals, *sql.expressions)).casefold()
    inside = " ".join((*sql.expressions, *(n for _, n in sql.columns), *sql.tables)).casefold()
    flagged = any(f.code in ("missing_filter", "wrong_filter_value", "wrong_limit", "missing_limit") for f in c.findings)
    _numbers_absent(c, texts, inside)
    for quoted in question.mentions.quoted:
        core = " ".join(quoted.casefold().split())
        if core and core not in texts and core not in inside and not set(words(core)) <= words_of(texts):
            c.note(
                "missing_filter",
                f"'{quoted}' stands in the question and nowhere in the SQL.",
                kind="quoted_absent",
                strength=0.4 if flagged else 0.8,
                severity="major",
            )
    _compare_names(c, texts, inside, flagged)
    _literals_unnamed(c)
    _hint_columns(c, inside)
    _compare_case(c)


def _numbers_absent(c: Comparison, texts: str, inside: str) -> None:
    """Numbers and dates of the question that stand nowhere in the SQL in any form."""
    sql, question = c.sql, c.question
    if not question.mentions.numbers and not question.mentions.dates:
        return
    have = {float(m) for m in re.findall(r"\d+(?:\.\d+)?(?:e\+?\d{1,2}\b)?", texts)} | {float(n) for n, _ in sql.inner_limits}
    have |= {float(v) for v in (sql.limit, sql.offset) if v is not None}
    have |= {h + 1 for h in have} | {h - 1 for h in have}
    explained = " ".join(clause for clause in c.clauses if names_used(c, clause))
    dates = question.mentions.dates
    for number in question.mentions.numbers:
        text = whole(number)
        if number in have or text in texts or text in inside or text in explained or number in (1.0, 2.0, 100.0):
            continue
        if any(text in d.split("-") or text.zfill(2) in d.split("-") for d in dates) or number / 100 in have:
            continue
        c.note(
            "missing_filter", f"{text} stands in the question and nowhere in the SQL.", kind="number_absent", severity="major"
        )
    for date in dates:
        year = date[:4]
        if year in texts or year in inside or year in explained:
            continue
        if not any(str(int(year) + d) in texts for d in (-1, 1)):
            c.note(
                "missing_filter", f"{date} stands in the question and nowhere in the SQL.", kind="date_absent", severity="major"
            )


def _literals_unnamed(c: Comparison) -> None:
    """Literals that neither the question nor the reformulation names, wherever they stand in the SQL."""
    if c.question.language != "en" or not c.sql.literals:
        return
    raw = f"{c.record.user_question or ''} {c.record.enriched_question or ''}".casefold()
    spoken = _plain(raw)
    numbers = {n for spec in (c.question, c.enriched) if spec is not None for n in spec.mentions.numbers}
    numbers |= {float(n) for n in re.findall(r"\d+(?:\.\d+)?", raw.replace(",", ""))}
    named = {w for spec in (c.question, c.enriched) if spec is not None for w in spec.mentions.lemmas}
    phrases = [p.casefold() for spec in (c.question, c.enriched) if spec is not None for p in spec.mentions.names]
    benign = {raw.casefold() for f in leaves((*c.benign, *c.extra)) for raw in f.raw}  # said already, or allowed
    days = {
        part.lstrip("0")
        for spec in (c.question, c.enriched)
        if spec is not None
        for d in spec.mentions.dates
        for part in d.split("-")
    }
    mapped = {str(v).casefold() for values in c.rules.value_mappings.values() for v in values.values()}
    pieces = " ".join((*c.sql.expressions, *(str(base_name(f.column)) for f in leaves(c.sql.filters))))
    pieces += " ".join(str(base_name(g)) for g in (*c.sql.group_by, *(k.column for k in c.sql.order_by)))
    days |= {n for cut in re.findall(r"substr(?:ing)?\([^()]*?, (\d+), (\d+)\)", pieces) for n in cut}
    for literal in dict.fromkeys(c.sql.literals):
        text = " ".join(literal.casefold().split()).strip("%")
        core = _plain(text)
        if not core or text in benign or text in mapped or core in spoken or _FORMAT.match(text):
            continue
        if all(w in spoken for w in core.split()) or _dates_of(text):
            continue
        if re.fullmatch(r"-?\d+(\.\d+)?(e\+?\d{1,2})?", text):
            value = float(text)
            if (
                text.lstrip("0") in days
                or value in (0.0, 1.0, -1.0, 100.0)
                or {value, value + 1, value - 1, value / 100, value * 100} & numbers
            ):
                continue
            kind = "number_unnamed"
        else:
            if set(words(text)) <= named or any(same_value(text, w) for w in (*named, *phrases)):
                continue
            if len(text) == 1 and any(w.startswith(text) for w in named):
                continue
            kind = "text_unnamed"
        c.note(
            "wrong_filter_value",
            f"'{literal}' stands in the SQL; neither the question nor its reformulation names it.",
            sql_part=literal,
            kind=kind,
            severity="major",
        )


_WORD = re.compile(r"\w+")
_FORMAT = re.compile(r"^[%ymdhijws:\-/ .t]*$", re.IGNORECASE)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+(?:\.\d+)?", text.casefold()))


def _dates_of(text: str) -> bool:
    """Dates are compared as periods elsewhere."""
    return bool(re.match(r"^\d{4}[-/]?\d{2}([-/]?\d{2})?\b", text)) or bool(
        re.match(r"^[+-]?\d+ (day|month|year|week|hour)s?$", text)
    )


def _hint_columns(c: Comparison, inside: str) -> None:
    """Columns that the reformulation names and the SQL does not use."""
    columns = {name for _, name in c.sql.columns} | set(re.findall(r"[a-z_][a-z0-9_]*", inside))
    squeezed = {n.replace("_", "") for n in columns}
    for hint in relevant_hints(c):
        if not hint.column or hint.column in _NO_COLUMN:
            continue
        parts = set(identifier_words(hint.column))
        if len(parts) >= 2 and parts <= c.spoken | c.question.mentions.lemmas and hint.column not in c.raw:
            continue  # a phrase of the question, not the name of a column
        if any(column_similarity(hint.column, name) >= 0.85 for name in columns) or hint.column.replace("_", "") in squeezed:
            c.found("hint_column_found", 0.5)
        elif hint.op is None:
            c.note(
                "wrong_output",
                f"The reformulation names {hint.column}; the SQL does not use it.",
                question_part=hint.text or hint.column,
                kind="hint_column_absent",
                strength=0.8,
                severity="major",
            )


_NO_COLUMN = frozenset("year month day date count sum avg min max time name value number".split())


def _compare_names(c: Comparison, texts: str, inside: str, flagged: bool) -> None:
    """Proper names of the question that the SQL compares nothing with."""
    if not c.question.mentions.names:
        return
    touched = words_of(texts) | words_of(inside) | {w for n in inside.split() for w in identifier_words(n)}
    literals = [" ".join(x.casefold().split()) for x in c.sql.literals]
    said = {str(v) for f in leaves(c.missing) for v in (f.value if isinstance(f.value, tuple) else (f.value,))}
    for name in c.question.mentions.names:
        if any(same_value(v, name) for v in said):
            continue
        core = set(words(name))
        if not core or core & touched or core <= ASKING or any(same_value(x, name) for x in literals):
            continue
        if any(core <= set(words(clause)) and names_used(c, clause) for clause in c.clauses):
            continue  # the reformulation says which column stands for it
        c.note(
            "missing_filter",
            f"{name} stands in the question and nowhere in the SQL.",
            question_part=name,
            kind="name_absent_too" if flagged else "name_absent",
            strength=0.3 if len(name) <= 4 and name.upper() == name else 0.8,
            severity="major",
        )


def _compare_case(c: Comparison) -> None:
    """Literals against what the texts quote, letter by letter: databases compare text case by case and space by space."""
    compared = [f for f in leaves(c.sql.filters) if f.op in ("=", "in") and f.raw]
    if not compared:
        return
    raw = f"{c.record.user_question or ''} {c.record.enriched_question or ''}"
    quoted = [q for pair in re.findall(r"'([^'\n]{1,80})'|\"([^\"\n]{1,80})\"", raw) for q in pair if q]
    for f in compared:
        for literal in f.raw:
            if literal != literal.strip() and literal.strip():
                c.note(
                    "wrong_filter_value",
                    f"'{literal}' begins or ends with a space.",
                    sql_part=f"'{literal}'",
                    kind="literal_edge_space",
                    severity="major",
                )
            alike = [q for q in quoted if _squeezed(q) == _squeezed(literal)]
            if not alike or not _squeezed(literal) or any(q.strip() == literal.strip() for q in alike) or literal in raw:
                continue
            case = any(q.strip().casefold() == literal.strip().casefold() for q in alike)
            c.note(
                "wrong_filter_value",
                f"'{literal}' is quoted as '{alike[0]}'.",
                question_part=alike[0],
                sql_part=f"'{literal}'",
                kind="value_case" if case else "value_spelling",
                severity="major",
            )


def _squeezed(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.casefold())


# words of asking, counting and ordering name nothing that a table or column could carry
ASKING = frozenset(
    "list show find give return tell display provide identify name get compute calculate count number many much "
    "total average mean sum maximum minimum max min most least high low highest lowest large small big great old "
    "young long short top first last different distinct unique order descending ascending sort alphabetical "
    "alphabetically each every per all any both either also corresponding along together respectively information "
    "detail state mention specify please value record result there who what which where when how do does have has "
    "with without than more less over under above below between before after at exactly only same other one two "
    "three four five six seven eight nine ten percentage ratio rate difference group kind type whose their them "
    "they it its he she his her use belong contain include refer exist want need know see look describe determine "
    "indicate".split()
)


def compare_words(c: Comparison) -> None:
    """How much of what the question names the SQL touches, and how much of what the SQL touches the question names."""
    question, sql = c.question, c.sql
    if question.language != "en":
        return
    named = question.mentions.lemmas | frozenset().union(*(set(words(h.text)) for h in relevant_hints(c)))
    content = {w for w in question.mentions.lemmas if w not in ASKING and len(w) > 2 and not w.isdigit()}
    identifiers = [*sql.tables, *(n for _, n in sql.columns)]
    touched = {w for name in identifiers for w in identifier_words(name)} | words_of(" ".join(sql.literals))
    for hint in relevant_hints(c):
        if hint.column and any(column_similarity(hint.column, n) >= 0.85 for _, n in sql.columns):
            touched |= set(words(hint.text))
    if content:
        covered = sum(1 for w in content if w in touched or any(word_similarity(w, t) >= 0.85 for t in touched))
        c.support["words_covered"] = covered / len(content)
    raw = f"{c.record.user_question or ''} {c.record.enriched_question or ''}".casefold()
    keys = {(e.left_table, e.left_column) for e in sql.joins} | {(e.right_table, e.right_column) for e in sql.joins}
    used = {n for t, n in sql.columns if (t, n) not in keys}
    if used:
        explained = sum(1 for n in used if explained_by(n, named) or n in raw)
        c.support["columns_explained"] = explained / len(used)
    _unexplained(c, named, raw, keys)


def _unexplained(c: Comparison, named: frozenset[str], raw: str, keys: set[tuple[str, str]]) -> None:
    """Columns and tables that no word of the question or its reformulation leads to, by the part they play."""
    sql = c.sql
    parts = {
        "output": [base_name(p) for p in sql.projections],
        "filter_column": [base_name(f.column) for f in leaves(sql.filters) if f.op != "is_not_null" and not _of_its_kind(f)],
        "measure": [base_name(a.column) for a in sql.aggregations],
        "order_column": [base_name(k.column) for k in sql.order_by],
    }
    for part, names in parts.items():
        strange = [n for n in names if n and n not in raw and _WORD.fullmatch(n) and not explained_by(n, named)]
        if strange:
            c.note(
                "wrong_output"
                if part == "output"
                else "wrong_filter_column"
                if part == "filter_column"
                else "extra_transformation",
                f"Nothing in the question leads to {strange[0]}.",
                sql_part=strange[0],
                kind=f"{part}_unexplained",
                severity="minor",
            )
    own: dict[str, int] = {}
    for table, name in sql.columns:
        if table and (table, name) not in keys:
            own[table] = own.get(table, 0) + 1
    degree = Counter(t for e in dict.fromkeys(sql.joins) for t in (e.left_table, e.right_table))
    tables = [t for t in dict.fromkeys(sql.tables) if own.get(t) or degree[t] < 2]  # bridges need no word of their own
    odd = [t for t in tables if t not in raw and not explained_by(t, named)]
    if odd:
        c.note(
            "wrong_join",
            f"Nothing in the question leads to table {odd[0]}.",
            sql_part=odd[0],
            kind="table_unexplained",
            severity="minor",
            strength=len(odd) / len(tables),
        )


def _of_its_kind(f: Filter) -> bool:
    """A value that leads to its column by itself: a country to ``country``, open to ``status``."""
    parts = set(identifier_words(base_name(f.column) or ""))
    values = f.value if isinstance(f.value, tuple) else (f.value,)
    return any(isinstance(v, str) and set(attribute_of(v)) & parts for v in values)
