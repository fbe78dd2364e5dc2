"""Alternating directions over structures that share variables.

Structure f has scores s_f, and a copy u_f of the variables that it has. With delta the
number of structures of a variable, gamma the strength of a regularisation (0: none),

    kappa = gamma + extra;   rho = kappa - gamma / delta;   lam_f = 0 in sum
    repeat
        u_f = SparseMAP of f, scores s_f + lam_f + rho u on its cells, strength kappa
        u   = mean of u_f over the structures of each variable
        lam_f -= rho (u_f - u)

Each quadratic programme has one strength for all cells. Its search starts from the
outputs that had weight in the last round.

Source: Martins et al., "AD3: Alternating Directions Dual Decomposition for MAP
Inference in Graphical Models" (2015), algorithm 2; Niculae and Martins, "LP-SparseMAP:
Differentiable Relaxed Optimization for Sparse Structured Prediction" (2020).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothsp.oracles._inference.parts import part_counts
from smoothsp.oracles._inference.score_values import LIMIT
from smoothsp.oracles._searches.active_outputs import block, face_of, solution
from smoothsp.oracles._searches.shared_cells import Variables

# Most decodes of a structure in a round: to search on for the best mixture of a round
# saves rounds, and no decodes.
_FEW = 2
# Rounds between solutions of equations, certificates, and changes of the strength.
_SOLVE, _CERTIFY, _ADAPT = 4, 8, 10
# Outputs of a fractional solution, of each structure, that are completed.
_STARTS = 4
# Roundings of scores and multipliers that a gap may consist of: those of the equations
# come to about twenty.
_ROUNDINGS = 64
# The first strength beside gamma, in mean scores of shared cells. Of 1/4 to 4, this
# takes the fewest rounds on random graphs of chains, trees and matchings.
_EXTRA = 4.0
# Residuals that differ by more than this factor change the strength.
_UNLIKE = 10.0
# Scores of structures whose potentials are unknown are guessed to be at most so many
# times that of their best output: only rows without agreement have lower bounds.
_GUESS = 2.0**16
# Factor by which the strength may change in all.
_RANGE = 2.0**10


class Factor:
    """A structure of a graph, and the shape of its cells.

    Parameters
    ----------
    structure
        In float64 and without gradients, where the library has made it so.
    shape, dtype
        Of a cost of one row.
    search
        Class of its search, made of structure, strengths and outputs.
    """

    def __init__(
        self, structure: Any, shape: torch.Size, dtype: torch.dtype, search: Any
    ) -> None:
        self.structure, self.shape, self.dtype = structure, shape, dtype
        self.search = search

    def select(self, rows: Tensor) -> "Factor":
        """The factor of some rows."""
        chosen = self.structure.select(rows)
        return Factor(chosen, self.shape, self.dtype, self.search)

    def decode(self, cost: Tensor) -> tuple[Tensor, Tensor]:
        """The best output with a cost ``(batch, cells)``, and its parts in float64."""
        paid = cost.to(self.dtype).reshape(len(cost), *self.shape)
        y = self.structure.augment(paid).decode()[1]
        return y, self.parts(y)

    def parts(self, y: Tensor) -> Tensor:
        """Number of times y uses each cell, ``(batch, cells)`` float64."""
        return part_counts(self.structure, y).flatten(1).double()

    def score(self, y: Tensor) -> Tensor:
        """Score of y in float64."""
        found: Tensor = self.structure.score(y).double()
        return found

    def potentials(self) -> Tensor | None:
        """First potentials ``(batch, cells)`` in float64; None if there are no such."""
        main = getattr(self.structure, "_first_potentials", None)
        return None if main is None else main.flatten(1).double()

    def largest_score(self, y: Tensor) -> Tensor:
        """Upper bound ``(batch,)`` of the magnitude of a score; a guess for others."""
        structure = self.structure
        main = self.potentials()
        if main is None:
            size = self.score(y).abs()
            return torch.maximum((_GUESS * (1 + size)).clamp(max=LIMIT / 16), 8 * size)
        own = getattr(structure, "_row_potentials", {structure._first_name: main})
        total, uses = (
            torch.zeros_like(main[:, :0].sum(1)),
            2.0 * (1 + structure.lengths),
        )
        for name, x in structure._named_potentials().items():
            size = x.double().abs().masked_fill(x == -torch.inf, 0)
            if name in own:
                total = total + size.flatten(1).sum(1)
            elif x.numel():
                total = total + uses * size.max()
        return total


class Consensus:
    """Rows of a graph, and what is known of each.

    Parameters
    ----------
    factors
        Structures of the graph.
    variables
        Which of their cells are one.
    gamma
        Strength of the regularisation, at least 0.
    max_rounds
        Most rounds.
    tol
        Residuals at which a row has converged.

    Attributes
    ----------
    y
        Outputs of each structure, the best that were found.
    value, bound
        ``(batch,)`` float64: score of y, -inf without an output; upper bound.
    residual
        ``(batch,)`` float64: largest distance of a structure's copy to the mean.
    solved
        ``(batch,)`` bool: True where equations gave the relaxed solution.
    rounds, decodes
        ``(batch,)`` int64.
    mixtures
        The last mixture of each structure; none if no round was needed.
    """

    def __init__(
        self,
        factors: Sequence[Factor],
        variables: Variables,
        gamma: float,
        max_rounds: int,
        tol: float,
    ) -> None:
        self.factors, self.variables, self.gamma = factors, variables, gamma
        self.max_rounds, self.tol = max_rounds, tol
        B, device = len(variables.of_cell), variables.of_cell.device
        zeros = torch.zeros(B, dtype=torch.float64, device=device)
        self.value, self.bound = zeros - torch.inf, zeros + torch.inf
        self.residual, self.scale = zeros.clone(), zeros.clone()
        self.rounds, self.decodes = zeros.long(), zeros.long()
        self.solved = zeros.bool()
        # of rows: value, slots and weights of solutions that a bound may prove
        self.candidates: dict[int, Any] = {}
        self.y = [x.structure.decode()[1] for x in factors]
        pairs = zip(factors, self.y, strict=True)
        self.least = -sum((x.largest_score(y) for x, y in pairs), zeros)
        self.mixtures: list[Any] = []

    @property
    def exact(self) -> Tensor:
        """Whether value and bound agree up to rounding, ``(batch,)``."""
        return self.bound - self.value <= self.slack

    @property
    def disagree(self) -> Tensor:
        """Rows whose bound is below all values: their structures cannot agree."""
        cells = sum(self.variables.sizes)
        return self.bound < self.least - self.gamma / 2 * cells

    @property
    def infeasible(self) -> Tensor:
        """Rows of which this is certain: no score of their structures is a guess."""
        known = all(x.potentials() is not None for x in self.factors)
        return self.disagree if known else torch.zeros_like(self.disagree)

    @property
    def slack(self) -> Tensor:
        """Rounding of bounds, ``(batch,)``."""
        eps = max(torch.finfo(x.dtype).eps for x in self.factors)
        return _ROUNDINGS * eps * (1 + self.scale)

    def run(self) -> None:
        """Search until each row is certified, converged, or out of rounds."""
        lam, size = self._first_multipliers()
        rows = torch.arange(len(lam), device=lam.device)
        live, variables, gamma = list(self.factors), self.variables, self.gamma
        parts = self._certify(live, variables, lam, rows, torch.zeros_like(lam))
        u, kappa = variables.mean(parts), gamma + _EXTRA * size
        done = self._finished(rows)
        if self.gamma == 0 and bool(done.all()):
            return
        self.mixtures = [
            x.search(x.structure, kappa.clone(), y)
            for x, y in zip(live, self.y, strict=True)
        ]
        for count in range(1, self.max_rounds + 1):
            if bool(done.any()):
                on = ~done
                rows, live = rows[on], [x.select(on) for x in live]
                variables, size = variables.select(on), size[on]
                lam, u, kappa = lam[on], u[on], kappa[on]
            if not len(rows):
                return
            rho = kappa[:, None] - gamma / variables.degree
            targets = variables.split(lam + rho * u)
            copies, ready = [], torch.ones_like(rows, dtype=torch.bool)
            for mixture, factor, cost in zip(self.mixtures, live, targets, strict=True):
                before = mixture.decodes.clone()
                mixture.restart(factor.structure, rows, cost, kappa)
                mixture.run(_FEW, add_last=True)
                self.decodes += mixture.decodes - before
                ready &= ~torch.isin(rows, mixture.rows)
                copies.append(mixture.marginals(rows))
            copied = torch.cat(copies, 1)
            old, u = u, variables.mean(copied)
            lam = lam - rho * (copied - u)
            primal = _largest(copied - u)
            dual = _largest(rho * (u - old)) / (1 + size)
            self.rounds[rows], self.residual[rows] = count, primal
            done = ready & (torch.maximum(primal, dual) <= self.tol)
            # more would be minus infinity
            done = done | (_largest(lam) > LIMIT / 8)
            if count == self.max_rounds or count % _CERTIFY == 0:
                at = torch.ones_like(done)
            else:
                at = done.clone()
            # a certificate at a solution, and no jump to what is not proven
            best_lam, best_u = lam.clone(), u.clone()
            if count % _SOLVE == 0 or bool(done.any()):
                at = at | self._solve(variables, best_lam, rows, best_u)
            if bool(at.any()):
                some, few = [x.select(at) for x in live], variables.select(at)
                self._certify(some, few, best_lam[at], rows[at], best_u[at])
                done = done | self._finished(rows)
            if count % _ADAPT == 0:
                more = torch.where(primal > _UNLIKE * dual, 2.0, 1.0)
                less = torch.where(dual > _UNLIKE * primal, 0.5, 1.0)
                extra = (kappa - gamma) * more * less
                kappa = gamma + extra.clamp(size / _RANGE, size * _RANGE)

    def _finished(self, rows: Tensor) -> Tensor:
        """Rows whose certificate ends the search."""
        ended = self.solved | self.disagree
        return (ended if self.gamma > 0 else ended | self.exact)[rows]

    def _first_multipliers(self) -> tuple[Tensor, Tensor]:
        """Multipliers that divide scores of a variable alike among its structures.

        And the size of the scores of shared cells.
        """
        variables, B = self.variables, len(self.value)
        given = []
        for factor, n in zip(self.factors, variables.sizes, strict=True):
            main = factor.potentials()
            given.append(self.value.new_zeros(B, n) if main is None else main)
        cells = torch.cat(given, 1)
        forbidden = cells == -torch.inf
        cells = cells.masked_fill(forbidden, 0)
        shared = variables.degree > 1
        mean = variables.mean(cells)
        lam = (mean - cells).masked_fill(~shared, 0)
        size = (mean.abs() * shared).sum(1) / shared.sum(1).clamp(min=1)
        # of what one structure forbids the others pay more than any score
        barred = variables.mean(forbidden.double()) > 0
        lam = torch.where(barred, -self._forcing_cost(slice(None)), lam)
        return lam.masked_fill(forbidden, 0), torch.where(size > 0, size, 1.0)

    def _forcing_cost(self, rows: Any) -> Tensor:
        """More than the difference of any two scores, ``(rows, 1)``."""
        return (2 - 2 * self.least[rows]).clamp(max=LIMIT / 8)[:, None]

    def _solve(
        self, variables: Variables, lam: Tensor, rows: Tensor, u: Tensor
    ) -> Tensor:
        """Solve rows for the outputs that have weight; return which have a solution.

        Then lam and u change in place. It is the solution of the graph, if the next
        bound is its value.
        """
        found = torch.zeros_like(rows, dtype=torch.bool)
        for i, row in enumerate(rows.tolist()):
            active = [mixture.active_outputs(row) for mixture in self.mixtures]
            slots, p, scores, parts = zip(*active, strict=True)
            sizes = [len(x) for x in slots]
            of_cell, degree = (
                x[i].cpu().numpy() for x in (variables.of_cell, variables.degree)
            )
            A, owner = block(parts), np.repeat(np.arange(len(sizes)), sizes)
            face = face_of(A, owner, of_cell, degree)
            s, pull = np.concatenate(scores), A.T @ lam[i].cpu().numpy()
            answer = solution(face, np.concatenate(p), s, pull, self.gamma)
            if answer is None:
                continue
            weights, change = answer
            square = weights @ face.Q @ weights
            value = s @ weights - self.gamma / 2 * square
            lam[i, torch.from_numpy(face.cells)] += torch.from_numpy(change).to(lam)
            shares = torch.from_numpy(A @ weights).to(lam)
            u[i] = variables.select(torch.tensor([i], device=lam.device)).mean(
                shares[None]
            )[0]
            self.candidates[row] = (
                value,
                slots,
                np.split(weights, np.cumsum(sizes)[:-1]),
            )
            found[i] = True
        return found

    def _accept_proven(
        self, live: Sequence[Factor], variables: Variables, lam: Tensor, rows: Tensor
    ) -> None:
        """Take solutions whose value is the bound; complete their outputs."""
        slack = self.slack
        for row in rows.tolist():
            value, slots, weights = self.candidates.pop(row, (-np.inf, (), ()))
            if not self.bound[row] - value <= slack[row]:
                continue
            self.solved[row], self.residual[row] = True, 0.0
            for mixture, s, w in zip(self.mixtures, slots, weights, strict=True):
                mixture.set_weights(row, s, w)
        on = self.solved[rows] & ~self.exact[rows]
        if self.gamma > 0 or not bool(on.any()):
            return
        live = [x.select(on) for x in live]
        variables, lam, rows = variables.select(on), lam[on], rows[on]
        for first, mixture in enumerate(self.mixtures):
            outputs, weights, parts, _ = mixture.result()
            for k in range(min(outputs.shape[1], _STARTS)):
                y, used = outputs[rows, k], parts[rows, k].flatten(1).double()
                self._complete(live, variables, lam, rows, first, y, used)

    def _certify(
        self,
        live: Sequence[Factor],
        variables: Variables,
        lam: Tensor,
        rows: Tensor,
        u: Tensor,
    ) -> Tensor:
        """Improve bounds and outputs of rows; return the parts of what was decoded.

        ``sum_f max_y s_f(y) + <lam_f, a(y)>`` bounds the maximum. With gamma, it has
        ``- gamma / delta u`` added to the multipliers, and ``gamma / 2 |u|^2`` to the
        sum: a concave function lies below its tangents.
        """
        paid = lam - self.gamma / variables.degree * u
        bound = self.gamma / 2 * (u.square() / variables.degree).sum(1)
        ys, parts, scale = [], [], torch.zeros_like(bound)
        for factor, cost in zip(live, variables.split(paid), strict=True):
            y, used = factor.decode(cost)
            score, paid_by_y = factor.score(y), cost * used
            bound = bound + score + paid_by_y.sum(1)
            # what is rounded: multipliers may be larger than their sum
            scale = scale + score.abs() + paid_by_y.abs().sum(1)
            ys.append(y)
            parts.append(used)
        self.decodes[rows] += len(ys)
        better = bound < self.bound[rows]
        self.scale[rows] = torch.where(better, scale, self.scale[rows])
        self.bound[rows] = torch.minimum(bound, self.bound[rows])
        joined = torch.cat(parts, 1)
        if self.gamma == 0:
            agree = (variables.mean(joined) == joined).all(1)
            self._keep_best(live, rows, ys, agree)
            on = ~agree
            if bool(on.any()):
                some = [x.select(on) for x in live], variables.select(on), lam[on]
                for first, (y, used) in enumerate(zip(ys, parts, strict=True)):
                    self._complete(*some, rows[on], first, y[on], used[on])
        self._accept_proven(live, variables, lam, rows)
        return joined

    def _complete(
        self,
        live: Sequence[Factor],
        variables: Variables,
        lam: Tensor,
        rows: Tensor,
        first: int,
        y: Tensor,
        used: Tensor,
    ) -> None:
        """Complete outputs of one structure to outputs of all; keep those that agree.

        Each structure in turn decodes with the cells forced that those before it have.
        """
        force, costs = self._forcing_cost(rows), variables.split(lam)
        mine = variables.split(variables.of_cell)
        known = torch.zeros_like(lam, dtype=torch.bool).scatter(1, mine[first], True)
        values = torch.zeros_like(lam).scatter(1, mine[first], used)
        ys, good = [y] * len(live), torch.ones_like(rows, dtype=torch.bool)
        for f, factor in enumerate(live):
            if f == first:
                continue
            fixed, wanted = known.gather(1, mine[f]), values.gather(1, mine[f])
            forced = torch.where(wanted > 0, force, -force)
            ys[f], found = factor.decode(torch.where(fixed, forced, costs[f]))
            self.decodes[rows] += 1
            good = good & ((found == wanted) | ~fixed).all(1)
            known = known.scatter(1, mine[f], True)
            values = values.scatter(1, mine[f], found)
        self._keep_best(live, rows, ys, good)

    def _keep_best(
        self, live: Sequence[Factor], rows: Tensor, ys: Sequence[Tensor], good: Tensor
    ) -> None:
        """Keep outputs that are the best of their row, where ``good``."""
        scores = [x.score(y).double() for x, y in zip(live, ys, strict=True)]
        value = torch.stack(scores).sum(0).masked_fill(~good, -torch.inf)
        better = value > self.value[rows]
        if not bool(better.any()):
            return
        self.value[rows[better]] = value[better]
        for best, y in zip(self.y, ys, strict=True):
            best[rows[better]] = y[better]


def _largest(x: Tensor) -> Tensor:
    """Largest magnitude of each row ``(batch, n)``; 0 of none."""
    return torch.nn.functional.pad(x.abs(), (0, 1)).amax(1)
