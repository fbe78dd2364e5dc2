"""Linear chains whose (feature, label) pairs are hashed to a fixed set of weights."""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.linear import feature_rows as kernel
from smoothsp.linear.inputs import arrays, checks
from smoothsp.linear.inputs.arrays import aligned_zeros, round_up_to_lanes
from smoothsp.linear.problems import _rows
from smoothsp.linear.problems.chain import ChainProblem, Weights

# Kind of a weight, in the two highest bits of the hashed key.
_FEATURE_PART, _PAIR_PART, _START_PART, _END_PART = range(4)


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
    The index of a weight depends only on the column of the feature, on the label and on
    ``hash_with_label``. Weights can therefore be used for other sequences, and in other
    processes.

    All solvers support this problem. Memory beyond the features is 4 bytes per label
    and distinct column. Scores are gathered weight by weight, so that a visit takes two
    to three times as long as with :class:`ChainProblem`.

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
                "hash_with_label: expected the number of weights, or features of"
                " Templates with hash_with_label, got neither"
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

    def _set_arrays(self, rows: _rows.Rows, *arrays: Any) -> None:
        # the table of weight indices has rows only for columns that occur
        self.columns, column_index = np.unique(rows.indices, return_inverse=True)
        self.num_original_columns = rows.columns
        compact_rows = rows._replace(
            indices=column_index.astype(np.int32), columns=len(self.columns)
        )
        super()._set_arrays(compact_rows, *arrays)
        s, S, P = self.sequences, self.num_labels, self.row_width
        table = np.zeros((self.num_rows, P), np.int32)
        table[:, :S] = self._hash_weight_indices()
        self.sequences = s._replace(
            tied_index=table.ravel(),
            transition_offset=0,
            start_offset=S * P if self.boundaries else -1,
            end_offset=(S + 1) * P if self.boundaries else -1,
        )

    def _hash_weight_indices(self) -> NDArray[np.int64]:
        """``(num_rows, num_labels)``: weight index of each (part, label) pair."""
        labels = np.arange(self.num_labels, dtype=np.uint64)
        blocks: list[tuple[int, NDArray[Any]]]
        blocks = [(_FEATURE_PART, self.columns), (_PAIR_PART, labels)]
        if self.boundaries:
            blocks += [(_START_PART, labels[:1]), (_END_PART, labels[:1])]
        # 64-bit keys: 2 bits of kind, 31 of the column or first label, 31 of the label
        keys = [
            (np.uint64(part) << np.uint64(62))
            | (left.astype(np.uint64)[:, None] << np.uint64(31))
            | labels
            for part, left in blocks
        ]
        hashes = np.concatenate(keys).ravel()
        kernel.hash_codes(
            np.zeros(len(hashes), np.int32),
            np.zeros(1, np.uint64),
            hashes,
            np.ones(len(hashes), np.bool_),
        )
        weight_indices = hashes % np.uint64(self.hash_with_label)
        return weight_indices.astype(np.int64).reshape(-1, self.num_labels)

    @property
    def num_weights(self) -> int:
        """Length of w."""
        return self.hash_with_label

    @property
    def flat_size(self) -> int:
        """Length of padded weights: whole SIMD registers."""
        return round_up_to_lanes(self.hash_with_label, np.float64)

    @property
    def border(self) -> int:
        """``flat_size``: transitions and boundaries share the one weight vector."""
        return self.flat_size

    @property
    def apart(self) -> Any:
        """Kernel arguments: unchanged, since all weights are in the first array."""
        return self.sequences

    def used(self) -> NDArray[np.int64]:
        """Indices of the weights that any sequence uses, ascending."""
        table = self.sequences.tied_index.reshape(self.num_rows, -1)
        return np.unique(table[:, : self.num_labels]).astype(np.int64)

    @cached_property
    def checksum(self) -> int:
        """Checksum of the sequences, labels, costs and hash functions."""
        prefix = np.array([super().checksum, self.hash_with_label])
        return arrays.checksum(prefix, self.columns)

    @cached_property
    def norms(self) -> NDArray[np.float64]:
        """``(n,)``: sum of absolute features of each sequence, times its scale.

        An upper bound of norms even if all features of a word collide.
        """
        position_of_entry = np.repeat(np.arange(len(self.labels)), np.diff(self.indptr))
        sequence_of_position = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        # collisions add features: |psi| is at most the l1 norm, not the l2 norm
        magnitudes = np.abs(self.values.astype(np.float64))
        with np.errstate(over="ignore"):
            sums = np.bincount(
                sequence_of_position[position_of_entry], magnitudes, len(self)
            )
            return np.asarray(self.loss_scale * sums, float)

    def split(self, w: Weights) -> tuple[Weights, Weights, Weights, Weights]:
        """Return copies of W (rows of ``columns``), A, start and end."""
        table = self.sequences.tied_index.reshape(self.num_rows, -1)[
            :, : self.num_labels
        ]
        weights = self._check_weights(w)[table]
        d, end = self.num_features, self.num_features + self.num_labels
        boundary_weights = (
            weights[end:] if self.boundaries else np.zeros((2, self.num_labels))
        )
        return weights[:d], weights[d:end], boundary_weights[0], boundary_weights[1]

    def padded_weights(self, w: Weights) -> Weights:
        """Copy w, padded to whole SIMD registers."""
        flat = aligned_zeros(self.flat_size, np.float64)
        flat[: self.hash_with_label] = self._check_weights(w)
        return flat

    def plain_weights(self, flat: Weights) -> Weights:
        """Copy padded weights without the padding."""
        return flat[: self.hash_with_label].copy()

    def _new_instance(self) -> ChainProblem:
        problem = object.__new__(type(self))
        problem.hash_with_label = self.hash_with_label
        return problem

    def _feature_rows(self) -> _rows.Rows:
        columns = self.columns[self.indices]
        return _rows.Rows(self.indptr, columns, self.values, self.num_original_columns)
