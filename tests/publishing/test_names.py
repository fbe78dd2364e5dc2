"""Names in backticks, in docstrings and on pages, are names of the repository."""

import ast
import builtins
import importlib
import inspect
import keyword
import re

import pytest

from tests.programs import ROOT
from tests.test_architecture import PUBLIC, parsed

CODE = [
    path
    for folder in ("smoothsp", "recipes", "benchmarks", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
# The page of migration names what other libraries have.
PAGES = [
    *(ROOT / page for page in ("README.md", "CONTRIBUTING.md", "recipes/README.md")),
    *(p for p in sorted((ROOT / "docs").rglob("*.md")) if p.stem != "migration"),
]
# Options, formats and devices of other projects, and names of data sets.
OTHERS = {
    *("Pipeline", "max_length", "mps", "swa_utils", "to_dict", "update_bn"),
    *("bin", "logic", "news20", "news20_bydate", "training_args", "usps", "v0"),
}
# Their docstrings are titles in the help of the recipes.
OPTIONS = {"NetworkOptions", "TrainingOptions", "Options"}
# A symbol with an index: w_k, delta_k, alpha_mu.
SYMBOL = re.compile(r"(?:[A-Za-z]|alpha|beta|delta|eps|kappa|pi)_(?:\w|mu|lambda)")


def docstrings(path):
    for node in parsed(path):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node, clean=False) or ""


@pytest.fixture(scope="module")
def known():
    """Names in code, outside of docstrings, and those of files and folders."""
    found = {*dir(builtins), *keyword.kwlist, *OTHERS}
    for path in CODE:
        found |= set(path.relative_to(ROOT).with_suffix("").parts)
        code = re.sub(r'"""(?:.|\n)*?"""', "", path.read_text())
        found |= set(re.findall(r"[A-Za-z_]\w*", code))
    return found


def unknown(names, known):
    return {
        name
        for name in names
        for part in name.split(".")
        if part and not (part in known or part.isdigit() or SYMBOL.fullmatch(part))
    }


def test_names_in_docstrings(known):
    pattern = re.compile(r"``([A-Za-z_][\w.]*)(?:\([^`]*\))?``")
    wrong = {}
    for path in CODE:
        if path.is_relative_to(ROOT / "smoothsp"):
            text = "\n".join(docstrings(path))
            if found := unknown(pattern.findall(text), known):
                wrong[str(path.relative_to(ROOT))] = found
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_on_pages(page, known):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    named = re.findall(r"`([A-Za-z_][\w.]*)(?:\([^`]*\))?`", text)
    assert not unknown(named, known)


def test_public_classes_have_an_example():
    classes = {
        f"{module}.{name}": getattr(importlib.import_module(module), name)
        for module, names in PUBLIC.items()
        for name in names - OPTIONS
    }
    assert not {
        name
        for name, found in classes.items()
        if inspect.isclass(found) and ">>>" not in (found.__doc__ or "")
    }


def test_a_name_that_is_gone_is_noticed(known):
    gone = "Chain." + "_".join(("gone", "for", "good"))  # in no file as one word
    assert unknown(["Chain.decode", "w_k", gone], known) == {gone}
