"""SparseMAP: sparse structured inference by a regularised maximum."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from smoothsp._kernels.combinatorial import sparsemap_qp
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._chain import sparse_map
from smoothsp.oracles._inference.double_double import DoubleDouble
from smoothsp.oracles._inference.parts import require_additive_cost, score_outputs
from smoothsp.oracles._inference.read_only import ReadOnly
from smoothsp.oracles._inference.score_values import LIMIT
from smoothsp.oracles._inference.to_numpy import to_numpy
from smoothsp.oracles._inference.tracing import is_eager
from smoothsp.oracles._searches.mixtures import ROUNDINGS, Mixtures
from smoothsp.oracles.chain import Chain
from smoothsp.oracles.protocols import Structure


class SparseMAP(ReadOnly):
    r"""A sparse mixture of outputs: the maximum regularised in the space of parts.

    .. math:: \max_{p \in \Delta} \sum_y p_y s(y)
        - \tfrac{\gamma}{2} \Big\| \sum_y p_y a(y) \Big\|^2

    ``a(y)`` is the indicator of the parts that y uses, among the first potentials. The
    best mixture ``sum_y p_y a(y)`` is unique, consists of few outputs, and is
    differentiable almost everywhere. It lies between the best output, which is not
    differentiable, and the marginals, which give weight to all outputs. The search only
    calls ``decode``, so any structure works.

    Parameters
    ----------
    structure
        Structure of a batch; all its potentials receive gradients.
    strength
        Regularisation gamma, > 0, in units of the score.
    max_outputs
        Maximum number of ``decode`` calls after the first, at least 1.

    Attributes
    ----------
    outputs
        ``(batch, k, ...)``: outputs with positive weight, largest first. A row with
        fewer than k repeats its first output.
    weights
        ``(batch, k)``, >= 0, of sum 1; 0 where there is no output. Differentiable.
    gap
        ``(batch,)`` float64: upper bound of the distance to the maximum. It is at
        rounding level unless ``max_outputs`` ended the search.
    residual
        ``(batch,)`` float64, of a ``FactorGraph`` alone: largest disagreement of its
        structures on a shared cell. A gap means little beside a large one.

    Raises
    ------
    TypeError
        Under ``torch.compile`` or ``torch.func``: the search needs the values.

    Notes
    -----
    Active-set method. Each iteration decodes with the scores of parts reduced by gamma
    times their share of the mixture. It adds the output found, solves for the weights,
    and drops outputs of weight 0. The outputs with positive weight stay affinely
    independent. An iteration costs one ``decode`` of the unfinished rows and O(k^3) for
    the weights; k is at most the number of parts plus 1. Weights are piecewise linear
    in the scores, and derivatives of any order are those of the current piece. Where
    outputs tie exactly, several pieces meet, and one of them is used.

    For a ``FactorGraph`` it is LP-SparseMAP, the mixture of the relaxation: mixtures of
    each structure that agree on shared cells. They are ``marginals``; there are no
    ``outputs`` and ``weights``, and ``max_rounds`` and ``tol`` of the graph end the
    search.

    For ``Multiclass`` the result is sparsemax, the projection onto the simplex.

    Source: Niculae, Martins, Blondel and Cardie, "SparseMAP: Differentiable Sparse
    Structured Inference" (2018), (4), sections 3.2 and 3.3; of graphs, Niculae and
    Martins, "LP-SparseMAP" (2020).

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import Multiclass, SparseMAP
    >>> sparse = SparseMAP(Multiclass(torch.tensor([[1.0, 0.5, -2.0]])))
    >>> sparse.marginals()
    tensor([[0.7500, 0.2500, 0.0000]])
    >>> sparse.outputs
    tensor([[0, 1]])
    """

    outputs: Tensor
    weights: Float[Tensor, "batch k"]
    gap: Float[Tensor, " batch"]
    residual: Float[Tensor, " batch"]
    # The relaxed mixture of a factor graph.
    _graph: Any = None

    def __init__(
        self, structure: Structure, *, strength: float = 1.0, max_outputs: int = 1000
    ) -> None:
        check_settings(strength, max_outputs)
        if not is_eager():
            raise TypeError(
                "structure: SparseMAP needs values, which torch.compile and "
                "torch.func do not provide; call it outside of them"
            )
        require_additive_cost(structure)
        self.strength = float(strength)
        if hasattr(structure, "_relaxed_mixture"):
            self._graph = structure._relaxed_mixture(self.strength)
            self.gap, self.residual = self._graph.gap, self._graph.residual
            return
        with torch.no_grad():
            self._solution = _solve_sparse_map(structure, self.strength, max_outputs)
        self.outputs, self.gap = self._solution.outputs, self._solution.gap
        self._scores = score_outputs(structure, self.outputs)
        scores = self._scores.value / self.strength
        # values from the search, derivatives from the linear piece around them
        tangents = zeros_with_jvp(self._solution, scores)
        self.weights = self._solution.weights.to(scores) + tangents

    def marginals(self) -> Any:
        """Total weight of outputs that use each part, of the shape of a cost.

        Differentiable. For a ``FactorGraph``, a dict of them by structure.
        """
        if self._graph is not None:
            return self._graph.marginals()
        return self._solution.marginals(self.weights)

    def maximum(self) -> Float[Tensor, " batch"]:
        """The regularised maximum, ``(batch,)``; its gradient is the mixture."""
        if self._graph is not None:
            relaxed_maximum: Tensor = self._graph.maximum()
            return relaxed_maximum
        return self._regularised_value(self._scores.value)

    def _minus_score(self, gold: DoubleDouble) -> Tensor:
        """``maximum() - score(y)`` of each row; ``gold`` is score(y) as hi + lo."""
        if self._graph is not None:
            return self.maximum() - gold.value
        return self._regularised_value(self._scores.minus(gold.unsqueeze(1)))

    def _regularised_value(self, scores: Tensor) -> Tensor:
        """Objective ``p' s - gamma / 2 p' G p`` at the weights p, ``(batch,)``."""
        gram = self._solution.gram().to(self.weights)
        # no matrix product, which autocast would compute in half precision
        gram_products = (gram * self.weights.unsqueeze(1)).sum(2)
        return (self.weights * (scores - self.strength / 2 * gram_products)).sum(1)

    def __repr__(self) -> str:
        if self._graph is not None:
            return f"SparseMAP(batch={len(self.gap)}, strength={self.strength})"
        B, k = self.weights.shape
        return f"SparseMAP(batch={B}, outputs={k}, strength={self.strength})"


class _Solution:
    """Active set of the solution: the outputs with positive weight.

    While the active set stays the same, weights are linear in the scores.

    Parameters
    ----------
    outputs, weights
        ``(batch, k, ...)`` and ``(batch, k)`` in float64, 0 where there is no output.
    gap
        ``(batch,)`` float64.
    """

    def __init__(self, outputs: Tensor, weights: Tensor, gap: Tensor) -> None:
        self.outputs, self.weights, self.gap = outputs, weights, gap

    def marginals(self, weights: Tensor) -> Tensor:
        """Total weight of outputs that use each part."""
        raise NotImplementedError

    def gram(self) -> Tensor:
        """Number of parts that two outputs share, ``(batch, k, k)`` float64."""
        raise NotImplementedError

    def weights_jvp(self, scores: Tensor) -> Tensor:
        """Jacobian of the weights, a symmetric matrix, times tangents of the scores."""
        if not bool(scores.any()):
            return torch.zeros_like(scores)
        # outputs outside the active set have derivative 0
        tangents = scores.detach().cpu().double()
        derivatives = torch.empty_like(tangents)
        B, k = tangents.shape
        active = (self.weights > 0).cpu()
        arrays = (self.gram(), active, tangents, derivatives)
        run_rows(sparsemap_qp.weights_jvp, B, B * k**3 // 6, *map(to_numpy, arrays))
        return derivatives.to(scores)


class _PartSolution(_Solution):
    """Solution with dense parts of each output, ``(batch, k, ...)``."""

    def __init__(
        self, solution: tuple[Tensor, Tensor, Tensor], parts: Tensor, gram: Tensor
    ) -> None:
        super().__init__(*solution)
        self._parts, self._gram = parts, gram

    def marginals(self, weights: Tensor) -> Tensor:
        marginals = (weights.unsqueeze(2) * self._parts.flatten(2)).sum(1)
        return marginals.reshape(len(marginals), *self._parts.shape[2:])

    def gram(self) -> Tensor:
        return self._gram


class _ChainSolution(_Solution):
    """Solution of chains: parts are computed from the labels."""

    def __init__(self, solution: tuple[Tensor, Tensor, Tensor], chain: Chain) -> None:
        super().__init__(*solution)
        self._buffers = chain._buffers
        self._gram: Tensor | None = None

    def marginals(self, weights: Tensor) -> Tensor:
        return sparse_map.mixture_marginals(self._buffers, weights, self.outputs)

    def gram(self) -> Tensor:
        # only derivatives and losses need it
        if self._gram is None:
            self._gram = sparse_map.agreement_counts(self.outputs)
        return self._gram


class _WeightsJVP(torch.autograd.Function):
    """The linear map ``solution.weights_jvp``: symmetric, so its own adjoint."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, solution: Any) -> Tensor:
        ctx.solution = solution
        derivatives: Tensor = solution.weights_jvp(scores)
        return derivatives

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _WeightsJVP.apply(grads[0], ctx.solution), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return _WeightsJVP.apply(tangents[0], ctx.solution)


def zeros_with_jvp(solution: Any, scores: Tensor) -> Tensor:
    """Return zeros whose derivative in the scores is the Jacobian of the weights."""
    zeros: Tensor = _WeightsJVP.apply(scores - scores.detach(), solution)
    return zeros


def check_settings(strength: float, max_outputs: int) -> None:
    """Raise TypeError or ValueError for invalid arguments of ``SparseMAP``."""
    if isinstance(strength, bool) or not isinstance(strength, int | float):
        raise TypeError(f"strength: expected a number, got {type(strength).__name__}")
    if not 0 < strength < LIMIT:
        raise ValueError(
            f"strength: expected a positive number below 2^40 (1.1e12), got {strength}"
        )
    if isinstance(max_outputs, bool) or not isinstance(max_outputs, int):
        raise TypeError(f"max_outputs: expected an int, got {max_outputs!r}")
    if max_outputs < 1:
        raise ValueError(f"max_outputs: expected at least 1, got {max_outputs}")


def _solve_sparse_map(
    structure: Structure, strength: float, max_decodes: int
) -> _Solution:
    """Solve for the mixture: by the chain kernel if possible, else by ``decode``."""
    if isinstance(structure, Chain):
        rounding = ROUNDINGS * torch.finfo(structure.emissions.dtype).eps
        args = structure._buffers, strength, max_decodes, rounding
        solution = sparse_map.solve_sparse_map(*args)
        # the kernel runs in the dtype of the chain, with its rounding as the tolerance
        if solution is not None:
            return _ChainSolution(solution, structure)
    _, y = structure.decode()
    strengths = torch.full((len(y),), strength, dtype=torch.float64, device=y.device)
    search = Mixtures(structure, strengths, y)
    search.run(max_decodes)
    outputs, weights, parts, gram = search.result()
    return _PartSolution((outputs, weights, search.gap), parts, gram)
