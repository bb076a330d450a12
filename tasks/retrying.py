"""When a task is worth repeating."""

from __future__ import annotations

from typing import Any

from stef_core.errors import BusyError, SpoolError, TransientError

DELAYS_S = (2.0, 8.0, 30.0)  # an endpoint that restarts is back within a minute


def is_transient(_task: Any, _run: Any, state: Any) -> bool:
    """Repeat a task only when an endpoint or warehouse stayed away; a `BusyError` has waited its turn already.

    A full disk is none of these either: somebody has to make room first.

    Args:
        state: The Prefect state the task run ended in; its exception decides.
    """
    try:
        state.result()
    except (BusyError, SpoolError):
        return False
    except TransientError:
        return True
    except Exception:  # noqa: BLE001  # whatever else ended the task would end it again
        return False
    return False
