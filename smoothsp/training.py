"""Training of any network with a structured loss, by PyTorch Lightning.

Needs the extra ``lightning``: ``pip install "smoothsp[lightning]"``.
"""

import difflib
import inspect
import logging
import math
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import get_ema_multi_avg_fn
from tqdm import tqdm

try:
    from pytorch_lightning import LightningModule, Trainer
    from pytorch_lightning.callbacks import (
        Callback,
        ModelCheckpoint,
        TQDMProgressBar,
        WeightAveraging,
    )
    from pytorch_lightning.plugins.io import TorchCheckpointIO
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f'smoothsp.training: needs {error.name}: pip install "smoothsp[lightning]"',
        name=error.name,
    ) from error

from smoothsp import checkpoints
from smoothsp.divergence import diagnosed, require_sound
from smoothsp.optim import _states
from smoothsp.run_folder import CHECKPOINT, is_main_process

__all__ = [
    "Fitted",
    "Jointly",
    "RunningAverage",
    "StructuredModule",
    "fit",
    "one_thread",
    "seed_all",
]

AVERAGE_PERIOD, AVERAGE_DECAY = 8, 0.96
MAX_GRADIENT_NORM = 5.0
STATE = "smoothsp"
LAUNCHER = "lightning_fabric.strategies.launchers.subprocess_script"
# Keywords of the Trainer that ``fit`` sets, and the argument to pass instead.
RESERVED_KEYWORDS = {
    **dict.fromkeys(("max_epochs", "min_epochs", "max_steps", "min_steps"), "epochs"),
    "enable_checkpointing": "out",
    **dict.fromkeys(
        (
            "check_val_every_n_epoch",
            "fast_dev_run",
            "inference_mode",
            "limit_train_batches",
            "limit_val_batches",
            "val_check_interval",
        ),
        "",
    ),
}
Row = dict[str, Any]


@dataclass(frozen=True)
class Fitted:
    """Result of ``fit``.

    Examples
    --------
    >>> fitted = Fitted([{"epoch": 1, "loss": 0.5, "f1": 0.9}])
    >>> fitted.history[-1]["f1"], fitted.interrupted
    (0.9, False)
    """

    history: list[Row]
    """One row an epoch: number, mean loss, scores, seconds and CPU seconds."""
    interrupted: bool = False
    """Whether Ctrl-C ended the training."""


def seed_all(seed: int, *further: int) -> None:
    """Seed torch's generators with several numbers, such as a seed and an epoch."""
    sequence = np.random.SeedSequence([seed, *further])
    torch.manual_seed(int(sequence.generate_state(1, np.uint64)[0]))


class Jointly(Optimizer):
    """Several optimizers as one: each steps its parameter groups.

    Lightning's automatic optimization takes one optimizer.

    Examples
    --------
    >>> network = nn.Linear(2, 1)
    >>> weight = torch.optim.Adam([network.weight], 0.1)
    >>> both = Jointly(weight, torch.optim.SGD([network.bias], 0.01))
    >>> [group["lr"] for group in both.param_groups]
    [0.1, 0.01]
    """

    def __init__(self, *parts: Optimizer) -> None:
        self.parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})

    def step(self, closure: Any = None) -> Any:
        """Evaluate the closure once, then take the step of each part."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # set explicitly: PyTorch warns that Adagrad checks no sparse gradients
        with torch.sparse.check_sparse_tensor_invariants(False):  # type: ignore[no-untyped-call]
            for part in self.parts:
                part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return the states of the parts."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the states of the parts."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self.param_groups = [
            group for part in self.parts for group in part.param_groups
        ]


class RunningAverage(WeightAveraging):
    """Exponential running average of the weights, after every eighth step and the last.

    Epochs of fewer steps update it once each.

    The decay is ``min(0.96, (1 + n) / (10 + n))`` after n updates: short at first, so
    that the initial weights are soon forgotten.

    Parameters
    ----------
    steps
        Number of steps of the training.
    epoch
        Number of steps of an epoch.

    Examples
    --------
    >>> trainer = Trainer(callbacks=[RunningAverage(1000, 125)])  # doctest: +SKIP
    """

    def __init__(self, steps: int, epoch: int) -> None:
        super().__init__(use_buffers=False, multi_avg_fn=_update_average)
        self.steps, self.period = steps, min(AVERAGE_PERIOD, epoch)

    def should_update(
        self, step_idx: int | None = None, epoch_idx: int | None = None
    ) -> bool:
        """Return whether the average is updated after this step."""
        if step_idx is None:
            return False
        return (step_idx + 1) % self.period == 0 or step_idx + 1 == self.steps


def _update_average(averages: Any, weights: Any, count: Tensor | int) -> None:
    """Update averages in place: decay * average + (1 - decay) * weight."""
    decay = min(AVERAGE_DECAY, (1 + int(count)) / (10 + int(count)))
    average: Any = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
    average(averages, weights, count)


@dataclass(frozen=True)
class _SharedParts:
    """Attributes that a module shares with its copy, which has the averaged weights.

    ``copy.deepcopy`` returns the same object.
    """

    loss: Callable[[Tensor], Tensor]
    batches: Callable[[], Sequence[Tensor]]
    evaluate: Callable[[], dict[str, float]]
    save: Callable[[dict[str, Any]], None] | None
    optimizer: Optimizer
    scheduler: LambdaLR | None

    def __deepcopy__(self, memo: Any) -> "_SharedParts":
        return self


class StructuredModule(LightningModule):
    """Network, loss and scores as a module that any Lightning ``Trainer`` fits.

    ``fit`` creates one, and a trainer for it. Create one yourself to use your own
    trainer. For your own steps, loaders and logs see ``recipes/lightning_ner.py``.

    Parameters
    ----------
    network, loss, batches, evaluate, monitor, optimizer
        As for :func:`fit`.
    schedule
        Factor of all learning rates at each step, from 0; None: constant rates.
    seed, clip, save, settings
        As for :func:`fit`.

    Examples
    --------
    >>> module = StructuredModule(network, loss, ...)  # doctest: +SKIP
    >>> Trainer(max_epochs=8).fit(module)  # doctest: +SKIP
    """

    def __init__(
        self,
        network: nn.Module,
        loss: Callable[[Tensor], Tensor],
        batches: Callable[[], Sequence[Tensor]],
        evaluate: Callable[[], dict[str, float]],
        *,
        monitor: str,
        optimizer: Optimizer,
        schedule: Callable[[int], float] | None = None,
        seed: int = 0,
        clip: float | None = MAX_GRADIENT_NORM,
        patience: int | None = None,
        save: Callable[[dict[str, Any]], None] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        scheduler = None if schedule is None else LambdaLR(optimizer, schedule)
        self.shared = _SharedParts(loss, batches, evaluate, save, optimizer, scheduler)
        self.monitor, self.seed, self.clip = monitor, seed, clip
        self.patience = patience
        self.settings = dict(settings or {})
        self.history: list[Row] = []
        self.best: dict[str, Tensor] = {}
        self.total, self.count, self.in_epoch = 0.0, 0, False
        self.began: tuple[float, float] | None = None

    def train_dataloader(self) -> "_Epochs":
        """Return the loader of the batches of each epoch."""
        return _Epochs(self)

    def val_dataloader(self) -> list[int]:
        """Return a loader of one dummy batch: ``evaluate`` scores all held-out data."""
        return [0]

    def transfer_batch_to_device(
        self, batch: Any, device: torch.device, dataloader_idx: int
    ) -> Any:
        """Return the batch unchanged: the indices of examples stay on the CPU."""
        return batch

    def on_train_epoch_start(self) -> None:
        """Reset the mean loss and start the clocks."""
        self.network.train()
        self.total, self.count, self.in_epoch = 0.0, 0, True
        self.began = time.perf_counter(), time.process_time()

    def loss(self, batch: tuple[Tensor, float]) -> Tensor:
        """Mean loss of a batch, for :class:`~smoothsp.lightning.Snapshots`."""
        return self.shared.loss(batch[0])

    def training_step(self, batch: tuple[Tensor, float], batch_idx: int) -> Tensor:
        """Return the mean loss of a batch times the weight of this process in it."""
        examples, weight = batch
        rate = self.shared.optimizer.param_groups[0]["lr"]
        with diagnosed(self.network.parameters(), rate):
            loss = self.shared.loss(examples)
        value = require_sound(loss.item(), rate)
        if weight:
            self.total += value * len(examples)
            self.count += len(examples)
        if self.trainer.loggers or self.trainer.progress_bar_callback is not None:
            self.log("loss", value, prog_bar=True, batch_size=len(examples))
        return loss if weight == 1 else loss * weight

    def configure_optimizers(self) -> Any:
        """Return the optimizer, with its learning-rate schedule."""
        optimizer, scheduler = self.shared.optimizer, self.shared.scheduler
        if scheduler is None:
            return optimizer
        steps = {"scheduler": scheduler, "interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": steps}

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the gradients of each group that has no ``"clip": False``."""
        max_norm = gradient_clip_val or self.clip
        if not max_norm:
            return
        for group in optimizer.param_groups:
            if not group.get("clip", True):
                continue
            if gradient_clip_algorithm == "value":
                nn.utils.clip_grad_value_(group["params"], max_norm)
            else:
                nn.utils.clip_grad_norm_(group["params"], max_norm)

    def validation_step(self, batch: int, batch_idx: int) -> None:
        """Evaluate the averaged weights; store and save them if they are the best."""
        scores = self.shared.evaluate() if self.trainer.is_global_zero else {}
        scores = self.trainer.strategy.broadcast(scores)
        if not _is_finite(scores.get(self.monitor)):
            raise ValueError(
                f"monitor: expected the name of a finite score, got {self.monitor!r}"
                f" of {scores}"
            )
        if not self.in_epoch:
            # called by Trainer.validate or the sanity check: no epoch to record
            self._log_scores(scores)
            return
        sums = torch.tensor([self.total, self.count], dtype=torch.float64, device="cpu")
        if self.trainer.world_size > 1:
            sums = self.trainer.strategy.reduce(sums.to(self.device), reduce_op="sum")
        first = self.history[0]["loss"] if self.history else None
        rate = max(group["lr"] for group in self.shared.optimizer.param_groups)
        loss = require_sound(float(sums[0] / sums[1]), rate, first)
        row = {"epoch": self.current_epoch + 1, "loss": loss, **scores}
        assert self.began is not None
        wall, cpu = self.began
        row["seconds"] = time.perf_counter() - wall
        row["cpu_seconds"] = time.process_time() - cpu
        self._log_scores(scores)
        best = row[self.monitor] > max(
            (past[self.monitor] for past in self.history), default=-math.inf
        )
        self.history.append(row)
        if best or not self.best:
            weights = self.network.state_dict()
            self.best = {name: x.detach().cpu().clone() for name, x in weights.items()}
            if self.shared.save is not None and self.trainer.is_global_zero:
                self.shared.save({"history": self.history})

    def _log_scores(self, scores: Mapping[str, float | None]) -> None:
        """Log the scores that are not None."""
        logged = {name: float(x) for name, x in scores.items() if x is not None}
        self.log_dict(logged, batch_size=1)

    def on_train_epoch_end(self) -> None:
        """Print the scores of the epoch; stop training if out of patience."""
        self.in_epoch = False
        if self.history:
            _print_line(_format_row(self.history[-1], self.trainer.max_epochs))
        if self.out_of_patience():
            self.trainer.should_stop = True

    def out_of_patience(self) -> bool:
        """Return whether the last ``patience`` epochs were no better than before."""
        scores = [row[self.monitor] for row in self.history]
        if self.patience is None or len(scores) <= self.patience:
            return False
        return bool(max(scores[-self.patience :]) <= max(scores[: -self.patience]))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add settings, history and best weights."""
        run_state = {
            "settings": self.settings,
            "history": self.history,
            "best": self.best,
        }
        checkpoint[STATE] = run_state

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Validate the whole checkpoint, then restore history and best weights."""
        run_state = checkpoint[STATE]
        if not (checkpoint["pytorch-lightning_version"] and checkpoint["callbacks"]):
            raise ValueError("no version or callbacks")
        history = run_state["history"]
        _states.require_history("history", history, ("epoch", "loss", self.monitor))
        done = checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"]["ready"]
        if not done == checkpoint["epoch"] + 1 == len(history):
            raise ValueError(f"{len(history)} epochs in its history of {done}")
        _states.require_tensors("best", self.network.state_dict(), run_state["best"])
        for name in ("state_dict", "current_model_state"):
            if name in checkpoint:
                _states.require_tensors(name, self.state_dict(), checkpoint[name])
        if "current_model_state" in checkpoint:
            count = {"n_averaged": torch.tensor(0, device="cpu")}
            averaging = "averaging_state"
            _states.require_tensors(averaging, count, checkpoint[averaging])
        if self.shared.scheduler is not None:
            schedules = [self.shared.scheduler.state_dict()]
            _states.require_same_structure(
                "lr_schedulers", schedules, checkpoint["lr_schedulers"]
            )
        weights = checkpoint.get("current_model_state", checkpoint["state_dict"])
        saved: dict[Tensor, Tensor] = {
            p: weights[name] for name, p in self.named_parameters()
        }
        (state,) = checkpoint["optimizer_states"]
        optimizer = self.shared.optimizer
        parts, states = [optimizer], [state]
        if isinstance(optimizer, Jointly):
            parts, states = list(optimizer.parts), state["parts"]
        for part, part_state in zip(parts, states, strict=True):
            if type(part).__module__.startswith("torch.optim"):
                _states.require_optimizer("optimizer", part, part_state, saved)
        self.history, self.best = list(history), run_state["best"]


@dataclass
class _Epochs:
    """Loader of (example indices, weight of this process) for each batch of an epoch.

    The generator is seeded by seed and epoch, so that a resumed run, which starts at
    an epoch, needs no saved generator state.
    """

    module: StructuredModule
    length: int = field(init=False)

    def __post_init__(self) -> None:
        with torch.random.fork_rng():
            self.length = len(self.module.shared.batches())

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[tuple[Tensor, float]]:
        module, trainer = self.module, self.module.trainer
        rank, processes = trainer.global_rank, trainer.world_size
        epoch = module.current_epoch + 1
        seed_all(module.seed, epoch)
        batches = module.shared.batches()
        if processes == 1:
            yield from ((examples, 1.0) for examples in batches)
            return
        if rank:
            seed_all(module.seed, epoch, rank)
        for examples in batches:
            rank_examples = examples[rank::processes]
            # DDP averages gradients over processes: with these weights the average
            # is the gradient of the mean over the batch
            weight = len(rank_examples) * processes / len(examples)
            # a process without examples still takes part in the reduction
            yield (rank_examples, weight) if weight else (examples[:1], 0.0)


class _Checkpoints(TorchCheckpointIO):
    """Checkpoints that are written atomically and loaded without running code."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        checkpoints.write(Path(path), checkpoint)

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: Any = None
    ) -> dict[str, Any]:
        return checkpoints.read(Path(path))


def fit(
    network: nn.Module,
    loss: Callable[[Tensor], Tensor],
    batches: Callable[[], Sequence[Tensor]],
    evaluate: Callable[[], dict[str, float]],
    *,
    monitor: str,
    optimizer: Optimizer,
    epochs: int,
    seed: int = 0,
    warm_up: int | None = 0,
    clip: float | None = MAX_GRADIENT_NORM,
    average: bool = True,
    patience: int | None = None,
    save: Callable[[dict[str, Any]], None] | None = None,
    settings: Mapping[str, Any] | None = None,
    out: Path | None = None,
    resume: bool = False,
    trainer: Mapping[str, Any] | None = None,
) -> Fitted:
    """Train a network; it ends with the weights of the best epoch, in evaluation mode.

    After each epoch a line is printed on standard error, with scores from 0 to 1 in
    percent. Ctrl-C after the first epoch ends the training with the best weights so
    far.

    Parameters
    ----------
    network
        Network to train, in place.
    loss
        Mean loss of the examples with these numbers, int64, by the current weights.
    batches
        Numbers of the examples of each batch of an epoch. Random numbers are drawn from
        torch's default generator, which is seeded by ``seed`` and the epoch. With
        several processes each takes its part of each batch.
    evaluate
        Scores of the network on held-out data; called in evaluation mode, with averaged
        weights.
    monitor
        Name of the score that chooses the best epoch. Larger is better.
    optimizer
        Optimizer of the network. The ``lr`` of each group is the highest one.
    epochs
        Number of passes over ``batches``.
    seed
        Seed of all random numbers of the training.
    warm_up
        Number of batches in which rates rise linearly; they fall linearly to 0 from the
        first step on. None: rates stay as they are.
    clip
        Longest gradient of each group of the optimizer; longer ones are scaled. None,
        or ``"clip": False`` in a group: they are not.
    average
        Evaluate and keep a running average of the weights
        (:class:`RunningAverage`) in place of the weights.
    patience
        Number of epochs in a row without a better score that end the training.
    save
        Function that writes the model; called after each best epoch with
        ``{"history": ...}``, while the network has the averaged weights.
    settings
        Values that determine the numbers: a resumed run must have the same ones.
    out
        Folder for ``checkpoint.ckpt``, which is written after each epoch.
    resume
        Continue from this checkpoint. On one device the result is the same, bit for
        bit, as without the interruption.
    trainer
        Keywords of :class:`pytorch_lightning.Trainer`: ``devices``, ``strategy``,
        ``precision``, ``logger``, ``callbacks``, ...

    Raises
    ------
    FileNotFoundError
        If there is no checkpoint to resume from.
    TypeError
        If the trainer has no such keyword.
    ValueError
        If training diverges, if the checkpoint is damaged or was made with other
        settings, or if a keyword of the trainer is a parameter of this function.
    """
    trainer_options = _validate_trainer_options({} if trainer is None else trainer)
    if patience is not None and patience < 1:
        raise ValueError(f"patience: expected at least 1, got {patience}")
    run_settings = {"epochs": epochs, "seed": seed, "warm_up": warm_up, "clip": clip}
    # settings of the caller come first, so that errors of a resumed run name them first
    settings = {
        **(settings or {}),
        **run_settings,
        "average": average,
        **(settings or {}),
    }
    accumulated = trainer_options.get("accumulate_grad_batches", 1)
    steps = epochs * -(-_count_batches(batches) // accumulated)
    module = StructuredModule(
        network,
        loss,
        batches,
        evaluate,
        monitor=monitor,
        optimizer=optimizer,
        schedule=None
        if warm_up is None
        else _Schedule(-(-warm_up // accumulated), steps),
        seed=seed,
        clip=clip,
        patience=patience,
        save=save,
        settings=settings,
    )
    path = None if out is None else Path(out) / CHECKPOINT
    callbacks: list[Callback] = (
        [RunningAverage(steps, steps // epochs)] if average else []
    )
    if path is not None:
        callbacks.append(
            ModelCheckpoint(
                path.parent,
                path.stem,
                save_on_train_epoch_end=True,
                enable_version_counter=False,
            )
        )
    if sys.stderr.isatty() and trainer_options.get("enable_progress_bar", True):
        callbacks.append(TQDMProgressBar(leave=False))
    else:
        trainer_options.setdefault("enable_progress_bar", False)
    options = {
        "max_epochs": epochs,
        "logger": False,
        "enable_model_summary": False,
        "enable_checkpointing": path is not None,
        "num_sanity_val_steps": 0,
        "inference_mode": False,
        "use_distributed_sampler": False,
        "default_root_dir": None if path is None else str(path.parent),
    } | trainer_options
    options["callbacks"] = callbacks + _as_list(trainer_options.get("callbacks"))
    options["plugins"] = [_Checkpoints(), *_as_list(trainer_options.get("plugins"))]
    saved = None
    if resume and path is not None:
        saved = _load_checkpoint(path, module)
    interrupted = False
    if not module.out_of_patience():
        dtype = next(network.parameters()).dtype
        with _silence_lightning(), _catch_interrupt() as state:
            network.train()
            runner = Trainer(**options)
            try:
                runner.fit(module, ckpt_path=path if saved else None)
            # an edited checkpoint can raise any exception inside Lightning's loaders
            except (AttributeError, LookupError, TypeError) as error:
                if path is None or not saved or module.began:
                    raise
                raise _invalid_checkpoint_error(path, error) from error
            except RuntimeError as error:
                if not _is_process_failure(runner, error):
                    raise
                again = ". Resume continues after the last epoch" if path else ""
                raise ChildProcessError(
                    f"trainer: expected {runner.world_size} processes to the end, one"
                    f" of them ended before{again}"
                ) from error
        interrupted = state["interrupted"]
        if interrupted:
            last = len(module.history)
            resume_hint = "; resume continues" if path and last else ""
            progress = f"after epoch {last}" if last else "before the end of an epoch"
            _print_line(f"\nstopped {progress}{resume_hint}")
            if not last:
                raise KeyboardInterrupt
        # Lightning leaves the network on the CPU, and with "64-true" in float64
        network.to(runner.strategy.root_device, dtype)
    if not module.best:
        raise ValueError(
            "trainer: expected a trainer that validates after at least one epoch, got"
            " one that did not"
        )
    network.load_state_dict(module.best)
    network.eval()
    return Fitted(module.history, interrupted)


@dataclass(frozen=True)
class _Schedule:
    """Factor of the learning rate: min(1, (t + 1) / warm_up) * (1 - t / steps)."""

    warm_up: int
    steps: int

    def __call__(self, step: int) -> float:
        rise = min(1.0, (step + 1) / self.warm_up) if self.warm_up else 1.0
        return rise * (1 - step / self.steps)


def _load_checkpoint(path: Path, module: StructuredModule) -> dict[str, Any]:
    """Load a checkpoint and restore the module; raise if it belongs to another run."""
    checkpoints.require_file(path)
    saved = checkpoints.read(path)
    try:
        began = saved[STATE]["settings"]
        if module.settings.items() <= began.items():
            module.on_load_checkpoint(saved)
    # an edited checkpoint can raise any of these
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise _invalid_checkpoint_error(path, error) from error
    checkpoints.require_same(path, began, module.settings)
    _print_line(f"resuming {path}")
    return saved


def _invalid_checkpoint_error(path: Path, error: Exception) -> ValueError:
    """Return the error for a checkpoint that was edited or is of another version."""
    return ValueError(
        f"{path}: expected the checkpoint of such a run, got one that was edited or is"
        f" of another version ({type(error).__name__}:"
        f" {' '.join(str(error).split())[:300]}). Train anew in another folder"
    )


def _is_finite(score: Any) -> bool:
    return isinstance(score, int | float) and math.isfinite(score)


def _is_process_failure(trainer: Trainer, error: RuntimeError) -> bool:
    """Return whether the error was caused by the end of another process."""
    if trainer.world_size == 1:
        return False
    launched = getattr(trainer.strategy.launcher, "procs", [])
    ended = any(process.poll() is not None for process in launched)
    return ended or "Connection" in str(error)


def _print_line(line: str) -> None:
    """Print a line on standard error, above the progress bar; main process only."""
    if is_main_process():
        tqdm.write(line, file=sys.stderr)


def _count_batches(batches: Callable[[], Sequence[Tensor]]) -> int:
    """Return the number of batches of an epoch; the generator stays unchanged."""
    with torch.random.fork_rng():
        return len(batches())


def _validate_trainer_options(trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the keywords of the Trainer; raise if one is not allowed."""
    if not isinstance(trainer, Mapping):
        raise TypeError(
            "trainer: expected a dictionary of keywords of pytorch_lightning.Trainer,"
            f" got {type(trainer).__name__}"
        )
    parameters = inspect.signature(Trainer).parameters
    for name in trainer:
        if name in RESERVED_KEYWORDS:
            instead = (
                f". Give {RESERVED_KEYWORDS[name]} instead"
                if RESERVED_KEYWORDS[name]
                else ""
            )
            raise ValueError(
                f"trainer: expected keywords that training does not set itself, got"
                f" {name!r}{instead}"
            )
        if name not in parameters:
            near = difflib.get_close_matches(str(name), parameters, n=1)
            hint = f", did you mean {near[0]!r}" if near else ""
            raise TypeError(
                f"trainer: expected keywords of pytorch_lightning.Trainer, got {name!r}"
                f"{hint}"
            )
    return dict(trainer)


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _format_row(row: Row, num_epochs: int | None) -> str:
    """Return a row of the history as a line of text, scores in percent."""
    text = f"epoch {row['epoch']:>2}/{num_epochs}  loss {row['loss']:8.4f}"
    for name, value in row.items():
        if name in ("epoch", "loss", "seconds", "cpu_seconds") or value is None:
            continue
        shown = f"{100 * value:.2f}" if 0 <= value <= 1 else f"{value:.4g}"
        text += f"  {name.replace('_', ' ')} {shown}"
    return f"{text}  {row['seconds']:.1f} s"


@contextmanager
def one_thread(small: bool = True) -> Iterator[None]:
    """Context manager: one thread, if ``small`` and ``OMP_NUM_THREADS`` is not set.

    A step of a small network takes less time than the synchronisation of its threads
    when other processes use the cores.
    """
    before = torch.get_num_threads()
    if small and not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _silence_lightning() -> Iterator[None]:
    """Context manager: suppress Lightning's notes on devices, loaders and folders."""
    names = ("pytorch_lightning", "lightning_fabric", "lightning.pytorch")
    logs = [logging.getLogger(name) for name in names]
    before = [log.level for log in logs]
    with ExitStack() as stack, warnings.catch_warnings():
        for message in (
            ".*does not have many workers.*",
            ".*Checkpoint directory .* exists and is not empty.*",
            ".*The dirpath has changed.*",
            ".*The number of training batches.*",
            ".*GPU available but not used.*",
            ".*is a wise choice.*",
            ".*LeafSpec.*",
            ".*in eval mode at the start.*",
            ".*sync_dist=True.*",
        ):
            warnings.filterwarnings("ignore", message)
        for log, level in zip(logs, before, strict=True):
            log.setLevel(logging.WARNING)
            stack.callback(log.setLevel, level)
        # the launcher reports the process that failed before it kills the others
        launcher = logging.getLogger(LAUNCHER)
        stack.callback(launcher.setLevel, launcher.level)
        launcher.setLevel(logging.INFO)
        yield


@contextmanager
def _catch_interrupt() -> Iterator[dict[str, bool]]:
    """Context manager: Ctrl-C ends the training, not the process.

    Yields ``{"interrupted": bool}``. Lightning turns Ctrl-C into SystemExit.
    """
    state = {"interrupted": False}
    main = signal.getsignal(signal.SIGINT) if _is_main_thread() else None
    try:
        yield state
    except KeyboardInterrupt:
        state["interrupted"] = True
    except SystemExit as end:
        if not isinstance(end.__context__, KeyboardInterrupt):
            raise
        state["interrupted"] = True
    finally:
        if main is not None:
            signal.signal(signal.SIGINT, main)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
