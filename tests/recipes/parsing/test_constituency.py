"""Training a constituency parser, and parsing with it."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from constituency import Config, main
from parsing import brackets, model_folder, phrases, spans
from parsing.spans import SpanScores, parse
from smoothsp.data import trees
from smoothsp.models.features import Corpus
from smoothsp.models.network import TaggerNetwork
from tests.recipes.runs import numbers
from tests.sweeps import thinned


@pytest.fixture(scope="session")
def trained(few, tmp_path_factory):
    """A whole run on a few of the embedded trees."""
    out = tmp_path_factory.mktemp("constituency")
    config = Config(few, 1, out=out, epochs=4, hidden=30)
    return config, main(config)


@pytest.fixture
def dev(few):
    return trees.parse((Path(few) / "c.mrg").read_bytes(), "c.mrg")


@pytest.mark.long
def test_training_beats_right_branching(tmp_path):
    config = Config(out=tmp_path, epochs=6, hidden=60)
    result = main(config)
    assert result["f1"] > 0.8 > 0.3 > result["right_branching_f1"] > 0
    assert result["f1"] == max(row["f1"] for row in numbers(config.out)["history"])


def test_the_model_parses_as_it_did_in_training(trained, dev, tmp_path, capsys):
    config, result = trained
    (tmp_path / "dev").write_text("\n".join(" ".join(t.words) for t in dev))
    capsys.readouterr()
    main(dataclasses.replace(config, predict=str(tmp_path / "dev")))
    printed = capsys.readouterr().out
    assert printed == (config.out / "dev.txt").read_text()
    found = trees.parse(printed.encode(), "printed")
    assert brackets.f1(dev, found)["f1"] == pytest.approx(result["f1"])


def test_evaluating_prints_the_scores_of_training(trained, dev, tmp_path, capsys):
    config, result = trained
    path = tmp_path / "dev.mrg"
    path.write_text("\n".join(map(trees.text, dev)))
    found = main(dataclasses.replace(config, evaluate=str(path)))
    assert found == {name: result[name] for name in found}
    assert set(found) == {"f1", "precision", "recall", "exact"}
    assert f"the parser {100 * result['f1']:>21.2f}" in capsys.readouterr().out
    path.write_text(path.read_text().replace("(NP ", "(PHRASE "))
    fewer = main(dataclasses.replace(config, evaluate=str(path)))
    assert fewer["f1"] < found["f1"] - 0.1
    assert "labels that training lacks, PHRASE (" in capsys.readouterr().err


@pytest.mark.parametrize("loss", thinned(["hinge-l2", "hinge", "crf"], 3))
def test_every_loss_learns(loss, few, tmp_path):
    main(Config(few, 1, loss=loss, out=tmp_path, epochs=2, hidden=30))
    rows = numbers(tmp_path)["history"]
    assert 0 < rows[1]["loss"] < rows[0]["loss"]


def test_scores_do_not_depend_on_who_is_in_the_batch(trained):
    model, vocabulary, _, _ = model_folder.load(trained[0].model_folder, SpanScores)
    sentences = [tree.words for tree in phrases.make(seed=9)[1][:9]]
    corpus = Corpus(vocabulary, sentences)
    model.eval()
    with torch.no_grad():
        together = model(corpus.batch(torch.arange(9)))
        for number, words in enumerate(sentences):
            alone = model(corpus.batch(torch.tensor([number])))[0]
            same = together[number, : len(words), : len(words)]
            torch.testing.assert_close(same, alone)


def test_long_sentences_are_parsed_a_few_at_a_time(trained, monkeypatch):
    model, vocabulary, labels, _ = model_folder.load(
        trained[0].model_folder, SpanScores
    )
    short, long = (["the", "dog", "slept"] * n for n in (1, 30))
    sizes, forward = [], SpanScores.forward

    def watched(self, batch):
        sizes.append(tuple(batch.mask.shape))
        return forward(self, batch)

    monkeypatch.setattr(SpanScores, "forward", watched)
    monkeypatch.setattr(spans, "MOST_SPANS", 12_000)
    found = parse(model, vocabulary, labels, [long, *[short] * 18, long])
    assert sizes == [(16, 3), (2, 3), (1, 90), (1, 90)]
    assert [tree.words for tree in found] == [long, *[short] * 18, long]
    assert parse(model, vocabulary, labels, []) == []


def test_a_model_of_another_kind_is_refused(trained):
    with pytest.raises(ValueError, match=r"format 'TaggerNetwork, version 1'.*--out"):
        model_folder.load(trained[0].model_folder, TaggerNetwork)


def test_a_text_that_is_no_sentence_is_left_out_before_it_takes_minutes(
    trained, tmp_path, capsys
):
    path = tmp_path / "text"
    path.write_text(f"the dog saw it\n{'old ' * 401}\n")
    config = dataclasses.replace(trained[0], predict=str(path))
    capsys.readouterr()
    with pytest.raises(ValueError, match=r"left out 1 of 2 sentences, named"):
        main(config)
    output = capsys.readouterr()
    assert "most 400 words, got 401 in 'old" in output.err
    assert output.out.count("\n") == 1 and " dog)" in output.out
    assert main(dataclasses.replace(config, skip_bad=True)) == {"sentences": 1}
    path.write_text("old " * 40)
    assert main(config) == {"sentences": 1}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"loss": "mse"}, "loss: expected one of crf, hinge, hinge-l2, got 'mse'"),
        ({"held_out": 0}, "held_out: expected at least 1, got 0"),
        ({"epochs": 0}, "epochs: expected at least 1, got 0"),
        ({"resume": True, "evaluate": "x"}, "resume: expected --resume or --evaluate"),
        ({"evaluate": "x"}, "out: expected a trained model, found none"),
        ({"data": "nowhere"}, "nowhere: expected a folder"),
    ],
)
def test_wrong_arguments_are_one_line(wrong, message, tmp_path):
    with pytest.raises((ValueError, OSError), match=message) as caught:
        main(Config(**({"out": tmp_path / "none"} | wrong)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [1, 2]}, "labels: expected strings"),
        ({"labels": 3}, "expected labels, got 3"),
        ({"sizes": {"hidden": "x"}}, "hidden: 'x'"),
        ({"sizes": {"wide": 3}}, "TypeError: .*unexpected keyword argument 'wide'"),
        # says which shape it should have, before any memory is taken
        ({"sizes": {"hidden": 10**6}}, r"expected \(4000000, .* as in config"),
    ],
)
def test_an_edited_model_is_refused(change, message, trained, tmp_path):
    for name in ("vocabulary.json", "model.safetensors"):
        (tmp_path / name).write_bytes((trained[0].model_folder / name).read_bytes())
    config = json.loads((trained[0].model_folder / "config.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        model_folder.load(tmp_path, SpanScores)
