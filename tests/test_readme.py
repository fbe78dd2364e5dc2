"""The Python blocks of README and docs run, and relative links lead somewhere."""

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


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) < 150
