"""Base class of structures with a distribution: probabilities and divergences."""

from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from smoothsp.oracles._inference.double_double import DoubleDouble, clip_at_zero
from smoothsp.oracles._inference.engine import Engine
from smoothsp.oracles._inference.structure import NamedTensors, Structure

Self = TypeVar("Self", bound="Distribution")


class Distribution(Structure):
    """Gibbs distribution over the outputs of a structure: P(y) = exp(score(y)) / Z.

    Scores are linear in the potentials, so expected scores are inner products of
    marginals and potentials.
    """

    @property
    def _engine(self) -> Engine:
        """Engine of the structure; undefined if another structure computes for it."""
        raise NotImplementedError

    @property
    def _likelihood_structure(self) -> Any:
        """Structure with the same distribution whose ``_engine`` computes losses.

        Its potentials are those of this structure minus constants without a
        gradient. With None, losses call ``log_prob``.
        """
        return None

    def _score_hi_lo(self, y: Tensor) -> DoubleDouble:
        raise NotImplementedError

    def log_partition(self) -> Float[Tensor, " batch"]:
        raise NotImplementedError

    def _log_partition_hi_lo(self) -> DoubleDouble:
        raise NotImplementedError

    def _resolve_name(self, name: str | None) -> str:
        """Return a valid name of potentials; None stands for the first."""
        names = [*self._named_potentials()]
        if name is not None and name not in names:
            raise ValueError(f"name: expected one of {names}, got {name!r}")
        return names[0] if name is None else name

    def _marginals(self) -> NamedTensors:
        """Marginals ``(batch, ...)`` of all potentials, by name."""
        structure: Any = self
        return {name: structure.marginals(name) for name in self._potentials()}

    def _has_same_outputs(self: Self, other: Self) -> bool:
        """Whether both have the same outputs, if they have the same shapes."""
        pairs = (
            (getattr(x, name) for x in (self, other)) for name in self.row_attributes
        )
        return all(
            left is right
            or (left is not None and right is not None and left.equal(right))
            for left, right in pairs
        )

    def log_prob(self, y: Tensor) -> Float[Tensor, " batch *k"]:
        """Log-probability of y: ``score(y) - log_partition()``, at most 0.

        The difference is computed before rounding.
        """
        scores, total = self._score_hi_lo(y), self._log_partition_hi_lo()
        if scores.value.dim() > 1:
            total = total.unsqueeze(1)
        return self._to_dtype(scores.minus(total, sign=-1))

    def log_prob_within(self, allowed: Tensor) -> Float[Tensor, " batch"]:
        """Log-probability that an output uses only ``allowed`` parts: at most 0.

        Equal to ``restrict(allowed).log_partition() - log_partition()``.
        """
        restricted = self.restrict(allowed)._log_partition_hi_lo()
        return self._to_dtype(restricted.minus(self._log_partition_hi_lo(), sign=-1))

    def cross_entropy(self: Self, other: Self) -> Float[Tensor, " batch"]:
        r"""Cross-entropy of ``other`` under this distribution, in nats.

        .. math:: H(p, q) = -\sum_y p(y) \log q(y)
            = \log Z_q - \langle \mu_p, \theta_q \rangle

        Parameters
        ----------
        other
            A structure of the same kind with the same outputs, of which q is the
            distribution; p is that of this one.

        Returns
        -------
        Tensor
            ``(batch,)``, at least the entropy of p; inf where q forbids an output that
            p allows. Differentiable once, in the potentials of both.

        Raises
        ------
        TypeError
            If ``other`` is a structure of another kind.
        ValueError
            If its potentials have other shapes, or it has other outputs.
        """
        _require_comparable(self, other)
        p, q = self._to_float64(), other._to_float64()
        scores = q._potentials()
        return self._to_dtype(q.log_partition() - _expected_score(p, scores))

    def kl(self: Self, other: Self) -> Float[Tensor, " batch"]:
        r"""Relative entropy of this distribution to that of ``other``, in nats.

        .. math:: D(p \| q) = \sum_y p(y) \log \frac{p(y)}{q(y)}
            = \langle \mu_p, \theta_p - \theta_q \rangle - \log Z_p + \log Z_q

        Differences of potentials are averaged, so that large common scores do not
        cancel. Arguments and errors as in ``cross_entropy``.

        Returns
        -------
        Tensor
            ``(batch,)``, at least 0; inf where q forbids an output that p allows.
            Differentiable once, in the potentials of both.
        """
        _require_comparable(self, other)
        p, q = self._to_float64(), other._to_float64()
        scores = q._potentials()
        score_differences = {
            name: torch.where(scores[name].isneginf() & x.isneginf(), 0, scores[name])
            - x.masked_fill(x.isneginf(), 0)
            for name, x in p._potentials().items()
        }
        total = (
            q.log_partition()
            - p.log_partition()
            - _expected_score(p, score_differences)
        )
        return self._to_dtype(clip_at_zero(total, 1))


def _expected_score(p: Distribution, scores: dict[str, Tensor]) -> Tensor:
    """Expected score under p, ``(batch,)``: sum of marginals times ``scores``.

    -inf if an output of positive probability uses a part of score -inf.
    """
    terms, forbidden = [], []
    marginals = p._marginals()
    for name, x in scores.items():
        probs = marginals[name]
        is_forbidden = x.isneginf()
        forbidden.append(_flatten_rows(is_forbidden & (probs > 0)).any(1))
        # entries that no output uses may be NaN or infinite
        finite_scores = torch.where(x.isfinite(), x, 0)
        terms.append(_flatten_rows(probs * finite_scores).sum(1))
    mean = torch.stack(terms).sum(0)
    return mean.masked_fill(torch.stack(forbidden).any(0), -torch.inf)


def _flatten_rows(x: Tensor) -> Tensor:
    """Reshape to ``(batch, entries)``; a row may be a single number."""
    return x[..., None].flatten(1)


def _require_comparable(p: Distribution, q: object) -> None:
    if type(q) is not type(p):
        kinds = type(p).__name__, type(q).__name__
        raise TypeError(f"other: expected a {kinds[0]}, got a {kinds[1]}")
    shapes, other_shapes = (
        {n: tuple(x.shape) for n, x in y._potentials().items()} for y in (p, q)
    )
    if shapes != other_shapes:
        raise ValueError(f"other: expected potentials {shapes}, got {other_shapes}")
    if not p._has_same_outputs(q):
        raise ValueError("other: expected the same outputs: lengths, masks and others")
