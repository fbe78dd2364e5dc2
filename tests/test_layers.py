"""`LinearChain`: a head that owns its scores, with and without constraints."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from smoothsp import LinearChain
from smoothsp.constraints import bio
from smoothsp.losses import (
    L2,
    CRFLoss,
    Entropy,
    SparseMAPLoss,
    StructuralHinge,
    StructuredPerceptron,
)
from smoothsp.oracles import Chain

NAMES = ["end_transitions", "start_transitions", "transitions"]
MASK = torch.tensor([[1, 1, 1, 0], [0, 1, 0, 1], [0, 0, 0, 0]]).bool()
LOSSES = [
    CRFLoss(),
    StructuralHinge(),
    StructuralHinge(L2(2.0, 3)),
    StructuralHinge(Entropy(0.5), reduction="token_mean"),
    StructuredPerceptron(),
]


def head(num_tags: int = 3, **options: object) -> LinearChain:
    torch.manual_seed(0)
    return LinearChain(num_tags, **options)


def emissions(*shape: int, seed: int = 1, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_the_state_dict_has_the_three_well_known_names():
    layer = head(4)
    assert sorted(layer.state_dict()) == NAMES
    assert sorted(name for name, _ in layer.named_parameters()) == NAMES
    shapes = [tuple(v.shape) for _, v in sorted(layer.state_dict().items())]
    assert shapes == [(4,), (4,), (4, 4)]
    constrained = LinearChain(3, bio(["O", "B-X", "I-X"]))
    assert sorted(constrained.state_dict()) == NAMES


def test_a_saved_state_dict_loads_and_scores_alike():
    saved = {
        "start_transitions": emissions(3, seed=2),
        "end_transitions": emissions(3, seed=3),
        "transitions": emissions(3, 3, seed=4),
    }
    layer = LinearChain(3)
    layer.load_state_dict(saved)
    x = emissions(3, 4, 3)
    start, end = saved["start_transitions"], saved["end_transitions"]
    plain = Chain(x, saved["transitions"], start, end, mask=MASK)
    assert_close(layer.structure(x, MASK).log_partition(), plain.log_partition())
    assert_close(layer.marginals(x, MASK), plain.marginals())
    assert_close(layer.decode(x, MASK).scores, plain.decode()[0])


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_loss_is_that_of_the_structure(loss):
    layer, x = head(), emissions(3, 4, 3)
    y = torch.tensor([[0, 1, 2, -100], [-100, 1, -1, 0], [9, 9, 9, 9]])
    weight = torch.tensor([1.0, 2.0, 3.0])
    found = layer.loss(x, y, MASK, loss=loss, weight=weight)
    assert_close(found, loss(layer.structure(x, MASK), y, weight))
    found.backward()
    for parameter in layer.parameters():
        assert parameter.grad.abs().sum() > 0


def test_the_default_loss_is_the_likelihood():
    layer, x, y = head(), emissions(2, 4, 3), torch.zeros(2, 4, dtype=torch.int64)
    assert_close(layer.loss(x, y), -layer.structure(x).log_prob(y).mean())


@pytest.mark.parametrize("pad_value", [-1, -100, 7])
def test_decoding_pads_with_the_value_asked_for(pad_value):
    layer, x = head(), emissions(3, 4, 3)
    tags, scores = layer.decode(x, MASK, pad_value=pad_value)
    value, y = layer.structure(x, MASK).decode()
    assert_close(scores, value.detach())
    assert torch.equal(tags[MASK], y[MASK])
    assert (tags[~MASK] == pad_value).all()
    tags, scores, valid = layer.decode(x, MASK, top_k=30, pad_value=pad_value)
    values, ys, exists = layer.structure(x, MASK).decode_topk(30)
    assert torch.equal(valid, exists)
    assert valid.sum(1).tolist() == [27, 9, 1]
    assert_close(scores, values.detach())
    real = MASK[:, None] & valid[..., None]
    assert torch.equal(tags[real], ys[real])
    assert (tags[~real] == pad_value).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_emissions_of_another_precision_are_accepted(dtype):
    layer, x = head(), emissions(2, 3, 3).to(dtype).requires_grad_()
    y = torch.zeros(2, 3, dtype=torch.int64)
    loss = layer.loss(x, y)
    loss.backward()
    assert x.grad.dtype == dtype
    assert layer.transitions.grad.dtype == torch.float32
    assert_close(
        loss.double(), layer.loss(x.double(), y).double(), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("loss", [*LOSSES, SparseMAPLoss()], ids=str)
def test_a_head_works_below_autocast(loss):
    layer, network = head(), torch.nn.Linear(4, 3)
    x, y = emissions(2, 5, 4), torch.zeros(2, 5, dtype=torch.int64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = network(x)
        value = layer.loss(out, y, loss=loss)
        decoded = layer.decode(out)
    assert out.dtype == torch.bfloat16
    assert value.dtype == decoded.scores.dtype == torch.float32
    assert_close(value, layer.loss(out.float(), y, loss=loss), rtol=0, atol=0)
    value.backward()
    assert network.weight.grad.isfinite().all()


SCHEMES = {
    "IOB1": ["O", "B-X", "I-X", "B-Y", "I-Y"],
    "BIO": ["O", "B-X", "I-X", "B-Y", "I-Y"],
    "BIOES": ["O", *(f"{p}-{kind}" for kind in "XY" for p in "BIES")],
}


def legal(labels: list[str], scheme: str) -> bool:
    """Read a sentence from left to right, as a person would."""
    inside = ""
    for before, label in zip(["O", *labels], labels, strict=False):
        prefix, _, kind = label.partition("-")
        if scheme == "BIOES":
            continues = prefix in ("I", "E")
            if continues != bool(inside) or (continues and kind != inside):
                return False
            inside = kind if prefix in ("B", "I") else ""
        elif scheme == "BIO":
            if prefix == "I" and before not in (f"B-{kind}", f"I-{kind}"):
                return False
        elif prefix == "B" and before not in (f"B-{kind}", f"I-{kind}"):
            return False
    return inside == ""


@pytest.mark.parametrize("scheme", SCHEMES)
@given(st.integers(0, 10**6), st.integers(1, 7))
def test_decoded_sequences_are_always_legal(scheme, seed, time):
    labels = SCHEMES[scheme]
    layer = LinearChain(len(labels), bio(labels, scheme))
    x = emissions(3, time, len(labels), seed=seed, scale=5.0)
    mask = torch.rand(3, time, generator=torch.Generator().manual_seed(seed)) < 0.8
    paths = [*layer.decode(x, mask).tags]
    best = layer.decode(x, mask, top_k=4)
    paths += [*best.tags[best.valid]]
    paths += [*layer.structure(x, mask).sample(3).flatten(0, 1)]
    for path in paths:
        assert legal([labels[i] for i in path.tolist() if i >= 0], scheme)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_only_legal_sequences_have_a_probability(scheme):
    labels = SCHEMES[scheme]
    layer, T = LinearChain(len(labels), bio(labels, scheme)), 3
    ys = list(itertools.product(range(len(labels)), repeat=T))
    allowed = [legal([labels[i] for i in y], scheme) for y in ys]
    built = layer.structure(emissions(1, T, len(labels)))
    log_prob = built.log_prob(torch.tensor(ys)[None])[0].detach()
    assert (log_prob > -math.inf).tolist() == allowed
    assert_close(log_prob.exp().sum(), torch.tensor(1.0))
    assert_close(built.log_count()[0].item(), math.log(sum(allowed)))


def test_forbidden_moves_are_never_learnt():
    labels = SCHEMES["BIO"]
    allowed = bio(labels)
    layer = head(5, constraints=allowed)
    y = torch.tensor([[1, 2, 0, 3], [0, 0, 3, 4]])
    for loss in LOSSES:
        layer.zero_grad()
        layer.loss(emissions(2, 4, 5), y, loss=loss).backward()
        assert (layer.transitions.grad[~allowed.transitions] == 0).all()
        assert (layer.start_transitions.grad[~allowed.start] == 0).all()


BROKEN = {
    "start": ([2, 0, 0], r"tags: .*forbid starting with 'I-X' at row 1, step 0"),
    "move": ([0, 0, 2], r"tags: .*forbid 'I-X' after 'O' at row 1, step 2.*convert"),
}


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("name", BROKEN)
def test_gold_tags_that_the_constraints_forbid_are_named(name, loss):
    path, message = BROKEN[name]
    layer = LinearChain(3, bio(["O", "B-X", "I-X"]))
    tags = torch.tensor([[1, 2, 0], path])
    with pytest.raises(ValueError, match=message):
        layer.loss(torch.zeros(2, 3, 3), tags, loss=loss)
    masked = torch.tensor([[1, 1, 1], [0, 0, 0]]).bool()
    assert layer.loss(torch.zeros(2, 3, 3), tags, masked, loss=loss).isfinite()


def test_gold_tags_that_may_not_end_a_sentence_are_named():
    layer = LinearChain(5, bio(["O", "B-X", "I-X", "E-X", "S-X"]))
    tags = torch.tensor([[1, 3, 0, 4], [4, 1, -100, 2]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 1]]).bool()
    with pytest.raises(
        ValueError, match=r"tags: .*forbid ending with 'I-X' at row 1, step 3"
    ):
        layer.loss(torch.zeros(2, 4, 5), tags, mask)


NESTED = torch.nested.nested_tensor(
    [torch.zeros(2, 3), torch.zeros(4, 3)], layout=torch.jagged
)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: LinearChain(0), ValueError, "num_tags: "),
        (lambda: LinearChain(4, bio(["O", "B-X"])), ValueError, "constraints: "),
        (
            lambda: LinearChain(3).decode(torch.zeros(1, 2, 4)),
            ValueError,
            "emissions: ",
        ),
        (
            lambda: LinearChain(3).decode(torch.zeros(1, 2, 3), top_k=0),
            ValueError,
            "top_k: ",
        ),
        (
            lambda: head()(emissions(1, 4, 3), torch.zeros(1, 4).long(), reduction=""),
            ValueError,
            "reduction: ",
        ),
        (
            lambda: LinearChain(3)(NESTED, MASK.long()),
            TypeError,
            "^emissions: expected a dense tensor, got a nested one; pad it with",
        ),
        (
            lambda: LinearChain(3)(torch.zeros(2, 4, 3), NESTED),
            TypeError,
            "^tags: expected a dense tensor, got a nested one; pad it with",
        ),
    ],
)
def test_bad_arguments_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_network_without_numbers_is_told_how_to_get_some():
    head = LinearChain(3).to("meta")
    emissions = torch.zeros(2, 4, 3, device="meta")
    tags = torch.zeros(2, 4, dtype=torch.int64, device="meta")
    for call in (lambda: head(emissions, tags), lambda: head.decode(emissions)):
        with pytest.raises(TypeError, match=r"tensor on meta; .*module\.to_empty\(\)"):
            call()
