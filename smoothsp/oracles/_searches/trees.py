"""Structures of spanning trees: probabilities of trees, and their parts."""

from torch import Tensor, inf

from smoothsp.oracles._questions.distribution import Distribution
from smoothsp.oracles._questions.rounding import at_most_zero
from smoothsp.oracles._searches.structure import SearchStructure


class Trees(SearchStructure, Distribution):
    """A search for trees, which also sums over them.

    All trees have a part for each word, or as many: what these parts share takes no
    part in probabilities. So these are of parts relative to the best, in float64, which
    takes one sum over trees where ``Distribution`` takes two.
    """

    def _relative(self) -> Tensor:
        """The potentials in float64, less the best of them, -inf where none reads."""
        raise NotImplementedError

    def _log_partition(self, parts: Tensor) -> Tensor:
        """Log-partition of such potentials, in float64 as they are."""
        raise NotImplementedError

    def log_prob(self, y: Tensor) -> Tensor:
        parts = self._relative()
        many, several = self._proved(y)
        scores = self._with_main(parts)._sum(self._used(many))
        chances = at_most_zero(scores - self._log_partition(parts)[:, None])
        return self._rounded(chances if several else chances.squeeze(1))

    def log_prob_within(self, allowed: Tensor) -> Tensor:
        self.restrict(allowed)
        parts = self._relative()
        some = self._log_partition(parts.masked_fill(~allowed, -inf))
        return self._rounded(at_most_zero(some - self._log_partition(parts)))
