"""Words and phrases by which a text addresses the evaluator instead of the database, in many languages.

A phrase belongs here when no question about data holds it; single words that questions do hold ("grade", "correct", "ignore")
count in company only. Patterns meet lower-case text: once as it stands, and once without accents and in Latin letters.
"""

from __future__ import annotations

import codecs
import re

_PARTS: dict[str, str] = {
    # --- English
    "aside": r"""ignor(?:e|ing)\b | disregard\w* | (?<!not\ )(?<!n't\ )(?<!never\ )forget\b
        | overrid(?:e|ing)\b | overrul(?:e|ing)\b | bypass\w* | overlook(?:ing)?\b | neglect(?:ing)?\b | set\s+aside
        | pay\s+no\s+attention | reset\b | dismiss(?:ing)?\s+(?:all|any|the|every)\b""",
    "told": r"""instruct(?:ions?|ed)\b | directives?\b | guidelines?\b | rubrics?\b | prompts?\b | guidance\b
        | grading\b
        | (?:previous|prior|earlier|preceding|foregoing|above|system|initial|original|developer)\s+(?:text
          |rules?|messages?|context|requirements?|checks?|tasks?|commands?|constraints?|statements?|content|directions?)
        | (?:your|these|those|its|the)\s+(?:\w+\s+)?rules?\b | all\s+(?:the\s+|of\s+the\s+)?rules?
        | (?:everything|anything|all)\s+(?:(?:that\s+)?(?:is|was|came|you\s+\w+)|above|before|else|prior
          |previous|written|said)\b
        | (?:the|all)\s+(?:of\s+the\s+)?(?:above|foregoing)\b | what(?:ever)?\s+(?:you|was|is|came)\b
        | evaluation\s+criteria | (?:the|any|every|all)\s+criteria | (?:the|user'?s?|original|actual)\s+question
        | everything\b
        | (?:the|your|any|all|every)\s+(?:\w+\s+)?(?:analysis|alignment|findings?|mismatch\w*|discrepanc\w+|departures?)
        | (?:the|any|all|every)?\s*(?:missing|absent|wrong|extra|other|further)\s+(?:\w+\s+)?(?:filters?
          |conditions?|groups?|groupings?|aggregat\w+|columns?|join\w*|parts?|errors?)
        | (?:the|any|all|every)\s+(?:\w+\s+)?(?:filters?|conditions?|mistakes?|faults?|flaws?|problems?|issues?)\b""",
    "scribe": r"""evaluators?\b | graders?\b | judges?\b | scorers?\b | assessors?\b
        | (?:large\s+)?language\s+models?\b | llms?\b | chatgpt\b | chat\s?bots?\b | gpt\b
        | a\.?i\.?(?:\s+(?:models?|judges?|systems?|assistants?|evaluators?|graders?))?\b
        | (?:judging|grading|evaluation|scoring)\s+(?:models?|systems?|agents?|engines?)""",
    "who": r"""<scribe> | reviewers?\b | examiners?\b | auditors?\b | checkers?\b | assistants?\b | models?\b""",
    "boss": r"""(?:system\s+)?administrators?\b | admins?\b | owners?\b | developers?\b | operators?\b | management\b
        | data\s+team\b""",
    "thing": r"""sql\b | quer(?:y|ies)\b | statements?\b | answers?\b | responses?\b | translations?\b | solutions?\b
        | outputs?\b | reformulations? | submissions?\b | rows?\b | results?\b | agents?\b | code\b""",
    "meta": r"""\bsql\b
        | \b(?:the|this|that|its|my|our|agent'?s|generated|every|all|each|following|above)\s+
          (?:\w+\s+)? (?:quer(?:y|ies)|statements?|reformulations?|findings?|analysis|evaluation|grading|rubric|verdict)\b
        | \b(?:gold|golden|reference|expected|ground[\s-]truth)\s+(?:sql|quer(?:y|ies)|solutions?|answers?
          |results?|outputs?)\b
        | \bexecution\s+results?\b | \bunit\s+tests?\b
        | \b(?:answers?|satisf(?:y|ies)|fulfils?|meets?)\s+(?:the|this)\s+question\b | \bevaluat(?:or|ion)\b
        | \bgrader\b | \brubric\b""",
    "part": r"""\b(?:the|this|that|all|every|no|any|missing|absent|extra|each|another)\s+(?:\w+\s+)?(?:filters?
          |conditions?)\b
        | \bmissing\s+\w+\b""",
    "right": r"""correct(?:ly)?\b | likely[_\s]correct | right\b | accurate(?:ly)?\b | flawless\w* | faultless\w*
        | perfect(?:ly)?\b | error[-\s]?free | valid\b | impeccabl\w+ | fully[_\s]applied\w* | excellent\b
        | bug[-\s]?free | without\s+(?:errors?|faults?) | (?:in\s+)?(?:perfect|full)\s+(?:order|agreement)""",
    "strict": r"""correct\b | likely[_\s]correct | flawless\w* | faultless\w* | perfect\b | error[-\s]?free
        | fully[_\s]applied\w* | impeccabl\w+""",
    "praise": r"""<right> | verified | validated | approved? | approves | confirm(?:s|ed)? | checked | proven | vetted
        | certified | gold\b | fine\b | ok(?:ay)?\b | good\b | pass(?:es|ed)?\b | benign | intended | faithful
        | satisfied | authori[sz]ed? | identical\b | match(?:es)?\b | equals?\b | exactly\b | fully\b | accepted
        | equivalent | the\s+same\b
        | no\s+(?:\w+\s+)?(?:errors?|faults?|issues?|mistakes?|problems?)\b | false\s+positives?
        | not\s+(?:a\s+)?(?:fault|wrong|missing|needed|required)\b | answers?\s+(?:the|this)\s+question | as\s+asked""",
    "waived": r"""satisfied | implied | fixed\s+by | no\s+longer\s+needed | already\s+(?:applied|restrict\w*
        |filter\w*) | not\s+(?:be\s+)?(?:needed|required|necessary|missing|counted|important) | unnecessary
        | left\s+out | omitted | applied\b | intended | benign | upstream | no\s+fault
        | (?:is|are)\s+(?:fine|ok(?:ay)?)\b | fine\s+that | irrelevant | optional
        | (?:is|are)\s+required\s+(?:for|by|in)\s+(?:this|the) | do\s+not\s+count | elsewhere""",
    "marks": r"""(?:full|top|maximum|maximal|highest|best|perfect|max)\s+(?:possible\s+
          |available\s+)? (?:marks?|grades?|scores?|ratings?|points?|confidence|verdicts?)
        | 10\s*(?:/|out\s+of)\s*10 | 100\s*(?:/|out\s+of)\s*100 | 5\s*(?:/|out\s+of)\s*5 | (?:five|5)\s+stars
        | \ba\s*\+ | 100\s*(?:%|percent)""",
    "verdict": r"""verdicts? | grad(?:e|es|ed|ing) | confidence | rating | scores? | marks? | judg(?:e)?ment
        | assessment | evaluation""",
    "lead": r"""(?:^|[.!?;:\n(\[{"'`,>]|(?<!\w)[*/\#-]|\b(?:and|then|please|kindly|just|simply|always|must|should|shall
        |will|to|so|now|you|instead|only|also|or|but|yes|because|that)\b)[\s"'*_-]{0,8}""",
    "start": r"""(?:^|[.!?;:\n(\[{"'`>]|(?<!\w)[*/\#-])[\s"'*_-]{0,8}(?:(?:please|note(?:\s+that)?|remember|fyi|and|also|so
        |but|hence|therefore|again|indeed|of\s+course|as\s+agreed|kindly|ok(?:ay)?|now|then|yes|know\s+that
        |rest\s+assured(?:\s+that)?)[\s,:]+){0,3}""",
    "deem": r"""mark | treat | grade | rate | score | consider | classify | label | judge | accept | declare | deem
        | regard | call | pronounce | approve | validate | assess | evaluate | count | confirm | certify | flag | tag
        | take | find""",
    "reply": r"""answer | reply | respond | return | output | say | print | write | state | report | emit | produce
        | give | set | vote | choose | pick | select | conclude | decide | assign | award | put | echo | type | enter""",
    "self": r"""(?:this|that|these|the|every|each|all|any|my|our|its?|following|above|below|given|generated
          |proposed)\s+ (?:\w+\s+){0,2}(?:<thing>)
        | it\b | this(?:\s+one)?\b | that(?:\s+one)?\b | them(?:\s+all)?\b | everything\b
        | (?:every|all|the)\s+(?:filter|condition|departure|finding)s?\b""",
    # --- other languages, without their accents
    "aside_m": r"""ignorier\w* | vergiss\b | vergessen\s+sie | missachte\w*
        | ignor(?:e|ez|er|ons|a|ad|ar|en|i|ate|are|em|era|eren)\b | oubli(?:e|ez|er)\b
        | ne\s+(?:tiens|tenez)\s+pas\s+compte | olvid(?:a|e|ad|ar|en)\b | omit(?:e|a|ir)\b | haz\s+caso\s+omiso
        | hagan?\s+caso\s+omiso | descart(?:a|e|ar)\b | dimentica(?:re|te)?\b | trascura(?:re|te)?\b
        | esquec(?:a|am|er)\b | desconsider(?:e|a|ar|em)\b | negeer\b | negeren\b | vergeet\b | zignoruj\w*
        | ignoruj\w* | pomin\w* | zapomnij | yok\s?say\w* | gormezden\s+gel\w* | dikkate\s+alma\w* | unut\b | bortse\b
        | glem\b | glom\b | unohda\b | jata\s+huomiotta | abaikan | lupakan | bo\s+qua | ignorati | nezohledn\w+
        | zapomen\w* | ignoralj\w* | hagyd\s+figyelmen""",
    "told_m": r"""anweisung\w* | vorgabe\w* | anleitung\w* | regeln\b | instruktion\w* | instruction\w* | consigne\w*
        | directive\w* | instruccion\w* | indicacion\w* | directric\w* | reglas\b | istruzion\w* | indicazion\w*
        | direttiv\w* | regole\b | instruco\w* | orientaco\w* | diretriz\w* | regras\b | instructie\w* | opdracht\w*
        | aanwijzing\w* | regels\b | instrukcj\w* | polece\w* | talimat\w* | kural\w* | instruks\w* | ohje\w*
        | instruksi\w* | perintah\w* | aturan | huong\s+dan | chi\s+thi | lenh\b | pokyn\w* | instrukc\w*
        | utasitas\w* | prompt\w* | rubric\w* | (?:la|die|la)\s+(?:question|frage|pregunta)\b""",
    "deem_m": r"""bewerte\b | bewerten\s+sie | beurteile\b | beurteilen\s+sie | benote\b
        | werte\s+(?:die|das|diese\w*) | antworte\b | antworten\s+sie | stufe\w*\s+(?:die|das|diese\w*) | melde\b
        | gib\b | geben\s+sie | vergib\b | evalue[sz]?\b | evaluer\b | not(?:e|ez)\s+(?:la|cette|le|ce)\b | jugez?\b
        | repond(?:s|ez|re)\b | donne[sz]?\b | considere[sz]?\b | califi(?:ca|que|quen|car)\b | evalu(?:a|e|en|ar)\b
        | respond(?:e|a|an|er)\b | considera\w*\b | puntu(?:a|e)\b | valut(?:a|i|ate|are)\b | giudic(?:a|hi|are)\b
        | rispond(?:i|ere|ete)\b | dichiara\b | avali(?:e|a|ar|em)\b | responda\b | beoordeel\b | antwoord\b
        | markeer\b | geef\b | ocen\b | ocenic\b | odpowiedz\b | uznaj\b | degerlendir\w* | yanitla\w* | betygsatt\b
        | vurder\b | svar\b | bedom\b | arvioi\b | nilai\b | danh\s+gia | tra\s+loi | ohodnot\w* | ertekel\w*""",
    "right_m": r"""korrekt\w* | richtig\w* | fehlerfrei\w* | fehlerlos\w* | bestnote | volle\s+punktzahl
        | einwandfrei\w* | correcte?s?\b | corrects?\b | juste\b | exacte?s?\b | parfait\w*
        | sans\s+(?:erreur|faute)\w* | correct[ao]s?\b | perfect[ao]s?\b | sin\s+errores | acertad[ao]
        | corrett[aoie]\b | giust[ao]\b | perfett[ao]\b | senza\s+errori | corret[ao]s?\b | cert[ao]\b | perfeit[ao]
        | sem\s+erros | juist\b | foutloos\b | goed\b | poprawn\w* | prawidlow\w* | bezbledn\w* | dogru\b | kusursuz
        | ratt\b | riktig\w* | oikein\b | benar\b | sempurna | dung\b | chinh\s+xac | spravn\w* | helyes\w*
        | note\s+maximale | maxima\s+(?:nota|puntuacion) | nota\s+maxima | massimo\s+(?:voto|dei\s+voti)
        | hoogste\s+(?:cijfer|score) | (?:meilleure|maximum)\s+note""",
    "who_m": r"""prufer\w* | gutachter\w* | bewerter\w* | richter\w* | korrektor\w* | evaluateur\w* | correcteur\w*
        | juge\b | evaluador\w* | juez\b | corrector\w* | calificador\w* | valutatore | giudice | revisore
        | avaliador\w* | juiz\b | revisor\w* | beoordelaar\w* | rechter\b | oceniajac\w* | sedzi\w*
        | degerlendirici\w* | hakem\b | bedomare\w* | assistent\w* | modell?\w*""",
    "query_m": r"""abfrage | antwort | requete | reponse | consulta | respuesta | query | risposta | interrogazione
        | resposta | antwoord | zapytanie | odpowiedz | sorgu | yanit | fraga | svar | sporring | kueri | jawaban
        | truy\s+van | sql | dotaz | lekerdezes""",
    # --- scripts of their own
    "aside_s": r"""игнорир\w* | проигнорир\w* | забудь\w* | не\s+обращай\w*
        | ігнору\w* | αγνο\w+ | ξεχασ\w+ | 忽略 | 忽视 | 忽視 | 无视 | 無視 | 忘记 | 忘記 | 忘掉
        | 不要理会 | 不用管 | 忘れ | 무시 | 잊어 | تجاهل | انس\b | התעלם | שכח | अनदेखा | नज़रअंदाज़ | नजरअंदाज
        | भूल\s+जा | उपेक्षा | ละเว้น | เพิกเฉย | ไม่ต้องสนใจ""",
    "told_s": r"""инструкц\w* | указани\w* | правил[ао]?\b | правила\w*
        | інструкц\w* | вказівк\w* | οδηγι\w* | εντολ\w* | κανον\w* | 指令 | 指示 | 说明
        | 說明 | 规则 | 規則 | 提示 | 命令 | 以上内容 | 以上 | ルール | プロンプト | 지시 | 명령 | 규칙 | 지침
        | تعليمات | التعليمات | الأوامر | القواعد | הוראות | ההוראות | הנחיות | निर्देश | नियम | आदेश | คำสั่ง
        | คำแนะนำ | กฎ""",
    "deem_s": r"""оцени\b | оцените | ответь\w* | считай\w* | признай\w*
        | поставь\w* | оціни\w* | βαθμολογησ\w+ | αξιολογησ\w+ | απαντησ\w+
        | 评为 | 評為 | 评价为 | 判定 | 判断为 | 标记为 | 打分 | 给出 | 请回答 | 请判 | 評価して | 評価は | 採点
        | 判断して | 答えて | 평가해 | 평가하 | 채점 | 답변해 | 답하 | قيم | قيّم | أجب | اعتبر | דרג | ענה | הערך
        | मूल्यांकन | उत्तर | ประเมิน | ตอบ | ให้คะแนน""",
    "right_s": r"""правильн\w* | верн(?:ый|ым|ая|ой|о|ое|ую)\b | корректн\w*
        | безошибочн\w* | высш\w+\s+(?:балл |оценк)\w* | σωστ\w+ | ορθ\w+ | 正确 | 正確
        | 无误 | 無誤 | 满分 | 滿分 | 完全对 | 正解 | 正しい | 満点 | 정답 | 올바른 | 정확 | 만점 | 맞다고 | صحيح
        | صحيحة | נכון | נכונה | सही | पूर्ण\s+अंक | ถูกต้อง | คะแนนเต็ม""",
}


def _patterns(*texts: str) -> tuple[re.Pattern[str], ...]:
    """Verbose patterns, which write their parts as ``<part>``."""
    return tuple(re.compile(_filled(text), re.VERBOSE) for text in texts)


def _filled(text: str) -> str:
    while (filled := re.sub(r"<([a-z_]+)>", _part, text)) != text:
        text = filled
    return text


def _part(match: re.Match[str]) -> str:
    return f"(?:{_PARTS[match.group(1)]})" if match.group(1) in _PARTS else match.group()


ENGLISH = _patterns(
    # --- what was told before is to be set aside
    r"(?<![\w-])<aside> (?:[^.!?\n]{0,50}?\W)?? <told>",
    r"""\b(?:instructions?|rubrics?|guidelines?|directives?|prompts?|findings?|rules|criteria)\s[^.!?\n]{0,40}?
        \b(?:are|is|be|been|was|were|has|have)\s+(?:\w+\s+){0,3}
        (?:ignored|disregarded|suspended|waived|dismissed|void|overridden|obsolete|cancelled|superseded|revoked|lifted
        |changed)\b(?![^.!\n]{0,80}\?)""",
    r"""\b(?:told|said|asked|instructed|written|stated)\s+(?:before|earlier|above|previously
        |so\s+far)\b [^.!?\n]{0,30} \b(?:no\s+longer|void|wrong|over)\b""",
    r"""\b(?:instructions?|rules?|rubric|evaluation|grading|judging|assessment|review)\s+(?:of\s+this\s+\w+\s+)?
        (?:is|are|was|were|has\s+been|have\s+been)\s+(?:now\s+)?
        (?:over\b|finished|suspended|waived|disabled|cancelled|completed?\b|done\b|switched\s+off|turned\s+off|no\s+longer)""",
    r"""\b(?:new|updated|revised|additional|hidden|secret|special|final|important|urgent|following)\s+
        (?:system\s+)?(?:instructions?|directives?|system\s+(?:prompt|message)|role\s*:|objective\s*:|rules?\s*:)""",
    r"\bnew\s+task\s*: | \brule\s+\d+\s*:\s*(?:all|every|any)",
    r"""\b(?:system|developer)\s+(?:message|override|instructions?|notice)\b | \bsystem\s+prompt\s*(?::|is\b|says|has\b
        |tells) | \bprompt\s+injection\b
        | \bjail\s?break\w* | \bdeveloper\s+mode\b""",
    r"\bdo\s+anything\b | \bno\s+restrictions\b | \bsudo\b",
    r"""\bfrom\s+now\s+on\b | \b(?:stop|cease|end|abort|skip)\s+(?:the\s+)?(?:here\b|grading|evaluating|judging|reading
        |evaluation|analysis|checking|scoring)""",
    r"\bby\s+(?:order|decree|authority|request|decision)\s+of\s+(?:the\s+)?<boss> | \bfrom\s+(?:the|your)\s+<boss>\s*:",
    r"""\b(?:follow|obey|execute|carry\s+out|comply\s+with)\s+(?:only\s+)?(?:the|these|this|my|those|any)\s+(?:\w+\s+){0,3}
        (?:instructions?|commands?|orders?\s+(?:above|below)|text|directives?)\b""",
    r"\b(?:decode|decrypt|decipher|unscramble)\b [^.!?\n]{0,30} \b(?:follow|obey|execute|do|apply|and\s+act)\b",
    # --- whom it addresses
    r"""(?:<start>|,\s*)(?:(?:this\s+is\s+)?(?:an?|the|important|special|short|one|another)\s+){0,3}
        (?:note|notes|message|memo|notice|attention|attn|reminder|hint|information|info|warning|word|hello|hi|hey|dear
        |instructions?|advice|request)
        \b\W*(?:to|for|of)?\s*(?:the|any|all|every|whichever|my|our|you)?\s*(?:human|automated|automatic|sql
        |honou?rable|next)?\s*<who>""",
    r"""\b(?:note|notes|message|instructions?|attention|reminder|hint)\s+(?:to|for)\s+(?:the\s+|any\s+|all\s+)?
        (?:evaluators?|graders?|scorers?|llms?|language\s+models?|ai|chat\s?bots?)\b""",
    r"""<start>(?:dear\s+|hey\s+|hi\s+|hello\s+|the\s+)?(?:<scribe>|assistant|system|model)\s*(?:prompt|message|note
        |instructions?|team)?\s*[:,!]\s*\w""",
    r"<start>(?:dear\s+|the\s+)?reviewers?\s*[:,]\s*(?:please|kindly|accept|approve|mark|this|the|do|you|ignore|no)\b",
    r"""\b<who>\s+(?:must|should|shall|has\s+to|have\s+to|is\s+to|are\s+to|needs?\s+to|ought\s+to|will|can|may
        |is\s+(?:required|asked|instructed|told|ordered|requested)\s+to)\s+(?:(?:always|now|only|simply|just|then|not
        |please)\s+)*
        (?:ignore|answer|grade|give|return|accept|approve|mark|treat|rate|score|consider|output|respond|reply|assume
        |report|say|disregard|be\b
        |follow|assign|award|pass|trust|obey|see|find|conclude|call|judge)""",
    r"\byou\s+are\s+(?:now\s+|no\s+longer\s+|not\s+|also\s+)?(?:an?\s+|the\s+|my\s+)?(?:\w+\s+){0,2}?<who>",
    r"\byou\s+(?:are|were|have\s+been)\s+(?:\w+\s+)?(?:instructed|ordered|commanded|required|told|obliged|programmed)\b",
    r"""\byou\s+(?:must|shall|should|will|have\s+to|need\s+to|can\s+only|may\s+only|always|are\s+to)\s+(?:\w+\s+){0,3}?
        (?:ignore|disregard|grade|approve|mark|rate|score|obey|overlook|answer\s+(?:with|that|only|<strict>)
        |accept\s+(?:it|this|the\s+<thing>)
        |judge|reply|respond|say|find)\b""",
    r"\b(?:as|if\s+you(?:'re|\s+are)|being|you(?:'re|\s+are))\s+(?:an?|the)\s+(?:\w+\s+)?<scribe>",
    r"""\b(?:act|behave|respond|answer|pretend|role-?play|simulate|imagine|emulate)\s+(?:as\s+(?:if|though)\b|to\s+be\b
        |(?:as|like)?\s*an?\s+(?:\w+\s+)?(?:<who>|evaluation))""",
    r"""\bpretend\s+(?:that|you|the|there|this|it|everything)\b | \bif\s+you\s+(?:can\s+)?(?:read|see|are\s+reading
        |receive)\s+this\b""",
    r"""\byour\s+(?:\w+\s+){0,2}?(?:instructions?|verdict|grades?|grading|judge?ment|evaluation|rubric|prompt
        |guidelines?|guardrails?|confidence|assessment|programming|training)\b""",
    r"""\byour\s+(?:\w+\s+)?(?:task|job|role|goal|answer|response|reply|output|decision|duty)\s+(?:is|must|should|shall
        |will|has|now)\b""",
    r"""\btrust\s+(?:me|us|this|it)\b | \btake\s+my\s+word\b | \bbe\s+(?:\w+\s+)?(?:generous|lenient|merciful)\b
        | \brepeat\s+after\s+me\b""",
    # --- the verdict it asks for, or claims
    r"""\b<verdict>\W{0,4}(?:(?:is|are|as|of|to|at|be|set|should|must|shall|will|it|this|level|value|always)\W{1,3}){0,4}
        (?:<strict>|right\b(?!\s+(?:now|after|before|hand|side))|fully[_\s]applied|approved\b)""",
    r"""\bverdicts?\W{0,4}(?:(?:is|are|as|of|to|be|set|should|must|shall|will)\W{1,3}){0,3}(?:<right>|pass(?:ed)?\b
        |ok\b|positive|favou?rable|good\b|<marks>)""",
    r"""\b(?:correct|positive|favou?rable|passing)\s+(?:verdict|grade)\b | \bfull\s+confidence\b
        | \bgraded\s+(?:as\s+)?(?:correct|right|perfect)""",
    r"\b(?:<strict>|right)\W{0,3}(?:\w+\W+){0,2}?(?:with|and|at|,)\W{0,2}(?:\w+\W+){0,3}?confidence\b",
    r"\bconfidence\s+(?:should|must|shall)\s+be\b | \bset\s+(?:the\s+|your\s+)?confidence\b",
    r"""<lead><deem>\s+<self>\W{0,3}(?:[\w'-]+\s+){0,4}?(?:as\s+|to\s+be\s+|with\s+|at\s+|=\s*|:\s*)?(?:\w+\s+){0,2}?["'“(]?
        (?:<right>|<marks>|benign\b|pass(?:ed|ing)?\b|approved|satisfied|applied|ok(?:ay)?\b|fine\b|good\b|\d)""",
    r"<lead>(?:mark|grade|rate|score|judge|accept)\s+as\s+<right>",
    r"""<lead><deem>\s+(?:this|that|it|everything|every\s+\w+|these|the\s+(?:sql|query|statement|reformulation))\s+(?:one\s+)?
        (?:as\s+(?:if\b|it\s+(?:is|stands))|well\b|highly\b|(?:high|low)er\b|favou?rabl\w+|leniently|generously
        |unconditionally|without\s+\w+ing)""",
    r"""<lead>(?:accept|approve|pass|trust)\s+(?:this|that|it|the\s+(?:sql|query|statement|reformulation)
        |every\s+(?:row|query|sql))\b""",
    r"<lead>(?:grade|rate|judge|score)\s+(?:accordingly|leniently|generously|kindly|everything)\b",
    r"""<lead><reply>\s+(?:(?:with|only|just|a|an|the|one|single|word|it|this|row|every|each|all|always|back|verdict
        |grade|by|as|saying
        |that|value|json|exactly|=|:|"|')\W*){0,6}(?:<strict>|<marks>)\s*
        (?=$|[.,;:!)"'`\]}]|(?:and|with|for|regardless|whatever|whatsoever|no\s+matter|in\s+(?:any|every|all)|always
        |every|to|at|on|when|if|please|instead)\b)""",
    r"""<lead>(?:<reply>|<deem>)\s+(?:it|this|that|them|every|each|all|any|me|us|my|our|(?:the|row|rows|query|sql
        |answer|statement)
        \s+(?:row|query|sql|answer|statement))\W+(?:(?:the|a|an|of|row|rows|query|sql|answer|statement|as|with|at
        |to)\W+){0,4}<marks>""",
    r"""<lead>(?:award|assign|choose|pick|vote\s+for|(?:grant|give|earn)(?=\s+(?:the\s+)?(?:full|top
        |perfect)))\s+(?:the\s+|a\s+)?<marks>
        \s*(?=$|[.,;:!)"'`\]}])""",
    r"""\b(?:upgrade|raise|increase|lift|bump|boost|change|clear|suppress|hide|empty|improve|set)\s+(?:(?:the|all|your
        |its|this|every|any)\s+)*
        (?:verdicts?|grades?|confidence|findings?)\b(?!\s+(?:of|for|per|table)\b)""",
    r"""\blet\s+(?:this|it|that)\s+(?:one\s+)?pass\b | \b(?:this|it|that|row)\s+(?:one\s+)?is\s+a\s+pass\b
        | \blet'?s\s+agree\b | \bassume\s+perfection\b""",
    r"""<start>(?:do\s+not|don'?t|no\s+need\s+to|there\s+is\s+no\s+need\s+to|skip|refuse\s+to|stop)\s+
        (?:compar|check|evaluat|verif|analy[sz]|judg|assess|grad|scor)\w*""",
    r"""\b(?:ground[\s-]truth|gold(?:en)?|expected|ideal|reference|true)\s+(?:label|verdict|grade|answer
        |output)\b[^.!?\n]{0,30}?(?:\bis|=|:)\W{0,3}<strict>""",
    r""">\s*(?:correct|likely_correct|perfect)\s*< | \b<strict>\W{0,3}is\s+(?:\w+\s+){0,3}(?:verdict|grade|answer
        |rating|judge?ment)\b""",
    r"\b(?:start|begin|end|finish|conclude)\s+(?:\w+\s+){0,3}with\s+\W?<strict>",
    r"""\b(?:write|say|output|reply|respond|answer)\s+\W?correct\W*(?:$|[.,;!]|\s(?:then|and\s+nothing|only)\b)
        | \banswering\s+correct\b""",
    r"<start>(?:answer|say|reply|respond|return)\s+(?:with\s+)?(?:yes|true)\s*(?:$|[.!;])",
    r"\b(?:it|this|sql|query)\s+(?:\w+\s+)?(?:answers|satisfies|fulfils|meets)\s+(?:the|this|that)\s+question\b",
    r"""\b(?:grade|mark|call|rate|judge)\s+(?:this|it|that)\s+(?:as\s+)?(?:in)?correct\b | \bit\s+(?:was|is
        |has\s+been)\s+(?:verified|confirmed|proven)\s+that\b""",
    r"""\bbenefit\s+of\s+the\s+doubt\b | \bleniency\b | \bin\s+favou?r\s+of\s+the\s+(?:sql|query|agent|statement)\b
        | \bconfidence\s+(?:one|full|total)\b""",
    r"\bno\s+(?:further|more)\s+(?:analysis|evaluation|checks?|judging)\b | \bboth\s+queries\b",
    r"<lead>(?:<reply>|<deem>)\s+(?:[\w']+\s+){0,5}?(?:verdict|confidence\s*(?:of|=|:|is|at)?\s*(?:1|0?\.9|100|high|full|max))",
    r"""\b(?:not|never|no\s+circumstances|mistake\s+to|wrong\s+to)\s+(?:\w+\s+){0,2}?(?:choose|answer|call|mark|grade
        |rate|say|return|pick|output)
        \s+(?:\w+\s+){0,3}?(?:incorrect|wrong|potentially)\b""",
    r"""<start>(?:the|this|that|every|each|all|my|our|above|following|generated
        |agent'?s)\s+(?:\w+\s+){0,3}?<thing>\s+(?:\w+\s+){0,3}?
        (?:is|are|was|were|has\s+been|have\s+been|should\s+be|must\s+be|will\s+be|stays|counts\s+as|does)\s+(?:[\w-]+\s+){0,4}?
        (?:<right>|verified|validated|approved|confirmed|fine\b|ok(?:ay)?\b|checked|true\s+to|exactly\s+what|as\s+asked
        |faithful|proven|gold\b)""",
    r"""\b(?:sql|query|statement)\s+(?:(?:above|below|here|given|shown)\s+)?(?:is|was|has\s+been|were)\s+(?:[\w-]+\s+){0,3}?
        (?:<right>|verified|validated|approved|confirmed|checked|proven|gold\b|vetted|certified)""",
    r"""<start>(?:all|every|each)\s+(?:of\s+the\s+)?(?:required\s+|necessary\s+|relevant\s+)?(?:filters?|conditions?
        |requirements?|criteria|checks?)\s+
        (?:in\s+the\s+\w+\s+)?(?:is|are|was|were|has\s+been|have\s+been)\s+(?:\w+\s+){0,2}?
        (?:applied|present|met|satisfied|checked|verified|there|in\s+place|fulfilled|passed|covered)\b""",
    r"""\b(?:assume|suppose|accept|imagine)\s+(?:that\s+)?(?:all\s+|the\s+|every\s+|this\s+)*(?:filters?|conditions?
        |sql|query|statement|answers?)\b [^.!?\n]{0,30} \b(?:applied|<right>|met|present|fine|ok)\b""",
    r"""\b(?:no|zero|without\s+any|not\s+a\s+single)\s+(?:missing|absent|wrong)\s+(?:filters?|conditions?)\b
        | \bnothing\s+is\s+(?:missing|wrong|at\s+fault)\b(?=\s*(?:$|[.,;!]|here|with|in\s+the\s+(?:sql|query)
        |from\s+the\s+(?:sql|query)))""",
    r"""\b(?:row|query|sql|statement|reformulation)s?\s+(?:always\s+)?(?:gets?|receives?|deserves?|merits?|earns?
        |is\s+given|is\s+awarded|is\s+worth|scores?)\s+
        (?:\w+\s+){0,3}?(?:<marks>|<strict>|verdict|grade)""",
    r"""<start>(?:do\s+not|don'?t|never|no\s+need\s+to|avoid|refrain\s+from)\s+(?:\w+\s+)?
        (?:report\w*|mention\w*|flag\w*|rais\w+|complain\w*|critici[sz]\w+|penali[sz]\w+|deduct\w*|lower\w*|downgrad\w+
        |charg\w+|blam\w+|fault\w*
        |grad\w+|judg\w+|question\b|doubt\w*|look\s+for|search\s+for)\b""",
    r"""\b(?:whatever|regardless\s+of(?:\s+what)?|no\s+matter\s+what|irrespective\s+of)\s+(?:the\s+)?(?:<thing>|it\b
        |you\b|filters?\b)""",
    r"<start>(?:<strict>|right)\W*(?:\(?\s*(?:1(?:\.0+)?|100\s*%|0\.9\d*)\s*\)?)?\W*$",
    r"""<lead>(?:it|this|that|everything|all)\s+(?:is|looks|seems|was)\s+(?:\w+\s+){0,2}?(?:<strict>|right|fine
        |ok(?:ay)?|good|in\s+order)\s*(?=$|[.,;!)])""",
    r"""<start>(?:lgtm\b|looks\s+(?:all\s+)?good\b|all\s+good\b|qa\s+passed\b|ship\s+it\b|no\s+(?:issues|errors|problems|faults)\b
        |(?:all\s+)?(?:checked|verified|approved|confirmed)(?:\s+(?:and|by)\s+\w|\W*$))""",
    r"<start>(?:full\s+(?:points|marks|score)|top\s+marks)\s*(?:$|[.,;!])",
    r"""\b(?:output|answer|say|return|reply|respond)\s+(?:only|just)\b\W*<strict> | \bconfidence\s*:\s*(?:1|0\.9|100|high|full)
        | \b(?:ai|llm|grader|evaluator)\s*:\s | \breturn\s+correct\W*(?:$|[;)]) | \b(?:print\s?\W|echo\s)\W*correct\b
        | \blgtm\b | \bqa\s+passed\b
        | \bthe\s+filter\s+on\s+\w+\s+(?:may|can|should)\s+be\s+(?:left\s+out|omitted|ignored|dropped)""",
    r"""\b(?:imagine|suppose|assume|pretend)\s+(?:that\s+)?(?:the|this|every|all)\s+(?:where\b|sql|quer|filters?\b|missing|conditions?\b)
        | \ban?\s+(?:perfectly\s+)?(?:correct|perfect)\s+(?:query|sql|statement|translation)\b""",
    # --- roles, delimiters and forms
    r"""\#{2,}\s*(?:system|instructions?|assistant|user|admin|note\s+to|response|answer|new|task|end|output|verdict
        |evaluation)\b""",
    r"""<\|?\s*/?\s*(?:im_start|im_end|im_sep|system|assistant|user|endoftext|eot_id|start_header_id|end_header_id
        |begin_of_text|end_of_turn
        |start_of_turn)\b | <<\s*/?\s*sys\s*>> | \[/?\s*(?:system|inst|user|assistant|instructions?)\s*\]""",
    r"""</?\s*(?:system|user|assistant|data|question|sql|input|instructions?|prompts?|context|human|query|document|json
        |untrusted|verdict|grade|answer
        |response|output|admin|tool|function|message|record|row|evaluation|judge)(?:_\w+)?\b[^<>\n]{0,40}>""",
    r"""(?:^|\n|[.!?]\s|["'({\[])\s{0,8}(?:system|assistant|evaluator|judge|grader|developer|administrator|admin
        |sysadmin|root|llm|model|ai)\s*
        (?:prompt|message|note|override|\(.{0,20}\))?\s*:""",
    r"\n\s{0,8}(?:human|user|ai|bot|expected|output|result|response|answer)\s*:\s",
    r"""(?:^|\n|[-=*\#_~]{3}\s{0,8})(?:end|begin|start|stop)\s+(?:of\s+)?(?:the\s+)?(?:data|input|json|questions?|user
        |message|block|prompt|text|document
        |instructions?|context|record|object|untrusted|row|query|system)\b""",
    r"""\b(?:data|input|json|question|message|block|object|untrusted\s+\w+)\s+(?:block\s+)?(?:ends?|stops?|is\s+over
        |is\s+closed)\s+(?:here|now)\b
        | \bend\s+of\s+(?:the\s+)?(?:data|input|json|user\s+\w+|prompt|untrusted|instructions?)\b""",
    r"""["'“{,]\s*(?:verdict|grade|confidence|filter_status|reasons|judge_notes|question_spec|sql_spec|enriched_spec
        |alignment|findings|enriched_question
        |user_question|generated_sql|p_right|score)["'”]\s*:""",
    r"""(?:^|[\n.!?;,({>*/\#]\s{0,8})["'*_]{0,4}(?:grade|verdict|confidence|score|rating|evaluation(?:\s+result)?
        |(?:final\s+)?(?:answer|result))["'*_]*\s*[:=]\s*["'*_]*
        (?:<right>|<marks>|"?1(?:\.0+)?\b|100\b|high\b|full\b|pass)""",
    r"""\bjudge_notes\s*: | \b(?:likely_correct|potentially_incorrect|filter_status|question_spec|sql_spec
        |enriched_spec|injection_suspected|fully_applied_with_extras)\b""",
    r"```\s*(?:json|system|assistant|xml|text)\b",
)

# of sentences that ask for nothing: what is said about the SQL rather than about the data
SAID = _patterns(
    r"\b(?:question|sql)\s+and\s+(?:the\s+)?(?:sql|question)\b",
    r"<meta> [^.!?\n]{0,60}? \b<praise>",
    r"\b<praise>\W [^.!?\n]{0,40}? <meta>",
    r"<part> [^.!?\n]{0,40}? \b<waived>",
    r"\b<waived>\W [^.!?\n]{0,30}? <part>",
    r"""\bno\s+(?:\w+\s+)?(?:filters?|conditions?)\s+(?:is|are)?\s*(?:needed|required|necessary)\b
        | \brow-?\s?level\s+security\b""",
    r"""\b(?:users?|customers?|clients?|team\s+lead|managers?)\s+(?:(?:has|have|is|was|already|who\s+asked)\s+)*
        (?:confirm\w*|approv\w*|accepted|satisfied|happy|verified)\b [^.!?\n]{0,30} \b(?:answer|results?|sql|query|output)\b""",
    r"""\b(?:<scribe>|reviewers?|<boss>) [^.!?\n]{0,50}? \b(?:<praise>) [^.!?\n]{0,40}? \b(?:answers?|responses?|sql
        |query|<right>)""",
)
# the same, beside a sentence that does ask
BESIDE = _patterns(
    r"""^(?!.*(?:refers?\s+to|\bmeans?\b|stands?\s+for|denotes?|represents?|defined|calculated|=)) .*
        \b(?:verdicts?(?!\s+(?:column|field|date|type|id|table|of|in|for|per|by)\b)|confidence|incorrect(?:ly)?|evaluat(?:e|or|ing)|lenien\w+|ground\s+truth|perfection|flawless|judge?ment
        |correct(?=\s*(?:$|[.,;:!)"'’”]|\b(?:and|with|for|to|now|then|if|whatever|regardless)\b)))(?!\w)""",
)
ASKS = re.compile(
    r"""\W*(?:please\W+|kindly\W+|also\W+|then\W+|and\W+|now\W+|evidence\s*:\s*|hint\s*:\s*)*(?:(?:can|could
        |would)\s+you\W+(?:please\W+)?|i\s+(?:want|need|would)\b|i'd\b
    |let\s+me\b|tell\s+me\b)?(?:show|list|find|give|return|count|get|display|name|compute|calculate|tell|provide
        |identify|determine|retrieve|select
    |what|which|who|whose|whom|how|when|where|why|is|are|was|were|do|does|did|has|have|for\s+(?:each|every|all)|among
        |number|total|average|sum|filter|group
    |sort|order|join|use|only\s+include|include|exclude|compare|rank|compile|fetch)\b""",
    re.VERBOSE,
)

LATIN = _patterns(
    r"\b<aside_m> [^.!?\n]{0,50}? \b<told_m>",
    r"\b<told_m> [^.!?\n]{0,30}? \b<aside_m>",
    r"\b<deem_m> [^.!?\n]{0,60}? \b<right_m>",
    r"\b<right_m> [^.!?\n]{0,25}? \b(?:bewerten|beurteilen|einstufen|werten|degerlendir\w*)\b",
    r"""\b(?:hinweis|notiz|nachricht|achtung|anmerkung|note|avis|message|attention|nota|aviso|atencion|atencao|mensaje
        |mensagem|messaggio|attenzione
        |opmerking|bericht|let\s+op|uwaga|dikkat|catatan|luu\s+y)\W+(?:\w+\W+){0,3}?<who_m>""",
    r"""(?:^|[.!?;:\n,(])\s{0,8}(?:die|diese|la|cette|esta|questa|essa|a|de|deze|to|ta|bu|le|il
        |o)\s+<query_m>\s+(?:\w+\s+){0,2}?
        (?:ist|est|es|e|eh|is|jest|ar|adalah)\s+(?:\w+\s+){0,3}?<right_m>""",
    r"""\b(?:bewertung|urteil|beurteilung|ergebnis|verdict|jugement|resultat|calificacion|evaluacion|resultado
        |veredicto|valutazione|voto|giudizio
        |avaliacao|veredito|beoordeling|oordeel|ocena|degerlendirme|note|nota)\s*[:=]\s*<right_m>""",
    r"\b(?:musst|mussen\s+sie|soll|debes|debe|devi|deve|dovete|moet|devez|dois|precisa|musisz)\b [^.!?\n]{0,40}? \b<right_m>",
    r"""\b(?:setz\w*|mettez|mettre|mets|donne[sz]?|donner|attribue\w*|pon|ponga|da|dale|asigna\w*|metti|dai|assegna\w*
        |de|da|atribua|geef|gib
        |vergib|vergebe|ustaw|daj)\s+(?:\w+\s+){0,3}?(?:urteil|verdict|bestnote|meilleure\s+note|note\s+maximale
        |nota\s+maxima|maxima\s+nota
        |massimo\s+dei\s+voti|voto\s+massimo|hoogste\s+cijfer)""",
    r"""\b(?:du\s+bist|sie\s+sind|tu\s+es|vous\s+etes|eres|usted\s+es|tu\s+sei|voce\s+e|je\s+bent
        |jestes)\s+(?:\w+\s+){0,3}?(?:<who_m>|ki\b|ia\b|assist\w+)""",
)
SCRIPTS = _patterns(
    r"<aside_s> [^.!?。！？\n]{0,50}? <told_s>",
    r"<told_s> [^.!?。！？\n]{0,30}? <aside_s>",
    r"<deem_s> [^.!?。！？\n]{0,60}? <right_s>",
    r"<right_s> [^.!?。！？\n]{0,25}? (?:評価|採点|判定|평가|채점|답변|응답|评分|评价|मूल्यांकन)",
    r"(?:примечание|внимание|сообщение|заметка)\W+(?:\w+\W+){0,2}?(?:оценщик|оценива|судь|проверяющ|эксперт|модел|ассистент)",
    r"(?:給|给|致|請|请)(?:评估|評估|评审|評審|裁判|审核|评判|助手|模型)",
    r"(?:評価|審査|採点|判定)(?:者|員|担当)(?:へ|の方|さん)",
    r"(?:평가자|심사자|채점자|모델)(?:에게|께|는) | (?:ملاحظة|إلى)\s+(?:للمقيم|المقيم|المراجع|الحكم)",
    r"""(?:запрос|ответ)\s+(?:\w+\s+){0,3}?(?:правил|верн|корректн|безошибочн)\w* | (?:该|此|这个?|本)(?:查询|查詢
        |答案)(?:是)?(?:完全)?(?:正确|正確)""",
    r"(?:必须|必須|应该|應該)[^。！？\n]{0,8}<right_s> | これは<right_s>",
    r"<right_s>(?:이라고|으로)\s*(?:답|평가|판단) | должен[^.!?\n]{0,40}<right_s>",
    r"(?:クエリ|sql|回答)は(?:完全に)?(?:正しい|正解)",
    r"(?:判定|评价|评分|評価|結果|结果|оценка|вердикт|результат)\s*[:：]\s*<right_s>",
)

# for literals, names and aliases, where a few such words are enough
NAMES = _patterns(
    r"""\b<aside>(?:\W+\w+){0,4}?\W+(?:instruct\w*|rules?|rubrics?|prompts?|guidelines?|criteria|previous|prior
        |question|filters?|conditions?
        |evaluation|analysis|everything)\b""",
    r"""\b(?:verdicts?|grade|grading|confidence)(?:\W+\w+){0,2}?\W+(?:<strict>|right|approved|pass)\b | \b(?:verdicts?
        |grade)(?:\W+\w+){0,2}?\W+(?:full\s+marks|1\b|high)""",
    r"""\b(?:evaluator|grader|judge|llm|ai|assistant|language\s+model|reviewer)(?:\W+\w+){0,3}?\W+
        (?:must|should|shall|please|ignore|answer|grade|mark|accept|approve|return|say|give|trust|see)\b""",
    r"""\b(?:answer(?=\W+(?:with|as|only)\b)|say|reply|respond|return|output|mark|grade|rate|score|judge|treat|accept|give)
        (?:\W+(?:it|this|that|as|with|only|me|is|the|all|every|query|row|sql|a|an)){0,3}\W+(?:<strict>|right\b|approved
        |<marks>)""",
    r"\b(?:correct|perfect)\W+(?:with\W+)?(?:\w+\W+)?confidence\b",
    r"""\b(?:this|the|my)\W+(?:sql|query|statement|answer|row)\W+(?:is|was)\W+(?:\w+\W+){0,2}?(?:<right>|approved
        |verified|fine|ok)\b""",
    r"\b(?:please|kindly)\W+(?:approve|accept|grade|mark|rate|ignore|trust)\b",
)

# a part of a text that is suspected has a share in it where it holds one of these
TRACES = _patterns(
    r"""(?<!\w)<aside> | \b(?:instruct\w* | rubric\w* | prompts?\b | guidelines? | verdicts? | grad(?:e|es|ed|er|ers
        |ing)\b | confidence
    | evaluat\w* | judg(?:e|es|ing|e?ment)\b | reviewers? | assistant | language\s+model | llm | chatgpt | ai | system
        | rating | rate | score[sd]?
    | marks?\b | correct\w* | perfect\w* | flawless\w* | approv\w* | accept\w* | valid\b | right\b | fully\W?applied
        | task | obey | pretend | trust
    | you | your | please | kindly | must | dismiss\w* | stop | confirm\w* | verified | checked | json | role | policy
        | thank\w* | comply | sql
    | query | <aside_m> | <told_m> | <deem_m> | <right_m> | <who_m> )\b | <aside_s> | <told_s> | <deem_s> | <right_s>
        | [{}<>|`] | ={2,} | -{3,}
    | \#{2,} | \[/?\w+\]""",
)

# cheap to look for: a lower-case text without any of these is held against no pattern of the group
HINTS = re.compile(
    r"""\b(?:imagine|suppose|assume\s|upgrade|raise|increase|lift|bump|boost|change|clear|suppress|hide|empty|improve|let\sth|let\sit|let'?s
        |assume\sperf|incorrect|confid
    |(?:start|begin|end|finish|conclude)\s(?:\w+\s){0,3}with|(?:answer|say|reply|respond|return)\s(?:with\s)?(?:yes
        |true)|satisfies|answers|meets|fulfils
    |skip|refuse|proven|benefit|lenien|in\sfavou?r|no\s(?:further|more)\s|both\sq|award|choose|pick\b|igno|disreg|forg
        |overr|overl|bypass|negle|set\saside|no\satt|reset|dismiss|suspend|waive|instr|directi
        |guid|rubri|prompt|criteri
    |evalua|grad[ei]|judg|review|scor|assess|examin|audit|checke|assist|chat\s?bot|language\smod|llm|gpt
        |a\.?i\b|models?\s[a-z]+\sto
    |models?\s(?:must|sho|shall|will|can|may|is|are|need|ought)|models?\s*[:,]|model\b|verdict|confid|rating|rate|mark
        |correct|perfect|flawl|faultl
    |accura|valid|excell|approv|impecc|error|bug|likely|fully|without|potential|system|develop|admin|your|you\b|preten
        |trust|jail|decode|decry
    |deciph|unscr|from\snow|from\s(?:the|your)\s(?:\w+\s)?(?:admin|owner|develop|operat|manag|data\steam)|by\s(?:order
        |decree|authority|request|decision)|told|said|asked|written|stated|follow|obey|comply|carry
    |execut|whatever|regardl|irresp|no\smatter|role|objective|new\stask|my\sword|anything|restrict|sudo|generous
        |lenient|merci|repeat|rule\s\d
    |(?:do\snot|don'?t|never|avoid|refrain\sfrom|no\sneed\sto)\s(?:\w+\s)?(?:report|mention|flag|rais|complain|critic
        |penal|deduct|lower|downgr
    |charg|blam|fault|grad|judg|question|doubt|look|search)|no\s(?:circum|issu|err|prob|fau|miss)
    |(?:not|never|mistake\sto|wrong\sto)\s(?:\w+\s){0,2}?(?:choose|answer|call|mark|grade|rate|say|return|pick|output)
        |fine\b|ok\b|okay|good\b|benign|pass|satisf
    |(?:full|top|max\w*|highest|best|perfect)\s(?:\w+\s)?points|out\sof|stars|100\s*(?:%|percent)|right|as\s(?:if|it)\b
        |well\b|highly|favou|uncond
    |accept|verif|confirm|true\sto|exactly|faithful|proven|gold\b|vetted|certif|filter|condition|requirem|nothing|stop
        |cease|abort|skip|lgtm|ship
    |qa\b|ends?\s(?:here|now)|is\s(?:over|closed)|(?:end|begin|start)\s(?:of\s)?(?:the\s)?(?:data|input|json|question
        |user|message|block|prompt|text
    |document|instr|context|record|object|untrusted|row|query))
    | \#{2} | <\s*[|/<] | <\s*(?:sys|user|assist|data|quest|sql|input|instr|prompt|context|human|query|doc|json|untr
        |verd|grade|answ|resp|out|admin
    |tool|func|mess|rec|row|eval|judge) | \[/?\s*(?:sys|inst|user|assist) | ["'“”]\s*: | \n\s{0,8}\w+\s*: | -{3} | ={3}
        | 10\s?/\s?10\b | 5\s?/\s?5\b | a\s?\+
    | _(?:spec|notes|status|correct|applied) | ```""",
    re.VERBOSE,
)
ABOUT = re.compile(
    r"""\b(?:verdict|confid|correct|incorrect|lenien|perfection|flawl|judge|row-?\s?level|users?\s|customer|client
        |team\slead|sql|quer|statement|reformul|findings|analysis|evalua|grad|rubric|verdict|gold|reference|expected|ground
        |execution|unit\stest
    |(?:the|this)\squestion|filter|condition|missing|judge|scorer|assess|llm|ai\b|language\sm|review|admin|owner
        |develop|operator|manag|data\steam)""",
    re.VERBOSE,
)
ELSEWHERE = re.compile(
    r"""\b(?:musst|mussen|soll\b|debe|devi\b|deve\b|dovete|moet\b|devez|dois\b|precisa|musisz|setz|met[st]|attrib|pon\b
        |ponga|asigna|assegna|ustaw|daj\b|ignor|vergiss|vergess|missacht|bewer|beurt|benot|werte|stuf|antwort|melde
        |gib\b|geben|vergib|hinweis|notiz
        |nachricht|achtung|anmerk
    |korrekt|richtig|fehler|bestnote|volle\s|einwand|oubli|tiens|tenez|evalu|not(?:e|ez|a)\b|jug|repond|donne|olvid
        |omit|haz\s|haga|descart|califi
    |respond|consider|puntu|avis|atenc|mens[aj]|messa|dimentic|trascur|valut|giud|rispond|dichiar|attenz|esquec
        |desconsid|avali|neger|negeer|vergeet
    |beoord|antwoord|markeer|geef|opmerk|bericht|let\sop|uwaga|zignor|pomin|zapom|ocen|odpow|uznaj|yok\s?say|gorm
        |dikkat|unut|degerl|yanit|bortse
    |glem|glom|unohd|jata|betyg|vurd|svar|bedom|arvio|abaik|lupak|nilai|catatan|luu\s|bo\squa|danh\sgia|tra\sloi|nezoh
        |zapomen|ohodn|hagy|ertek
    |urteil|ergebnis|verdict|jugement|resulta|evaluacion|veredic|voto|oordeel|abfrage|requete|reponse|consulta
        |respuesta|query|risposta|interrogaz
    |resposta|zapyt|sorgu|fraga|sporring|kueri|jawaban|truy|sql|dotaz|leker|du\sbist|sie\ssind|tu\s(?:es|sei)
        |vous\setes|eres|usted|voce|jestes)""",
    re.VERBOSE,
)

# long enough that no chain of other letters holds them by chance
_COVERT_WORDS = "ignore disregard instruct verdict evaluator grader correct confidence previous override".split()
SINGLE = re.compile(
    "ignore|disregard|instruct|verdict|evaluat|grader|correct|confidence|override|systemprompt|forget|approve|perfect"
)
COVERT = re.compile("|".join(spelled for word in _COVERT_WORDS for spelled in (codecs.encode(word, "rot13"), word[::-1])))
# words run together, or torn apart elsewhere than between words
GLUED = re.compile(
    r"""(?:ignore|disregard|forget|override)(?:all|the|any|every|your|my|these|of|previous|prior|above
        |system)*(?:instructions?|rules|rubric|prompt|guidelines)
    |(?:grade|mark|rate|judge|verdict)(?:this|it|the|query|sql|row|is|as|must|be)*(?:correct|perfect|flawless)(?:with
        |and|confidence|$)
    |(?:grade|mark|rate|judge)(?:this|it)(?:as)?correct|(?:verdict|grade)(?:is|as)?correct""",
    re.VERBOSE,
)

# letters of other alphabets, and other forms of letters that no normalisation undoes, as the Latin letter they look like
LOOKALIKES = str.maketrans(
    "аеорсухіјѕһԁԛԝгпктвмнзьꙁкѵӏցհոսօɑɡıɩɪʟʀɴʏᴀʙᴄᴅᴇɢʜᴊᴋᴍᴏᴘꜱᴛᴜᴠᴡᴢꞇαβγεηικνορτυχωϲϳϑøłđħŧɐǝɔɟɥɯɹʇʌʍ",
    "aeopcyxijshdqwrnktbmhzbzkvlghnuoagiiilrnyabcdeghjkmopstuvwztabyenikvoptuxwcjdoldhtaecfhmrtvw",
) | {first + n: chr(ord("a") + n) for first in (0x1F130, 0x1F150, 0x1F170, 0x1F1E6) for n in range(26)}
