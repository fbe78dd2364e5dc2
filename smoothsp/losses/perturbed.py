"""Maxima of potentials with noise: smooth on average, and only ``decode`` is asked."""

import math
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from smoothsp.losses.functional import gold_score
from smoothsp.losses.in_range import difference
from smoothsp.losses.reduction import Reduction, check_reduction, reduce, row_weights
from smoothsp.oracles import Structure
from smoothsp.oracles._questions import checks
from smoothsp.oracles._questions.parts import parts_of, repeated, scores_of

Noise = Literal["normal", "gumbel"]
# The mean of a Gumbel variable.
_EULER = 0.57721566490153286


class Perturbed:
    r"""The maximum over outputs, on average over noise on the potentials.

    .. math:: F_\sigma = E_Z \max_y [s(y) + \sigma \langle Z, a(y) \rangle]

    ``a(y)`` marks the parts that y uses, among those that a cost is added to: the first
    potentials. F is convex and smooth in them, at least the maximum, and its gradient
    is the average of the outputs that win. Both are estimated from ``samples`` draws.

    Parameters
    ----------
    structure
        Potentials of a batch; gradients reach them all.
    samples
        Draws of noise for each row, at least 1.
    sigma
        Size of the noise, > 0, in units of the score.
    noise
        ``"normal"``, or ``"gumbel"`` less its mean.
    generator
        Of the noise; the same state gives the same noise, which makes two structures
        comparable (common random numbers).

    Attributes
    ----------
    outputs
        ``(batch, samples, ...)``: what is best with each draw.

    Notes
    -----
    One ``decode`` of ``batch * samples`` rows.

    The gradient of ``marginals`` is estimated too, without bias, from the covariance of
    the noise and the outputs; its variance grows as ``1 / (samples sigma^2)``.

    Source: Berthet et al., "Learning with Differentiable Perturbed Optimizers" (2020),
    definition 2.1, proposition 3.1.

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
    ) -> None:
        _check(samples, sigma, noise)
        checks.generator(generator)
        self._n, self.sigma = samples, float(sigma)
        self._structure = structure
        wide = repeated(structure, self._n)
        with torch.no_grad():
            # a cost has the shape of the noise; any output will do
            blank = structure.hamming(structure.decode()[1])
            draws = _draw(blank, self._n, noise, generator)
        z = draws[0].flatten(0, 1)
        self._values, ys = wide.augment(self.sigma * z).decode()
        # a row without parts has no size that could be left to be found
        self.outputs = ys.reshape(len(blank), self._n, *ys.shape[1:])
        with torch.no_grad():
            self._parts = parts_of(wide, ys).reshape(draws[0].shape)
        self._slope = draws[1]

    def maximum(self) -> Float[Tensor, " batch"]:
        """Estimate of F, ``(batch,)``; its gradient is the average of ``outputs``."""
        values: Tensor = self._values
        return values.reshape(len(self.outputs), self._n).mean(1)

    def marginals(self) -> Float[Tensor, "batch ..."]:
        """Share of the draws that use each part, of the shape of a cost.

        Differentiable: the gradient is an estimate, see above.
        """
        scores = scores_of(self._structure, self.outputs)
        shares = self._parts.mean(1)
        found: Tensor = _Shares.apply(scores, shares, self._slope, self.sigma)
        return found

    def __repr__(self) -> str:
        B, n = self.outputs.shape[:2]
        return f"Perturbed(batch={B}, samples={n}, sigma={self.sigma})"


class _Shares(torch.autograd.Function):
    """Average parts, with the estimated derivative in the scores of the outputs.

    ``d E[a] / d theta = E[a nu'(Z)^T] / sigma`` is symmetric, as F's second derivative:
    so it times a vector g is the average of the gradients of the outputs' scores, each
    times ``<g, nu'(Z)> / sigma``. These factors have mean 0: less their average, and
    with n - 1 for n, the estimate stays without bias and varies less.
    """

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, shares: Tensor, slope: Tensor, sigma: float
    ) -> Tensor:
        ctx.save_for_backward(slope)
        ctx.sigma, ctx.dtype = sigma, scores.dtype
        return shares.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (slope,) = ctx.saved_tensors
        along = (slope.flatten(2) @ grad.flatten(1).unsqueeze(2)).squeeze(2)
        n = along.shape[1]
        if n > 1:
            along = (along - along.mean(1, keepdim=True)) * (n / (n - 1))
        return (along / (n * ctx.sigma)).to(ctx.dtype), None, None, None


class PerturbedLoss(nn.Module):
    r"""The perturbed maximum less the score of the gold output.

    .. math:: E_Z \max_{y'} [s(y') + \sigma \langle Z, a(y') \rangle] - s(y)

    Its gradient is the average of the outputs that win with noise, less the gold one.

    Parameters
    ----------
    samples, sigma, noise
        As of :class:`Perturbed`.
    seed
        The same noise at each call (common random numbers), or None: noise from
        PyTorch's own generator.
    reduction
        As of ``StructuralHinge``.

    Notes
    -----
    Convex in the potentials for fixed noise. It is an estimate, at least the mean of
    the gold output's own noise, which few draws may have below 0; in expectation it is
    never negative. One ``decode`` of ``batch * samples`` rows.
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
    ) -> None:
        super().__init__()
        _check(samples, sigma, noise)
        self.samples, self.sigma, self.noise = samples, sigma, noise
        self.seed = _seed(seed)
        self.reduction = check_reduction(reduction)

    def forward(
        self, structure: Structure, y: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """Loss of the gold outputs y, with a weight ``(batch,)`` of each example."""
        every = row_weights(structure, y, weight, None, self.reduction)
        generator = None
        if self.seed is not None:
            device = structure.lengths.device
            generator = torch.Generator(device).manual_seed(self.seed)
        gold = gold_score(structure, y)
        perturbed = Perturbed(
            structure, self.samples, self.sigma, self.noise, generator
        )
        losses = difference(perturbed.maximum(), gold)
        return reduce(losses, every, self.reduction)

    def extra_repr(self) -> str:
        """Arguments, for ``print``."""
        return f"samples={self.samples}, sigma={self.sigma}, noise={self.noise!r}"


def _draw(
    blank: Tensor, n: int, noise: Noise, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Noise ``(batch, n, ...)`` of mean 0, and the slope of -log of its density."""
    shape = (len(blank), n, *blank.shape[1:])
    dtype, device = blank.dtype, blank.device
    if noise == "normal":
        z = torch.randn(shape, generator=generator, dtype=dtype, device=device)
        return z, z
    least = torch.finfo(blank.dtype).tiny
    uniform = torch.rand(shape, generator=generator, dtype=dtype, device=device)
    uniform = uniform.clamp(min=least)
    e = -uniform.log()
    # a draw of 1 would be an infinite one
    e = e.clamp(min=torch.finfo(blank.dtype).eps / 2)
    return -e.log() - _EULER, 1 - e


def _check(samples: int, sigma: float, noise: Noise) -> None:
    checks.positive_int("samples", samples)
    if isinstance(sigma, bool) or not isinstance(sigma, int | float):
        raise TypeError(f"sigma: expected a number, got {type(sigma).__name__}")
    if not 0 < sigma < math.inf:
        raise ValueError(f"sigma: expected a positive number, got {sigma}")
    if noise not in ("normal", "gumbel"):
        raise ValueError(f'noise: expected "normal" or "gumbel", got {noise!r}')


def _seed(seed: int | None) -> int | None:
    if seed is None:
        return None
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        raise TypeError(f"seed: expected an int or None, got {type(seed).__name__}")
    if not -(2**63) <= int(seed) < 2**64:
        raise ValueError(f"seed: expected -2**63 to 2**64 - 1, got {seed}")
    return int(seed)
