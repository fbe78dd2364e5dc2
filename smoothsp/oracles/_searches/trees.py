"""Structures of spanning trees: probabilities of trees, and their parts."""

from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor, inf

from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.distribution import Distribution
from smoothsp.oracles._inference.rounding import clip_log_probs
from smoothsp.oracles._inference.tracing import is_eager
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
        scores = self._with_first_potentials(parts)._sum(self._used(many))
        chances = clip_log_probs(scores - self._log_partition(parts)[:, None])
        return self._to_dtype(chances if several else chances.squeeze(1))

    def log_prob_within(self, allowed: Tensor) -> Tensor:
        self.restrict(allowed)
        parts = self._relative()
        some = self._log_partition(parts.masked_fill(~allowed, -inf))
        return self._to_dtype(clip_log_probs(some - self._log_partition(parts)))


class DependencyTrees(Trees):
    """Trees of heads of words: of the first ``lengths[b]`` words of row b."""

    arcs: Tensor

    def _set_lengths(self, arcs: Tensor, lengths: Tensor | None) -> None:
        """Keep the lengths that a user gives, or in graphs those of whole rows."""
        if lengths is not None:
            B, m = arcs.shape[:2]
            self._lengths = checks.as_lengths(lengths, B, m - 1, arcs.device)
        elif not is_eager():
            self._lengths = _whole(arcs)

    @cached_property
    def _lengths(self) -> Tensor:
        # saved for gradients, which tensors of inference mode cannot be
        with torch.inference_mode(False):
            return _whole(self.arcs)

    def _lengths_on_host(self) -> Tensor | None:
        """The lengths on the CPU; None if all rows are whole and nobody has asked."""
        given = vars(self).get("_lengths")
        return None if given is None else given.cpu().contiguous()

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """``(batch,)``: the words of each sentence."""
        return self._lengths.clone()

    @property
    def _real(self) -> Tensor:
        """Return True for words of the sentence, ``(batch, n)``."""
        at = torch.arange(self.shape[0], device=self.arcs.device)
        return at < self._lengths[:, None]


def _whole(arcs: Tensor) -> Tensor:
    B, m = arcs.shape[:2]
    return torch.full((B,), m - 1, device=arcs.device)
