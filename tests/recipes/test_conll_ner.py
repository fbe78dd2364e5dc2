"""Training and predicting."""

import dataclasses
import io
import json
import sys
from pathlib import Path

import pytest
import torch

from conll_ner import Config, command_line, main
from corpora import conll, toy_corpus, wnut17
from smoothsp.metrics import span_f1
from smoothsp.models import load
from smoothsp.models.features import Corpus, Vocabulary
from smoothsp.models.network import Sizes, TaggerNetwork
from smoothsp.schemes import convert
from tests.recipes.runs import EPOCHS, TRAIN, numbers
from tests.sweeps import thinned

TEXT = [["Lake", "Holm", "froze", "."], ["Naïve", "日本", "²", "x" * 50], ["Bell"]]


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


def blocks(output):
    """(score, words, tags) of each tagging that was printed."""
    for block in output.strip().split("\n\n"):
        rows = block.split("\n")
        score = float(rows.pop(0).split()[-1]) if rows[0].startswith("# rank") else None
        pairs = [row.split("\t") for row in rows]
        yield score, *map(list, zip(*pairs, strict=True))


def test_predicting_from_a_file(trained, tmp_path, capsys):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(" ".join(words) for words in TEXT))
    config = dataclasses.replace(trained[0], predict=str(path))
    assert main(config) == {"sentences": 3.0}
    single = list(blocks(capsys.readouterr().out))
    assert [words for _, words, _ in single] == TEXT
    main(dataclasses.replace(config, nbest=4))
    found = list(blocks(capsys.readouterr().out))
    assert len(found) == 12
    for number, best in enumerate(single):
        four = found[4 * number : 4 * number + 4]
        assert four[0][1:] == best[1:]
        scores = [score for score, _, _ in four]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(tags) for _, _, tags in four}) == 4
        assert {tag[0] for _, _, tags in four for tag in tags} <= set("BIO")


def test_predicting_from_standard_input(trained, monkeypatch, capsys):
    text = "".join("\n".join(words) + "\n\n" for words in TEXT).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    main(dataclasses.replace(trained[0], predict="-"))
    assert [words for _, words, _ in blocks(capsys.readouterr().out)] == TEXT


def test_no_more_taggings_than_there_are(trained, tmp_path, capsys):
    (tmp_path / "one").write_text("Bell\n")
    config = dataclasses.replace(trained[0], predict=str(tmp_path / "one"), nbest=100)
    main(config)
    # O, or a span of one word of each of the four types.
    assert len(list(blocks(capsys.readouterr().out))) == 5


def test_the_saved_model_tags_as_it_did_in_training(trained, data, capsys):
    config, result = trained
    main(dataclasses.replace(config, predict=f"{data}/dev.txt"))
    guess = [tags for _, _, tags in blocks(capsys.readouterr().out)]
    gold = [s.tags for s in conll.load(data, "BIO").dev]
    f1 = span_f1(gold, guess)[2]
    assert f1 == pytest.approx(result["dev_f1"], abs=1e-12)


def test_the_folder_of_the_model_needs_nothing_else(trained, data, capsys):
    config, _ = trained
    tagger = load(config.out / "model")
    sentences = conll.load(data, "BIO").dev
    ours = tagger.tag([s.words for s in sentences], batch_size=7)
    main(dataclasses.replace(config, predict=f"{data}/dev.txt"))
    guess = [tags for _, _, tags in blocks(capsys.readouterr().out)]
    assert [tagged.tags for tagged in ours] == guess
    assert tagger.about["settings"]["seed"] == config.seed


def test_what_was_tagged_can_be_trained_on(trained, data, tmp_path, capsys):
    dev, text = Path(data) / "dev.txt", tmp_path / "text"
    words = [s.words for s in conll.load(data, "BIO").dev]
    text.write_text("\n\n".join("\n".join(sentence) for sentence in words))
    main(dataclasses.replace(trained[0], predict=str(text)))
    guessed, both = capsys.readouterr().out, tmp_path / "both"
    both.write_text("".join([Path(data, "train.txt").read_text(), "\n", guessed]))
    splits = conll.load_files(conll.SplitFiles(both, dev, None))
    assert [s.words for s in splits.train[TRAIN:]] == words


@pytest.mark.parametrize("options", [{}, {"nbest": 2}, {"show": "json"}])
def test_what_was_tagged_can_be_evaluated(options, trained, data, tmp_path, capsys):
    capsys.readouterr()
    config = dataclasses.replace(trained[0], predict=f"{data}/dev.txt", **options)
    main(config)
    (tmp_path / "guessed").write_text(capsys.readouterr().out)
    again = {"predict": None, "nbest": 1, "show": "columns"}
    again |= {"evaluate": str(tmp_path / "guessed")}
    found = main(dataclasses.replace(config, **again))
    assert found["f1"] == 1 or (options == {"nbest": 2} and found["f1"] > 0.6)


@pytest.mark.parametrize("scheme", ["IOB1", "BILOU", "BMEWO"])
def test_tags_are_written_in_the_scheme_of_the_input(scheme, trained, tmp_path, capsys):
    sentences = toy_corpus.make(7, 1, 20, 1).dev
    rows = [
        "".join(
            f"{w} {t}\n"
            for w, t in zip(
                s.words, convert(s.tags, source="BIOES", target=scheme), strict=True
            )
        )
        for s in sentences
    ]
    (tmp_path / "text").write_text("\n".join(rows))
    capsys.readouterr()
    main(dataclasses.replace(trained[0], predict=str(tmp_path / "text")))
    guess = [tags for _, _, tags in blocks(capsys.readouterr().out)]
    expected = load(trained[0].model_folder).tag([s.words for s in sentences])
    assert guess == [convert(t.tags, source="BIO", target=scheme) for t in expected]


def test_text_is_cut_as_the_model_cuts_it(trained, tmp_path, capsys):
    texts = ["Lake Holm   didn't freeze.", "Bell left, he said."]
    (tmp_path / "text").write_text("\n".join(texts))
    main(dataclasses.replace(trained[0], predict=str(tmp_path / "text"), show="json"))
    found = [json.loads(x) for x in capsys.readouterr().out.splitlines()]
    expected = load(trained[0].model_folder).tag(texts)
    assert [x["words"] for x in found] == [t.words for t in expected]
    assert [x["text"] for x in found] == texts
    for row in found:
        for span in row["spans"]:
            assert row["text"][span["start"] : span["end"]] == span["text"]


def test_a_bad_sentence_does_not_take_others_with_it(trained, tmp_path, capsys):
    path = tmp_path / "text.jsonl"
    path.write_text('{"words": ["Bell"]}\n{"words": 3}\n{"words": ["a\\tb"]}\n')
    config = dataclasses.replace(trained[0], predict=str(path))
    capsys.readouterr()
    with pytest.raises(ValueError, match=r"^left out 2 of 3 sentences, named above\."):
        main(config)
    output = capsys.readouterr()
    assert [words for _, words, _ in blocks(output.out)] == [["Bell"]]
    assert "text.jsonl, line 2: expected an object with words" in output.err
    assert "columns: expected words without tabs" in output.err
    assert main(dataclasses.replace(config, skip_bad=True)) == {"sentences": 1.0}


@pytest.mark.parametrize(("option", "status"), [([], 1), (["--skip-bad"], 0)])
def test_the_exit_status_says_whether_sentences_were_left_out(
    option, status, trained, tmp_path, monkeypatch, capsys
):
    path = tmp_path / "text.conllu"
    path.write_text("1\tLake\n\n" + "\t".join(["1", "Holm", *"________"]) + "\n")
    command = ["conll_ner.py", "--predict", str(path), "--out", str(trained[0].out)]
    monkeypatch.setattr(sys, "argv", [*command, *option])
    capsys.readouterr()
    ended = None
    try:
        command_line()
    except SystemExit as end:
        ended = end.code
    done = capsys.readouterr()
    assert done.out.startswith("Holm\t") and "Lake" not in done.out
    assert "text.conllu, line 1: expected 10 columns parted by tabs" in done.err
    # Python writes a text to stderr and ends with status 1
    assert ("error: left out 1 of 2 sentences" in str(ended)) == bool(status)
    assert ended is None or status


def test_predictions_as_json_and_in_colour(trained, tmp_path, capsys):
    (tmp_path / "text").write_text("Lake Holm froze .\n")
    config = dataclasses.replace(
        trained[0], predict=str(tmp_path / "text"), nbest=2, confidence=True
    )
    main(dataclasses.replace(config, show="json"))
    found = json.loads(capsys.readouterr().out)
    assert found["words"] == ["Lake", "Holm", "froze", "."]
    assert len(found["others"]) == 1
    assert 0 < found["others"][0]["probability"] <= found["probability"] <= 1
    main(dataclasses.replace(config, show="colour"))
    assert capsys.readouterr().out.count("froze") == 2


# --- parts ---


def test_a_sentence_alone_gets_the_emissions_it_gets_in_a_batch():
    sentences = [s.words for s in toy_corpus.make(train=8).train[:8]]
    vocabulary = Vocabulary.of(sentences, [])
    torch.manual_seed(0)
    labels = ["O", "B-X", "I-X", "E-X", "S-X"]
    model = TaggerNetwork(vocabulary, labels, Sizes(10))
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
