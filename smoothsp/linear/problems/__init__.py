"""Problems: examples, features, costs, and an oracle for the worst output.

Any problem can be solved by any of ``smoothsp.linear.solvers``.
"""

from smoothsp.linear.problems.batch import BatchProblem
from smoothsp.linear.problems.binary import BinaryProblem
from smoothsp.linear.problems.boosting import LPBoostProblem
from smoothsp.linear.problems.callback import (
    CallbackProblem,
    Corner,
    LinearProblem,
    TopKLinearProblem,
)
from smoothsp.linear.problems.chain import ChainProblem
from smoothsp.linear.problems.f1 import F1Problem
from smoothsp.linear.problems.hashed_chain import HashedChainProblem
from smoothsp.linear.problems.least_squares import LeastSquaresProblem
from smoothsp.linear.problems.lower_bound import LowerBoundProblem
from smoothsp.linear.problems.multiclass import MulticlassProblem
from smoothsp.linear.problems.partitioned import PartitionedProblem
from smoothsp.linear.problems.potentials import Batch, Parts, Shared
from smoothsp.linear.problems.roc_area import ROCAreaProblem
from smoothsp.linear.problems.structure import StructureProblem

__all__ = [
    "Batch",
    "BatchProblem",
    "BinaryProblem",
    "CallbackProblem",
    "ChainProblem",
    "Corner",
    "F1Problem",
    "HashedChainProblem",
    "LPBoostProblem",
    "LeastSquaresProblem",
    "LinearProblem",
    "LowerBoundProblem",
    "MulticlassProblem",
    "PartitionedProblem",
    "Parts",
    "ROCAreaProblem",
    "Shared",
    "StructureProblem",
    "TopKLinearProblem",
]
