"""Nothing that a user hands in leads out of a tensor's memory."""

import copy
import io

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from smoothsp import LinearChain
from smoothsp.losses import (
    L2,
    CRFLoss,
    Entropy,
    StructuralHinge,
    StructuredPerceptron,
)
from smoothsp.oracles import Chain, Multiclass
from smoothsp.projections import project_simplex

B, T, S = 5, 6, 4


def drawn() -> tuple[list[Tensor], Tensor]:
    """Potentials and labels, on the CPU."""
    draw = torch.Generator("cpu").manual_seed(0)
    given = {"generator": draw, "dtype": torch.float64, "device": "cpu"}
    potentials = [
        torch.randn(shape, **given) for shape in ((B, T, S), (S, S), (S,), (S,))
    ]
    return potentials, torch.randint(S, (B, T), generator=draw, device="cpu")


def everything(chain: Chain, y: Tensor) -> list[Tensor]:
    """All answers and losses."""
    weight = torch.linspace(0.5, 1, B, device="cpu")
    found = [*chain.decode(), *chain.decode_topk(3), chain.score(y), chain.lengths]
    found += [chain.log_partition(), chain.marginals(), chain.entropy(), chain.mask]
    found += [chain.edge_marginals(), chain.log_prob(y), chain.log_count()]
    found += [chain.hamming(y), chain.label_counts(y), chain.log_likelihood(y, weight)]
    found += [chain.violation(y, weight), chain.scale(2.0).log_partition()]
    found += [chain.sample(2, generator=torch.Generator("cpu").manual_seed(1))]
    found += [chain.select(torch.arange(2, device="cpu")).log_partition()]
    for loss in (
        StructuralHinge(),
        StructuralHinge(Entropy(0.5), reduction="token_mean"),
        StructuralHinge(L2(0.5, "exact")),
        CRFLoss(class_weight=torch.ones(S, device="cpu"), reduction="token_mean"),
        StructuredPerceptron(reduction="none"),
    ):
        found.append(loss(chain, y, weight=weight))
    return found


@pytest.fixture
def default_device():
    yield torch.set_default_device
    torch.set_default_device(None)


@pytest.mark.parametrize("padding", ["", "lengths", "mask"])
def test_the_default_device_changes_no_answer(padding, default_device):
    potentials, y = drawn()
    given = {"": {}, "lengths": {"lengths": y[:, 0]}, "mask": {"mask": y > 0}}[padding]
    answers = []
    for device in ("cpu", "meta"):
        default_device(device)
        leaves = [x.clone().requires_grad_() for x in potentials]
        found = everything(Chain(*leaves, **given), y)
        sum(x.sum() for x in found if x.requires_grad).backward()
        with torch.no_grad():
            found += Chain(*leaves, **given).decode()
        edges = potentials[1].expand(B, T - 1, S, S)
        found += everything(Chain(potentials[0], edges, **given), y)
        answers.append([*found, *(x.grad for x in leaves)])
    for expected, other in zip(*answers, strict=True):
        assert torch.equal(expected, other)


def test_the_default_device_changes_no_answer_of_classes_and_heads(default_device):
    (emissions, *_), y = drawn()
    default_device("meta")
    classes = Multiclass(emissions[:, 0], mask=emissions[:, 0] > -9)
    assert classes.decode_topk(5)[1].device == classes.sample(2).device == y.device
    assert StructuralHinge(L2(0.5, "exact"))(classes, y[:, 0]).isfinite()
    head = LinearChain(S)
    assert head.transitions.is_meta  # as any module's parameters
    torch.nn.Module.to_empty(head, device="cpu").double().reset_parameters()
    assert head.loss(emissions, y).isfinite()
    assert head.decode(emissions, top_k=2).tags.device == y.device


def test_compiled_calls_check_lengths_and_labels():
    potentials, y = drawn()

    @torch.compile(backend="eager", fullgraph=True)
    def ask(lengths: Tensor, y: Tensor) -> object:
        chain = Chain(*potentials, lengths=lengths)
        return chain.log_prob(y), chain.score(y), chain.decode(), chain.entropy()

    good, bad = torch.full((B,), T), torch.tensor([T, T, T, 10**6, T])
    ask(good, y)
    for lengths, words in ((bad, "got 1000000 at row 3"), (-bad, "got -6 at row 0")):
        with pytest.raises(ValueError, match=words):
            ask(lengths, y)
    y[2, 1] = 10**6
    with pytest.raises(ValueError, match="got 1000000 at row 2, step 1"):
        ask(good, y)


@pytest.mark.parametrize("name", ["lengths", "mask"])
def test_positions_that_change_later_change_nothing(name):
    potentials, y = drawn()
    given = torch.tensor([6, 3, 0, 1, 5]) if name == "lengths" else y > 0
    expected = everything(Chain(*potentials, **{name: given.clone()}), y)
    chain = Chain(*potentials, **{name: given})
    given.fill_(10**6)
    for x, other in zip(expected, everything(chain, y), strict=True):
        assert torch.equal(x, other)
    # what was read from a chain is the reader's
    getattr(chain, name).fill_(10**6)
    assert torch.equal(chain.log_partition(), expected[7])
    assert torch.equal(chain.decode()[1], expected[1])


@pytest.mark.parametrize("make", [StructuralHinge, CRFLoss, StructuredPerceptron])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean", "token_mean"])
def test_weights_on_another_device_are_named(make, reduction):
    potentials, y = drawn()
    there = torch.ones(B, device="meta")
    heavy = make(reduction=reduction, class_weight=torch.ones(S, device="meta"))
    for built, gold in (
        (Chain(*potentials), y),
        (Multiclass(potentials[0][:, 0]), y[:, 0]),
    ):
        with pytest.raises(TypeError, match=r"^weight: "):
            make(reduction=reduction)(built, gold, weight=there)
        with pytest.raises(TypeError, match="class_weight: "):
            heavy(built, gold)
        with pytest.raises(TypeError, match=r"^rows: "):
            built.select(torch.zeros(2, dtype=torch.int64, device="meta"))


def negated(x: Tensor) -> Tensor:
    """The same values behind a negative bit."""
    found = torch.complex(torch.zeros_like(x), -x).conj().imag
    assert found.is_neg()
    return found


def test_a_negative_bit_is_read():
    potentials, y = drawn()
    plain, flipped = Chain(*potentials), Chain(*map(negated, potentials))
    for ask in (
        lambda c: c.decode()[0],
        lambda c: c.entropy(),
        lambda c: c.violation(y, 1.0),
        lambda c: CRFLoss()(c, torch._neg_view(-y)),
    ):
        assert_close(ask(flipped), ask(plain), rtol=0, atol=0)
    leaf = negated(potentials[0]).detach().requires_grad_()
    value = Chain(leaf, *potentials[1:]).log_partition()
    weight = torch.linspace(1, 2, B).double()
    (slope,) = torch.autograd.grad(value, leaf, negated(weight))
    assert_close(slope.resolve_neg(), plain.marginals() * weight[:, None, None])


def saved_and_loaded(built: Chain) -> Chain:
    file = io.BytesIO()
    torch.save(built, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("again", [copy.deepcopy, saved_and_loaded])
@pytest.mark.parametrize("ends", [{}, {"start": torch.ones(4, dtype=torch.float64)}])
def test_a_copy_of_a_chain_has_memory_of_its_own(again, ends):
    emissions = drawn()[0][0]
    lengths = torch.tensor([3, 2, 0, 1, 6])
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
    "mask": lambda: Chain(E, torch.eye(4), mask=(E[..., 0] == 0).to_sparse()),
    "scores": lambda: Multiclass(E[0].to_sparse()),
    "v": lambda: project_simplex(E.to_sparse()),
}


@pytest.mark.parametrize("name", SPARSE)
def test_a_tensor_that_is_not_dense_is_named(name):
    with pytest.raises(TypeError, match=f"{name}: expected a dense tensor"):
        SPARSE[name]()


def test_zeros_without_memory_are_zeros():
    zeros = torch._efficientzerotensor((2, 3, 4))
    value = Chain(zeros, torch.zeros(4, 4)).log_partition()
    assert_close(value, Chain(E, torch.zeros(4, 4)).log_partition())
