"""Train a named-entity tagger with Lightning; --help lists the options."""

if __name__ == "__main__":
    from runs import sigint

    sigint.default_sigint()

    from ner.lightning_settings import Config
    from runs import start

    start.read_options(Config)

import zlib
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.data import DataLoader, Dataset, Sampler

from corpora import toy_corpus
from ner.lightning_settings import Config, Optimizer
from ner.report import convert_to_bioes
from runs import arguments, interrupts, options, terminal
from smoothsp import LinearChain, constraints
from smoothsp.checkpoints import read, require_same
from smoothsp.data import read_splits, unseen_labels
from smoothsp.divergence import diagnosed, require_sound
from smoothsp.lightning import Snapshots
from smoothsp.losses import L2, StructuralHinge
from smoothsp.metrics import span_f1
from smoothsp.models.features import UNKNOWN, Batch, Corpus, Vocabulary
from smoothsp.optim import SVRG, CasimirSVRG, ProxLinear
from smoothsp.run_folder import held, require_free
from smoothsp.training import seed_all

BATCH, HIDDEN_FRACTION = 8, 0.5
REMEDY = "Lower --rate, or train with --optimizer adam"


class Sentences(Dataset, Sampler):
    """Batches of sentences of like length.

    With a seed, each epoch has other batches, and half of the rare words are unknown in
    it: else no training would ever reach the vector of unknown words.
    """

    def __init__(self, corpus: Corpus, size: int, rare: Tensor, seed: int | None):
        self.corpus, self.size, self.rare = corpus, size, rare
        self.seed, self.epoch, self.hidden = seed, 0, torch.zeros_like(rare)

    def set_epoch(self, epoch: int) -> None:  # which the trainer calls
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.corpus) // self.size)

    def __iter__(self) -> Iterator[Tensor]:
        with torch.random.fork_rng([]):
            seed_all(self.seed or 0, self.epoch if self.seed is not None else 0)
            batches = self.corpus.shuffled_batches(self.size)
            if self.seed is not None:
                self.hidden = self.rare & (torch.rand(len(self.rare)) < HIDDEN_FRACTION)
        yield from batches

    def __getitem__(self, sentences: Tensor) -> Batch:
        batch = self.corpus.batch(sentences)
        word = batch.table.word.masked_fill(self.hidden[batch.table.word], UNKNOWN)
        return batch._replace(table=batch.table._replace(word=word))


class Batches(DataLoader):
    """Goes on in the middle of an epoch, as trainers ask of what has these methods."""

    done = skipped = 0

    def __iter__(self) -> Iterator[Batch]:
        self.done, self.skipped = self.skipped, 0
        for batch in islice(super().__iter__(), self.done, None):
            self.done += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        return {"done": self.done % len(self)}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.skipped = state["done"]


class Data(pl.LightningDataModule):
    def __init__(self, data: str | None = None, seed: int = 1, **columns: Any) -> None:
        super().__init__()
        splits = read_splits(data, **columns) if data else toy_corpus.make()
        self.seed = seed
        self.parts = {}
        for part, sentences in (("train", splits.train), ("dev", splits.dev)):
            tags = convert_to_bioes([s.tags for s in sentences])
            self.parts[part] = [s.words for s in sentences], tags
        words, tags = self.parts["train"]
        types = sorted({tag[2:] for row in tags for tag in row if tag != "O"})
        self.labels = ["O", *(f"{p}-{kind}" for kind in types for p in "BIES")]
        self.vocabulary = Vocabulary.from_sentences(words, [])
        dev_tags = (tag for row in self.parts["dev"][1] for tag in row)
        unseen_labels.warn("dev", dev_tags, self.labels)

    def state_dict(self) -> dict[str, Any]:
        return {"data": f"checksum {zlib.crc32(repr(self.parts).encode()):08x}"}

    def loader(self, part: str, seed: int | None = None) -> DataLoader:
        number = {label: n for n, label in enumerate(self.labels)}
        words, tags = self.parts[part]
        numbers = [[number.get(tag, -1) for tag in row] for row in tags]
        rare = torch.tensor([False] * (UNKNOWN + 1) + self.vocabulary.rare)
        corpus = Corpus(self.vocabulary, words, numbers)
        batches = Sentences(corpus, BATCH, rare, seed)
        return Batches(batches, sampler=batches, batch_size=None)

    def train_dataloader(self) -> DataLoader:
        return self.loader("train", self.seed)

    def val_dataloader(self) -> DataLoader:
        return self.loader("dev")

    predict_dataloader = val_dataloader


class Potentials(nn.Module):
    """All that the loss is convex in: emissions, and the parameters of the chain."""

    def __init__(self, tagger: "Tagger") -> None:
        super().__init__()
        self.tagger = tagger

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        return self.tagger(batch), dict(self.tagger.head.named_parameters())


class OuterIterations(ProxLinear):
    """Makes an outer iteration over a loader where the trainer makes a step."""

    def __init__(self, tagger: "Tagger", loader: DataLoader, rate: float) -> None:
        # steps of the subproblem are of length rate, and leave its centre by 100 times
        subproblem = {"smoothness": 1 / rate, "adaptive": False, "epochs": 1}
        super().__init__(Potentials(tagger), 100 * rate, **subproblem)
        self.tagger, self.loader = tagger, loader

    def closure(self, batch: Batch) -> Tensor:
        emissions, head = self.model(batch)
        inputs = emissions, batch.tags, batch.mask, self.tagger.criterion
        loss = functional_call(self.tagger.head, head, inputs)
        loss.backward()
        return loss

    def step(self, closure: Any = None) -> float:
        self.loader.sampler.set_epoch(self.progress["outer"])
        return super().step(self.closure, self.loader)


class Tagger(pl.LightningModule):
    def __init__(
        self,
        vocabulary: dict[str, Any],
        labels: list[str],
        optimizer: Optimizer = "adam",
        rate: float = 0.01,
        epochs: int = 10,
        seed: int = 1,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.first_loss: float | None = None  # mean loss of the first epoch
        self.losses: list[float] = []
        self.embedding = nn.Embedding(UNKNOWN + 1 + len(vocabulary["words"]), 50)
        self.lstm = nn.LSTM(50, 50, batch_first=True, bidirectional=True)
        self.output = nn.Linear(100, len(labels))
        self.head = LinearChain(len(labels), constraints.bio(labels, "BIOES"))
        self.criterion = StructuralHinge(L2(mu=1.0, k=5))
        self.automatic_optimization = optimizer != "prox-linear"

    def forward(self, batch: Batch) -> Tensor:
        return self.output(self.lstm(self.embedding(batch.table.word[batch.rows]))[0])

    def loss(self, batch: Batch) -> Tensor:
        return self.head(self(batch), batch.tags, batch.mask, self.criterion)

    def training_step(self, batch: Batch) -> Tensor:
        if self.automatic_optimization:
            with diagnosed(self.parameters(), self.hparams.rate, REMEDY):
                loss = self.loss(batch)
        else:  # of the whole epoch, whose only batch this is
            loss = torch.tensor(self.optimizers().step())
        self.losses.append(require_sound(loss.item(), self.hparams.rate, None, REMEDY))
        self.log("loss", loss, prog_bar=True, batch_size=len(batch.tags))
        return loss

    def on_train_epoch_end(self) -> None:
        mean = sum(self.losses) / len(self.losses)
        self.first_loss, self.losses = self.first_loss or mean, []
        require_sound(mean, self.hparams.rate, self.first_loss, REMEDY)

    def on_save_checkpoint(self, saved: dict[str, Any]) -> None:
        saved["loss of the first epoch"] = self.first_loss

    def on_load_checkpoint(self, saved: dict[str, Any]) -> None:
        self.first_loss = saved["loss of the first epoch"]

    def on_validation_epoch_start(self) -> None:
        self.tag_pairs: list[tuple[list[str], list[str]]] = []

    def validation_step(self, batch: Batch) -> None:
        pairs = self.tag_names(batch.tags, batch), self.predict_step(batch)
        self.tag_pairs += zip(*pairs, strict=True)

    def on_validation_epoch_end(self) -> None:
        f1 = span_f1(*zip(*self.tag_pairs, strict=True))[2] if self.tag_pairs else 0.0
        self.log("f1", f1, prog_bar=True, sync_dist=True)  # of ranks: their mean

    def predict_step(self, batch: Batch) -> list[list[str]]:
        return self.tag_names(self.head.decode(self(batch), batch.mask).tags, batch)

    def tag_names(self, tags: Tensor, batch: Batch) -> list[list[str]]:
        name = [*self.hparams.labels, "?"]  # -1 is a label that training lacks
        rows = zip(tags.tolist(), batch.mask.sum(1).tolist(), strict=True)
        return [[name[tag] for tag in row[:length]] for row, length in rows]

    def configure_optimizers(self) -> Any:
        rate, smoothing = self.hparams.rate, self.criterion.smoothing
        if self.hparams.optimizer == "svrg":
            return SVRG(self.parameters(), rate)
        if self.hparams.optimizer == "casimir":
            return CasimirSVRG(self.parameters(), rate, kappa=0.1, smoothing=smoothing)
        if self.hparams.optimizer == "prox-linear":
            loader = self.trainer.datamodule.train_dataloader()
            return OuterIterations(self, loader, rate)
        adam = torch.optim.Adam(self.parameters(), rate)
        steps = int(self.trainer.estimated_stepping_batches)
        decay = torch.optim.lr_scheduler.LinearLR(adam, 1.0, 0.0, steps)
        scheduler = {"scheduler": decay, "interval": "step"}
        return {"optimizer": adam, "lr_scheduler": scheduler}


def main(config: Config) -> dict[str, float]:
    arguments.require_at_least(config, epochs=1, seed=0)
    out, seed, last = config.out, config.seed, config.checkpoint
    require_free(out, config.resume, config.overwrite, last.name)
    with held(out):
        saved = read(last) if config.resume else {}
        pl.seed_everything(seed)
        columns = {x: getattr(config, x) for x in ("column", "word_column", "skip_bad")}
        corpus = Data(config.data, seed, **columns)
        hyper_parameters = {
            x: getattr(config, x) for x in ("optimizer", "rate", "epochs", "seed")
        }
        settings = hyper_parameters | corpus.state_dict()
        began = settings | saved.get("hyper_parameters", {}) | saved.get("Data", {})
        require_same(last, began, settings if config.resume else {})
        model = Tagger(asdict(corpus.vocabulary), corpus.labels, **hyper_parameters)
        checkpoint_options = {
            "dirpath": out,
            "enable_version_counter": False,
        }  # replaces old files
        best = ModelCheckpoint(
            filename="best", monitor="f1", mode="max", **checkpoint_options
        )
        callbacks = [
            Snapshots(),
            best,
            ModelCheckpoint(save_last=True, **checkpoint_options),
        ]
        trainer_options = {
            "max_epochs": config.epochs,
            "default_root_dir": out,
            "callbacks": callbacks,
        }
        if config.optimizer == "prox-linear":
            trainer_options["limit_train_batches"] = 1  # its step is over all of them
        trainer = pl.Trainer(**trainer_options)
        try:
            with interrupts.raise_keyboard_interrupt(lambda: trainer.interrupted):
                trainer.fit(model, corpus, ckpt_path=last if config.resume else None)
        except RuntimeError as error:
            if "lower lr" not in str(error):
                raise
            raise ValueError(f"{error}. {REMEDY}") from error
        if not trainer.callback_metrics:  # it had all its epochs
            trainer.validate(model, corpus, verbose=False)
        return {name: float(x) for name, x in trainer.callback_metrics.items()}


def command_line() -> None:
    terminal.run(lambda: print(main(options.read(Config))))


if __name__ == "__main__":
    command_line()
