"""Training a constituency parser by its recipe."""

import json
import re

import pytest

from constituency import Config, main
from parsing import nested_entities
from smoothsp.data import trees
from smoothsp.models import load
from tests.recipes.runs import numbers
from tests.sweeps import thinned


@pytest.fixture(scope="session")
def trained(few, tmp_path_factory):
    """A whole run on a few of the embedded trees."""
    out = tmp_path_factory.mktemp("constituency")
    config = Config(data=few, held_out=1, out=out, epochs=4, hidden=30)
    return config, main(config)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files as GermEval has them, drawn."""
    place = tmp_path_factory.mktemp("nested")
    for name, part in zip(
        ("train", "dev"), nested_entities.make(train=80, dev=20), strict=True
    ):
        text = "".join(trees.to_level_columns(tree, 2) for tree in part)
        (place / f"NER-de-{name}.tsv").write_text(text)
    return place


@pytest.mark.long
def test_training_beats_right_branching(tmp_path):
    config = Config(out=tmp_path, epochs=6, hidden=60)
    result = main(config)
    assert result["f1"] > 0.8 > 0.3 > result["right_branching_f1"] > 0
    assert result["f1"] == max(row["f1"] for row in numbers(config.out)["history"])


def test_the_model_parses_as_it_did_in_training(trained):
    config, result = trained
    parser, path = load(config.model_folder, "cpu"), f"{config.data}/c.mrg"
    found = parser.evaluate(path)
    assert found == {name: result[name] for name in found}
    assert set(found) == {"f1", "precision", "recall", "exact"}
    words = [tree.words for tree in trees.read_trees(path)]
    parses = "".join(tree.brackets() for tree in parser.parse(words))
    assert parses == (config.out / "dev.txt").read_text()


@pytest.mark.parametrize("epochs", thinned([2, 20], 2))
def test_nested_entities_are_trained_on_and_compared(epochs, folder, tmp_path, capsys):
    out, dev = tmp_path / "run", folder / "NER-de-dev.tsv"
    main(Config(data=str(folder), nested=True, out=out, epochs=epochs, hidden=60))
    printed = capsys.readouterr().out
    content = json.loads((out / "metrics.json").read_text())
    result = content["result"]
    if epochs == 20:
        assert result["f1"] > 0.6 and result["outer"] > 0.6 and result["inner"] > 0.1
    assert result["look_up_f1"] == content["scores"]["look-up"]["f1"]
    assert re.search(r"look-up +\d", printed)
    # the model says of itself that entities are nested
    found = load(out / "model", "cpu").evaluate(dev)
    assert found == content["scores"]["the parser"]
    # what it writes is what it reads
    (tmp_path / "found.tsv").write_text((out / "dev.txt").read_text())
    assert len(trees.read_trees(tmp_path / "found.tsv")) == 20


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"held_out": 0}, "held_out: expected at least 1, got 0"),
        ({"epochs": 0}, "epochs: expected at least 1, got 0"),
        ({"data": "nowhere"}, "nowhere: expected a folder"),
        ({"columns": ("1", "2")}, "columns: expected --nested beside it, got none"),
    ],
)
def test_wrong_arguments_are_one_line(wrong, message, tmp_path):
    with pytest.raises((ValueError, OSError), match=message) as caught:
        main(Config(**({"out": tmp_path / "none"} | wrong)))
    assert "\n" not in str(caught.value)
