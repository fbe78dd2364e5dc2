"""The op that stands for all questions in a graph, as torch.library checks it."""

import itertools

import pytest
import torch

from smoothsp.oracles._questions import rules
from smoothsp.oracles._questions.question import Question, ask
from tests.instances.chains import Y, random_case
from tests.instances.drawn import structure
from tests.sweeps import thinned

F64 = torch.float64
QUESTIONS = ("Sums", "Covariance", "Entropy", "Best", "Score", "Samples", "two best")


def question(engine, name: str, used: torch.Tensor) -> Question:
    """A question to an engine, about random numbers where it is about any."""
    generator = torch.Generator().manual_seed(0)
    if name == "Covariance":
        along = [torch.zeros_like(x) for x in rules.marginals(engine)]
        return rules.Covariance(engine, *along)
    if name == "Samples":
        B, _, *rest = used.shape
        uniforms = torch.rand(B, 2, *rest, generator=generator, dtype=F64)
        return rules.Samples(engine, uniforms)
    return {
        "Sums": lambda: rules.Sums(engine),
        "Entropy": lambda: rules.Entropy(engine),
        "Best": lambda: rules.Best(engine, None, F64),
        "two best": lambda: rules.Best(engine, 2, F64),
        "Score": lambda: rules.Score(engine, used, F64),
    }[name]()


def check(asked: Question) -> None:
    engine = asked.engine
    potentials = [x.detach() for x in engine.potentials]
    if not isinstance(asked, rules.Covariance):
        potentials = [x.requires_grad_() for x in potentials]
    tensors = *potentials, *engine.row_attributes, *asked.about
    torch.library.opcheck(ask._opoverload, asked.node(*tensors))


# opcheck itself looks at the gradient of tensors that are no leaves
pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf"
)


@pytest.mark.parametrize(
    ("name", "per_edge"),
    thinned(itertools.product(QUESTIONS, [False, True]), 6, 1),
)
def test_a_chain_keeps_the_promises_of_the_registration(name, per_edge):
    case = random_case(per_edge)
    used = torch.where(case.mask, Y, 0)[:, None].repeat(1, 2, 1)
    check(question(structure(case)._buffers, name, used))


def test_every_registered_op_is_checked():
    names = torch._C._dispatch_get_all_op_names()
    registered = {n.split("::")[1] for n in names if n.startswith("smoothsp::")}
    assert registered == {"ask", "ask_structure", "ask_slope"}
