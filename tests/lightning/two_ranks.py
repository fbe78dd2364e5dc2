"""Lightning on one or two processes; started by ``test_ranks.py``.

Run as ``python -m tests.lightning.two_ranks FOLDER``: each process writes what it ends
with.
"""

import sys
import warnings
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import DDPStrategy
from torch.utils.data import DataLoader

from smoothsp.lightning import Snapshots
from tests.optim.two_ranks import OPTIMIZERS, network

NAMES = ("svrg", "relative")
EXAMPLES, BATCH, EPOCHS = 24, 4, 2


class Module(pl.LightningModule):
    def __init__(self, optimizer):
        super().__init__()
        self.optimizer, self.network = optimizer, network()

    def loss(self, x):
        return (self.network(x)[:, 0] - x[:, 0] * x[:, 1]).square().mean()

    def training_step(self, x):
        return self.loss(x)

    def validation_step(self, x):
        self.log("loss", self.loss(x), sync_dist=True)

    def train_dataloader(self):
        draw = torch.Generator().manual_seed(1)
        x = torch.randn(EXAMPLES, 3, generator=draw, dtype=torch.float64)
        # dealt out by turns, so that the batches of two ranks make one of one
        rank, world = self.trainer.global_rank, self.trainer.world_size
        return DataLoader(x[rank::world], BATCH // world)

    val_dataloader = train_dataloader

    def configure_optimizers(self):
        return OPTIMIZERS[self.optimizer](self.parameters())


class Keep(pl.Callback):
    """What this process ends with."""

    def __init__(self, path):
        self.path = path

    def on_train_end(self, trainer, pl_module):
        params = [p.detach() for p in pl_module.parameters()]
        calls = trainer.optimizers[0].oracle_calls
        loss = trainer.callback_metrics["loss"]
        found = {"params": params, "calls": calls, "loss": loss}
        torch.save(found, f"{self.path}-{trainer.global_rank}.pt")


def fit(optimizer, world, folder):
    strategy = DDPStrategy(process_group_backend="gloo", start_method="fork")
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=world,
        strategy=strategy if world > 1 else "auto",
        # that of Lightning shuffles
        use_distributed_sampler=False,
        max_epochs=EPOCHS,
        callbacks=[Snapshots(), Keep(folder / f"{optimizer}-{world}")],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(optimizer))


if __name__ == "__main__":
    # torch and Lightning advise on devices and workers that are not there
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    # two first, as they fork
    for world in (2, 1):
        for name in NAMES:
            fit(name, world, Path(sys.argv[1]))
