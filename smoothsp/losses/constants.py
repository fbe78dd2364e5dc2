r"""Smoothness constants of smoothed structural hinges in a network's parameters.

With :math:`\Phi(y) = \nabla_w s(y; w)`, the gradient of an output's score, and
:math:`a_{y'} = \Phi(y') - \Phi(y)`, one row of A an output,

.. math::

    R = \max_{y'} \|a_{y'}\|, \qquad \tilde R = \sigma_{\max}(A) \ge R,

the hinge smoothed by the entropy is :math:`R^2 / \mu`-smooth, the one smoothed by the
squared l2 norm over all outputs :math:`\tilde R^2 / \mu`-smooth.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from smoothsp.losses.smoothing import L2, Entropy
from smoothsp.oracles import SumStructure, TopKStructure
from smoothsp.oracles._inference.score_values import LIMIT

# outputs that are listed rather than searched
_MAX_ENUMERATED = 256
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
    exact = example.count <= _MAX_ENUMERATED
    return Constants(R, max(R, bound), exact, log_spectral, example.log_count)


class _PotentialJacobian:
    """The Jacobian J of the potentials in the parameters, never formed."""

    def __init__(self, potentials: Parts, params: list[Tensor]) -> None:
        self.params = params
        self.moving = [p.requires_grad for p in potentials]
        self.outputs = [p for p in potentials if p.requires_grad]
        if not self.outputs or not params:
            raise ValueError(
                "potentials: expected some that depend on params, got none; compute "
                "them outside of torch.no_grad()"
            )
        self.c = [torch.zeros_like(p, requires_grad=True) for p in self.outputs]
        with torch.enable_grad():
            self.pulled = self._gradients(self.c, create_graph=True)

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
        """``J^T`` times weights of the parts."""
        used = [part for part, grads in zip(parts, self.moving, strict=True) if grads]
        return self._gradients(used)

    def jvp(self, direction: Parts) -> list[Tensor]:
        """``J`` times a direction: what its own transpose in c gives."""
        pairs = [
            (g, d)
            for g, d in zip(self.pulled, direction, strict=True)
            if g.requires_grad
        ]
        result = torch.autograd.grad(
            [g for g, _ in pairs],
            self.c,
            [d for _, d in pairs],
            retain_graph=True,
            allow_unused=True,
        )
        pushed = iter(
            torch.zeros_like(c) if g is None else g.detach()
            for c, g in zip(self.c, result, strict=True)
        )
        return [
            next(pushed) if tangents else torch.zeros((), device=self.c[0].device)
            for tangents in self.moving
        ]


class _Example:
    """One example's outputs, as how often they use each potential."""

    def __init__(
        self, structure: Callable[..., SumStructure], potentials: Parts, y: Tensor
    ) -> None:
        self.build = structure
        self.allowed = [p.detach() > -LIMIT for p in potentials]
        zeros = [torch.zeros_like(p) for p in potentials]
        # -inf stays: it is no part of any output
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
        """Number of times y uses each potential: the gradient of its score."""
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
        """Parts of y less those of the true output."""
        return [u - g for u, g in zip(self.part_counts(y), self.gold, strict=True)]

    def enumerate_outputs(self) -> Iterable[Tensor]:
        """All of them, as batches of one."""
        structure = self.build(*self.zero)
        if not isinstance(structure, TopKStructure):
            raise TypeError(
                "structure: expected a structure with decode_topk, got "
                f"{type(structure).__name__}"
            )
        _, ys, valid = structure.decode_topk(self.count)
        return [y[None] for y, real in zip(ys[0], valid[0], strict=True) if real]

    def best(self, parts: Parts) -> tuple[float, Tensor]:
        """The max oracle, asked with scores of the parts."""
        value, y = self._with_potentials_at(parts).decode()
        return float(value), y

    def uniform(self) -> list[Tensor]:
        """Mean of the parts over all outputs."""
        return self._gradients(lambda structure: structure.log_partition())

    def covariance(self, direction: Parts) -> list[Tensor]:
        """Covariance of the parts over all outputs, times a direction."""
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
    """Local maxima of ``|a_y|``, from several directions."""
    generator, largest = torch.Generator().manual_seed(0), 0.0
    for _ in range(_SEARCHES):
        a = [
            torch.randn(p.shape, generator=generator, device="cpu").to(p)
            for p in network.params
        ]
        size = 0.0
        for _ in range(_ITERATIONS):
            _, y = example.best(network.jvp(a))
            a = network.vjp(example.part_difference(y))
            if _norm(a) <= size * (1 + 1e-9):
                break
            size = _norm(a)
        largest = max(largest, size)
    return largest


def _upper_bound(example: _Example, network: _PotentialJacobian) -> float:
    r"""``max_y sum_p |c_p - g_p| n_p`` for counts c of y and g of the true output.

    ``n_p`` is the norm of part p's gradient. Between 0 and its largest count C a chord
    lies above ``|c - g|``, and is linear in c: a question for the max oracle.
    """
    constant, scores = 0.0, [torch.zeros_like(z) for z in example.zero]
    unit = [torch.zeros_like(z) for z in example.zero]
    for position, allowed in enumerate(example.allowed):
        if not network.moving[position]:
            continue
        for index in allowed.nonzero().tolist():
            part = (position, *index)
            single = unit[position]
            single[part[1:]] = 1.0
            max_score, gold = (
                example.best(unit)[0],
                float(example.gold[position][part[1:]]),
            )
            size = _norm(network.vjp(unit))
            single[part[1:]] = 0.0
            if max_score:
                scores[position][part[1:]] = (
                    size * (abs(max_score - gold) - gold) / max_score
                )
                constant += size * gold
    return constant + example.best(scores)[0]


def _largest_eigenvalue(example: _Example, network: _PotentialJacobian) -> float:
    r"""Largest eigenvalue of the mean of :math:`a_y a_y^\top` over all outputs."""
    mean = [u - g for u, g in zip(example.uniform(), example.gold, strict=True)]
    generator, largest = torch.Generator().manual_seed(0), 0.0
    v = [
        torch.randn(p.shape, generator=generator, device="cpu").to(p)
        for p in network.params
    ]
    for _ in range(_ITERATIONS):
        size = _norm(v)
        pushed = network.jvp([vector / size for vector in v])
        inner = sum(
            float((m * p).sum()) for m, p in zip(mean, pushed, strict=True) if p.dim()
        )
        pushed = [
            p if p.dim() else torch.zeros_like(m)
            for m, p in zip(mean, pushed, strict=True)
        ]
        directions = example.covariance(pushed)
        v = network.vjp([t + inner * m for t, m in zip(directions, mean, strict=True)])
        image = _norm(v)
        if image <= largest * (1 + 1e-7):
            return max(image, largest)
        largest = image
    return largest


def _norm(tensors: Iterable[Tensor]) -> float:
    return math.hypot(*(float(t.detach().double().norm()) for t in tensors))
