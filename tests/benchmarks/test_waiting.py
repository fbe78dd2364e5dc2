"""Waiting: the page has the measured rows, and time is charged to the right part."""

import numba
import pytest

import waiting
from waits import recipe
from waits.predictions import PREDICTIONS, inputs
from waits.recipe import COMPILATION, READING, TRAINING, Parts

RECIPES = {path.stem for path in (waiting.ROOT / "recipes").glob("*.py")}


def test_page_has_the_rows_of_the_results():
    rows = waiting.read(waiting.HERE / "results/waiting.csv")
    page = (waiting.HERE / "tables/waiting.md").read_text()
    for name, text in waiting.tables(rows).items():
        assert f"<!-- {name} -->\n{text}\n<!-- end of {name} -->" in page


def test_every_recipe_is_measured():
    assert set(waiting.COMMANDS) == set(recipe.PARTS) == RECIPES
    assert set(waiting.TASKS) == set(PREDICTIONS)


@pytest.mark.long
def test_parts_are_functions_of_recipes():
    for parts in recipe.PARTS.values():
        for names in parts.values():
            for owner, name in map(recipe.place_of, names):
                assert callable(getattr(owner, name))


def test_a_part_is_charged_without_the_parts_within_it(monkeypatch):
    clock = iter([0.0, 1.0, 5.0, 7.0])
    monkeypatch.setattr(recipe.cpu, "seconds", lambda: next(clock))
    parts = Parts()
    reading = parts.timed(READING, lambda: None)
    parts.timed(TRAINING, reading)()
    assert (parts.seconds[TRAINING], parts.seconds[READING]) == (3.0, 4.0)


def test_compilation_is_charged_apart(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(recipe.cpu, "seconds", lambda: float(next(clock)))
    parts = Parts()
    recipe.event.register("numba:compile", parts)
    try:
        numba.njit(lambda x: x + 1)(1)
    finally:
        recipe.event.unregister("numba:compile", parts)
    assert parts.seconds[COMPILATION] > 0


def test_a_row_replaces_the_row_of_its_name(tmp_path):
    old = waiting.row(waiting.FIRST, "decode", empty=2.0, warm=1.0)
    path = tmp_path / "waiting.csv"
    waiting.write(path, [old | {"date": "d", "commit": "c", "machine": "m"}])
    (found,) = waiting.read(path)
    rows = waiting.replaced([found], found | {"values": {"empty": 3.0}})
    texts = waiting.tables(rows)
    assert texts[waiting.FIRST].endswith("| decode | 3.00 |  |")
    assert texts["where"] == "d, commit `c`, m."


def test_flair_and_spacy_read_the_same_sentences():
    given = inputs("ud_parser")
    sizes = {name: [*map(len, rows)] for name, rows in given.items()}
    assert sizes["words"] == sizes["heads"] == sizes["labels"]
