"""Train a tagger with Lightning, by Casimir-SVRG or by Adam; --help tells the rest."""

from pathlib import Path
from typing import Literal

import pytorch_lightning as pl
import torch
import tyro
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader

from conll_ner import load_corpus
from ner.settings import Config
from runs import checkpoint, terminal
from runs import folder as run_folder
from smoothsp import LinearChain, constraints
from smoothsp.lightning import Snapshots
from smoothsp.losses import L2, StructuralHinge
from smoothsp.models.features import UNKNOWN, Batch, Corpus, Vocabulary
from smoothsp.optim import CasimirSVRG


class Tagger(pl.LightningModule):
    def __init__(self, words: int, labels: list[str], optimizer: str) -> None:
        super().__init__()
        self.optimizer = optimizer
        self.embedding = nn.Embedding(words, 50)
        self.lstm = nn.LSTM(50, 50, batch_first=True, bidirectional=True)
        self.output = nn.Linear(100, len(labels))
        self.head = LinearChain(len(labels), constraints.bio(labels, "BIOES"))
        self.criterion = StructuralHinge(L2(mu=1.0, k=5))

    def forward(self, batch: Batch) -> Tensor:
        return self.output(self.lstm(self.embedding(batch.table.word[batch.rows]))[0])

    def loss(self, batch: Batch) -> Tensor:
        return self.head.loss(self(batch), batch.tags, batch.mask, self.criterion)

    def training_step(self, batch: Batch) -> Tensor:
        loss = self.loss(batch)
        self.log("loss", loss, prog_bar=True, batch_size=len(batch.tags))
        return loss

    def validation_step(self, batch: Batch) -> None:
        right = self.head.decode(self(batch), batch.mask).tags == batch.tags
        accuracy = right[batch.mask].float().mean()
        self.log("accuracy", accuracy, prog_bar=True, batch_size=len(batch.tags))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        if self.optimizer == "adam":
            return torch.optim.Adam(self.parameters(), lr=1e-2)
        smoothing = self.criterion.smoothing
        return CasimirSVRG(self.parameters(), lr=0.5, kappa=0.1, smoothing=smoothing)


def main(
    data: str | None = None,
    optimizer: Literal["casimir", "adam"] = "casimir",
    epochs: int = 10,
    out: Path = Path("runs/lightning_ner"),
    resume: bool = False,
) -> dict[str, float]:
    """Train on CoNLL files in DATA (an invented corpus without); --resume goes on."""
    with run_folder.held(out):
        return train(data, optimizer, epochs, out, resume)


def train(
    data: str | None, optimizer: str, epochs: int, out: Path, resume: bool
) -> dict[str, float]:
    last = out / "last.ckpt"
    if resume:
        checkpoint.refuse_nan(last, checkpoint.read(last), "the checkpoint")
    pl.seed_everything(1)
    splits = load_corpus(Config(data))
    known = Vocabulary.of([s.words for s in splits.train], [])
    model = Tagger(UNKNOWN + 1 + len(known.words), splits.labels, optimizer)
    number, loaders = {t: n for n, t in enumerate(splits.labels)}, []
    for part in (splits.train, splits.dev):
        tags = [[number.get(t, -1) for t in s.tags] for s in part]
        corpus = Corpus(known, [s.words for s in part], tags)
        batches = corpus.shuffled(32)
        loaders.append(DataLoader(batches, batch_size=None, collate_fn=corpus.batch))
    # a second run in the folder replaces the first one's last.ckpt
    saving = ModelCheckpoint(out, save_last=True, enable_version_counter=False)
    callbacks = [Snapshots(), saving]
    trainer = pl.Trainer(max_epochs=epochs, default_root_dir=out, callbacks=callbacks)
    trainer.fit(model, *loaders, ckpt_path=last if resume else None)
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


if __name__ == "__main__":
    terminal.run(lambda: print(tyro.cli(main)))
