"""Models of clauses: all assignments that make every clause true."""

import torch

from smoothsp.oracles import Formula
from tests.truth.circuits.cases import Case, strings

# The third variable is 1, the last one is free.
CLAUSES = [[1, -2, 4], [3], [-1, -4], [2, 4, 5, -3], [-2, -5]]
VARIABLES = 6


def models(clauses, variables):
    """All assignments, 0 or 1 for each variable, under which each clause holds."""
    return [
        y
        for y in strings(2, variables)
        if all(any(y[abs(x) - 1] == (x > 0) for x in clause) for clause in clauses)
    ]


def case(generator, formula=None):
    formula = formula or Formula.from_clauses(CLAUSES, VARIABLES)
    outputs = [torch.tensor(y) for y in models(CLAUSES, VARIABLES)]
    return Case(
        lambda scores: formula(scores),
        {"scores": torch.zeros(2, VARIABLES, 2).double()},
        [outputs, outputs],
        lambda b, y: [("scores", (b, v, value)) for v, value in enumerate(y.tolist())],
    )
