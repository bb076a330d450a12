"""What SECURITY.md claims of the code: nothing of a stranger is run, and secrets are no part of any text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(path for name in ("stef_core", "tasks", "flows") for path in (ROOT / name).rglob("*.py"))
# calls that run what they are given, or make objects of any class
RUNNING = {"eval", "exec", "compile", "__import__"}
QUALIFIED = {
    ("pickle", "load"), ("pickle", "loads"), ("pickle", "Unpickler"), ("cPickle", "loads"), ("marshal", "loads"),
    ("marshal", "load"), ("shelve", "open"), ("dill", "loads"), ("cloudpickle", "loads"), ("joblib", "load"),
    ("yaml", "load"), ("yaml", "unsafe_load"), ("yaml", "full_load"), ("os", "system"), ("os", "popen"),
    ("subprocess", "getoutput"), ("subprocess", "getstatusoutput"),
}  # fmt: skip
# the one that refuses all classes but those of our records, and the pipe to the process that reads heavy rows
KNOWN = {("tasks/spool.py", "pickle.Unpickler"), ("stef_core/guard.py", "pickle.loads")}
# who runs SQL at all: the warehouse its own, experiments that of their data sets
EXPERIMENTS = {"tasks/experiments.py", "tasks/experiment_agents.py", "tasks/demo_experiment.py"}


def dangers(tree: ast.AST) -> Iterator[str]:
    """What of the code runs text, or reads objects of any class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RUNNING:
            yield node.func.id
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and (node.value.id, node.attr) in QUALIFIED:
            yield f"{node.value.id}.{node.attr}"
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names if (node.module, name.name) in QUALIFIED)
        if isinstance(node, ast.keyword) and node.arg == "shell" and not _is(node.value, False):
            yield "shell="
        if isinstance(node, ast.keyword) and node.arg == "verify" and _is(node.value, False):
            yield "verify=False"


def _is(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def test_no_module_runs_text_or_reads_objects_of_any_class() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), danger)
        for path in MODULES
        for danger in dangers(ast.parse(path.read_text(encoding="utf-8")))
    }

    assert found == KNOWN


@pytest.mark.parametrize(
    ("code", "danger"),
    [
        ("eval(text)", "eval"),
        ("pickle.loads(data)", "pickle.loads"),
        ("from pickle import loads", "pickle.loads"),
        ("subprocess.run(text, shell=True)", "shell="),
        ("yaml.load(file)", "yaml.load"),
        ("client.get(url, verify=False)", "verify=False"),
    ],
)
def test_what_is_looked_for_is_found(code: str, danger: str) -> None:
    assert list(dangers(ast.parse(code))) == [danger]


def test_databases_of_others_are_opened_by_experiments_alone() -> None:
    opened = {
        path.relative_to(ROOT).as_posix()
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tasks.databases"))
        or (isinstance(node, ast.Import) and any(name.name.startswith("tasks.databases") for name in node.names))
    }

    assert {name for name in opened if not name.startswith("tasks/databases/")} <= EXPERIMENTS | {
        "flows/commands_experiment.py",
        "flows/experiment.py",
    }
