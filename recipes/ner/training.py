"""Training of the tagger of ``conll_ner.py``: one epoch after another."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from tqdm import tqdm

from ner import partial
from ner.settings import Config
from smoothsp.models.features import Corpus
from smoothsp.models.network import TaggerNetwork

WINDOW_RATE = 2e-2
# Of the steps of an encoder, how many its rate rises.
WARM_UP = 0.1
LONGEST_GRADIENT = 5.0
AVERAGE_EVERY, AVERAGE_DECAY = 8, 0.96


class Run:
    """A model, and all that training changes."""

    def __init__(self, model: TaggerNetwork, config: Config) -> None:
        self.model, self.config = model, config
        # What is evaluated and saved is a running average of the weights: steadier
        # than the weights themselves, and what makes the perceptron usable.
        self.average = AveragedModel(model, multi_avg_fn=running_average)
        # A move, even to where it is, lays the copied LSTM out in one piece for cuDNN.
        self.average.module.emissions.to(model.device)
        groups = [{"params": model.dense_parameters(), "lr": config.rate}]
        if encoder := model.encoder_parameters():
            groups.append({"params": encoder, "lr": config.encoder_rate})
        self.highest = [group["lr"] for group in groups]
        self.dense = torch.optim.AdamW(
            groups, betas=(0.9, 0.99), weight_decay=0, fused=True
        )
        self.window = torch.optim.Adagrad(
            [model.emissions.window.weight],
            WINDOW_RATE,
            initial_accumulator_value=1e-3,
        )
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Tensor] = {}
        # which labels a number of a tag stands for, if not for one
        self.allowed: Tensor | None = None

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "dense": self.dense.state_dict(),
            "window": self.window.state_dict(),
            "history": self.history,
            "best": self.best,
        }

    def load(self, state: dict[str, Any]) -> None:
        for name in ("model", "average", "dense", "window"):
            getattr(self, name).load_state_dict(state[name])
        self.history, self.best = state["history"], state["best"]

    def epoch(
        self, criterion: nn.Module, corpus: Corpus, rounds: int, steps: int
    ) -> dict[str, Any]:
        """One round of so many steps: its mean loss, how often top-k was exact."""
        epoch = len(self.history) + 1
        # Chance depends on seed and epoch only, so that a resumed run, which begins
        # with a whole epoch, needs no saved generator.
        seed_all(self.config.seed, epoch)
        self.model.train()
        batches: list[Tensor] = []
        while len(batches) < steps:
            batches += corpus.shuffled(self.config.batch)
        batches = batches[:steps]
        step, whole = (epoch - 1) * steps, rounds * steps
        warm = steps if self.model.encoder is None else max(1, int(WARM_UP * whole))
        total, count, exact = 0.0, 0, []
        bar = tqdm(batches, f"epoch {epoch}/{rounds}", leave=False, disable=None)
        for sentences in bar:
            # Up at first; linearly down to zero.
            self._set_rate(min(1, (step + 1) / warm) * (1 - step / whole))
            loss = self._step(criterion, corpus, sentences)
            step += 1
            if step % AVERAGE_EVERY == 0 or step == whole:
                self.average.update_parameters(self.model)
            total += loss * len(sentences)
            count += len(sentences)
            if getattr(criterion, "exact", None) is not None:
                exact.append(criterion.exact)
        fraction = float(torch.cat(exact).double().mean()) if exact else None
        return {"epoch": epoch, "loss": total / count, "exact": fraction}

    def tired(self) -> bool:
        """Were the last rounds, so many as patience says, no better than before?"""
        scores = [row["dev_f1"] for row in self.history]
        patience = self.config.patience
        if patience is None or len(scores) <= patience:
            return False
        return max(scores[-patience:]) <= max(scores[:-patience])

    def keep_if_best(self, row: dict[str, Any]) -> bool:
        """Append a row of the history; remember the weights if its F1 is a record."""
        best = row["dev_f1"] > max((r["dev_f1"] for r in self.history), default=-1.0)
        if best:
            weights = self.average.module.state_dict()
            self.best = {name: value.clone() for name, value in weights.items()}
        self.history.append(row)
        return best

    def _step(self, criterion: nn.Module, corpus: Corpus, sentences: Tensor) -> float:
        batch = corpus.batch(sentences)
        emissions = self.model(batch)
        tags, mask = (x.to(emissions.device) for x in (batch.tags, batch.mask))
        head = self.model.head
        if self.allowed is None:
            loss = head(emissions, tags, mask, loss=criterion)
        else:
            labels = self.allowed.to(tags.device)[tags.clamp(min=0)]
            loss = partial.loss_of(head, emissions, labels, mask, criterion)
        self.dense.zero_grad()
        self.window.zero_grad()
        loss.backward()
        for group in self.dense.param_groups:
            nn.utils.clip_grad_norm_(group["params"], LONGEST_GRADIENT)
        self.dense.step()
        # Said aloud, or PyTorch warns that it does not check its own optimizer.
        with torch.sparse.check_sparse_tensor_invariants(False):
            self.window.step()
        return loss.item()

    def _set_rate(self, factor: float) -> None:
        for group, highest in zip(self.dense.param_groups, self.highest, strict=True):
            group["lr"] = highest * factor
        self.window.param_groups[0]["lr"] = WINDOW_RATE * factor


def running_average(averages: Any, weights: Any, count: Tensor) -> None:
    # Short at first, so that the initial weights are soon forgotten.
    decay = min(AVERAGE_DECAY, (1 + int(count)) / (10 + int(count)))
    get_ema_multi_avg_fn(decay)(averages, weights, count)


def seed_all(seed: int, epoch: int) -> None:
    sequence = np.random.SeedSequence([seed, epoch])
    torch.manual_seed(int(sequence.generate_state(1, np.uint64)[0]))


def tag(model: TaggerNetwork, corpus: Corpus, labels: list[str]) -> list[list[str]]:
    """The best tags of each sentence."""
    model.eval()
    found: list[list[str]] = [[] for _ in range(len(corpus))]
    with torch.no_grad():
        for sentences in corpus.in_order_of_length(64):
            batch = corpus.batch(sentences)
            emissions = model(batch)
            tags = model.head.decode(emissions, batch.mask.to(emissions.device)).tags
            for sentence, row in zip(sentences.tolist(), tags.tolist(), strict=True):
                found[sentence] = [labels[t] for t in row if t >= 0]
    return found
