"""Prompts as files: one text, one version, and a golden snapshot of what each renders to."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A system prompt. `version` is its name and the first 8 hex digits of its SHA-256, so an edited text is a new version."""

    name: str
    text: str
    version: str


def prompt_of(text: str) -> Prompt | None:
    """The prompt of this package that a text is; None where it is none."""
    names = (file.name for file in files(__package__).iterdir() if file.name.endswith(".md"))
    return next((prompt for name in sorted(names) if (prompt := load_prompt(name.removesuffix(".md"))).text == text), None)


@cache
def load_prompt(name: str) -> Prompt:
    """Read one prompt of this package.

    Args:
        name: File name without ``.md``, e.g. ``judge_v2``.

    Raises:
        FileNotFoundError: There is no prompt of that name.
    """
    text = files(__package__).joinpath(f"{name}.md").read_text(encoding="utf-8").strip()
    return Prompt(name=name, text=text, version=f"{name}@{hashlib.sha256(text.encode()).hexdigest()[:8]}")
