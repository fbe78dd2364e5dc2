"""Base class of structures: named potentials, their validation, and modifications."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from smoothsp.oracles._inference import checks, in_graphs, score_values
from smoothsp.oracles._inference.engine import Engine
from smoothsp.oracles._inference.read_only import ReadOnly
from smoothsp.oracles._inference.rounding import multiply
from smoothsp.oracles._inference.tracing import is_compiling, is_eager

NamedTensors = dict[str, Tensor]
NO_TENSORS: NamedTensors = {}
_NO_SCORES = torch.empty(0, device="cpu")
AnyPotentials = TypeVar("AnyPotentials", bound="Potentials")
Self = TypeVar("Self", bound="Structure")


class Potentials(ReadOnly):
    """Named potentials of rows and potentials shared by all rows, as attributes.

    Attributes
    ----------
    row_attributes
        Names of further attributes with an entry for each row, or None. ``select``
        indexes them by rows.
    output_description
        Description of an output in error messages.
    """

    # Whether torch.compile traces into methods, instead of one op per call.
    _traces_methods: ClassVar[bool] = False
    # For graphs: attributes computed from potentials, and the dtype of outputs.
    _computed_attributes: ClassVar[tuple[str, ...]] = ()
    _output_dtype: int = in_graphs.INT

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__init__" in vars(cls):
            make = in_graphs.record_constructor(vars(cls)["__init__"])
            setattr(cls, "__init__", make)  # noqa: B010
        for name in in_graphs.METHOD_NAMES:
            if name in vars(cls):
                setattr(cls, name, in_graphs.as_graph_op(vars(cls)[name]))

    row_attributes: ClassVar[tuple[str, ...]] = ()
    output_description: ClassVar[str] = "an output of the structure"

    # Potentials of rows ``(batch, ...)``, shared ones, and the first potential of rows.
    _row_potentials: NamedTensors
    _shared_potentials: NamedTensors
    _first_potentials: Tensor
    _first_name: str

    # Defined by subclasses ------------------------------------------------------

    def _usable_parts(self, name: str) -> Tensor | None:
        """Mask of the entries that at least one output uses; None if all are used."""
        return None

    def _can_be_infeasible(self, name: str) -> bool:
        """Whether -inf among these potentials may leave a row without an output."""
        return True

    @property
    def _is_feasible(self) -> bool:
        """Whether every row has an output if no potential is -inf."""
        return True

    def _first_infeasible_row(self) -> int:
        """Index of the first row without an output, or -1."""
        raise NotImplementedError

    def _labels_per_row(self, y: Tensor) -> Tensor:
        """Labels ``(batch, N)`` of one output of each row, padded with -1."""
        raise NotImplementedError

    @property
    def _label_counts_width(self) -> int:
        raise NotImplementedError

    # Shared by all structures ---------------------------------------------------

    def _set_potentials(
        self, row_potentials: NamedTensors, shared_potentials: NamedTensors = NO_TENSORS
    ) -> None:
        """Set the potentials as attributes, without the check of ``ReadOnly``."""
        attributes = self.__dict__
        attributes.update(row_potentials)
        attributes.update(shared_potentials)
        attributes["_row_potentials"], attributes["_shared_potentials"] = (
            row_potentials,
            shared_potentials,
        )
        # a cost is added to the first
        attributes["_first_name"], attributes["_first_potentials"] = next(
            iter(row_potentials.items())
        )

    def _with_potentials(
        self: AnyPotentials,
        row_potentials: NamedTensors,
        shared_potentials: NamedTensors = NO_TENSORS,
    ) -> AnyPotentials:
        """Return a copy with other potentials of the same rows, not validated."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._set_potentials(row_potentials, shared_potentials)
        return other

    def _graph_tensors(self) -> list[Tensor]:
        """Tensors of this structure that are inputs of a ``torch.compile`` graph."""
        computed = [getattr(self, name) for name in self._computed_attributes]
        return [*self._named_potentials().values(), *computed]

    def _with_graph_tensors(
        self: AnyPotentials, graph_tensors: Sequence[Tensor]
    ) -> AnyPotentials:
        """Return a copy with the tensors of ``_graph_tensors`` replaced."""
        row_potentials, shared_potentials = (
            self._row_potentials,
            self._shared_potentials,
        )
        named = dict(
            zip(
                (*row_potentials, *shared_potentials, *self._computed_attributes),
                graph_tensors,
                strict=True,
            )
        )
        other = self._with_potentials(
            {n: named[n] for n in row_potentials},
            {n: named[n] for n in shared_potentials},
        )
        other.__dict__.update({n: named[n] for n in self._computed_attributes})
        return other

    def _select_rows(self: AnyPotentials, rows: Tensor) -> AnyPotentials:
        """Return a structure of these rows: potentials and attributes."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        if is_compiling():
            other.__dict__["_constructor_call"] = self.__dict__[
                "_constructor_call"
            ].select(rows)
        for name in self.row_attributes:
            # while traced, attributes computed from values are absent
            if (value := getattr(self, name, None)) is not None:
                other.__dict__[name] = value[rows]
        other._set_potentials(
            {name: x[rows] for name, x in self._row_potentials.items()},
            self._shared_potentials,
        )
        return other

    def _named_potentials(self) -> NamedTensors:
        """All potentials by name, those of rows ``(batch, ...)`` first."""
        return {**self._row_potentials, **self._shared_potentials}

    def _potentials(self) -> NamedTensors:
        """All potentials by name; raise if one was changed in place."""
        return self._named_potentials()

    def _to_dtype(self, value: Tensor) -> Tensor:
        """Convert a value to the dtype of the potentials."""
        # ``to`` takes 6 us of a decode even where there is nothing to convert
        dtype = self._first_potentials.dtype
        return value if value.dtype == dtype else value.to(dtype)

    def __repr__(self) -> str:
        shapes = (
            f"{name}={tuple(x.shape)}" for name, x in self._named_potentials().items()
        )
        kind = type(self).__name__
        return f"{kind}({', '.join(shapes)}, dtype={self._first_potentials.dtype})"

    def select(self: AnyPotentials, rows: Tensor) -> AnyPotentials:
        """Return a structure of the rows: bool ``(batch,)``, or int64 indices."""
        first_potentials = self._first_potentials
        return self._select_rows(
            checks.as_row_index(rows, len(first_potentials), first_potentials.device)
        )

    @in_graphs.as_graph_op
    def label_counts(self, y: Tensor) -> Float[Tensor, "batch label"]:
        """Number of times y uses each label, ``(batch, label)``."""
        labels, num_labels = self._labels_per_row(y), self._label_counts_width
        # column 0 collects the padding -1
        counts = self._first_potentials.new_zeros(len(labels), num_labels + 1)
        ones = counts.new_ones(labels.shape)
        return counts.scatter_add(1, labels.clamp(-1, num_labels - 1) + 1, ones)[:, 1:]

    def _require_valid(
        self,
        argument: str,
        changed_name: str | None = None,
        added: Tensor | None = None,
    ) -> None:
        """Require valid scores and a feasible output of each row.

        Scores at or below -2^40 become -inf. Nothing is checked while traced.

        Parameters
        ----------
        argument
            The argument to name in errors.
        changed_name
            Name of the changed potentials; None if all may have changed.
        added
            Scores added to them: without -inf among these, no further output is
            forbidden.
        """
        if self._validate_values(argument, changed_name, added):
            self._require_feasible(argument)

    def _validate_values(
        self,
        argument: str,
        changed_name: str | None = None,
        added: Tensor | None = None,
    ) -> bool:
        """Require valid scores; return whether a row may have no feasible output."""
        if not is_eager():
            return False
        may_be_infeasible, replaced = not self._is_feasible, {}
        for name, x in (
            *self._row_potentials.items(),
            *self._shared_potentials.items(),
        ):
            if changed_name is not None and name != changed_name:
                continue
            flags = score_values.value_flags(x)
            if not flags:
                continue
            if flags & score_values.INVALID:
                self._raise_invalid_value(
                    name, x, name if argument in self._row_potentials else argument
                )
                # the remaining invalid entries are unusable by any output
                replaced[name] = torch.where(
                    score_values.is_invalid(x),
                    -torch.inf,
                    score_values.mask_low_scores(x),
                )
            elif flags & score_values.LOW:
                replaced[name] = score_values.mask_low_scores(x)
            if flags & score_values.NEG_INF_OR_LOW and not may_be_infeasible:
                new_flags = flags if added is None else score_values.value_flags(added)
                if new_flags & score_values.NEG_INF_OR_LOW or flags & score_values.LOW:
                    may_be_infeasible = self._can_be_infeasible(name)
        if replaced:
            row_potentials, shared_potentials = (
                self._row_potentials,
                self._shared_potentials,
            )
            self._set_potentials(
                {name: replaced.get(name, x) for name, x in row_potentials.items()},
                {name: replaced.get(name, x) for name, x in shared_potentials.items()},
            )
        return may_be_infeasible

    def _raise_invalid_value(self, name: str, x: Tensor, argument: str) -> None:
        wrong, read = score_values.is_invalid(x), self._usable_parts(name)
        if read is not None:
            wrong = wrong & read
        if bool(wrong.any()):
            index = wrong.nonzero()[0].tolist()
            value = x[tuple(index)].item()
            where = f"entry {index}"
            if name in self._row_potentials:
                where = f"row {index[0]}, entry {index[1:]}"
            raise ValueError(score_values.invalid_value_message(argument, value, where))

    def _require_feasible(self, argument: str) -> None:
        row = self._first_infeasible_row()
        if row >= 0:
            raise ValueError(
                f"{argument}: row {row} has no feasible output: all use a forbidden "
                "part (-inf), or none has this size; allow at least one"
            )


class Structure(Potentials):
    """A structure whose scores are sums of potentials."""

    @property
    def _decoding_engine(self) -> Engine | None:
        """Engine that decodes and scores outputs for losses; None without one."""
        return None

    def _gold_parts(self, y: Tensor) -> Tensor:
        """Indices ``[B, 1, U]`` of the potentials that the outputs y use."""
        raise NotImplementedError

    @property
    def _gold_parts_index_potentials(self) -> bool:
        """Whether ``_gold_parts`` indexes the flattened potentials themselves."""
        return False

    def _augment_and_gold_parts(
        self: Self, y: Tensor, scale: float
    ) -> tuple[Self, Tensor] | None:
        """The structure augmented by ``scale`` times the Hamming cost, and gold parts.

        The second result is that of ``_gold_parts(y)``. Neither has a gradient. None
        if no method is faster than ``augment(scale * hamming(y))``.
        """
        return None

    def _with_first_potentials(self: Self, first_potentials: Tensor) -> Self:
        """Return a copy with other first potentials, not validated."""
        return self._with_potentials(
            {**self._row_potentials, self._first_name: first_potentials},
            self._shared_potentials,
        )

    def _map_potentials(self: Self, change: Callable[[Tensor], Tensor]) -> Self:
        """Apply a function to each of the potentials."""
        row_potentials = {name: change(x) for name, x in self._row_potentials.items()}
        shared_potentials = self._shared_potentials and {
            n: change(x) for n, x in self._shared_potentials.items()
        }
        return self._with_potentials(row_potentials, shared_potentials)

    def _inherits_costs(self, base: Any) -> bool:
        """Whether ``hamming`` and ``augment`` are those of ``base``, not overridden."""
        kind: Any = type(self)
        return kind.hamming is base.hamming and kind.augment is base.augment

    def augment(self: Self, cost: Tensor) -> Self:
        """Return the structure with ``cost`` added to its first potentials.

        Its ``decode`` is loss-augmented decoding.
        """
        first_potentials, name = self._first_potentials, self._first_name
        cost = checks.as_potentials("cost", cost).to(first_potentials.dtype)
        checks.require_device("cost", cost, first_potentials.device)
        checks.require_shape(
            "cost", cost, tuple(first_potentials.shape), f"the shape of {name}"
        )
        other = self._with_first_potentials(first_potentials + cost)
        other._require_valid("cost", name, cost)
        return other

    def _with_augmented_potentials(self: Self, first_potentials: Tensor) -> Self:
        """Return the structure with first potentials to which a cost was added."""
        other = self._with_first_potentials(first_potentials)
        other._require_valid("cost", self._first_name, _NO_SCORES)
        return other

    def scale(self: Self, factor: float) -> Self:
        """Return the structure with every potential multiplied by ``factor > 0``."""
        factor = checks.as_positive("factor", factor)
        other = self._map_potentials(lambda x: multiply(x, factor))
        # a smaller factor cannot lift a score beyond the limits
        if factor > 1:
            other._require_valid("factor", added=_NO_SCORES)
        return other

    def restrict(self: Self, allowed: Tensor) -> Self:
        """Return the structure whose outputs use only parts with ``allowed`` True.

        ``allowed`` is bool, of the shape of the first potentials. Train on partially
        labelled outputs with the ``log_partition`` of this structure.
        """
        first_potentials, name = self._first_potentials, self._first_name
        description, size = f"the shape of {name}", tuple(first_potentials.shape)
        allowed = checks.as_bool_mask(
            "allowed", allowed, size, description, first_potentials.device
        )
        other = self._with_first_potentials(
            first_potentials.masked_fill(~allowed, -torch.inf)
        )
        other._require_valid("allowed", name)
        return other

    def _to_float64(self: Self) -> Self:
        """Return the structure in float64."""
        return self._map_potentials(Tensor.double)
