"""Two processes that train a tagger together; started by ``test_ranks.py``.

Run as ``python -m tests.sharding.two_ranks FOLDER``: each writes the weights that each
way and loss end with.
"""

import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

from smoothsp import LinearChain
from smoothsp.losses import L2, CRFLoss, StructuralHinge

LOSSES = {
    "CRF": CRFLoss(),
    "hinge-l2": StructuralHinge(L2(1.0, 5)),
}
WAYS = ("DDP", "FSDP1", "FSDP2")
WORDS, LABELS, STEPS = 30, 4, 3


class Tagger(nn.Module):
    """Its head is a module of its own to FSDP, so that its weights come and go."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8)
        self.lstm = nn.LSTM(8, 6, batch_first=True, bidirectional=True)
        self.output = nn.Linear(12, LABELS)
        self.head = LinearChain(LABELS)
        self.criterion = loss

    def forward(self, words: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        emissions = self.output(self.lstm(self.embedding(words))[0])
        return self.head(emissions, tags, mask, self.criterion)


def batches(rank: int, world: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Of each step, this process's half of the sentences."""
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(WORDS, (STEPS, 8, 7), generator=generator)
    lengths = torch.randint(1, 8, (STEPS, 8, 1), generator=generator)
    given = words, words % LABELS, torch.arange(7) < lengths
    return list(zip(*(x.chunk(world, 1)[rank] for x in given), strict=True))


def shard(model: Tagger, way: str) -> nn.Module:
    if way == "DDP":
        return DistributedDataParallel(model)
    if way == "FSDP1":
        device = torch.device("cpu")
        model.head = FullyShardedDataParallel(model.head, device_id=device)
        return FullyShardedDataParallel(model, device_id=device)
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model.head, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def whole(model: nn.Module, way: str) -> dict[str, Tensor]:
    """The weights of all processes, by their names in the tagger."""
    if way == "FSDP1":
        with FullyShardedDataParallel.summon_full_params(model):
            found = {n: p.detach().clone() for n, p in model.named_parameters()}
    elif way == "FSDP2":
        found = {n: p.full_tensor().detach() for n, p in model.named_parameters()}
    else:
        found = {n: p.detach() for n, p in model.named_parameters()}
    for wrapper in ("module.", "_fsdp_wrapped_module."):
        found = {name.replace(wrapper, ""): x for name, x in found.items()}
    return found


def train(loss: str, way: str, rank: int = 0, world: int = 1) -> dict[str, Tensor]:
    torch.manual_seed(0)
    tagger = Tagger(LOSSES[loss]).double()
    model = tagger if world == 1 else shard(tagger, way)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for batch in batches(rank, world):
        optimizer.zero_grad()
        model(*batch).backward()
        optimizer.step()
    return whole(model, way if world > 1 else "")


def take_part(rank: int, folder: Path) -> None:
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    found = {
        f"{way} {loss}": train(loss, way, rank, 2) for way in WAYS for loss in LOSSES
    }
    torch.save(found, folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    # torch advises on devices that are not there
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.multiprocessing.start_processes(
        take_part, (Path(sys.argv[1]),), nprocs=2, start_method="fork"
    )
