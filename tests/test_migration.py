"""`LinearChain` for who comes from other libraries: their calls, masks and mistakes."""

import sys

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from smoothsp import LinearChain
from smoothsp.constraints import bio
from smoothsp.losses import L2, CRFLoss, Entropy, StructuralHinge, StructuredPerceptron
from tests.programs import run

B, T, S = 3, 4, 3
MASK = torch.tensor([[1, 1, 1, 0], [0, 1, 0, 1], [0, 0, 0, 0]]).bool()
TAGS = torch.tensor([[0, 1, 2, -100], [-100, 1, -1, 0], [9, 9, 9, 9]])
NAMED = {
    "crf": CRFLoss(),
    "hinge": StructuralHinge(),
    "hinge-l2": StructuralHinge(L2(1.0, 5)),
    "hinge-entropy": StructuralHinge(Entropy(1.0)),
    "perceptron": StructuredPerceptron(),
}


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return LinearChain(S)


@pytest.fixture
def x():
    return torch.randn(B, T, S, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", NAMED)
def test_a_name_is_its_loss(name, layer, x):
    for call in (layer, layer.loss):
        assert_close(
            call(x, TAGS, MASK, name), NAMED[name](layer.structure(x, MASK), TAGS)
        )
    each = layer(x, TAGS, MASK, loss=name, reduction="none")
    assert each.shape == (B,)
    assert_close(each.mean(), layer(x, TAGS, MASK, loss=name))


def test_time_may_come_first(layer, x):
    other = LinearChain(S, batch_first=False)
    other.load_state_dict(layer.state_dict())
    turned = x.transpose(0, 1), MASK.T
    weight = torch.tensor([1.0, 2.0, 3.0])
    assert_close(
        other(turned[0], TAGS.T, turned[1], weight=weight),
        layer(x, TAGS, MASK, weight=weight),
    )
    assert torch.equal(other.decode(*turned).tags, layer.decode(x, MASK).tags.T)
    best, ours = other.decode(*turned, top_k=2), layer.decode(x, MASK, top_k=2)
    assert best.tags.shape == (T, B, 2)
    assert torch.equal(best.tags, ours.tags.permute(2, 0, 1))
    assert torch.equal(best.scores, ours.scores)
    assert torch.equal(best.valid, ours.valid)
    assert_close(other.marginals(*turned), layer.marginals(x, MASK).transpose(0, 1))
    message = r"tags: expected \(time, batch\) = \(4, 3\), got \(3, 4\)"
    with pytest.raises(ValueError, match=message):
        other(turned[0], TAGS, turned[1])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8])
def test_an_attention_mask_of_integers_is_a_mask(dtype, layer, x):
    mask = MASK.to(dtype)
    assert torch.equal(layer(x, TAGS, mask), layer(x, TAGS, MASK))
    assert torch.equal(layer.decode(x, mask).tags, layer.decode(x, MASK).tags)
    mask[0, 1] = 2
    message = "mask: expected 0 and 1, 1 being real, .* got 2; convert with .bool()"
    with pytest.raises(ValueError, match=message):
        layer.decode(x, mask)


def test_a_mask_of_bytes_is_a_mask_with_a_warning(layer, x):
    with pytest.warns(UserWarning, match="mask: ") as caught:
        value = layer.loss(x, TAGS, MASK.byte())
    assert caught[0].filename.endswith("layers.py") is False
    assert torch.equal(value, layer(x, TAGS, MASK))


def test_labels_by_number_are_constraints():
    labels = ["O", "B-X", "I-X", "B-Y", "I-Y"]
    id2label = dict(reversed(list(enumerate(labels))))
    from_json = {str(n): label for n, label in id2label.items()}
    expected = bio(labels)
    for given in (id2label, from_json, tuple(labels)):
        for found in (bio(given), LinearChain(5, given)):
            if isinstance(found, LinearChain):
                found = (
                    found.allowed_start,
                    found.allowed_transitions,
                    found.allowed_end,
                )
            assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        ({1: "O", 2: "B-X"}, ValueError, "labels: "),
        ({"O": 0, "B-X": 1}, TypeError, "labels: .*got 0; this looks like label2id"),
        ([0, 1], TypeError, "labels: "),
        ("OB", TypeError, "labels: "),
        (2, TypeError, "labels: "),
    ],
)
def test_labels_that_are_none_are_named(labels, error, message):
    with pytest.raises(error, match=message):
        bio(labels)
    # whoever makes a head handed them over by another name
    with pytest.raises(error, match=message.replace("labels", "constraints", 1)):
        LinearChain(2, constraints=labels)


class Output:
    logits = torch.zeros(1, 2, 3)


Z, Y = torch.zeros(1, 2, 3), torch.zeros(1, 2, dtype=torch.int64)
MISTAKES = {
    "none": (lambda h: h(None, Y), TypeError, "emissions: "),
    "numpy": (
        lambda h: h.decode(np.zeros((1, 2, 3))),
        TypeError,
        "emissions: .* got ndarray; convert with torch.from_numpy",
    ),
    "output": (
        lambda h: h.decode(Output()),
        TypeError,
        r"emissions: .* got Output; pass its \.logits",
    ),
    "precision": (lambda h: h.double()(Z, Y), TypeError, "emissions: "),
    "device": (lambda h: h(Z.to("meta"), Y), TypeError, "emissions: "),
    "tags of floats": (lambda h: h(Z, Y.float()), TypeError, "tags: "),
    "tags of ignored": (
        lambda h: h(Z, Y - 100),
        ValueError,
        "^tags: .* got -100 at row 0, step 0; mask that position",
    ),
    "tags that are names": (
        lambda h: h(Z, [["O", "B-X"]]),
        TypeError,
        "^tags: .*got list; number the tags first",
    ),
    "emissions of one sequence": (
        lambda h: h.decode(Z[0]),
        ValueError,
        r"^emissions: .* got \(2, 3\); for one sequence use emissions.unsqueeze\(0\)",
    ),
    "lengths for a mask": (
        lambda h: h(Z, Y, torch.tensor([2])),
        ValueError,
        r"^mask: .* got \(1,\); from lengths: torch.arange\(time\) < lengths",
    ),
    "a number for a mask": (
        lambda h: h.decode(Z, 5),
        TypeError,
        "^mask: expected a torch.Tensor, got int; for the k best outputs pass top_k=",
    ),
    "mask for tags": (lambda h: h(Z, Y.bool(), Y), TypeError, "tags: "),
    "mask of floats": (
        lambda h: h(Z, Y, Y.float()),
        TypeError,
        "mask: expected torch.bool .* got torch.float32; convert with .bool()",
    ),
    "class of a loss": (
        lambda h: h(Z, Y, loss=CRFLoss),
        TypeError,
        r"loss: .* got the class CRFLoss; write CRFLoss\(\)",
    ),
    "two reductions": (
        lambda h: h(Z, Y, loss=CRFLoss(), reduction="sum"),
        ValueError,
        "reduction: ",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_argument_that_is_wrong_is_named_in_one_line(mistake, layer):
    call, error, message = MISTAKES[mistake]
    with pytest.raises(error, match=message) as caught:
        call(layer)
    assert "\n" not in str(caught.value)


def test_a_step_with_names_and_integer_masks_compiles_to_one_graph(layer, x):
    def step(x, mask):
        return layer(x, TAGS.clamp(0, 2), mask, "hinge-l2", reduction="sum")

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    assert_close(compiled(x, MASK.long()), step(x, MASK))


MISSING = """
import sys
sys.modules["scipy"] = sys.modules["pytorch_lightning"] = None
import smoothsp
for name in ("linear", "lightning"):
    try:
        getattr(smoothsp, name)
    except ModuleNotFoundError as error:
        print(error)
"""


@pytest.mark.long
def test_a_missing_extra_says_what_to_install():
    caught = run(sys.executable, "-c", MISSING).stdout.splitlines()
    assert len(caught) == 2
    for line, name in zip(caught, ("linear", "lightning"), strict=True):
        assert line.startswith(f"smoothsp.{name}: needs ")
        assert line.endswith(f'pip install "smoothsp[{name}]"')
