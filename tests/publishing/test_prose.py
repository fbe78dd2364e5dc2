"""Pages and docstrings are in plain English, and short enough to be read.

The phrases are those that a reader of the field has to translate: code that knows or is
told things, sentences without a subject, own words for the field's terms.
"""

import ast
import re
from pathlib import Path

import pytest

from tests.test_architecture import parsed

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for page in (*ROOT.glob("*.md"), *ROOT.glob("*/*.md"), *ROOT.glob("*/*/*.md"))
    if page.relative_to(ROOT).parts[0][0] != "."
)
SOURCES = sorted((ROOT / "smoothsp").rglob("*.py"))
SPOKEN = sorted(
    path
    for part in ("smoothsp", "recipes", "benchmarks")
    for path in (ROOT / part).rglob("*.py")
)
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
# of docstrings: a verb in the imperative or the name of a quantity begins them
NO_BEGINNING = {
    "As",
    "From",
    "How",
    "Not",
    "Of",
    "Since",
    "That",
    "The same",
    "Those",
    "To",
    "What",
    "Whatever",
    "When",
    "Where",
    "Which",
    "Who",
    "With",
}
IN_MESSAGES = {
    r"\bof others\b": "of whom?",
    r"\b(?:hand|hands|handed) over\b": "pass",
    r"\blooks? at\b": "needs, reads",
    r"\b(?:likes|wants?|refuses?|gives? up|goes on from)\b": "code does none of it",
    r"\bno such thing\b": "say what it is",
    r"(?<!, )\bwhat there is\b": "name it",
    r", say\b": "such as",
    r"\bnobody\b": "no one acts here",
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
    for node in parsed(path):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield text


def literal(node):
    """The text of a string, with {} for what is computed."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(part) or "{}" for part in node.values)
    if isinstance(node, ast.BinOp):
        return literal(node.left) + literal(node.right)
    return ""


def messages(path):
    """Texts of exceptions that are raised and of warnings."""
    for node in parsed(path):
        if isinstance(node, ast.Raise):
            node = node.exc
        elif not (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "warn"
        ):
            continue
        if isinstance(node, ast.Call):
            yield from filter(None, map(literal, node.args))


def found(text, phrases=PHRASES):
    for phrase, remedy in phrases.items():
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


def test_docstrings_begin_with_a_verb_or_a_quantity():
    begun = {
        f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"
        for path in SOURCES
        if "_kernels" not in path.parts
        for text in docstrings(path)
        for beginning in NO_BEGINNING
        if f"{text} ".startswith(f"{beginning} ")
    }
    assert not begun


def test_messages_are_plain():
    faults = {
        f"{path.relative_to(ROOT)}: {fault}"
        for path in SPOKEN
        for text in messages(path)
        for fault in found(text, PHRASES | IN_MESSAGES)
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


def test_pages_do_not_need_the_history_of_the_repository():
    """Copies that are released or shallow lack old commits; tables say their origin."""
    commit = r"\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{7,40}\b"
    needed = {}
    for page in PAGES:
        phrases = ["git show"]
        if page.parent.name != "tables":
            phrases.append(commit)
        found = re.findall("|".join(phrases), page.read_text())
        needed |= {page.relative_to(ROOT).as_posix(): found} if found else {}
    assert not needed
