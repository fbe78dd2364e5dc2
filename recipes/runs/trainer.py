"""Training of a network: one epoch after another, each kept for ``--resume``."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from tqdm import tqdm

from runs import checkpoint, files
from runs.interrupts import stopping
from smoothsp.divergence import diagnosed, require_sound
from smoothsp.models.resuming import restore
from smoothsp.models.training import running_average, seed_all

RATE, LONGEST_GRADIENT = 2e-3, 5.0
REMEDY = "Look for damaged data, or lower RATE in runs/trainer.py"
SLOW = 0.1
AVERAGE_EVERY = 8


class Run:
    """A model, and all that training changes.

    ``slow`` are weights that are trained already: they move at a share of the rate.
    """

    def __init__(
        self,
        model: nn.Module,
        slow: Iterable[nn.Parameter] = (),
        share: float = SLOW,
    ) -> None:
        self.model = model
        # What is evaluated and saved is a running average of the weights.
        self.average = AveragedModel(model, multi_avg_fn=running_average)
        trained = list(slow)
        known = {id(weight) for weight in trained}
        fresh = [weight for weight in model.parameters() if id(weight) not in known]
        groups = [{"params": fresh, "share": 1.0}]
        if trained:
            groups.append({"params": trained, "share": share})
        self.optimizer = torch.optim.Adam(groups, RATE, betas=(0.9, 0.95), fused=True)
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Tensor] = {}

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "history": self.history,
            "best": self.best,
        }

    def load(self, state: dict[str, Any], by: str) -> None:
        names = ("model", "average", "optimizer")
        parts = {name: getattr(self, name) for name in names}
        needed = ("epoch", "loss", "cpu_seconds", by)
        self.history, self.best = restore(state, parts, self.model, needed)

    def epoch(
        self, loss_of: Callable[[Tensor], Tensor], batches: list[Tensor], epochs: int
    ) -> float:
        """One pass over the batches of sentence numbers: the mean loss."""
        self.model.train()
        step, steps = len(self.history) * len(batches), epochs * len(batches)
        warm = min(len(batches), 100)
        total = 0.0
        title = f"epoch {len(self.history) + 1}/{epochs}"
        for numbers in tqdm(batches, title, leave=False, disable=None):
            rate = RATE * min(1, (step + 1) / warm) * (1 - step / steps)
            for group in self.optimizer.param_groups:
                group["lr"] = rate * group.get("share", 1.0)
            with diagnosed(self.model.parameters(), rate, REMEDY):
                loss = loss_of(numbers)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), LONGEST_GRADIENT)
            self.optimizer.step()
            step += 1
            if step % AVERAGE_EVERY == 0 or step == steps:
                self.average.update_parameters(self.model)
            total += require_sound(loss.item(), rate, None, REMEDY) * len(numbers)
        first = self.history[0]["loss"] if self.history else None
        return require_sound(total / sum(map(len, batches)), RATE, first, REMEDY)

    def keep_if_best(self, row: dict[str, Any], by: str) -> bool:
        """Append a row of the history; remember the weights if it is a record."""
        best = row[by] > max((r[by] for r in self.history), default=-1.0)
        if best:
            weights = self.average.module.state_dict()
            self.best = {name: value.clone() for name, value in weights.items()}
        self.history.append(row)
        return best


def of_at_most(longest: int, sentences: Sequence[Any]) -> list[Any]:
    """Sentences with ``words`` that are not too long to be trained on."""
    found = [sentence for sentence in sentences if len(sentence.words) <= longest]
    if not found:
        raise ValueError(
            f"data: expected sentences of at most {longest} words to train on, got"
            f" {len(sentences)} that are longer"
        )
    return found


def fit(
    run: Run,
    config: Any,
    settings: dict[str, Any],
    *,
    shuffled: Callable[[], list[Tensor]],
    loss_of: Callable[[Tensor], Tensor],
    evaluate: Callable[[nn.Module], dict[str, float]],
    by: str,
    save: Callable[[], None],
) -> None:
    """Train to the last epoch, with a checkpoint after each; end with the best weights.

    Parameters
    ----------
    run
        Made with the same numbers by a run that is resumed.
    config
        Options: ``out``, ``resume``, ``epochs`` and ``seed``.
    settings
        What decides the numbers; a checkpoint with other settings is refused.
    shuffled
        Returns the batches of an epoch.
    loss_of, evaluate
        The loss of a batch, and the scores of a model.
    by
        The score that says which epoch is best.
    save
        Saves the average of ``run``, after an epoch that is the best so far.
    """
    saved = checkpoint.to_resume(config.checkpoint, settings, config.resume)
    if saved:
        checkpoint.use(config.checkpoint, lambda: run.load(saved, by))
    epochs = config.epochs
    for epoch in range(len(run.history) + 1, epochs + 1):
        with stopping(f"epoch {epoch - 1}" if epoch > 1 else ""):
            start, cpu = time.perf_counter(), time.process_time()
            # Random numbers depend on seed and epoch only, so that a resumed run, which
            # begins with a whole epoch, needs no saved generator.
            seed_all(config.seed, epoch)
            loss = run.epoch(loss_of, shuffled(), epochs)
            row = {"epoch": epoch, "loss": loss} | evaluate(run.average.module)
            row["seconds"] = time.perf_counter() - start
            row["cpu_seconds"] = time.process_time() - cpu
            best = run.keep_if_best(row, by)
            checkpoint.save(config.checkpoint, {"settings": settings} | run.state())
            if best:
                save()
        scores = "".join(
            f"  {name.upper()} {100 * row[name]:.2f}"
            for name in row
            if name not in ("epoch", "loss", "seconds", "cpu_seconds")
        )
        print(
            f"epoch {epoch:>2}/{epochs}  loss {loss:8.4f}{scores}"
            f"  {row['cpu_seconds']:.1f} s of CPU",
            flush=True,
        )
    run.average.module.load_state_dict(run.best)
    save()


def finish(
    shown: Path,
    settings: dict[str, Any],
    history: list[dict[str, Any]],
    by: str,
    scores: dict[str, Any],
    result: dict[str, float],
) -> dict[str, float]:
    """Write ``metrics.json`` beside ``shown``; return the chief numbers.

    Parameters
    ----------
    shown
        A file of the run that is worth a look.
    settings, history
        Those of the run.
    by
        The score that says which epoch is best.
    scores
        Scores of each method that is compared.
    result
        Chief numbers; the best epoch and the last loss come first.
    """
    best = max(history, key=lambda row: row[by])
    result = {"best_epoch": float(best["epoch"]), "loss": history[-1]["loss"]} | result
    content = {"settings": settings, "history": history, "result": result}
    files.write_json(shown.parent / "metrics.json", content | {"scores": scores})
    cpu = sum(row["cpu_seconds"] for row in history)
    print(
        f"\nbest epoch {best['epoch']}, {cpu:.0f} s of CPU time for all; see {shown}"
        " and metrics.json beside it"
    )
    return result
