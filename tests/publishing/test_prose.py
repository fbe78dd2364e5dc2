"""Pages and docstrings are in plain English, and short enough to be read.

The phrases are those that a reader of the field has to translate: code that knows or is
told things, sentences without a subject, own words for the field's terms.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for page in (*ROOT.glob("*.md"), *ROOT.glob("*/*.md"), *ROOT.glob("docs/*/*.md"))
    if page.relative_to(ROOT).parts[0][0] != "."
)
SOURCES = sorted((ROOT / "smoothsp").rglob("*.py"))
PHRASES = {
    r"\b(?:is|are|was|were|be|been) (?:told|asked)\b": "who passes what to whom?",
    r"\b(?:knows?|knew) (?:of|nothing|no|neither|how|what|which|its|the|a)\b": "code "
    "does not know",
    r"(?:^|\. )Whatever\b": "name the subject",
    r"(?:^|\. )Who\b[^?]*$": "name the subject",
    r"(?:^|\. )One that\b": "name the subject",
    r"\bof before\b": "name what was there before",
    r"\b(?:0?\.\d+|an? \w+(?:st|nd|rd|th)) of the time\b": "N times as fast",
    r"\bas ever\b": "as before, or leave it out",
    r"\bnothing but\b": "only",
    r"\bthere is no other\b": "name it",
}
LONGEST = {
    "README.md": 900,
    "CHANGELOG.md": 600,
}
LONGEST_PAGE, ALL_PAGES = 1500, 25_000


def prose(text):
    """A page without code, formulas, tables and where its links lead."""
    text = re.sub(r"```.*?```|\$\$.*?\$\$", "", text, flags=re.DOTALL)
    lines = [x for x in text.splitlines() if not x.startswith(("|", "![", "    "))]
    return re.sub(r"\]\([^)]*\)", "]", "\n".join(lines))


def docstrings(path):
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield text


def found(text):
    for phrase, remedy in PHRASES.items():
        for match in re.finditer(phrase, text, re.MULTILINE):
            around = text[max(0, match.start() - 30) : match.end() + 30]
            yield f"{' '.join(around.split())!r}: {remedy}"


@pytest.mark.parametrize("page", PAGES, ids=lambda x: x.relative_to(ROOT).as_posix())
def test_pages_are_plain(page):
    assert not list(found(prose(page.read_text())))


def test_docstrings_are_plain():
    faults = {
        f"{path.relative_to(ROOT)}: {fault}"
        for path in SOURCES
        for text in docstrings(path)
        for fault in found(text)
    }
    assert not faults


def test_pages_are_short():
    words = {
        page.relative_to(ROOT).as_posix(): len(prose(page.read_text()).split())
        for page in PAGES
    }
    longest = {x: LONGEST.get(x, LONGEST_PAGE) for x in words}
    assert not {x: n for x, n in words.items() if n > longest[x]}
    assert sum(words.values()) < ALL_PAGES
