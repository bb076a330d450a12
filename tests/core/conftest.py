"""Fixtures of the core's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.openai_server import OpenAIServer, answer, serving


@pytest.fixture
def openai_server() -> Iterator[OpenAIServer]:
    """A loopback endpoint; a test sets `script` to what it should say."""
    with serving(lambda body, before: answer({})) as server:
        yield server
