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
from smoothsp.oracles._searches.active_outputs import (
    build_equations,
    solve_equations,
    stack_block_diagonal,
)
from smoothsp.oracles._searches.shared_cells import Variables

# Most decodes of a structure in a round: to search on for the best mixture of a round
# saves rounds, and no decodes.
_DECODES_PER_ROUND = 2
# Rounds between solutions of equations, certificates, and changes of the strength.
_ROUNDS_PER_SOLVE, _ROUNDS_PER_CERTIFICATE, _ROUNDS_PER_ADAPTATION = 4, 8, 10
# Outputs of a fractional solution, of each structure, that are completed.
_MAX_COMPLETED = 4
# Roundings of scores and multipliers that a gap may consist of: those of the equations
# come to about twenty.
_GAP_ULPS = 64
# The first strength beside gamma, in mean scores of shared cells. Of 1/4 to 4, this
# takes the fewest rounds on random graphs of chains, trees and matchings.
_EXTRA_STRENGTH = 4.0
# Residuals that differ by more than this factor change the strength.
_RESIDUAL_RATIO = 10.0
# Scores of structures whose potentials are unknown are guessed to be at most so many
# times that of their best output: only rows without agreement have lower bounds.
_ASSUMED_SCORE_RATIO = 2.0**16
# Factor by which the strength may change in all.
_STRENGTH_RANGE = 2.0**10


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
        self, structure: Any, shape: torch.Size, dtype: torch.dtype, mixtures_class: Any
    ) -> None:
        self.structure, self.shape, self.dtype = structure, shape, dtype
        self.mixtures_class = mixtures_class

    def select(self, rows: Tensor) -> "Factor":
        """The factor of some rows."""
        selected = self.structure.select(rows)
        return Factor(selected, self.shape, self.dtype, self.mixtures_class)

    def decode(self, cost: Tensor) -> tuple[Tensor, Tensor]:
        """The best output with a cost ``(batch, cells)``, and its parts in float64."""
        shaped_cost = cost.to(self.dtype).reshape(len(cost), *self.shape)
        y = self.structure.augment(shaped_cost).decode()[1]
        return y, self.parts(y)

    def parts(self, y: Tensor) -> Tensor:
        """Number of times y uses each cell, ``(batch, cells)`` float64."""
        return part_counts(self.structure, y).flatten(1).double()

    def score(self, y: Tensor) -> Tensor:
        """Score of y in float64."""
        score: Tensor = self.structure.score(y).double()
        return score

    def potentials(self) -> Tensor | None:
        """First potentials ``(batch, cells)`` in float64; None if there are no such."""
        potentials = getattr(self.structure, "_first_potentials", None)
        return None if potentials is None else potentials.flatten(1).double()

    def largest_score(self, y: Tensor) -> Tensor:
        """Upper bound ``(batch,)`` of the magnitude of a score; a guess for others."""
        structure = self.structure
        potentials = self.potentials()
        if potentials is None:
            magnitude = self.score(y).abs()
            return torch.maximum(
                (_ASSUMED_SCORE_RATIO * (1 + magnitude)).clamp(max=LIMIT / 16),
                8 * magnitude,
            )
        first = {structure._first_name: potentials}
        row_potentials = getattr(structure, "_row_potentials", first)
        total, max_uses = (
            torch.zeros_like(potentials[:, :0].sum(1)),
            2.0 * (1 + structure.lengths),
        )
        for name, x in structure._named_potentials().items():
            magnitude = x.double().abs().masked_fill(x == -torch.inf, 0)
            if name in row_potentials:
                total = total + magnitude.flatten(1).sum(1)
            elif x.numel():
                total = total + max_uses * magnitude.max()
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
        B, device = len(variables.variable_of_cell), variables.variable_of_cell.device
        zeros = torch.zeros(B, dtype=torch.float64, device=device)
        self.value, self.bound = zeros - torch.inf, zeros + torch.inf
        self.residual, self.scale = zeros.clone(), zeros.clone()
        self.rounds, self.decodes = zeros.long(), zeros.long()
        self.solved = zeros.bool()
        # of rows: value, slots and weights of solutions that a bound may prove
        self.candidates: dict[int, Any] = {}
        self.y = [x.structure.decode()[1] for x in factors]
        pairs = zip(factors, self.y, strict=True)
        self.score_lower_bound = -sum((x.largest_score(y) for x, y in pairs), zeros)
        self.mixtures: list[Any] = []

    @property
    def exact(self) -> Tensor:
        """Whether value and bound agree up to rounding, ``(batch,)``."""
        return self.bound - self.value <= self.slack

    @property
    def cannot_agree(self) -> Tensor:
        """Rows whose bound is below all values: their structures cannot agree."""
        cells = sum(self.variables.sizes)
        return self.bound < self.score_lower_bound - self.gamma / 2 * cells

    @property
    def infeasible(self) -> Tensor:
        """Rows of which this is certain: no score of their structures is a guess."""
        has_bounds = all(x.potentials() is not None for x in self.factors)
        return self.cannot_agree if has_bounds else torch.zeros_like(self.cannot_agree)

    @property
    def slack(self) -> Tensor:
        """Rounding of bounds, ``(batch,)``."""
        eps = max(torch.finfo(x.dtype).eps for x in self.factors)
        return _GAP_ULPS * eps * (1 + self.scale)

    def run(self) -> None:
        """Search until each row is certified, converged, or out of rounds."""
        lam, score_size = self._initial_multipliers_and_score_size()
        rows = torch.arange(len(lam), device=lam.device)
        active_factors, variables, gamma = (
            list(self.factors),
            self.variables,
            self.gamma,
        )
        parts = self._update_bounds_and_outputs(
            active_factors, variables, lam, rows, torch.zeros_like(lam)
        )
        u, kappa = variables.mean(parts), gamma + _EXTRA_STRENGTH * score_size
        done = self._is_finished(rows)
        if self.gamma == 0 and bool(done.all()):
            return
        self.mixtures = [
            x.mixtures_class(x.structure, kappa.clone(), y)
            for x, y in zip(active_factors, self.y, strict=True)
        ]
        for count in range(1, self.max_rounds + 1):
            if bool(done.any()):
                running = ~done
                rows, active_factors = (
                    rows[running],
                    [x.select(running) for x in active_factors],
                )
                variables, score_size = variables.select(running), score_size[running]
                lam, u, kappa = lam[running], u[running], kappa[running]
            if not len(rows):
                return
            rho = kappa[:, None] - gamma / variables.num_structures
            targets = variables.split(lam + rho * u)
            copies, is_maximum = [], torch.ones_like(rows, dtype=torch.bool)
            for mixture, factor, cost in zip(
                self.mixtures, active_factors, targets, strict=True
            ):
                previous_decodes = mixture.decodes.clone()
                mixture.restart(factor.structure, rows, cost, kappa)
                mixture.run(_DECODES_PER_ROUND, add_last=True)
                self.decodes += mixture.decodes - previous_decodes
                is_maximum &= ~torch.isin(rows, mixture.rows)
                copies.append(mixture.marginals(rows))
            all_copies = torch.cat(copies, 1)
            previous_u, u = u, variables.mean(all_copies)
            lam = lam - rho * (all_copies - u)
            primal_residual = _max_abs_per_row(all_copies - u)
            dual_residual = _max_abs_per_row(rho * (u - previous_u)) / (1 + score_size)
            self.rounds[rows], self.residual[rows] = count, primal_residual
            done = is_maximum & (
                torch.maximum(primal_residual, dual_residual) <= self.tol
            )
            # more would be minus infinity
            done = done | (_max_abs_per_row(lam) > LIMIT / 8)
            if count == self.max_rounds or count % _ROUNDS_PER_CERTIFICATE == 0:
                needs_bound = torch.ones_like(done)
            else:
                needs_bound = done.clone()
            # a certificate at a solution, and no jump to what is not proven
            lam_to_bound, u_to_bound = lam.clone(), u.clone()
            if count % _ROUNDS_PER_SOLVE == 0 or bool(done.any()):
                needs_bound = needs_bound | self._solve_active_sets(
                    variables, lam_to_bound, rows, u_to_bound
                )
            if bool(needs_bound.any()):
                factors_to_bound, variables_to_bound = (
                    [x.select(needs_bound) for x in active_factors],
                    variables.select(needs_bound),
                )
                self._update_bounds_and_outputs(
                    factors_to_bound,
                    variables_to_bound,
                    lam_to_bound[needs_bound],
                    rows[needs_bound],
                    u_to_bound[needs_bound],
                )
                done = done | self._is_finished(rows)
            if count % _ROUNDS_PER_ADAPTATION == 0:
                increase = torch.where(
                    primal_residual > _RESIDUAL_RATIO * dual_residual, 2.0, 1.0
                )
                decrease = torch.where(
                    dual_residual > _RESIDUAL_RATIO * primal_residual, 0.5, 1.0
                )
                extra = (kappa - gamma) * increase * decrease
                kappa = gamma + extra.clamp(
                    score_size / _STRENGTH_RANGE, score_size * _STRENGTH_RANGE
                )

    def _is_finished(self, rows: Tensor) -> Tensor:
        """Rows whose certificate ends the search."""
        is_finished = self.solved | self.cannot_agree
        return (is_finished if self.gamma > 0 else is_finished | self.exact)[rows]

    def _initial_multipliers_and_score_size(self) -> tuple[Tensor, Tensor]:
        """Multipliers that divide scores of a variable alike among its structures.

        And the size of the scores of shared cells.
        """
        variables, B = self.variables, len(self.value)
        potentials = []
        for factor, n in zip(self.factors, variables.sizes, strict=True):
            factor_potentials = factor.potentials()
            potentials.append(
                self.value.new_zeros(B, n)
                if factor_potentials is None
                else factor_potentials
            )
        cells = torch.cat(potentials, 1)
        forbidden = cells == -torch.inf
        cells = cells.masked_fill(forbidden, 0)
        is_shared = variables.num_structures > 1
        mean = variables.mean(cells)
        lam = (mean - cells).masked_fill(~is_shared, 0)
        score_size = (mean.abs() * is_shared).sum(1) / is_shared.sum(1).clamp(min=1)
        # of what one structure forbids the others pay more than any score
        has_forbidden_cell = variables.mean(forbidden.double()) > 0
        lam = torch.where(has_forbidden_cell, -self._forcing_cost(slice(None)), lam)
        return lam.masked_fill(forbidden, 0), torch.where(
            score_size > 0, score_size, 1.0
        )

    def _forcing_cost(self, rows: Any) -> Tensor:
        """More than the difference of any two scores, ``(rows, 1)``."""
        return (2 - 2 * self.score_lower_bound[rows]).clamp(max=LIMIT / 8)[:, None]

    def _solve_active_sets(
        self, variables: Variables, lam: Tensor, rows: Tensor, u: Tensor
    ) -> Tensor:
        """Solve rows for the outputs that have weight; return which have a solution.

        Then lam and u change in place. It is the solution of the graph, if the next
        bound is its value.
        """
        is_solved = torch.zeros_like(rows, dtype=torch.bool)
        for i, row in enumerate(rows.tolist()):
            active = [mixture.active_outputs(row) for mixture in self.mixtures]
            slots, weights_before, scores, parts = zip(*active, strict=True)
            sizes = [len(x) for x in slots]
            variable_of_cell, num_structures = (
                x[i].cpu().numpy()
                for x in (variables.variable_of_cell, variables.num_structures)
            )
            A, structure_of_output = (
                stack_block_diagonal(parts),
                np.repeat(np.arange(len(sizes)), sizes),
            )
            equations = build_equations(
                A, structure_of_output, variable_of_cell, num_structures
            )
            s, output_multipliers = np.concatenate(scores), A.T @ lam[i].cpu().numpy()
            solution = solve_equations(
                equations,
                np.concatenate(weights_before),
                s,
                output_multipliers,
                self.gamma,
            )
            if solution is None:
                continue
            weights, multiplier_change = solution
            squared_norm = weights @ equations.Q @ weights
            value = s @ weights - self.gamma / 2 * squared_norm
            lam[i, torch.from_numpy(equations.cells)] += torch.from_numpy(
                multiplier_change
            ).to(lam)
            marginals = torch.from_numpy(A @ weights).to(lam)
            u[i] = variables.select(torch.tensor([i], device=lam.device)).mean(
                marginals[None]
            )[0]
            self.candidates[row] = (
                value,
                slots,
                np.split(weights, np.cumsum(sizes)[:-1]),
            )
            is_solved[i] = True
        return is_solved

    def _accept_proven_solutions(
        self,
        active_factors: Sequence[Factor],
        variables: Variables,
        lam: Tensor,
        rows: Tensor,
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
        needs_outputs = self.solved[rows] & ~self.exact[rows]
        if self.gamma > 0 or not bool(needs_outputs.any()):
            return
        active_factors = [x.select(needs_outputs) for x in active_factors]
        variables, lam, rows = (
            variables.select(needs_outputs),
            lam[needs_outputs],
            rows[needs_outputs],
        )
        for structure_index, mixture in enumerate(self.mixtures):
            outputs, weights, parts, _ = mixture.result()
            for k in range(min(outputs.shape[1], _MAX_COMPLETED)):
                y, cells = outputs[rows, k], parts[rows, k].flatten(1).double()
                self._complete_outputs(
                    active_factors, variables, lam, rows, structure_index, y, cells
                )

    def _update_bounds_and_outputs(
        self,
        active_factors: Sequence[Factor],
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
        costs = lam - self.gamma / variables.num_structures * u
        bound = self.gamma / 2 * (u.square() / variables.num_structures).sum(1)
        ys, parts, scale = [], [], torch.zeros_like(bound)
        for factor, cost in zip(active_factors, variables.split(costs), strict=True):
            y, cells = factor.decode(cost)
            score, cost_of_y = factor.score(y), cost * cells
            bound = bound + score + cost_of_y.sum(1)
            # what is rounded: multipliers may be larger than their sum
            scale = scale + score.abs() + cost_of_y.abs().sum(1)
            ys.append(y)
            parts.append(cells)
        self.decodes[rows] += len(ys)
        better = bound < self.bound[rows]
        self.scale[rows] = torch.where(better, scale, self.scale[rows])
        self.bound[rows] = torch.minimum(bound, self.bound[rows])
        all_parts = torch.cat(parts, 1)
        if self.gamma == 0:
            agrees = (variables.mean(all_parts) == all_parts).all(1)
            self._update_best_outputs(active_factors, rows, ys, agrees)
            disagrees = ~agrees
            if bool(disagrees.any()):
                args = (
                    [x.select(disagrees) for x in active_factors],
                    variables.select(disagrees),
                    lam[disagrees],
                )
                for structure_index, (y, cells) in enumerate(
                    zip(ys, parts, strict=True)
                ):
                    self._complete_outputs(
                        *args,
                        rows[disagrees],
                        structure_index,
                        y[disagrees],
                        cells[disagrees],
                    )
        self._accept_proven_solutions(active_factors, variables, lam, rows)
        return all_parts

    def _complete_outputs(
        self,
        active_factors: Sequence[Factor],
        variables: Variables,
        lam: Tensor,
        rows: Tensor,
        structure_index: int,
        y: Tensor,
        parts: Tensor,
    ) -> None:
        """Complete outputs of one structure to outputs of all; keep those that agree.

        Each structure in turn decodes with the cells forced that those before it have.
        """
        forcing_cost, costs = self._forcing_cost(rows), variables.split(lam)
        cell_variables = variables.split(variables.variable_of_cell)
        is_fixed = torch.zeros_like(lam, dtype=torch.bool).scatter(
            1, cell_variables[structure_index], True
        )
        fixed_values = torch.zeros_like(lam).scatter(
            1, cell_variables[structure_index], parts
        )
        ys, agrees = [y] * len(active_factors), torch.ones_like(rows, dtype=torch.bool)
        for f, factor in enumerate(active_factors):
            if f == structure_index:
                continue
            fixed_cells, required = (
                is_fixed.gather(1, cell_variables[f]),
                fixed_values.gather(1, cell_variables[f]),
            )
            forced = torch.where(required > 0, forcing_cost, -forcing_cost)
            ys[f], decoded = factor.decode(torch.where(fixed_cells, forced, costs[f]))
            self.decodes[rows] += 1
            agrees = agrees & ((decoded == required) | ~fixed_cells).all(1)
            is_fixed = is_fixed.scatter(1, cell_variables[f], True)
            fixed_values = fixed_values.scatter(1, cell_variables[f], decoded)
        self._update_best_outputs(active_factors, rows, ys, agrees)

    def _update_best_outputs(
        self,
        active_factors: Sequence[Factor],
        rows: Tensor,
        ys: Sequence[Tensor],
        agrees: Tensor,
    ) -> None:
        """Keep outputs that are the best of their row, where ``good``."""
        scores = [x.score(y).double() for x, y in zip(active_factors, ys, strict=True)]
        value = torch.stack(scores).sum(0).masked_fill(~agrees, -torch.inf)
        better = value > self.value[rows]
        if not bool(better.any()):
            return
        self.value[rows[better]] = value[better]
        for best, y in zip(self.y, ys, strict=True):
            best[rows[better]] = y[better]


def _max_abs_per_row(x: Tensor) -> Tensor:
    """Largest magnitude of each row ``(batch, n)``; 0 of none."""
    return torch.nn.functional.pad(x.abs(), (0, 1)).amax(1)
