"""The text of a question before it is read: cleaned of what addresses the evaluator, its language, its parts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from stef_core.injection import separate

INJECTION = "injection_suspected"  # what a note on text that addresses the evaluator begins with
_EVIDENCE = re.compile(
    r"(?:^|(?<=[\s.?!;]))(?:evidence|hints?|external\s+knowledge|context|notes?|definitions?)\s*:\s*", re.IGNORECASE
)
_PARENTHESIS = re.compile(r"\(([^()]{1,300})\)")
_SCRIPTS = (
    ("ja", re.compile("[\u3040-\u30ff]")),
    ("zh", re.compile("[\u4e00-\u9fff]")),
    ("ko", re.compile("[\uac00-\ud7af]")),
    ("ru", re.compile("[\u0400-\u04ff]")),
    ("ar", re.compile("[\u0600-\u06ff]")),
    ("he", re.compile("[\u0590-\u05ff]")),
    ("el", re.compile("[\u0370-\u03ff]")),
    ("hi", re.compile("[\u0900-\u097f]")),
    ("th", re.compile("[\u0e00-\u0e7f]")),
)
_LATIN_WORD = re.compile(r"[^\W\d_]+")
_FUNCTION_WORDS: dict[str, frozenset[str]] = {
    code: frozenset(listed.split())
    for code, listed in {
        "en": """the of in to for and or is are was were what which who how many much list show find give return with that
            from by on at all each per have has had does do did not than more less most there their whose when where name names
            count number total average any top per every please state""",
        "nl": """de het een van zijn hoeveel welke welk wat wie geef toon met voor niet hebben heeft werd werden per aantal
            totale gemiddelde elke alle boven onder meer dan nog nooit iets uit op bij naar we hadden zoek laat zien
            gesorteerd aflopend oplopend""",
        "de": """der die das ein eine von und ist sind wie viele welche welcher welches was wer zeige mit für nicht haben hat
            wurde wurden pro anzahl alle jede jeder über unter mehr als im den dem des zeig gib nach bei aus
            sortiert absteigend aufsteigend""",
        "fr": """le la les un une des du de et est sont combien quel quelle quels quelles qui que liste avec pour pas ont été
            par nombre tous toutes chaque plus moins dans au aux où donne affiche montre sur trié triés triées
            croissant décroissant""",
        "es": """el la los las un una de del y es son cuántos cuántas cuántos cual cuál cuáles qué que quién muestra lista con
            para no han fue por número todos cada más menos en al ni sean hay dame pedidos según cuanto cuánto
            ordenado ordenada ordenados ordenadas descendente ascendente""",
        "it": """il lo la gli le un una di del della e è sono quanti quante quale quali che chi mostra elenca con per non hanno
            numero tutti ogni più meno nel nella dei degli delle""",
        "pt": """o os as um uma de do da dos das e é são quantos quantas qual quais que quem mostre liste com para não foram
            por número todos cada mais menos em no na nos nas""",
    }.items()
}
_LANGUAGES: dict[str, list[str]] = {}  # of each function word
for _code, _listed in _FUNCTION_WORDS.items():
    for _word in _listed:
        _LANGUAGES.setdefault(_word, []).append(_code)


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The readable part of a text, and notes on what was cut off."""

    text: str
    notes: tuple[str, ...] = ()


def clean(text: str) -> Cleaned:
    """Strip what nobody sees and whatever addresses the evaluator rather than the database."""
    separated = separate(text)
    notes = (f"{INJECTION}: {separated.cut[:160]}",) if separated.cut else ()
    return Cleaned(separated.text, notes)


@lru_cache(maxsize=8_192)
def language_of(text: str) -> str:
    """ISO 639-1 code of a text, by script or by its function words; English where nothing speaks against it."""
    if not text.isascii():
        letters = sum(c.isalpha() for c in text) or 1
        for code, script in _SCRIPTS:
            if 3 * len(script.findall(text)) > letters:
                return code
    hits = dict.fromkeys(_FUNCTION_WORDS, 0)
    for word in _LATIN_WORD.findall(text):
        for code in _LANGUAGES.get(word.casefold(), ()):
            hits[code] += 1
    best = max(hits, key=lambda code: (hits[code], code == "en"))
    return best if hits[best] >= 2 and hits[best] > hits["en"] else "en"


def split_evidence(text: str, question: str | None) -> tuple[str, str]:
    """The reformulated question proper, and the evidence that follows it.

    Args:
        text: The enriched question.
        question: The user's question, which an enriched text often repeats.
    """
    marker = _EVIDENCE.search(text)
    if marker is not None:
        return text[: marker.start()].strip(), text[marker.end() :].strip()
    if question and text.startswith(question) and len(text) > len(question):
        rest = text[len(question) :].strip(" \n;.")
        if rest:
            return question, rest
    return text, ""


def parentheses(text: str) -> list[str]:
    """The contents of round brackets, in order."""
    return [" ".join(m.group(1).split()) for m in _PARENTHESIS.finditer(text)] if "(" in text else []


def without_parentheses(text: str) -> str:
    """The text with every bracketed part taken out."""
    return _PARENTHESIS.sub(" ", text) if "(" in text else text
