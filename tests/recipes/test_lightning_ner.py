"""The Lightning script trains, and a resumed run is the run that was not cut."""

import ast
import re
import runpy
import signal
import sys
from pathlib import Path

import pytest
import torch

import lightning_ner
from runs import terminal
from smoothsp.metrics import span_f1
from smoothsp.models.features import Corpus, Vocabulary
from tests.recipes.runs import write_corpus
from tests.sweeps import thinned

OPTIMIZERS = ["adam", "prox-linear", "svrg", "casimir"]
FIRST = "loss of the first epoch"
SCRIPT = Path(__file__).parents[2] / "recipes" / "lightning_ner.py"


@pytest.fixture(scope="module")
def sentences(tmp_path_factory):
    """Three batches of sentences to train on, one to validate on."""
    return write_corpus(tmp_path_factory.mktemp("sentences"), (24, 20, 1))


@pytest.fixture
def run(sentences, monkeypatch):
    """Run the script as its command line does; return the checkpoint it leaves."""
    # the script sets it, and lets Ctrl-C end the process
    monkeypatch.setenv("PL_GLOBAL_SEED", "1")
    handler = signal.getsignal(signal.SIGINT)

    def script(out, *options):
        arguments = [str(SCRIPT), "--data", sentences, "--out", str(out), *options]
        monkeypatch.setattr(sys, "argv", arguments)
        runpy.run_path(str(SCRIPT), run_name="__main__")
        return torch.load(out / "last.ckpt", weights_only=True)

    yield script
    signal.signal(signal.SIGINT, handler)


def interrupted_at(epoch):
    """Ctrl-C at the start of an epoch, counted from 1, of any module of Lightning."""
    import pytorch_lightning as pl

    def interrupt(module):
        if module.current_epoch == epoch - 1:
            raise KeyboardInterrupt

    patch = pytest.MonkeyPatch()
    patch.setattr(pl.LightningModule, "on_train_epoch_start", interrupt)
    return patch


# Lightning advises on workers and devices that are not there
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("optimizer", thinned(OPTIMIZERS, 4, 2))
def test_a_resumed_run_equals_an_uninterrupted_one(run, tmp_path, optimizer, capfd):
    pytest.importorskip("pytorch_lightning")
    # what is lost of the optimizer's state shows within two more epochs
    chosen = ("--optimizer", optimizer, "--epochs", "3")
    whole = run(tmp_path / "whole", *chosen)
    patch = interrupted_at(2)
    with pytest.raises(SystemExit):
        run(tmp_path / "cut", *chosen)
    patch.undo()
    if optimizer == "adam":
        [printed] = [x for x in capfd.readouterr().out.splitlines() if x[:1] == "{"]
        assert 0 <= ast.literal_eval(printed)["loss"] < whole[FIRST]
    cut = torch.load(tmp_path / "cut" / "last.ckpt", weights_only=True)
    resumed = run(tmp_path / "cut", *chosen, "--resume")
    assert resumed["epoch"] == whole["epoch"] == cut["epoch"] + 2
    assert resumed["global_step"] == whole["global_step"]
    weights = whole["state_dict"]
    moved = [
        not torch.equal(cut["state_dict"][name], weights[name]) for name in weights
    ]
    assert sum(moved) > len(moved) / 2
    for name, weight in weights.items():
        assert torch.equal(resumed["state_dict"][name], weight), name


@pytest.mark.filterwarnings("ignore")
def test_a_run_goes_on_only_as_it_began(run, tmp_path):
    pytest.importorskip("pytorch_lightning")
    with pytest.raises(SystemExit, match=r"error: --resume: expected a run to"):
        run(tmp_path, "--epochs", "1", "--resume")
    for epochs in ("0", "-3"):
        with pytest.raises(SystemExit, match="error: --epochs: expected at least 1"):
            run(tmp_path, "--epochs", epochs)
    run(tmp_path, "--optimizer", "adam", "--epochs", "1")
    with pytest.raises(SystemExit, match="error: --optimizer: expected adam as in the"):
        run(tmp_path, "--optimizer", "casimir", "--epochs", "1", "--resume")
    other = write_corpus(tmp_path / "other", (12, 4, 2))
    with pytest.raises(
        SystemExit, match=r"error: --data: expected checksum .* got checksum"
    ):
        run(tmp_path, "--optimizer=adam", "--epochs=1", "--resume", "--data", other)


@pytest.mark.filterwarnings("ignore")
def test_a_run_that_had_all_its_epochs_says_again_how_it_ended(run, tmp_path, capfd):
    pytest.importorskip("pytorch_lightning")
    printed = []
    for resume in ([], ["--resume"]):
        run(tmp_path, "--optimizer", "adam", "--epochs", "1", *resume)
        [line] = [x for x in capfd.readouterr().out.splitlines() if x.startswith("{")]
        printed.append(ast.literal_eval(line))
    assert printed[1]["f1"] == printed[0]["f1"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("optimizer", thinned(OPTIMIZERS[:3], 2))
def test_steps_that_are_far_too_long_end_with_a_sentence(run, tmp_path, optimizer):
    pytest.importorskip("pytorch_lightning")
    with pytest.raises(SystemExit, match=r"^error: .* Lower --rate") as end:
        run(tmp_path, "--optimizer", optimizer, "--rate", "1e20")
    assert re.search(r"steps of (size|length) \d\S*e\+\d+", str(end.value))


@pytest.mark.filterwarnings("ignore")
def test_ctrl_c_ends_it_as_other_recipes(sentences, tmp_path, monkeypatch):
    pytest.importorskip("pytorch_lightning")

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(lightning_ner.Tagger, "training_step", interrupt)
    # which the trainer ignores from then on
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as end:
            config = lightning_ner.Config(data=sentences, out=tmp_path)
            terminal.run(lambda: lightning_ner.main(config))
    finally:
        signal.signal(signal.SIGINT, before)
    assert end.value.code == 130


@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_holds_all_that_a_tagger_needs(run, sentences, tmp_path):
    pl = pytest.importorskip("pytorch_lightning")
    run(tmp_path, "--optimizer", "adam", "--epochs", "2")
    tagger = lightning_ner.Tagger.load_from_checkpoint(tmp_path / "best.ckpt")
    assert tagger.hparams.optimizer == "adam"
    words = tagger.hparams.vocabulary["words"]
    assert tagger.embedding.num_embeddings == len(words) + 2
    data = lightning_ner.Data(sentences)
    assert data.vocabulary.words == words
    trainer = pl.Trainer(logger=False, enable_progress_bar=False)
    found = [row for rows in trainer.predict(tagger, data) for row in rows]
    assert len(found) == 20
    assert {tag for row in found for tag in row} <= set(tagger.hparams.labels)
    [metrics] = trainer.validate(tagger, data, verbose=False)
    _, gold = data.parts["dev"]
    order = torch.cat(list(data.loader("dev").sampler)).tolist()
    assert metrics["f1"] == pytest.approx(span_f1([gold[n] for n in order], found)[2])


def test_epochs_have_other_batches_and_the_same_ones_again():
    corpus = Corpus(
        Vocabulary.from_sentences([["a"]], []), [["a"] * (1 + n % 7) for n in range(50)]
    )
    rare = torch.arange(40) > 1
    batches = lightning_ner.Sentences(corpus, 8, rare, seed=1)
    rounds, hidden = [], []
    for epoch in (0, 1, 0):
        batches.set_epoch(epoch)
        rounds.append([batch.tolist() for batch in batches])
        hidden.append(batches.hidden.tolist())
        assert len(rounds[-1]) == len(batches)
        assert sorted(n for batch in rounds[-1] for n in batch) == list(range(50))
    assert rounds[0] == rounds[2] != rounds[1]
    assert hidden[0] == hidden[2] != hidden[1]
    assert not any(hidden[0][:2]) and 10 < sum(hidden[0]) < 30
    quiet = lightning_ner.Sentences(corpus, 8, rare, seed=None)
    assert len([*quiet]) == len(batches) and not quiet.hidden.any()


@pytest.mark.filterwarnings("ignore")
def test_the_vector_of_unknown_words_is_trained(run, tmp_path):
    pytest.importorskip("pytorch_lightning")
    [adam] = run(tmp_path, "--epochs", "2")["optimizer_states"]
    # the second moment of a row that no gradient reaches is 0
    assert adam["state"][0]["exp_avg_sq"][1].min() > 0
