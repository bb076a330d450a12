"""Text that addresses the evaluator: found behind its disguises, and told apart from the question that it stands in.

A heuristic by nature: what it finds is taken out and reported, and caps the verdict (`stef_core.judge.cap`); what it overlooks
meets a model whose data is delimited (`stef_core.llm.data_message`). The phrases are those of `stef_core.injection_words`.
"""

from __future__ import annotations

import base64
import binascii
import bisect
import html
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

from stef_core.injection_words import (
    ABOUT,
    ASKS,
    BESIDE,
    COVERT,
    ELSEWHERE,
    ENGLISH,
    GLUED,
    HINTS,
    LATIN,
    LOOKALIKES,
    NAMES,
    SAID,
    SCRIPTS,
    SINGLE,
    TRACES,
)
from stef_core.quick_look import QuickLook

READ_MAX = (8_000, 3_000)  # characters looked at, from the start and from the end; nothing between them is sent
REACH = 10  # words that one phrase may span

# nobody sees them: controls, tags, bidirectional marks, joiners, fillers
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_TAGS = re.compile("[\U000e0020-\U000e007e]")
_FLAG = re.compile("\U0001f3f4[\U000e0020-\U000e007f]+")  # flags of regions are made of tags
# of Latin, Greek and Cyrillic letters
_MARKS = re.compile("[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]")
_SPACED = re.compile(r"(?<!\w)\w(?:[\W_]{1,3}\w(?!\w)){5,}")
_INNER = re.compile(r"(?<=\w)[-.*~|·'`^=/\\+\"](?=\w)")
_LEET = str.maketrans("0134578@$!|", "oieastbasil")
_LEET_WORD = re.compile(r"[a-z][0134578@$!|]+[a-z]|\b[0134578@$]+[a-z]{2}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")
_HEX = re.compile(r"\b(?:[0-9a-fA-F]{2}[\s:]?){10,}")
_BITS = re.compile(r"\b(?:[01]{8}\s?){5,}")
_ESCAPED = re.compile(r"\\u\{([0-9a-fA-F]{1,6})\}|\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})")
_CODE = re.compile(r"%[0-9a-fA-F]{2}.*?%[0-9a-fA-F]{2}|&#?\w{1,8};|\\[ux]")
# numbers of a verdict, words that begin a sentence or another text
_OWN = re.compile(r"(?<![\w.])(?:0?\.\d+|[01](?:\.0+)?|10{1,2}|\d+/\d+)%?(?!\w|\.\d)|(?:^|[.!?:;\"'({\[>*|-]\s*)[^\W\d]+")
_CONTENT = re.compile(r"\b[A-Z\u0400-\u042f][^\W\d_]+|\b\d+(?:[.,]\d+)*|(?<=[\"'])[^\"'\s]{2,}(?=[\"'])")
_HUMP = re.compile(r"[a-z][A-Z]")  # faster to find than the seam between the two
_WORDS_OF_NAME = re.compile(r"(?<=[a-z])(?=[A-Z])|_+")
_CAPITAL = re.compile(r"(?<=[\w,] )(?=[A-Z][a-z]*(?: |:))")
_OPENS = re.compile(r"\s*[#<({\[|=`-]")
_SENTENCE = re.compile(r"(?<=[.!?;])(?=\s)|(?<=[。！？；])|\n+")
_CLAUSE = re.compile(
    r"(?<=[,:;.!?)\]}])(?=[\s\"'{\[(])|(?=[(\[{])|(?<=[)\]}])|\s[–—-]+\s|(?<=[、，：。])|(?=[\"'][,}\]])"
    r"|(?<=\s)(?=[A-Z\u0400-\u042f]|[#=`-]{2}|<[|/\w])"
)

_ANY_HINT = QuickLook((HINTS, ELSEWHERE, ABOUT))
_HINTS, _ENGLISH = QuickLook((HINTS,)), QuickLook(ENGLISH)
_ELSEWHERE, _LATIN = QuickLook((ELSEWHERE,)), QuickLook(LATIN)
_SAID, _BESIDE = QuickLook(SAID), QuickLook(BESIDE)
_NAMES, _TRACES = QuickLook(NAMES), QuickLook(TRACES)
_COVERT, _GLUED = QuickLook((COVERT,)), QuickLook((GLUED,))
_BETWEEN = dict.fromkeys(n for n in range(128) if not chr(n).isalnum())  # ASCII that is no letter and no digit
_CODED = QuickLook((_SPACED, _BASE64, _HEX, _BITS))  # what a text can be hidden in


@dataclass(frozen=True, slots=True)
class Separated:
    """A text in two parts.

    `sure` is False where what was cut stood in the middle, or left nothing: then nobody can say what the text asks for.
    """

    text: str  # what may be read and sent
    cut: str = ""  # what addresses the evaluator, on one line
    sure: bool = True


def separate(text: str) -> Separated:
    """Tell what a text asks of the database from what it asks of the evaluator.

    Args:
        text: A question or its reformulation, in any language.

    Returns:
        The text without characters that nobody sees and, where something addresses the evaluator, without that.
    """
    if len(text) <= sum(READ_MAX):
        return _separated(text)
    found = _separated.__wrapped__(_looked(text))  # a megabyte is not worth its place in a cache
    return found if found.cut else Separated(visible(text).strip())


@lru_cache(maxsize=32_768)  # a day is read as a whole before it is examined: its questions come twice
def _separated(text: str) -> Separated:
    seen = visible(text).strip()
    if not suspected(text):
        return Separated(seen)
    if not suspected(seen):
        return Separated(seen, _line(text))
    return _cut(seen, _SENTENCE) or _cut(seen, _CLAUSE) or _cut_words(seen) or Separated("", _line(seen), sure=False)


def suspected(text: str) -> bool:
    """Whether a text, or one of its disguised readings, addresses the evaluator."""
    text = _looked(text)
    return _covert(text) or any(_claims(reading) for reading in _readings(text))


def suspected_name(text: str) -> bool:
    """The same for a literal or a name of SQL, where a few words that no value or column has are enough."""
    return _suspected_name(_looked(text))


@lru_cache(maxsize=8_192)
def _suspected_name(text: str) -> bool:
    return suspected(text) or any(_NAMES(reading) for reading in _readings(text))


def visible(text: str) -> str:
    """The text without characters that nobody sees; joiners stay between letters of scripts that need them."""
    if text.isascii() and text.isprintable():
        return text
    return _HIDDEN.sub(lambda m: m.group() if _joins(m) else "", text)


def _looked(text: str) -> str:
    head, tail = READ_MAX
    return text if len(text) <= head + tail else f"{text[:head]}\n{text[-tail:]}"


def _joins(match: re.Match[str]) -> bool:
    text, at = match.string, match.start()
    around = text[at - 1 : at] + text[at + 1 : at + 2]
    return match.group() in "\u200c\u200d" and len(around) == 2 and all(c > "\u0590" for c in around)


# --- readings ---------------------------------------------------------------------------------------------------------


def _claims(reading: str) -> bool:
    # cheap looks first: most questions are held against no pattern at all
    if _ANY_HINT.rules_out(reading):
        return False
    if _HINTS(reading) and _ENGLISH(reading):
        return True
    if _ELSEWHERE(reading) and _LATIN(reading):
        return True
    if not reading.isascii() and any(pattern.search(reading) for pattern in SCRIPTS):
        return True
    if not ABOUT.search(reading) or (_SAID.rules_out(reading) and _BESIDE.rules_out(reading)):
        return False
    sentences = [s for s in _SENTENCE.split(reading) if s.strip()]
    said = [s for s in sentences if not s.rstrip().endswith("?") and not ASKS.match(s)]
    return any(_SAID(sentence) or (len(said) < len(sentences) and _BESIDE(sentence)) for sentence in said)


def _readings(text: str) -> Iterator[str]:
    """The ways a text can be read: as it looks, by what its letters look like, and decoded."""
    seen: set[str] = set()
    for form in (text, *_decodings(text)):
        for reading in _spellings(form):
            if reading not in seen:
                seen.add(reading)
                yield reading


def _spellings(text: str) -> Iterator[str]:
    plain = _plain(text)
    skeleton = _skeleton(plain)
    yield plain
    yield skeleton
    if _LEET_WORD.search(skeleton):
        yield skeleton.translate(_LEET)
    if _INNER.search(skeleton):
        yield _INNER.sub("", skeleton)
        yield _INNER.sub(" ", skeleton)
    if "_" in text or _HUMP.search(text):
        yield _skeleton(_plain(_WORDS_OF_NAME.sub(" ", text)))
    if _CAPITAL.search(text):  # a sentence that was put into another one
        yield _skeleton(_plain(_CAPITAL.sub("\n", text)))


def _plain(text: str) -> str:
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", _HIDDEN.sub("", _untagged(text))).casefold()


def _skeleton(plain: str) -> str:
    """Letters as the Latin ones that they look like, without accents."""
    return plain if plain.isascii() else _MARKS.sub("", unicodedata.normalize("NFKD", plain)).translate(LOOKALIKES)


def _untagged(text: str) -> str:
    return _TAGS.sub(lambda m: chr(ord(m.group()) - 0xE0000), text)


def _decodings(text: str) -> Iterator[str]:
    if _CODE.search(text):
        for decode in (unquote, html.unescape, _unescaped):
            decoded = decode(text)
            if decoded != text:
                yield decoded
    yield from _blobs(text)


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda m: chr(min(int(m[1] or m[2] or m[3], 16), 0x10FFFF)), text)


def _blobs(text: str) -> Iterator[str]:
    """Readable text inside base64, hexadecimal and binary numbers."""
    if _CODED.rules_out(text):
        return
    decoders: tuple[tuple[re.Pattern[str], Callable[[str], bytes]], ...] = ((_BASE64, _base64), (_HEX, _hex), (_BITS, _bits))
    for pattern, decode in decoders:
        for match in pattern.finditer(text):
            try:
                decoded = decode(match.group()).decode("utf-8")
            except (ValueError, binascii.Error):
                continue
            if decoded.isprintable() and sum(c.isalpha() or c == " " for c in decoded) * 4 > 3 * len(decoded):
                yield decoded


def _base64(blob: str) -> bytes:
    bare = blob.rstrip("=").translate(str.maketrans("-_", "+/"))
    return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)


def _hex(blob: str) -> bytes:
    return bytes.fromhex(re.sub(r"[\s:]", "", blob))


def _bits(blob: str) -> bytes:
    bare = re.sub(r"\s", "", blob)
    return bytes(int(bare[n : n + 8], 2) for n in range(0, len(bare), 8))


def _letters(blob: str) -> bool:
    return _bits(blob).decode("latin-1").isalpha()


def _covert(text: str) -> bool:
    """What nobody writes by chance: words backwards, rotated by 13 letters or spaced out, text inside a code, unseen text."""
    low = text.lower()
    if _COVERT(low) or _GLUED(low.translate(_BETWEEN) if low.isascii() else re.sub(r"[\W_]+", "", low)):
        return True
    if _CODED.rules_out(text):
        return False
    if any(SINGLE.search(re.sub(r"[\W_]", "", _skeleton(_plain(m.group())))) for m in _SPACED.finditer(text)):
        return True
    if not text.isascii() and (_TAGS.search(_FLAG.sub("", text)) or COVERT.search(_skeleton(_plain(text)))):
        return True
    return any(blob.count(" ") >= 2 for blob in _blobs(text)) or any(_letters(m.group()) for m in _BITS.finditer(text))


# --- parts ------------------------------------------------------------------------------------------------------------


def _cut(text: str, border: re.Pattern[str]) -> Separated | None:
    """Take out the parts that address the evaluator, and neighbours with a trace of it; None where nothing would be left."""
    parts = _parts(text, border)
    flags = [suspected(part) for part in parts]
    if True not in flags:
        return None
    first, last = flags.index(True), len(flags) - 1 - flags[::-1].index(True)
    while first > 1 and _traced(parts[first - 1]):
        first -= 1
    spare = 0 if first else 1  # behind an opening attack the last part is the question
    while len(parts) - last - 1 > spare and _traced(parts[last + 1]):
        last += 1
    before, after = "".join(parts[:first]).strip(), "".join(parts[last + 1 :]).strip()
    kept = f"{before} {after}".strip()
    if not any(c.isalnum() for c in kept) or suspected(kept):
        return None
    cut = _line("".join(parts[first : last + 1]))
    if border is _SENTENCE:
        # what stands behind an opening attack is the question only where it asks
        sure = not after or (
            not before and len(parts) - last == 2 and (after[-1] in "?？" or bool(ASKS.match(after.casefold())))
        )
    else:
        # letters without capitals do not tell a name from a word, and a fragment may belong to the attack
        sure = not after and cut.isascii() and not _traced(kept)
    return Separated(kept, cut, sure and not _asks(cut, whole=border is _SENTENCE))


def _cut_words(text: str) -> Separated | None:
    """The words before the first with a share in what addresses the evaluator; nobody knows whether they are the question."""
    words = text.split()
    at = bisect.bisect_left(range(len(words)), True, key=lambda n: suspected(" ".join(words[: n + 1])))
    first = next((n for n in range(max(0, at - REACH), at) if _traced(words[n])), at)
    return Separated(" ".join(words[:first]), _line(" ".join(words[first:])), sure=False) if first else None


def _asks(cut: str, *, whole: bool) -> bool:
    """Whether what was cut may hold a condition of the question too: a name, a quoted text or a number that is not its own.

    Args:
        cut: What addresses the evaluator.
        whole: It begins with a sentence, so that its first letter says nothing.
    """
    first = cut.split(maxsplit=1)[0] if cut else ""
    named = not whole and first[:1].isupper() and not first.isupper() and not _traced(first)
    return named or any(not _traced(word) and not word.isupper() for word in _CONTENT.findall(_OWN.sub(" ", cut)))


def _traced(part: str) -> bool:
    """Whether a part of a text that addresses the evaluator has a share in it; less is asked than of a whole text."""
    return suspected(part) or any(_TRACES(reading) for reading in _readings(part))


def _parts(text: str, border: re.Pattern[str]) -> list[str]:
    """The text in parts; one without a letter belongs to the one before it, or opens the next."""
    borders = [0, *(m.end() for m in border.finditer(text)), len(text)]
    out: list[str] = []
    opening = ""
    for start, end in itertools.pairwise(borders):
        part = opening + text[start:end]
        opening = ""
        if any(c.isalnum() for c in part):
            out.append(part)
        elif _OPENS.match(part) or not out:
            opening = part
        else:
            out[-1] += part
    return [*out, opening] if opening else out


def _line(text: str) -> str:
    return " ".join(visible(_untagged(text)).split())
