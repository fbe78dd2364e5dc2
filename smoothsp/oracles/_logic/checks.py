"""Checks that a formula is decomposable and deterministic."""

import numpy as np
from numpy.typing import NDArray

from smoothsp.oracles._logic.nnf import AND, NNF, OR, variables_of

# Variables of which all assignments are tried, if nothing else decides.
MOST_TRIED = 16


def check_decomposable(sentence: NNF, scopes: list[int]) -> None:
    """The parts of a conjunction share no variable."""
    for node in sentence.below(sentence.root):
        kind, children = sentence.nodes[node]
        if kind != AND:
            continue
        seen = 0
        for child in children:
            if both := seen & scopes[child]:
                raise ValueError(
                    "formula: expected decomposable conjunctions, got one with "
                    f"variable {1 + variables_of(both)[0]} in two parts; compile it to "
                    "d-DNNF"
                )
            seen |= scopes[child]


def check_deterministic(sentence: NNF, scopes: list[int]) -> None:
    """No two parts of a disjunction have a model in common.

    Decided by literals that both imply, or by their parts, which is enough for
    decisions on a variable and for SDDs; else by all assignments to up to 16 variables.
    """
    implied = _implied(sentence)
    for node in sentence.below(sentence.root):
        kind, children = sentence.nodes[node]
        if kind != OR:
            continue
        for place, left in enumerate(children):
            for right in children[:place]:
                if _conflict(sentence, implied, left, right, {}):
                    continue
                several = variables_of(scopes[left] | scopes[right])
                if len(several) > MOST_TRIED:
                    raise ValueError(
                        "formula: expected deterministic disjunctions, got one over "
                        f"{len(several)} variables for which this is not decided (more "
                        f"than {MOST_TRIED}, and no literal decides it); compile it to "
                        "d-DNNF"
                    )
                found = _common_model(sentence, left, right, several)
                if found is not None:
                    raise ValueError(
                        "formula: expected deterministic disjunctions, got one of "
                        f"which two parts hold in the model {found}; compile it to "
                        "d-DNNF"
                    )


def _implied(sentence: NNF) -> list[tuple[int, int]]:
    """Literals that hold in all models of a node, positive and negative, as bits."""
    found: list[tuple[int, int]] = []
    for kind, children in sentence.nodes:
        if kind == AND:
            positive = negative = 0
            for child in children:
                positive |= found[child][0]
                negative |= found[child][1]
        elif kind == OR:
            positive = negative = -1  # of no parts: everything
            for child in children:
                positive &= found[child][0]
                negative &= found[child][1]
        else:
            bit = 1 << (abs(children[0]) - 1)
            positive, negative = (bit, 0) if children[0] > 0 else (0, bit)
        found.append((positive, negative))
    return found


def _conflict(
    sentence: NNF,
    implied: list[tuple[int, int]],
    left: int,
    right: int,
    known: dict[tuple[int, int], bool],
) -> bool:
    """Whether two nodes surely have no model in common.

    Where both are conjunctions over the same split of the variables, as in SDDs, they
    have one if and only if their parts have.
    """
    (p, n), (q, m) = implied[left], implied[right]
    if p & m or n & q:
        return True
    key = (min(left, right), max(left, right))
    if key in known:
        return known[key]
    known[key] = False
    for one, other in ((left, right), (right, left)):
        kind, children = sentence.nodes[one]
        if kind not in (AND, OR):
            continue
        apart = (_conflict(sentence, implied, x, other, known) for x in children)
        if any(apart) if kind == AND else all(apart):
            known[key] = True
            break
    return known[key]


def _common_model(
    sentence: NNF, left: int, right: int, variables: list[int]
) -> list[int] | None:
    """A model of both as literals, by trying all assignments."""
    n = len(variables)
    bits = np.arange(2**n)[:, None] >> np.arange(n) & 1 == 1
    place = {v: i for i, v in enumerate(variables)}
    truth: dict[int, NDArray[np.bool_]] = {}
    for node in sentence.below(left, right):
        kind, children = sentence.nodes[node]
        if kind in (AND, OR):
            join = np.logical_and if kind == AND else np.logical_or
            start = np.full(2**n, kind == AND)
            truth[node] = join.reduce([start, *(truth[x] for x in children)])
        else:
            column = bits[:, place[abs(children[0]) - 1]]
            truth[node] = column if children[0] > 0 else ~column
    both = np.flatnonzero(truth[left] & truth[right])
    if not len(both):
        return None
    row = bits[both[0]]
    return [1 + v if row[i] else -1 - v for i, v in enumerate(variables)]
