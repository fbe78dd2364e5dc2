"""PyTorch's ways to share a training between processes, against one process."""

import sys

import pytest
import torch
from torch.testing import assert_close

from tests.programs import run
from tests.sharding.two_ranks import LOSSES, WAYS, train


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharding")
    run(sys.executable, "-m", "tests.sharding.two_ranks", folder)
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.mark.long
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("way", WAYS)
def test_weights_of_two_processes_are_those_of_one(ranks, way, loss):
    alone = train(loss, way)
    for rank in ranks:
        assert_close(rank[f"{way} {loss}"], alone, rtol=0, atol=1e-10)
