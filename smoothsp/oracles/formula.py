"""Propositional formulas: the outputs are the models."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from smoothsp.oracles._circuits import CircuitStructure, Topology
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.in_graphs import ConstantArgument
from smoothsp.oracles._inference.read_only import ReadOnly
from smoothsp.oracles._inference.tracing import is_compiling
from smoothsp.oracles._logic.checks import check_decomposable, check_deterministic
from smoothsp.oracles._logic.circuit import build_nnf_circuit, count_models, smooth
from smoothsp.oracles._logic.cnf import compile_clauses
from smoothsp.oracles._logic.nnf import MAX_VARIABLES, NNF
from smoothsp.oracles._logic.readers import read_nnf, read_sdd


class Formula(ReadOnly, ConstantArgument):
    """A propositional formula, compiled once for many batches of scores.

    Create one with ``from_clauses``, ``from_sdd`` or ``from_nnf``. Variables are
    numbered from 1 in clauses and files, as in DIMACS, and from 0 in scores and
    outputs.

    Attributes
    ----------
    variables
        Number of variables, V.
    count
        Number of models, an exact integer.

    Notes
    -----
    Circuits that are read must be decomposable and deterministic (d-DNNF), which is
    checked. Determinism is proven from literals and children, which always suffices
    where each disjunction branches on a variable. Otherwise all assignments of up to 16
    variables are enumerated. A circuit whose determinism remains unproven raises an
    error. Circuits are smoothed: a variable that a child does not mention may be 0 or
    1.

    Source: Darwiche and Marquis, "A Knowledge Compilation Map" (2002), section 2.

    Examples
    --------
    Not both of the first two, and one of the last two:

    >>> import torch
    >>> from smoothsp.oracles import Formula
    >>> formula = Formula.from_clauses([[-1, -2], [2, 3]])
    >>> formula
    Formula(variables=3, count=4)
    >>> scores = torch.zeros(1, 3, 2)  # [row, variable, value]
    >>> scores[0, :2, 1] = torch.tensor([1.0, 2.0])
    >>> value, y = formula(scores).decode()
    >>> value.tolist(), y.tolist()[0][:2]
    ([2.0], [0, 1])
    """

    def __init__(self, sentence: NNF, variables: int) -> None:
        scopes = sentence.scopes()
        # determinism is checked in from_nnf alone: compilers guarantee it elsewhere
        check_decomposable(sentence, scopes)
        smoothed = smooth(sentence, variables)
        self.variables = variables
        # in a smooth deterministic circuit models are counted without repetition
        self.count = count_models(smoothed)
        if not self.count:
            raise ValueError("formula: expected one that has a model, got none")
        self._topology = Topology.from_circuit(*build_nnf_circuit(smoothed, variables))

    @classmethod
    def from_clauses(
        cls,
        clauses: Iterable[Iterable[int]],
        variables: int | None = None,
        *,
        most_nodes: int = 1_000_000,
    ) -> "Formula":
        """Compile clauses in conjunctive normal form (CNF).

        Parameters
        ----------
        clauses
            Lists of literals, of which at least one holds. The literal v means
            "variable v is 1" and -v "variable v is 0", from 1, as in DIMACS files.
        variables
            Number of variables; the largest one mentioned by default.
        most_nodes
            Size at which compilation stops with an error: some formulas have no small
            circuit.

        Raises
        ------
        ValueError
            For an invalid literal, a formula without a model, or a circuit of more than
            ``most_nodes``.

        Notes
        -----
        The search is plain Python and handles hundreds of variables that interact
        little. For harder formulas, run d4 or c2d and read their file with
        ``from_nnf``.
        """
        literals_by_clause = [
            _as_literals(clause) for clause in _require_iterable(clauses)
        ]
        max_variable = max(
            (abs(x) for clause in literals_by_clause for x in clause), default=0
        )
        if variables is None:
            variables = _as_num_variables("clauses", max_variable)
        else:
            variables = _as_num_variables("variables", variables)
        for x in (x for clause in literals_by_clause for x in clause):
            if not 0 < abs(x) <= variables:
                raise ValueError(
                    f"clauses: expected literals from 1 to {variables} or their "
                    f"negatives, got {x}"
                )
        # formulas may need exponentially many nodes: the limit ends the search in time
        checks.as_positive_int("most_nodes", most_nodes)
        return cls(compile_clauses(literals_by_clause, most_nodes), variables)

    @classmethod
    def from_sdd(cls, node: Any) -> "Formula":
        """Convert a ``pysdd.sdd.SddNode``, over all variables of its manager.

        SDDs are deterministic and decomposable by construction. Install PySDD with
        ``pip install "smoothsp[logic]"``; no other method needs it.

        Source: Darwiche, "SDD: A New Canonical Representation of Propositional
        Knowledge Bases" (2011).
        """
        return cls(*read_sdd(node))

    @classmethod
    def from_nnf(cls, path: str | Path, variables: int | None = None) -> "Formula":
        """Read a d-DNNF file in the format of c2d or d4.

        Parameters
        ----------
        path
            Path of the file; its first line determines the format.
        variables
            Number of variables. By default the number in the file's header, or the
            largest variable mentioned. d4 does not mention variables that are free
            everywhere.

        Raises
        ------
        ValueError
            For a line that cannot be parsed, or a circuit that is not decomposable, not
            provably deterministic, or without a model.
        """
        nnf, num_read = read_nnf(path)
        # variables that are free everywhere do not occur in files of d4
        if variables is None:
            variables = num_read
        elif _as_num_variables("variables", variables) < num_read:
            raise ValueError(
                f"variables: expected at least {num_read}, which the file has, got "
                f"{variables}"
            )
        scopes = nnf.scopes()
        check_decomposable(nnf, scopes)
        check_deterministic(nnf, scopes)
        return cls(nnf, variables)

    def __call__(self, scores: Tensor) -> "Models":
        """Return the structure whose outputs are the models, with these scores."""
        return Models(scores, self)

    def __repr__(self) -> str:
        return f"Formula(variables={self.variables}, count={self.count})"


def _require_iterable(clauses: Any) -> Iterable[Any]:
    """Return ``clauses`` if they are iterable and no text; raise TypeError if not."""
    # text is iterable, too, but never a list of clauses
    if isinstance(clauses, str | bytes) or not isinstance(clauses, Iterable):
        raise TypeError(
            f"clauses: expected lists of literals, got {type(clauses).__name__}"
        )
    return clauses


def _as_literals(clause: Any) -> tuple[int, ...]:
    """Return the literals of a clause as Python ints; raise TypeError for others."""
    if isinstance(clause, str | bytes) or not isinstance(clause, Iterable):
        raise TypeError(
            "clauses: expected each to be a list of literals, got "
            f"{type(clause).__name__}"
        )
    literals = tuple(clause)
    for x in literals:
        if isinstance(x, bool) or not isinstance(x, int | np.integer):
            raise TypeError(
                f"clauses: expected literals that are ints, got {type(x).__name__}"
            )
    return tuple(int(x) for x in literals)


def _as_num_variables(name: str, value: Any) -> int:
    """Return ``value`` if it is a valid number of variables; raise otherwise."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: expected an int, got {type(value).__name__}")
    if not 0 <= value <= MAX_VARIABLES:
        raise ValueError(
            f"{name}: expected from 0 to {MAX_VARIABLES} variables, got {value}"
        )
    return value


class Models(CircuitStructure):
    """A batch of scores of variables, whose outputs are the models of a formula.

    The score of a model y is the sum of ``scores[v, y_v]``. A part with score ``-inf``
    is forbidden. Every result is exact, and differentiable in the scores.
    ``formula(scores)`` creates one.

    If scores are log-probabilities of independent bits, ``-log_partition()`` is the
    semantic loss: the negative log-probability that the bits satisfy the formula.

    Parameters
    ----------
    scores
        ``(batch, V, 2)``: variable v being 0, and being 1; float32 or float64; bfloat16
        and float16 are computed in float32.
    formula
        The formula, shared by all rows.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, NaN or +inf in an entry that is read, or a row whose outputs
        are all forbidden. Values are not checked while ``torch.compile`` traces.

    Notes
    -----
    An output is ``(batch, V)``: 0 or 1 for each variable. O(batch size of the compiled
    formula).

    Source: Darwiche, "A Differential Approach to Inference in Bayesian Networks"
    (2003); Xu et al., "A Semantic Loss Function for Deep Learning with Symbolic
    Knowledge" (2018), definition 1.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import Formula
    >>> either = Formula.from_clauses([[1, 2], [-1, -2]])
    >>> either(torch.tensor([[[0.6, 0.4], [0.3, 0.7]]]).log()).log_partition().exp()
    tensor([0.5400])
    """

    scores: Tensor
    _label_counts_width = 2
    output_description = "a model of the formula, 0 or 1 for each variable"

    def __init__(self, scores: Tensor, formula: Formula) -> None:
        scores = checks.as_potentials("scores", scores)
        V = formula.variables
        if scores.dim() != 3 or tuple(scores.shape[1:]) != (V, 2):
            raise ValueError(
                f"scores: expected (batch, variable, 2) = (batch, {V}, 2), got "
                f"{tuple(scores.shape)}"
            )
        self.formula = formula
        built = formula._topology
        super().__init__(
            built,
            {"scores": scores},
            # graphs hold no values of tensors; the root is set when they run
            roots=0 if is_compiling() else int(built.roots[0]),
            lengths=V,
            shape=(V,),
        )
