"""The Python blocks of README and docs run, and relative links lead somewhere."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    page for page in ROOT.rglob("*.md") if page.relative_to(ROOT).parts[0][0] != "."
)
EXECUTED = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(page, block, id=f"{page.stem}-{number}")
    for page in EXECUTED
    for number, block in enumerate(
        re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    )
]


@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_block_runs(page, block):
    exec(compile(block, str(page), "exec"), {"__name__": page.stem})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    broken = [
        link
        for link in links
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert not broken, f"{page.relative_to(ROOT)} links to missing {broken}"


def documented_names():
    """Dotted names of the package that pages mention, and those that they import."""
    for page in PAGES:
        text = page.read_text()
        for name in re.findall(r"(?<![\w./])smoothsp(?:\.[A-Za-z]\w*)+(?![\w/])", text):
            if not name.endswith((".py", ".md", ".git")):
                yield name
        for module, names in re.findall(
            r"^from (smoothsp[\w.]*) import ([\w, ]+)$", text, re.MULTILINE
        ):
            yield from (f"{module}.{name.strip()}" for name in names.split(","))


@pytest.mark.parametrize("name", sorted(set(documented_names())))
def test_documented_names_are_there(name):
    module, *attributes = name.split(".")
    found = importlib.import_module(module)
    for attribute in attributes:
        module += f".{attribute}"
        if not hasattr(found, attribute):
            importlib.import_module(module)
        found = getattr(found, attribute)


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) < 150
