"""STEF: judges answers of text-to-SQL agents without gold SQL, schema or execution (arXiv 2604.28049)."""

from stef_core.errors import GateError, InputError, RuleError, StefError, TransientError
from stef_core.evaluate import evaluate, evaluate_many
from stef_core.records import Evaluation, Finding, QueryRecord, Score, Verdict
from stef_core.rules import Rules, load_rules
from stef_core.version import CORE_VERSION

__all__ = [
    "CORE_VERSION",
    "Evaluation",
    "Finding",
    "GateError",
    "InputError",
    "QueryRecord",
    "RuleError",
    "Rules",
    "Score",
    "StefError",
    "TransientError",
    "Verdict",
    "evaluate",
    "evaluate_many",
    "load_rules",
]
