"""Two processes that optimise together; started by ``test_ranks.py``.

Run as ``python -m tests.optim.two_ranks FOLDER``: each writes what it ends with. They
are forks, so that what they import is imported once.
"""

import sys
import warnings
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from smoothsp.optim import SVRG, CasimirSVRG, ProxLinear


def seeded():
    return torch.Generator().manual_seed(0)


def data():
    """Steps' batches of 4 examples, and what only full gradients see."""
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(24, 3, generator=draw, dtype=torch.float64)
    more = torch.randn(5, 3, generator=draw, dtype=torch.float64)
    return x.reshape(6, 4, 3), more


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()


def loss_of(model, x):
    loss = (model(x)[:, 0] - x[:, 0] * x[:, 1]).square().mean()
    loss.backward()
    return loss


OPTIMIZERS = {
    "svrg": lambda p: SVRG(p, 0.05, 0.01, generator=seeded()),
    "const": lambda p: CasimirSVRG.const(
        p, smoothness=8.0, num_batches=6, weight_decay=0.01, generator=seeded()
    ),
    "relative": lambda p: CasimirSVRG(
        p, smoothness=8.0, kappa=0.3, stop="relative", generator=seeded()
    ),
}


def shares(rank, world):
    """Halves of each batch; of what only full gradients see, unequal parts."""
    steps, more = data()
    own = steps.chunk(world, dim=1)[rank]
    extra = more if world == 1 else more.split([4, 1])[rank]
    return list(own), [*own, extra]


def run(name, rank, world):
    model = network()
    wrapped = DistributedDataParallel(model) if world > 1 else model
    steps, everything = shares(rank, world)
    optimizer = OPTIMIZERS[name](model.parameters())
    losses = []
    for _ in range(4):
        losses.append(optimizer.snapshot(partial(loss_of, model), everything))
        for i in torch.randint(6, (6,), generator=optimizer.generator).tolist():
            optimizer.step(partial(loss_of, wrapped, steps[i]))
        optimizer.end_epoch()
    return [p.detach() for p in model.parameters()], losses


def run_prox_linear(rank, world):
    model = network()
    steps, _ = shares(rank, world)
    optimizer = ProxLinear(model, 2.0, 0.01, smoothness=8.0, generator=seeded())

    def closure(x):
        return loss_of(optimizer.model, x)

    losses = [optimizer.step(closure, steps) for _ in range(3)]
    return [p.detach() for p in model.parameters()], losses


def run_apart():
    """Steps that are not averaged: the next snapshot has to notice."""
    model = network()
    steps, _ = shares(dist.get_rank(), dist.get_world_size())
    optimizer = OPTIMIZERS["svrg"](model.parameters())
    try:
        for _ in range(2):
            optimizer.epoch(partial(loss_of, model), steps)
    except RuntimeError as error:
        return str(error)
    return "nothing noticed"


def run_with_a_gradient_on_one_rank_only():
    model = nn.ParameterList(nn.Parameter(torch.ones(1)) for _ in range(2))
    optimizer = SVRG(model, 0.1)

    def closure():
        loss = model[dist.get_rank()].sum()
        loss.backward()
        return loss

    optimizer.snapshot(closure)
    return [optimizer.state[p]["full_gradient"].item() for p in model]


def everything(rank, world):
    found = {name: run(name, rank, world) for name in OPTIMIZERS}
    found["prox-linear"] = run_prox_linear(rank, world)
    if world > 1:
        found["apart"] = run_apart()
        found["one-sided"] = run_with_a_gradient_on_one_rank_only()
    return found


def take_part(rank, folder):
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    torch.save(everything(rank, 2), folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    # torch warns that gloo is there for lack of a device
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    torch.multiprocessing.start_processes(
        take_part, (folder,), nprocs=2, start_method="fork"
    )
