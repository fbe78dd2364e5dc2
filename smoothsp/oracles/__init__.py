"""Structures with exact inference, and the classes to write your own."""

from smoothsp.oracles._circuits import Circuit, CircuitStructure, topology
from smoothsp.oracles.alignment import Alignment
from smoothsp.oracles.approximate.alpha_expansion import approximate_by_alpha_expansion
from smoothsp.oracles.approximate.dual_decomposition import (
    approximate_by_dual_decomposition,
)
from smoothsp.oracles.box_search import BoxSearch
from smoothsp.oracles.chain import Chain
from smoothsp.oracles.ctc import CTC
from smoothsp.oracles.factor_graph import FactorGraph
from smoothsp.oracles.formula import Formula, Models
from smoothsp.oracles.grammar import Grammar
from smoothsp.oracles.graphs.binary_graph import BinaryGraph
from smoothsp.oracles.graphs.lattice import Lattice
from smoothsp.oracles.graphs.loopy_graph import LoopyGraph
from smoothsp.oracles.graphs.shortest_path import ShortestPath
from smoothsp.oracles.graphs.tree import Tree
from smoothsp.oracles.integer_program import IntegerProgram
from smoothsp.oracles.knapsack import Knapsack
from smoothsp.oracles.labelled_spanning_tree import LabelledSpanningTree
from smoothsp.oracles.matching import Matching
from smoothsp.oracles.multiclass import Multiclass
from smoothsp.oracles.pictorial_structure import PictorialStructure
from smoothsp.oracles.plackett_luce import PlackettLuce
from smoothsp.oracles.projective import ProjectiveDependencies
from smoothsp.oracles.protocols import (
    PartialStructure,
    Structure,
    Summed,
    SumStructure,
    TopKStructure,
)
from smoothsp.oracles.regular_chain import RegularChain, RegularLanguage
from smoothsp.oracles.second_order_chain import SecondOrderChain
from smoothsp.oracles.semi_markov import SemiMarkov
from smoothsp.oracles.sibling_dependencies import SiblingDependencies
from smoothsp.oracles.span_tree import SpanTree
from smoothsp.oracles.spanning_tree import SpanningTree
from smoothsp.oracles.sparse_map import SparseMAP
from smoothsp.oracles.subset import Subset
from smoothsp.oracles.undirected_spanning_tree import UndirectedSpanningTree
from smoothsp.oracles.warping import Warping

__all__ = [
    "CTC",
    "Alignment",
    "BinaryGraph",
    "BoxSearch",
    "Chain",
    "Circuit",
    "CircuitStructure",
    "FactorGraph",
    "Formula",
    "Grammar",
    "IntegerProgram",
    "Knapsack",
    "LabelledSpanningTree",
    "Lattice",
    "LoopyGraph",
    "Matching",
    "Models",
    "Multiclass",
    "PartialStructure",
    "PictorialStructure",
    "PlackettLuce",
    "ProjectiveDependencies",
    "RegularChain",
    "RegularLanguage",
    "SecondOrderChain",
    "SemiMarkov",
    "ShortestPath",
    "SiblingDependencies",
    "SpanTree",
    "SpanningTree",
    "SparseMAP",
    "Structure",
    "Subset",
    "SumStructure",
    "Summed",
    "TopKStructure",
    "Tree",
    "UndirectedSpanningTree",
    "Warping",
    "approximate_by_alpha_expansion",
    "approximate_by_dual_decomposition",
    "topology",
]
