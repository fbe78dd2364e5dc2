"""Training a dependency parser, and parsing with it."""

import dataclasses
import re
from pathlib import Path

import pytest
import torch

import ud_parser
from parsing import grammar, trees
from smoothsp.data import dependencies, read_dependencies
from smoothsp.models import Parser, load
from smoothsp.models.encoder import Encoder
from tests.models.encoders import write_encoder
from tests.recipes.runs import numbers
from ud_parser import Config, main

SMALL = {"hidden": 30, "epochs": 3}


@pytest.fixture(scope="session")
def trained(bank, tmp_path_factory):
    """A whole run on a few of the embedded sentences."""
    config = Config(bank, out=tmp_path_factory.mktemp("parser"), **SMALL)
    return config, main(config)


@pytest.mark.long
def test_training_beats_attaching_to_neighbours(tmp_path):
    config = Config(out=tmp_path, hidden=80, epochs=5)
    result = main(config)
    assert result["uas"] > 0.8 > 0.5 > result["next_uas"] > result["previous_uas"]
    assert result["uas"] >= result["las"] > 0.75
    history = numbers(config.out)["history"]
    assert result["las"] == max(row["las"] for row in history)
    assert (config.out / "parses.png").read_bytes().startswith(b"\x89PNG")


def test_the_model_parses_as_it_did_in_training(trained, tmp_path, capsys):
    config, result = trained
    path = Path(config.data) / "drawn-dev.conllu"
    gold = read_dependencies(path)
    capsys.readouterr()
    main(dataclasses.replace(config, predict=str(path)))
    printed = capsys.readouterr().out
    assert printed == (config.out / "dev.conllu").read_text()
    found = dependencies.parse(printed.encode(), "printed")
    assert trees.attachment(gold, found)["las"] == pytest.approx(result["las"])


def test_evaluating_prints_the_scores_of_training(trained, tmp_path, capsys):
    config, result = trained
    path = tmp_path / "dev.conllu"
    path.write_text((Path(config.data) / "drawn-dev.conllu").read_text())
    found = main(dataclasses.replace(config, evaluate=str(path)))
    assert found == {name: result[name] for name in ("uas", "las")}
    assert f"the parser {100 * result['uas']:>23.2f}" in capsys.readouterr().out
    # of the file alone, and its labels are looked at
    named = re.sub(r"(\t\d+\t)(?!root)[a-z]+", r"\1agent", path.read_text())
    path.write_text(named)
    fewer = main(dataclasses.replace(config, evaluate=str(path)))
    assert fewer["uas"] == found["uas"] and fewer["las"] < found["las"]
    assert "labels that training lacks, agent (" in capsys.readouterr().err


def test_plain_text_is_parsed_as_the_model_cuts_it(trained, tmp_path, capsys):
    texts = ["A dog slept.", "Naïve 日本 ²", "what"]
    (tmp_path / "text").write_text("\n".join(texts))
    capsys.readouterr()
    found = main(dataclasses.replace(trained[0], predict=str(tmp_path / "text")))
    assert found == {"sentences": 3.0}
    printed = capsys.readouterr().out
    parsed = dependencies.parse(printed.encode(), "printed")
    assert [len(s.words) for s in parsed] == [4, 3, 1]
    assert parsed[2].labels == ["root"]
    trees = load(trained[0].model_folder).parse(texts)
    assert printed == "".join(tree.conllu() for tree in trees)
    assert printed.startswith("# text = A dog slept.\n") and "SpaceAfter=No" in printed


@pytest.mark.long
def test_an_encoder_is_trained_along(bank, tmp_path, capsys):
    pytest.importorskip("transformers")
    encoder = str(write_encoder(tmp_path / "encoder"))
    out = tmp_path / "out"
    main(Config(bank, encoder=encoder, epochs=1, hidden=20, out=out))
    printed = capsys.readouterr().out
    assert "weights on" in printed and "epoch  1/1" in printed
    parser = load(out / "model", "cpu")
    assert isinstance(parser, Parser) and parser.network.encoder.mix is not None
    before = Encoder.pretrained(encoder).model.state_dict()
    after = parser.network.encoder.model.state_dict()
    moved = [not torch.equal(before[name], after[name]) for name in before]
    assert sum(moved) > len(moved) / 2
    main(Config(out=out, evaluate=f"{bank}/drawn-dev.conllu"))
    scored = capsys.readouterr().out
    assert re.search(r"the parser +\d+\.\d\d +\d+\.\d\d\n", scored)


def test_a_sentence_that_is_malformed_does_not_take_others_with_it(
    trained, tmp_path, capsys
):
    good = dependencies.text(grammar.make().dev[:2])
    path = tmp_path / "dev.conllu"
    path.write_text(f"1\ta\n\n{good}")
    config = dataclasses.replace(trained[0], predict=str(path))
    capsys.readouterr()
    with pytest.raises(ValueError, match=r"left out 1 of 3 sentences, named"):
        main(config)
    output = capsys.readouterr()
    assert "dev.conllu, line 1: expected 10 columns parted by tabs, got 2" in output.err
    assert len(dependencies.parse(output.out.encode(), "printed")) == 2
    assert main(dataclasses.replace(config, skip_bad=True)) == {"sentences": 2.0}
    path.write_text("1\ta\n")
    with pytest.raises(ValueError, match="left out 1 of 1 sentences"):
        main(dataclasses.replace(config, skip_bad=True))


# every loss, and every structure
@pytest.mark.parametrize(
    ("structure", "loss"),
    [
        ("projective", "hinge-l2"),
        ("spanning-tree", "perturbed"),
        ("sibling", "crf"),
        pytest.param("projective", "crf", marks=pytest.mark.long),
        pytest.param("spanning-tree", "hinge", marks=pytest.mark.long),
        pytest.param("spanning-tree", "crf", marks=pytest.mark.long),
        pytest.param("projective", "hinge", marks=pytest.mark.long),
        pytest.param("spanning-tree", "hinge-l2", marks=pytest.mark.long),
        pytest.param("projective", "perturbed", marks=pytest.mark.long),
        pytest.param("sibling", "hinge", marks=pytest.mark.long),
        pytest.param("sibling", "hinge-l2", marks=pytest.mark.long),
        pytest.param("sibling", "perturbed", marks=pytest.mark.long),
    ],
)
def test_every_loss_learns_for_every_structure(structure, loss, bank, tmp_path):
    options = {"structure": structure, "loss": loss, "epochs": 2, "hidden": 30}
    main(Config(bank, out=tmp_path, **options))
    rows = numbers(tmp_path)["history"]
    assert 0 < rows[1]["loss"] < rows[0]["loss"]
    parser = load(tmp_path / "model", "cpu")
    assert parser.network.structure == structure
    if structure != "spanning-tree":
        found = read_dependencies(tmp_path / "dev.conllu")
        assert not any(trees.crossing(s.heads) for s in found)


def test_scores_do_not_depend_on_who_is_in_the_batch(trained):
    parser = load(trained[0].model_folder, "cpu")
    sentences = [s.words for s in grammar.make(seed=9).dev[:9]]
    corpus = ud_parser.Corpus(parser.vocabulary, sentences)
    with torch.no_grad():
        together = parser.network(corpus.batch(torch.arange(9)))
        for number, words in enumerate(sentences):
            alone = parser.network(corpus.batch(torch.tensor([number])))
            torch.testing.assert_close(together[number, : len(words) + 1], alone[0])


def test_sentences_that_are_all_too_long_to_train_on_are_named(bank, monkeypatch):
    monkeypatch.setattr(ud_parser, "LONGEST", 1)
    with pytest.raises(
        ValueError, match=r"data: expected sentences of at most 1 words"
    ):
        main(Config(bank, out=Path(bank) / "out"))


def test_a_loss_that_is_no_number_ends_the_run(bank, tmp_path, monkeypatch):
    class Wrong(torch.nn.Module):
        def forward(self, structure, gold):
            return structure.score(gold).sum() * torch.inf

    monkeypatch.setattr(ud_parser, "criterion_of", lambda _: Wrong())
    with pytest.raises(ValueError, match=r"loss: expected a finite .* of size"):
        main(Config(bank, out=tmp_path, epochs=1, hidden=5))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"structure": "tree"}, "structure: expected one of spanning-tree, projective"),
        ({"encoder_rate": 0.0}, "encoder_rate: expected a positive number, got 0.0"),
        ({"loss": "mse"}, "loss: expected one of crf, hinge, hinge-l2, perturbed, got"),
        ({"epochs": 0}, "epochs: expected at least 1, got 0"),
        ({"hidden": 0}, "hidden: expected at least 1, got 0"),
        ({"seed": -1}, "seed: expected at least 0, got -1"),
        ({"evaluate": "x", "predict": "x"}, "evaluate: expected --evaluate or --pred"),
        ({"evaluate": "x"}, "out: expected a trained model, found none"),
        ({"data": "nowhere"}, "nowhere: expected a folder"),
    ],
)
def test_wrong_arguments_are_one_line(wrong, message, tmp_path):
    with pytest.raises((ValueError, OSError), match=message) as caught:
        main(Config(**({"out": tmp_path / "none"} | wrong)))
    assert "\n" not in str(caught.value)
