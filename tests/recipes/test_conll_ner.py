"""Training with the recipe, and what it writes."""

import dataclasses
from pathlib import Path

import pytest
import torch

from conll_ner import Config, main
from corpora import toy_corpus, wnut17
from smoothsp.data import read_tagged
from smoothsp.models import load
from smoothsp.models.features import Corpus, Vocabulary
from smoothsp.models.network import TaggerNetwork, TaggerSizes
from tests.recipes.runs import EPOCHS, numbers
from tests.sweeps import thinned


def test_training_beats_word_look_up(trained):
    result = trained[1]
    for part in ("dev", "test"):
        assert result[f"{part}_f1"] > result[f"{part}_look_up_f1"] + 0.1
    assert result["dev_f1"] > 0.7


def test_the_table_of_seqeval_agrees_with_our_span_f1(trained):
    config, result = trained
    history = numbers(config.out)["history"]
    best = history[int(result["best_epoch"]) - 1]
    assert best["dev_f1"] == max(row["dev_f1"] for row in history)
    assert result["dev_f1"] == pytest.approx(best["dev_f1"], abs=1e-12)


def test_metrics_and_figure_are_written(trained):
    config, result = trained
    content = numbers(config.out)
    assert content["result"] == result
    assert [row["epoch"] for row in content["history"]] == list(range(1, EPOCHS + 1))
    assert all(0 <= row["exact"] <= 1 for row in content["history"])
    assert {"PER", "LOC", "ORG", "MISC", "all"} == content["dev"]["model"].keys()
    png = (config.out / "learning_curve.png").read_bytes()
    assert png.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "loss", thinned(["hinge", "hinge-entropy", "crf", "perceptron"], 4, 2)
)
def test_every_other_loss_learns(loss, data, tmp_path):
    main(Config(data, loss=loss, epochs=2, out=tmp_path))
    history = numbers(tmp_path)["history"]
    assert 0 < history[1]["loss"] < 0.7 * history[0]["loss"]
    assert history[0]["exact"] is None


def test_the_result_depends_on_the_seed_and_on_nothing_else(tiny, tmp_path):
    runs = [
        main(Config(tiny, epochs=2, seed=seed, out=tmp_path / f"{i}"))
        for i, seed in enumerate((1, 1, 2))
    ]
    assert runs[0] == runs[1] != runs[2]


def test_the_folder_of_the_model_scores_as_it_did_in_training(trained, data):
    config, result = trained
    tagger = load(config.out / "model")
    dev = read_tagged(Path(data) / "dev.txt")
    scores = tagger.evaluate(dev, batch_size=7)
    assert scores["f1"] == pytest.approx(result["dev_f1"], abs=1e-12)
    assert tagger.about["settings"]["seed"] == config.seed


# --- parts ---


def test_a_sentence_alone_gets_the_emissions_it_gets_in_a_batch():
    sentences = [s.words for s in toy_corpus.make(train=8).train[:8]]
    vocabulary = Vocabulary.from_sentences(sentences, [])
    torch.manual_seed(0)
    labels = ["O", "B-X", "I-X", "E-X", "S-X"]
    model = TaggerNetwork(vocabulary, labels, TaggerSizes(10))
    model.eval()
    torch.nn.init.normal_(model.emissions.window.weight)
    corpus = Corpus(vocabulary, sentences)
    together = model(corpus.batch(torch.arange(8)))
    for number, sentence in enumerate(sentences):
        alone = model(corpus.batch(torch.tensor([number])))[0]
        torch.testing.assert_close(together[number, : len(sentence)], alone)


def test_wnut17_is_fetched(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(wnut17, "fetch", lambda: Path(tiny))
    assert main(Config("wnut17", epochs=1, out=tmp_path))["best_epoch"] == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_used_where_there_is_one(trained, capsys):
    main(dataclasses.replace(trained[0], resume=True))
    assert "on cuda" in capsys.readouterr().out


# --- wrong input ---
