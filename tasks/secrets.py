"""The key of the endpoint from a Prefect Secret block, where the environment has none."""

from __future__ import annotations

from typing import cast

from pydantic import SecretStr

from stef_core.errors import RuleError
from tasks.settings import Settings


def with_secret(settings: Settings) -> Settings:
    """The settings with the key that `api_key_block` names; a key of the environment goes first.

    Raises:
        RuleError: There is no such block.
    """
    if settings.api_key is not None or settings.api_key_block is None or settings.judge != "openai":
        return settings
    from prefect.blocks.system import Secret

    try:
        block = cast("Secret[str]", Secret.load(settings.api_key_block))  # called from a sync flow
    except ValueError as error:
        message = (
            f"STEF_API_KEY_BLOCK: there is no Prefect Secret block {settings.api_key_block!r}; make one or set STEF_API_KEY"
        )
        raise RuleError(message) from error
    return settings.model_copy(update={"api_key": SecretStr(block.get())})
