"""Splits text into sentences by a short rule, without a model: for BERT, whose samples are pairs of sentences.

A sentence ends
1. at an empty line;
2. after the full stops of Chinese and Japanese, and closing quotes or brackets that follow them;
3. after . ! ? or the ellipsis sign, and closing quotes or brackets, if white space follows and then no lower-case letter;
   but not after the full stop of a single capital letter (initials) or of the abbreviations below.
The rule is our own. Punkt (Kiss and Strunk, "Unsupervised Multilingual Sentence Boundary Detection", Computational
Linguistics 32(4), 2006), which Megatron-LM takes from NLTK, learns abbreviations from text and has to be downloaded.
"""

import re

_ABBREVIATIONS = """
mr mrs ms dr prof st sr jr gen col lt sgt rev hon gov sen rep vs etc cf al fig figs eq eqs no nos vol pp ed eds
approx dept est inc ltd co corp e.g i.e u.s u.k a.m p.m jan feb mar apr jun jul aug sep sept oct nov dec
"""
ABBREVIATIONS = frozenset(_ABBREVIATIONS.split())  # in lower case
_CLOSING = "[\"')\\]}\u2019\u201d\u00bb\u300d\u300f\uff09]*"
_END = re.compile(
    # The lookbehind keeps a long row of dots from being tried from each of them.
    rf"\n\s*\n|[\u3002\uff01\uff1f]{_CLOSING}|(?<![.!?\u2026])[.!?\u2026]+{_CLOSING}(?=\s)",
)
_LAST_WORD = re.compile(r"[^\s(\[\"'\u201c\u2018]*$")
_WORD_CHARACTERS = 40


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, stripped of white space; empty ones are left out."""
    found = []
    begin = 0
    for match in _END.finditer(text):
        if _ends(text, match):
            found.append(text[begin : match.end()].strip())
            begin = match.end()
    found.append(text[begin:].strip())
    return [sentence for sentence in found if sentence]


def _ends(text: str, match: "re.Match[str]") -> bool:
    mark = match.group()
    if mark[0] not in ".!?\u2026":
        return True
    following = _next_character(text, match.end())
    if following.islower():
        return False
    if mark != ".":
        return True
    word = _last_word(text, match.start())
    return not (len(word) == 1 and word.isupper()) and word.lower() not in ABBREVIATIONS


def _next_character(text: str, place: int) -> str:
    while place < len(text) and (text[place].isspace() or text[place] in "\"'([{\u201c\u2018\u00ab"):
        place += 1
    return text[place : place + 1]


def _last_word(text: str, end: int) -> str:
    found = _LAST_WORD.search(text[max(end - _WORD_CHARACTERS, 0) : end])
    return found.group() if found else ""
