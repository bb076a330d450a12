"""Settings: flag > environment (``STEF_*``) > ``stef.toml`` > default, in one frozen class.

Secrets come from the environment or a Prefect Secret block only, and are never printed.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from stef_core.errors import RuleError
from stef_core.rules import Rules, load_rules, load_rules_dir

PREFIX = "STEF_"
SECRETS = ("api_key", "marker_key")
# names that other programs of the field use; honoured where the STEF_* one is unset
FALLBACKS = {"api_key": "OPENAI_API_KEY", "base_url": "OPENAI_BASE_URL"}


class ModelPrice(BaseModel):
    """One line of the price table: ``[prices."some-model"]`` in ``stef.toml``, or JSON in ``STEF_PRICES``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: float = Field(ge=0, description="Money for 1,000,000 tokens of prompts.")
    output: float = Field(ge=0, description="Money for 1,000,000 tokens of answers.")
    batch: float = Field(default=0.5, ge=0, le=1, description="What the Batch API charges of it, 0-1.")


class Settings(BaseSettings):
    """Everything that can be set; one field a `STEF_*` variable and a key of ``stef.toml``."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="forbid")

    logs: str | None = Field(
        default=None, description="Root of the query log: a path or a URI (s3://, gs://, abfs://, file://)."
    )
    warehouse: str = Field(
        default="duckdb:///stef.duckdb", description="URL of the warehouse: duckdb:///file.duckdb or postgresql://…."
    )
    rules: Path | None = Field(
        default=None, description="Folder of rules files, or one file; the built-in default rules if unset."
    )
    labelled: str | None = Field(
        default=None, description="Labelled answers that a calibration measures on: a file, or the URL of a warehouse."
    )
    judge: Literal["symbolic", "openai"] = Field(default="symbolic", description="Who gives the verdict.")
    model: str | None = Field(default=None, description="Model id at the endpoint.")
    base_url: str | None = Field(default=None, description="URL of an OpenAI-compatible endpoint.")
    api_key: SecretStr | None = Field(default=None, description="Key of the endpoint; environment only.")
    api_key_block: str | None = Field(default=None, description="Name of a Prefect Secret block that holds the key.")
    marker_key: SecretStr | None = Field(
        default=None, description="Secret of the marker around the data that a model is shown; environment only."
    )
    concurrency: int = Field(default=16, ge=1, le=1024, description="Calls in flight at once.")
    timeout_s: float = Field(default=60.0, gt=0, description="Seconds to wait for one answer.")
    cache: Path | None = Field(default=Path(".stef/answers.sqlite"), description="File of answers already paid for.")
    cache_journal: Literal["auto", "wal", "delete"] = Field(
        default="auto", description="Journal of that file; delete where hosts share it."
    )
    cache_shared: bool = Field(default=False, description="Share answers with other machines through the warehouse.")
    batch: bool = Field(default=False, description="Ask through the endpoint's Batch API: cheaper, within a day.")
    fused: bool = Field(default=False, description="Ask once a row, for reading and verdict together.")
    samples: int = Field(default=1, ge=1, le=50, description="Verdicts asked for a row; the grade most agree on counts.")
    sample_temperature: float = Field(default=0.7, gt=0, le=2, description="Temperature where there are several samples.")
    logprobs: bool = Field(default=False, description="Ask for the probability of the grade, where the endpoint tells it.")
    max_calls: int | None = Field(default=None, ge=0, description="Calls a run may make, retries included.")
    max_tokens: int | None = Field(default=None, ge=0, description="Tokens a run may use.")
    max_cost: float | None = Field(default=None, ge=0, description="Money a run may spend, in the currency of the price table.")
    prices: dict[str, ModelPrice] = Field(
        default={}, description="Price table: by model, money for 1,000,000 tokens of input and of output."
    )
    requests_per_minute: int | None = Field(default=None, ge=1, description="Limit of the endpoint.")
    tokens_per_minute: int | None = Field(default=None, ge=1, description="Limit of the endpoint.")
    coverage_min: float = Field(default=0.95, ge=0, le=1, description="Share of an agent's rows that must be scored, 0-1.")
    catch_up_days: int = Field(default=14, ge=1, le=3660, description="How many days back a run looks for missing ones.")
    volume_tolerance: float = Field(
        default=0.5, ge=0, description="Share of the usual rows by which a day may differ without a warning."
    )
    psi_max: float = Field(
        default=0.25, gt=0, description="Population stability index of inputs and bands above which a day is warned of."
    )
    data_docs: Path | None = Field(default=None, description="Folder that keeps Great Expectations' pages of each run.")
    batch_size: int = Field(default=200, ge=1, le=10_000, description="Rows of one task; more on days of over 100 tasks.")
    spool: Path = Field(default=Path(".stef/spool"), description="Folder of days under way, for killed runs to go on with.")
    runner: Literal["threads", "dask"] = Field(default="threads", description="Where batches are worked on.")
    address: str | None = Field(default=None, description="Scheduler of Dask; processes of this machine if unset.")
    processes: int | None = Field(
        default=None, ge=1, le=256, description="Processes that read and judge by rule; all cores if unset."
    )
    row_seconds: float = Field(
        default=20.0, gt=0, le=3_600, description="Seconds that reading, or aligning, one large row may take."
    )
    row_memory_mb: int = Field(default=1_024, ge=64, description="Memory in MB that it may take for that.")
    days_at_once: int = Field(default=1, ge=1, le=64, description="Days under way side by side.")
    warehouse_wait_s: float = Field(
        default=60.0, ge=0, description="Seconds to wait while another process holds the warehouse, or its server is away."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flag > environment > file; no dotenv files and no secret folders."""
        return init_settings, env_settings, _FallbackSource(settings_cls), _FileSource(settings_cls)

    @property
    def warehouse_shown(self) -> str:
        """The warehouse URL without its password."""
        return shown_url(self.warehouse)


def shown_url(url: str) -> str:
    """A URL without its password, which stands before the host or among the options; masks too much rather than too little."""
    # a colon before a port begins no password; a password may hold an @, and by mistake a slash or a question mark
    url = re.sub(r"(?<=://)([^:/@?]*):(?!\d*(?:[/?,]|$))(?:[^?]*|.*)@", r"\1:***@", url)
    return re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1***", url, flags=re.IGNORECASE)


class _FallbackSource(PydanticBaseSettingsSource):
    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return os.environ.get(FALLBACKS.get(field_name, "")) or None, field_name, False

    def __call__(self) -> dict[str, Any]:
        return {name: os.environ[variable] for name, variable in FALLBACKS.items() if os.environ.get(variable)}


class _FileSource(PydanticBaseSettingsSource):
    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return self().get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return _read_file()


def settings_file() -> Path | None:
    """The settings file in force: ``STEF_CONFIG``, else ``stef.toml`` of the working directory, else None.

    Raises:
        RuleError: ``STEF_CONFIG`` names a file that is not there.
    """
    named = os.environ.get(f"{PREFIX}CONFIG")
    if named:
        if not Path(named).is_file():
            raise RuleError(f"STEF_CONFIG: {named}: no such file")
        return Path(named)
    return Path("stef.toml") if Path("stef.toml").is_file() else None


def load_settings(flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings in force.

    Args:
        flags: Values from the command line or a flow's parameters; None means not given.

    Raises:
        RuleError: An unknown key or a value of the wrong form; the message names the setting and where it was set.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise RuleError("; ".join(_sentence(dict(e), given) for e in error.errors())) from error
    except SettingsError as error:  # a table such as the prices comes as JSON in the environment
        name = re.findall(r'"(\w+)"', str(error))[0]
        raise RuleError(f"{PREFIX}{name.upper()}: is not JSON: {error.__cause__}") from error


def application_rules(settings: Settings) -> dict[str, Rules]:
    """Rules by `app_id`; ``default`` is always there.

    Raises:
        RuleError: The folder or a file is absent or wrong.
    """
    path = settings.rules if settings.rules is not None else default_rules_file()
    if path.is_file():
        rules = load_rules(path)
        return {rules.app_id: rules} if rules.app_id == "default" else {rules.app_id: rules, "default": Rules()}
    return load_rules_dir(path)


def default_rules_file() -> Path:
    """The built-in default rules: package data of the wheel, or ``rules/`` of a checkout."""
    here = Path(__file__).parent
    packaged = here / "data" / "rules" / "default.json"
    return packaged if packaged.is_file() else here.parent / "rules" / "default.json"


def _read_file() -> dict[str, Any]:
    path = settings_file()
    if path is None:
        return {}
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"{path}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise RuleError(f"{path}: not TOML: {error}") from error
    for key in found:
        if key in SECRETS:
            raise RuleError(f"{path}: {key}: secrets do not belong in a file; set {PREFIX}{key.upper()} in the environment")
        if key not in Settings.model_fields:
            known = ", ".join(name for name in Settings.model_fields if name not in SECRETS)
            raise RuleError(f"{path}: {key}: unknown key; known keys: {known}")
    return found


def _sentence(error: dict[str, Any], given: Mapping[str, Any]) -> str:
    name = str(error["loc"][0])
    path = ".".join(str(part) for part in error["loc"][1:])
    if error["type"] == "extra_forbidden" and not path:
        return f"{name}: unknown setting; known settings: {', '.join(Settings.model_fields)}"
    message = str(error["msg"])
    shown = "" if name in SECRETS else f" (got {error['input']!r:.60})"
    where = f"{_origin(name, given)}: {path}" if path else _origin(name, given)
    return f"{where}: {message[0].lower() + message[1:]}{shown}"


def _origin(name: str, given: Mapping[str, Any]) -> str:
    variable = f"{PREFIX}{name.upper()}"
    if name in given:
        return f"--{name.replace('_', '-')}"
    if os.environ.get(variable):
        return variable
    if os.environ.get(FALLBACKS.get(name, "")):
        return FALLBACKS[name]
    return f"{settings_file()}: {name}"
