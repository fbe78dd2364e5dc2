"""Training a dependency parser by its recipe."""

import pytest

from smoothsp.data import read_dependencies
from smoothsp.models import load
from smoothsp.models.projectivity import crossing_arcs
from tests.recipes.runs import numbers
from ud_parser import Config, main


@pytest.mark.long
def test_training_beats_attaching_to_neighbours(tmp_path):
    config = Config(out=tmp_path, hidden=80, epochs=5)
    result = main(config)
    assert result["uas"] > 0.8 > 0.5 > result["next_uas"] > result["previous_uas"]
    assert result["uas"] >= result["las"] > 0.75
    history = numbers(config.out)["history"]
    assert result["las"] == max(row["las"] for row in history)
    assert (config.out / "parses.png").read_bytes().startswith(b"\x89PNG")


def test_the_model_parses_as_it_did_in_training(bank, tmp_path):
    config = Config(data=bank, out=tmp_path, hidden=30, epochs=3)
    result, path = main(config), f"{bank}/drawn-dev.conllu"
    parser = load(config.model_folder, "cpu")
    found = parser.evaluate(path)
    assert found == {name: result[name] for name in ("las", "uas")}
    gold, parses = read_dependencies(path), read_dependencies(tmp_path / "dev.conllu")
    again = parser.parse([tree.words for tree in gold])
    assert [tree.heads for tree in parses] == [tree.heads for tree in again]
    # the tree alone is another one: comments, lemmas and tags stay
    assert [len(tree.lines) for tree in parses] == [len(tree.lines) for tree in gold]


def test_projective_trees_have_no_crossing_arcs(bank, tmp_path, capsys):
    main(Config(data=bank, out=tmp_path, structure="projective", epochs=1, hidden=10))
    assert "trees have crossing arcs, which are lifted" in capsys.readouterr().err
    found = read_dependencies(tmp_path / "dev.conllu")
    assert not any(crossing_arcs(tree.heads) for tree in found)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"encoder_rate": 0.0}, "encoder_rate: expected a positive number, got 0.0"),
        ({"data": "nowhere"}, "nowhere: expected a folder"),
    ],
)
def test_wrong_arguments_are_one_line(wrong, message, tmp_path):
    with pytest.raises((ValueError, OSError), match=message) as caught:
        main(Config(**({"out": tmp_path / "none"} | wrong)))
    assert "\n" not in str(caught.value)
