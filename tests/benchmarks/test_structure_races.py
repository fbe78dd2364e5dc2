"""Races of further structures: what is raced is right, and peers have its values."""

from importlib.util import find_spec

import pytest
import torch

import circuits
import structures

SMALL = {
    "subset": lambda: structures.subset(5, 1, 3, 1),
    "best subset": lambda: structures.best_subsets(5, 1, 3, 1),
    "best knapsack": lambda: structures.knapsacks(5, 20, 1)[0],
    "knapsack": lambda: structures.knapsacks(5, 20, 1)[1],
    "second order": lambda: structures.second_order(5, 3, 1),
    "siblings": lambda: structures.siblings(4, 1),
    "lattice": lambda: structures.lattices(5, 12, 1),
    "lattices": lambda: structures.lattices_of_rows(5, 12)[0],
    "new lattices": lambda: structures.lattices_of_rows(5, 12)[1],
    "paths": lambda: structures.grid_paths(40)[0],
    "epoch of SPO+": lambda: structures.grid_paths(40)[1],
    "epoch of noise": lambda: structures.grid_paths(40)[2],
    "undirected": lambda: structures.undirected(5, 1),
}


# of a mask of bytes, in pytorch-crf
@pytest.mark.filterwarnings("ignore:where received a uint8:UserWarning")
@pytest.mark.parametrize("name", SMALL)
def test_both_dtypes_agree_and_so_do_peers(name):
    race = SMALL[name]()
    exact = race.ours(torch.float64)()
    ours = race.ours(torch.float32)()
    circuits.agree(race, "smoothsp", ours, exact, gradients=True)
    for peer, make in race.peers.items():
        if "pytorch-crf" in peer:
            pytest.importorskip("torchcrf")
        if "PyEPO" in peer and not all(map(find_spec, ("pyepo", "ortools"))):
            continue
        if race.comparable:
            circuits.agree(race, peer, make(torch.float64)(), exact, gradients=False)
