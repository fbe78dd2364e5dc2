"""The site has every page, every figure and every public name."""

import importlib.util
import re

import pytest

from tests.test_architecture import PUBLIC, ROOT

FOLDER = ROOT / "docs" / "site"


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pages = loaded("pages")
FUNCTIONS_ALONE = {"smoothsp.losses.functional", "smoothsp.optim.schedules"}


def test_the_reference_has_every_public_name():
    assert set(pages.MODULES) == set(PUBLIC) | FUNCTIONS_ALONE
    found = pages.reference()
    for module, names in PUBLIC.items():
        text = found[f"reference/{module}.md"]
        missing = {x for x in names if f"::: {module}.{x}\n" not in text}
        assert {f"{module}.{x}" for x in missing} <= set(pages.MODULES), module
    text = found["reference/smoothsp.losses.functional.md"]
    assert "::: smoothsp.losses.functional.crf_nll\n" in text


def test_the_menu_has_every_page():
    menu = re.findall(r"([\w./]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    there = {x.relative_to(ROOT).as_posix() for x in pages.pages()}
    assert set(menu) == there | set(pages.reference())
    assert len(menu) == len(set(menu))


def test_the_gallery_shows_every_figure():
    text = (ROOT / "docs/gallery.md").read_text()
    missing = [
        x.name for x in (ROOT / "docs/figures").glob("*.png") if x.name not in text
    ]
    assert not missing
    commands = {x.stem for x in (ROOT / "recipes").glob("*.py")}
    assert {x for x in commands if f"recipes/{x}.py" not in text} == set()


def test_figures_are_small():
    large = [x for x in ROOT.glob("*/figures/*.png") if x.stat().st_size > 500_000]
    assert not large


def test_lists_stand_apart_from_text_but_not_in_code():
    assert pages.with_lists_apart("text\n- a\n- b") == "text\n\n- a\n- b"
    assert pages.with_lists_apart("```\ntext\n- a\n```") == "```\ntext\n- a\n```"
    assert pages.with_lists_apart("1. a\n2. b\n\n- c\n  d") == "1. a\n2. b\n\n- c\n  d"


def test_formulas_of_docstrings_become_those_of_pages():
    pytest.importorskip("griffe")
    text = (
        "What.\n\n.. math:: a\n    + b\n\nwith :math:`c`, and\n\n.. math::\n\n    d\n"
    )
    expected = "What.\n\n$$\na\n+ b\n$$\n\nwith $c$, and\n\n$$\nd\n$$\n\n"
    assert re.sub(r"\n{2,}", "\n\n", loaded("docstrings").as_markdown(text)) == expected


def test_names_in_docstrings_are_code_on_the_site():
    pytest.importorskip("griffe")
    read = loaded("docstrings").as_markdown
    text = "As :class:`~smoothsp.linear.HingeSVC`, :func:`plan`, :attr:`~a.B.c`."
    assert read(text) == "As `HingeSVC`, `plan`, `c`."
