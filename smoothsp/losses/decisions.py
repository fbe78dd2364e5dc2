"""Decision layers: the best output, with a surrogate gradient.

The best output ``y(s)`` of scores s is piecewise constant, so its derivative is zero
almost everywhere. Each layer returns the indicator of its parts, ``a(y(s))``. For an
incoming gradient g it passes the surrogate gradient of its formula to the scores. The
scores are the first potentials, such as predicted travel times or profits.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from smoothsp.losses.module import Loss
from smoothsp.losses.perturbed import (
    Noise,
    check_noise,
    check_seed,
    draw_noise,
    seed_in_graph,
    seeded,
)
from smoothsp.oracles import Structure
from smoothsp.oracles._inference import checks, in_graphs
from smoothsp.oracles._inference.parts import (
    float64_if_large,
    part_counts,
    repeat_rows,
    require_first_potentials,
)

# Maps (structure, parts of its decision, gradient in the parts) to one in the scores.
SurrogateGradient = Callable[[Structure, Tensor, Tensor], Tensor]


class Interpolation(Loss):
    r"""Best output, with the gradient of its piecewise affine interpolation.

    .. math:: \frac{\partial L}{\partial s} := \frac{1}{\lambda} [a(y(s)) - a(y(s'))],
        \qquad s' = s - \lambda g

    This is the gradient of a piecewise affine function. As lambda falls, it equals the
    loss linearised in the output on an increasing set of scores.

    Parameters
    ----------
    strength
        lambda, > 0, in units of the scores divided by those of g. Larger values give a
        smoother interpolation.

    Notes
    -----
    One ``decode`` forward, one backward. Potentials other than the first, such as a
    chain's transitions, get no gradient. Source: Vlastelica et al., "Differentiation of
    Blackbox Combinatorial Solvers" (2020), algorithm 1; its solver minimises the costs
    ``-s``.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.losses import Interpolation
    >>> from smoothsp.oracles import Multiclass
    >>> scores = torch.tensor([[2.0, 1.0]], requires_grad=True)
    >>> decision = Interpolation(strength=10.0)(Multiclass(scores))
    >>> decision
    tensor([[1., 0.]], grad_fn=<_DecisionBackward>)
    >>> (decision * torch.tensor([[3.0, 0.0]])).sum().backward()  # the first costs 3
    >>> scores.grad
    tensor([[ 0.1000, -0.1000]])
    """

    def __init__(self, strength: float = 10.0) -> None:
        super().__init__()
        self.strength = checks.as_positive("strength", strength)

    def forward(self, structure: Structure) -> Float[Tensor, "batch ..."]:
        """Return the parts of the best outputs, of the shape of a cost."""
        args = (self.strength,)
        return _call_as_op(structure, _decide_by_interpolation, args)

    def extra_repr(self) -> str:
        """Return the arguments that ``print`` shows."""
        return f"strength={self.strength}"


class NegativeIdentity(Loss):
    r"""Best output, with the gradient :math:`\partial L/\partial s := g`.

    With respect to costs, the negated scores, the derivative is minus the identity.

    Notes
    -----
    One ``decode``. This gradient does not stop the scores from growing. Fix their mean
    or their norm if the outputs do not depend on it. Source: Sahoo et al.,
    "Backpropagation through Combinatorial Algorithms: Identity with Projection Works"
    (2023), section 3.1.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.losses import NegativeIdentity
    >>> from smoothsp.oracles import Multiclass
    >>> scores = torch.tensor([[2.0, 1.0]], requires_grad=True)
    >>> decision = NegativeIdentity()(Multiclass(scores))
    >>> (decision * torch.tensor([[3.0, 0.0]])).sum().backward()
    >>> scores.grad
    tensor([[3., 0.]])
    """

    def forward(self, structure: Structure) -> Float[Tensor, "batch ..."]:
        """Return the parts of the best outputs, of the shape of a cost."""
        return _call_as_op(structure, _decide_with_identity, ())


class ImplicitMLE(Loss):
    r"""Mean of best outputs under noise, with the gradient of implicit MLE.

    .. math:: \frac{\partial L}{\partial s} :=
        \frac{1}{\lambda n} \sum_{i \le n}
        [a(y(s + \sigma Z_i)) - a(y(s - \lambda g + \sigma Z_i))]

    ``s - lambda g`` are the scores of the target distribution of perturb-and-MAP. As
    lambda falls, the gradient approaches the derivative of :class:`Perturbed`. A larger
    lambda reduces the variance.

    Parameters
    ----------
    samples
        n, the number of noise samples per row, at least 1.
    strength
        lambda, > 0.
    sigma
        Scale of the noise, > 0, in units of the score.
    noise
        ``"sum_of_gamma"``, ``"gumbel"`` or ``"normal"``, each of mean 0.
    kappa
        Number of parts that an output uses, at least 1, for ``"sum_of_gamma"``: the sum
        of kappa such variables is a Gumbel variable.
    seed
        Seed for equal noise at each call, or None for PyTorch's global generator.

    Notes
    -----
    One ``decode`` of ``batch * samples`` rows forward, one backward. Potentials other
    than the first, such as a chain's transitions, get no gradient. Source: Niepert,
    Minervini and Franceschi, "Implicit MLE: Backpropagating Through Discrete
    Exponential Family Distributions" (2021), algorithm 1 and theorem 1, whose gradient
    is divided by lambda here.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.losses import ImplicitMLE
    >>> from smoothsp.oracles import Multiclass
    >>> scores = torch.tensor([[2.0, 1.0]], requires_grad=True)
    >>> decide = ImplicitMLE(samples=1000, noise="gumbel", seed=0)
    >>> decide(Multiclass(scores)).shape
    torch.Size([1, 2])
    """

    def __init__(
        self,
        samples: int = 8,
        strength: float = 10.0,
        sigma: float = 1.0,
        noise: Noise | Literal["sum_of_gamma"] = "sum_of_gamma",
        kappa: int = 5,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        check_noise(samples, sigma, "gumbel" if noise == "sum_of_gamma" else noise)
        self.samples, self.sigma, self.noise = samples, float(sigma), noise
        self.strength = checks.as_positive("strength", strength)
        self.kappa = checks.as_positive_int("kappa", kappa)
        self.seed = check_seed(seed)

    def forward(self, structure: Structure) -> Float[Tensor, "batch ..."]:
        """Return the mean of the parts of the best outputs, of the shape of a cost."""
        args = self.samples, self.strength, self.sigma, self.noise, self.kappa
        return _call_as_op(
            structure, _decide_by_implicit_mle, (seed_in_graph(self.seed), *args)
        )

    def extra_repr(self) -> str:
        """Return the arguments that ``print`` shows."""
        return (
            f"samples={self.samples}, strength={self.strength}, sigma={self.sigma}, "
            f"noise={self.noise!r}"
        )


def _call_as_op(
    structure: Structure, layer: Callable[..., Tensor], args: tuple[Any, ...]
) -> Tensor:
    result: Tensor = in_graphs.call_as_graph_op(
        structure, layer, args, in_graphs.cost_result
    )
    return result


def _decide_by_interpolation(structure: Structure, strength: float) -> Tensor:
    def gradient(structure: Structure, parts: Tensor, grad: Tensor) -> Tensor:
        shifted = float64_if_large(structure)[0].augment(-strength * grad)
        difference = part_counts(shifted, shifted.decode()[1]).to(parts.dtype)
        return (parts - difference) / strength

    return _decide(structure, gradient)


def _decide_with_identity(structure: Structure) -> Tensor:
    return _decide(structure, lambda structure, parts, grad: grad)


def _decide_by_implicit_mle(
    structure: Structure,
    seed: int | Tensor | None,
    samples: int,
    strength: float,
    sigma: float,
    noise: Noise | Literal["sum_of_gamma"],
    kappa: int,
) -> Tensor:
    scores = require_first_potentials(structure)
    noise_samples, _ = draw_noise(
        scores, samples, noise, seeded(scores.device, seed), kappa
    )
    # the backward pass uses the same noise, so that it cancels in the difference
    cost = sigma * noise_samples.flatten(0, 1)

    def mean(structure: Structure) -> Tensor:
        float64_structure, _ = float64_if_large(repeat_rows(structure, samples))
        parts = part_counts(
            float64_structure, float64_structure.augment(cost).decode()[1]
        )
        return parts.reshape(noise_samples.shape).to(noise_samples.dtype).mean(1)

    def gradient(structure: Structure, parts: Tensor, grad: Tensor) -> Tensor:
        shifted = float64_if_large(structure)[0].augment(-strength * grad)
        # parts are the mean of the forward pass: scores without the target's shift
        return (parts - mean(shifted)) / strength

    return _decide(structure, gradient, mean)


def _decide(
    structure: Structure,
    gradient: SurrogateGradient,
    decide: Callable[[Structure], Tensor] | None = None,
) -> Tensor:
    """Return the parts of decisions, with ``gradient`` as backward pass to scores."""
    scores = require_first_potentials(structure)
    with torch.no_grad():
        if decide is None:
            parts = part_counts(structure, structure.decode()[1])
        else:
            parts = decide(structure)
    result: Tensor = _Decision.apply(scores, parts, structure, gradient)
    return result


class _Decision(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        parts: Tensor,
        structure: Structure,
        rule: SurrogateGradient,
    ) -> Tensor:
        ctx.save_for_backward(scores, parts)
        ctx.structure, ctx.rule = structure, rule
        return parts.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        scores, parts = ctx.saved_tensors
        grad_scores = ctx.rule(ctx.structure, parts, grad)
        # forbidden potentials stay at -inf
        return grad_scores.masked_fill(scores == -torch.inf, 0), None, None, None
