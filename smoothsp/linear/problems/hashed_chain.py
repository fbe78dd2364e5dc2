"""Sequences whose features and labels are hashed together, as a linear problem."""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.linear import feature_rows as kernel
from smoothsp.linear.inputs import arrays, checks
from smoothsp.linear.inputs.arrays import aligned_zeros, round_up_to_lanes
from smoothsp.linear.problems import _rows
from smoothsp.linear.problems.chain import ChainProblem, Weights

# What a part is of, in the highest bits of what is hashed.
_FEATURE, _PAIR, _START, _END = range(4)


class HashedChainProblem(ChainProblem):
    r"""Tagging with one short vector of weights, which features of labels share.

    .. math:: E[t, j] = \sum_f x(t, f) \, w_{h(f, j)}, \qquad
        A[i, j] = w_{h'(i, j)}, \qquad \text{start}[j] = w_{h''(j)}, \qquad
        \text{end}[j] = w_{h'''(j)}

    Objective, scores and costs are those of :class:`ChainProblem`. Feature and label
    are hashed together, as are the two labels of a transition. Pairs with the same hash
    share a weight, so their features add up.

    Parameters
    ----------
    features
        ``(positions, features)``, as for :class:`ChainProblem`. The number of columns,
        at most 2^31 - 1, takes no memory.
    labels, offsets, lengths, num_labels, cost, cost_scale, boundaries, loss_scale
        As for :class:`ChainProblem`.
    hash_with_label
        Number of weights, from 1 to 2^31 - 1. By default that of the
        ``Templates(hash_with_label=...)`` that made ``features``.

    Raises
    ------
    ValueError
        As :class:`ChainProblem`, and if the number of weights is missing.
    TypeError
        As :class:`ChainProblem`.

    Notes
    -----
    The place of a weight depends only on the column of the feature, on the label and on
    ``hash_with_label``. Weights can therefore be used for other sequences, and in other
    processes.

    Every solver takes this problem. Memory beyond the features is 4 bytes for each
    label of each different column. Scores are gathered weight by weight, so a visit
    takes two to three times as long as with :class:`ChainProblem`.

    Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
    section 7.1.1. Without signs, unlike Weinberger et al., "Feature Hashing for Large
    Scale Multitask Learning" (2009).

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.eye(3), [0, 1, 1]
    >>> problem = HashedChainProblem(X, y, lengths=[2, 1], hash_with_label=7)
    >>> len(problem), problem.num_weights
    (2, 7)
    """

    def __init__(
        self,
        features: Any,
        labels: Any,
        offsets: Any = None,
        *,
        lengths: Any = None,
        num_labels: int | None = None,
        cost: Any = None,
        cost_scale: Any = None,
        boundaries: bool = True,
        loss_scale: Any = None,
        hash_with_label: int | None = None,
    ) -> None:
        if hash_with_label is None:
            hash_with_label = getattr(features, "hash_with_label", None)
        if hash_with_label is None:
            raise ValueError(
                "hash_with_label: expected how many weights there are, got None, and"
                " features of Templates without hash_with_label"
            )
        self.hash_with_label = checks.as_positive_int(
            "hash_with_label", hash_with_label
        )
        if self.hash_with_label >= 2**31:
            raise ValueError(
                "hash_with_label: expected a number from 1 to 2^31 - 1, got"
                f" {hash_with_label}"
            )
        super().__init__(
            features,
            labels,
            offsets,
            lengths=lengths,
            num_labels=num_labels,
            cost=cost,
            cost_scale=cost_scale,
            boundaries=boundaries,
            loss_scale=loss_scale,
        )

    @classmethod
    def unlabelled(cls, *arguments: Any) -> ChainProblem:
        """Raise an error: labels are hashed with the features."""
        raise NotImplementedError(
            f"{cls.__name__}: labels: expected labels; pass zeros if they are unknown"
        )

    def _keep(self, rows: _rows.Rows, *rest: Any) -> None:
        # rows of the table for the columns that occur alone
        self.columns, found = np.unique(rows.indices, return_inverse=True)
        self.all_columns = rows.columns
        few = rows._replace(indices=found.astype(np.int32), columns=len(self.columns))
        super()._keep(few, *rest)
        s, S, P = self.sequences, self.num_labels, self.row_width
        table = np.zeros((self.num_rows, P), np.int32)
        table[:, :S] = self._places()
        self.sequences = s._replace(
            tied_index=table.ravel(),
            transition_offset=0,
            start_offset=S * P if self.boundaries else -1,
            end_offset=(S + 1) * P if self.boundaries else -1,
        )

    def _places(self) -> NDArray[np.int64]:
        """``(num_rows, num_labels)``: which weight each part has."""
        labels = np.arange(self.num_labels, dtype=np.uint64)
        kinds: list[tuple[int, NDArray[Any]]]
        kinds = [(_FEATURE, self.columns), (_PAIR, labels)]
        if self.boundaries:
            kinds += [(_START, labels[:1]), (_END, labels[:1])]
        keys = [
            (np.uint64(kind) << np.uint64(62))
            | (first.astype(np.uint64)[:, None] << np.uint64(31))
            | labels
            for kind, first in kinds
        ]
        running = np.concatenate(keys).ravel()
        kernel.hash_codes(
            np.zeros(len(running), np.int32),
            np.zeros(1, np.uint64),
            running,
            np.ones(len(running), np.bool_),
        )
        places = running % np.uint64(self.hash_with_label)
        return places.astype(np.int64).reshape(-1, self.num_labels)

    @property
    def num_weights(self) -> int:
        """Length of w."""
        return self.hash_with_label

    @property
    def flat_size(self) -> int:
        """Length of padded weights."""
        return round_up_to_lanes(self.hash_with_label, np.float64)

    @property
    def border(self) -> int:
        """The same: A, start and end are not apart."""
        return self.flat_size

    @property
    def apart(self) -> Any:
        """Arrays for loops that take W and the other weights as two arrays."""
        return self.sequences

    def used(self) -> NDArray[np.int64]:
        """Positions in padded weights of the weights that any sequence uses."""
        table = self.sequences.tied_index.reshape(self.num_rows, -1)
        return np.unique(table[:, : self.num_labels]).astype(np.int64)

    @cached_property
    def checksum(self) -> int:
        """Checksum of the sequences, labels, costs and hash functions."""
        mark = np.array([super().checksum, self.hash_with_label])
        return arrays.checksum(mark, self.columns)

    @cached_property
    def norms(self) -> NDArray[np.float64]:
        """``(n,)``: the sum over its words of their features, which may all collide."""
        of_entry = np.repeat(np.arange(len(self.labels)), np.diff(self.indptr))
        of_word = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        sizes = np.abs(self.values.astype(np.float64))
        with np.errstate(over="ignore"):
            sums = np.bincount(of_word[of_entry], sizes, len(self))
            return np.asarray(self.loss_scale * sums, float)

    def split(self, w: Weights) -> tuple[Weights, Weights, Weights, Weights]:
        """W of the columns that occur, ``columns``, A, start and end, as copies."""
        table = self.sequences.tied_index.reshape(self.num_rows, -1)[
            :, : self.num_labels
        ]
        found = self._checked(w)[table]
        d, past = self.num_features, self.num_features + self.num_labels
        ends = found[past:] if self.boundaries else np.zeros((2, self.num_labels))
        return found[:d], found[d:past], ends[0], ends[1]

    def padded_weights(self, w: Weights) -> Weights:
        """A copy of w, up to whole vectors, as compiled loops take it."""
        flat = aligned_zeros(self.flat_size, np.float64)
        flat[: self.hash_with_label] = self._checked(w)
        return flat

    def plain_weights(self, flat: Weights) -> Weights:
        """A copy of padded weights as w."""
        return flat[: self.hash_with_label].copy()

    def _blank(self) -> ChainProblem:
        problem = object.__new__(type(self))
        problem.hash_with_label = self.hash_with_label
        return problem

    def _features(self) -> _rows.Rows:
        columns = self.columns[self.indices]
        return _rows.Rows(self.indptr, columns, self.values, self.all_columns)
