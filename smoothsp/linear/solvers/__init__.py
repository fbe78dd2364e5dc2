"""Solvers of linear structured SVMs, each with a certificate where it has one."""

from smoothsp.linear.engines.run_monitor import Tolerance
from smoothsp.linear.engines.runner import Solver, solve
from smoothsp.linear.engines.solution import Certificate, Solution
from smoothsp.linear.solvers.accelerated.agm import AGM
from smoothsp.linear.solvers.accelerated.minimise import (
    Minimum,
    Prox,
    minimise_composite,
)
from smoothsp.linear.solvers.accelerated.pragam import Pragam
from smoothsp.linear.solvers.accelerated.prox_terms import (
    CappedSimplex,
    ElasticNet,
    ElasticNetBall,
)
from smoothsp.linear.solvers.bcfw import BCFW
from smoothsp.linear.solvers.casimir import CasimirSVRG
from smoothsp.linear.solvers.coordinate_descent import CoordinateDescent
from smoothsp.linear.solvers.cutting_planes.bmrm import BMRM
from smoothsp.linear.solvers.frank_wolfe import BatchFrankWolfe
from smoothsp.linear.solvers.gap_diagnostics import nonuniformity, staleness
from smoothsp.linear.solvers.grid_search import GRID, grid_search
from smoothsp.linear.solvers.lbfgs import LBFGS
from smoothsp.linear.solvers.path.regularisation_path import RegularisationPath
from smoothsp.linear.solvers.path.solution import (
    GridSolution,
    PathPoint,
    PathSolution,
)
from smoothsp.linear.solvers.sdca import SDCA
from smoothsp.linear.solvers.sgd import SGD
from smoothsp.linear.solvers.svrg import SVRG

# Deprecated alias of Certificate.
Record = Certificate

__all__ = [
    "AGM",
    "BCFW",
    "BMRM",
    "GRID",
    "LBFGS",
    "SDCA",
    "SGD",
    "SVRG",
    "BatchFrankWolfe",
    "CappedSimplex",
    "CasimirSVRG",
    "CoordinateDescent",
    "ElasticNet",
    "ElasticNetBall",
    "GridSolution",
    "Minimum",
    "PathPoint",
    "PathSolution",
    "Pragam",
    "Prox",
    "Record",
    "RegularisationPath",
    "Solution",
    "Solver",
    "Tolerance",
    "grid_search",
    "minimise_composite",
    "nonuniformity",
    "solve",
    "staleness",
]
