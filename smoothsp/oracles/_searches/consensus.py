"""Dual decomposition by ADMM (AD3) over structures that share variables.

Structure f has scores s_f and a copy u_f of its variables. With delta the number of
structures of a variable and gamma the strength of the regularisation (0: none),

    kappa = gamma + extra;   rho = kappa - gamma / delta;   lam_f = 0 in sum
    repeat
        u_f = SparseMAP of f, scores s_f + lam_f + rho u on its cells, strength kappa
        u   = mean of u_f over the structures of each variable
        lam_f -= rho (u_f - u)

The penalty rho differs between variables so that each quadratic programme has the same
strength kappa in all cells. Its active-set search is warm-started with the active
outputs of the last round.

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

# Maximum number of decodes of a structure per round. Solving each quadratic programme
# to the end saves rounds but no decodes.
_DECODES_PER_ROUND = 2
# Rounds between closed-form solutions, bounds, and adaptations of the penalty.
_ROUNDS_PER_SOLVE, _ROUNDS_PER_CERTIFICATE, _ROUNDS_PER_ADAPTATION = 4, 8, 10
# Number of outputs per structure of a fractional solution that are completed to outputs
# of the graph.
_MAX_COMPLETED = 4
# A gap up to this number of unit roundings of scores and multipliers counts as 0. The
# closed-form solution has a rounding error of about 20.
_GAP_ULPS = 64
# Initial kappa - gamma in units of the mean score of shared cells. Among 1/4 to 4, this
# needs the fewest rounds on random graphs of chains, trees and matchings.
_EXTRA_STRENGTH = 4.0
# The penalty adapts if primal and dual residual differ by more than this factor: Boyd
# et al., "Distributed Optimization ... via ADMM" (2011), section 3.4.1.
_RESIDUAL_RATIO = 10.0
# Structures without readable potentials: all scores are assumed to be at most this
# multiple of the best one. It only decides when a row counts as without agreement.
_ASSUMED_SCORE_RATIO = 2.0**16
# Total factor by which the penalty may change from its initial value.
_STRENGTH_RANGE = 2.0**10


class Factor:
    """A structure of a graph, and the shape of its cells.

    Parameters
    ----------
    structure
        Structure in float64 without gradients; a user-defined one keeps its dtype.
    shape, dtype
        Shape and dtype of a cost of one row.
    mixtures_class
        Class of the active-set search, constructed from structure, strengths, outputs.
    """

    def __init__(
        self, structure: Any, shape: torch.Size, dtype: torch.dtype, mixtures_class: Any
    ) -> None:
        self.structure, self.shape, self.dtype = structure, shape, dtype
        self.mixtures_class = mixtures_class

    def select(self, rows: Tensor) -> "Factor":
        """The factor of the selected rows."""
        selected = self.structure.select(rows)
        return Factor(selected, self.shape, self.dtype, self.mixtures_class)

    def decode(self, cost: Tensor) -> tuple[Tensor, Tensor]:
        """Best output under ``cost (batch, cells)``, and its parts in float64."""
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
        """First potentials ``(batch, cells)`` in float64; None if not accessible."""
        potentials = getattr(self.structure, "_first_potentials", None)
        return None if potentials is None else potentials.flatten(1).double()

    def bound_score_magnitude(self, y: Tensor) -> Tensor:
        """Upper bound ``(batch,)`` of the magnitude of all scores.

        A guess from the score of y for structures without readable potentials.
        """
        structure = self.structure
        potentials = self.potentials()
        if potentials is None:
            # margins below LIMIT: augmented scores must stay valid potentials
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
                # an output uses each entry of a row at most once
                total = total + magnitude.flatten(1).sum(1)
            elif x.numel():
                total = total + max_uses * magnitude.max()
        return total


class Consensus:
    """State of the search for each row of a graph: outputs, bounds and residuals.

    Parameters
    ----------
    factors
        Structures of the graph.
    variables
        The variable of each cell.
    gamma
        Strength of the regularisation, at least 0.
    max_rounds
        Maximum number of rounds.
    tol
        Largest primal and dual residual of a converged row.

    Attributes
    ----------
    y
        Best outputs so far, one tensor for each structure.
    value, bound
        ``(batch,)`` float64: score of y, -inf without an output; upper bound.
    residual
        ``(batch,)`` float64: largest difference between a structure's copy and the
        mean, the primal residual.
    solved
        ``(batch,)`` bool: True where the closed-form solution attained the bound.
    rounds, decodes
        ``(batch,)`` int64: number of rounds, and of calls of ``decode``.
    mixtures
        The last mixture of each structure; empty if no round was needed.
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
        # by row: value, slots and weights of solutions not yet proven by a bound
        self.candidates: dict[int, Any] = {}
        self.y = [x.structure.decode()[1] for x in factors]
        pairs = zip(factors, self.y, strict=True)
        self.score_lower_bound = -sum(
            (x.bound_score_magnitude(y) for x, y in pairs), zeros
        )
        self.mixtures: list[Any] = []

    @property
    def exact(self) -> Tensor:
        """True where value and bound agree up to rounding, ``(batch,)``."""
        return self.bound - self.value <= self.slack

    @property
    def cannot_agree(self) -> Tensor:
        """Rows whose bound is below all scores: their structures cannot agree."""
        # the regulariser subtracts at most gamma / 2 per cell from a value
        cells = sum(self.variables.sizes)
        return self.bound < self.score_lower_bound - self.gamma / 2 * cells

    @property
    def proven_infeasible(self) -> Tensor:
        """Rows proven infeasible: ``cannot_agree`` with a bound that is no guess."""
        has_bounds = all(x.potentials() is not None for x in self.factors)
        return self.cannot_agree if has_bounds else torch.zeros_like(self.cannot_agree)

    @property
    def slack(self) -> Tensor:
        """Rounding error of bounds, ``(batch,)``."""
        eps = max(torch.finfo(x.dtype).eps for x in self.factors)
        return _GAP_ULPS * eps * (1 + self.scale)

    def run(self) -> None:
        """Iterate until each row is certified, has converged, or is out of rounds."""
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
            # multipliers beyond would reach -LIMIT, which counts as -inf
            done = done | (_max_abs_per_row(lam) > LIMIT / 8)
            if count == self.max_rounds or count % _ROUNDS_PER_CERTIFICATE == 0:
                needs_bound = torch.ones_like(done)
            else:
                needs_bound = done.clone()
            # the bound is evaluated at the closed-form solution, but the iteration goes
            # on from its own multipliers: the solution may be wrong
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
        """Rows whose search ends by a certificate.

        With gamma > 0 the result is the relaxed solution, so an optimal output does not
        end the search.
        """
        is_finished = self.solved | self.cannot_agree
        return (is_finished if self.gamma > 0 else is_finished | self.exact)[rows]

    def _initial_multipliers_and_score_size(self) -> tuple[Tensor, Tensor]:
        """Initial multipliers ``(batch, cells)``, and the mean size of shared scores.

        The multipliers split the score of a variable equally among its structures.
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
        # if one structure forbids a cell, all others pay more for it than any
        # difference of scores
        has_forbidden_cell = variables.mean(forbidden.double()) > 0
        lam = torch.where(has_forbidden_cell, -self._forcing_cost(slice(None)), lam)
        return lam.masked_fill(forbidden, 0), torch.where(
            score_size > 0, score_size, 1.0
        )

    def _forcing_cost(self, rows: Any) -> Tensor:
        """A cost above the difference of any two scores, ``(rows, 1)``."""
        return (2 - 2 * self.score_lower_bound[rows]).clamp(max=LIMIT / 8)[:, None]

    def _solve_active_sets(
        self, variables: Variables, lam: Tensor, rows: Tensor, u: Tensor
    ) -> Tensor:
        """Solve the equations of the active outputs; return rows with a solution.

        Changes ``lam`` and ``u`` of these rows in place. The solution is optimal if the
        next bound equals its value.
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
        """Accept solutions that attain the bound; complete their outputs."""
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
        """Improve bounds and outputs of rows; return the parts of decoded outputs.

        ``sum_f max_y [s_f(y) + <lam_f, a_f(y)>]`` bounds the maximum, since multipliers
        sum to 0 over the structures of a variable. With gamma > 0, ``-gamma / delta u``
        is added to the multipliers and ``gamma / 2 |u|^2`` to the sum: the tangent at u
        of the concave regulariser is above it.
        """
        costs = lam - self.gamma / variables.num_structures * u
        bound = self.gamma / 2 * (u.square() / variables.num_structures).sum(1)
        ys, parts, scale = [], [], torch.zeros_like(bound)
        for factor, cost in zip(active_factors, variables.split(costs), strict=True):
            y, cells = factor.decode(cost)
            score, cost_of_y = factor.score(y), cost * cells
            bound = bound + score + cost_of_y.sum(1)
            # magnitudes of the summands, which may be larger than the sum
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
        """Complete outputs of one structure to outputs of the graph, if possible.

        Decode the structures in turn, with the values of cells fixed that earlier
        structures share. Rows whose structures then agree may improve the best output.
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
        """Replace the best outputs of rows where ``agrees`` and the score is higher."""
        scores = [x.score(y).double() for x, y in zip(active_factors, ys, strict=True)]
        value = torch.stack(scores).sum(0).masked_fill(~agrees, -torch.inf)
        better = value > self.value[rows]
        if not bool(better.any()):
            return
        self.value[rows[better]] = value[better]
        for best, y in zip(self.y, ys, strict=True):
            best[rows[better]] = y[better]


def _max_abs_per_row(x: Tensor) -> Tensor:
    """Largest magnitude in each row of ``x (batch, n)``; 0 if n = 0."""
    return torch.nn.functional.pad(x.abs(), (0, 1)).amax(1)
