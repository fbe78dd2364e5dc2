"""A resume from any step is the run that was not cut, bit for bit."""

import pytest
import torch

from smoothsp.optim import CasimirSVRG
from tests import sweeps
from tests.optim.problems import seeded

# Lightning advises on workers, loggers and devices that are not there
pytestmark = pytest.mark.filterwarnings("ignore")

# more epochs than casimir has between two centers
EPOCHS, BATCHES = 4, 4
X = torch.randn(12, 3, generator=seeded())


def adam(params):
    optimizer = torch.optim.Adam(params, 0.1)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, EPOCHS * BATCHES)
    scheduler = {"scheduler": decay, "interval": "step"}
    return {"optimizer": optimizer, "lr_scheduler": scheduler}


BUILDERS = {
    "adam": adam,
    "casimir": lambda p: CasimirSVRG(p, 0.1, kappa=0.1, epochs=3, generator=seeded()),
    "relative": lambda p: CasimirSVRG(
        p, smoothness=4.0, kappa=0.5, stop="relative", generator=seeded()
    ),
}


@pytest.fixture(scope="module")
def pl():
    return pytest.importorskip("pytorch_lightning")


def run(pl, name, folder, resume=None):
    """All steps, or those that are left; a checkpoint after each."""
    from lightning_ner import Batches
    from smoothsp.lightning import Snapshots
    from tests.lightning.trained import Regression

    keep = pl.callbacks.ModelCheckpoint(
        folder, "{step}", every_n_train_steps=1, save_top_k=-1
    )
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=EPOCHS,
        callbacks=[Snapshots(), *([] if resume else [keep])],
        enable_checkpointing=not resume,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Regression(BUILDERS[name])
    trainer.fit(module, Batches(X, BATCHES - 1), ckpt_path=resume)
    return module, trainer.optimizers[0].state_dict()


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@pytest.mark.parametrize("name", sweeps.thinned(BUILDERS, 3, 1))
def test_a_resume_from_each_step_is_the_run_that_was_not_cut(pl, tmp_path, name):
    module, state = run(pl, name, tmp_path)
    files = sorted(tmp_path.glob("*.ckpt"), key=lambda x: int(x.stem.split("=")[1]))
    assert len(files) == EPOCHS * BATCHES
    # one in three is from each place within an epoch
    for file in files if sweeps.long else files[::3]:
        resumed, found = run(pl, name, tmp_path, file)
        for p, q in zip(module.parameters(), resumed.parameters(), strict=True):
            assert torch.equal(p, q), file.name
        assert same(state, found), file.name
