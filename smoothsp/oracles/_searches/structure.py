"""Structures that are no dynamic programme: all that does not need their search."""

import copy
import math
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from smoothsp.oracles._questions import checks
from smoothsp.oracles._questions.arrays import array
from smoothsp.oracles._questions.read_only import ReadOnly
from smoothsp.oracles._questions.registration import is_plain, is_transformed
from smoothsp.oracles._questions.transforms import Transformed
from smoothsp.oracles._searches.transformed import Found

Self = TypeVar("Self", bound="SearchStructure")
# Differences and sums of scores below this are far from the end of float64.
ROOM = 2.0**900


class SearchStructure(ReadOnly):
    """A batch of potentials, and exact maximisation by a search over outputs.

    A structure calls ``_start`` at the end of its constructor, says which entries of
    its potentials an output uses, and answers ``_best`` and ``_k_best``. Scores are
    sums of these entries in float64, so gradients need no code.

    Attributes
    ----------
    shape
        Of an output of one row; decoded ones are -1 where nothing is labelled.
    """

    # Attributes with an entry for each row, besides the potentials.
    _by_row: ClassVar[tuple[str, ...]] = ()
    # What an output is, for messages.
    _output_words: ClassVar[str] = "an output of the structure"

    shape: tuple[int, ...]
    _own: dict[str, Tensor]

    def _start(self, own: dict[str, Tensor], shape: tuple[int, ...]) -> None:
        """Keep the potentials, of which a cost is added to the first, and check them.

        Parameters
        ----------
        own
            By name, ``(batch, ...)``: attributes of the structure from now on.
        shape
            Of an output of one row.
        """
        self.shape = shape
        self._hold(own)
        if self._are_finite():
            return
        for name in own:
            self._check(name, name)
        self._require_outputs(next(iter(own)))

    def _hold(self, own: dict[str, Tensor]) -> None:
        self.__dict__.update(own, _own=own)

    def _like(self: Self, own: dict[str, Tensor]) -> Self:
        """Other potentials of the same rows, trusted to be sound."""
        other = copy.copy(self)
        other._hold(own)
        return other

    # What a structure says ------------------------------------------------------

    def _reads(self, name: str) -> Tensor | None:
        """Which entries of such potentials some output may use: bool; all if None."""
        return None

    def _used(self, y: Tensor) -> Tensor:
        """What outputs ``(batch, k, *shape)`` use.

        Entries ``(batch, k, U)`` of the joined potentials of a row, -1 for none; of
        what is no output any.
        """
        raise NotImplementedError

    def _exist(self, y: Tensor) -> Tensor:
        """Whether ``(batch, k, *shape)`` are outputs: bool ``(batch, k)``."""
        raise NotImplementedError

    def _labels(self, y: Tensor) -> Tensor:
        """Labels ``(batch, k, N)`` of outputs ``(batch, k, *shape)``, -1 for none."""
        return y.flatten(2)

    @property
    def _num_labels(self) -> int:
        raise NotImplementedError

    def _best(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Best outputs ``(batch, *shape)``, and whether a row has any."""
        raise NotImplementedError

    def _k_best(self, k: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The k best outputs ``(batch, k, *shape)``, and which of them exist."""
        raise NotImplementedError

    def _are_finite(self) -> bool:
        """Whether all potentials are, if that is told faster than by looking closely.

        Only where an output exists whenever they are.
        """
        return False

    def _totals(self, y: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """Scores ``(batch, k)`` of outputs by a kernel, if the structure has one."""
        return None

    def _best_and_total(self) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
        """Best outputs, and their scores ``(batch,)`` if a kernel adds them up."""
        best, _ = self._best()
        total = self._totals(best[:, None])
        return best, None if total is None else total[:, 0]

    # What follows ---------------------------------------------------------------

    def _ask(self, k: int | None) -> tuple[Tensor, Tensor]:
        """Best outputs ``(batch, *shape)``, or the k best, and which of them exist."""
        if not is_transformed():
            return self._answer(k)
        rest = (getattr(self, name) for name in self._by_row)
        found: tuple[Tensor, Tensor] = Transformed.apply(
            Found(self, k), *self._own.values(), *rest
        )
        return found

    def _answer(self, k: int | None) -> tuple[Tensor, Tensor]:
        found = self._best() if k is None else self._k_best(k)
        y, exist = (torch.from_numpy(x).to(self._main.device) for x in found)
        return y, exist

    def _of_rows(self: Self, tensors: tuple[Tensor, ...]) -> Self:
        """The structure with such potentials, and what else has an entry for each row.

        Of as many rows, or of a multiple: one batch below the other.
        """
        own = dict(zip(self._own, tensors, strict=False))
        other = self._like(own)
        for name, x in zip(self._by_row, tensors[len(own) :], strict=True):
            vars(other)[name] = x
        return other

    @property
    def _main(self) -> Tensor:
        """The potentials that a cost is added to."""
        return next(iter(self._own.values()))

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """``(batch,)``: how many labels an output has."""
        size = (len(self._main),)
        count = int(np.prod(self.shape))
        return torch.full(size, count, device=self._main.device)

    @property
    def output_shapes(self) -> Int[Tensor, "batch axis"]:
        """``(batch, axis)``: the shape of each output without its padding."""
        shape = torch.tensor(self.shape, device=self._main.device)
        return shape.repeat(len(self._main), 1)

    def __repr__(self) -> str:
        words = (f"{name}={tuple(x.shape)}" for name, x in self._own.items())
        kind = type(self).__name__
        return f"{kind}({', '.join(words)}, dtype={self._main.dtype})"

    def _array(self, name: str) -> NDArray[np.float64]:
        """Such potentials in float64 on the CPU, -inf where nothing reads.

        If some are so large that sums might leave float64, all are multiplied by one
        power of 2, which changes no maximiser.
        """
        x, read = self._own[name].detach().cpu().double(), self._reads(name)
        if read is not None:
            x = x.masked_fill(~read.cpu(), -torch.inf)
        found: NDArray[np.float64] = array(x)
        return found if self._factor == 1 else found * self._factor

    @property
    def _factor(self) -> float:
        most = 0.0
        for x in self._own.values():
            if x.dtype == torch.float64 and x.numel():
                size = x.detach().abs().nan_to_num(0, posinf=0)
                most = max(most, float(size.max()))
        return 1.0 if most < ROOM else 2.0**-120

    def _check(self, name: str, blame: str) -> None:
        """No NaN and no +inf where a row reads."""
        x = self._own[name].detach()
        if not checks.values_are_there() or bool((x < torch.inf).all()):
            return
        wrong, read = ~(x < torch.inf), self._reads(name)
        if read is not None:
            wrong = wrong & read
        if bool(wrong.any()):
            place = wrong.nonzero()[0].tolist()
            raise ValueError(
                f"{blame}: expected no NaN and no +inf, got {x[tuple(place)].item()} "
                f"at row {place[0]}, entry {place[1:]}; potentials must be finite, or "
                "-inf to forbid"
            )

    def _require_outputs(self, blame: str) -> None:
        """An output for every row, which only what is forbidden can take away."""
        if not checks.values_are_there() or not self._may_lack_outputs():
            return
        _, found = self._best()
        if not found.all():
            raise ValueError(
                f"{blame}: row {int(found.argmin())} has no feasible output: every one "
                "uses a part that is forbidden (-inf), or none has this size; allow one"
            )

    def _may_lack_outputs(self) -> bool:
        """Whether some part is forbidden that is read."""
        for name, x in self._own.items():
            barred = x.detach() == -torch.inf
            if bool(barred.any()):
                read = self._reads(name)
                if bool((barred if read is None else barred & read).any()):
                    return True
        return False

    def _several(self, y: Tensor) -> tuple[Tensor, bool]:
        """Outputs as int64 ``(batch, k, *shape)``, and whether k was there."""
        y = checks.integers("y", y, self._main.device)
        B = len(self._main)
        one = y.dim() == 1 + len(self.shape)
        many = y[:, None] if one else y
        expected = (B, *many.shape[1:2], *self.shape)
        if many.dim() != len(expected) or many.shape != expected:
            words = ", ".join(str(size) for size in self.shape)
            raise ValueError(
                f"y: expected ({B}, {words}) or ({B}, k, {words}), got {tuple(y.shape)}"
            )
        return many, not one

    def _proved(self, y: Tensor) -> tuple[Tensor, bool]:
        """``_several``, each of which has to be an output."""
        many, several = self._several(y)
        real = self._exist(many)
        if checks.values_are_there() and not bool(real.all()):
            b, k = (~real).nonzero()[0].tolist()
            raise ValueError(
                f"y: expected {self._output_words}, got {many[b, k].tolist()} at row "
                f"{b}"
            )
        return many, several

    def _alone(self, y: Tensor) -> Tensor:
        """``(batch, 1, *shape)``: one output a row."""
        many, several = self._proved(y)
        if several:
            raise ValueError(
                f"y: expected one output a row, (batch, ...), got {tuple(y.shape)}"
            )
        return many

    def _value(self, y: Tensor) -> Tensor:
        """Scores ``(batch, k)`` in float64 of what are outputs."""
        if not is_plain(y) or not self._is_plain():
            return self._sum(self._used(y))
        total = self._totals(array(y))
        if total is None:
            return self._sum(self._used(y))
        value = torch.from_numpy(total)
        if self._wants_gradient():
            value = Scored.apply(self._used(y), value, *self._own.values())
        return value

    def _sum(self, used: Tensor) -> Tensor:
        """Sums ``(batch, k)`` of entries ``(batch, k, U)``, in float64."""
        joined = _joined(tuple(self._own.values()))
        if not joined.shape[1]:
            used = used[..., :0]
        flat = joined.gather(1, used.clamp(min=0).flatten(1)).double()
        return flat.reshape(used.shape).masked_fill(used < 0, 0).sum(2)

    def _held(self, value: Tensor, what: str) -> Tensor:
        """The float64 value in the dtype of the structure, which must have room."""
        found = value.to(self._main.dtype)
        # numpy's test is a third of the time of torch's
        if is_plain(found) and not np.isfinite(found.detach().numpy()).all():
            lost = found.isinf() & (value.isfinite() | (value > 0))
            if bool(lost.any()):
                self._refuse(lost, what)
        return found

    def _refuse(self, lost: Tensor, what: str) -> None:
        """An error that names the largest of the potentials."""
        sizes = {
            name: float(x.detach().abs().nan_to_num(0, posinf=0).amax())
            for name, x in self._own.items()
            if x.numel()
        }
        name = max(sizes, key=lambda name: sizes[name])
        dtype = self._main.dtype
        instead = ", or use float64" if dtype == torch.float32 else ""
        raise ValueError(
            f"{name}: expected scores so small that {dtype} has room for {what}, got "
            f"entries of up to {sizes[name]:.3g}, and a sum beyond "
            f"{torch.finfo(dtype).max:.3g} in row {int(lost.nonzero()[0, 0])}; scale "
            f"the scores down, forbid with -inf{instead}"
        )

    def score(self, y: Tensor) -> Float[Tensor, " batch *k"]:
        """Score of the outputs y, ``(batch, *shape)`` or ``(batch, k, *shape)``.

        Raises
        ------
        ValueError
            If y is not an output of the structure.
        """
        return self._held(self._score(y), "a score")

    def _score(self, y: Tensor) -> Tensor:
        """Score in float64."""
        many, several = self._proved(y)
        value = self._sum(self._used(many))
        return value if several else value.squeeze(1)

    def hamming(self, y: Tensor) -> Tensor:
        """Cost 1 for every part that labels otherwise than y.

        Of the shape of the first potentials; an output's cost is how many of its labels
        are wrong.
        """
        used = self._used(self._alone(y))
        name = next(iter(self._own))
        read = self._reads(name)
        cost = torch.ones_like(self._main) if read is None else read
        cost = cost.detach().to(self._main.dtype).flatten(1)
        size = cost.shape[1]
        inside = torch.where((used >= 0) & (used < size), used, size)
        padded = torch.nn.functional.pad(cost, (0, 1)).scatter(1, inside[:, 0], 0.0)
        return padded[:, :size].reshape(self._main.shape)

    def label_counts(self, y: Tensor) -> Float[Tensor, "batch label"]:
        """How often y uses each label."""
        labels = self._labels(self._alone(y))[:, 0]
        most = self._num_labels
        counts = self._main.new_zeros(len(labels), most + 1)
        ones = counts.new_ones(labels.shape)
        return counts.scatter_add(1, labels.clamp(-1, most - 1) + 1, ones)[:, 1:]

    def augment(self: Self, cost: Tensor) -> Self:
        """The structure with ``cost`` added to its first potentials."""
        name, main = next(iter(self._own.items()))
        cost = checks.potentials("cost", cost).to(main.dtype)
        checks.same_device("cost", cost, main.device)
        checks.shape("cost", cost, tuple(main.shape), f"the shape of {name}")
        total = main + cost
        checks.sums_in_range(name, main, cost, total)
        other = self._like({**self._own, name: total})
        other._check(name, "cost")
        if checks.values_are_there() and bool((cost.detach() == -torch.inf).any()):
            other._require_outputs("cost")
        return other

    def scale(self: Self, factor: float) -> Self:
        """The structure with every potential multiplied by ``factor > 0``."""
        factor = checks.positive("factor", factor)
        scaled = {}
        for name, x in self._own.items():
            # a factor that float32 lacks would make NaN of -inf
            scaled[name] = (x.double() * factor).to(x.dtype)
            if is_plain(x) and bool((scaled[name].isinf() & x.isfinite()).any()):
                raise ValueError(
                    f"factor: expected products that {x.dtype} holds, got {factor:.3g} "
                    f"for {name}; use a smaller factor, or forbid with -inf"
                )
        return self._like(scaled)

    def select(self: Self, rows: Tensor) -> Self:
        """The structure of the given rows: bool ``(batch,)``, or int64 indices."""
        rows = checks.rows(rows, len(self._main), self._main.device)
        other = self._like({name: x[rows] for name, x in self._own.items()})
        for name in self._by_row:
            vars(other)[name] = getattr(self, name)[rows]
        return other

    def restrict(self: Self, allowed: Tensor) -> Self:
        """The structure in which only parts that are True in ``allowed`` may be used.

        ``allowed`` is bool, of the shape of the first potentials.
        """
        name, main = next(iter(self._own.items()))
        words, size = f"the shape of {name}", tuple(main.shape)
        allowed = checks.bool_mask("allowed", allowed, size, words, main.device)
        other = self._like({**self._own, name: main.masked_fill(~allowed, -torch.inf)})
        other._require_outputs("allowed")
        return other

    def decode(self) -> tuple[Float[Tensor, " batch"], Int[Tensor, "batch ..."]]:
        """Highest score, and an output that attains it: the max oracle.

        Returns
        -------
        value
            ``(batch,)``; its gradient is that of the output's score.
        y
            ``(batch, *shape)`` int64, -1 where nothing is labelled.
        """
        if self._is_plain() and not self._wants_gradient():
            best, total = self._best_and_total()
            if total is not None:
                found = torch.from_numpy(total).to(self._main.dtype)
                if np.isfinite(found.numpy()).all():
                    return found, torch.from_numpy(best)
        y, _ = self._ask(None)
        value = self._value(y[:, None]).squeeze(1)
        return self._held(value, "the highest score"), y

    def _is_plain(self) -> bool:
        """Whether the values of all potentials are where kernels may read them."""
        return all(is_plain(x) for x in self._own.values())

    def _wants_gradient(self) -> bool:
        """Whether scores have to be differentiated."""
        given = self._own.values()
        return torch.is_grad_enabled() and any(x.requires_grad for x in given)

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
            ``(batch, k)`` bool: does this output exist, with a score above -inf?
        """
        k = checks.count("k", k, len(self._main) * (1 + math.prod(self.shape)))
        ys, valid = self._ask(k)
        some = valid.reshape(*valid.shape, *[1] * len(self.shape))
        ys = torch.where(some, ys, ys[:, :1])
        values = self._value(ys)
        # the search may add up in another order: sorted to the last bit all the same
        least = values.detach().cummin(1).values
        values = values - (values.detach() - least)
        listed = self._held(values.masked_fill(~valid, 0), "the highest scores")
        listed = listed.masked_fill(~valid, -torch.inf)
        return listed, torch.where(some, ys, -1), valid


class Scored(torch.autograd.Function):
    """Scores ``[B, k]`` that are known, as sums of the entries that outputs use."""

    @staticmethod
    def forward(ctx: Any, used: Tensor, value: Tensor, *potentials: Tensor) -> Tensor:
        ctx.sizes = [(x.shape, x.dtype) for x in potentials]
        ctx.save_for_backward(used)
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (used,) = ctx.saved_tensors
        sizes = [shape[1:].numel() for shape, _ in ctx.sizes]
        # what is used of none goes to one entry more
        places = torch.where(used < 0, sum(sizes), used).flatten(1)
        each = grads[0].unsqueeze(2).expand(used.shape).flatten(1)
        flat = each.new_zeros(len(used), sum(sizes) + 1).scatter_add(1, places, each)
        parts = flat[:, :-1].split(sizes, 1)
        pairs = zip(parts, ctx.sizes, strict=True)
        return None, None, *(x.reshape(size).to(dtype) for x, (size, dtype) in pairs)


def _joined(potentials: tuple[Tensor, ...]) -> Tensor:
    """All potentials of each row, ``(batch, entries)``."""
    rows = [x.flatten(1) for x in potentials]
    return rows[0] if len(rows) == 1 else torch.cat(rows, 1)
