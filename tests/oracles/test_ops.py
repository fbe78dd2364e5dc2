"""The registered ops, one by one, as torch.library checks them."""

import itertools

import pytest
import torch

from smoothsp.oracles import Chain
from tests.instances.chains import Y, random_case
from tests.sweeps import thinned

CHAIN_OPS = {
    "chain_score",
    "chain_count",
    "chain_decode",
    "chain_topk",
    "chain_sample",
    "chain_log_partition",
    "chain_covariance",
    "chain_entropy",
    "chain_edges",
}


def arguments(name: str, per_edge: bool) -> tuple[object, ...]:
    """What an op takes; potentials ask for a gradient where the op has one."""
    case = random_case(per_edge)
    with_gradient = {
        "chain_score",
        "chain_decode",
        "chain_log_partition",
        "chain_entropy",
        "chain_edges",
    }
    case = case.leaves() if name in with_gradient else case
    B, T, S = case.emissions.shape
    steps = torch.sort(~case.mask, dim=1, stable=True).indices
    lengths = case.mask.sum(1)
    chain = (case.emissions, case.transitions, case.start, case.end, steps, lengths)
    labels = torch.where(case.mask, Y, 0)[:, None].repeat(1, 2, 1)
    generator = torch.Generator().manual_seed(0)
    shapes = [(B, T, S), (B, T - 1 if per_edge else 1, S, S), (B, S), (B, S)]
    weights = [torch.randn(s, generator=generator).double() for s in shapes]
    rest = {
        "chain_score": (labels,),
        "chain_topk": (3,),
        "chain_sample": (torch.rand(B, 2, T, generator=generator).double(),),
        "chain_covariance": tuple(weights),
        "chain_log_partition": (False,),
    }
    if name == "chain_count":
        amounts = torch.randn(B, 2, generator=generator).double().requires_grad_()
        return amounts, labels, steps, lengths, S, not per_edge, 1
    return (*chain, *rest.get(name, ()))


# opcheck itself looks at the gradient of tensors that are no leaves
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize(
    ("name", "per_edge"),
    thinned(itertools.product(sorted(CHAIN_OPS), [False, True]), 6, 1),
)
def test_the_op_keeps_the_promises_of_its_registration(name, per_edge):
    op = getattr(torch.ops.smoothsp, name).default
    torch.library.opcheck(op, arguments(name, per_edge))


def test_every_registered_op_is_checked():
    assert Chain is not None
    names = torch._C._dispatch_get_all_op_names()
    registered = {n.split("::")[1] for n in names if n.startswith("smoothsp::")}
    assert registered == CHAIN_OPS
