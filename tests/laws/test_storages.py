"""No call changes the storage of a tensor that it is given.

``Tensor.numpy()`` makes a storage one that can never be resized again, and FSDP resizes
those of parameters.
"""

import itertools

import pytest
import torch
from torch import Tensor

from smoothsp import LinearChain
from smoothsp.losses import (
    L2,
    CRFLoss,
    Entropy,
    LatentHinge,
    MarginalLikelihood,
    MinimumRisk,
    PerturbedLoss,
    RankingHinge,
    SparseMAPLoss,
    SPOPlus,
    StructuralHinge,
    StructuredPerceptron,
)
from smoothsp.oracles import (
    Chain,
    Multiclass,
    PartialStructure,
    SumStructure,
    approximate_by_alpha_expansion,
    approximate_by_dual_decomposition,
)
from smoothsp.projections import project_capped_simplex, project_simplex
from tests.sweeps import thinned
from tests.truth.circuits.cases import KINDS, SEARCHES, draw

QUESTIONS = (
    *("decode", "log_partition", "marginals", "edge_marginals", "entropy"),
    *("log_count", "max_marginals"),
)
OVER_MAXIMA = {
    "perceptron": StructuredPerceptron(),
    "hinge": StructuralHinge(),
    "hinge-l2": StructuralHinge(L2(1.0, 3)),
}
OVER_COSTS_OF_PARTS = {
    "ranking": RankingHinge(3),
    "minimum risk": MinimumRisk(3),
    "sparse": SparseMAPLoss(),
    "perturbed": PerturbedLoss(3),
}
OVER_SUMS = {"CRF": CRFLoss(), "hinge-entropy": StructuralHinge(Entropy(1.0))}
OVER_ALLOWED = {
    "marginal likelihood": MarginalLikelihood(),
    "latent hinge": LatentHinge(),
    "latent hinge-l2": LatentHinge(L2(1.0, 3)),
}
SIZES = {"small": (4, 5, 3), "large": (70, 33, 20)}


def require_resizable(given: dict[str, object], call: str) -> None:
    tensors = {name: x for name, x in given.items() if isinstance(x, Tensor)}
    pinned = [n for n, x in tensors.items() if not x.untyped_storage().resizable()]
    assert not pinned, f"{call} changed the storage of {', '.join(pinned)}"


def check(build, potentials: dict[str, Tensor], options: dict[str, object]) -> None:
    """All questions and losses, with their gradients."""
    given = {n: x.clone().requires_grad_() for n, x in potentials.items()}
    y = build(**given, **options).decode()[1].clone()
    main = next(iter(given))
    allowed = torch.ones(potentials[main].shape, dtype=torch.bool)
    true = torch.rand(potentials[main].shape).double()
    watched = given | options | {"y": y, "allowed": allowed, "true scores": true}

    def ask(name, call):
        answers = call(build(**given, **options))
        answers = answers if isinstance(answers, tuple) else (answers,)
        slopes = [x for x in answers if isinstance(x, Tensor) and x.requires_grad]
        if slopes:
            upstream = [torch.ones_like(x) for x in slopes]
            torch.autograd.grad(slopes, [*given.values()], upstream, allow_unused=True)
            watched.update({f"gradient {i}": x for i, x in enumerate(upstream)})
        require_resizable(watched, name)

    built = build(**given, **options)
    for name in QUESTIONS:
        if hasattr(built, name):
            ask(name, lambda s, name=name: getattr(s, name)())
    ask("decode_topk", lambda s: s.decode_topk(3))
    ask("score", lambda s: s.score(y))
    ask("select", lambda s: s.select(torch.arange(len(y))).decode())
    losses = dict(OVER_MAXIMA)
    if isinstance(built, SumStructure):
        ask("sample", lambda s: s.sample(2))
        losses |= OVER_SUMS
    if type(built).__name__ != "BoxSearch":
        ask("SPO+", lambda s: SPOPlus()(s, y, true))
        losses |= OVER_COSTS_OF_PARTS
    for name, loss in losses.items():
        ask(name, lambda s, loss=loss: loss(s, y))
    if isinstance(built, PartialStructure):
        for name, loss in OVER_ALLOWED.items():
            ask(name, lambda s, loss=loss: loss(s, allowed))


@pytest.mark.parametrize("kind", thinned([*KINDS, *SEARCHES], 3))
def test_no_question_and_no_loss_changes_a_storage(kind):
    case = draw(kind, 0)
    check(case.build, case.potentials, case.options)


@pytest.mark.parametrize(
    ("size", "by_step", "padded"),
    thinned(itertools.product(SIZES, [False, True], ["", "lengths", "mask"]), 5),
)
def test_no_chain_changes_a_storage(size, by_step, padded):
    B, T, S = SIZES[size]
    edges = (B, T - 1, S, S) if by_step else (S, S)
    shapes = {"emissions": (B, T, S), "transitions": edges, "start": (S,), "end": (S,)}
    lengths = torch.arange(B) % T + 1
    mask = (torch.arange(T) < lengths[:, None]).flip(1)
    options = {"lengths": {"lengths": lengths}, "mask": {"mask": mask}}
    potentials = {name: torch.randn(shape).double() for name, shape in shapes.items()}
    check(Chain, potentials, options.get(padded, {}))


def test_no_choice_changes_a_storage():
    mask = torch.arange(5) < torch.tensor([[5], [2], [4]])
    check(Multiclass, {"scores": torch.randn(3, 5).double()}, {"mask": mask})


@pytest.mark.parametrize("loss", ["crf", "hinge", "hinge-l2", "hinge-entropy"])
def test_no_layer_changes_the_storage_of_its_parameters(loss):
    head = LinearChain(4).double()
    emissions = torch.randn(3, 5, 4).double().requires_grad_()
    tags, mask = torch.randint(4, (3, 5)), torch.ones(3, 5, dtype=torch.bool)
    head.loss(emissions, tags, mask, loss=loss).backward()
    head.decode(emissions, mask)
    head.marginals(emissions, mask)
    given = dict(head.named_parameters())
    given |= {"emissions": emissions, "tags": tags, "mask": mask}
    require_resizable(given, loss)


def test_no_approximation_and_no_projection_changes_a_storage():
    nodes, edges = torch.randn(2, 3, 2).double(), torch.randn(2, 2, 2, 2).double()
    index = torch.tensor([[0, 1], [1, 2]])
    given = {"nodes": nodes, "edges": edges, "index": index}
    for approximate in (
        approximate_by_alpha_expansion,
        approximate_by_dual_decomposition,
    ):
        approximate(nodes, edges, index)
        require_resizable(given, approximate.__name__)
    v, total, upper = torch.randn(4, 6), torch.ones(4), torch.ones(4, 6)
    given = {"v": v.double(), "total": total.double(), "upper": upper.double()}
    project_simplex(given["v"], given["total"])
    project_capped_simplex(**given)
    require_resizable(given, "projections")
