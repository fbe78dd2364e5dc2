"""Base class of structures that are circuits, with exact inference."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from smoothsp.oracles._circuits import cpu
from smoothsp.oracles._circuits.circuit_batch import CircuitBatch, Leaves
from smoothsp.oracles._circuits.engine import CircuitEngine
from smoothsp.oracles._circuits.topology import DeferredTopology, Topology
from smoothsp.oracles._circuits.validation import (
    first_invalid_output,
    leaf_and_label_masks,
    usable_labels,
    usable_leaves,
)
from smoothsp.oracles._inference import checks, rules
from smoothsp.oracles._inference.distribution import Distribution
from smoothsp.oracles._inference.double_double import DoubleDouble
from smoothsp.oracles._inference.tracing import (
    is_compiling,
    is_dense_cpu,
    is_eager,
    is_eager_tensor,
)

Parts = Tensor | tuple[Tensor, ...]
Self = TypeVar("Self", bound="CircuitStructure")


class CircuitStructure(Distribution):
    """A batch of potentials of a dynamic programme, and exact inference on it.

    In a subclass, call this constructor last: first set the attributes that your
    ``leaves`` reads.

    Parameters
    ----------
    topology
        The circuit, as returned by ``topology(build, *sizes)``.
    potentials
        Potentials ``(batch, ...)`` by name. Each becomes an attribute of this name.
        ``augment`` adds a cost to the first.
    shared
        Potentials that all rows share, by name, without a batch axis. Each also becomes
        an attribute.
    roots
        ``(batch,)``: the item that stands for all outputs of a row, from
        ``topology.root(size)``; or one item for all rows.
    lengths
        Number of labels of an output, ``(batch,)`` or one number for all rows. Losses
        divide by it in means over labels.
    shape
        Shape of an output of one row. Its size is the circuit's number of positions.

    Attributes
    ----------
    shape
        Shape of an output of one row. Decoded outputs are -1 where nothing is labelled.
    row_attributes
        Names of further attributes with an entry for each row, or None. ``select``
        indexes them by rows.
    ragged_axes
        Number of leading axes of an output that end at ``lengths``: 1 by default, 2
        for outputs ``(n, n)``.
    output_description
        Description of an output in error messages.

    Raises
    ------
    TypeError
        For potentials that are no tensors of one dtype and device.
    ValueError
        For NaN or +inf where a row reads it, a row whose outputs are all forbidden, a
        potential that has the name of a method or attribute, or sizes other than the
        circuit's. Values are not checked while ``torch.compile`` traces.

    Notes
    -----
    You may override ``leaves``, ``labels_of``, ``outputs_of`` and ``leaves_used``, in
    PyTorch operations, which autograd differentiates. docs/your_own_structure.md has an
    example.

    Examples
    --------
    Two bits, each with a score of 0 and of 1; ``both`` is their product.

    >>> import torch
    >>> from smoothsp.oracles import Circuit, CircuitStructure, topology
    >>> def two_bits():
    ...     circuit = Circuit()
    ...     scores = circuit.leaves(2, 2)
    ...     circuit.label(scores, [[0], [1]], [0, 1])
    ...     bit, both = circuit.chart(2), circuit.chart()
    ...     circuit.define(bit, (scores,))
    ...     circuit.multiply(both, bit[0], bit[1])
    ...     return circuit, both
    >>> built = topology(two_bits)
    >>> scores = torch.tensor([[[0.0, 1.0], [2.0, 0.0]]])
    >>> bits = CircuitStructure(
    ...     built, {"scores": scores}, roots=built.root(), lengths=2, shape=(2,)
    ... )
    >>> bits.decode()
    (tensor([3.]), tensor([[1, 0]]))
    """

    ragged_axes: ClassVar[int] = 1

    shape: tuple[int, ...]
    _lengths: Tensor | int
    _circuit_batch: CircuitBatch
    # replaces _circuit_batch while torch.compile traces
    _topology: DeferredTopology
    # Last arguments and results of ``_checked_outputs``.
    _checked_outputs_cache: tuple[Tensor, Tensor, Tensor] | None = None
    # Whether the number of leaves is known to match the circuit.
    _sizes_match = False

    def __init__(
        self,
        topology: Topology,
        potentials: Mapping[str, Tensor],
        shared: Mapping[str, Tensor] | None = None,
        *,
        roots: Tensor | int,
        lengths: Tensor | int,
        shape: tuple[int, ...],
    ) -> None:
        shared = shared or {}
        structure_class = type(self)
        # constructors of this package have checked their arguments
        is_checked = structure_class.__init__ is not CircuitStructure.__init__ and (
            structure_class.__init__.__module__.startswith("smoothsp.")
        )
        if not is_checked:
            for name in (*potentials, *shared):
                if hasattr(structure_class, name) or name == "shape":
                    raise ValueError(
                        f"potentials: {name!r} is a method or attribute of "
                        f"{structure_class.__name__}; choose another name"
                    )
            potentials, shared = _as_valid_potentials(potentials, shared)
        self._set_potentials(dict(potentials), dict(shared))
        self._record_versions(self._named_potentials())
        if is_compiling():
            self.__dict__.update(_topology=topology, shape=shape)
            return
        B, device = self._first_potentials.shape[0], self._first_potentials.device
        if not is_checked and isinstance(lengths, Tensor):
            lengths = checks.as_int64("lengths", lengths, device)
            checks.require_shape("lengths", lengths, (B,), "(batch,)")
        if isinstance(roots, int):
            batch = CircuitBatch.with_shared_root(topology, roots, B)
        else:
            checks.require_shape("roots", roots, (B,), "(batch,)")
            batch = CircuitBatch(topology, roots)
        self.__dict__.update(_circuit_batch=batch, _lengths=lengths, shape=shape)
        leaves_are_potentials = structure_class.leaves is CircuitStructure.leaves
        if leaves_are_potentials and not is_checked:
            self._leaves()
        if leaves_are_potentials or (
            is_checked and structure_class.leaves.__module__.startswith("smoothsp.")
        ):
            self.__dict__["_sizes_match"] = True
        self._require_valid(next(iter(self._row_potentials)))

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_checked_outputs_cache": None}

    def _select_rows(self: Self, rows: Tensor) -> Self:
        other = super()._select_rows(rows)
        if is_compiling():
            return other
        batch, lengths = self._circuit_batch.select(rows.cpu()), self.lengths[rows]
        other.__dict__.update(
            _circuit_batch=batch, _lengths=lengths, _checked_outputs_cache=None
        )
        return other

    def leaves(self) -> tuple[Parts, Parts]:
        """Return the leaves of the circuit, computed from the potentials.

        Override it where the leaves are not the potentials themselves. Each leaf is one
        entry of a potential or minus infinity.

        Returns
        -------
        row_leaves
            The leaves of each row, in the order of ``Circuit.leaves``: a tensor
            ``(batch, ...)``, or a tuple of tensors to concatenate.
        shared_leaves
            The leaves shared by all rows, in the order of ``Circuit.shared``: a tensor
            without a batch axis, or a tuple of them.
        """
        return tuple(self._row_potentials.values()), tuple(
            self._shared_potentials.values()
        )

    def _leaves(self) -> Leaves:
        row_leaves, shared_leaves = self.leaves()
        leaves = Leaves(
            (row_leaves,) if isinstance(row_leaves, Tensor) else tuple(row_leaves),
            (shared_leaves,)
            if isinstance(shared_leaves, Tensor)
            else tuple(shared_leaves),
        )
        if self._sizes_match:
            return leaves
        # kernels do not check sizes: missing leaves would be read out of bounds
        edges = self._circuit_batch.topology.edges
        sizes = (
            sum(x.shape[1:].numel() for x in leaves.per_row),
            sum(x.shape.numel() for x in leaves.shared),
        )
        if sizes != (edges.num_row_leaves, edges.num_shared_leaves):
            raise ValueError(
                f"potentials: expected {edges.num_row_leaves} leaves for each row and "
                f"{edges.num_shared_leaves} shared ones, as {type(self).__name__}'s"
                f" circuit has, got {sizes[0]} and {sizes[1]}; compare their shapes "
                "with Circuit.leaves and Circuit.shared"
            )
        return leaves

    @property
    def _engine(self) -> CircuitEngine:
        """Engine of the leaves."""
        return CircuitEngine(self._leaves(), self._circuit_batch)

    @property
    def _decoding_engine(self) -> CircuitEngine:
        return self._engine

    @property
    def _likelihood_structure(self: Self) -> Self:
        return self

    @property
    def _leaves_are_computed(self) -> bool:
        return type(self).leaves is not CircuitStructure.leaves

    @property
    def _gold_parts_index_potentials(self) -> bool:
        kind = type(self)
        plain = kind.leaves is CircuitStructure.leaves
        return plain and kind.augment is CircuitStructure.augment

    def _gold_parts(self, y: Tensor) -> Tensor:
        self._require_single_output(y, used := self._checked_outputs(y)[1])
        return used

    def may_be_infeasible(self, name: str) -> bool:
        """Whether -inf among the potentials ``name`` may leave a row without an output.

        True by default: rows are then checked for feasible outputs. Override it with
        False for potentials that cannot, to skip the check.
        """
        return True

    def outputs_of(self, labels: Tensor) -> Tensor:
        """Return the outputs that have such labels, the inverse of ``labels_of``.

        Parameters
        ----------
        labels
            ``(batch, k, N)`` int64, -1 where no leaf sets a label.

        Returns
        -------
        Tensor
            ``(batch, k, *shape)`` int64. By default the labels, reshaped.
        """
        return labels.reshape(*labels.shape[:2], *self.shape)

    def labels_of(self, y: Tensor) -> Tensor:
        """Return the labels of outputs.

        Parameters
        ----------
        y
            ``(batch, k, *shape)`` int64, anything where a row has no label.

        Returns
        -------
        Tensor
            ``(batch, k, N)`` int64. By default the outputs, reshaped. For invalid
            outputs return labels that no leaf sets.
        """
        return y.flatten(2)

    def leaves_used(self, labels: Tensor) -> Tensor:
        """Return the leaves whose sum is the score of outputs with such labels.

        Override it where an output uses more than one leaf for each label.

        Parameters
        ----------
        labels
            ``(batch, k, N)`` int64, -1 where there is no label.

        Returns
        -------
        Tensor
            ``(batch, k, U)`` int64: leaves from 0, the shared ones after those of a
            row, and -1 for none. A leaf used twice is listed twice. By default the
            leaves that ``Circuit.label`` connects with these labels.
        """
        table = self._circuit_batch.topology.leaf_of_label.to(labels.device)
        N, V = table.shape
        at = torch.arange(N, device=labels.device)
        leaf = table[at, labels.clamp(0, V - 1)]
        return torch.where((labels >= 0) & (labels < V), leaf, -1)

    @property
    def _memory_values_per_output(self) -> int:
        """Number of values of an output of each row, with its labels and leaves."""
        topology = self._circuit_batch.topology
        each = 1 + topology.labels + topology.max_leaves + math.prod(self.shape)
        return len(self._first_potentials) * each

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """``(batch,)``: the number of labels of an output."""
        if isinstance(self._lengths, int):
            size = (len(self._first_potentials),)
            device = self._first_potentials.device
            self.__dict__["_lengths"] = torch.full(size, self._lengths, device=device)
        lengths: Tensor = self.__dict__["_lengths"]
        return lengths.clone()

    @property
    def output_shapes(self) -> Int[Tensor, "batch axis"]:
        """``(batch, axis)``: the shape of each output without its padding."""
        shapes = self.lengths.new_tensor(self.shape).repeat(
            len(self._first_potentials), 1
        )
        shapes[:, : self.ragged_axes] = self.lengths[:, None]
        return shapes

    def score(self, y: Tensor) -> Float[Tensor, " batch *k"]:
        """Score of the outputs y, ``(batch, *shape)`` or ``(batch, k, *shape)``.

        Raises
        ------
        ValueError
            If y is not an output of the structure. Entries without a label may hold any
            value.
        """
        return self._to_dtype(self._score_hi_lo(y).value)

    def _score_hi_lo(self, y: Tensor) -> DoubleDouble:
        used = self._checked_outputs(y)[1]
        scores = rules.score(self._engine, used, self._first_potentials.dtype)
        return scores if y.dim() > 1 + len(self.shape) else scores.squeeze(1)

    def _checked_outputs(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Labels ``(batch, k, N)`` and leaves of outputs y; raise if any is invalid.

        The last results are cached with a copy of y, since hinges need them twice.
        """
        plain = is_eager_tensor(y)
        cached = self._checked_outputs_cache if plain else None
        if cached is not None and y.dtype == cached[0].dtype and y.equal(cached[0]):
            return cached[1], cached[2]
        resolved = self._resolve_outputs(y)
        self._require_valid_outputs(y, resolved)
        labels, used = resolved.labels, resolved.used
        # autograd cannot save tensors of inference mode, so they are not cached
        if plain and not used.is_inference():
            self.__dict__["_checked_outputs_cache"] = y.clone(), labels, used
        return labels, used

    def _require_valid_outputs(self, y: Tensor, resolved: cpu.ResolvedOutputs) -> None:
        if resolved.missing >= 0:
            b, k = divmod(resolved.missing, resolved.labels.shape[1])
            row = (y[b, k] if y.dim() > 1 + len(self.shape) else y[b]).tolist()
            words = self.output_description
            raise ValueError(f"y: expected {words}, got {row} at row {b}")

    def _resolve_outputs(
        self, y: Tensor, base: Tensor | None = None, scale: float = 1.0
    ) -> cpu.ResolvedOutputs:
        """Labels and leaves of outputs.

        ``base`` and ``scale`` are ``main`` and ``scale`` of ``resolve_outputs``.
        """
        y = checks.as_int64("y", y, self._first_potentials.device)
        B = len(self._first_potentials)
        outputs = y[:, None] if y.dim() == 1 + len(self.shape) else y
        expected = (B, *outputs.shape[1:2], *self.shape)
        if outputs.dim() != len(expected) or outputs.shape != expected:
            description = ", ".join(str(size) for size in self.shape)
            raise ValueError(
                f"y: expected ({B}, {description}) or ({B}, k, {description}), "
                f"got {tuple(y.shape)}"
            )
        labels, batch = self.labels_of(outputs), self._circuit_batch
        leaves_are_labels = type(self).leaves_used is CircuitStructure.leaves_used
        expected = *outputs.shape[:2], batch.topology.labels
        if labels.shape != expected:
            raise ValueError(
                f"labels_of: expected (batch, k, N) = {expected}, as many labels as the"
                f" circuit of {type(self).__name__} has, got {tuple(labels.shape)}"
            )
        if is_eager_tensor(labels):
            args = (
                labels.long(),
                leaf_and_label_masks(batch),
                batch,
                leaves_are_labels,
                base,
                scale,
            )
            resolved = cpu.resolve_outputs(*args)
            if leaves_are_labels:
                return resolved
            used = self.leaves_used(resolved.labels)
        else:
            real = usable_labels(batch).to(labels.device)
            labels = torch.where(real[:, None], labels, -1)
            used = self.leaves_used(labels)
            resolved = cpu.ResolvedOutputs(labels, used, -1)
        return resolved._replace(used=used, missing=first_invalid_output(batch, used))

    def _labels_per_row(self, y: Tensor) -> Tensor:
        """Labels ``(batch, N)`` of one output of each row, padded with -1."""
        self._require_single_output(y, labels := self._checked_outputs(y)[0])
        return labels[:, 0]

    def _require_single_output(self, y: Tensor, proved: Tensor) -> None:
        if y.dim() != 1 + len(self.shape):
            expected = len(proved), *self.shape
            raise ValueError(
                f"y: expected one output per row, {expected}, got {tuple(y.shape)}"
            )

    def hamming(self, y: Tensor) -> Tensor:
        """Cost 1 for every part whose label differs from y's.

        It has the shape of the first potentials. The cost of an output is its number of
        wrong labels. y holds one output per row.
        """
        main = self._first_potentials
        if is_eager_tensor(y) and is_dense_cpu(main):
            zeros = main.new_zeros(main.shape)
            return self._add_hamming(y, zeros, 1.0)[0]
        labels = self._labels_per_row(y)
        if not labels.shape[1]:
            return torch.zeros_like(main)
        size = main.shape[1:].numel()
        at, value = self._circuit_batch.topology.labels_of
        at, value = at[1 : 1 + size].to(y.device), value[1 : 1 + size].to(y.device)
        cost = (labels[:, at.clamp(min=0)] != value) & (at >= 0)
        cost = cost & usable_leaves(self._circuit_batch)[:, :size].to(y.device)
        return cost.to(main.dtype).reshape(main.shape)

    def _add_hamming(
        self, y: Tensor, main: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        """``main`` plus ``scale`` times the Hamming cost of y, and the leaves of y."""
        if isinstance(y, Tensor):
            self._require_single_output(y, main)
        resolved = self._resolve_outputs(y, main.detach(), scale)
        self._require_valid_outputs(y, resolved)
        return cast(Tensor, resolved.augmented), resolved.used

    def _augment_and_gold_parts(
        self: Self, y: Tensor, scale: float
    ) -> tuple[Self, Tensor] | None:
        if not (self._inherits_costs(CircuitStructure) and is_eager_tensor(y)):
            return None
        main, used = self._add_hamming(y, self._first_potentials, scale)
        return self._with_augmented_potentials(main), used

    @property
    def _label_counts_width(self) -> int:
        if is_compiling():
            return self._topology.values
        return self._circuit_batch.topology.leaf_of_label.shape[1]

    @property
    def _is_feasible(self) -> bool:
        return self._circuit_batch.is_feasible

    def _can_be_infeasible(self, name: str) -> bool:
        return self.may_be_infeasible(name)

    def _first_infeasible_row(self) -> int:
        leaves = self._leaves()
        if not is_dense_cpu(leaves.per_row[0]):
            leaves = leaves.map(lambda x: x.detach().cpu())
        return cpu.first_infeasible_row(leaves, self._circuit_batch)

    def _usable_parts(self, name: str) -> Tensor:
        x = self._potentials()[name]
        is_usable = usable_leaves(self._circuit_batch).to(x.device)
        if name in self._row_potentials:
            leaf_masks = cpu.split_leaves(
                is_usable.expand(len(x), -1).double(), self._leaves()
            )
            return self._leaves_to_potentials(leaf_masks, name) > 0
        position = list(self._shared_potentials).index(name)
        first = self._circuit_batch.edges.num_row_leaves
        first += sum(
            other.numel() for other in [*self._shared_potentials.values()][:position]
        )
        return is_usable[:, first : first + x.numel()].any(0).reshape(x.shape)

    def decode(self) -> tuple[Float[Tensor, " batch"], Int[Tensor, "batch ..."]]:
        """Highest score, and an output that attains it: the max oracle.

        Returns
        -------
        value
            ``(batch,)``; its gradient is that of the output's score.
        y
            ``(batch, *shape)`` int64, -1 where nothing is labelled.
        """
        values, y = self._best(recheck_in_float64=False)
        return self._to_dtype(values.value), y

    def _decode_hi_lo(self) -> tuple[DoubleDouble, Tensor]:
        return self._best(recheck_in_float64=True)

    def _best(self, recheck_in_float64: bool) -> tuple[DoubleDouble, Tensor]:
        """Maxima and maximisers; ``recheck_in_float64`` as in ``Engine.best``."""
        values, labels = rules.best(
            self._engine, None, self._first_potentials.dtype, recheck_in_float64
        )
        return values, self.outputs_of(labels.unsqueeze(1)).squeeze(1)

    def decode_topk(
        self, k: int
    ) -> tuple[
        Float[Tensor, "batch k"], Int[Tensor, "batch k ..."], Bool[Tensor, "batch k"]
    ]:
        """The k highest scores and their outputs, sorted and distinct.

        Returns
        -------
        values
            ``(batch, k)``, best first; -inf where fewer than k outputs exist.
        ys
            ``(batch, k, *shape)`` int64, -1 where nothing is labelled.
        valid
            ``(batch, k)`` bool: True where the output exists, with a score above -inf.

        Notes
        -----
        In float64. Source: as Huang and Chiang, "Better k-best Parsing" (2005).
        """
        k = checks.as_output_count("k", k, self._memory_values_per_output)
        values, ys, valid = self._decode_topk_hi_lo(k)
        return self._to_dtype(values.value), ys, valid

    def _decode_topk_hi_lo(self, k: int) -> tuple[DoubleDouble, Tensor, Tensor]:
        values, labels, valid = rules.k_best(
            self._engine, k, self._first_potentials.dtype
        )
        ys = self.outputs_of(labels)
        if is_eager_tensor(valid) and bool(valid.all()):
            return values, ys, valid
        is_valid = valid.reshape(*valid.shape, *[1] * len(self.shape))
        return values, torch.where(is_valid, ys, -1), valid

    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        *,
        replace: bool = True,
    ) -> Int[Tensor, "batch n ..."]:
        """Independent samples, ``(batch, n, *shape)`` int64, -1 where no label is.

        With ``replace=False`` the outputs of a row are distinct: each is drawn from the
        outputs that were not drawn before it, by their probabilities. If a row has
        fewer than n outputs, the remaining samples are -1 throughout.
        """
        n = checks.as_output_count("n", n, self._memory_values_per_output, sampled=True)
        generator = checks.as_generator(generator)
        if not checks.as_flag("replace", replace):
            return self._sample_distinct(
                checks.as_output_count("n", n, self._memory_values_per_output),
                generator,
            )
        size, device = (len(self._first_potentials), n), self._first_potentials.device
        seeds = torch.randint(2**63 - 1, size, generator=generator, device=device)
        return self.outputs_of(rules.sample(self._engine, seeds))

    def _sample_distinct(
        self, n: int, generator: torch.Generator | None
    ) -> Int[Tensor, "batch n ..."]:
        device = self._first_potentials.device
        size = (len(self._first_potentials),)
        seeds = torch.randint(2**63 - 1, size, generator=generator, device=device)
        _require_eager("sample(replace=False)")
        labels, valid = self._engine.distinct_samples(n, seeds)
        is_valid = valid.reshape(*valid.shape, *[1] * len(self.shape))
        return torch.where(is_valid, self.outputs_of(labels), -1)

    def max_marginals(self, name: str | None = None) -> Tensor:
        """Highest score of an output that uses each part.

        Parameters
        ----------
        name
            Name of potentials; the first by default.

        Returns
        -------
        Tensor
            Of the shape of the potentials, or ``(batch, ...)`` where all rows share
            them; -inf where no output uses a part. Not differentiable.
        """
        name = self._resolve_name(name)
        _require_eager("max_marginals")
        leaf_values = self._engine.max_marginals()
        return self._leaves_to_potentials(leaf_values, name, use_max=True).to(
            self._first_potentials.dtype
        )

    def log_partition(self) -> Float[Tensor, " batch"]:
        """Logarithm of the sum of exp(score) over all outputs: the exp oracle.

        Its gradient is the marginals. Differentiable twice.
        """
        return self._to_dtype(self._log_partition_hi_lo().value)

    def _log_partition_hi_lo(self) -> DoubleDouble:
        return rules.log_partition(self._engine, self._first_potentials.dtype)

    def marginals(self, name: str | None = None) -> Tensor:
        """Probability of each part, or its expected number of uses. Differentiable.

        Parameters
        ----------
        name
            Name of potentials; the first by default.

        Returns
        -------
        Tensor
            Of the shape of the potentials, or ``(batch, ...)`` where all rows share
            them.
        """
        name = self._resolve_name(name)
        leaf_values = list(rules.marginals(self._engine))
        return self._leaves_to_potentials(leaf_values, name).to(
            self._first_potentials.dtype
        )

    def _has_same_outputs(self: Self, other: Self) -> bool:
        batch, other_batch = self._circuit_batch, other._circuit_batch
        is_same = batch.topology is other_batch.topology and batch.roots.equal(
            other_batch.roots
        )
        return is_same and super()._has_same_outputs(other)

    def _leaves_to_potentials(
        self, numbers: list[Tensor], name: str, use_max: bool = False
    ) -> Tensor:
        """Gather values of leaves ``(batch, ...)`` into the shape of potentials.

        An entry gets the sum over its leaves, or the maximum if ``use_max``.
        """
        if type(self).leaves is CircuitStructure.leaves:
            return numbers[
                [*self._row_potentials, *self._shared_potentials].index(name)
            ]
        values = torch.cat([x.flatten(1) for x in numbers], 1)
        # A leaf is one entry of a potential, or -inf. Computing the leaves of numbered
        # entries gives the entry of each leaf, for any override of ``leaves``.
        row_potentials = {
            n: torch.zeros_like(x).double() for n, x in self._row_potentials.items()
        }
        shared_potentials = {
            n: torch.zeros_like(x).double() for n, x in self._shared_potentials.items()
        }
        size = (
            self._row_potentials[name].shape[1:]
            if name in row_potentials
            else self._shared_potentials[name].shape
        )
        num_entries = size.numel()
        ids = (
            torch.arange(1, num_entries + 1, device=values.device)
            .double()
            .reshape(size)
        )
        if name in row_potentials:
            row_potentials[name] = ids.expand_as(row_potentials[name])
        else:
            shared_potentials[name] = ids
        entry = (
            self._with_potentials(row_potentials, shared_potentials)
            ._leaves()
            .concatenate()
            .clamp(min=0)
            .long()
        )
        sums = values.new_full(
            (len(values), num_entries + 1), -torch.inf if use_max else 0
        )
        sums = sums.scatter_reduce(1, entry, values, "amax" if use_max else "sum")
        return sums[:, 1:].reshape(len(values), *size)

    def entropy(self) -> Float[Tensor, " batch"]:
        """Entropy of the outputs, in nats. Differentiable once."""
        return rules.entropy(self._engine).to(self._first_potentials.dtype)

    def log_count(self) -> Float[Tensor, " batch"]:
        """Logarithm of the number of outputs that are not forbidden."""
        allowed = self._leaves().map(
            lambda x: torch.where(x.detach() > -torch.inf, 0.0, -torch.inf).to(x.dtype)
        )
        dtype, engine = (
            self._first_potentials.dtype,
            CircuitEngine(allowed, self._circuit_batch),
        )
        return rules.log_partition(engine, dtype).value.to(dtype)


def _require_eager(name: str) -> None:
    if not is_eager():
        raise TypeError(f"{name}: expected a call outside of torch.func and compile")


def _as_valid_potentials(
    potentials: Mapping[str, Tensor], shared: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Convert potentials to dense tensors of one dtype, device and batch size."""
    row_potentials = {
        name: checks.as_potentials(name, x) for name, x in potentials.items()
    }
    shared_potentials = {
        name: checks.as_potentials(name, x) for name, x in shared.items()
    }
    first, main = next(iter(row_potentials.items()))
    for name, x in (*row_potentials.items(), *shared_potentials.items()):
        if x is not main:
            checks.require_same_dtype(name, x, first, main)
    for name, x in row_potentials.items():
        if not x.dim() or (x is not main and x.shape[:1] != main.shape[:1]):
            raise ValueError(
                f"{name}: expected (batch, ...), as many rows as {first} "
                f"{tuple(main.shape)}, got {tuple(x.shape)}"
            )
    return row_potentials, shared_potentials
