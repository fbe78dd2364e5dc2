"""Nothing that a user hands in leads out of a tensor's memory."""

import copy
import io
import sys

import pytest
import torch
from torch.testing import assert_close

from smoothsp.losses import CRFLoss, StructuralHinge
from smoothsp.oracles import Chain, Multiclass
from smoothsp.projections import project_simplex, project_weston_watkins
from tests.oracles.unsafe_calls import CALLS
from tests.programs import run
from tests.sweeps import thinned


# the code of both is the same source
@pytest.fixture(scope="module", params=thinned(["float64", "float32"], 2))
def outcomes(request):
    """What became of each call, and the end of the errors."""
    env = {"MALLOC_PERTURB_": "165", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.oracles.unsafe_calls", request.param]
    done = run(*command, env=env, check=False)
    return dict(x.split("\t") for x in done.stdout.splitlines()), done.stderr[-5000:]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_leads_out_of_memory_is_refused(outcomes, name):
    found, errors = outcomes
    assert found.get(name) == "0", errors


def negated(x: torch.Tensor) -> torch.Tensor:
    """The same values behind a negative bit."""
    found = torch.complex(torch.zeros_like(x), -x).conj().imag
    assert found.is_neg()
    return found


@pytest.mark.parametrize("per_edge", [False, True])
def test_a_negative_bit_is_read(per_edge):
    draw = torch.Generator().manual_seed(0)
    edges = (5, 5, 3, 3) if per_edge else (3, 3)
    shapes = ((5, 6, 3), edges, (3,), (3,))
    wide = {"generator": draw, "dtype": torch.float64}
    potentials = [torch.randn(shape, **wide) for shape in shapes]
    y = torch.randint(3, (5, 6), generator=draw)
    weight = torch.rand(5, **wide)
    plain = Chain(*potentials)
    flipped = Chain(*(negated(x) for x in potentials))
    labels = torch._neg_view(-y)
    for ask in (
        lambda c, _, w: c.decode()[0],
        lambda c, _, w: c.decode_topk(2)[0],
        lambda c, _, w: c.entropy(),
        lambda c, y, w: c.log_likelihood(y, w),
        lambda c, y, w: c.violation(y, w),
        lambda c, y, w: c.log_prob(y),
        lambda c, y, w: CRFLoss()(c, y, weight=w),
        lambda c, y, w: StructuralHinge(class_weight=w[:3])(c, y),
    ):
        expected = ask(plain, y, weight)
        assert_close(ask(flipped, labels, negated(weight)), expected, rtol=0, atol=0)
    for x, sign in ((potentials[0].clone(), 1), (negated(potentials[0]), 1)):
        leaf = x.detach().requires_grad_()
        value = Chain(leaf, *potentials[1:]).log_partition()
        (slope,) = torch.autograd.grad(value, leaf, negated(sign * weight))
        expected = plain.marginals() * weight[:, None, None]
        assert_close(slope.resolve_neg(), expected)


def test_a_negative_bit_of_scores_and_of_projected_vectors_is_read():
    scores = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    built = Multiclass(negated(scores))
    assert torch.equal(built.log_partition(), Multiclass(scores).log_partition())
    for project, bound in (
        (project_simplex, torch.ones(4)),
        (project_weston_watkins, torch.ones(4, 5)),
    ):
        found = project(negated(scores), negated(bound))
        assert torch.equal(found, project(scores, bound))


def saved_and_loaded(built: Chain) -> Chain:
    file = io.BytesIO()
    torch.save(built, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("again", [copy.deepcopy, saved_and_loaded])
@pytest.mark.parametrize("ends", [{}, {"start": torch.ones(4, dtype=torch.float64)}])
def test_a_copy_of_a_chain_has_memory_of_its_own(again, ends):
    draw = torch.Generator().manual_seed(0)
    emissions = torch.randn(2, 3, 4, generator=draw, dtype=torch.float64)
    lengths = torch.tensor([3, 2])
    built = Chain(emissions, torch.eye(4).double(), **ends, lengths=lengths)
    expected = built.log_partition()
    copied = again(built)
    emissions.zero_()
    assert torch.equal(copied.log_partition(), expected)
    assert torch.equal(copied.lengths, lengths)
    assert torch.equal(copied.end, built.end)


E = torch.zeros(2, 3, 4)
SPARSE = {
    "emissions": lambda: Chain(E.to_sparse(), E[0, 0].diag()),
    "transitions": lambda: Chain(E, torch.eye(4).to_sparse()),
    "start": lambda: Chain(E, torch.eye(4), E[0, 0].to_sparse()),
    "lengths": lambda: Chain(E, torch.eye(4), lengths=torch.ones(2).long().to_sparse()),
    "mask": lambda: Chain(E, torch.eye(4), mask=(E[..., 0] == 0).to_sparse()),
    "cost": lambda: Chain(E, torch.eye(4)).augment(E.to_sparse()),
    "y": lambda: Chain(E, torch.eye(4)).score(E[..., 0].long().to_sparse()),
    "weight": lambda: Chain(E, torch.eye(4)).log_likelihood(
        E[..., 0].long(), torch.ones(2).to_sparse()
    ),
    "scores": lambda: Multiclass(E[0].to_sparse()),
    "v": lambda: project_simplex(E.to_sparse()),
    "upper": lambda: project_weston_watkins(E, E.to_sparse()),
}


@pytest.mark.parametrize("name", SPARSE)
def test_a_tensor_that_is_not_dense_is_named(name):
    with pytest.raises(TypeError, match=f"{name}: expected a dense tensor"):
        SPARSE[name]()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_named():
    rows = [torch.zeros(3, 4), torch.zeros(2, 4)]
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor(rows, layout=layout)
        with pytest.raises(TypeError, match=r"emissions: .*dense.*got"):
            Chain(nested, torch.eye(4))


def test_zeros_without_memory_are_zeros():
    zeros = torch._efficientzerotensor((2, 3, 4))
    value = Chain(zeros, torch.zeros(4, 4)).log_partition()
    assert_close(value, Chain(E, torch.zeros(4, 4)).log_partition())
