"""Names, comments and docstrings in the words of the field.

A reader of NumPy and PyTorch would have to translate the words below: each stands for
several things, or for a thing that has another name.
"""

import ast
import io
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path for part in ("smoothsp", "recipes") for path in (ROOT / part).rglob("*.py")
)
BANNED = frozenset(
    re.findall(
        r"\w+",
        """
        ahead alike along answer answers ask asked asks barred blame chance
        chances every far found given going held here kept known law laws
        least less look looked looking lost many met most moved moves narrow
        one own paid place placed places pull question questions reach rest
        room rooms said says several share shares some stuck taken takes there
        thing things told two upto waits wanted way ways whole wide words
        """,
    )
)
# beginning of a path, names there, and why they stay
ALLOWED = (
    ("", r"(scalar_|exponent_of_)?one|\w*one_(hot|row|thread)\w*", "the number 1"),
    ("", r"two_sum\w*|require_two_classes", "Knuth's algorithm; the number 2"),
    ("", r"\w*_every", "public parameters: certify_every"),
    ("", r"\w*at_(least|most)|least_squares", "inequalities, as in NumPy"),
    ("", r"(\w+_)?words", "words of a text, and visual words"),
    ("", r"most_violating", "the output of loss-augmented inference"),
    ("", r"(num_)?held_out\w*", "held-out data"),
    ("smoothsp/_kernels", r"rest_prob", "1 - p"),
    ("smoothsp/_kernels/linear/working_sets.py", "room", "key of saved states"),
    ("smoothsp/oracles/alignment.py", r"moves", "public: moves of an alignment"),
    ("smoothsp/oracles/plackett_luce.py", r"places", "public parameter"),
    ("smoothsp/oracles/pictorial_structure.py", r"reach", "public parameter"),
    ("smoothsp/oracles", r"most_nodes", "public parameter"),
    ("smoothsp/linear/features/kernel_features.py", r"most", "public parameter"),
    ("smoothsp/linear/problems", r"worst_many", "public method"),
    ("smoothsp/models", r"places|found", "public: offsets of words; boxes found"),
    ("smoothsp/models/network.py", r"ahead", "key of saved weights"),
    ("smoothsp/run_folder.py", r"held", "context manager of recipes"),
)

# of comments and docstrings, and words to use instead
PHRASES = {
    r"\b(?:chances?|laws?)\b": "probability, marginals; distribution",
    r"\b(?:ask(?:s|ed)?|answer(?:s|ed)?|questions?)\b": "call, return; result; op",
    r"\bof (?:its|their|our) own\b": "name the thing, or leave it out",
    r"\blook(?:s|ed|ing)? at\b": "read, check",
    r"\bso many\b": "the number of",
    r"\bthat (?:is|are) none\b": "name it",
    r"\b(?:what|whatever)\b": "name it",
    r"\bthat which\b": "name it",
}


def bound_names(tree):
    """Yield line and name of each function, class, argument and assigned variable."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def banned_names(source, path):
    """Yield line and name where a part of the name is banned and nothing allows it."""
    for line, bound in bound_names(ast.parse(source)):
        name = bound.strip("_").lower()
        if not BANNED & set(name.split("_")):
            continue
        if not any(
            path.startswith(start) and re.fullmatch(names, name)
            for start, names, _ in ALLOWED
        ):
            yield line, bound


def test_names_are_words_of_the_field():
    assert len(ALLOWED) <= 20
    faults = [
        f"{path}:{line} {name}"
        for source in SOURCES
        for path in [source.relative_to(ROOT).as_posix()]
        for line, name in banned_names(source.read_text(encoding="utf-8"), path)
    ]
    assert not faults


def test_allowed_names_are_still_there():
    bound = {}
    for source in SOURCES:
        names = bound_names(ast.parse(source.read_text(encoding="utf-8")))
        path = source.relative_to(ROOT).as_posix()
        bound[path] = {name.strip("_").lower() for _, name in names}
    for start, names, _ in ALLOWED:
        assert any(
            re.fullmatch(names, name)
            for path, here in bound.items()
            if path.startswith(start)
            for name in here
        ), names


def prose(source):
    """Yield the docstrings and comments of a file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def test_comments_and_docstrings_are_in_words_of_the_field():
    faults = []
    for source in SOURCES:
        if source.is_relative_to(ROOT / "recipes"):
            continue
        for text in prose(source.read_text(encoding="utf-8")):
            # code and titles are quoted
            text = re.sub(r'``[^`]*``|"[^"]*"', "", text)
            faults += [
                f"{source.relative_to(ROOT)}: {match.group()!r}: {remedy}"
                for phrase, remedy in PHRASES.items()
                for match in re.finditer(phrase, text, re.IGNORECASE)
            ]
    assert not faults
