"""Lightning's own DDP on halves of the data against one process on all of it."""

import sys

import pytest
import torch
from torch.testing import assert_close

from tests.programs import run


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    """What each process ends with, by optimizer, number of processes, and rank."""
    pytest.importorskip("pytorch_lightning")
    folder = tmp_path_factory.mktemp("lightning")
    command = [sys.executable, "-m", "tests.lightning.two_ranks"]
    run(*command, folder, env={"OMP_NUM_THREADS": "1"})
    return {path.stem: torch.load(path) for path in folder.glob("*.pt")}


@pytest.mark.long
@pytest.mark.parametrize("name", ["svrg", "relative"])
def test_iterates_of_two_processes_are_those_of_one(ends, name):
    alone = ends[f"{name}-1-0"]
    ranks = [ends[f"{name}-2-{rank}"] for rank in range(2)]
    for rank in ranks:
        assert_close(rank["params"], alone["params"], rtol=1e-10, atol=1e-12)
        assert_close(rank["loss"], alone["loss"], rtol=1e-6, atol=0.0)
    for kind, examples in alone["calls"].items():
        assert sum(rank["calls"][kind] for rank in ranks) == examples
    assert all(map(torch.equal, ranks[0]["params"], ranks[1]["params"]))
