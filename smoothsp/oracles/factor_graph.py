"""Factor graphs of structures: certified maxima, and LP relaxations."""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from smoothsp.oracles._chain.warm_mixtures import ChainMixtures
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.parts import (
    part_counts,
    require_additive_cost,
    score_outputs,
)
from smoothsp.oracles._inference.read_only import ReadOnly
from smoothsp.oracles._inference.tracing import is_eager
from smoothsp.oracles._searches.active_outputs import (
    build_equations,
    stack_block_diagonal,
)
from smoothsp.oracles._searches.consensus import Consensus, Factor
from smoothsp.oracles._searches.mixtures import Mixtures
from smoothsp.oracles._searches.shared_cells import Shared, Variables, build_variables
from smoothsp.oracles.chain import Chain
from smoothsp.oracles.protocols import Structure
from smoothsp.oracles.sparse_map import zeros_with_jvp

NamedOutputs = dict[str, Tensor]
# Residual above which structures that seem to disagree raise an error.
_MAX_DISAGREEMENT = 1e-3
Self = TypeVar("Self", bound="FactorGraph")


class FactorGraph(ReadOnly):
    r"""Structures that share variables: the sum of their scores where they agree.

    .. math:: s(y) = \sum_f s_f(y_f), \quad
        a_f(y_f)_c = a_g(y_g)_d \text{ for shared cells } (f, c), (g, d)

    A cell is an entry of a structure's first potentials in a row, and ``a_f(y_f)`` is
    the indicator of the cells that an output uses. A chain has a cell for each label at
    each position, ``Subset`` one for each element, ``SpanningTree`` one for each arc.
    Both structures of a shared cell may score it; their scores add up.

    Parameters
    ----------
    structures
        Structures of the same batch, by name; any with ``decode``, ``score``,
        ``hamming``, ``augment`` and ``select``, your own included.
    shared
        Entries ``(name, index, name, index)``: entry i of one index and entry i of the
        other name the same variable. An index is int64 ``(k, axes)``, or ``(batch, k,
        axes)`` with -1 for no cell. ``axes`` counts the axes of the first potentials
        without the batch: 2 for a chain, ``(position, label)``. With one axis it is
        left out: ``(k,)`` or ``(batch, k)``. Cells that several entries connect are one
        variable. Cells that are padding in both structures are skipped.
    max_rounds
        Maximum number of rounds, at least 1.
    tol
        Largest disagreement at which a row has converged, > 0; changes of multipliers
        are measured relative to the mean score of shared cells.
    relaxed
        Whether ``decode`` may return the maximum of the relaxation, for losses.
    cost_of
        Name of the structure that ``hamming``, ``augment`` and ``label_counts`` use;
        the first if absent.

    Raises
    ------
    TypeError
        For values that are not structures, indices that are not integers, or under
        ``torch.compile`` and ``torch.func``: the search needs the values.
    ValueError
        For unknown names, structures of different batches, cells that do not exist,
        padding as the partner of a real cell, two cells of one structure that are one
        variable, or no shared cell at all.

    Notes
    -----
    An output is a dict of an output of each structure. The maximum is NP-hard, so there
    are three methods. ``approximate`` returns an output, an upper bound, and whether
    they prove each other. ``decode`` returns the maximum, and raises an error where it
    has no proof. ``relaxed_maximum`` is the maximum over mixtures of outputs that agree
    on shared cells on average, at least the maximum of outputs.

    Each round improves a ``SparseMAP`` mixture of each structure, from the outputs that
    had weight in the last round, by one or two calls of ``decode``. Every few rounds,
    linear equations for these outputs give the relaxed solution if the outputs are
    right, and a bound proves it. A row takes 10 to 60 rounds as a rule, and none if its
    structures agree at once.

    Source: Martins et al., "AD3: Alternating Directions Dual Decomposition for MAP
    Inference in Graphical Models" (2015); Niculae and Martins, "LP-SparseMAP:
    Differentiable Relaxed Optimization for Sparse Structured Prediction" (2020).

    Examples
    --------
    Three words and two labels; label 1 at most once:

    >>> import torch
    >>> from smoothsp.oracles import Chain, FactorGraph, Subset
    >>> emissions = torch.tensor([[[0.0, 2.0], [0.0, 1.0], [0.0, 3.0]]])
    >>> tags = Chain(emissions, torch.zeros(2, 2))
    >>> few = Subset(torch.zeros(1, 3), at_most=1)
    >>> cells = torch.tensor([[0, 1], [1, 1], [2, 1]])  # (position, label)
    >>> shared = [("tags", cells, "few", torch.arange(3))]
    >>> graph = FactorGraph({"tags": tags, "few": few}, shared)
    >>> value, y = graph.decode()
    >>> value.tolist(), y["tags"].tolist(), y["few"].tolist()
    ([3.0], [[0, 0, 1]], [[0, 0, 1]])
    """

    structures: Mapping[str, Structure]
    cost_of: str
    relaxed: bool
    max_rounds: int
    tol: float

    def __init__(
        self,
        structures: Mapping[str, Structure],
        shared: Shared,
        max_rounds: int = 1000,
        tol: float = 1e-9,
        relaxed: bool = False,
        cost_of: str | None = None,
    ) -> None:
        _require_eager()
        self.structures = _checked_structures(structures)
        self.max_rounds = checks.as_positive_int("max_rounds", max_rounds)
        self.tol = checks.as_positive("tol", tol)
        self.relaxed = checks.as_flag("relaxed", relaxed)
        self.cost_of = next(iter(structures)) if cost_of is None else cost_of
        if self.cost_of not in structures:
            names = ", ".join(map(repr, structures))
            raise ValueError(f"cost_of: expected one of {names}, got {cost_of!r}")
        # cost shape and dtype of each structure, which number the cells
        self._cells = {name: _cost_shape_and_dtype(x) for name, x in structures.items()}
        lengths = self.lengths
        shapes = {name: shape for name, (shape, _) in self._cells.items()}
        args = structures, shapes, shared, len(lengths), lengths.device
        self._variables = build_variables(*args)

    def _like(self: Self, structures: Mapping[str, Any], variables: Variables) -> Self:
        """Graph of other structures and variables, not validated again."""
        other: Self = object.__new__(type(self))
        vars(other).update(vars(self), structures=structures, _variables=variables)
        return other

    def _map_potentials(self: Self, change: Any) -> Self:
        changed = {name: change(x) for name, x in self.structures.items()}
        return self._like(changed, self._variables)

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """``(batch,)``: the number of labels of each row of the first structure."""
        return next(iter(self.structures.values())).lengths

    def score(self, y: Mapping[str, Tensor]) -> Float[Tensor, " batch"]:
        """Scores of outputs, ``(batch,)``; -inf where structures disagree.

        Parameters
        ----------
        y
            One output per row of each structure, by name.
        """
        self._require_named_outputs(y)
        # structures may differ in dtype: the first one's is the dtype of the graph
        scores = [x.score(y[name]) for name, x in self.structures.items()]
        total = torch.stack([x.to(scores[0].dtype) for x in scores]).sum(0)
        return total.masked_fill(
            ~self._agrees_on_shared_cells(self._parts(y)), -torch.inf
        )

    def hamming(self, y: Mapping[str, Tensor]) -> Tensor:
        """Hamming cost of the cells of the structure ``cost_of``."""
        self._require_named_outputs(y)
        return self.structures[self.cost_of].hamming(y[self.cost_of])

    def label_counts(self, y: Mapping[str, Tensor]) -> Float[Tensor, "batch label"]:
        """Number of times y uses each label of the structure ``cost_of``."""
        self._require_named_outputs(y)
        return self.structures[self.cost_of].label_counts(y[self.cost_of])

    def augment(self: Self, cost: Tensor) -> Self:
        """Return the graph with a cost added to the structure ``cost_of``."""
        name = self.cost_of
        changed = {name: self.structures[name].augment(cost)}
        return self._like({**self.structures, **changed}, self._variables)

    def select(self: Self, rows: Tensor) -> Self:
        """Return the graph of the rows selected by bool ``(batch,)`` or int64."""
        selected = {name: x.select(rows) for name, x in self.structures.items()}
        return self._like(selected, self._variables.select(rows))

    def approximate(
        self,
    ) -> tuple[
        Float[Tensor, " batch"],
        NamedOutputs,
        Bool[Tensor, " batch"],
        Float[Tensor, " batch"],
    ]:
        """Find outputs on which the structures agree, and an upper bound of all.

        Returns
        -------
        value
            ``(batch,)``: scores of the outputs, differentiable; -inf where none was
            found.
        y
            By name, ``(batch, ...)`` int64; -1 where none was found.
        exact
            ``(batch,)`` bool: True where value and bound agree up to rounding in the
            dtype of the search: float64 for structures of this library.
        bound
            ``(batch,)`` float64: upper bound of all scores, not differentiable; -inf
            where there is proof that the structures cannot agree.

        Notes
        -----
        Candidates are best outputs of each structure under the current multipliers,
        completed to outputs of the graph. A row without an output ends when its bound
        is below all scores, or after ``max_rounds``.
        """
        search = self._run_consensus(0.0)
        # proof of infeasibility is an exact result as well: bound = value = -inf
        infeasible = search.proven_infeasible
        bound = search.bound.masked_fill(infeasible, -torch.inf)
        return *self._best_outputs(search), search.exact | infeasible, bound

    def decode(self) -> tuple[Float[Tensor, " batch"], NamedOutputs]:
        """Highest score, and an output that attains it.

        With ``relaxed=True`` the value is ``relaxed_maximum()``, and y the best output
        that was found; -1 where none was.

        Raises
        ------
        ValueError
            If a row has no proof, unless ``relaxed=True``; the message names the rows.
            If the structures of a row cannot agree.
        """
        search = self._run_consensus(0.0)
        if self.relaxed:
            return self._relaxed_maximum(search), self._best_outputs(search)[1]
        # an unproven maximum would silently train another objective
        unproven = (~search.exact).nonzero().squeeze(1).tolist()
        if unproven:
            row = unproven[0]
            value, bound = search.value[row].item(), search.bound[row].item()
            row_names = ", ".join(map(str, unproven[:5])) + (
                ", ..." if len(unproven) > 5 else ""
            )
            if value == -torch.inf:
                raise ValueError(
                    f"graph: found no outputs of row {row} on which its structures "
                    f"agree (rows without proof: {row_names}). Allow more outputs, or "
                    "call approximate(), which returns -inf for such rows"
                )
            raise ValueError(
                f"graph: no proof of a best output for {len(unproven)} of "
                f"{len(search.value)} rows: {row_names}; in row {row} the best output "
                f"found scores {value:.6g}, and the bound is {bound - value:.3g} above "
                "it. Call approximate(), which returns both, raise max_rounds "
                f"({self.max_rounds}), or pass relaxed=True to train"
            )
        return self._best_outputs(search)

    def relaxed_maximum(self) -> Float[Tensor, " batch"]:
        """Maximum of the relaxation, at least that of the outputs, ``(batch,)``.

        It is the least bound that was found, and exceeds the maximum of the relaxation
        by about ``tol``. Its gradient is the relaxed solution, in [0, 1].

        Raises
        ------
        ValueError
            If the structures of a row cannot agree.
        """
        return self._relaxed_maximum(self._run_consensus(0.0))

    def _relaxed_mixture(self, gamma: float) -> "RelaxedMixture":
        """Solve LP-SparseMAP with strength gamma; return its mixture."""
        search = self._run_consensus(gamma)
        _require_agreement(search)
        return RelaxedMixture(self, search, gamma)

    def _run_consensus(self, gamma: float) -> Consensus:
        """Run the search without gradients, with regularisation strength gamma."""
        _require_eager()
        with torch.no_grad():
            factors = [
                _build_factor(x, *self._cells[name])
                for name, x in self.structures.items()
            ]
            settings = self._variables, gamma, self.max_rounds, self.tol
            search = Consensus(factors, *settings)
            search.run()
        return search

    def _best_outputs(self, search: Consensus) -> tuple[Tensor, NamedOutputs]:
        """Differentiable scores of the best outputs, and the outputs by name."""
        # value of rows without an output is -inf, and y is -1
        has_none = search.value == -torch.inf
        value, y = self._sum_scores(search.y), {}
        for name, best in zip(self.structures, search.y, strict=True):
            mask = has_none.reshape(-1, *[1] * (best.dim() - 1))
            y[name] = best.masked_fill(mask, -1)
        return value.masked_fill(has_none, -torch.inf), y

    def _sum_scores(self, ys: list[Tensor]) -> Tensor:
        """Sum ``(batch,)`` of the structures' scores of ``ys``, in the first dtype."""
        pairs = zip(self.structures.values(), ys, strict=True)
        scores = [x.score(y) for x, y in pairs]
        return torch.stack([x.to(scores[0].dtype) for x in scores]).sum(0)

    def _relaxed_maximum(self, search: Consensus) -> Tensor:
        """The bound, with the gradient of the mixture, or of the output if exact."""
        _require_agreement(search)
        exact = search.exact
        # the carrier has the gradient; its value is replaced by the bound at the end
        carrier = self._sum_scores(search.y)
        if not bool(exact.all()):
            # by the envelope theorem the gradient is that of the mixture's score
            mixture_scores = torch.zeros_like(carrier)
            for x, mixture in zip(
                self.structures.values(), search.mixtures, strict=True
            ):
                outputs, weights, _, _ = mixture.result()
                scores = score_outputs(x, outputs).value
                mixture_scores = mixture_scores + (scores * weights.to(scores)).sum(
                    1
                ).to(mixture_scores)
            carrier = torch.where(exact, carrier, mixture_scores)
        maximum = torch.where(exact, search.value, search.bound).to(carrier)
        return maximum + (carrier - carrier.detach())

    def _parts(self, y: Mapping[str, Tensor]) -> Tensor:
        """Number of uses of each cell, ``(batch, cells)`` float64, all structures."""
        used = [part_counts(x, y[n]).flatten(1) for n, x in self.structures.items()]
        return torch.cat([x.double() for x in used], 1)

    def _agrees_on_shared_cells(self, parts: Tensor) -> Tensor:
        return (self._variables.mean(parts) == parts).all(1)

    def _squared_norms_of_variables(self, y: Mapping[str, Tensor]) -> Tensor:
        """Squared norm ``(batch,)`` of the indicator of an output's variables."""
        # each variable is counted once, though several structures have it
        return (self._parts(y).square() / self._variables.num_structures).sum(1)

    def _require_named_outputs(self, y: object) -> None:
        """Raise ValueError unless y is a dict with an output of each structure."""
        if not isinstance(y, Mapping) or set(y) != set(self.structures):
            names = ", ".join(map(repr, self.structures))
            got = sorted(y) if isinstance(y, Mapping) else type(y).__name__
            raise ValueError(f"y: expected a dict of outputs of {names}, got {got}")

    def __repr__(self) -> str:
        fields = ", ".join(f"{n}={x!r}" for n, x in self.structures.items())
        return f"FactorGraph({fields})"


class RelaxedMixture:
    """Mixtures of each structure that agree on shared cells, with derivatives.

    Parameters
    ----------
    graph
        The graph.
    search
        Finished search with regularisation strength gamma.
    gamma
        Strength of the regularisation.
    """

    def __init__(self, graph: FactorGraph, search: Consensus, gamma: float) -> None:
        self._variables, self._gamma = graph._variables, gamma
        self._shapes = {name: shape for name, (shape, _) in graph._cells.items()}
        self.residual = search.residual
        results = [mixture.result() for mixture in search.mixtures]
        self._parts = [x[2].flatten(2) for x in results]
        self._sizes = [x[1].shape[1] for x in results]
        self._fixed_weights = torch.cat([x[1] for x in results], 1)
        scores = [
            score_outputs(x, outputs).value
            for x, (outputs, *_) in zip(graph.structures.values(), results, strict=True)
        ]
        self._scores = torch.cat([x.to(scores[0].dtype) for x in scores], 1)
        # values of the search, derivatives of the linear equations at the solution
        tangents = zeros_with_jvp(self, self._scores)
        self._weights = self._fixed_weights.to(self._scores) + tangents
        self._derivatives: list[np.ndarray[Any, Any]] | None = None
        with torch.no_grad():
            # weak duality: the bound less the primal value is at least 0
            value = self._regularised_value(self._fixed_weights, self._scores.double())
            self.gap = (search.bound - value).clamp(min=0)

    def marginals(self) -> NamedOutputs:
        """Marginal of each cell, by structure; shared cells have the mean."""
        means = self._variables.mean(self._mixture_cells(self._weights))
        cells = self._variables.split(means)
        return {
            name: x.reshape(len(x), *shape)
            for (name, shape), x in zip(self._shapes.items(), cells, strict=True)
        }

    def maximum(self) -> Tensor:
        """Regularised maximum of the relaxation, ``(batch,)``."""
        return self._regularised_value(self._weights, self._scores)

    def _regularised_value(self, weights: Tensor, scores: Tensor) -> Tensor:
        """Objective ``p' s - gamma / 2 |u|^2`` at the weights p, ``(batch,)``."""
        # u has a value in each cell: divide by delta to count each variable once
        u = self._variables.mean(self._mixture_cells(weights))
        squared_cells = u.square() / self._variables.num_structures.to(u)
        return (weights * scores).sum(1) - self._gamma / 2 * squared_cells.sum(1)

    def _mixture_cells(self, weights: Tensor) -> Tensor:
        """Marginal of each cell in the mixture of its structure, ``(batch, cells)``."""
        pairs = zip(torch.split(weights, self._sizes, 1), self._parts, strict=True)
        marginals = [(w.unsqueeze(2) * parts.to(w)).sum(1) for w, parts in pairs]
        return torch.cat(marginals, 1)

    def weights_jvp(self, scores: Tensor) -> Tensor:
        """Jacobian of the weights times tangents of the scores, ``(batch, K)``."""
        if not bool(scores.any()):
            return torch.zeros_like(scores)
        # factorised once, for all tangents of a backward pass
        if self._derivatives is None:
            self._derivatives = [
                self._weights_derivative(row) for row in range(len(scores))
            ]
        tangents = scores.detach().cpu().double().numpy()
        weight_tangents = np.zeros(tangents.shape)
        # inactive outputs keep weight 0 within the linear piece
        for row, derivative in enumerate(self._derivatives):
            is_active = self._fixed_weights[row].cpu().numpy() > 0
            weight_tangents[row, is_active] = derivative @ tangents[row, is_active]
        return torch.from_numpy(weight_tangents).to(scores)

    def _weights_derivative(self, row: int) -> np.ndarray[Any, Any]:
        """Jacobian ``dp / ds`` of the active outputs of a row, ``(K, K)``."""
        weights = torch.split(self._fixed_weights[row], self._sizes)
        parts = [
            x[row][w > 0].double().cpu().numpy()
            for x, w in zip(self._parts, weights, strict=True)
        ]
        structure_of_output = np.repeat(np.arange(len(parts)), [len(x) for x in parts])
        variables = (
            self._variables.variable_of_cell[row],
            self._variables.num_structures[row],
        )
        arrays = [x.cpu().numpy() for x in variables]
        return build_equations(
            stack_block_diagonal(parts), structure_of_output, *arrays
        ).derivative(self._gamma)


def _require_eager() -> None:
    if not is_eager():
        raise TypeError(
            "structures: FactorGraph needs values, which torch.compile and torch.func "
            "do not provide; call it outside of them"
        )


def _require_agreement(search: Consensus) -> None:
    """Raise ValueError for rows without a relaxed solution.

    A bound that rests on a guess must be confirmed by a large residual.
    """
    is_apart = search.cannot_agree & (search.residual > _MAX_DISAGREEMENT)
    failed_rows = (is_apart | search.proven_infeasible).nonzero().squeeze(1).tolist()
    if failed_rows:
        raise ValueError(
            f"graph: found no relaxed solution of row {failed_rows[0]}: no mixtures of "
            "its structures' outputs agree on shared cells. Allow more outputs, or "
            "call approximate(), which returns -inf for such rows"
        )


def _checked_structures(structures: object) -> dict[str, Any]:
    """Validate the structures: a dict of one batch, with additive costs."""
    if not isinstance(structures, Mapping) or not structures:
        raise TypeError(
            "structures: expected a dict of structures by name, got "
            f"{type(structures).__name__}"
        )
    sizes = {}
    for name, x in structures.items():
        if isinstance(x, FactorGraph):
            raise TypeError(
                f"structures[{name!r}]: expected a structure, got a FactorGraph; pass "
                "its structures and shared cells"
            )
        if not hasattr(x, "decode"):
            raise TypeError(
                f"structures[{name!r}]: expected a structure, got {type(x).__name__}"
            )
        require_additive_cost(x)
        sizes[name] = len(x.lengths)
    if len(set(sizes.values())) > 1:
        raise ValueError(f"structures: expected one batch, got rows {sizes}")
    return dict(structures)


def _cost_shape_and_dtype(structure: Any) -> tuple[torch.Size, torch.dtype]:
    """Shape and dtype of a cost of one row, in the search."""
    potentials = getattr(structure, "_first_potentials", None)
    if potentials is not None and hasattr(structure, "_map_potentials"):
        return potentials.shape[1:], torch.float64
    # a user-defined structure shows the shape only in a cost
    with torch.no_grad():
        cost = structure.hamming(structure.decode()[1])
    return cost.shape[1:], cost.dtype


def _build_factor(structure: Any, shape: torch.Size, dtype: torch.dtype) -> Factor:
    """Wrap a structure, in float64 and detached if the library defines it."""
    mixtures_class: Any = Mixtures
    # float64, so that bounds and scores can prove each other
    if hasattr(structure, "_map_potentials"):
        structure = structure._map_potentials(lambda x: x.detach().double())
    # a subclass of Chain may override decode, so the type must match exactly
    if type(structure) is Chain and structure._buffers.kernel_ready:
        mixtures_class = ChainMixtures
    return Factor(structure, shape, dtype, mixtures_class)
