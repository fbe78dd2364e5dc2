import dataclasses
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import checkpoint
import conll
import conll_ner
import toy_corpus
import wnut17
import word_vectors
from conll_ner import Config, main
from ner_features import Corpus, Vocabulary
from ner_network import Tagger

ROOT = Path(__file__).parents[2]
TRAIN, EPOCHS = 250, 5
TEXT = [["Lake", "Holm", "froze", "."], ["Naïve", "日本", "²", "x" * 50], ["Bell"]]


def write_corpus(folder, sizes, seed=3):
    folder.mkdir(parents=True, exist_ok=True)
    splits = toy_corpus.make(seed, *sizes, scheme="BIO")
    for name in ("train", "dev", "test"):
        rows = [
            "".join(f"{w}\t{t}\n" for w, t in zip(s.words, s.tags, strict=True))
            for s in getattr(splits, name)
        ]
        (folder / f"{name}.txt").write_text("\n".join(rows))
    return str(folder)


def numbers(out):
    """All that a run wrote down, but for how long it took."""
    content = json.loads((out / "metrics.json").read_text())
    for row in content["history"]:
        del row["seconds"]
    return content


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), (TRAIN, 40, 20))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("tiny"), (12, 4, 1))


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A whole run: its configuration and what main() answered."""
    config = Config(data, epochs=EPOCHS, out=tmp_path_factory.mktemp("trained"))
    return config, main(config)


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


@pytest.mark.parametrize("loss", ["hinge", "hinge-entropy", "crf", "perceptron"])
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


# --- killed and resumed ---


def start(*arguments):
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    return subprocess.Popen(
        [sys.executable, str(ROOT / "recipes" / "conll_ner.py"), *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_a_run_killed_at_random_moments_ends_with_the_same_numbers(
    trained, data, tmp_path
):
    config, result = trained
    arguments = ["--data", data, "--epochs", str(EPOCHS), "--out", str(tmp_path)]
    chance = random.Random(5)
    for attempt in range(2):
        process = start(*arguments, *(["--resume"] if attempt else []))
        for line in process.stdout:
            if line.startswith("epoch"):
                break
        # Anywhere in the next epoch, or while its checkpoint is written.
        time.sleep(chance.uniform(0, 0.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert not (tmp_path / "metrics.json").exists()
    output, errors = start(*arguments, "--resume").communicate()
    assert "resuming" in output, errors
    assert numbers(tmp_path) == numbers(config.out)
    assert numbers(tmp_path)["result"] == result
    again = checkpoint.load(tmp_path / "checkpoint.pt")
    whole = checkpoint.load(config.out / "checkpoint.pt")
    for part in ("model", "best", "average"):
        for name, weights in whole[part].items():
            assert torch.equal(again[part][name], weights), (part, name)


def test_a_file_killed_while_written_is_the_old_one(tmp_path):
    path = tmp_path / "checkpoint.pt"
    checkpoint.write(path, lambda sink: sink.write(b"old"))

    def half(sink):
        sink.write(b"ne")
        sink.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        checkpoint.write(path, half)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert path.read_bytes() == b"old"
    checkpoint.write(path, lambda sink: sink.write(b"new"))
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "metrics.json"
    checkpoint.write(path, lambda sink: sink.write(b"old"))
    with pytest.raises(ZeroDivisionError):
        checkpoint.write(path, lambda sink: sink.write(b"n") / 0)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_control_c_keeps_the_last_epoch_and_says_how_to_go_on(
    tiny, tmp_path, monkeypatch, capsys
):
    def interrupted(*_):
        raise KeyboardInterrupt

    config = Config(tiny, epochs=2, out=tmp_path / "run")
    whole = main(dataclasses.replace(config, out=tmp_path / "whole"))
    epoch = conll_ner.Run.epoch
    with monkeypatch.context() as patch:
        patch.setattr(
            conll_ner.Run,
            "epoch",
            lambda run, *rest: interrupted() if run.history else epoch(run, *rest),
        )
        arguments = ["--data", tiny, "--epochs", "2", "--out", str(config.out)]
        patch.setattr(sys, "argv", ["conll_ner.py", *arguments])
        with pytest.raises(SystemExit) as stop:
            conll_ner.command_line()
    assert stop.value.code == 130
    assert "stopped; add --resume to continue after epoch 1" in capsys.readouterr().out
    assert main(dataclasses.replace(config, resume=True)) == whole


def test_a_finished_run_resumes_to_its_report(trained):
    config, result = trained
    assert main(dataclasses.replace(config, resume=True)) == result


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "crf"}, "loss: expected hinge-l2 as in the run to resume"),
        ({"mu": 2.0}, "mu: expected 1.0 as in"),
        ({"top_k": 7}, "top_k: expected 5 as in"),
        ({"epochs": 9}, f"epochs: expected {EPOCHS} as in"),
        ({"seed": 2}, "seed: expected 1 as in"),
        ({"data": "tiny"}, f"data: expected {TRAIN + 40} sentences with checksum"),
        ({"embeddings": "vectors"}, "embeddings: expected 0 vectors with checksum"),
    ],
)
def test_resuming_with_other_settings_names_them(
    change, message, trained, tiny, vectors, request
):
    places = {"tiny": tiny, "vectors": str(vectors)}
    change = {name: places.get(value, value) for name, value in change.items()}
    with pytest.raises(ValueError, match=message):
        main(dataclasses.replace(trained[0], resume=True, **change))


# --- prediction ---


def blocks(output):
    """(score, words, tags) of each tagging that was printed."""
    for block in output.strip().split("\n\n"):
        head, *rows = block.split("\n")
        pairs = [row.split("\t") for row in rows]
        yield float(head.split()[-1]), *map(list, zip(*pairs, strict=True))


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
        assert four[0] == best
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
    f1 = conll_ner.span_f1(gold, guess)[2]
    assert f1 == pytest.approx(result["dev_f1"], abs=1e-12)


# --- parts ---


def test_a_sentence_alone_gets_the_emissions_it_gets_in_a_batch():
    sentences = [s.words for s in toy_corpus.make(train=8).train[:8]]
    vocabulary = Vocabulary.of(sentences, [])
    torch.manual_seed(0)
    model = Tagger(
        vocabulary, ["O", "B-X", "I-X", "E-X", "S-X"], 10, torch.device("cpu")
    )
    model.eval()
    torch.nn.init.normal_(model.emissions.window.weight)
    corpus = Corpus(vocabulary, sentences)
    together = model(corpus.batch(torch.arange(8)))
    for number, sentence in enumerate(sentences):
        alone = model(corpus.batch(torch.tensor([number])))[0]
        torch.testing.assert_close(together[number, : len(sentence)], alone)


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("the 1.0 2 3\n1999 4 5 6\n2000 7 8 9\n. . . 0 0 1\n\n")
    return path


def test_word_vectors_are_read_by_normalised_word(vectors):
    found = word_vectors.read(vectors, set())
    assert {word: row.tolist() for word, row in found.items()} == {
        "the": [1, 2, 3],
        "0000": [4, 5, 6],
        ". . .": [0, 0, 1],
    }


def test_rare_words_of_a_long_file_are_kept_only_if_wanted(vectors, monkeypatch):
    monkeypatch.setattr(word_vectors, "FREQUENT", 1)
    assert list(word_vectors.read(vectors, {". . ."})) == ["the", ". . ."]


def test_a_first_line_with_counts_is_skipped(vectors):
    vectors.write_text("1 2\nthe 1 2\n")
    assert list(word_vectors.read(vectors, set())) == ["the"]


def test_training_starts_from_word_vectors(vectors, tiny, tmp_path):
    main(Config(tiny, str(vectors), epochs=1, out=tmp_path))
    saved = checkpoint.load(tmp_path / "checkpoint.pt")
    assert saved["size"] == 3
    row = saved["vocabulary"]["words"].index(". . .") + 2
    start = torch.tensor([0.0, 0, 1])
    # No training sentence has it, so that no step moved it.
    assert torch.equal(saved["best"]["emissions.word.weight"][row], start)


def test_wnut17_is_fetched(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(wnut17, "fetch", lambda: Path(tiny))
    assert main(Config("wnut17", epochs=1, out=tmp_path))["best_epoch"] == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_used_where_there_is_one(trained, capsys):
    main(dataclasses.replace(trained[0], resume=True))
    assert "on cuda" in capsys.readouterr().out


# --- wrong input ---


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "svm"}, "loss: expected one of hinge, hinge-l2, .* got 'svm'"),
        ({"loss": "crf", "mu": 1.0}, "mu: expected none with --loss crf"),
        ({"loss": "hinge", "top_k": 2}, "top_k: expected none with --loss hinge"),
        ({"mu": 0.0}, "mu: expected a positive number, got 0.0"),
        ({"top_k": 0}, "top_k: expected at least 1, got 0"),
        ({"epochs": 0}, "epochs: expected at least 1, got 0"),
        ({"seed": -1}, "seed: expected at least 0, got -1"),
        ({"nbest": 2}, "nbest: expected 1 in training, got 2. Add --predict FILE"),
        ({"predict": "-", "resume": True}, "resume: expected --resume or --predict"),
    ],
)
def test_wrong_settings_are_named(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        main(Config(out=tmp_path, **change))


def test_predicting_without_a_model_says_where_it_was_sought(tmp_path):
    with pytest.raises(FileNotFoundError, match="out: expected a trained model, found"):
        main(Config(out=tmp_path, predict="-"))


def test_resuming_nothing_says_so(tiny, tmp_path):
    with pytest.raises(FileNotFoundError, match="resume: expected a run to continue"):
        main(Config(tiny, out=tmp_path, resume=True))


@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\x03\x04 cut"])
def test_a_damaged_checkpoint_is_reported(content, tmp_path):
    (tmp_path / "checkpoint.pt").write_bytes(content)
    (tmp_path / "text").write_text("Bell\n")
    with pytest.raises(ValueError, match=r"checkpoint.pt: expected a checkpoint"):
        main(Config(out=tmp_path, predict=str(tmp_path / "text")))


def test_a_foreign_checkpoint_is_reported(tmp_path):
    checkpoint.save(tmp_path / "checkpoint.pt", {"weights": torch.zeros(1)})
    with pytest.raises(ValueError, match="expected a checkpoint of this recipe"):
        checkpoint.load(tmp_path / "checkpoint.pt")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a 1 2\nb 1\n", "line 2: expected a word and 2 numbers .* got 2 columns"),
        ("a 1 2\nb 1 2 3\n", "line 2: expected a word and 2 numbers .* got 4 columns"),
        ("a 1 2\n1 2\n", "line 2: expected a word and 2 numbers .* got 2 columns"),
        ("a\n", "line 1: expected a word and some numbers"),
        ("a 1 x\n", "line 1: expected 2 finite numbers after the word"),
        ("a 1 nan\n", "line 1: expected 2 finite numbers after the word"),
        ("", "expected word vectors, got an empty file"),
    ],
)
def test_wrong_word_vectors_are_reported_with_their_line(content, message, tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        word_vectors.read(path, set())


def test_missing_word_vectors_are_reported(tiny, tmp_path):
    with pytest.raises(FileNotFoundError, match="embeddings: expected a text file"):
        main(Config(tiny, str(tmp_path / "none.txt"), out=tmp_path))


def test_a_corpus_without_entities_is_reported(tmp_path):
    for name in ("train.txt", "dev.txt"):
        (tmp_path / name).write_text("Bell O\nrang O\n")
    with pytest.raises(ValueError, match="data: expected named entities"):
        main(Config(str(tmp_path), out=tmp_path / "out"))


def test_the_command_line_reports_without_a_traceback(tmp_path, monkeypatch):
    arguments = ["conll_ner.py", "--data", str(tmp_path / "none")]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit, match=r"error: .*none: expected a folder"):
        conll_ner.command_line()
