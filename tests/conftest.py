"""What every test shares: a quiet, offline Prefect with a home of its own, and one server a session."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator

import hypothesis
import pytest

from tests.postgres_server import PostgresServer

# read by prefect and great_expectations on import, so set before any test module is
os.environ["PREFECT_HOME"] = tempfile.mkdtemp(prefix="stef-prefect-")
os.environ["PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"] = "180"
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["PREFECT_LOGGING_LEVEL"] = "CRITICAL"
os.environ["PREFECT_API_URL"] = ""
os.environ["DO_NOT_TRACK"] = "1"
os.environ["GX_ANALYTICS_ENABLED"] = "false"
# the same examples in each run, so that it says something of the change and not of its luck; drills look further
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True)
hypothesis.settings.load_profile("suite")
for name in [name for name in os.environ if name.startswith(("STEF_", "OPENAI_"))]:
    del os.environ[name]


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    """What one test compared answers for no other, which may have broken a stage on purpose."""
    import stef_core  # noqa: F401  # loads the module, whose name in the package is that of the function

    sys.modules["stef_core.evaluate"]._compared.cache_clear()


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    """A throw-away Prefect server for every flow of the session."""
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    # the heartbeat's thread adds a second to every flow run
    with prefect_test_harness(server_startup_timeout=180), temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server that lives as long as the session."""
    server = PostgresServer(durable=False)
    yield server
    server.close()
