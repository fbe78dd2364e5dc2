"""A deterministic and decomposable sentence as a circuit: smoothed, then item by item.

Smooth sentences set every variable in every model, by exactly one literal.
"""

from collections import defaultdict

import numpy as np

from smoothsp.oracles._circuits import Circuit, Items
from smoothsp.oracles._logic.nnf import AND, NNF, OR, variables_of

Product = tuple[int, int]


def smooth(sentence: NNF, variables: int) -> NNF:
    """Smooth the circuit: add both values of variables that a part does not mention."""
    found = NNF()
    scopes = sentence.scopes()
    whole = (1 << variables) - 1
    moved: dict[int, int] = {}
    free: dict[int, int] = {}
    for node in sentence.below(sentence.root):
        kind, children = sentence.nodes[node]
        if kind == AND:
            moved[node] = found.conjoin(moved[x] for x in children)
        elif kind == OR:
            ways = []
            for x in children:
                rest = _either(found, scopes[node] & ~scopes[x], free)
                ways.append(found.conjoin([moved[x], rest]))
            moved[node] = found.disjoin(ways)
        else:
            moved[node] = found.literal(children[0])
    rest = _either(found, whole & ~scopes[sentence.root], free)
    found.root = found.conjoin([moved[sentence.root], rest])
    return found


def _either(sentence: NNF, bits: int, known: dict[int, int]) -> int:
    """Any values of such variables: half of them and the other half."""
    if bits not in known:
        several = variables_of(bits)
        if len(several) < 2:
            literals = [(1 + v, -1 - v) for v in several]
            halves = [sentence.disjoin(map(sentence.literal, x)) for x in literals]
        else:
            first = sum(1 << v for v in several[: len(several) // 2])
            halves = [_either(sentence, x, known) for x in (first, bits & ~first)]
        known[bits] = sentence.conjoin(halves)
    return known[bits]


def count_models(sentence: NNF) -> int:
    """Number of models of a smooth, deterministic, decomposable circuit."""
    counts: dict[int, int] = {}
    for node in sentence.below(sentence.root):
        kind, children = sentence.nodes[node]
        if kind == AND:
            counts[node] = 1
            for x in children:
                counts[node] *= counts[x]
        elif kind == OR:
            counts[node] = sum(counts[x] for x in children)
        else:
            counts[node] = 1
    return counts[sentence.root]


def sentence_circuit(sentence: NNF, variables: int) -> tuple[Circuit, Items]:
    """Disjunctions are sums, conjunctions products, literals potentials; if smooth."""
    c = Circuit()
    leaf = c.leaves(variables, 2)
    c.label(leaf, np.arange(variables)[:, None], np.arange(2))
    definitions = _Definitions(sentence, leaf)
    chart = c.chart(len(definitions.products))
    # those of one depth and as many products are one call
    alike = defaultdict(list)
    for k, products in enumerate(definitions.products):
        alike[definitions.depth[chart[k]], len(products)].append(k)
    for group in sorted(alike):
        several = alike[group]
        factors = np.array([definitions.products[k] for k in several], np.int32)
        c.define(chart[several], (factors[..., 0], factors[..., 1]))
    return c, np.array([definitions.root], np.int32)


class _Definitions:
    """Items as sums of products of two, numbered as the circuit does after its leaves.

    A conjunction that only stands in disjunctions is a product there, and no item. The
    parts of one are multiplied by halves of the range of variables, of halves, and so
    on, so that conjunctions which agree on such a range share its product.
    """

    def __init__(self, sentence: NNF, leaf: Items) -> None:
        self.products: list[list[Product]] = []
        self.depth: dict[int, int] = defaultdict(int)
        self._first = 1 + leaf.size
        self._product: dict[int, Product] = {}
        self._joined: dict[tuple[int, ...], int] = {}
        self._item = item = dict[int, int]()
        self._lowest = [(x & -x).bit_length() - 1 for x in sentence.scopes()]
        needed = sentence.below(sentence.root)
        own = {sentence.root}
        for node in needed:
            if sentence.nodes[node][0] == AND:
                own.update(sentence.nodes[node][1])
        for node in needed:
            kind, children = sentence.nodes[node]
            if kind == OR:
                ways = [
                    self._product.get(x) or (item[x], Circuit.ONE) for x in children
                ]
                item[node] = self._define(ways)
            elif kind == AND and not children:
                item[node] = Circuit.ONE
            elif kind == AND:
                parts = tuple(sorted(children, key=self._lowest.__getitem__))
                self._product[node] = self._halves(parts)
                if node in own:
                    item[node] = self._all(parts)
            else:
                literal = children[0]
                item[node] = int(leaf[abs(literal) - 1, int(literal > 0)])
        self.root = item[sentence.root]

    def _halves(self, parts: tuple[int, ...]) -> Product:
        """Both factors of a product of parts, which stand in the order of variables."""
        variables = [self._lowest[x] for x in parts]
        bit = (variables[0] ^ variables[-1]).bit_length() - 1
        middle = variables[-1] >> bit << bit
        below = sum(v < middle for v in variables)
        return self._all(parts[:below]), self._all(parts[below:])

    def _all(self, parts: tuple[int, ...]) -> int:
        """The item of a product of parts."""
        if len(parts) == 1:
            return self._item[parts[0]]
        if parts not in self._joined:
            self._joined[parts] = self._define([self._halves(parts)])
        return self._joined[parts]

    def _define(self, products: list[Product]) -> int:
        found = self._first + len(self.products)
        self.products.append(products)
        self.depth[found] = 1 + max(self.depth[x] for both in products for x in both)
        return found
