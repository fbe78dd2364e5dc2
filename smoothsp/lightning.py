"""What Lightning users need of ``smoothsp.optim``. Needs the extra ``lightning``."""

from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor

from smoothsp.optim import SVRG

__all__ = ["Snapshots"]


class Snapshots(Callback):
    """Takes the snapshots of ``SVRG`` and ``CasimirSVRG``, and ends their epochs.

    At the start of each training epoch every such optimizer of the trainer gets its
    full gradient over the training data; after the last batch, before validation and
    checkpoints, its epoch ends. Other optimizers are left alone.

    Parameters
    ----------
    loss
        Name of the module's method that gives the mean loss of a batch, without logging
        it, and for which ``training_step`` stands during the steps.

    Notes
    -----
    One more pass over the training data each epoch. With several processes the full
    gradients are averaged over them.

    Examples
    --------
    >>> from smoothsp.lightning import Snapshots
    >>> trainer = Trainer(callbacks=[Snapshots()], logger=False)  # doctest: +SKIP
    """

    def __init__(self, loss: str = "loss") -> None:
        self.loss = loss

    def on_train_epoch_start(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> None:
        """Take the full gradients."""
        loss = getattr(pl_module, self.loss, None)
        if not callable(loss):
            raise TypeError(
                f"loss: expected the name of a method of {type(pl_module).__name__} "
                f"that computes the mean loss of a batch, got {self.loss!r}"
            )

        def closure(batch: Any) -> Tensor:
            batch = trainer.strategy.batch_to_device(batch)
            value: Tensor = loss(batch)
            torch.autograd.backward(value)
            return value

        for optimizer in trainer.optimizers:
            if isinstance(optimizer, SVRG):
                optimizer.snapshot(closure, trainer.train_dataloader)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Validate what the epoch ends with."""
        if trainer.is_last_batch:
            self.on_train_epoch_end(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the epochs."""
        for optimizer in trainer.optimizers:
            if isinstance(optimizer, SVRG):
                optimizer.end_epoch()
