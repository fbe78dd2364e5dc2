"""A small module, and how Lightning fits it."""

import pytorch_lightning as pl
import torch
from torch import nn

from smoothsp.lightning import Snapshots
from smoothsp.optim import SVRG


class Regression(pl.LightningModule):
    """Logs everywhere, counts its steps, and may shift its batches before moving."""

    def __init__(self, build=lambda p: SVRG(p, 0.1), shift=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 1)
        self.build, self.shift, self.losses = build, shift, []

    def loss(self, x):
        loss = (self.linear(x)[:, 0] - x[:, 0]).square().mean()
        self.log("inner", loss, on_step=False, on_epoch=True, batch_size=len(x))
        return loss

    def training_step(self, x):
        loss = self.loss(x)
        self.losses.append(loss.item())
        self.log("loss", loss, on_step=False, on_epoch=True, batch_size=len(x))
        return loss

    def on_before_batch_transfer(self, batch, dataloader_idx):
        return batch + self.shift

    def configure_optimizers(self):
        return self.build(self.parameters())


class Clipped(Regression):
    def configure_gradient_clipping(self, *args, **options):
        self.clip_gradients(*args, **options)


def fit(module, loader, epochs=1, callbacks=(), **options):
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        callbacks=[Snapshots(), *callbacks],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    trainer.fit(module, loader)
    return trainer
