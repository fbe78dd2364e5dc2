"""Base class of structures whose maximum is found by a combinatorial search."""

import math
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from smoothsp.oracles._inference import checks, double_double, rules
from smoothsp.oracles._inference.double_double import DoubleDouble
from smoothsp.oracles._inference.op import any_requires_grad
from smoothsp.oracles._inference.read_only import set_attribute
from smoothsp.oracles._inference.row_losses import add_hamming
from smoothsp.oracles._inference.structure import Structure
from smoothsp.oracles._inference.to_numpy import to_numpy
from smoothsp.oracles._inference.tracing import (
    is_eager,
    is_eager_tensor,
)
from smoothsp.oracles._searches.engine import SearchEngine, SearchOp

Self = TypeVar("Self", bound="SearchStructure")


class SearchStructure(Structure):
    """A batch of potentials, and exact maximisation by a search over outputs.

    A subclass calls this constructor last. It defines which entries of its potentials
    an output uses, the best output and the k best outputs. The score of an output is
    the sum of these entries in float64; autograd derives the gradient from the gather.

    Parameters
    ----------
    potentials
        Tensors ``(batch, ...)`` by name; each becomes an attribute. Costs are added to
        the first one.
    shape
        Shape of an output of one row.

    Attributes
    ----------
    shape
        Shape of an output of one row. Decoded outputs are -1 where nothing is labelled.
    """

    shape: tuple[int, ...]

    def __init__(self, potentials: dict[str, Tensor], shape: tuple[int, ...]) -> None:
        set_attribute(self, "shape", shape)
        self._set_potentials(potentials)
        # in-place changes of the potentials after validation raise an error later
        self._record_versions(potentials)
        self._require_valid(next(iter(potentials)))

    # To be implemented by subclasses --------------------------------------------

    def _used_entry_indices(self, y: Tensor) -> Tensor:
        """Indices ``(batch, k, U)`` of the entries that outputs y use, -1 for none.

        Indices count through all potentials of a row, flattened and concatenated. They
        are arbitrary where y ``(batch, k, *shape)`` is not an output.
        """
        raise NotImplementedError

    def _is_output(self, y: Tensor) -> Tensor:
        """Return True where y ``(batch, k, *shape)`` is an output, ``(batch, k)``."""
        raise NotImplementedError

    def _labels_of_outputs(self, y: Tensor) -> Tensor:
        """Labels ``(batch, k, N)`` of outputs ``(batch, k, *shape)``, -1 for none."""
        return y.flatten(2)

    def _search_best_outputs(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Best output of each row, ``(batch, *shape)``, and True where one exists."""
        raise NotImplementedError

    def _search_k_best_outputs(
        self, k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The k best outputs ``(batch, k, *shape)``, and which of them exist."""
        raise NotImplementedError

    def _has_output(self) -> NDArray[np.bool_]:
        """Return True for rows with an output, ``(batch,)``.

        Subclasses override this where feasibility is cheaper than the search.
        """
        return self._search_best_outputs()[1]

    def _kernel_scores(self, y: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """Scores ``(batch, k)`` of outputs by a kernel; None without a kernel."""
        return None

    def _search_best_outputs_and_scores(
        self,
    ) -> tuple[NDArray[np.int64], NDArray[Any] | None]:
        """Best outputs, and their scores ``(batch,)`` if a kernel computes them.

        Scores are in float64, or already rounded to the dtype of the potentials.
        """
        best, _ = self._search_best_outputs()
        score = self._kernel_scores(best[:, None])
        return best, None if score is None else score[:, 0]

    # Provided methods -----------------------------------------------------------

    @property
    def _decoding_engine(self) -> SearchEngine | None:
        # a subclass with another score than a sum of entries cannot be indexed
        kind = type(self)
        if kind._with_hi_lo is not SearchStructure._with_hi_lo:
            return None
        return SearchEngine(self)

    @property
    def _gold_parts_index_potentials(self) -> bool:
        return self._decoding_engine is not None and self._inherits_costs(
            SearchStructure
        )

    def _gold_parts(self, y: Tensor) -> Tensor:
        # validation and used entries in one kernel call where a subclass has one
        y_with_k, has_k = self._with_k_axis(y)
        used, first_invalid = self._used_entries_and_first_invalid(y_with_k)
        if has_k or first_invalid >= 0:
            self._single_output_per_row(y)
        return self._used_entry_indices(y_with_k) if used is None else used

    def _augment_and_gold_parts(
        self: Self, y: Tensor, scale: float
    ) -> tuple[Self, Tensor] | None:
        if not self._inherits_costs(SearchStructure):
            return None
        return self._add_hamming_cost(self._gold_parts(y), scale)

    def _add_hamming_cost(
        self: Self, used: Tensor, scale: float
    ) -> tuple[Self, Tensor]:
        """Return the structure with ``scale`` added outside ``used``, and ``used``.

        Only the first potentials, which hold the labels, carry the Hamming cost.
        """
        potentials, usable = (
            self._first_potentials,
            self._usable_parts(self._first_name),
        )
        return self._with_augmented_potentials(
            add_hamming(potentials, usable, used, scale)
        ), used

    def _call_search_op(self, k: int | None) -> tuple[Tensor, Tensor]:
        """Best outputs ``(batch, *shape)``, or the k best, and which of them exist."""
        outputs: tuple[Tensor, Tensor] = SearchOp(SearchEngine(self), k).call()
        return outputs

    def _run_search(self, k: int | None) -> tuple[Tensor, Tensor]:
        # kernels search on the CPU; outputs return to the device of the potentials
        arrays = (
            self._search_best_outputs() if k is None else self._search_k_best_outputs(k)
        )
        y, valid = (
            torch.from_numpy(x).to(self._first_potentials.device) for x in arrays
        )
        return y, valid

    def _from_row_tensors(self: Self, tensors: tuple[Tensor, ...]) -> Self:
        """Return the structure with these potentials and row attributes.

        The number of rows may be a multiple of the batch: repetitions of it, stacked.
        """
        potentials = dict(zip(self._row_potentials, tensors, strict=False))
        other = self._with_potentials(potentials)
        for name, x in zip(
            self.row_attributes, tensors[len(potentials) :], strict=True
        ):
            vars(other)[name] = x
        return other

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """``(batch,)``: the number of labels of an output."""
        size = (len(self._first_potentials),)
        count = int(np.prod(self.shape))
        return torch.full(size, count, device=self._first_potentials.device)

    @property
    def output_shapes(self) -> Int[Tensor, "batch axis"]:
        """``(batch, axis)``: the shape of each output without its padding."""
        shape = torch.tensor(self.shape, device=self._first_potentials.device)
        return shape.repeat(len(self._first_potentials), 1)

    def _first_potentials_on_cpu(self) -> Tensor:
        """The first potentials, contiguous on the CPU."""
        return self._first_potentials.cpu().resolve_neg().contiguous()

    def _potentials_as_numpy(self, name: str) -> NDArray[np.float64]:
        """Potentials ``name`` in float64 on the CPU, -inf in entries never read."""
        x, usable = (
            self._row_potentials[name].detach().cpu().double(),
            self._usable_parts(name),
        )
        if usable is not None:
            x = x.masked_fill(~usable.cpu(), -torch.inf)
        values: NDArray[np.float64] = to_numpy(x)
        return values

    def _first_infeasible_row(self) -> int:
        has_output = self._has_output()
        return -1 if has_output.all() else int(has_output.argmin())

    def _with_k_axis(self, y: Tensor) -> tuple[Tensor, bool]:
        """Outputs as int64 ``(batch, k, *shape)``, and whether y has the axis k."""
        y = checks.as_int64("y", y, self._first_potentials.device)
        B = len(self._first_potentials)
        lacks_k = y.dim() == 1 + len(self.shape)
        y_with_k = y[:, None] if lacks_k else y
        expected = (B, *y_with_k.shape[1:2], *self.shape)
        if y_with_k.dim() != len(expected) or y_with_k.shape != expected:
            sizes = ", ".join(str(size) for size in self.shape)
            raise ValueError(
                f"y: expected ({B}, {sizes}) or ({B}, k, {sizes}), got {tuple(y.shape)}"
            )
        return y_with_k, not lacks_k

    def _checked_outputs(self, y: Tensor) -> tuple[Tensor, bool]:
        """Return y as by ``_with_k_axis``; raise ValueError unless all are outputs."""
        y_with_k, has_k = self._with_k_axis(y)
        _, first_invalid = self._used_entries_and_first_invalid(y_with_k)
        if first_invalid >= 0:
            b, k = divmod(first_invalid, y_with_k.shape[1])
            raise ValueError(
                f"y: expected {self.output_description}, got {y_with_k[b, k].tolist()} "
                f"at row {b}"
            )
        return y_with_k, has_k

    def _used_entries_and_first_invalid(self, y: Tensor) -> tuple[Tensor | None, int]:
        """Used entries of y or None, and the flat index of the first invalid output.

        The index is ``b k + i`` for output i of row b, -1 if all are outputs. Kernels
        that check outputs may also return their used entries ``(batch, k, U)``.
        """
        is_output = self._is_output(y)
        if not checks.has_concrete_values() or bool(is_output.all()):
            return None, -1
        b, k = (~is_output).nonzero()[0].tolist()
        return None, b * y.shape[1] + k

    def _single_output_per_row(self, y: Tensor) -> Tensor:
        """Outputs ``(batch, 1, *shape)``; raise ValueError if y has an axis k."""
        y_with_k, has_k = self._checked_outputs(y)
        if has_k:
            raise ValueError(
                f"y: expected one output per row, (batch, ...), got {tuple(y.shape)}"
            )
        return y_with_k

    def _score_float64(self, y: Tensor) -> Tensor:
        """Scores ``(batch, k)`` in float64 of valid outputs."""
        # under torch.func and torch.compile only the gather is traceable
        if not is_eager_tensor(y) or not self._is_eager_tensor():
            return self._sum_entries(self._used_entry_indices(y))
        if type(self)._kernel_scores is SearchStructure._kernel_scores:
            return self._sum_entries(self._used_entry_indices(y))
        return rules.score(SearchEngine(self), y, torch.float64).value

    def _sum_entries(self, used: Tensor) -> Tensor:
        """Sum of the entries ``used (batch, k, U)``, ``(batch, k)`` in float64."""
        return self._gather_entries(used).sum(2)

    def _gather_entries(self, used: Tensor) -> Tensor:
        """Entries ``(batch, k, U)`` of the potentials in float64, 0 for index -1."""
        joined = _concatenate_potentials(tuple(self._row_potentials.values()))
        if not joined.shape[1]:
            # gather has no valid index in an empty row, not even for padding
            used = used[..., :0]
        flat = joined.gather(1, used.clamp(min=0).flatten(1)).double()
        return flat.reshape(used.shape).masked_fill(used < 0, 0)

    def _with_hi_lo(self, scores: Tensor, y: Tensor) -> DoubleDouble:
        """Scores ``(batch, k)`` of outputs y, in the dtype and as hi + lo in float64.

        By default hi + lo is the compensated sum of the used entries.
        """
        rounded = scores.to(self._first_potentials.dtype)
        if not is_eager():
            return DoubleDouble(rounded)
        return DoubleDouble(
            rounded,
            double_double.sum_hi_lo(
                self._gather_entries(self._used_entry_indices(y)).detach()
            ),
        )

    def _add_log_partition_hi_lo(
        self, value: Tensor, shifts: Tensor, shifted_log_partition: Tensor
    ) -> DoubleDouble:
        """Return the log-partition ``value`` with its hi + lo.

        ``log Z = sum(shifts) + shifted_log_partition``, where potentials less the
        shifts have maximum 0.
        """
        if not is_eager():
            return DoubleDouble(value)
        # log Z less the shifts is small beside their sum: it joins the low word
        hi_lo = double_double.sum_hi_lo(shifts.masked_fill(shifts == -torch.inf, 0))
        hi_lo[:, 1] += shifted_log_partition
        return DoubleDouble(value, hi_lo)

    def score(self, y: Tensor) -> Float[Tensor, " batch *k"]:
        """Score of the outputs y, ``(batch, *shape)`` or ``(batch, k, *shape)``.

        Raises
        ------
        ValueError
            If y is not an output of the structure.
        """
        y_with_k, has_k = self._checked_outputs(y)
        value = self._score_unmasked(y_with_k).to(self._first_potentials.dtype)
        return value if has_k else value.squeeze(1)

    def _score_hi_lo(self, y: Tensor) -> DoubleDouble:
        y_with_k, has_k = self._checked_outputs(y)
        scores = self._with_hi_lo(self._score_unmasked(y_with_k), y_with_k)
        return scores if has_k else scores.squeeze(1)

    def _score_unmasked(self, y: Tensor) -> Tensor:
        """Scores ``(batch, k)`` in float64; entries of y in the padding are ignored."""
        return self._sum_entries(self._used_entry_indices(y))

    def hamming(self, y: Tensor) -> Tensor:
        """Cost 1 for every part whose label differs from y's.

        It has the shape of the first potentials. The cost of an output is its number of
        wrong labels.
        """
        used = self._used_entry_indices(self._single_output_per_row(y))
        name = next(iter(self._row_potentials))
        usable = self._usable_parts(name)
        cost = torch.ones_like(self._first_potentials) if usable is None else usable
        cost = cost.detach().to(self._first_potentials.dtype).flatten(1)
        size = cost.shape[1]
        # entries of later potentials, and -1, go to an extra column that is cut off
        inside = torch.where((used >= 0) & (used < size), used, size)
        padded = torch.nn.functional.pad(cost, (0, 1)).scatter(1, inside[:, 0], 0.0)
        return padded[:, :size].reshape(self._first_potentials.shape)

    def _labels_per_row(self, y: Tensor) -> Tensor:
        return self._labels_of_outputs(self._single_output_per_row(y))[:, 0]

    def decode(self) -> tuple[Float[Tensor, " batch"], Int[Tensor, "batch ..."]]:
        """Highest score, and an output that attains it: the max oracle.

        Returns
        -------
        value
            ``(batch,)``; its gradient is that of the output's score.
        y
            ``(batch, *shape)`` int64, -1 where nothing is labelled.
        """
        value, y = self._decode_unrounded()
        return self._to_dtype(value), y

    def _decode_hi_lo(self) -> tuple[DoubleDouble, Tensor]:
        value, y = self._decode_unrounded()
        return self._with_hi_lo(value[:, None], y[:, None]).squeeze(1), y

    def _decode_unrounded(self) -> tuple[Tensor, Tensor]:
        """Highest score and output; float64 unless a kernel rounded the score."""
        if self._is_eager_tensor() and not self._needs_gradient():
            best, score = self._search_best_outputs_and_scores()
            if score is not None:
                return torch.from_numpy(score), torch.from_numpy(best)
        y, _ = self._call_search_op(None)
        return self._score_float64(y[:, None]).squeeze(1), y

    def _is_eager_tensor(self) -> bool:
        """Return True if kernels may read the memory of all potentials."""
        for x in self._row_potentials.values():  # noqa: SIM110 - a generator takes a microsecond
            if not is_eager_tensor(x):
                return False
        return True

    def _needs_gradient(self) -> bool:
        """Return True if any potential requires a gradient."""
        return any_requires_grad(tuple(self._row_potentials.values()))

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
        """
        k = checks.as_output_count(
            "k", k, len(self._first_potentials) * (1 + math.prod(self.shape))
        )
        values, ys, valid = self._decode_topk_hi_lo(k)
        return values.value, ys, valid

    def _decode_topk_hi_lo(self, k: int) -> tuple[DoubleDouble, Tensor, Tensor]:
        ys, valid = self._call_search_op(k)
        is_valid = valid.reshape(*valid.shape, *[1] * len(self.shape))
        ys = torch.where(is_valid, ys, ys[:, :1])
        values = self._score_float64(ys)
        # the search may add in another order: the running minimum keeps values sorted
        # to the last bit, with the gradient of the unsorted ones
        running_min = values.detach().cummin(1).values
        values = values - (values.detach() - running_min)
        scores = self._with_hi_lo(values, ys).masked_fill(~valid, -torch.inf)
        return scores, torch.where(is_valid, ys, -1), valid


def _concatenate_potentials(potentials: tuple[Tensor, ...]) -> Tensor:
    """Concatenate the flattened potentials of each row, ``(batch, entries)``."""
    rows = [x.flatten(1) for x in potentials]
    return rows[0] if len(rows) == 1 else torch.cat(rows, 1)
