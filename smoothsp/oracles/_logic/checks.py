"""Checks that a formula is decomposable and deterministic."""

import numpy as np
from numpy.typing import NDArray

from smoothsp.oracles._logic.nnf import AND, NNF, OR, set_bits

# Maximum number of variables for which all assignments are enumerated: 2^16 bits for
# each node.
MAX_ENUMERATED = 16


def check_decomposable(nnf: NNF, scopes: list[int]) -> None:
    """Raise ValueError unless the children of each conjunction share no variable."""
    for node in nnf.descendants(nnf.root):
        kind, children = nnf.nodes[node]
        if kind != AND:
            continue
        seen = 0
        for child in children:
            if both := seen & scopes[child]:
                raise ValueError(
                    "formula: expected decomposable conjunctions, got one with "
                    f"variable {1 + set_bits(both)[0]} in two parts; compile it to "
                    "d-DNNF"
                )
            seen |= scopes[child]


def check_deterministic(nnf: NNF, scopes: list[int]) -> None:
    """Raise ValueError unless the children of each disjunction exclude each other.

    Contradictory implied literals decide for branches on a variable, comparing children
    recursively for SDDs. Otherwise all assignments to up to 16 variables are tried.
    """
    implied = _implied_literals(nnf)
    for node in nnf.descendants(nnf.root):
        kind, children = nnf.nodes[node]
        if kind != OR:
            continue
        for i, left in enumerate(children):
            for right in children[:i]:
                if _is_contradictory_pair(nnf, implied, left, right, {}):
                    continue
                variables = set_bits(scopes[left] | scopes[right])
                if len(variables) > MAX_ENUMERATED:
                    raise ValueError(
                        "formula: expected deterministic disjunctions, got one over "
                        f"{len(variables)} variables for which this is not decided "
                        f"(more than {MAX_ENUMERATED}, and no literal decides it); "
                        "compile it to d-DNNF"
                    )
                model = _find_common_model(nnf, left, right, variables)
                if model is not None:
                    raise ValueError(
                        "formula: expected deterministic disjunctions, got one of "
                        f"which two parts hold in the model {model}; compile it to "
                        "d-DNNF"
                    )


def _implied_literals(nnf: NNF) -> list[tuple[int, int]]:
    """Literals implied by each node, as bits of variables: (positive, negative)."""
    implied: list[tuple[int, int]] = []
    for kind, children in nnf.nodes:
        if kind == AND:
            positive = negative = 0
            for child in children:
                positive |= implied[child][0]
                negative |= implied[child][1]
        elif kind == OR:
            positive = negative = -1  # FALSE has no children and implies all literals
            for child in children:
                positive &= implied[child][0]
                negative &= implied[child][1]
        else:
            bit = 1 << (abs(children[0]) - 1)
            positive, negative = (bit, 0) if children[0] > 0 else (0, bit)
        implied.append((positive, negative))
    return implied


def _is_contradictory_pair(
    nnf: NNF,
    implied: list[tuple[int, int]],
    left: int,
    right: int,
    cache: dict[tuple[int, int], bool],
) -> bool:
    """Return True if two nodes are shown to have no model in common.

    Sufficient, not necessary: a conjunction contradicts if one child does, a
    disjunction if all children do. For SDDs over one vtree this is exact.
    """
    (p, n), (q, m) = implied[left], implied[right]
    if p & m or n & q:
        return True
    key = (min(left, right), max(left, right))
    if key in cache:
        return cache[key]
    # set before the recursion, which visits each pair once
    cache[key] = False
    for node, second in ((left, right), (right, left)):
        kind, children = nnf.nodes[node]
        if kind not in (AND, OR):
            continue
        conflicts = (
            _is_contradictory_pair(nnf, implied, x, second, cache) for x in children
        )
        if any(conflicts) if kind == AND else all(conflicts):
            cache[key] = True
            break
    return cache[key]


def _find_common_model(
    nnf: NNF, left: int, right: int, variables: list[int]
) -> list[int] | None:
    """Return a common model as literals, or None, by enumerating assignments."""
    n = len(variables)
    # row r assigns bit i of r to variable i: all 2^n rows are evaluated at once
    bits = np.arange(2**n)[:, None] >> np.arange(n) & 1 == 1
    column_of_variable = {v: i for i, v in enumerate(variables)}
    truth: dict[int, NDArray[np.bool_]] = {}
    for node in nnf.descendants(left, right):
        kind, children = nnf.nodes[node]
        if kind in (AND, OR):
            combine = np.logical_and if kind == AND else np.logical_or
            start = np.full(2**n, kind == AND)
            truth[node] = combine.reduce([start, *(truth[x] for x in children)])
        else:
            column = bits[:, column_of_variable[abs(children[0]) - 1]]
            truth[node] = column if children[0] > 0 else ~column
    both = np.flatnonzero(truth[left] & truth[right])
    if not len(both):
        return None
    row = bits[both[0]]
    return [1 + v if row[i] else -1 - v for i, v in enumerate(variables)]
