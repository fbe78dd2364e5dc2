r"""Smoothness constants of smoothed structural hinges in a network's parameters.

With :math:`\Phi(y) = \nabla_w s(y; w)`, the gradient of an output's score, and
:math:`a_{y'} = \Phi(y') - \Phi(y)`, one row of A an output,

.. math::

    R = \max_{y'} \|a_{y'}\|, \qquad \tilde R = \sigma_{\max}(A) \ge R,

the hinge smoothed by the entropy is :math:`R^2 / \mu`-smooth. The hinge smoothed by the
squared l2 norm over all outputs is :math:`\tilde R^2 / \mu`-smooth.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from smoothsp.losses.smoothing import L2, Entropy
from smoothsp.oracles import SumStructure, TopKStructure
from smoothsp.oracles._inference.score_values import LIMIT

# Largest number of outputs that are enumerated.
_MAX_ENUMERATED = 256
# Random starts of the search for R, and most iterations of a search or power iteration.
_SEARCHES, _ITERATIONS = 8, 500

Parts = Sequence[Tensor]


@dataclass(frozen=True)
class Constants:
    r"""Smoothness constants of one example: R, its bounds, and the A and D of theory.

    Attributes
    ----------
    R
        Largest ``|Phi(y') - Phi(y)|`` found: R if ``exact``, else a lower bound.
    R_bound
        Upper bound of R; equal to R if ``exact``.
    exact
        Whether all outputs were enumerated.
    log_spectral
        Logarithm of the squared spectral norm, which grows with the number of outputs.
    log_count
        Logarithm of the number of outputs.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.losses import Entropy, smoothness_constants
    >>> from smoothsp.oracles import Multiclass
    >>> model = torch.nn.Linear(1, 2, bias=False).double()
    >>> scores = model(torch.ones(1, 1, dtype=torch.float64))
    >>> y = torch.tensor([0])
    >>> found = smoothness_constants(Multiclass, scores, y, model.parameters())
    >>> found.exact, round(found.R**2, 6), round(found.D(Entropy(1.0)), 4)
    (True, 2.0, 0.6931)
    """

    R: float
    R_bound: float
    exact: bool
    log_spectral: float
    log_count: float

    def A(self, smoothing: Entropy | L2) -> float:
        r"""Constant A_omega of the paper: the loss is A/mu-smooth. May be infinite.

        It is ``R^2`` for the entropy. For l2 it is the squared spectral norm, or
        ``k R^2`` if at most k outputs have weight and that is less. For k below the
        number of outputs this holds only where the set of the k best does not change.
        """
        square = self.R_bound**2
        if isinstance(smoothing, Entropy):
            return square
        k = smoothing.max_k if smoothing.k == "exact" else smoothing.k
        spectral = math.exp(self.log_spectral) if self.log_spectral < 700 else math.inf
        return min(spectral, k * square)

    def D(self, smoothing: Entropy | L2) -> float:
        """Largest gap between the smoothed loss and the hinge, divided by mu."""
        # log m for the entropy, (1 - 1 / min(m, k)) / 2 for l2, with m outputs
        if isinstance(smoothing, Entropy):
            return self.log_count
        k = smoothing.max_k if smoothing.k == "exact" else smoothing.k
        return (1 - max(math.exp(-self.log_count), 1 / k)) / 2


def smoothness_constants(
    structure: Callable[..., SumStructure],
    potentials: Tensor | Parts,
    y: Tensor,
    params: Iterable[Tensor],
) -> Constants:
    r"""Compute the smoothness constants of a structure and a network for one example.

    For many examples take the largest A. For a mini-batch take the mean over its
    examples.

    Parameters
    ----------
    structure
        Function that builds the structure from potentials, such as ``Chain``. It is
        also called with potentials other than those given.
    potentials
        Output of the network for one example, with its autograd graph: a tensor, or
        several in the order of the arguments of ``structure``. Use float64 for exact
        counts. Entries of -inf stay -inf.
    y
        Gold output, with a batch of one.
    params
        Parameters of the network. Nonlinear networks are linearised at their current
        parameters, as in the subproblems of ``ProxLinear``.

    Returns
    -------
    Constants
        For ``optim.plan(A=..., D=...)``, or ``smoothness = A / mu``.

    Raises
    ------
    TypeError
        If the structure has no log-partition.
    ValueError
        If the batch is not one, or no potential depends on the parameters.

    Notes
    -----
    Up to 256 outputs are enumerated. For more outputs, the max oracle yields a lower
    bound of R: :math:`y' \leftarrow \arg\max \langle \Phi(\cdot), a_{y'} \rangle` never
    decreases :math:`|a_{y'}|`. The max oracle on norms of the parts' gradients yields
    an upper bound. The spectral norm of :math:`\sum_{y'} a_{y'} a_{y'}^\top` is found
    by power iteration with the Hessian of the log-partition at zero potentials. The
    cost is one backward pass of the network per enumerated output, or per potential, so
    use it for analysis only.

    Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
    remark 28, eq. (58) and (64); ``k R^2`` follows from proposition 3.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.losses import Entropy, smoothness_constants
    >>> from smoothsp.oracles import Multiclass
    >>> model = torch.nn.Linear(2, 3, bias=False).double()
    >>> scores = model(torch.tensor([[3.0, 4.0]], dtype=torch.float64))
    >>> y = torch.tensor([1])
    >>> found = smoothness_constants(Multiclass, scores, y, model.parameters())
    >>> round(found.A(Entropy(1.0)), 6)  # 2 |x|^2
    50.0
    """
    arguments = (potentials,) if isinstance(potentials, Tensor) else tuple(potentials)
    network = _PotentialJacobian(arguments, [p for p in params if p.requires_grad])
    example = _Example(structure, arguments, y)
    if example.count <= _MAX_ENUMERATED:
        rows = [
            network.vjp(example.part_difference(problem))
            for problem in example.enumerate_outputs()
        ]
        norms = [_norm(row) for row in rows]
        R = bound = max(norms)
    else:
        R, bound = _lower_bound(example, network), _upper_bound(example, network)
    spectral = _largest_eigenvalue(example, network)
    log_spectral = math.log(spectral) + example.log_count if spectral else -math.inf
    # tilde R^2 is the eigenvalue of the sum over outputs, i.e. of the mean times count
    exact = example.count <= _MAX_ENUMERATED
    return Constants(R, max(R, bound), exact, log_spectral, example.log_count)


class _PotentialJacobian:
    """Products with the Jacobian J of the potentials in the parameters."""

    def __init__(self, potentials: Parts, params: list[Tensor]) -> None:
        self.params = params
        self.depends_on_params = [p.requires_grad for p in potentials]
        self.outputs = [p for p in potentials if p.requires_grad]
        if not self.outputs or not params:
            raise ValueError(
                "potentials: expected some that depend on params, got none; compute "
                "them outside of torch.no_grad()"
            )
        # J^T c as a function of c is linear: its vector-Jacobian product is J times v
        self.c = [torch.zeros_like(p, requires_grad=True) for p in self.outputs]
        with torch.enable_grad():
            self.vjp_of_c = self._gradients(self.c, create_graph=True)

    def _gradients(self, c: Parts, create_graph: bool = False) -> list[Tensor]:
        grads = torch.autograd.grad(
            self.outputs,
            self.params,
            c,
            create_graph=create_graph,
            retain_graph=True,
            allow_unused=True,
        )
        return [
            torch.zeros_like(p) if g is None else g
            for p, g in zip(self.params, grads, strict=True)
        ]

    def vjp(self, parts: Parts) -> list[Tensor]:
        """Return ``J^T c`` for weights c of the parts."""
        used = [
            part
            for part, depends in zip(parts, self.depends_on_params, strict=True)
            if depends
        ]
        return self._gradients(used)

    def jvp(self, direction: Parts) -> list[Tensor]:
        """Return ``J v`` for a direction v: the gradient of ``(J^T c)' v`` in c."""
        pairs = [
            (g, d)
            for g, d in zip(self.vjp_of_c, direction, strict=True)
            if g.requires_grad
        ]
        result = torch.autograd.grad(
            [g for g, _ in pairs],
            self.c,
            [d for _, d in pairs],
            retain_graph=True,
            allow_unused=True,
        )
        tangents_iter = iter(
            torch.zeros_like(c) if g is None else g.detach()
            for c, g in zip(self.c, result, strict=True)
        )
        return [
            next(tangents_iter) if depends else torch.zeros((), device=self.c[0].device)
            for depends in self.depends_on_params
        ]


class _Example:
    """Part counts of an example: how often an output uses each potential."""

    def __init__(
        self, structure: Callable[..., SumStructure], potentials: Parts, y: Tensor
    ) -> None:
        self.build = structure
        self.allowed = [p.detach() > -LIMIT for p in potentials]
        zeros = [torch.zeros_like(p) for p in potentials]
        # potentials of -inf belong to parts that no output uses
        self.zero = [
            z.masked_fill(~a, -torch.inf)
            for z, a in zip(zeros, self.allowed, strict=True)
        ]
        at_zero = structure(*self.zero)
        if not isinstance(at_zero, SumStructure):
            raise TypeError(
                "structure: expected one with a log-partition, got "
                f"{type(at_zero).__name__}"
            )
        if len(y) != 1 or len(at_zero.lengths) != 1:
            raise ValueError(
                f"y: expected one example, got {len(y)} outputs and "
                f"{len(at_zero.lengths)} rows of potentials; call it once per example"
            )
        # at zero potentials the log-partition is the log of the number of outputs
        self.log_count = float(at_zero.log_partition())
        self.count = round(math.exp(self.log_count)) if self.log_count < 30 else 2**40
        self.gold = self.part_counts(y)

    def _with_potentials_at(self, parts: Parts) -> SumStructure:
        return self.build(
            *(
                torch.where(a, p, -torch.inf).to(z)
                for a, p, z in zip(self.allowed, parts, self.zero, strict=True)
            )
        )

    def part_counts(self, y: Tensor) -> list[Tensor]:
        """Return how often y uses each potential: the gradient of its score."""
        return self._gradients(lambda structure: structure.score(y))

    def _gradients(
        self, value: Callable[[SumStructure], Tensor], create_graph: bool = False
    ) -> list[Tensor]:
        with torch.enable_grad():
            leaves = [z.clone().requires_grad_() for z in self.zero]
            total = value(self.build(*leaves)).sum()
            grads = torch.autograd.grad(
                total, leaves, create_graph=create_graph, allow_unused=True
            )
        self.leaves = leaves
        return [
            torch.zeros_like(leaf) if g is None else g
            for leaf, g in zip(leaves, grads, strict=True)
        ]

    def part_difference(self, y: Tensor) -> list[Tensor]:
        """Return part counts of y minus those of the gold output."""
        return [u - g for u, g in zip(self.part_counts(y), self.gold, strict=True)]

    def enumerate_outputs(self) -> Iterable[Tensor]:
        """Return all outputs, as batches of one."""
        structure = self.build(*self.zero)
        if not isinstance(structure, TopKStructure):
            raise TypeError(
                "structure: expected a structure with decode_topk, got "
                f"{type(structure).__name__}"
            )
        _, ys, valid = structure.decode_topk(self.count)
        return [y[None] for y, real in zip(ys[0], valid[0], strict=True) if real]

    def best(self, parts: Parts) -> tuple[float, Tensor]:
        """Return maximum and maximiser for the given scores of parts."""
        value, y = self._with_potentials_at(parts).decode()
        return float(value), y

    def uniform(self) -> list[Tensor]:
        """Return the mean part counts over all outputs."""
        return self._gradients(lambda structure: structure.log_partition())

    def covariance(self, direction: Parts) -> list[Tensor]:
        """Return the covariance of part counts over all outputs times a vector."""
        means = self._gradients(lambda s: s.log_partition(), create_graph=True)
        with torch.enable_grad():
            result = torch.autograd.grad(
                sum((m * d).sum() for m, d in zip(means, direction, strict=True)),  # type: ignore[arg-type]
                self.leaves,
                allow_unused=True,
            )
        return [
            torch.zeros_like(leaf) if g is None else g
            for leaf, g in zip(self.leaves, result, strict=True)
        ]


def _lower_bound(example: _Example, network: _PotentialJacobian) -> float:
    """Return the largest local maximum of ``|a_y|``, from random directions."""
    generator, largest = torch.Generator().manual_seed(0), 0.0
    for _ in range(_SEARCHES):
        # on the CPU: equal starts on all devices
        a = [
            torch.randn(p.shape, generator=generator, device="cpu").to(p)
            for p in network.params
        ]
        norm = 0.0
        for _ in range(_ITERATIONS):
            _, y = example.best(network.jvp(a))
            a = network.vjp(example.part_difference(y))
            # |a_y| never decreases, so a fixed point is a local maximum
            if _norm(a) <= norm * (1 + 1e-9):
                break
            norm = _norm(a)
        largest = max(largest, norm)
    return largest


def _upper_bound(example: _Example, network: _PotentialJacobian) -> float:
    r"""Return ``max_y sum_p |c_p - g_p| n_p`` for counts c of y and g of gold.

    ``n_p`` is the norm of the gradient of part p. ``|c - g|`` is convex, so between 0
    and the largest count C it is at most its chord, which is linear in c. The max
    oracle then maximises the sum of the chords.
    """
    constant, scores = 0.0, [torch.zeros_like(z) for z in example.zero]
    unit = [torch.zeros_like(z) for z in example.zero]
    for position, allowed in enumerate(example.allowed):
        if not network.depends_on_params[position]:
            continue
        for index in allowed.nonzero().tolist():
            part = (position, *index)
            potential = unit[position]
            potential[part[1:]] = 1.0
            max_score, gold = (
                example.best(unit)[0],
                float(example.gold[position][part[1:]]),
            )
            norm = _norm(network.vjp(unit))
            potential[part[1:]] = 0.0
            if max_score:
                scores[position][part[1:]] = (
                    norm * (abs(max_score - gold) - gold) / max_score
                )
                constant += norm * gold
    return constant + example.best(scores)[0]


def _largest_eigenvalue(example: _Example, network: _PotentialJacobian) -> float:
    r"""Return the largest eigenvalue of the mean of :math:`a_y a_y^\top` over y."""
    mean = [u - g for u, g in zip(example.uniform(), example.gold, strict=True)]
    generator, largest = torch.Generator().manual_seed(0), 0.0
    v = [
        torch.randn(p.shape, generator=generator, device="cpu").to(p)
        for p in network.params
    ]
    for _ in range(_ITERATIONS):
        norm = _norm(v)
        tangent = network.jvp([vector / norm for vector in v])
        inner = sum(
            float((m * p).sum()) for m, p in zip(mean, tangent, strict=True) if p.dim()
        )
        tangent = [
            p if p.dim() else torch.zeros_like(m)
            for m, p in zip(mean, tangent, strict=True)
        ]
        # E[a a'] = Cov(a) + E[a] E[a]', and Cov is the Hessian of the log-partition
        directions = example.covariance(tangent)
        v = network.vjp([t + inner * m for t, m in zip(directions, mean, strict=True)])
        image = _norm(v)
        if image <= largest * (1 + 1e-7):
            return max(image, largest)
        largest = image
    return largest


def _norm(tensors: Iterable[Tensor]) -> float:
    return math.hypot(*(float(t.detach().double().norm()) for t in tensors))
