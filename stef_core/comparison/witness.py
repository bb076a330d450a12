"""What the rest of the log shows of owners, joins, values and tables against what this SQL takes for granted."""

from __future__ import annotations

from stef_core.catalogue import Witness, compared_forms, compared_texts
from stef_core.comparison.common import (
    Comparison,
    base_name,
    leaves,
    owner_of,
    words_of,
)
from stef_core.comparison.literals import ASKING
from stef_core.lexicon import column_similarity, identifier_words, word_similarity
from stef_core.records import (
    SqlSpec,
)


def compare_witness(c: Comparison) -> None:
    """What the rest of the log shows of owners, joins and tables against what this SQL takes for granted."""
    if c.witness is None:
        return
    for part in (c.sql, *c.sql.branches):
        _owners_seen(c, c.witness, part)
        _joins_seen(c, c.witness, part)
    _values_seen(c, c.witness)
    _formats_seen(c, c.witness)
    _better_columns(c, c.witness)
    touched = {w for name in (*c.sql.tables, *(n for _, n in c.sql.columns)) for w in identifier_words(name)}
    touched |= words_of(" ".join(c.sql.literals))
    absent = {
        word: table
        for word, table in c.witness.tables_named(c.question.mentions.lemmas - ASKING).items()
        if not any(word_similarity(word, t) >= 0.85 for t in touched)
    }
    for table in sorted(set(absent.values())):
        word = next(w for w, t in sorted(absent.items()) if t == table)
        c.note(
            "wrong_join",
            f"The question speaks of {word}; other answers read table {table} for it, this one does not.",
            question_part=word,
            kind="log_table_absent" if len(absent) == 1 else "log_tables_absent",
        )


def _values_seen(c: Comparison, witness: Witness) -> None:
    """Texts that other answers compare with another column."""
    conditions = [*c.sql.filters, *c.sql.join_filters, *(f for b in c.sql.branches for f in b.filters)]
    for column, literal in dict.fromkeys(compared_texts(conditions)):
        known = witness.others("literal", literal)
        if witness.others("value", f"{column}={literal}"):
            c.found("log_value_seen")
        elif known >= 2:
            c.note(
                "wrong_filter_column",
                f"The other answers of the log look for this value in another column than {column}.",
                sql_part=column,
                kind="log_value_elsewhere",
                strength=min(1.0, 0.4 + known / 6),
                severity="major",
            )


def _formats_seen(c: Comparison, witness: Witness) -> None:
    """Literals written as no other answer writes those of this column: ``'2013-10'`` where the log compares ``'201310'``."""
    conditions = [*c.sql.filters, *c.sql.join_filters, *(f for b in c.sql.branches for f in b.filters)]
    for column, _, shape in dict.fromkeys(compared_forms(conditions)):
        known = witness.others("compared", column)
        if known >= 3 and not witness.others("format", f"{column}={shape}"):
            c.note(
                "wrong_filter_value",
                f"The other answers of the log compare {column} with literals of another form.",
                sql_part=column,
                kind="log_format_unseen",
                strength=min(1.0, 0.3 + known / 8),
                severity="major",
            )


def _better_columns(c: Comparison, witness: Witness) -> None:
    """A column of the log that fits the words better than any that this SQL uses."""
    question = c.question
    asked = [(p, "wrong_output") for p in question.projections]
    asked += [(a.column, "wrong_aggregation") for a in question.aggregations if a.column != "*"]
    asked += [(f.column, "wrong_filter_column") for f in leaves(question.filters) if f.column is not None]
    asked += [(k.column, "wrong_order_direction") for k in question.order_by if k.column not in (None, "*")]
    used = {n for _, n in c.sql.columns}
    for column, code in dict.fromkeys(asked):
        name = base_name(column)
        if not name or len(identifier_words(name)) < 2:
            continue
        here = max((c.similar(name, n, owner_of(c.sql, n)) for n in used), default=0.0)
        if here >= 0.95:
            continue
        better = next((n for n in witness.names if n not in used and column_similarity(name, n) >= 0.97), None)
        if better is not None and witness.others("name", better) >= 1:
            c.note(
                code,
                f"The question speaks of {name}; other answers use the column {better} for it.",
                question_part=name,
                sql_part=better,
                kind="log_better_column",
                severity="major",
                strength=min(1.0, 1.1 - here / 2),
            )


def _owners_seen(c: Comparison, witness: Witness, sql: SqlSpec) -> None:
    known = [t for t in sql.tables if witness.others("table", t) >= 1]
    for table in dict.fromkeys(sql.tables):
        if table not in known and witness.questions >= 12:
            c.note(
                "wrong_join",
                f"No other answer of the log reads a table {table}.",
                sql_part=table,
                kind="log_table_unseen",
                severity="minor",
            )
    for source, column in dict.fromkeys(sql.columns):
        elsewhere = witness.others("name", column)
        if elsewhere < 2:
            seen = witness.others("table", source) if source and source in sql.tables else 0
            if elsewhere == 0 and seen >= 4 and column != "*":
                c.note(
                    "wrong_output" if column in {base_name(p) for p in sql.projections} else "wrong_filter_column",
                    f"No other answer of the log reads a column {column}, though {seen} or more read {source}.",
                    sql_part=f"{source}.{column}",
                    kind="log_column_unseen",
                    severity="minor",
                    strength=min(1.0, seen / 12),
                )
            continue
        owners = [source] if source and source in sql.tables else sql.tables if len(known) == len(sql.tables) else ()
        if not owners or any(witness.others("column", f"{t}.{column}") for t in owners):
            continue
        shown = column in {base_name(p) for p in sql.projections}
        c.note(
            "wrong_output" if shown else "wrong_join",
            f"{column} is read from {' or '.join(dict.fromkeys(owners))}; other answers of the log find it elsewhere.",
            sql_part=f"{owners[0]}.{column}",
            kind="log_column_elsewhere",
            # a name that several tables own may well be owned by one more
            strength=min(1.0, 0.4 + elsewhere / 6) * (0.4 if witness.owners(column) >= 2 else 1.0),
        )


def _joins_seen(c: Comparison, witness: Witness, sql: SqlSpec) -> None:
    for edge in dict.fromkeys(sql.joins):
        tied = witness.others("pair", f"{edge.left_table}={edge.right_table}")
        text = f"{edge.left_table}.{edge.left_column}={edge.right_table}.{edge.right_column}"
        if witness.others("edge", text):
            c.found("log_join_seen")
        elif tied >= 2:
            c.note(
                "wrong_join",
                f"The other answers of the log tie {edge.left_table} and {edge.right_table} by other columns.",
                sql_part=text.replace("=", " = "),
                kind="log_join_unseen",
                strength=min(1.0, 0.4 + tied / 6),
            )
        elif min(witness.others("table", edge.left_table), witness.others("table", edge.right_table)) >= 4:
            c.note(
                "wrong_join",
                f"No other answer of the log ties {edge.left_table} and {edge.right_table} directly.",
                sql_part=text.replace("=", " = "),
                kind="log_pair_unseen",
                severity="minor",
            )
