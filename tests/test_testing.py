"""The check of users' structures: ours pass, and each broken law is named."""

import itertools
import re

import pytest
import torch

from smoothsp.losses import L2, Entropy, StructuralHinge, StructuredPerceptron
from smoothsp.oracles import Chain
from smoothsp.testing import check_structure
from tests.sweeps import thinned
from tests.truth.circuits.cases import KINDS, SEARCHES, draw


@pytest.mark.parametrize(
    ("kind", "listed"), thinned(itertools.product(KINDS + SEARCHES, [True, False]), 7)
)
def test_our_structures_pass(kind, listed):
    case = draw(kind, 1 - listed)
    check_structure(case.structure(), case.outputs if listed else None)
    single = draw(kind, 0).map(torch.Tensor.float)
    check_structure(single.structure(), single.outputs if listed else None)


def chain():
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(s, generator=generator).double() for s in ((2, 3, 2), (2, 2))]
    return Chain(*drawn)


EVERY = torch.cartesian_prod(*[torch.arange(2)] * 3)


class Broken:
    """A chain of which one answer is wrong."""

    def __init__(self, name, change, inner=None):
        self.name, self.change, self.inner = name, change, inner or chain()

    def __getattr__(self, name):
        found = getattr(self.inner, name)
        if name in ("augment", "scale", "select", "restrict"):
            return self.again(name, found)
        if name != self.name:
            return found
        if callable(found):
            return lambda *given: self.change(found(*given))
        return self.change(found)

    def again(self, name, found):
        def answer(*given):
            inner = found(*given)
            if name == self.name:
                inner = self.change(inner)
            return Broken(self.name, self.change, inner)

        return answer


def worse(found):
    y = found[1].flip(1)
    return chain().score(y), y


BROKEN = {
    "decode": (
        worse,
        r"decode: expected an output of the highest score, got \[.*\] "
        r"with .* at row 0, where \[.*\] has ",
    ),
    "score": (lambda x: x + 1, r"decode: expected score\(y\) = "),
    "log_partition": (lambda x: x + 0.1, "log_partition: .* sum of exp"),
    "log_prob": (lambda x: 2 * x, r"log_prob: expected score\(y\) - log_partition"),
    "marginals": (lambda x: x.flip(2), "marginals: expected the gradient"),
    "entropy": (lambda x: x + 1, "entropy: expected"),
    "log_count": (lambda x: x + 1, "log_count: expected"),
    "hamming": (lambda x: 1 - x, "hamming: expected no cost of y"),
    "scale": (lambda x: chain(), "scale: expected twice"),
    "decode_topk": (lambda x: [y.flip(1) for y in x], "decode_topk: expected the dec"),
    "sample": (lambda x: x[0], "sample: expected outputs"),
    "select": (
        lambda x: chain().select(torch.tensor([1])),
        "select: expected .* row 0",
    ),
    "lengths": (lambda x: x.sum(), "lengths: expected"),
    "label_counts": (lambda x: x[0], "label_counts: expected"),
    "augment": (
        lambda x: chain(),
        "decode: expected a gradient|score: expected a grad",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_law_is_named(name):
    change, message = BROKEN[name]
    check_structure(Broken("no", None), [EVERY] * 2)
    with pytest.raises(AssertionError, match=f"^Broken.{message}"):
        check_structure(Broken(name, change), [EVERY] * 2)


def test_a_wrong_decode_is_found_without_a_list():
    with pytest.raises(AssertionError, match=r"decode: expected .* where"):
        check_structure(Broken("decode", worse))


def test_a_right_value_of_a_wrong_output_shows_a_better_one():
    broken = Broken("decode", lambda found: (found[0], found[1].flip(1)))
    with pytest.raises(AssertionError, match=r"decode: .* highest score, got .* where"):
        check_structure(broken, [EVERY] * 2)


def test_outputs_that_the_list_lacks_are_shown():
    _, ys, _ = chain().decode_topk(2)
    lists = [EVERY[(y != EVERY).any(1)] for y in ys[:, 1]]
    words = f"decode_topk: expected one of the outputs given, got {ys[0, 1].tolist()}"
    with pytest.raises(AssertionError, match=re.escape(words)):
        check_structure(chain(), lists)


def test_a_score_that_raises_is_named_with_the_output():
    def no_output(score):
        raise ValueError("y: expected an output")

    with pytest.raises(AssertionError, match=r"score of the decoded .* error: y: exp"):
        check_structure(Broken("score", no_output), [EVERY] * 2)


def test_what_is_no_structure_is_named():
    with pytest.raises(TypeError, match="structure: expected a method score, int has"):
        check_structure(3)
    with pytest.raises(ValueError, match="outputs: expected those of 2 rows, got 1"):
        check_structure(chain(), [EVERY])


def lowered(found):
    return found[0] - 20, *found[1:]


@pytest.mark.parametrize(
    ("loss", "name", "change"),
    [
        (StructuralHinge(), "decode", lowered),
        (StructuredPerceptron(), "decode", lowered),
        (StructuralHinge(cost=None), "decode", lowered),
        (StructuralHinge(L2(1.0, 3)), "decode_topk", lowered),
        (StructuralHinge(Entropy(1.0)), "log_partition", lambda x: x - 20),
    ],
)
def test_hinges_of_a_maximum_below_the_true_output_are_refused(loss, name, change):
    y = chain().decode()[1]
    assert loss(Broken("no", None), y) >= 0
    with pytest.raises(
        ValueError, match=r"structure: expected .* from Broken; check it"
    ):
        loss(Broken(name, change), y)
