"""The same models, by way of PySDD."""

import functools

from pysdd.sdd import SddManager

from smoothsp.oracles import Formula
from tests.truth.circuits.formula import CLAUSES, VARIABLES
from tests.truth.circuits.formula import case as case_of_clauses


def sdd(clauses, variables):
    """The node of a conjunction of clauses, with a manager of its own."""
    manager = SddManager(var_count=variables)
    node = manager.true()
    for clause in clauses:
        node &= functools.reduce(lambda a, b: a | b, map(manager.literal, clause))
    return node


def case(generator):
    return case_of_clauses(generator, Formula.from_sdd(sdd(CLAUSES, VARIABLES)))
