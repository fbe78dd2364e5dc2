"""Tests of the properties that losses require, for your own structures."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["check_structure"]

# Number of k-best outputs and of samples that are compared for each row.
_NUM_LISTED = 8


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
    checker = _StructureChecker(structure, outputs)
    checker.check_shapes()
    checker.check_best()
    if checker.has("decode_topk"):
        checker.check_k_best()
    if checker.has("sample"):
        checker.check_samples()
    if checker.has("log_partition"):
        checker.check_log_partition()
    if checker.has("hamming", "augment"):
        checker.check_costs()
        checker.check_gradients()
    if checker.has("scale"):
        checker.check_scale()
    if checker.has("select"):
        checker.check_rows()


class _StructureChecker:
    """A structure, its decoded outputs and other outputs of each row.

    One method per property; each raises AssertionError if the property does not hold.
    """

    def __init__(self, structure: Any, outputs: Sequence[Any] | None) -> None:
        self.structure = structure
        for name in ("score", "decode"):
            if not self.has(name):
                kind = type(structure).__name__
                raise TypeError(f"structure: expected a method {name}, {kind} has none")
        self.value, self.y = structure.decode()
        self.check_decoded()
        self.complete = outputs is not None
        if outputs is None:
            self.outputs = self.find_outputs()
        elif len(outputs) != len(self.value):
            raise ValueError(
                f"outputs: expected those of {len(self.value)} rows, got {len(outputs)}"
            )
        else:
            self.outputs = [
                [torch.as_tensor(y, device=self.y.device) for y in row]
                for row in outputs
            ]
        is_float64 = self.value.dtype == torch.float64
        self.rounding, self.step = (1e-9, 1e-4) if is_float64 else (1e-4, 1e-2)

    def has(self, *names: str) -> bool:
        return all(callable(getattr(self.structure, name, None)) for name in names)

    def require(self, condition: bool, method: str, description: str) -> None:
        if not condition:
            kind = type(self.structure).__name__
            raise AssertionError(f"{kind}.{method}: expected {description}")

    def compare(
        self,
        method: str,
        actual: Tensor,
        expected: Tensor,
        description: str,
        slack: float = 1,
    ) -> None:
        """Raise unless ``actual`` equals ``expected`` up to rounding.

        Both are ``(batch,)`` or ``(batch, n)``.
        """
        shapes = _shape(actual), _shape(expected)
        self.require(
            shapes[0] == shapes[1], method, f"the shape {shapes[1]}, got {shapes[0]}"
        )
        actual, expected = actual.detach().double(), expected.detach().double()
        size = 1 + actual.abs() + expected.abs()
        close = (actual - expected).abs() <= slack * self.rounding * size
        # equal infinities have difference NaN
        wrong = (~(close | (actual == expected))).nonzero()
        if len(wrong):
            index = tuple(wrong[0].tolist())
            self.require(
                False,
                method,
                f"{description} = {expected[index]:.9g}, got {actual[index]:.9g}"
                f" at row {index[0]}",
            )

    def find_outputs(self) -> list[list[Tensor]]:
        """Return outputs of each row: decoded, k best, samples and loss-augmented."""
        structure, rows = self.structure, [[y] for y in self.y]
        columns = []
        if self.has("decode_topk"):
            _, ys, valid = structure.decode_topk(_NUM_LISTED)
            is_valid = valid.reshape(*valid.shape, *[1] * (ys.dim() - 2))
            columns += list(torch.where(is_valid, ys, self.y[:, None]).unbind(1))
        if self.has("sample"):
            columns += list(structure.sample(_NUM_LISTED).unbind(1))
        if self.has("hamming", "augment"):
            columns.append(structure.augment(structure.hamming(self.y)).decode()[1])
        for column in columns:
            for row, y in zip(rows, column, strict=True):
                row.append(y)
        return rows

    def score(self, y: Tensor, description: str, structure: Any = None) -> Tensor:
        """Return the scores ``(batch,)`` of feasible outputs."""
        try:
            score: Tensor = (structure or self.structure).score(y)
        except ValueError as error:
            self.require(
                False, "score", f"a score of {description}, got the error: {error}"
            )
        return score

    def listed_scores(self, structure: Any = None) -> tuple[Tensor, Tensor]:
        """Return scores ``(batch, n)`` of the listed outputs, and a mask of real ones.

        Rows with fewer outputs repeat their last one.
        """
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

    def check_decoded(self) -> None:
        """Check shape, dtype and feasibility of the decoded outputs."""
        y, shape = self.y, _shape(self.value)
        self.require(len(shape) == 1, "decode", f"values (batch,), got {shape}")
        B = len(self.value)
        integers = not (
            y.is_floating_point() or y.is_complex() or y.dtype == torch.bool
        )
        self.require(integers, "decode", f"outputs of integers, got {y.dtype}")
        self.require(len(y) == B, "decode", f"outputs ({B}, ...), got {_shape(y)}")
        self.decoded_score = self.score(y, "the decoded output").detach()

    def check_shapes(self) -> None:
        """Check the shapes of ``lengths`` and ``label_counts``."""
        B, y = len(self.value), self.y
        lengths = getattr(self.structure, "lengths", None)
        if lengths is not None:
            is_expected = isinstance(lengths, Tensor) and _shape(lengths) == (B,)
            self.require(is_expected, "lengths", f"a tensor ({B},), got {lengths!r}")
        if self.has("label_counts"):
            counts = self.structure.label_counts(y)
            is_expected = counts.dim() == 2 and len(counts) == B
            self.require(
                is_expected,
                "label_counts",
                f"({B}, label) of each row, got {_shape(counts)}",
            )

    def check_best(self) -> None:
        """Check that the decoded value is score(y), and that no output scores more."""
        scores, real = self.listed_scores()
        scores = scores.double().masked_fill(~real, -torch.inf)
        top, index = scores.max(1)
        value = self.decoded_score.double()
        is_beaten = top - value > self.rounding * (1 + top.abs() + value.abs())
        if bool(is_beaten.any()):
            b = int(is_beaten.int().argmax())
            better = self.outputs[b][int(index[b])].tolist()
            self.require(
                False,
                "decode",
                f"an output of the highest score, got {self.y[b].tolist()} with "
                f"{value[b]:.9g} at row {b}, where {better} has {top[b]:.9g}",
            )
        self.compare("decode", self.value, self.decoded_score, "score(y)")
        if self.complete:
            self.compare("decode", self.value, top, "the highest score of the outputs")
            for b, y in enumerate(self.y):
                self.check_is_listed("decode", b, y)

    def check_is_listed(self, method: str, row: int, y: Tensor) -> None:
        """Raise unless ``y`` is one of the outputs of the row."""
        self.require(
            any(torch.equal(x.to(y), y) for x in self.outputs[row]),
            method,
            f"one of the outputs given, got {y.tolist()} at row {row}",
        )

    def check_k_best(self) -> None:
        """Check shapes, scores, order and distinctness of the k best outputs."""
        k = _NUM_LISTED
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
            is_valid = valid[:, i]
            mask = is_valid.reshape(-1, *[1] * (self.y.dim() - 1))
            # rows without an i-th output: any feasible output, its score is not used
            scores = self.structure.score(torch.where(mask, ys[:, i], self.y))
            expected = torch.where(is_valid, scores, -torch.inf)
            self.compare(name, values[:, i], expected, f"score(ys[:, {i}])")
        is_sorted = bool((values[:, 1:] <= values[:, :-1]).all())
        self.require(is_sorted, name, "values from the highest to the lowest")
        for b in range(B):
            outputs = ys[b][valid[b]]
            # outputs without entries: there is only one
            num_distinct = (
                len(outputs.reshape(len(outputs), -1).unique(dim=0))
                if outputs[0].numel()
                else 1
            )
            self.require(
                num_distinct == len(outputs),
                name,
                f"distinct outputs, got one twice at row {b}",
            )
        if self.complete:
            for b in range(B):
                for y in ys[b][valid[b]]:
                    self.check_is_listed(name, b, y)
            scores, real = self.listed_scores()
            scores = scores.masked_fill(~real, -torch.inf)
            ranked = scores.sort(1, descending=True).values
            ranked = torch.nn.functional.pad(ranked, (0, k), value=-torch.inf)[:, :k]
            self.compare(name, values, ranked, "the highest scores of the outputs")

    def check_samples(self) -> None:
        """Check shapes and feasibility of samples."""
        ys = self.structure.sample(_NUM_LISTED)
        expected = len(self.value), _NUM_LISTED, *_shape(self.y)[1:]
        self.require(
            _shape(ys) == expected, "sample", f"outputs {expected}, got {_shape(ys)}"
        )
        for y in ys.unbind(1):
            possible = self.structure.score(y) > -torch.inf
            self.require(
                bool(possible.all()), "sample", "outputs with a score above -inf"
            )

    def check_log_partition(self) -> None:
        """Check ``log_partition``, ``log_prob``, ``log_count`` and ``entropy``."""
        structure = self.structure
        total = structure.log_partition()
        scores, real = self.listed_scores()
        listed = scores.double().masked_fill(~real, -torch.inf)
        if self.complete:
            description = "the logarithm of the sum of exp(score) over the outputs"
            self.compare("log_partition", total, listed.logsumexp(1), description)
        else:
            max_score = self.value.detach()
            slack = self.rounding * (1 + max_score.abs())
            condition = bool((total.detach() >= max_score - slack).all())
            self.require(condition, "log_partition", "at least the highest score")
        if self.has("log_prob"):
            expected = structure.score(self.y) - total
            actual = structure.log_prob(self.y)
            self.compare("log_prob", actual, expected, "score(y) - log_partition()")
        if not self.complete:
            return
        if self.has("log_count"):
            count = (listed > -torch.inf).sum(1).double().log()
            description = "the logarithm of the number of outputs"
            self.compare("log_count", structure.log_count(), count, description)
        if self.has("entropy"):
            weights = listed.softmax(1)
            expected = torch.special.entr(weights).sum(1)
            self.compare(
                "entropy",
                structure.entropy(),
                expected,
                "that of the outputs",
                slack=10,
            )

    def check_costs(self) -> None:
        """Check that ``hamming(y)`` costs 0 for y and at least 0 for other outputs."""
        structure = self.structure
        augmented = structure.augment(structure.hamming(self.y))
        gold_score = augmented.score(self.y)
        self.compare(
            "hamming", gold_score, structure.score(self.y), "no cost of y itself"
        )
        (before, real), (after, _) = self.listed_scores(), self.listed_scores(augmented)
        cost = (after - before).nan_to_num(0, posinf=0, neginf=0)
        slack = self.rounding * (1 + before.abs().nan_to_num(0, posinf=0, neginf=0))
        condition = bool(((cost >= -slack) | ~real).all())
        self.require(condition, "hamming", "costs of at least 0 for other outputs")

    def check_gradients(self) -> None:
        """Compare derivatives along ``hamming(y)`` with central differences."""
        structure = self.structure
        direction = structure.hamming(self.y).detach()
        functions: dict[str, Any] = {
            "score": lambda x: x.score(self.last_outputs()),
            "decode": lambda x: x.decode()[0],
        }
        if self.has("log_partition"):
            functions["log_partition"] = lambda x: x.log_partition()
        for name, evaluate in functions.items():
            # scale other than 1: integer scores plus costs would tie, with no
            # derivative
            cost = (1.37 * direction).requires_grad_()
            values = evaluate(structure.augment(cost))
            if not values.requires_grad:
                self.require(False, name, "a gradient in a cost, got none")
            (grad,) = torch.autograd.grad(values.sum(), cost)
            derivatives = (grad * direction).flatten(1).sum(1)
            shifted_values = [
                evaluate(structure.augment((1.37 + h) * direction)).detach().double()
                for h in (self.step, -self.step)
            ]
            expected = (shifted_values[0] - shifted_values[1]) / (2 * self.step)
            finite = expected.isfinite()
            expected, derivatives = expected[finite], derivatives[finite]
            description = "the difference quotient along hamming(y)"
            self.compare(name, derivatives, expected, description, 1e3)
        if self.has("log_partition", "marginals"):
            cost = (0 * direction).requires_grad_()
            total = structure.augment(cost).log_partition().sum()
            (grad,) = torch.autograd.grad(total, cost)
            marginals = structure.marginals().flatten(1)
            description = "the gradient of log_partition()"
            self.compare("marginals", marginals, grad.flatten(1), description)

    def last_outputs(self) -> Tensor:
        """Return the last listed output of each row."""
        return torch.stack([row[-1] for row in self.outputs]).to(self.y)

    def check_scale(self) -> None:
        """Check that ``scale(2)`` doubles scores and values."""
        doubled = self.structure.scale(2.0)
        expected = 2 * self.structure.score(self.y)
        self.compare("scale", doubled.score(self.y), expected, "twice the score")
        self.compare("scale", doubled.decode()[0], expected, "twice the highest score")

    def check_rows(self) -> None:
        """Check that results of a row do not depend on the other rows."""
        for row in range(len(self.value)):
            row_index = torch.tensor([row], device=self.value.device)
            selected = self.structure.select(row_index)
            actual, expected = selected.decode()[0], self.value[row : row + 1]
            self.compare("select", actual, expected, f"the value of row {row} alone")
            if self.has("log_partition"):
                expected = self.structure.log_partition()[row : row + 1]
                description = f"the log-partition of row {row} alone"
                self.compare("select", selected.log_partition(), expected, description)


def _shape(x: Tensor) -> tuple[int, ...]:
    return tuple(x.shape)
