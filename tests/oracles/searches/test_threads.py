"""Neither threads nor a fork change a bit of what searches answer."""

import pytest
import torch

from smoothsp._kernels.threads import ranges
from smoothsp.oracles import SparseMAP
from tests.sweeps import thinned
from tests.truth.circuits.cases import SEARCHES, SUMMED, draw


def answers(kind):
    """Values, outputs, and gradients of the values."""
    case = draw(kind, 0)
    # more rows than threads
    rows = torch.arange(len(case)).repeat(5)
    leaves = case.leaves()
    built = leaves.structure().select(rows)
    value, y = built.decode()
    values, ys, valid = built.decode_topk(3)
    found = [value, y, values, ys, valid]
    sums = [value, values.clamp(min=-1e4).sum(1)]
    if hasattr(built, "max_marginals"):
        found.append(built.max_marginals())
    if kind in SUMMED:
        sums += [built.log_partition(), built.entropy()]
        found += [built.marginals(), built.sample(2, torch.Generator().manual_seed(0))]
    if getattr(built, "_has_additive_cost", True):
        sparse = SparseMAP(built)
        found += [sparse.outputs, sparse.weights]
    weight = torch.linspace(-1, 2, len(rows), dtype=torch.float64)
    total = sum((x * weight).sum() for x in sums)
    potentials = list(leaves.potentials.values())
    return [x.detach() for x in (*found, *torch.autograd.grad(total, potentials))]


@pytest.mark.parametrize("kind", thinned(SEARCHES, 2))
def test_the_same_bits_on_any_number_of_threads(kind, monkeypatch):
    monkeypatch.setattr(ranges, "WORK_PER_THREAD", 1)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(answers(kind))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert torch.equal(a, b)
