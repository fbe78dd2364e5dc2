"""The shapes in the annotations are executed, in a process of its own.

Under the hook a wrong argument is refused before the library can say what is wrong with
it, so the other tests run without.
"""

import sys

import pytest

from tests.programs import run

PROGRAM = """
from jaxtyping import install_import_hook

# Never smoothsp._kernels: numba cannot compile a function that the hook has wrapped.
with install_import_hook(
    ["smoothsp.oracles", "smoothsp.losses", "smoothsp.layers", "smoothsp.constraints"],
    "beartype.beartype",
):
    import smoothsp

import torch
from smoothsp.losses import L2, CRFLoss, Entropy, StructuralHinge, functional
from smoothsp.oracles import Chain, Multiclass

torch.manual_seed(0)
# most tests ask for the same kernels then
torch.set_default_dtype(torch.float64)
mask = torch.tensor([[True, True, False], [False, False, False]])
y = torch.tensor([[0, 1, -100], [-100, -100, -100]])
shared = Chain(torch.randn(2, 3, 4), torch.randn(4, 4), torch.randn(4), mask=mask)
edges = Chain(torch.randn(2, 3, 4), torch.randn(2, 2, 4, 4), mask=mask)
choice = Multiclass(torch.randn(2, 3), mask)
for structure, gold in ((shared, y), (edges, y), (choice, torch.tensor([1, -1]))):
    structure.decode(), structure.decode_topk(3), structure.log_partition()
    structure.score(gold), structure.hamming(gold), structure.label_counts(gold)
    structure.marginals(), structure.entropy(), structure.log_count()
    structure.log_prob(structure.sample(5)), structure.lengths, structure.mask
    for smoothing in (None, Entropy(0.5), L2(1.0, 2), L2(1.0, "exact")):
        StructuralHinge(smoothing)(structure, gold)
    CRFLoss()(structure, gold), functional.perceptron(structure, gold)
shared.edge_marginals(), edges.edge_marginals()
functional.max_l2(torch.randn(2, 3), 1.0), functional.max_entropy(torch.randn(3), 1.0)
functional.topk_is_exact(torch.tensor([[2.0, 1.0]]), 1.0)
head = smoothsp.LinearChain(3, smoothsp.constraints.bio(["O", "B-X", "I-X"]))
head.decode(torch.randn(2, 3, 3), mask, top_k=2)
head.marginals(torch.randn(2, 3, 3), mask)

try:
    functional.max_l2(torch.randn(2, 3), 1.0, valid=torch.ones(2, 4).bool())
except TypeError as error:
    assert "m=3" in str(error), error
else:
    raise AssertionError("the hook did not check shapes")
"""


@pytest.mark.long
def test_annotated_shapes_are_those_that_come_out():
    run(sys.executable, "-c", PROGRAM)
