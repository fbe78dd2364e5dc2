"""Training a dependency parser, and parsing with it."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

import ud_parser
from parsing import conllu, grammar, model_folder, trees
from parsing.biaffine import Biaffine
from tests.recipes.runs import killed
from ud_parser import Config, main

SMALL = {"hidden": 80, "epochs": 5}


@pytest.fixture(scope="session")
def bank(tmp_path_factory):
    """A folder with drawn sentences."""
    folder = tmp_path_factory.mktemp("bank")
    parts = grammar.make(train=150, dev=40)
    for name in ("train", "dev"):
        text = conllu.text(getattr(parts, name))
        (folder / f"drawn-{name}.conllu").write_text(text)
    return str(folder)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A whole run on the embedded sentences."""
    config = Config(out=tmp_path_factory.mktemp("parser"), **SMALL)
    return config, main(config)


def numbers(out):
    content = json.loads((out / "metrics.json").read_text())
    for row in content["history"]:
        del row["seconds"], row["cpu_seconds"]
    return content


def test_training_beats_attaching_to_neighbours(trained):
    config, result = trained
    assert result["uas"] > 0.8 > 0.5 > result["next_uas"] > result["previous_uas"]
    assert result["uas"] >= result["las"] > 0.75
    history = numbers(config.out)["history"]
    assert result["las"] == max(row["las"] for row in history)
    assert (config.out / "parses.png").read_bytes().startswith(b"\x89PNG")


def test_the_model_parses_as_it_did_in_training(trained, tmp_path, capsys):
    config, result = trained
    gold = grammar.make().dev
    path = tmp_path / "dev.conllu"
    path.write_text(conllu.text(gold))
    capsys.readouterr()
    main(dataclasses.replace(config, predict=str(path)))
    printed = capsys.readouterr().out
    assert printed == (config.out / "dev.conllu").read_text()
    found = conllu.parse(printed.encode(), "printed")
    assert trees.attachment(gold, found)["las"] == pytest.approx(result["las"])


def test_plain_text_is_parsed(trained, tmp_path, capsys):
    (tmp_path / "text").write_text("A dog slept .\nNaïve 日本 ²\nwhat\n")
    capsys.readouterr()
    found = main(dataclasses.replace(trained[0], predict=str(tmp_path / "text")))
    assert found == {"sentences": 3.0}
    parsed = conllu.parse(capsys.readouterr().out.encode(), "printed")
    assert [len(s.words) for s in parsed] == [4, 3, 1]
    assert parsed[2].labels == ["root"]


def test_a_sentence_that_is_malformed_does_not_take_others_with_it(
    trained, tmp_path, capsys
):
    good = conllu.text(grammar.make().dev[:2])
    path = tmp_path / "dev.conllu"
    path.write_text(f"1\ta\n\n{good}")
    config = dataclasses.replace(trained[0], predict=str(path))
    capsys.readouterr()
    with pytest.raises(ValueError, match=r"left out 1 of 3 sentences, named"):
        main(config)
    told = capsys.readouterr()
    assert "dev.conllu, line 1: expected 10 columns parted by tabs, got 2" in told.err
    assert len(conllu.parse(told.out.encode(), "printed")) == 2
    assert main(dataclasses.replace(config, skip_bad=True)) == {"sentences": 2.0}
    path.write_text("1\ta\n")
    with pytest.raises(ValueError, match="left out 1 of 1 sentences"):
        main(dataclasses.replace(config, skip_bad=True))


# every loss, and both structures
@pytest.mark.parametrize(
    ("structure", "loss"),
    [
        ("projective", "crf"),
        ("spanning-tree", "hinge"),
        ("projective", "hinge-l2"),
        ("spanning-tree", "perturbed"),
        pytest.param("spanning-tree", "crf", marks=pytest.mark.long),
        pytest.param("projective", "hinge", marks=pytest.mark.long),
        pytest.param("spanning-tree", "hinge-l2", marks=pytest.mark.long),
        pytest.param("projective", "perturbed", marks=pytest.mark.long),
    ],
)
def test_every_loss_learns_for_every_structure(structure, loss, bank, tmp_path):
    config = Config(bank, structure, loss, out=tmp_path, epochs=2, hidden=30)
    main(config)
    rows = numbers(tmp_path)["history"]
    assert 0 < rows[1]["loss"] < rows[0]["loss"]
    if structure == "projective":
        found = conllu.read(tmp_path / "dev.conllu")
        assert not any(trees.crossing(s.heads) for s in found)


def test_a_killed_run_that_is_resumed_ends_as_one_that_was_not(bank, tmp_path):
    whole = Config(bank, out=tmp_path / "whole", epochs=2, hidden=30)
    main(whole)
    cut = dataclasses.replace(whole, out=tmp_path / "cut")
    killed(ud_parser.Run, "epoch", 1, lambda: main(cut))
    main(dataclasses.replace(cut, resume=True))
    assert numbers(cut.out) == numbers(whole.out)
    for other in ({"loss": "hinge"}, {"hidden": 31}, {"seed": 2}):
        with pytest.raises(
            ValueError, match=f"{next(iter(other))}: expected .* resume"
        ):
            main(dataclasses.replace(cut, resume=True, **other))


def test_scores_do_not_depend_on_who_is_in_the_batch(trained):
    model, vocabulary, *_ = model_folder.load(trained[0].model, Biaffine)
    sentences = grammar.make(seed=9).dev[:9]
    corpus = ud_parser.Corpus(vocabulary, [s.words for s in sentences])
    model.eval()
    with torch.no_grad():
        together, _ = model(corpus.batch(torch.arange(9)))
        for number, sentence in enumerate(sentences):
            alone, _ = model(corpus.batch(torch.tensor([number])))
            size = len(sentence.words) + 1
            torch.testing.assert_close(together[number, :size, :size], alone[0])


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
        ({"loss": "mse"}, "loss: expected one of crf, hinge, hinge-l2, perturbed, got"),
        ({"epochs": 0}, "epochs: expected at least 1, got 0"),
        ({"hidden": 0}, "hidden: expected at least 1, got 0"),
        ({"seed": -1}, "seed: expected at least 0, got -1"),
        ({"resume": True, "predict": "x"}, "resume: expected --resume or --predict"),
        ({"resume": True}, "resume: expected a run to continue"),
        ({"predict": "x"}, "out: expected a trained model, found none"),
        ({"data": "nowhere"}, "nowhere: expected a folder"),
    ],
)
def test_wrong_arguments_are_one_line(wrong, message, tmp_path):
    with pytest.raises((ValueError, OSError), match=message) as caught:
        main(Config(**({"out": tmp_path / "none"} | wrong)))
    assert "\n" not in str(caught.value)


def test_a_damaged_model_is_refused(trained, tmp_path):
    for name in ("config.json", "vocabulary.json", "model.safetensors"):
        (tmp_path / name).write_bytes((trained[0].model / name).read_bytes())
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match=r"model\.safetensors: expected the content"):
        model_folder.load(tmp_path, Biaffine)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [1, 2]}, "AttributeError: 'int' object has no attribute 'split'"),
        ({"labels": 3}, "TypeError"),
        ({"about": None}, "KeyError: 'about'"),
        ({"sizes": {"hidden": "x"}}, "TypeError"),
        ({"sizes": {"wide": 3}}, "TypeError: .*unexpected keyword argument 'wide'"),
        # says which shape it should have, before any memory is taken
        ({"sizes": {"hidden": 10**6}}, "RuntimeError: .* size mismatch for"),
    ],
)
def test_an_edited_model_is_refused(change, message, trained, tmp_path):
    for name in ("vocabulary.json", "model.safetensors"):
        (tmp_path / name).write_bytes((trained[0].model / name).read_bytes())
    config = json.loads((trained[0].model / "config.json").read_text()) | change
    kept = {name: value for name, value in config.items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(kept))
    with pytest.raises(ValueError, match=f"of another version .{message}"):
        model_folder.load(tmp_path, Biaffine)
