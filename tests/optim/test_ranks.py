"""Two processes on halves of the data against one process on all of it."""

import sys

import pytest
import torch
from torch.testing import assert_close

from tests.optim.two_ranks import OPTIMIZERS, everything
from tests.programs import run


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-m", "tests.optim.two_ranks"]
    run(*command, folder)
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.fixture(scope="module")
def alone():
    return everything(0, 1)


@pytest.mark.parametrize("name", [*OPTIMIZERS, "prox-linear"])
def test_iterates_of_two_processes_are_those_of_one(ranks, alone, name):
    params, losses = alone[name]
    for rank in ranks:
        found, found_losses = rank[name]
        assert_close(found, params, rtol=1e-10, atol=1e-12)
        assert found_losses == pytest.approx(losses, rel=1e-10)
    assert all(map(torch.equal, ranks[0][name][0], ranks[1][name][0]))


def test_processes_that_drift_apart_are_told_why(ranks):
    for rank in ranks:
        assert "expected the same parameters on every process" in rank["apart"]
        assert "DistributedDataParallel" in rank["apart"]


def test_gradient_that_only_one_process_has(ranks):
    assert ranks[0]["one-sided"] == ranks[1]["one-sided"] == [0.5, 0.5]
