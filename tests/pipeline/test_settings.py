"""Settings: precedence, sources, and errors in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from stef_core.errors import RuleError
from tasks.settings import application_rules, default_rules_file, load_settings


@pytest.fixture(autouse=True)
def clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("STEF_CONFIG", "STEF_MODEL", "STEF_API_KEY", "STEF_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def test_flag_goes_before_environment_before_file_before_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stef.toml").write_text('model = "file"\nbatch_size = 7\nconcurrency = 3\n')
    monkeypatch.setenv("STEF_MODEL", "environment")
    monkeypatch.setenv("STEF_CONCURRENCY", "5")

    settings = load_settings({"model": "flag", "logs": None})

    assert (settings.model, settings.concurrency, settings.batch_size, settings.timeout_s) == ("flag", 5, 7, 60.0)
    assert load_settings().model == "environment"


def test_stef_config_names_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.toml"
    other.write_text("coverage_min = 0.5\n")
    monkeypatch.setenv("STEF_CONFIG", str(other))

    assert load_settings().coverage_min == 0.5


def test_stef_config_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEF_CONFIG", "nowhere.toml")

    with pytest.raises(RuleError, match=r"STEF_CONFIG: nowhere\.toml: no such file"):
        load_settings()


def test_names_of_openai_are_honoured_where_ours_are_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "theirs")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1")
    theirs = load_settings()
    monkeypatch.setenv("STEF_API_KEY", "ours")

    ours = load_settings()

    assert theirs.api_key is not None
    assert ours.api_key is not None
    assert (theirs.api_key.get_secret_value(), theirs.base_url) == ("theirs", "http://localhost:1/v1")
    assert ours.api_key.get_secret_value() == "ours"


def test_a_key_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEF_API_KEY", "sk-very-secret")
    monkeypatch.setenv("STEF_MARKER_KEY", "a very-secret text")

    assert "very-secret" not in f"{load_settings()!r} {load_settings()} {load_settings().model_dump_json()}"


@pytest.mark.parametrize("name", ["api_key", "marker_key"])
def test_a_key_in_a_file_is_refused_without_repeating_it(name: str, tmp_path: Path) -> None:
    (tmp_path / "stef.toml").write_text(f'{name} = "sk-very-secret"\n')

    with pytest.raises(RuleError, match=rf"stef\.toml: {name}: .*STEF_{name.upper()}") as caught:
        load_settings()

    assert "very-secret" not in str(caught.value)


def test_unknown_key_names_file_and_key(tmp_path: Path) -> None:
    (tmp_path / "stef.toml").write_text('warehosue = "x"\n')

    with pytest.raises(RuleError, match=r"stef\.toml: warehosue: unknown key; known keys: logs, warehouse"):
        load_settings()


def test_broken_toml_names_the_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "stef.toml").write_text("judge = \n")

    with pytest.raises(RuleError, match=r"stef\.toml: not TOML: .*line 1"):
        load_settings()


@pytest.mark.parametrize("where", ["flag", "environment", "file"])
def test_wrong_value_says_where_it_was_set(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if where == "file":
        (tmp_path / "stef.toml").write_text("coverage_min = 2\n")
    if where == "environment":
        monkeypatch.setenv("STEF_COVERAGE_MIN", "2")
    expected = {"flag": "--coverage-min: ", "environment": "STEF_COVERAGE_MIN: ", "file": "stef.toml: coverage_min: "}[where]

    with pytest.raises(RuleError, match="less than or equal to 1") as caught:
        load_settings({"coverage_min": 2} if where == "flag" else None)

    assert str(caught.value).startswith(expected)
    assert "\n" not in str(caught.value)


def test_judge_must_be_one_that_exists() -> None:
    with pytest.raises(RuleError, match=r"--judge: input should be 'symbolic' or 'openai' \(got 'oracle'\)"):
        load_settings({"judge": "oracle"})


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_settings().judge = "openai"


def test_password_of_the_warehouse_is_masked() -> None:
    settings = load_settings({"warehouse": "postgresql://stef:p@ss:word@db:5432/stef"})

    assert settings.warehouse_shown == "postgresql://stef:***@db:5432/stef"
    assert load_settings().warehouse_shown == "duckdb:///stef.duckdb"


def test_default_rules_are_found_without_a_setting() -> None:
    rules = application_rules(load_settings())

    assert default_rules_file().is_file()
    assert list(rules) == ["default"]


def test_default_rules_of_a_wheel_go_before_those_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.settings.__file__", str(tmp_path / "tasks" / "settings.py"))
    checkout = tmp_path / "rules" / "default.json"
    packaged = tmp_path / "tasks" / "data" / "rules" / "default.json"
    before = default_rules_file()
    packaged.parent.mkdir(parents=True)
    packaged.write_text("{}")

    after = default_rules_file()

    assert (before, after) == (checkout, packaged)


def test_rules_may_be_one_file(tmp_path: Path) -> None:
    (tmp_path / "shop.json").write_text('{"app_id": "shop", "safety_limit_min": 50}')

    rules = application_rules(load_settings({"rules": tmp_path / "shop.json"}))

    assert (rules["shop"].safety_limit_min, rules["default"].safety_limit_min) == (50, 1000)


def test_absent_rules_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="no such folder of rules"):
        application_rules(load_settings({"rules": tmp_path / "nowhere"}))
