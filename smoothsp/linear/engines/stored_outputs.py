"""Pools of the labellings found for each example."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.linear import frank_wolfe as kernels
from smoothsp.linear.engines.settings import UNLIMITED
from smoothsp.linear.problems import ChainProblem

# Slots of an example at the start.
_FIRST = 4


class StoredLabels:
    """The store of ``_kernels.linear.stored_outputs``: at the start the gold labels."""

    def __init__(self, problem: ChainProblem) -> None:
        self._problem = problem
        n = len(problem)
        words = 2 * _FIRST * len(problem.labels)
        slots = 2 * _FIRST * n
        small = problem.num_labels <= 2**15
        self.pools = kernels.Store(
            labels=np.zeros(words, np.int16 if small else np.int32),
            alpha=np.zeros(slots),
            loss=np.zeros(slots),
            h=np.zeros(slots),
            word=_FIRST * problem.offsets[:-1],
            slot=_FIRST * np.arange(n),
            room=np.full(n, _FIRST),
            size=np.ones(n, np.int64),
            used=np.array([_FIRST * len(problem.labels), _FIRST * n]),
        )
        q, offsets = self.pools, problem.offsets
        lengths = np.diff(offsets)
        within = np.arange(len(problem.labels)) - np.repeat(offsets[:-1], lengths)
        q.labels[np.repeat(q.word, lengths) + within] = problem.labels
        q.alpha[q.slot] = 1

    @staticmethod
    @cache
    def none() -> Any:
        """Empty arrays for solvers without stored outputs."""
        floats, ints = np.zeros(0), np.zeros(0, np.int64)
        return kernels.Store(
            np.zeros(0, np.int16), floats, floats, floats, ints, ints, ints, ints, ints
        )

    def double(self) -> None:
        """Twice as much room in all pools."""
        q = self.pools
        longer = {
            name: np.concatenate([pool, np.zeros_like(pool)])
            for name, pool in (
                ("labels", q.labels),
                ("alpha", q.alpha),
                ("loss", q.loss),
                ("h", q.h),
            )
        }
        self.pools = q._replace(**longer)

    def mix_with_gold(self, rho: float) -> None:
        """``alpha <- rho alpha``, the rest on the gold labels of each example."""
        done, s = 0, self._problem.sentences
        while done < len(self._problem):
            done = kernels.mix_with_gold(done, s, rho, UNLIMITED, self.pools)
            if done < len(self._problem):
                self.double()

    def state(self) -> dict[str, NDArray[Any]]:
        """The pools as arrays, without what is not used."""
        words, slots = self.pools.used
        ends = {"labels": words, "alpha": slots, "loss": slots}
        saved = self.pools._asdict()
        del saved["h"]
        return {f"store_{k}": v[: ends.get(k)].copy() for k, v in saved.items()}

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""
        fields = {k: state[f"store_{k}"].copy() for k in self.pools._fields if k != "h"}
        self.pools = kernels.Store(h=np.zeros(len(fields["alpha"])), **fields)
