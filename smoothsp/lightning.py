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
        if _optimizers(trainer):
            _require_whole_gradients(trainer, pl_module)
            _batches(trainer)

    def _take(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the full gradients."""
        optimizers = _optimizers(trainer)
        if not optimizers:
            return
        _require_whole_gradients(trainer, pl_module)
        closure, batches = self._closure(trainer, pl_module), _batches(trainer)

        def on_device(batch: Any) -> Tensor:
            return closure(_moved(trainer, pl_module, batch))

        for optimizer in optimizers:
            if trainer.fast_dev_run:  # type: ignore[attr-defined]
                _try_out(optimizer, on_device, batches)
            else:
                optimizer.snapshot(on_device, batches, size=self.size)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Compute full gradients before the first batch; store the batch of a step."""
        # a run that is resumed at the end of an epoch never calls on_train_epoch_start
        if batch_idx == 0:
            self._take(trainer, pl_module)
        for optimizer in _optimizers(trainer):
            # may have changed since the epoch started
            _require_whole_gradients(trainer, pl_module)
            if pl_module.automatic_optimization and batch is not None:
                closure = partial(self._closure(trainer, pl_module), batch)
                optimizer._batch_info.update(
                    at_snapshot=closure, num_examples=self.size(batch)
                )

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Release the batch."""
        for optimizer in _optimizers(trainer):
            optimizer._batch_info.clear()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the epochs, so that validation uses their final parameters."""
        if trainer.is_last_batch:
            self.on_train_epoch_end(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the epochs of the optimizers."""
        for optimizer in _optimizers(trainer):
            optimizer.end_epoch()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the last epoch of a run that is resumed after its last step."""
        self.on_train_epoch_end(trainer, pl_module)

    def _closure(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> Callable[[Any], Tensor]:
        """Loss and gradients of a batch that is on its device; logs nothing."""
        named = isinstance(self.loss, str)
        loss = getattr(pl_module, self.loss, None) if named else None
        if not callable(loss):
            raise TypeError(
                f"loss: expected the name of a method of {type(pl_module).__name__} "
                f"that computes the mean loss of a batch, got {self.loss!r}"
            )

        def closure(batch: Any) -> Tensor:
            with _quiet(pl_module), trainer.precision_plugin.train_step_context():
                value: Tensor = loss(batch)
            torch.autograd.backward(value)
            return value.detach()

        return closure


def _optimizers(trainer: Trainer) -> list[SVRG]:
    return [one for one in trainer.optimizers if isinstance(one, SVRG)]


@contextmanager
def _quiet(pl_module: LightningModule) -> Iterator[None]:
    """Let the module log nothing."""
    pl_module.log = lambda *_, **__: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        del pl_module.log


def _moved(trainer: Trainer, pl_module: LightningModule, batch: Any) -> Any:
    """Batch after the hooks of the trainer."""
    batch = trainer.precision_plugin.convert_input(batch)
    batch = pl_module._on_before_batch_transfer(batch, dataloader_idx=0)
    return trainer.strategy.batch_to_device(batch, dataloader_idx=0)


def _require_whole_gradients(trainer: Trainer, pl_module: LightningModule) -> None:
    """Refuse what the trainer does to one gradient of the two of a step."""
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
class _First:
    """The first batches of a loader, anew for each iteration."""

    loader: Iterable[Any]
    many: int

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.loader), self.many)


def _batches(trainer: Trainer) -> Iterable[Any]:
    """Batches of the full gradient of this epoch."""
    loader: Any = trainer.train_dataloader
    if isinstance(loader, list | tuple | dict):
        raise TypeError(
            "train_dataloader: expected one loader with Snapshots, got a "
            f"{type(loader).__name__} of {len(loader)}; combine them, for instance in "
            "a DataLoader of a torch.utils.data.StackDataset or ConcatDataset"
        )
    require_repeatable("Snapshots", loader)
    if isinstance(loader, DataLoader):
        # the trainer's counts its own batches, and may have but one iterator
        loader = copy.copy(loader)
        loader._iterator = None
    many = trainer.num_training_batches
    length = len(loader) if _has_length(loader) else None
    if many in (float("inf"), length):
        return loader  # type: ignore[no-any-return]
    if trainer.fast_dev_run or length is None or _in_fixed_order(loader):  # type: ignore[attr-defined]
        return _First(loader, int(many))
    return loader  # type: ignore[no-any-return]


def _has_length(loader: Any) -> bool:
    try:
        len(loader)
    except (TypeError, NotImplementedError):
        return False
    return True


def _in_fixed_order(loader: Any) -> bool:
    if not isinstance(loader, DataLoader):
        return False
    plain = loader.batch_sampler is None or type(loader.batch_sampler) is BatchSampler
    sampler = loader.sampler
    shuffles = getattr(sampler, "shuffle", True)
    sequential = isinstance(sampler, SequentialSampler) or (
        isinstance(sampler, DistributedSampler) and not shuffles
    )
    return plain and sequential


def _try_out(
    optimizer: SVRG, closure: Callable[[Any], Tensor], batches: Iterable[Any]
) -> None:
    """A snapshot of a few batches, however many its settings are made for."""

    def whole() -> Tensor:
        losses = [closure(batch) for batch in batches]
        params = (p for group in optimizer.param_groups for p in group["params"])
        for p in params:
            if p.grad is not None:
                p.grad /= len(losses)
        return torch.stack(losses).mean()

    optimizer.snapshot(whole)
