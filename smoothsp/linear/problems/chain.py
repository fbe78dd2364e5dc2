"""Linear chains over sparse features: the structured SVM and CRF of sequences."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.linear import gradients
from smoothsp._kernels.linear import sequences as kernels
from smoothsp._kernels.linear.frank_wolfe import add_subgradients
from smoothsp._kernels.linear.sequence_loss import ENTROPY, MAX, TOP_K
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.linear.inputs import arrays, checks
from smoothsp.linear.inputs.arrays import aligned_zeros, round_up_to_lanes
from smoothsp.linear.problems import _rows
from smoothsp.linear.problems.batch import ValueAndGradient, require_smoothing
from smoothsp.linear.problems.callback import Corner

Weights = NDArray[np.float64]
# Sums of scores below 2^1000 stay within float64, whose largest exponent is 1023.
_MAX_SAFE_EXPONENT = 1000


class ChainProblem:
    r"""Tagging as a linear structured SVM over chains.

    .. math:: P(w) = \tfrac{\lambda}{2} \|w\|^2
        + \tfrac{1}{n} \sum_i \omega_i \max_y \left[ \Delta_i(y)
        + \langle w, \phi(x_i, y) - \phi(x_i, y_i) \rangle \right]

    The score of a labelling is ``sum_t E[t, y_t] + sum_t A[y_{t-1}, y_t] + start[y_0]
    + end[y_{T-1}]`` with ``E = X_i W``. Its cost is ``cost_scale[i] sum_t
    cost[gold_t, y_t]``.

    Parameters
    ----------
    features
        ``(positions, features)``, with the positions of all sequences concatenated,
        dense or a scipy sparse matrix. float32 is kept, all other dtypes become
        float64.
    labels
        ``(positions,)``: integers from 0 to ``num_labels - 1``.
    offsets
        ``(n + 1,)``: sequence i has the positions ``offsets[i]`` to ``offsets[i + 1]``.
        The loss of an empty sequence is 0.
    lengths
        ``(n,)``, instead of ``offsets``.
    num_labels
        Number of labels, at least 2; by default the largest label plus one.
    cost
        ``(num_labels, num_labels)``, from the gold label to the predicted one: at least
        0, zero on the diagonal. By default 1 for each wrong label (Hamming).
    cost_scale
        ``(n,)``, positive: factor of the cost of a sequence, by default 1. One over its
        length makes the cost a rate.
    boundaries
        If True, learn scores of the first and of the last label.
    loss_scale
        ``(n,)``, at least 0: omega, the factor of the loss of a sequence; by default 1.
        Factors with mean 1 have the effect of repeating sequences.
    all_pairs
        If False, only pairs that occur in these sequences have a weight, as by default
        in CRFsuite. These are pairs of a feature and a label, pairs of neighbouring
        labels, and the first and last labels. All other entries of ``w``, of gradients
        and of psi are 0. For :class:`LBFGS`, :class:`SDCA`, :class:`AGM`,
        :class:`BMRM` and :class:`BatchFrankWolfe`.

    Raises
    ------
    ValueError
        For inconsistent shapes, values or indices; the message names the place.
    TypeError
        If features are not a matrix of numbers, or labels not integers.

    Notes
    -----
    Weights are one flat float64 vector: W of ``(features, labels)`` row by row, then A
    of ``(labels, labels)`` with ``A[from, to]``. With ``boundaries``, start and end of
    ``(labels,)`` follow.

    Source: Osokin et al., "Minding the Gaps for Block Frank-Wolfe Optimization of
    Structured SVMs", equations 1 and 2.

    Examples
    --------
    >>> import numpy as np
    >>> problem = ChainProblem(np.eye(3), [0, 1, 1], lengths=[2, 1])
    >>> len(problem), problem.num_weights
    (2, 14)
    >>> float(problem.primal(np.zeros(problem.num_weights), lam=0.1))
    1.5
    """

    transitions = True
    # name of the features in messages
    called = "features"
    # indices, in padded weights, of the pairs that have a weight; None: all have one
    seen: NDArray[np.int64] | None = None

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
        all_pairs: bool = True,
    ) -> None:
        rows = _rows.as_rows("features", features)
        num_positions = len(rows.indptr) - 1
        sequence_offsets = _rows.as_offsets(offsets, lengths, num_positions)
        labels, label_count = _rows.as_labels(labels, num_positions, num_labels)
        self._set_arrays(
            rows,
            labels,
            sequence_offsets,
            _rows.as_cost_matrix(cost, label_count),
            _rows.as_cost_scales(cost_scale, len(sequence_offsets) - 1),
            checks.as_bool("boundaries", boundaries),
            _rows.as_loss_scale(loss_scale, len(sequence_offsets) - 1),
        )
        if not checks.as_bool("all_pairs", all_pairs):
            self.seen = self._find_observed_weights()

    @classmethod
    def from_sequences(
        cls, features: Sequence[Any], labels: Sequence[Any], **options: Any
    ) -> "ChainProblem":
        """Create the problem from a matrix and labels for each sequence.

        Parameters
        ----------
        features
            CSR matrices or dense arrays ``(length, features)``.
        labels
            Integer arrays ``(length,)``.
        options
            Those of the class, without ``offsets`` and ``lengths``.
        """
        matrix = _rows.stack_labelled_sequences("features", features, labels)
        lengths = [len(y) for y in labels]
        nonempty_labels = [np.asarray(y) for y in labels if len(y)]
        flat = np.concatenate([np.zeros(0, np.int64), *nonempty_labels])
        return cls(matrix, flat, lengths=lengths, **options)

    @classmethod
    def unlabelled(
        cls, rows: _rows.Rows, lengths: NDArray[np.int64], num_labels: int
    ) -> "ChainProblem":
        """Create the problem of sequences to decode; all labels are 0."""
        problem = object.__new__(cls)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        labels = np.zeros(len(rows.indptr) - 1, dtype=np.int32)
        costs, ones = np.zeros((num_labels, num_labels)), np.ones(len(lengths))
        problem._set_arrays(rows, labels, offsets, costs, ones, True, ones)
        return problem

    def _set_arrays(
        self,
        rows: _rows.Rows,
        labels: NDArray[np.int32],
        offsets: NDArray[np.int64],
        cost: NDArray[np.float64],
        cost_scale: NDArray[np.float64],
        boundaries: bool,
        loss_scale: NDArray[np.float64],
    ) -> None:
        self.indptr, self.indices, self.values, self.num_features = rows
        self.labels, self.offsets = labels, offsets
        self.cost, self.cost_scale, self.boundaries = cost, cost_scale, boundaries
        self.loss_scale = loss_scale
        self.num_labels = S = len(cost)
        # weights of a feature are one row, padded to whole SIMD registers
        # loads and stores of a row then need no remainder loop
        self.row_width = P = round_up_to_lanes(S, np.float64)
        d = self.num_features
        # costs of padded labels are -inf, so that maxima and sums exclude them
        padded_cost = np.full((S, P), -np.inf)
        padded_cost[:, :S] = cost
        first_boundary_row = d + S if self.transitions else d
        self.num_rows = first_boundary_row + 2 if boundaries else first_boundary_row
        self.sequences = kernels.Sequences(
            indptr=self.indptr,
            indices=self.indices,
            values=self.values,
            offsets=offsets,
            labels=labels,
            costs=padded_cost.ravel(),
            scales=cost_scale,
            loss_scales=loss_scale,
            S=S,
            P=P,
            transition_offset=d * P if self.transitions else -1,
            start_offset=first_boundary_row * P if boundaries else -1,
            end_offset=(first_boundary_row + 1) * P if boundaries else -1,
            max_length=int(np.diff(offsets).max(initial=0)),
            tied_index=np.zeros(0, np.int32),
        )

    def __len__(self) -> int:
        """Number of sequences."""
        return len(self.offsets) - 1

    @cached_property
    def checksum(self) -> int:
        """Checksum of the sequences, labels and costs."""
        # default scales are left out: checksums of older saved states stay valid
        scales: list[NDArray[Any]] = []
        if not (self.loss_scale == 1).all():
            scales.append(self.loss_scale)
        if self.seen is not None:
            scales.append(self.seen)
        return arrays.checksum(
            self.indptr, self.indices, self.values, self.offsets, self.labels,
            self.cost, self.cost_scale, np.array([self.boundaries, self.num_features]),
            *scales,
        )  # fmt: skip

    @property
    def num_weights(self) -> int:
        """Length of w."""
        return self.num_rows * self.num_labels

    @property
    def flat_size(self) -> int:
        """Length of padded weights."""
        return self.num_rows * self.row_width

    @property
    def border(self) -> int:
        """Offset of the transitions in padded weights; features come before it."""
        return self.num_features * self.row_width

    @property
    def apart(self) -> kernels.Sequences:
        """Kernel arguments for W and the other weights as two separate arrays."""
        s = self.sequences
        names = ("transition_offset", "start_offset", "end_offset")
        offsets = {name: getattr(s, name) for name in names if getattr(s, name) >= 0}
        return s._replace(
            **{name: offset - self.border for name, offset in offsets.items()}
        )

    def used(self) -> NDArray[np.int64]:
        """Indices, in padded weights, of the weights that any sequence uses."""
        if self.seen is not None:
            return self.seen
        is_used = np.zeros(self.num_rows, dtype=bool)
        is_used[self.indices] = True
        is_used[self.num_features :] = True
        rows = np.flatnonzero(is_used) * self.row_width
        return (rows[:, None] + np.arange(self.num_labels)).ravel()

    def _find_observed_weights(self) -> NDArray[np.int64]:
        """Indices, in padded weights, of pairs that occur where ``loss_scale > 0``."""
        s, P, lengths = self.sequences, self.row_width, np.diff(self.offsets)
        has_loss = np.repeat(self.loss_scale > 0, lengths)
        labels = self.labels.astype(np.int64)
        position_of_entry = np.repeat(np.arange(len(labels)), np.diff(self.indptr))
        boundary_positions = (
            self.offsets[:-1][lengths > 0],
            self.offsets[1:][lengths > 0] - 1,
        )
        has_predecessor = np.ones(len(labels), dtype=bool)
        has_predecessor[boundary_positions[0]] = False
        position_offset_pairs: list[tuple[NDArray[Any], Any]]
        position_offset_pairs = [(position_of_entry, self.indices * np.int64(P))]
        if s.transition_offset >= 0:
            t = np.flatnonzero(has_predecessor)
            position_offset_pairs.append((t, s.transition_offset + labels[t - 1] * P))
        if s.start_offset >= 0:
            position_offset_pairs += [
                (boundary_positions[0], s.start_offset),
                (boundary_positions[1], s.end_offset),
            ]
        # a weight is at the offset of its row plus the (second) label
        weight_indices = [
            (offset + labels[t])[has_loss[t]] for t, offset in position_offset_pairs
        ]
        return np.unique(np.concatenate(weight_indices))

    def require_all_pairs(self, solver: str) -> None:
        """Raise ValueError if only pairs that occur have a weight."""
        if self.seen is not None:
            raise ValueError(
                f"all_pairs: expected True for {solver}, whose steps change the weights"
                " of all labels of a word, got False; choose SDCA, or a solver of the"
                " whole set: LBFGS, AGM or BMRM"
            )

    def _zero_unobserved(self, flat: Weights) -> Weights:
        """Return padded weights with 0 for pairs without a weight."""
        if self.seen is None:
            return flat
        masked = aligned_zeros(len(flat), np.float64)
        masked[self.seen] = flat[self.seen]
        return masked

    def without_unseen(self, w: Weights) -> Weights:
        """Return w with 0 for pairs without a weight; w itself if all have one."""
        return w if self.seen is None else self.plain_weights(self.padded_weights(w))

    def split(self, w: Weights) -> tuple[Weights, Weights, Weights, Weights]:
        """Return W, A, start and end as views of w; zeros where not learnt."""
        table = self._check_weights(w).reshape(self.num_rows, self.num_labels)
        S, d = self.num_labels, self.num_features
        first_boundary_row = d + S if self.transitions else d
        A = table[d:first_boundary_row] if self.transitions else np.zeros((S, S))
        boundary_weights = (
            table[first_boundary_row:] if self.boundaries else np.zeros((2, S))
        )
        return table[:d], A, boundary_weights[0], boundary_weights[1]

    def padded_weights(self, w: Weights) -> Weights:
        """Copy w with rows padded to whole SIMD registers, the layout of kernels."""
        flat = aligned_zeros(self.flat_size, np.float64)
        shape = (self.num_rows, self.num_labels)
        flat.reshape(self.num_rows, -1)[:, : shape[1]] = self._check_weights(w).reshape(
            shape
        )
        return self._zero_unobserved(flat)

    def plain_weights(self, flat: Weights) -> Weights:
        """Copy padded weights to the layout of w."""
        table = self._zero_unobserved(flat).reshape(self.num_rows, self.row_width)
        return table[:, : self.num_labels].flatten()

    def hinges(self, w: Weights) -> NDArray[np.float64]:
        """Weighted hinge ``(n,)`` of each sequence, by one oracle call each."""
        hinges = np.empty(len(self))
        exponent = self._run_kernel(kernels.structured_hinges, w, hinges)
        with np.errstate(over="ignore"):
            hinges = self.loss_scale * np.ldexp(hinges, exponent)
        if not np.isfinite(hinges).all():
            raise checks.Diverged(
                "w: expected weights, and costs, for which the hinges fit float64, got"
                f" infinity at sequence {int((~np.isfinite(hinges)).argmax())}"
            )
        return hinges

    def primal(self, w: Weights, lam: float) -> float:
        """Objective at w; ``lam > 0``."""
        lam = checks.as_positive("lam", lam)
        w = self._check_weights(w)
        largest = float(np.abs(w).max())
        with np.errstate(over="ignore"):
            regulariser = float(lam / 2 * np.dot(w, w))
            # scale by the largest weight, so that its square does not overflow
            if not np.isfinite(regulariser):
                regulariser = (
                    lam
                    / 2
                    * largest
                    * float(np.dot(w / largest, w / largest))
                    * largest
                )
        objective = float(regulariser + self.hinges(w).mean())
        if not np.isfinite(objective):
            raise checks.Diverged(
                "w: expected weights whose objective fits float64, got weights up to"
                f" {largest:.3g}"
            )
        return objective

    def worst(self, i: int, w: Weights) -> Corner:
        """Return the labelling of sequence i with the largest ``loss - <w, psi>``."""
        if not 0 <= i < len(self):
            raise IndexError(f"i: expected 0 to {len(self) - 1}, got {i}")
        psi, flat = aligned_zeros(self.flat_size, float), self.padded_weights(w)
        loss, hinge = np.zeros(len(self)), np.zeros(len(self))
        add_subgradients(i, i + 1, self.sequences, flat, 1.0, psi, loss, hinge)
        return Corner(self.plain_weights(psi), float(loss[i]), None)

    def risk(self, w: Weights) -> ValueAndGradient:
        """Mean hinge at w, and a subgradient; see ``BatchProblem``."""
        return self._mean_loss_and_gradient(w, MAX, 1.0, 1)

    def smoothed_risk(
        self, w: Weights, mu: float, smoothing: str = "entropy", k: int = 5
    ) -> ValueAndGradient:
        """Mean hinge smoothed from below, and its gradient; see ``BatchProblem``."""
        require_smoothing(smoothing, mu, k)
        kernel_loss, num_outputs = (
            (ENTROPY, 1) if smoothing == "entropy" else (TOP_K, k)
        )
        value, gradient = self._mean_loss_and_gradient(
            w, kernel_loss, float(mu), num_outputs
        )
        # kernels smooth from above: subtract mu D for a lower bound
        return value - mu * self.diameter(smoothing), gradient

    def smoothed_tangent(
        self, w: Weights, mu: float, smoothing: str = "entropy", k: int = 5
    ) -> tuple[float, Weights, float]:
        """Result of ``smoothed_risk``, and the expected cost: a tangent at 0.

        ``<v, gradient>`` plus the expected cost is at most the risk at any v.
        """
        require_smoothing(smoothing, mu, k)
        kernel_loss, num_outputs = (
            (ENTROPY, 1) if smoothing == "entropy" else (TOP_K, k)
        )
        s, n = self.apart, len(self.offsets) - 1
        node_marginals, edge_marginals = (
            np.empty((len(s.labels), s.P)),
            np.empty((n, s.S * s.P)),
        )
        marginal_buffers = node_marginals.reshape(-1), edge_marginals
        value, gradient = self._mean_loss_and_gradient(
            w, kernel_loss, float(mu), num_outputs, marginal_buffers=marginal_buffers
        )
        table = s.costs.reshape(-1, s.P)
        # -inf times a marginal of 0 is NaN: padded labels cost 0 here
        costs = np.where(np.isfinite(table), table, 0.0)[s.labels]
        # node_marginals have 1 subtracted at gold labels, whose cost is 0
        expected_costs = (node_marginals * costs).sum(1)
        cost = float(expected_costs @ np.repeat(s.scales, np.diff(self.offsets)))
        return value - mu * self.diameter(smoothing), gradient, cost / n

    def has_more_outputs(self, k: int) -> bool:
        """Whether a sequence has more than k outputs."""
        longest = int(np.diff(self.offsets).max(initial=0))
        # k labels at most matter: avoid a huge power
        return bool(self.num_labels ** min(longest, k) > k)

    def diameter(self, smoothing: str = "entropy") -> float:
        """Largest gap between risk and smoothed risk, divided by mu."""
        require_smoothing(smoothing, 1.0, 1)
        if smoothing == "l2":
            return 0.5 * float(self.loss_scale.mean())
        # entropy: log of the number of labellings, T log S
        words = float((self.loss_scale * np.diff(self.offsets)).mean())
        return words * float(np.log(self.num_labels))

    def corners(self, w: Weights, scale: float) -> tuple[Weights, float, float]:
        """``scale`` times the sum of psi of the worst outputs, mean loss and hinge."""
        # for batch Frank-Wolfe: scale 1 / (lambda n) gives w_s of algorithm 8
        s, n = self.sequences, len(self.offsets) - 1
        v, losses, hinges = np.zeros(self.flat_size), np.empty(n), np.empty(n)
        add_subgradients(0, n, s, self.padded_weights(w), scale, v, losses, hinges)
        return self.plain_weights(v), float(losses.mean()), float(hinges.mean())

    def require_range(self, lam: float) -> None:
        """Raise ValueError if a step of a dual solver could overflow float64.

        The curvature of a step is at most ``|psi_i|^2 / (lambda n)``, and ``|psi_i|``
        is at most twice the sum of the norms of the words.
        """
        norms, n = 2 * self.norms, len(self.offsets) - 1
        with np.errstate(over="ignore"):
            overflows = ~np.isfinite(norms * norms)
            overflows |= ~np.isfinite(norms / (lam * n) * norms)
        if overflows.any():
            i = int(overflows.argmax())
            raise ValueError(
                f"{self.called}: expected words whose squared norm over lambda n fits"
                f" float64, got norms that sum to {self.norms[i]:.3g} in sequence {i};"
                " scale the features, or raise lambda (lower C)"
            )

    def likelihood(self, w: Weights) -> ValueAndGradient:
        """Mean negative log-likelihood of the labels, and its gradient."""
        return self._mean_loss_and_gradient(w, ENTROPY, 1.0, 1, with_costs=False)

    def mean_slope(self, w: Weights, loss: str, mu: float, k: int) -> ValueAndGradient:
        """Return the mean loss, smoothed from above, and its gradient."""
        if loss == "likelihood":
            return self.likelihood(w)
        kernel_loss = {"hinge": MAX, "hinge-l2": TOP_K, "hinge-entropy": ENTROPY}[loss]
        if mu == 0:
            kernel_loss = MAX
        return self._mean_loss_and_gradient(
            w, kernel_loss, float(mu) or 1.0, k if kernel_loss == TOP_K else 1
        )

    def decode(self, w: Weights) -> NDArray[np.int32]:
        """``(positions,)``: labels of highest score; ties go to the lower label."""
        labels = np.empty(len(self.labels), dtype=np.int32)
        self._run_kernel(kernels.decode, w, labels, np.empty(len(self)))
        return labels

    def subset(self, rows: Any) -> "ChainProblem":
        """Return the problem of the sequences ``rows``, in that order.

        Parameters
        ----------
        rows
            Indices of sequences, or one bool for each.
        """
        sequence_indices = np.arange(len(self))[rows]
        lengths = np.diff(self.offsets)[sequence_indices]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        if len(offsets) < 2:
            raise ValueError("rows: expected at least one sequence, got none")
        offset_in_sequence = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        positions = (
            np.repeat(self.offsets[sequence_indices], lengths) + offset_in_sequence
        )
        problem = self._new_instance()
        problem._set_arrays(
            self._feature_rows().select_rows(positions),
            self.labels[positions],
            offsets,
            self.cost,
            self.cost_scale[sequence_indices],
            self.boundaries,
            self.loss_scale[sequence_indices],
        )
        # pairs of all sequences, so that weights keep their meaning
        problem.seen = self.seen
        return problem

    def _mean_loss_and_gradient(
        self,
        w: Weights,
        kernel_loss: int,
        mu: float,
        k: int,
        with_costs: bool = True,
        marginal_buffers: tuple[Weights, Weights] | None = None,
    ) -> ValueAndGradient:
        s, flat, border = self.apart, self.padded_weights(w), self.border
        if not with_costs:
            # zero all costs, but keep the -inf of padded labels
            s = s._replace(costs=np.minimum(s.costs, 0.0))
        n, gradient = len(s.offsets) - 1, np.zeros_like(flat)
        empty, losses = np.empty(0), np.empty(n)
        node_marginals, edge_marginals = marginal_buffers or (
            empty,
            empty.reshape(0, s.S * s.P),
        )
        gradients.losses_and_gradient(
            s,
            flat[:border],
            flat[border:],
            kernel_loss,
            mu,
            k,
            marginal_buffers is not None,
            gradient[:border],
            gradient[border:],
            node_marginals,
            edge_marginals,
            losses,
        )
        return float(losses.mean()), self.plain_weights(gradient) / n

    def _new_instance(self) -> "ChainProblem":
        """Create an object without ``__init__``, to be filled by ``_set_arrays``."""
        return object.__new__(type(self))

    def _feature_rows(self) -> _rows.Rows:
        return _rows.Rows(self.indptr, self.indices, self.values, self.num_features)

    def _run_kernel(self, kernel: Any, w: Weights, *outputs: NDArray[Any]) -> int:
        """Run a kernel over all sequences, on several threads if worthwhile.

        Fills ``outputs`` and returns an exponent: multiply scores in them by 2 to it.
        """
        # cost estimate in SIMD operations, for the number of threads
        work = len(self.indices) * self.row_width // 8
        work += len(self.labels) * self.num_labels * self.row_width // 8
        # few entries, many features: copy the rows in use instead of padding them all
        gathers_rows = self.seen is None and len(self.indices) < self.num_features
        s, flat = (
            self._gather_used_rows(w)
            if gathers_rows
            else (self.sequences, self.padded_weights(w))
        )
        # scale weights and costs by a power of 2, which is exact, if sums may overflow
        largest_exponent = max(
            _max_exponent(flat) + self._magnitude_exponents[0],
            self._magnitude_exponents[1],
        )
        exponent = max(largest_exponent - _MAX_SAFE_EXPONENT, 0)
        if exponent:
            flat[:] = np.ldexp(flat, -exponent)
            s = s._replace(scales=np.ldexp(s.scales, -exponent))
        run_rows(kernel, len(self), work, s, flat, *outputs)
        return exponent

    @cached_property
    def _magnitude_exponents(self) -> tuple[int, int]:
        """Upper bounds of log2 of the sum of all features, and of all costs."""
        # number of summands: entries, and three scores of transitions or boundaries
        count = len(self.values) + 3 * len(self.labels) + 1
        features = max(_max_exponent(self.values), 1) + count.bit_length()
        costs = _max_exponent(self.cost) + _max_exponent(self.cost_scale)
        return features, costs + count.bit_length()

    @cached_property
    def norms(self) -> NDArray[np.float64]:
        """``(n,)``: sum of the norms of the words of each sequence, times its scale."""
        values = self.values.astype(np.float64)
        # scaled by the largest value: squares do not overflow
        largest = float(np.abs(values).max(initial=0.0)) or 1.0
        rows = np.arange(len(self.labels))
        position_of_entry = np.repeat(rows, np.diff(self.indptr))
        squared_norms = np.bincount(
            position_of_entry, (values / largest) ** 2, len(rows)
        )
        sequence_of_position = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        with np.errstate(over="ignore"):
            sums = largest * np.bincount(
                sequence_of_position, np.sqrt(squared_norms), len(self)
            )
            return np.asarray(self.loss_scale * sums)

    def _gather_used_rows(self, w: Weights) -> tuple[kernels.Sequences, Weights]:
        """Return kernel arguments with one copied row of padded weights per entry."""
        s, d, num_entries = self.sequences, self.num_features, len(self.indices)
        table = self._check_weights(w).reshape(self.num_rows, s.S)
        flat = aligned_zeros((num_entries + self.num_rows - d) * s.P, np.float64)
        rows = flat.reshape(-1, s.P)
        rows[:num_entries, : s.S] = table[self.indices]
        rows[num_entries:, : s.S] = table[d:]
        offsets = {
            name: getattr(s, name) + (num_entries - d) * s.P
            for name in ("transition_offset", "start_offset", "end_offset")
            if getattr(s, name) >= 0
        }
        indices = np.arange(num_entries, dtype=np.int32)
        return s._replace(indices=indices, **offsets), flat

    def _check_weights(self, w: Weights) -> Weights:
        w = np.ascontiguousarray(w, dtype=np.float64)
        if w.shape != (self.num_weights,):
            raise ValueError(
                f"w: expected ({self.num_weights},) weights, got {w.shape}"
            )
        return w


def _max_exponent(values: NDArray[Any]) -> int:
    """Return the least e such that all values are below ``2 ** e``."""
    return int(np.frexp(np.abs(values).max(initial=0.0))[1])
