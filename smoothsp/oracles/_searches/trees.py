"""Base classes of spanning trees: log-probabilities, lengths and padding."""

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
    """A distribution over trees, with exact maximisation.

    All trees have the same number of parts (one for each word). Subtracting a constant
    from the scores of a word changes no probability. So log-probabilities are computed
    in float64 from potentials less their maxima, with one sum over trees where
    ``Distribution`` computes two.
    """

    def _shifted_potentials(self) -> Tensor:
        """Potentials in float64 less their maxima, -inf in entries never read."""
        raise NotImplementedError

    def _log_partition_float64(self, potentials: Tensor) -> Tensor:
        """Log-partition ``(batch,)`` of other potentials, in float64."""
        raise NotImplementedError

    def log_prob(self, y: Tensor) -> Tensor:
        shifted = self._shifted_potentials()
        y_with_k, has_k = self._checked_outputs(y)
        scores = self._with_first_potentials(shifted)._sum_entries(
            self._used_entry_indices(y_with_k)
        )
        # rounding may lift log-probabilities near 0 above it
        log_probs = clip_log_probs(
            scores - self._log_partition_float64(shifted)[:, None]
        )
        return self._to_dtype(log_probs if has_k else log_probs.squeeze(1))

    def log_prob_within(self, allowed: Tensor) -> Tensor:
        self.restrict(allowed)
        shifted = self._shifted_potentials()
        restricted = self._log_partition_float64(shifted.masked_fill(~allowed, -inf))
        return self._to_dtype(
            clip_log_probs(restricted - self._log_partition_float64(shifted))
        )


class DependencyTrees(Trees):
    """Dependency trees: heads of the first ``lengths[b]`` words of row b."""

    arcs: Tensor

    def _set_lengths(self, arcs: Tensor, lengths: Tensor | None) -> None:
        """Set the lengths; in eager mode, absent ones are computed on first use."""
        if lengths is not None:
            B, m = arcs.shape[:2]
            self._lengths = checks.as_lengths(lengths, B, m - 1, arcs.device)
        elif not is_eager():
            self._lengths = _full_lengths(arcs)

    @cached_property
    def _lengths(self) -> Tensor:
        # a tensor made in inference mode could not be saved for backward later
        with torch.inference_mode(False):
            return _full_lengths(self.arcs)

    def _lengths_on_cpu(self) -> Tensor | None:
        """Lengths on the CPU; None stands for whole rows, without a tensor."""
        lengths = vars(self).get("_lengths")
        return None if lengths is None else lengths.cpu().contiguous()

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """``(batch,)``: the number of words of each sentence."""
        return self._lengths.clone()

    @property
    def _real_mask(self) -> Tensor:
        """Return True for words of the sentence, ``(batch, n)``."""
        word = torch.arange(self.shape[0], device=self.arcs.device)
        return word < self._lengths[:, None]


def _full_lengths(arcs: Tensor) -> Tensor:
    B, m = arcs.shape[:2]
    return torch.full((B,), m - 1, device=arcs.device)
