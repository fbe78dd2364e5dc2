"""Lightning callbacks for ``smoothsp.optim``. Requires the extra ``lightning``."""

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

try:
    from pytorch_lightning import Callback, LightningModule, Trainer
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f'smoothsp.lightning: needs {error.name}: pip install "smoothsp[lightning]"',
        name=error.name,
    ) from error

from smoothsp.optim import SVRG
from smoothsp.optim._batches import Size, num_examples, require_repeatable

__all__ = ["Snapshots"]


class Snapshots(Callback):
    """Callback that takes snapshots of ``SVRG`` and ``CasimirSVRG`` and ends epochs.

    Before the first batch of each epoch it computes the full gradient over the training
    data for each such optimizer. After the last batch, before validation and
    checkpoints, it ends their epochs. Other optimizers are not affected.

    With automatic optimization, steps call ``training_step`` at the iterate only, so
    its logs and counts refer to the iterates. At the snapshot they call ``loss``, whose
    logs are discarded.

    Parameters
    ----------
    loss
        Name of the module's method that returns the mean loss of a batch, equal to that
        of ``training_step``.
    size
        Function that returns the number of examples of a batch, its weight in the full
        gradient.

    Raises
    ------
    TypeError
        If the module has no such method, or if the trainer has several training loaders
        or an iterator.
    ValueError
        If the trainer accumulates or clips gradients or scales the loss: a step here is
        a difference of two gradients.

    Notes
    -----
    Each epoch needs one more pass over the training data. Full gradients are averaged
    over the processes.

    With ``limit_train_batches`` and a loader of fixed order, the full gradient uses the
    same first batches as the steps. With a shuffled loader it uses all batches. With a
    loader without a length it uses as many batches as the limit. ``fast_dev_run`` also
    computes the full gradient on its few batches.

    Examples
    --------
    >>> from smoothsp.lightning import Snapshots
    >>> trainer = Trainer(callbacks=[Snapshots()], logger=False)  # doctest: +SKIP
    """

    def __init__(self, loss: str = "loss", size: Size = num_examples) -> None:
        self.loss = loss
        self.size = size

    def on_train_epoch_start(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> None:
        """Validate the trainer and the module before the first batch."""
        if _svrg_optimizers(trainer):
            _require_unmodified_gradients(trainer, pl_module)
            _snapshot_batches(trainer)

    def _take_snapshots(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compute the full gradient of each SVRG optimizer."""
        optimizers = _svrg_optimizers(trainer)
        if not optimizers:
            return
        _require_unmodified_gradients(trainer, pl_module)
        closure, batches = self._closure(trainer, pl_module), _snapshot_batches(trainer)

        def closure_on_device(batch: Any) -> Tensor:
            return closure(_to_device(trainer, pl_module, batch))

        for optimizer in optimizers:
            if trainer.fast_dev_run:  # type: ignore[attr-defined]
                _snapshot_few_batches(optimizer, closure_on_device, batches)
            else:
                optimizer.snapshot(closure_on_device, batches, size=self.size)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Compute full gradients before the first batch; store the batch of a step."""
        # a run that is resumed at the end of an epoch never calls on_train_epoch_start
        if batch_idx == 0:
            self._take_snapshots(trainer, pl_module)
        for optimizer in _svrg_optimizers(trainer):
            # callbacks may have changed the trainer since the epoch started
            _require_unmodified_gradients(trainer, pl_module)
            if pl_module.automatic_optimization and batch is not None:
                closure = partial(self._closure(trainer, pl_module), batch)
                optimizer._batch_info.update(
                    at_snapshot=closure, num_examples=self.size(batch)
                )

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Release the batch."""
        for optimizer in _svrg_optimizers(trainer):
            optimizer._batch_info.clear()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the epochs, so that validation uses their final parameters."""
        if trainer.is_last_batch:
            self.on_train_epoch_end(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the epochs of the optimizers."""
        for optimizer in _svrg_optimizers(trainer):
            optimizer.end_epoch()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the last epoch of a run that is resumed after its last step."""
        self.on_train_epoch_end(trainer, pl_module)

    def _closure(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> Callable[[Any], Tensor]:
        """Return a function of a batch: its loss, with gradients and without logs."""
        named = isinstance(self.loss, str)
        loss = getattr(pl_module, self.loss, None) if named else None
        if not callable(loss):
            raise TypeError(
                f"loss: expected the name of a method of {type(pl_module).__name__} "
                f"that computes the mean loss of a batch, got {self.loss!r}"
            )

        def closure(batch: Any) -> Tensor:
            with (
                _logging_disabled(pl_module),
                trainer.precision_plugin.train_step_context(),
            ):
                value: Tensor = loss(batch)
            torch.autograd.backward(value)
            return value.detach()

        return closure


def _svrg_optimizers(trainer: Trainer) -> list[SVRG]:
    return [
        optimizer for optimizer in trainer.optimizers if isinstance(optimizer, SVRG)
    ]


@contextmanager
def _logging_disabled(pl_module: LightningModule) -> Iterator[None]:
    """Context manager: replace ``pl_module.log`` by a function that does nothing."""
    pl_module.log = lambda *_, **__: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        del pl_module.log


def _to_device(trainer: Trainer, pl_module: LightningModule, batch: Any) -> Any:
    """Return a batch on the device of the trainer, after its conversion hooks."""
    batch = trainer.precision_plugin.convert_input(batch)
    batch = pl_module._on_before_batch_transfer(batch, dataloader_idx=0)
    return trainer.strategy.batch_to_device(batch, dataloader_idx=0)


def _require_unmodified_gradients(trainer: Trainer, pl_module: LightningModule) -> None:
    """Raise if the trainer accumulates, clips or scales gradients.

    A step of SVRG is a difference of two gradients, of which it would change only one.
    """
    if trainer.accumulate_grad_batches != 1:
        raise ValueError(
            "accumulate_grad_batches: expected 1 with SVRG, whose steps evaluate "
            f"their batch twice, got {trainer.accumulate_grad_batches}; use larger "
            "batches"
        )
    hook = type(pl_module).configure_gradient_clipping
    # a StructuredModule has a hook that does nothing without ``clip``
    clips = hook is not LightningModule.configure_gradient_clipping
    if trainer.gradient_clip_val or (clips and getattr(pl_module, "clip", True)):
        raise ValueError(
            "gradient_clip_val: expected None and no configure_gradient_clipping with "
            "SVRG, since a difference of clipped gradients is not a gradient, got "
            f"{trainer.gradient_clip_val}; lower lr instead"
        )
    if getattr(trainer.precision_plugin, "scaler", None) is not None:
        raise ValueError(
            "precision: expected a precision without a scaler with SVRG, whose steps "
            f"need the closure, got {trainer.precision}; use bf16-mixed"
        )


@dataclass(frozen=True)
class _FirstBatches:
    """The first ``num_batches`` batches of a loader; can be iterated repeatedly."""

    loader: Iterable[Any]
    num_batches: int

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.loader), self.num_batches)


def _snapshot_batches(trainer: Trainer) -> Iterable[Any]:
    """Return the batches of the full gradient: those of the steps, or all."""
    loader: Any = trainer.train_dataloader
    if isinstance(loader, list | tuple | dict):
        raise TypeError(
            "train_dataloader: expected one loader with Snapshots, got a "
            f"{type(loader).__name__} of {len(loader)}; combine them, for instance in "
            "a DataLoader of a torch.utils.data.StackDataset or ConcatDataset"
        )
    require_repeatable("Snapshots", loader)
    if isinstance(loader, DataLoader):
        # a copy: the trainer counts the batches of its loader, and a loader with
        # persistent workers has a single iterator
        loader = copy.copy(loader)
        loader._iterator = None
    num_batches = trainer.num_training_batches
    length = len(loader) if _has_length(loader) else None
    if num_batches in (float("inf"), length):
        return loader  # type: ignore[no-any-return]
    if trainer.fast_dev_run or length is None or _has_fixed_order(loader):  # type: ignore[attr-defined]
        return _FirstBatches(loader, int(num_batches))
    return loader  # type: ignore[no-any-return]


def _has_length(loader: Any) -> bool:
    try:
        len(loader)
    except (TypeError, NotImplementedError):
        return False
    return True


def _has_fixed_order(loader: Any) -> bool:
    """Return whether a loader yields the same batches in each epoch."""
    if not isinstance(loader, DataLoader):
        return False
    has_default_batches = (
        loader.batch_sampler is None or type(loader.batch_sampler) is BatchSampler
    )
    sampler = loader.sampler
    shuffles = getattr(sampler, "shuffle", True)
    is_sequential = isinstance(sampler, SequentialSampler) or (
        isinstance(sampler, DistributedSampler) and not shuffles
    )
    return has_default_batches and is_sequential


def _snapshot_few_batches(
    optimizer: SVRG, closure: Callable[[Any], Tensor], batches: Iterable[Any]
) -> None:
    """Take a snapshot of the mean over few batches, for ``fast_dev_run``.

    ``optimizer.snapshot(closure, batches)`` would require all batches of its settings.
    """

    def mean_loss() -> Tensor:
        losses = [closure(batch) for batch in batches]
        params = (p for group in optimizer.param_groups for p in group["params"])
        for p in params:
            if p.grad is not None:
                p.grad /= len(losses)
        return torch.stack(losses).mean()

    optimizer.snapshot(mean_loss)
