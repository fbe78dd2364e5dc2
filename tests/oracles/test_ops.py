"""The op that stands for all questions in a graph, as torch.library checks it."""

import itertools

import pytest
import torch

from smoothsp.oracles import SpanningTree
from smoothsp.oracles._inference import in_graphs, rules
from smoothsp.oracles._inference.op import Op, graph_op
from tests.instances.chains import Y, random_case
from tests.instances.strategies import structure
from tests.sweeps import thinned

F64 = torch.float64
QUESTIONS = ("Sums", "Covariance", "Entropy", "Best", "Score", "Samples", "two best")


def question(engine, name: str, used: torch.Tensor) -> Op:
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


def check(asked: Op) -> None:
    engine = asked.engine
    potentials = [x.detach() for x in engine.potentials]
    if not isinstance(asked, rules.Covariance):
        potentials = [x.requires_grad_() for x in potentials]
    tensors = *potentials, *engine.row_attributes, *asked.extra_tensors
    torch.library.opcheck(graph_op._opoverload, asked.graph_args(*tensors))


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


@pytest.mark.parametrize("name", ["log_partition", "decode", "decode_topk"])
def test_questions_of_structures_keep_the_promises_of_the_registration(name):
    arcs = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0))
    arcs = arcs.double().requires_grad_()
    lengths = torch.tensor([3, 1])
    made_of = in_graphs.record_call(SpanningTree, (arcs,), {"lengths": lengths})
    k = [2] if name == "decode_topk" else []
    row, outputs = [2, *k], [2, *k, 3]
    shapes = {
        "log_partition": [1, *row],
        "decode": [1, *row, 2, *outputs],
        "decode_topk": [2, *row, 3, *outputs, 2, *row],
    }[name]
    kinds = [in_graphs.FLOAT, in_graphs.INT, in_graphs.BOOL]
    kinds = kinds[: {"log_partition": 1, "decode": 2, "decode_topk": 3}[name]]
    given = name, made_of.call_index, k, list(made_of.tensors), [], [arcs], []
    torch.library.opcheck(in_graphs.structure_op._opoverload, (*given, shapes, kinds))
    if name == "log_partition":
        arcs.requires_grad_(False)
        grad = torch.ones(2, dtype=F64)
        torch.library.opcheck(
            in_graphs.structure_grad_op._opoverload, (*given, grad, [0])
        )


def test_these_ops_are_registered():
    names = torch._C._dispatch_get_all_op_names()
    registered = {n.split("::")[1] for n in names if n.startswith("smoothsp::")}
    assert registered == {"ask", "ask_structure", "ask_slope"}
