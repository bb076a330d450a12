"""Every regular expression of ours, and for each the texts that make a backtracking matcher slow; a program that times them.

A text is what stands before a repetition, the repeated part many times, and something that fails; for two repetitions side by
side the parts of both. A pattern that takes more than linear time takes it on one of these.
"""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import re
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

parser: Any = importlib.import_module("re._parser")

ROOT = Path(__file__).parents[2]
PACKAGES = ("stef_core", "tasks")
LENGTH = 10_000  # characters of a text, as many as are read of SQL in place
BOUND_S = 0.5  # of processor time for one text; a linear pattern takes some milliseconds
ENDS = ("", "\x00", "!", "a", "1", ")")
_FUNCTIONS = {"search", "match", "fullmatch", "sub", "subn", "findall", "finditer", "split"}


def patterns() -> dict[tuple[str, int, bool], str]:
    """Pattern, flags, and whether it is only asked at the start of a text, with where it stands.

    They are those that modules hold, and those written where they are used.
    """
    found: dict[tuple[str, int, bool], str] = {}
    for package in PACKAGES:
        for info in pkgutil.walk_packages([str(ROOT / package)], f"{package}."):
            module = importlib.import_module(info.name)
            source = Path(str(module.__file__)).read_text(encoding="utf-8")
            for name, value in vars(module).items():
                used = set(re.findall(rf"\b{re.escape(name)}\.(\w+)", source))
                for pattern in _held(value, set()):
                    anchored = value is pattern and bool(used) and used <= {"match", "fullmatch"}
                    found.setdefault((pattern.pattern, pattern.flags & ~re.DEBUG, anchored), f"{info.name}.{name}")
        for path in sorted((ROOT / package).rglob("*.py")):
            for text, flags, anchored in _written(path):
                found.setdefault((text, flags, anchored), str(path.relative_to(ROOT)))
    # one that is searched for in one place and not in another is searched for
    return {key: where for key, where in found.items() if not key[2] or (*key[:2], False) not in found}


def _held(value: Any, seen: set[int]) -> Iterator[re.Pattern[str]]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, re.Pattern):
        if isinstance(value.pattern, str):
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _held(item, seen)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _held(item, seen)
    elif type(value).__module__.startswith(PACKAGES):
        slots = [getattr(value, name, None) for name in getattr(type(value), "__slots__", ())]
        yield from _held([*slots, *getattr(value, "__dict__", {}).values()], seen)


def _written(path: Path) -> Iterator[tuple[str, int, bool]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
            continue
        owner, text, function = node.func.value, node.args[0], node.func.attr
        if (
            not isinstance(owner, ast.Name)
            or owner.id != "re"
            or function not in _FUNCTIONS
            or not isinstance(text, ast.Constant)
        ):
            continue
        flags = 0
        for word in (*node.args[1:], *(keyword.value for keyword in node.keywords)):
            for name in ast.walk(word):
                if isinstance(name, ast.Attribute) and isinstance(getattr(re, name.attr, None), re.RegexFlag):
                    flags |= int(getattr(re, name.attr))
        pattern = str(text.value)
        yield pattern, re.compile(pattern, flags).flags, function in ("match", "fullmatch")


def texts(pattern: str, flags: int, length: int = LENGTH) -> Iterator[str]:
    """Texts that a backtracking matcher may be slow on."""
    tree = parser.parse(pattern, flags & ~re.DEBUG)
    pumped: list[tuple[str, str]] = []
    _repeats(tree, "", pumped)
    bodies = [body for _, body in pumped]
    pairs = [(before, first + second) for (before, first), second in zip(pumped, bodies[1:], strict=False)]
    seen = set()
    for before, body in [*pumped, *pairs, *(("", body) for body in bodies), ("", _sample(tree))]:
        if not body or (before, body) in seen or len(body) > length:
            continue
        seen.add((before, body))
        for end in ENDS:
            yield before + body * (length // len(body)) + end
    for whole in {_sample(tree)[:cut] for cut in (1, 2, 3)} - {""}:
        yield whole * (length // len(whole))


def _repeats(tree: Iterable[Any], before: str, out: list[tuple[str, str]]) -> str:
    """Collect repetitions with what stands before each; returns a sample of all of it."""
    for operation, argument in tree:
        name = str(operation)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            low, high, body = argument
            if high > 8:
                out.extend((before, variant) for variant in _samples(body))
            _repeats(body, before, out)
            before += _sample(body) * max(low, 0 if high == 0 else min(1, low))
        elif name == "SUBPATTERN":
            before = _repeats(argument[-1], before, out)
        elif name == "BRANCH":
            samples = [_repeats(branch, before, out) for branch in argument[1]]
            before = samples[0] if samples else before
        elif name in ("ASSERT", "ASSERT_NOT"):
            _repeats(argument[1], before, out)
        elif name == "ATOMIC_GROUP":
            before = _repeats(argument, before, out)
        else:
            before += _sample([(operation, argument)])
    return before


def _samples(tree: Any) -> list[str]:
    """Some texts that a repeated part matches: one for each branch or member of a class."""
    items = list(tree)
    if len(items) == 1:
        operation, argument = items[0]
        if str(operation) == "IN":
            return list(dict.fromkeys(_member([member]) for member in argument))[:6]
        if str(operation) == "BRANCH":
            return list(dict.fromkeys(text for branch in argument[1] for text in _samples(branch)))[:8]
        if str(operation) == "SUBPATTERN":
            return _samples(argument[-1])
        if str(operation) == "ANY":
            return ["a", " "]
    return [_sample(items)]


def _sample(tree: Iterable[Any]) -> str:
    out = ""
    for operation, argument in tree:
        name = str(operation)
        if name == "LITERAL":
            out += chr(argument)
        elif name == "NOT_LITERAL":
            out += "a" if chr(argument) != "a" else "b"
        elif name == "ANY":
            out += "a"
        elif name == "IN":
            out += _member(argument)
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            out += _sample(argument[2]) * min(argument[0], 200)
        elif name == "SUBPATTERN":
            out += _sample(argument[-1])
        elif name == "BRANCH":
            out += _sample(argument[1][0])
        elif name == "ATOMIC_GROUP":
            out += _sample(argument)
    return out


_CATEGORIES = {"CATEGORY_DIGIT": "1", "CATEGORY_WORD": "a", "CATEGORY_SPACE": " ", "CATEGORY_NOT_DIGIT": "a"}
_CATEGORIES |= {"CATEGORY_NOT_WORD": " ", "CATEGORY_NOT_SPACE": "a"}


def _member(members: list[Any]) -> str:
    if str(members[0][0]) == "NEGATE":
        for candidate in "a1 .'\"(-_\n":
            if not any(_holds(member, candidate) for member in members[1:]):
                return candidate
        return "\u00e9"
    operation, argument = members[0]
    if str(operation) == "LITERAL":
        return chr(argument)
    if str(operation) == "RANGE":
        return chr(argument[0])
    return _CATEGORIES.get(str(argument), "a")


def _holds(member: Any, character: str) -> bool:
    operation, argument = member
    if str(operation) == "LITERAL":
        return chr(argument) == character
    if str(operation) == "RANGE":
        return bool(argument[0] <= ord(character) <= argument[1])
    tests = {"DIGIT": str.isdigit, "WORD": lambda c: c.isalnum() or c == "_", "SPACE": str.isspace}
    name = str(argument).removeprefix("CATEGORY_")
    return bool(tests[name.removeprefix("NOT_")](character)) != name.startswith("NOT_")


def slowest(pattern: str, flags: int, *, anchored: bool) -> tuple[float, str]:
    """Seconds that the slowest text of `LENGTH` takes, extrapolated where it would be too many, and its beginning."""
    compiled = re.compile(pattern, flags)
    worst, on = 0.0, ""
    for short, long in zip(texts(pattern, flags, LENGTH // 8), texts(pattern, flags), strict=False):
        taken = 64 * min(_timed(compiled, short, anchored) for _ in range(2))  # as of a quadratic one
        if taken <= 20 * BOUND_S:
            taken = _timed(compiled, long, anchored) if taken > BOUND_S / 2 else 0.0
        if taken > worst:
            worst, on = taken, short[:60]
        if worst > BOUND_S:
            break
    return worst, on


def _timed(compiled: re.Pattern[str], text: str, anchored: bool) -> float:
    start = time.process_time()
    if anchored:
        compiled.match(text)
        compiled.fullmatch(text)
    else:
        for _ in compiled.finditer(text):
            pass
    return time.process_time() - start


def main() -> None:
    """Time the patterns; one JSON line for each that is too slow, flushed before the next is tried.

    Arguments: ``only`` or ``without``, and what the names of modules begin with.
    """
    which, prefix = sys.argv[1:3]
    every = {key: where for key, where in patterns().items() if where.startswith(prefix) == (which == "only")}
    for (pattern, flags, anchored), where in every.items():
        about = {"where": where, "pattern": pattern[:400]}
        print(json.dumps({"trying": about}), flush=True)  # says which it was that took the time of all
        seconds, on = slowest(pattern, flags, anchored=anchored)
        if seconds > BOUND_S:
            print(json.dumps({"slow": about, "seconds": round(seconds, 2), "on": on}), flush=True)
    print(json.dumps({"patterns": len(every)}), flush=True)


if __name__ == "__main__":
    main()
