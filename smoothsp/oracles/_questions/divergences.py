"""Cross-entropy and relative entropy of two structures over the same outputs."""

from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

Self = TypeVar("Self", bound="Divergences")


class Divergences:
    """Mixin for structures with ``marginals(name)`` and ``log_partition()``.

    Scores are linear in potentials, so expected scores are marginals times potentials.
    """

    def _potentials(self) -> dict[str, Tensor]:
        """All potentials by name, those of rows ``(batch, ...)`` first."""
        raise NotImplementedError

    def _wide(self: Self) -> Self:
        """Potentials in float64."""
        raise NotImplementedError

    def _outputs_like(self: Self, other: Self) -> bool:
        """Whether both have the same outputs, if they have the same shapes."""
        raise NotImplementedError

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
        _check_comparable(self, other)
        p, q = _wide(self), _wide(other)
        scores = q._potentials()
        total = q.log_partition() - _expected(p, scores)
        found: Tensor = total.to(next(iter(self._potentials().values())).dtype)
        return found

    def kl(self: Self, other: Self) -> Float[Tensor, " batch"]:
        r"""Relative entropy of this distribution to that of ``other``, in nats.

        .. math:: D(p \| q) = \sum_y p(y) \log \frac{p(y)}{q(y)}
            = \langle \mu_p, \theta_p - \theta_q \rangle - \log Z_p + \log Z_q

        Differences of potentials are what is averaged, so that what both have in common
        costs no digits. Arguments and errors as of ``cross_entropy``.

        Returns
        -------
        Tensor
            ``(batch,)``, at least 0; inf where q forbids an output that p allows.
            Differentiable once, in the potentials of both.
        """
        _check_comparable(self, other)
        p, q = _wide(self), _wide(other)
        scores = q._potentials()
        change = {
            name: torch.where(scores[name].isneginf() & x.isneginf(), 0, scores[name])
            - x.masked_fill(x.isneginf(), 0)
            for name, x in p._potentials().items()
        }
        total = q.log_partition() - p.log_partition() - _expected(p, change)
        found: Tensor = torch.where(total < 0, total - total.detach(), total)
        return found.to(next(iter(self._potentials().values())).dtype)


def _wide(structure: Divergences) -> Any:
    return structure._wide()


def _expected(p: Any, scores: dict[str, Tensor]) -> Tensor:
    """Mean of scores of parts under p, ``(batch,)``; -inf if one may be."""
    found, barred = [], []
    for name, x in scores.items():
        chances = p.marginals(name)
        never = x.isneginf()
        barred.append(_by_row(never & (chances > 0)).any(1))
        # what no output reads may be anything
        usable = torch.where(x.isfinite(), x, 0)
        found.append(_by_row(chances * usable).sum(1))
    mean = torch.stack(found).sum(0)
    return mean.masked_fill(torch.stack(barred).any(0), -torch.inf)


def _by_row(x: Tensor) -> Tensor:
    """Entries of each row, ``(batch, entries)``; a row may be one number."""
    return x[..., None].flatten(1)


def _check_comparable(p: Divergences, q: object) -> None:
    if type(q) is not type(p):
        kinds = type(p).__name__, type(q).__name__
        raise TypeError(f"other: expected a {kinds[0]}, got a {kinds[1]}")
    ours, theirs = (
        {n: tuple(x.shape) for n, x in y._potentials().items()} for y in (p, q)
    )
    if ours != theirs:
        raise ValueError(f"other: expected potentials {ours}, got {theirs}")
    if not p._outputs_like(q):
        raise ValueError("other: expected the same outputs: lengths, masks and others")
