"""Perturbed maxima: smooth in expectation, computed from ``decode`` only."""

from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from smoothsp.losses.functional import gold_score
from smoothsp.losses.module import Loss
from smoothsp.losses.reduction import Reduction, check_reduction, reduce, row_weights
from smoothsp.oracles import Structure
from smoothsp.oracles._inference import checks, double_double, in_graphs
from smoothsp.oracles._inference.double_double import DoubleDouble
from smoothsp.oracles._inference.parts import (
    float64_if_large,
    part_counts,
    repeat_rows,
    require_additive_cost,
    require_first_potentials,
    score_outputs,
    training_hint,
)
from smoothsp.oracles._inference.read_only import ReadOnly
from smoothsp.oracles._inference.tracing import is_compiling

Noise = Literal["normal", "gumbel"]
# Euler's constant, the mean of a Gumbel variable.
_EULER = 0.57721566490153286
# Number of terms of the series of gamma variables, which is infinite.
_TERMS = 10


class Perturbed(ReadOnly):
    r"""Expected maximum over outputs under noise on the potentials.

    .. math:: F_\sigma = E_Z \max_y [s(y) + \sigma \langle Z, a(y) \rangle]

    ``a(y)`` is the indicator of the parts that y uses, among the first potentials. F is
    convex and smooth in them and at least the maximum. Its gradient is the expected
    indicator of the best output. Both are estimated from ``samples`` noise samples.
    Multiplicative noise keeps the sign of each potential, as solvers for positive costs
    require. It replaces ``s(y) + sigma <Z, a(y)>`` by the score of the potentials times
    ``exp(sigma Z - sigma^2 / 2)``.

    Parameters
    ----------
    structure
        Structure of a batch; all its potentials receive gradients.
    samples
        Number of noise samples per row, at least 1.
    sigma
        Scale of the noise, > 0, in units of the score.
    noise
        ``"normal"``, or ``"gumbel"`` centred to mean 0.
    multiplicative
        Multiply the first potentials by the noise instead; ``"normal"`` noise only.
    generator
        Random generator of the noise. Equal states give equal noise, so that you can
        compare two structures (common random numbers).

    Attributes
    ----------
    outputs
        ``(batch, samples, ...)``: the best output under each noise sample.

    Notes
    -----
    One ``decode`` of ``batch * samples`` rows.

    The gradient of ``marginals`` is an unbiased estimate from the covariance of noise
    and outputs. Its variance is proportional to ``1 / (samples sigma^2)``.

    Source: Berthet et al., "Learning with Differentiable Perturbed Optimizers" (2020),
    definition 2.1, proposition 3.1; multiplicative noise: Dalle et al., "Learning with
    Combinatorial Optimization Layers: a Probabilistic Approach" (2022).

    Examples
    --------
    The perturbed maximum of ``Multiclass`` with Gumbel noise is the softmax:

    >>> import torch
    >>> from smoothsp.losses import Perturbed
    >>> from smoothsp.oracles import Multiclass
    >>> scores = Multiclass(torch.tensor([[1.0, 0.0]]))
    >>> generator = torch.Generator().manual_seed(0)
    >>> found = Perturbed(scores, 10_000, 1.0, "gumbel", generator).marginals()
    >>> bool((found - scores.marginals()).abs().max() < 0.02)
    True
    """

    def __init__(
        self,
        structure: Structure,
        samples: int = 16,
        sigma: float = 1.0,
        noise: Noise = "normal",
        generator: torch.Generator | None = None,
        multiplicative: bool = False,
    ) -> None:
        check_noise(samples, sigma, noise, multiplicative)
        checks.as_generator(generator)
        require_additive_cost(structure)
        if hasattr(structure, "relaxed_maximum"):
            raise TypeError(
                "structure: Perturbed needs outputs that are tensors, got a "
                f"{type(structure).__name__}; SparseMAP has marginals of it"
                f"{training_hint(structure)}"
            )
        self._n, self.sigma = samples, float(sigma)
        self._structure = structure
        with torch.no_grad():
            # a cost has the shape of the noise; any output will do
            template = structure.hamming(structure.decode()[1])
            # memory: noise, its score function, noisy potentials, parts of the best
            checks.as_output_count(
                "samples", samples, 4 * template.numel(), sampled=True
            )
            draws = draw_noise(template, self._n, noise, generator)
        float64_structure, _ = float64_if_large(repeat_rows(structure, self._n))
        z = draws[0].flatten(0, 1)
        cost = self.sigma * z
        self._multiplied = (
            require_first_potentials(structure) if multiplicative else None
        )
        if self._multiplied is not None:
            scores = self._multiplied.repeat_interleave(self._n, 0)
            # theta (exp(sigma Z - sigma^2 / 2) - 1): the mean of the factor is 1
            scores = scores.masked_fill(scores == -torch.inf, 0)
            cost = scores * torch.expm1(cost - self.sigma**2 / 2)
        values, ys = double_double.decode(float64_structure.augment(cost))
        B, n = len(template), self._n
        self._values = values.map_leading_axes(lambda x: x.reshape(B, n, *x.shape[1:]))
        # explicit sizes: with empty rows, -1 would be ambiguous
        self.outputs = ys.reshape(len(template), self._n, *ys.shape[1:])
        with torch.no_grad():
            self._parts = (
                part_counts(float64_structure, ys).reshape(draws[0].shape).to(template)
            )
        self._slope = draws[1]

    def maximum(self) -> Float[Tensor, " batch"]:
        """Estimate of F, ``(batch,)``; its gradient is the average of ``outputs``."""
        return self._values.value.mean(1).to(self._parts.dtype)

    def _max_minus_gold(self, gold: DoubleDouble) -> Tensor:
        """Return ``maximum()`` minus the scores of gold outputs, ``(batch,)``."""
        return self._values.minus(gold.unsqueeze(1)).mean(1).to(self._parts.dtype)

    def marginals(self) -> Float[Tensor, "batch ..."]:
        """Fraction of the samples that use each part, of the shape of a cost.

        Differentiable; the gradient is an estimate.
        """
        means = self._parts.mean(1)
        if self._multiplied is not None:
            of_products: Tensor = _MultiplicativeEstimate.apply(
                self._multiplied, means, self._parts, self._slope, self.sigma
            )
            return of_products
        scores = score_outputs(self._structure, self.outputs).value
        result: Tensor = _MarginalsEstimate.apply(
            scores, means, self._slope, self.sigma
        )
        return result

    def __repr__(self) -> str:
        B, n = self.outputs.shape[:2]
        return f"Perturbed(batch={B}, samples={n}, sigma={self.sigma})"


class _MarginalsEstimate(torch.autograd.Function):
    """Mean part counts, with an estimated derivative in the scores of the outputs.

    ``d E[a] / d theta = E[a nu'(Z)^T] / sigma`` is symmetric, being the Hessian of F.
    Its product with a vector g is the mean of the gradients of the outputs' scores,
    weighted by ``<g, nu'(Z)> / sigma``. These weights have mean 0. Subtracting their
    sample mean, with n - 1 in place of n, leaves the estimate unbiased and reduces its
    variance.
    """

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, means: Tensor, noise_score: Tensor, sigma: float
    ) -> Tensor:
        ctx.save_for_backward(noise_score)
        ctx.sigma, ctx.dtype = sigma, scores.dtype
        return means.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (slope,) = ctx.saved_tensors
        directions = (slope.flatten(2) @ grad.flatten(1).unsqueeze(2)).squeeze(2)
        n = directions.shape[1]
        if n > 1:
            directions = (directions - directions.mean(1, keepdim=True)) * (n / (n - 1))
        return (directions / (n * ctx.sigma)).to(ctx.dtype), None, None, None


class _MultiplicativeEstimate(torch.autograd.Function):
    """Mean part counts under multiplicative noise, with an estimated derivative.

    A potential theta times ``exp(sigma Z - sigma^2 / 2)`` has a log-normal
    distribution. The derivative of its log-density in theta is ``Z / (sigma theta)``.
    So a vector g times the derivative of the mean counts is ``E[<g, a> Z_j] / (sigma
    theta_j)``. The sample mean of ``<g, a>`` is subtracted, as in
    ``_MarginalsEstimate``.
    """

    @staticmethod
    def forward(
        ctx: Any, theta: Tensor, means: Tensor, parts: Tensor, z: Tensor, sigma: float
    ) -> Tensor:
        ctx.save_for_backward(theta, parts, z)
        ctx.sigma = sigma
        return means.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        theta, parts, z = ctx.saved_tensors
        directions = (parts.flatten(2) @ grad.flatten(1).unsqueeze(2)).squeeze(2)
        n = directions.shape[1]
        if n > 1:
            directions = (directions - directions.mean(1, keepdim=True)) * (n / (n - 1))
        mean = (directions[:, None] @ z.flatten(2)).reshape(theta.shape) / n
        result = (mean / (ctx.sigma * theta)).masked_fill(theta == 0, 0)
        return result.masked_fill(theta == -torch.inf, 0), None, None, None, None


class PerturbedLoss(Loss):
    r"""Perturbed maximum minus the score of the gold output.

    .. math:: E_Z \max_{y'} [s(y') + \sigma \langle Z, a(y') \rangle] - s(y)

    Its gradient is the average of the best outputs under noise minus the gold output.

    Parameters
    ----------
    samples, sigma, noise, multiplicative
        As for :class:`Perturbed`.
    seed
        Seed for equal noise at each call (common random numbers), or None for PyTorch's
        global generator.
    reduction
        As for ``StructuralHinge``.

    Notes
    -----
    Convex in the potentials for fixed noise. The expectation is never negative, but an
    estimate from few samples may be. One ``decode`` of ``batch * samples`` rows.
    Source: Berthet et al., "Learning with Differentiable Perturbed Optimizers" (2020),
    section 4.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.losses import PerturbedLoss
    >>> from smoothsp.oracles import Multiclass
    >>> scores = torch.zeros(1, 2, requires_grad=True)
    >>> loss = PerturbedLoss(samples=1000, noise="gumbel", seed=0)
    >>> bool((loss(Multiclass(scores), torch.tensor([0])) - 0.693).abs() < 0.1)
    True
    """

    def __init__(
        self,
        samples: int = 16,
        sigma: float = 1.0,
        noise: Noise = "normal",
        seed: int | None = None,
        reduction: Reduction = "mean",
        multiplicative: bool = False,
    ) -> None:
        super().__init__()
        check_noise(samples, sigma, noise, multiplicative)
        self.samples, self.sigma, self.noise = samples, sigma, noise
        self.multiplicative = multiplicative
        self.seed = check_seed(seed)
        self.reduction = check_reduction(reduction)

    def forward(
        self, structure: Structure, y: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """Return the loss of gold outputs y, with optional weights ``(batch,)``."""
        row_weight = row_weights(structure, y, weight, None, self.reduction)
        seed = seed_in_graph(self.seed)
        args = y, seed, self.samples, self.sigma, self.noise, self.multiplicative
        losses = in_graphs.call_as_graph_op(
            structure, _losses, args, in_graphs.float_per_row
        )
        return reduce(losses, row_weight, self.reduction)

    def extra_repr(self) -> str:
        """Return the arguments that ``print`` shows."""
        return f"samples={self.samples}, sigma={self.sigma}, noise={self.noise!r}"


def _losses(
    structure: Structure,
    y: Tensor,
    seed: int | Tensor | None,
    samples: int,
    sigma: float,
    noise: Noise,
    multiplicative: bool,
) -> Tensor:
    gold = gold_score(float64_if_large(structure)[0], y)
    device = structure.lengths.device
    generator = seeded(device, seed)
    if hasattr(structure, "relaxed_maximum"):
        if multiplicative:
            require_first_potentials(structure)
        return _relaxed_losses(structure, y, gold, samples, sigma, noise, generator)
    perturbed = Perturbed(structure, samples, sigma, noise, generator, multiplicative)
    return perturbed._max_minus_gold(gold)


def _relaxed_losses(
    graph: Any,
    y: Any,
    gold: DoubleDouble,
    samples: int,
    sigma: float,
    noise: Noise,
    generator: torch.Generator | None,
) -> Tensor:
    """Return the mean maximum of the relaxation under noise minus the score of y."""
    with torch.no_grad():
        z = draw_noise(graph.hamming(y), samples, noise, generator)[0]
    # decode of a relaxation returns its maximum, an upper bound of the exact one
    values = repeat_rows(graph, samples).augment(sigma * z.flatten(0, 1)).decode()[0]
    losses: Tensor = values.reshape(-1, samples).mean(1) - gold.value
    return losses


def seeded(device: torch.device, seed: int | Tensor | None) -> torch.Generator | None:
    """Return a generator with this seed, or None for the global one of PyTorch."""
    if seed is None:
        return None
    return torch.Generator(device).manual_seed(int(seed))


def seed_in_graph(seed: int | None) -> int | Tensor | None:
    """Return the seed; in a compiled graph, a random seed in place of None.

    A compiled graph recomputes the noise in its backward pass.
    """
    if seed is None and is_compiling():
        return torch.randint(2**63 - 1, (), device="cpu")
    return seed


def draw_noise(
    blank: Tensor,
    n: int,
    noise: Noise | Literal["sum_of_gamma"],
    generator: torch.Generator | None,
    kappa: int = 1,
) -> tuple[Tensor, Tensor | None]:
    """Return noise ``(batch, n, ...)`` of mean 0, and ``-d log density / dz`` of it.

    The sum of gamma variables ``sum_i Gamma(1 / kappa, kappa / i) / kappa`` has no
    density in closed form; kappa of them add up to a Gumbel variable.
    """
    shape = (len(blank), n, *blank.shape[1:])
    dtype, device = blank.dtype, blank.device
    if noise == "normal":
        z = torch.randn(shape, generator=generator, dtype=dtype, device=device)
        return z, z
    if noise == "sum_of_gamma":
        rate = torch.arange(1, _TERMS + 1, dtype=dtype, device=device)
        size = torch.full((*shape, _TERMS), 1 / kappa, dtype=dtype, device=device)
        terms: Tensor = torch._standard_gamma(size, generator=generator)
        # Gamma(1 / kappa) with scale kappa / i has mean 1 / i
        return (terms * kappa - 1).div(rate).sum(-1) / kappa, None
    # Gumbel noise is -log(-log u); u = 0 would give -inf
    min_uniform = torch.finfo(blank.dtype).tiny
    uniform = torch.rand(shape, generator=generator, dtype=dtype, device=device)
    uniform = uniform.clamp(min=min_uniform)
    e = -uniform.log()
    # a uniform sample of 1 would give infinite noise
    e = e.clamp(min=torch.finfo(blank.dtype).eps / 2)
    return -e.log() - _EULER, 1 - e


def check_noise(
    samples: int, sigma: float, noise: Noise, multiplicative: bool = False
) -> None:
    """Raise if a setting of perturbed maxima is invalid."""
    checks.as_positive_int("samples", samples)
    checks.as_positive("sigma", sigma)
    if noise not in get_args(Noise):
        raise ValueError(f'noise: expected "normal" or "gumbel", got {noise!r}')
    if checks.as_flag("multiplicative", multiplicative) and noise != "normal":
        raise ValueError(
            f'noise: expected "normal" with multiplicative=True, got {noise!r}'
        )


def check_seed(seed: int | None) -> int | None:
    """Return the seed as an int, or None."""
    if seed is None:
        return None
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        raise TypeError(f"seed: expected an int or None, got {type(seed).__name__}")
    if not -(2**63) <= int(seed) < 2**64:
        raise ValueError(f"seed: expected -2**63 to 2**64 - 1, got {seed}")
    return int(seed)
