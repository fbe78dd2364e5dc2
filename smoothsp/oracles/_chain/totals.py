"""Losses of a batch of chains summed over its rows, with their gradients at once.

Most calls in training are these. A small batch takes one compiled call, a large one a
call for each piece, on several threads.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import fused
from smoothsp._kernels.threads.ranges import run_all
from smoothsp.oracles._chain.addresses import piece, rows_of_piece, way_of_sums
from smoothsp.oracles._chain.buffers import EMPTY, ChainBuffers, Potentials
from smoothsp.oracles._questions import checks
from smoothsp.oracles._questions.question import EagerGradient, needs_gradient
from smoothsp.oracles._questions.rounding import weighed
from smoothsp.oracles._questions.tracing import is_dense_cpu, is_eager

ByRows = Callable[[Potentials, Tensor], Tensor]


class Total:
    """A weighted sum over the rows of ``y`` ``[B, T]``, asked like a question.

    Parameters
    ----------
    kernel
        Of ``fused``: fills the sum and its gradients.
    options
        Its further arguments.
    chain
        The chain.
    y
        Labels.
    weight
        ``[B]``, or a number for all rows.
    by_rows
        ``by_rows(potentials, y)`` ``[B]`` answers too, by differentiable questions: for
        second derivatives, and where one call cannot.
    """

    def __init__(
        self,
        kernel: Callable[..., int],
        options: tuple[float, ...],
        chain: ChainBuffers,
        y: Tensor,
        weight: Tensor | float,
        by_rows: ByRows,
    ) -> None:
        self.kernel, self.options, self.by_rows = kernel, options, by_rows
        self.chain, self.y, self.weight = chain, y, weight

    def ask(self) -> Tensor:
        """The sum; gradients reach the potentials."""
        chain, y, weight = self.chain, self.y, self.weight
        potentials = chain.potentials
        emissions = potentials[0]
        plain = chain.plain and chain.shared and is_eager()
        B, T, _ = chain.sizes if plain else emissions.shape
        fits = plain and is_dense_cpu(y) and y.dtype == torch.int64
        if not (fits and y.shape == (B, T)):
            y = self.y = checks.labels(y, emissions)
            checks.shape("y", y, (B, T), "(batch, time)")
        if isinstance(weight, Tensor):
            if weight.dim():
                weight = checks.row_weights("weight", weight, B, emissions.device)
            weight = self.weight = weight.to(emissions.dtype)
            plain = plain and weight.dim() == 1 and not weight.requires_grad
        if plain:
            self.found = self._fill()
            if self.found is not None:
                if not chain.wants_gradient():
                    return self.found[0]
                total: Tensor = EagerGradient.apply(self, *potentials)
                return total
        return weighed(self.by_rows(potentials, y), weight).sum()

    def begin(self, ctx: Any, potentials: tuple[Tensor, ...]) -> Tensor:
        """The sum, found before; keeps its gradients, and what finds them again."""
        total, ctx.gradients = cast(tuple[Tensor, list[Tensor]], self.found)
        self.found = None
        weights = self.weight if isinstance(self.weight, Tensor) else None
        ctx.save_for_backward(*potentials, self.y, weights)
        return total

    def gradient(self, ctx: Any, grad: Tensor) -> tuple[list[Tensor | None], tuple[()]]:
        """The gradients of the potentials.

        The first backward pass gets those that are there; for another one, and for
        higher derivatives, they are found again by differentiable questions.
        """
        some = needs_gradient(ctx, 4)
        higher = torch.is_grad_enabled()
        if ctx.gradients is not None and not higher:
            known = ctx.gradients
            if is_eager():
                ctx.gradients = None
                if grad.item() != 1:
                    for x in known:
                        x.mul_(grad)
            else:
                known = [x * grad for x in known]
            pairs = zip(known, some, strict=True)
            return [x if want else None for x, want in pairs], ()
        # asked for here, they must not have been changed in the meantime
        *potentials, y, weights = ctx.saved_tensors
        if not higher:
            potentials = [x.detach() for x in potentials]
            for x, want in zip(potentials, some, strict=True):
                x.requires_grad_(want)
        weight = self.weight if weights is None else weights
        with torch.enable_grad():
            value = weighed(self.by_rows(tuple(potentials), y), weight).sum()
        pairs = zip(potentials, some, strict=True)
        inputs = [x for x, want in pairs if want]
        found = iter(torch.autograd.grad(value, inputs, grad, create_graph=higher))
        return [next(found) if want else None for want in some], ()

    def _fill(self) -> tuple[Tensor, list[Tensor]] | None:
        """The sum and its gradients; None if a row is not safe in this dtype."""
        (B, T, S), weight = self.chain.sizes, self.weight
        y = self.y.contiguous()
        if isinstance(weight, Tensor):
            weights, number = weight.contiguous(), 0.0
        else:
            weights, number = None, float(weight)
        ask = _by_pieces if rows_of_piece(B, T, S) < B else _whole
        given = self.chain, y, number, weights, self.options
        code, total, gradients = ask(self.kernel, *given)
        if code == fused.UNSAFE:
            return None
        if code != fused.DONE:
            row, step = divmod(code, T)
            message = checks.label_out_of_range(S, int(y[row, step]), row, step)
            raise ValueError(message)
        return total, gradients


def _whole(
    call: Callable[..., int],
    chain: ChainBuffers,
    y: Tensor,
    number: float,
    weights: Tensor | None,
    options: tuple[float, ...],
) -> tuple[int, Tensor, list[Tensor]]:
    """The code that ``call`` returns, the sum, and its gradients."""
    (B, T, S), new = chain.sizes, EMPTY[chain.dtype].new_empty
    total, slopes, moves = new(()), new(B, T, S), new(S, S)
    start, end = new(S), new(S)
    code = call(
        chain.addresses,
        y.data_ptr(),
        number,
        0 if weights is None else weights.data_ptr(),
        *options,
        (slopes.data_ptr(), moves.data_ptr(), start.data_ptr(), end.data_ptr()),
        total.data_ptr(),
    )
    return code, total, [slopes, moves, start, end]


def _by_pieces(
    call: Callable[..., int],
    chain: ChainBuffers,
    y: Tensor,
    number: float,
    weights: Tensor | None,
    options: tuple[float, ...],
) -> tuple[int, Tensor, list[Tensor]]:
    """Compute ``_whole`` by pieces, summed in float64 in order."""
    B, T, S = chain.sizes
    rows = rows_of_piece(B, T, S)
    firsts = range(0, B, rows)
    slopes = chain.new(B, T, S)
    shared = [chain.new(len(firsts), *shape) for shape in chain.shapes[1:]]
    totals = chain.new(len(firsts))
    codes = run_all(
        [
            partial(
                call,
                piece(chain.addresses, b, rows),
                y[b:].data_ptr(),
                number,
                0 if weights is None else weights[b:].data_ptr(),
                *options,
                (slopes[b:].data_ptr(), *(x[i:].data_ptr() for x in shared)),
                totals[i:].data_ptr(),
            )
            for i, b in enumerate(firsts)
        ]
    )
    dtype = chain.dtype
    gradients = [x.sum(0, dtype=torch.float64).to(dtype) for x in shared]
    total = totals.sum(dtype=torch.float64).to(dtype)
    for b, code in zip(firsts, codes, strict=True):
        if code != fused.DONE:
            return code if code < 0 else code + b * T, total, [slopes, *gradients]
    return fused.DONE, total, [slopes, *gradients]


def _log_likelihood(where: tuple[Any, ...], *given: Any) -> int:
    code: int = fused.log_likelihood(where, *given, *way_of_sums(where))
    return code


def log_likelihood(
    chain: ChainBuffers, y: Tensor, weight: Tensor | float, by_rows: ByRows
) -> Tensor:
    """Sum of weighted log-probabilities, as ``Total`` has it."""
    return Total(_log_likelihood, (), chain, y, weight, by_rows).ask()


def violation(
    chain: ChainBuffers,
    y: Tensor,
    weight: Tensor | float,
    by_rows: ByRows,
    cost_scale: float,
) -> Tensor:
    """Sum of weighted violations of the margin, as ``Total`` has it."""
    return Total(fused.violation, (cost_scale,), chain, y, weight, by_rows).ask()
