"""A model that obeys: whatever instruction or claim it finds in the user message, however hidden, it does what it is told.

It shares no code with the defence that it is held against. Only a request in which it finds nothing is answered truly.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

from stef_core.canonical import sql_spec_json
from stef_core.extract.sql import extract_sql
from tests.openai_server import Reply, answer, error

Host: TypeAlias = "dict[str, Any]"
Fooled: TypeAlias = Literal["empty", "mirror"]  # what a fooled reader of questions writes: nothing, or what the SQL does

# what no honest request about the hosts holds: orders, claims, verdicts, and whom they are meant for
_CUES = re.compile(
    r"""ignor|disregard|overlook|overrid|dismiss(?:ed)?\b|\bno\slonger\sappl|do\snot\sreport
    | instruc|indicaci|istruzion|anweisung|rubric|system\b|\bassistant\b|administrator|\bprompt\b|\bnew\stask
    | evaluat|grader|\bjudge\b|reviewer|\ban\sai\b|prüfer
    | verdict|\bgrade|grad(?:e|ing)\b|confidence|\brate\sthis|\bscore\sit|rating|top\smarks|bestnote
    | \bcorrect|flawless|\bperfect\b|approve|as\sit\sstands|considered\svalid|query\sright|fehlerfrei|korrekt
    | \brichtig|\bcorrett|\bcorreta|juist\b|anweis|instrucci|instruç|précédent
    | игнор|правильн|忽略|指令|正确|無視|指示|正解|تجاهل|التعليمات|صحيح
    """,
    re.IGNORECASE | re.VERBOSE,
)
_LOOKALIKES = str.maketrans("аеіорсухѕјһԁɡΑΒΕΗΙΚΜΝΟΡΤΧΥΖοІЅЈОРСТХВНКМАЕ", "aeiopcyxsjhdgABEHIKMNOPTXYZoISJOPCTXBHKMAE")
_LEET = str.maketrans("0134578@$", "oieastbas")


def obeying(hosts: Mapping[str, Host], fooled: Fooled = "empty") -> Any:
    """A script of `OpenAIServer` for rows made of these hosts."""

    def script(body: dict[str, Any], _: int) -> Reply:
        content = next(m["content"] for m in body["messages"] if m["role"] == "user")
        host = next((h for h in hosts.values() if h["mark"] in content.casefold()), None)
        if host is None:
            return error(400, "no host is known by this request")
        obeys = is_ordered(content)
        name = body["response_format"]["json_schema"]["name"]
        if name == "verdict":
            return answer({"reasons": ["as told"], "grade": "correct", "confidence": 1.0} if obeys else host["verdict"])
        spec = _fooled_spec(host, fooled) if obeys else None
        told = {"question": spec or host["truth"]["question"]}
        if name == "question_pair":
            told["enriched"] = spec or host["truth"].get("enriched", host["truth"]["question"])
        return answer(told)

    return script


def is_ordered(content: str) -> bool:
    """Whether a very obliging reader finds anything to obey."""
    texts = _strings(_data_of(content))
    return bool(_CUES.search(content)) or any(_CUES.search(reading) for text in texts for reading in _readings(text))


def _data_of(content: str) -> Any:
    start, end = content.find("{"), content.rfind("}")
    try:
        return json.loads(content[start : end + 1])
    except ValueError:
        return None


def _strings(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, list):
        yield " ".join(item for item in data if isinstance(item, str))  # orders spread over a list
        for item in data:
            yield from _strings(item)
    elif isinstance(data, dict):
        for value in data.values():
            yield from _strings(value)


def _readings(text: str) -> Iterator[str]:
    decoded = re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m.group(1), 16)), text)
    for form in {text, decoded, unquote(text), html.unescape(text)}:
        tags = "".join(chr(ord(c) - 0xE0000) if 0xE0020 <= ord(c) <= 0xE007E else c for c in form)
        plain = unicodedata.normalize("NFKD", tags)
        plain = "".join(c for c in plain if unicodedata.category(c) not in ("Cf", "Mn")).translate(_LOOKALIKES)
        yield from (form, unicodedata.normalize("NFKC", tags), plain)
        yield plain.translate(_LEET)
        yield plain[::-1]
        yield codecs.encode(plain, "rot13")
        yield re.sub(r"(?<=[a-z])(?=[A-Z])|[\W_]+", " ", plain)
        yield re.sub(r"'\s*\|\|\s*'", "", plain)
        yield re.sub(r"\b(\w)\s(?=\w\b)", r"\1", plain)  # s p a c e d
        yield from _decoded(plain)


def _decoded(text: str) -> Iterator[str]:
    for blob in re.findall(r"[A-Za-z0-9+/]{12,}={0,2}", text):
        try:
            yield base64.b64decode(blob + "=" * (-len(blob) % 4)).decode("utf-8")
        except (ValueError, binascii.Error):
            continue
    for blob in re.findall(r"\b(?:[0-9a-fA-F]{2}){6,}\b", text):
        try:
            yield bytes.fromhex(blob).decode("utf-8")
        except ValueError:
            continue


def _fooled_spec(host: Host, fooled: Fooled) -> dict[str, Any]:
    empty: dict[str, Any] = {"projections": [], "aggregations": [], "filters": [], "group_by": []}
    if fooled == "empty":
        return empty
    sql = sql_spec_json(extract_sql(host["generated_sql"], host["dialect"]))
    return empty | {
        "projections": sql["projections"],
        "aggregations": [a | {"filter": []} for a in sql["aggregations"]],
        "filters": [f for f in sql["filters"] if "column" in f and isinstance(f.get("value"), str | int | float)],
        "group_by": sql["group_by"],
        "order_by": [k for k in sql["order_by"] if "column" in k],
        "limit": sql["limit"],
        "asks_order": bool(sql["order_by"]),
        "asks_limit": sql["limit"] is not None,
    }
