"""Tests of the properties that losses require, for your own structures."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["check_structure"]

# Outputs that are listed by the structure itself, where you give none.
_FEW = 8


def check_structure(
    structure: Any, outputs: Sequence[Sequence[Tensor] | Tensor] | None = None
) -> None:
    """Check the properties of a structure that losses require.

    Only methods that the structure has are checked; ``score`` and ``decode`` are
    required. Call it on small structures with random potentials, preferably in float64,
    with rows of different lengths, ties and forbidden parts.

    Parameters
    ----------
    structure
        Any object with the methods of ``oracles.Structure``, or some of them.
    outputs
        All outputs of each row, ``(n, ...)``, or a list of outputs. If absent, the
        outputs of ``decode_topk``, ``sample`` and loss-augmented decoding are compared.

    Raises
    ------
    AssertionError
        If a property does not hold. The message has the row and both numbers; if a
        decoded output is not the best, it shows a better one.

    Notes
    -----
    - Shapes and dtypes of results.
    - The score of the decoded output is the value, and no other output scores more.
    - The k best are sorted and distinct, and the first is the decoded one.
    - ``log_partition`` is the logarithm of the sum of exp(score); ``marginals`` are its
      gradient; ``log_prob``, ``entropy`` and ``log_count`` agree with it.
    - The cost ``hamming(y)`` is 0 for y and at least 0 for others; gradients of
      the loss-augmented maximum agree with finite differences.
    - Results of a row do not depend on the rest of the batch.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import Multiclass
    >>> from smoothsp.testing import check_structure
    >>> check_structure(Multiclass(torch.randn(2, 3)), [torch.arange(3)] * 2)
    """
    checked = _Checked(structure, outputs)
    checked.shapes()
    checked.best()
    if checked.has("decode_topk"):
        checked.k_best()
    if checked.has("sample"):
        checked.samples()
    if checked.has("log_partition"):
        checked.sums()
    if checked.has("hamming", "augment"):
        checked.costs()
        checked.gradients()
    if checked.has("scale"):
        checked.scaled()
    if checked.has("select"):
        checked.rows()


class _Checked:
    """A structure, its best outputs, and others of each row."""

    def __init__(self, structure: Any, outputs: Sequence[Any] | None) -> None:
        self.structure = structure
        for name in ("score", "decode"):
            if not self.has(name):
                kind = type(structure).__name__
                raise TypeError(f"structure: expected a method {name}, {kind} has none")
        self.value, self.y = structure.decode()
        self.decoded()
        self.complete = outputs is not None
        if outputs is None:
            self.outputs = self.found()
        elif len(outputs) != len(self.value):
            raise ValueError(
                f"outputs: expected those of {len(self.value)} rows, got {len(outputs)}"
            )
        else:
            self.outputs = [
                [torch.as_tensor(y, device=self.y.device) for y in row]
                for row in outputs
            ]
        wide = self.value.dtype == torch.float64
        self.rounding, self.step = (1e-9, 1e-4) if wide else (1e-4, 1e-2)

    def has(self, *names: str) -> bool:
        return all(callable(getattr(self.structure, name, None)) for name in names)

    def require(self, good: bool, question: str, words: str) -> None:
        if not good:
            kind = type(self.structure).__name__
            raise AssertionError(f"{kind}.{question}: expected {words}")

    def compare(
        self, question: str, found: Tensor, right: Tensor, words: str, slack: float = 1
    ) -> None:
        """Numbers ``(batch,)`` or ``(batch, n)`` are those that a law wants."""
        shapes = _shape(found), _shape(right)
        self.require(
            shapes[0] == shapes[1], question, f"the shape {shapes[1]}, got {shapes[0]}"
        )
        found, right = found.detach().double(), right.detach().double()
        size = 1 + found.abs() + right.abs()
        close = (found - right).abs() <= slack * self.rounding * size
        wrong = (~(close | (found == right))).nonzero()
        if len(wrong):
            at = tuple(wrong[0].tolist())
            self.require(
                False,
                question,
                f"{words} = {right[at]:.9g}, got {found[at]:.9g} at row {at[0]}",
            )

    def found(self) -> list[list[Tensor]]:
        """Some outputs of each row that the structure itself finds."""
        structure, rows = self.structure, [[y] for y in self.y]
        columns = []
        if self.has("decode_topk"):
            _, ys, valid = structure.decode_topk(_FEW)
            kept = valid.reshape(*valid.shape, *[1] * (ys.dim() - 2))
            columns += list(torch.where(kept, ys, self.y[:, None]).unbind(1))
        if self.has("sample"):
            columns += list(structure.sample(_FEW).unbind(1))
        if self.has("hamming", "augment"):
            columns.append(structure.augment(structure.hamming(self.y)).decode()[1])
        for column in columns:
            for row, y in zip(rows, column, strict=True):
                row.append(y)
        return rows

    def score(self, y: Tensor, words: str, structure: Any = None) -> Tensor:
        """Scores ``(batch,)`` of outputs that ought to have one."""
        try:
            found: Tensor = (structure or self.structure).score(y)
        except ValueError as error:
            self.require(False, "score", f"a score of {words}, got the error: {error}")
        return found

    def scores(self, structure: Any = None) -> tuple[Tensor, Tensor]:
        """Scores ``(batch, n)`` of the listed outputs, and which of them are real."""
        structure = self.structure if structure is None else structure
        n = max((len(row) for row in self.outputs), default=0)
        columns = [
            torch.stack([row[min(i, len(row) - 1)] for row in self.outputs])
            for i in range(n)
        ]
        values = torch.stack(
            [self.score(y.to(self.y), "each output given", structure) for y in columns],
            1,
        )
        device = values.device
        lengths = torch.tensor([len(row) for row in self.outputs], device=device)
        real = torch.arange(n, device=device) < lengths[:, None]
        return values.detach(), real

    # The laws -------------------------------------------------------------------

    def decoded(self) -> None:
        """The decoded outputs have shapes, and scores."""
        y, shape = self.y, _shape(self.value)
        self.require(len(shape) == 1, "decode", f"values (batch,), got {shape}")
        B = len(self.value)
        integers = not (
            y.is_floating_point() or y.is_complex() or y.dtype == torch.bool
        )
        self.require(integers, "decode", f"outputs of integers, got {y.dtype}")
        self.require(len(y) == B, "decode", f"outputs ({B}, ...), got {_shape(y)}")
        self.own = self.score(y, "the decoded output").detach()

    def shapes(self) -> None:
        B, y = len(self.value), self.y
        lengths = getattr(self.structure, "lengths", None)
        if lengths is not None:
            right = isinstance(lengths, Tensor) and _shape(lengths) == (B,)
            self.require(right, "lengths", f"a tensor ({B},), got {lengths!r}")
        if self.has("label_counts"):
            counts = self.structure.label_counts(y)
            right = counts.dim() == 2 and len(counts) == B
            self.require(
                right, "label_counts", f"({B}, label) of each row, got {_shape(counts)}"
            )

    def best(self) -> None:
        scores, real = self.scores()
        scores = scores.double().masked_fill(~real, -torch.inf)
        top, place = scores.max(1)
        value = self.own.double()
        ahead = top - value > self.rounding * (1 + top.abs() + value.abs())
        if bool(ahead.any()):
            b = int(ahead.int().argmax())
            better = self.outputs[b][int(place[b])].tolist()
            self.require(
                False,
                "decode",
                f"an output of the highest score, got {self.y[b].tolist()} with "
                f"{value[b]:.9g} at row {b}, where {better} has {top[b]:.9g}",
            )
        self.compare("decode", self.value, self.own, "score(y)")
        if self.complete:
            self.compare("decode", self.value, top, "the highest score of the outputs")
            for b, y in enumerate(self.y):
                self.listed("decode", b, y)

    def listed(self, question: str, b: int, y: Tensor) -> None:
        """An output of row ``b`` is one of those given."""
        self.require(
            any(torch.equal(x.to(y), y) for x in self.outputs[b]),
            question,
            f"one of the outputs given, got {y.tolist()} at row {b}",
        )

    def k_best(self) -> None:
        k = _FEW
        values, ys, valid = self.structure.decode_topk(k)
        B, name = len(self.value), "decode_topk"
        self.require(
            _shape(values) == _shape(valid) == (B, k) == _shape(ys)[:2],
            name,
            f"values, outputs and valid of ({B}, {k}), got {_shape(values)}, "
            f"{_shape(ys)} and {_shape(valid)}",
        )
        self.compare(name, values[:, 0], self.value, "the decoded value first")
        for i in range(k):
            here = valid[:, i]
            kept = here.reshape(-1, *[1] * (self.y.dim() - 1))
            scores = self.structure.score(torch.where(kept, ys[:, i], self.y))
            right = torch.where(here, scores, -torch.inf)
            self.compare(name, values[:, i], right, f"score(ys[:, {i}])")
        falls = bool((values[:, 1:] <= values[:, :-1]).all())
        self.require(falls, name, "values from the highest to the lowest")
        for b in range(B):
            kept = ys[b][valid[b]]
            distinct = (
                len(kept.reshape(len(kept), -1).unique(dim=0)) if kept[0].numel() else 1
            )
            self.require(
                distinct == len(kept),
                name,
                f"distinct outputs, got one twice at row {b}",
            )
        if self.complete:
            for b in range(B):
                for y in ys[b][valid[b]]:
                    self.listed(name, b, y)
            scores, real = self.scores()
            scores = scores.masked_fill(~real, -torch.inf)
            ranked = scores.sort(1, descending=True).values
            ranked = torch.nn.functional.pad(ranked, (0, k), value=-torch.inf)[:, :k]
            self.compare(name, values, ranked, "the highest scores of the outputs")

    def samples(self) -> None:
        ys = self.structure.sample(_FEW)
        right = len(self.value), _FEW, *_shape(self.y)[1:]
        self.require(
            _shape(ys) == right, "sample", f"outputs {right}, got {_shape(ys)}"
        )
        for y in ys.unbind(1):
            possible = self.structure.score(y) > -torch.inf
            self.require(
                bool(possible.all()), "sample", "outputs with a score above -inf"
            )

    def sums(self) -> None:
        structure = self.structure
        total = structure.log_partition()
        scores, real = self.scores()
        listed = scores.double().masked_fill(~real, -torch.inf)
        if self.complete:
            words = "the logarithm of the sum of exp(score) over the outputs"
            self.compare("log_partition", total, listed.logsumexp(1), words)
        else:
            least = self.value.detach()
            slack = self.rounding * (1 + least.abs())
            good = bool((total.detach() >= least - slack).all())
            self.require(good, "log_partition", "at least the highest score")
        if self.has("log_prob"):
            right = structure.score(self.y) - total
            found = structure.log_prob(self.y)
            self.compare("log_prob", found, right, "score(y) - log_partition()")
        if not self.complete:
            return
        if self.has("log_count"):
            count = (listed > -torch.inf).sum(1).double().log()
            words = "the logarithm of the number of outputs"
            self.compare("log_count", structure.log_count(), count, words)
        if self.has("entropy"):
            weights = listed.softmax(1)
            right = torch.special.entr(weights).sum(1)
            self.compare(
                "entropy", structure.entropy(), right, "that of the outputs", slack=10
            )

    def costs(self) -> None:
        structure = self.structure
        augmented = structure.augment(structure.hamming(self.y))
        own = augmented.score(self.y)
        self.compare("hamming", own, structure.score(self.y), "no cost of y itself")
        (before, real), (after, _) = self.scores(), self.scores(augmented)
        paid = (after - before).nan_to_num(0, posinf=0, neginf=0)
        slack = self.rounding * (1 + before.abs().nan_to_num(0, posinf=0, neginf=0))
        good = bool(((paid >= -slack) | ~real).all())
        self.require(good, "hamming", "costs of at least 0 for other outputs")

    def gradients(self) -> None:
        """Directional derivatives with respect to a cost."""
        structure = self.structure
        direction = structure.hamming(self.y).detach()
        questions: dict[str, Any] = {
            "score": lambda x: x.score(self.outputs_last()),
            "decode": lambda x: x.decode()[0],
        }
        if self.has("log_partition"):
            questions["log_partition"] = lambda x: x.log_partition()
        for name, ask in questions.items():
            # away from 1, where costs tie with integer scores
            cost = (1.37 * direction).requires_grad_()
            values = ask(structure.augment(cost))
            if not values.requires_grad:
                self.require(False, name, "a gradient in a cost, got none")
            (slope,) = torch.autograd.grad(values.sum(), cost)
            slopes = (slope * direction).flatten(1).sum(1)
            ends = [
                ask(structure.augment((1.37 + h) * direction)).detach().double()
                for h in (self.step, -self.step)
            ]
            right = (ends[0] - ends[1]) / (2 * self.step)
            finite = right.isfinite()
            right, slopes = right[finite], slopes[finite]
            words = "the slope along hamming(y) that differences have"
            self.compare(name, slopes, right, words, 1e3)
        if self.has("log_partition", "marginals"):
            cost = (0 * direction).requires_grad_()
            total = structure.augment(cost).log_partition().sum()
            (slope,) = torch.autograd.grad(total, cost)
            found = structure.marginals().flatten(1)
            words = "the gradient of log_partition()"
            self.compare("marginals", found, slope.flatten(1), words)

    def outputs_last(self) -> Tensor:
        """An output of each row, of those listed the last."""
        return torch.stack([row[-1] for row in self.outputs]).to(self.y)

    def scaled(self) -> None:
        twice = self.structure.scale(2.0)
        right = 2 * self.structure.score(self.y)
        self.compare("scale", twice.score(self.y), right, "twice the score")
        self.compare("scale", twice.decode()[0], right, "twice the highest score")

    def rows(self) -> None:
        for b in range(len(self.value)):
            rows = torch.tensor([b], device=self.value.device)
            alone = self.structure.select(rows)
            found, right = alone.decode()[0], self.value[b : b + 1]
            self.compare("select", found, right, f"the value of row {b} alone")
            if self.has("log_partition"):
                right = self.structure.log_partition()[b : b + 1]
                words = f"the log-partition of row {b} alone"
                self.compare("select", alone.log_partition(), right, words)


def _shape(x: Tensor) -> tuple[int, ...]:
    return tuple(x.shape)
