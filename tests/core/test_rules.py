"""R_app: validation that names the path, mappings, and the part that bears on a row."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stef_core.errors import RuleError
from stef_core.rules import (
    BenignFilter,
    RedactKind,
    RedactPattern,
    Rules,
    load_rules,
    load_rules_dir,
    parse_rules,
    rules_schema,
    rules_version,
)

ROOT = Path(__file__).parents[2]


def test_an_unknown_key_is_named_with_its_file_and_the_known_ones() -> None:
    with pytest.raises(RuleError, match=r"^retail\.json: benign_filter: unknown key; known keys: app_id, version"):
        parse_rules('{"benign_filter": []}', "retail.json")


def test_an_unknown_key_inside_a_filter_is_named_with_its_path() -> None:
    text = '{"benign_filters": [{"column": "a", "op": "=", "value": 1}, {"column": "b", "op": "=", "val": 1}]}'

    with pytest.raises(RuleError, match=r"retail\.json: benign_filters\[1\]\.val: unknown key; known keys: column, op, value"):
        parse_rules(text, "retail.json")


def test_a_wrong_operator_says_which_are_right() -> None:
    with pytest.raises(RuleError, match=r"benign_filters\[0\]\.op: input should be '='.*\(got 'eq'\)"):
        parse_rules('{"benign_filters": [{"column": "a", "op": "eq"}]}', "retail.json")


def test_an_unknown_dialect_says_which_are_known() -> None:
    with pytest.raises(RuleError, match=r"retail\.json: dialect: is 'klingon'; use one of .*snowflake"):
        parse_rules('{"dialect": "klingon"}', "retail.json")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('{"kind": "mail"}', r"redact\[1\]\.kind: input should be 'email', .*\(got 'mail'\)"),
        ('{"kind": "card", "region": "DE"}', r"redact\[1\]\.region: goes with phone and national_id alone"),
        ('{"kind": "national_id"}', r"redact\[1\]\.region: names the countries whose ids are meant: use some of AT .* ZA"),
        ('{"kind": "national_id", "region": ["DE", "XX"]}', r"redact\[1\]\.region: names the countries"),
        (
            '{"kind": "phone", "region": "de"}',
            r"redact\[1\]\.region: names a country that no phone number is from.*\(got 'de'\)",
        ),
        ('{"kind": "card", "name": "x"}', r"redact\[1\]\.name: unknown key; known keys: kind, region"),
        ('{"pattern": "K-1"}', r"redact\[1\]\.name: field required"),
        ('{"pattern": "(K", "name": "x"}', r"redact\[1\]\.pattern: is no pattern that RE2 takes: missing \)"),
        (
            '{"pattern": "(a)\\\\1", "name": "x"}',
            r"redact\[1\]\.pattern: is no pattern that RE2 takes: invalid escape sequence",
        ),
        (
            '{"pattern": "(x{1000}){1000}", "name": "x"}',
            r"redact\[1\]\.pattern: is no pattern that RE2 takes: invalid repetition",
        ),
        ('{"pattern": "a*", "name": "x"}', r"redact\[1\]\.pattern: matches the empty text"),
        (
            '{"column": "mail"}',
            r"redact\[1\]: must be the name of a column, \{\"kind\": …\} or \{\"pattern\": …, \"name\": …\}",
        ),
        ("7", r"redact\[1\]: must be the name of a column"),
    ],
)
def test_a_wrong_entry_of_redact_is_named_with_its_file_and_path(entry: str, message: str) -> None:
    with pytest.raises(RuleError, match=rf"^retail\.json: {message}"):
        parse_rules(f'{{"redact": ["mail", {entry}]}}', "retail.json")


def test_kinds_and_patterns_bear_on_every_row_and_columns_where_they_are_named() -> None:
    kind, pattern = RedactKind(kind="phone", region="DE"), RedactPattern(pattern="K-1", name="x")
    rules = Rules(redact=["mail", kind, pattern])

    assert rules.bearing_on(frozenset({"amount"}), frozenset()).redact == [kind, pattern]
    assert rules.bearing_on(frozenset({"mail"}), frozenset()).content_hash == rules.content_hash


def test_the_libraries_of_redact_are_loaded_where_a_rule_asks_for_them() -> None:
    program = (
        "import sys; from stef_core.rules import parse_rules; from stef_core.redact import redaction\n"
        "rules = parse_rules(sys.argv[1], 'x'); redaction(rules).mask('4111 1111 1111 1111 +49 30 901820 a@b.org K-1')\n"
        "print(*sorted({'re2', 'stdnum', 'phonenumbers'} & set(sys.modules)))"
    )

    def loaded(*entries: object) -> str:
        text = json.dumps({"redact": entries})
        command = [sys.executable, "-W", "error", "-c", program, text]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    assert loaded("mail", {"kind": "email"}) == ""
    assert loaded({"kind": "card"}) == "stdnum"
    assert loaded({"kind": "phone", "region": "DE"}) == "phonenumbers"
    assert loaded({"pattern": "K-1", "name": "x"}) == "re2"


def test_text_that_is_no_json_is_named_with_its_line() -> None:
    with pytest.raises(RuleError, match=r"retail\.json: line 2: not JSON"):
        parse_rules('{"app_id": "x",\n oops}', "retail.json")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match=r"nowhere\.json: cannot be read"):
        load_rules(tmp_path / "nowhere.json")


def test_two_files_may_not_claim_one_application(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text('{"app_id": "shop"}')

    with pytest.raises(RuleError, match=r"b\.json: app_id 'shop' is claimed by .*a\.json too"):
        load_rules_dir(tmp_path)


def test_a_folder_without_default_rules_gets_the_built_in_ones(tmp_path: Path) -> None:
    (tmp_path / "shop.json").write_text('{"app_id": "shop", "safety_limit_min": 5000}')

    rules = load_rules_dir(tmp_path)

    assert rules["shop"].safety_limit_min == 5000
    assert rules["default"].safety_limit_min == 1000


def test_mappings_are_symmetric_and_transitive() -> None:
    rules = Rules(column_mappings={"area": "region", "region": "territory"})

    assert rules.same_column("territory", "AREA")
    assert rules.aliases("region") == {"area", "region", "territory"}
    assert not rules.same_column("area", "country")


def test_a_word_of_the_business_becomes_the_stored_value_of_its_column_alone() -> None:
    rules = Rules(value_mappings={"status": {"Shipped": "S"}})

    assert rules.mapped_value("status", "shipped") == "S"
    assert rules.mapped_value("channel", "shipped") == "shipped"


def test_the_version_for_people_does_not_change_the_content_hash() -> None:
    assert Rules(version="1").content_hash == Rules(version="2").content_hash
    assert Rules(safety_limit_min=999).content_hash != Rules().content_hash


def test_a_rule_on_a_column_that_is_nowhere_does_not_bear_on_a_row() -> None:
    rules = Rules(benign_filters=[BenignFilter(column="tenant_id", op="=", value="*")])
    row = frozenset({"amount"}), frozenset({"total", "amount"})

    assert rules.bearing_on(*row).content_hash == Rules().content_hash
    assert rules.bearing_on(frozenset({"tenant_id"}), frozenset()).content_hash == rules.content_hash


def test_the_version_of_a_set_of_rules_changes_with_any_of_them() -> None:
    before = rules_version({"default": Rules(), "shop": Rules(app_id="shop")})

    after = rules_version({"default": Rules(), "shop": Rules(app_id="shop", safety_limit_min=10)})

    assert before != after


def test_the_published_schema_is_the_one_the_code_holds() -> None:
    published = json.loads((ROOT / "rules" / "rules.schema.json").read_text(encoding="utf-8"))

    assert published == rules_schema()


def test_every_rules_file_that_ships_is_valid() -> None:
    assert "default" in load_rules_dir(ROOT / "rules")
