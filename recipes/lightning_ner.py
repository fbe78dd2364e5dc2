"""Train a tagger with Lightning, by Casimir-SVRG or by Adam; --help tells the rest."""

if __name__ == "__main__":
    from runs import start

    start.quietly()

import zlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from conll_ner import load_corpus
from ner.settings import Config
from runs import arguments, checkpoint, folder, interrupts, options, terminal
from smoothsp import LinearChain, constraints
from smoothsp.lightning import Snapshots
from smoothsp.losses import L2, StructuralHinge
from smoothsp.metrics import span_f1
from smoothsp.models.features import UNKNOWN, Batch, Corpus, Vocabulary
from smoothsp.optim import CasimirSVRG


class Sentences(Dataset, Sampler):
    """Batches of sentences of like length, others in each epoch."""

    def __init__(self, corpus: Corpus, size: int, shuffle: bool) -> None:
        self.corpus, self.size, self.shuffle, self.epoch = corpus, size, shuffle, 0

    def set_epoch(self, epoch: int) -> None:  # which the trainer calls
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.corpus) // self.size)

    def __iter__(self) -> Iterator[Tensor]:
        with torch.random.fork_rng([]):
            torch.manual_seed(self.epoch if self.shuffle else 0)
            yield from self.corpus.shuffled(self.size)

    def __getitem__(self, sentences: Tensor) -> Batch:
        return self.corpus.batch(sentences)


class Data(pl.LightningDataModule):
    def __init__(self, data: str | None = None, size: int = 32, **columns: Any) -> None:
        super().__init__()
        splits, self.size = load_corpus(Config(data, **columns)), size
        self.labels = splits.labels
        self.vocabulary = Vocabulary.of([s.words for s in splits.train], [])
        self.parts = {"train": splits.train, "dev": splits.dev}

    def state_dict(self) -> dict[str, Any]:
        return {"data": f"checksum {zlib.crc32(repr(self.parts).encode()):08x}"}

    def loader(self, part: str, shuffle: bool = False) -> DataLoader:
        number = {label: n for n, label in enumerate(self.labels)}
        words = [s.words for s in self.parts[part]]
        tags = [[number.get(t, -1) for t in s.tags] for s in self.parts[part]]
        batches = Sentences(Corpus(self.vocabulary, words, tags), self.size, shuffle)
        return DataLoader(batches, sampler=batches, batch_size=None)

    def train_dataloader(self) -> DataLoader:
        return self.loader("train", shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return self.loader("dev")

    predict_dataloader = val_dataloader


class Tagger(pl.LightningModule):
    def __init__(
        self, vocabulary: dict[str, Any], labels: list[str], optimizer: str = "casimir"
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.embedding = nn.Embedding(UNKNOWN + 1 + len(vocabulary["words"]), 50)
        self.lstm = nn.LSTM(50, 50, batch_first=True, bidirectional=True)
        self.output = nn.Linear(100, len(labels))
        self.head = LinearChain(len(labels), constraints.bio(labels, "BIOES"))
        self.criterion = StructuralHinge(L2(mu=1.0, k=5))

    def forward(self, batch: Batch) -> Tensor:
        return self.output(self.lstm(self.embedding(batch.table.word[batch.rows]))[0])

    def loss(self, batch: Batch) -> Tensor:
        return self.head(self(batch), batch.tags, batch.mask, self.criterion)

    def training_step(self, batch: Batch) -> Tensor:
        loss = self.loss(batch)
        self.log("loss", loss, prog_bar=True, batch_size=len(batch.tags))
        return loss

    def on_validation_epoch_start(self) -> None:
        self.seen: list[tuple[list[str], list[str]]] = []

    def validation_step(self, batch: Batch) -> None:
        pairs = self.named(batch.tags, batch), self.predict_step(batch)
        self.seen += zip(*pairs, strict=True)

    def on_validation_epoch_end(self) -> None:
        f1 = span_f1(*zip(*self.seen, strict=True))[2] if self.seen else 0.0
        self.log("f1", f1, prog_bar=True, sync_dist=True)  # of ranks: their mean

    def predict_step(self, batch: Batch) -> list[list[str]]:
        return self.named(self.head.decode(self(batch), batch.mask).tags, batch)

    def named(self, tags: Tensor, batch: Batch) -> list[list[str]]:
        name = [*self.hparams.labels, "?"]  # -1 is a label that training lacks
        rows = zip(tags.tolist(), batch.mask.sum(1).tolist(), strict=True)
        return [[name[tag] for tag in row[:length]] for row, length in rows]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        if self.hparams.optimizer == "adam":
            return torch.optim.Adam(self.parameters(), lr=1e-2)
        smoothing = self.criterion.smoothing
        return CasimirSVRG(self.parameters(), lr=0.5, kappa=0.1, smoothing=smoothing)


def main(
    data: str | None = None,
    optimizer: Literal["casimir", "adam"] = "casimir",
    epochs: int = 10,
    out: Path = Path("runs/lightning_ner"),
    resume: bool = False,
    overwrite: bool = False,
    column: str | None = None,
    word_column: str | None = None,
    skip_bad: bool = False,
) -> dict[str, float]:
    """Train on CoNLL files in DATA (an invented corpus without); --resume goes on."""
    if epochs < 1:
        raise ValueError(f"epochs: expected at least 1, got {epochs}")
    last = out / "last.ckpt"
    arguments.of_run(SimpleNamespace(**locals(), predict=None, checkpoint=last))
    with folder.held(out):
        saved = checkpoint.read_numbers(last) if resume else {}
        pl.seed_everything(1)
        columns = {"column": column, "word_column": word_column, "skip_bad": skip_bad}
        corpus = Data(data, **columns)
        given = {"optimizer": optimizer} | corpus.state_dict()
        began = given | saved.get("hyper_parameters", {}) | saved.get("Data", {})
        checkpoint.require_same(last, began, given if resume else {})
        model = Tagger(asdict(corpus.vocabulary), corpus.labels, optimizer)
        one = {"dirpath": out, "enable_version_counter": False}  # replaces old files
        best = ModelCheckpoint(filename="best", monitor="f1", mode="max", **one)
        calls = [Snapshots(), best, ModelCheckpoint(save_last=True, **one)]
        trainer = pl.Trainer(max_epochs=epochs, default_root_dir=out, callbacks=calls)
        with interrupts.raised(lambda: trainer.interrupted):
            trainer.fit(model, corpus, ckpt_path=last if resume else None)
        if not trainer.callback_metrics:  # it had all its epochs
            trainer.validate(model, corpus, verbose=False)
        return {name: float(x) for name, x in trainer.callback_metrics.items()}


if __name__ == "__main__":
    terminal.run(lambda: print(options.read(main)))
