"""Compilation of a d-DNNF formula to a sum-product circuit.

The formula is smoothed first: all children of a disjunction then mention the same
variables. So each model uses one literal of every variable, and gets the right score.

Source: Darwiche, "A Differential Approach to Inference in Bayesian Networks" (2003).
"""

from collections import defaultdict

import numpy as np

from smoothsp.oracles._circuits import Circuit, Items
from smoothsp.oracles._logic.nnf import AND, NNF, OR, set_bits

Product = tuple[int, int]


def smooth(nnf: NNF, num_variables: int) -> NNF:
    """Conjoin ``v or not v`` for variables that a disjunct or the root lacks."""
    smoothed = NNF()
    scopes = nnf.scopes()
    all_variables = (1 << num_variables) - 1
    new_node: dict[int, int] = {}
    cache: dict[int, int] = {}
    for node in nnf.descendants(nnf.root):
        kind, children = nnf.nodes[node]
        if kind == AND:
            new_node[node] = smoothed.conjoin(new_node[x] for x in children)
        elif kind == OR:
            disjuncts = []
            for x in children:
                unmentioned = _add_any_assignment(
                    smoothed, scopes[node] & ~scopes[x], cache
                )
                disjuncts.append(smoothed.conjoin([new_node[x], unmentioned]))
            new_node[node] = smoothed.disjoin(disjuncts)
        else:
            new_node[node] = smoothed.literal(children[0])
    unmentioned = _add_any_assignment(
        smoothed, all_variables & ~scopes[nnf.root], cache
    )
    smoothed.root = smoothed.conjoin([new_node[nnf.root], unmentioned])
    return smoothed


def _add_any_assignment(nnf: NNF, scope: int, cache: dict[int, int]) -> int:
    """Conjunction of ``v or not v`` over the variables in ``scope``.

    Split in halves, whose nodes are shared between overlapping scopes.
    """
    if scope not in cache:
        variables = set_bits(scope)
        if len(variables) < 2:
            literals = [(1 + v, -1 - v) for v in variables]
            halves = [nnf.disjoin(map(nnf.literal, x)) for x in literals]
        else:
            first = sum(1 << v for v in variables[: len(variables) // 2])
            halves = [
                _add_any_assignment(nnf, x, cache) for x in (first, scope & ~first)
            ]
        cache[scope] = nnf.conjoin(halves)
    return cache[scope]


def count_models(nnf: NNF) -> int:
    """Number of models of a smooth, deterministic, decomposable formula."""
    # Python integers: counts may exceed any float
    counts: dict[int, int] = {}
    for node in nnf.descendants(nnf.root):
        kind, children = nnf.nodes[node]
        if kind == AND:
            counts[node] = 1
            for x in children:
                counts[node] *= counts[x]
        elif kind == OR:
            counts[node] = sum(counts[x] for x in children)
        else:
            counts[node] = 1
    return counts[nnf.root]


def build_nnf_circuit(nnf: NNF, num_variables: int) -> tuple[Circuit, Items]:
    """Build the circuit of a smooth d-DNNF formula, and its root.

    Disjunctions become sums, conjunctions products, and literals leaves
    ``[variable, value]``.
    """
    c = Circuit()
    # leaf [v, 0] is the score of v = 0, leaf [v, 1] that of v = 1
    leaf = c.leaves(num_variables, 2)
    c.label(leaf, np.arange(num_variables)[:, None], np.arange(2))
    builder = _ItemBuilder(nnf, leaf)
    chart = c.chart(len(builder.products))
    # items of equal depth and number of products are defined by one vectorised call
    by_depth_and_size = defaultdict(list)
    for k, products in enumerate(builder.products):
        by_depth_and_size[builder.depth[chart[k]], len(products)].append(k)
    for group in sorted(by_depth_and_size):
        members = by_depth_and_size[group]
        factors = np.array([builder.products[k] for k in members], np.int32)
        c.define(chart[members], (factors[..., 0], factors[..., 1]))
    return c, np.array([builder.root], np.int32)


class _ItemBuilder:
    """Lists of products that define the items, numbered after the leaves.

    A circuit item is a sum of products of two items. A conjunction below disjunctions
    only is a product in their sums, not an item. Longer conjunctions are split by
    variable ranges (aligned powers of two), recursively, so conjunctions that agree on
    a range share its product.
    """

    def __init__(self, nnf: NNF, leaf: Items) -> None:
        self.products: list[list[Product]] = []
        self.depth: dict[int, int] = defaultdict(int)
        self._first_item = 1 + leaf.size
        self._product: dict[int, Product] = {}
        self._product_items: dict[tuple[int, ...], int] = {}
        self._item = item = dict[int, int]()
        self._lowest_variable = [(x & -x).bit_length() - 1 for x in nnf.scopes()]
        # the root and children of conjunctions are factors, so they must be items
        nodes = nnf.descendants(nnf.root)
        needs_item = {nnf.root}
        for node in nodes:
            if nnf.nodes[node][0] == AND:
                needs_item.update(nnf.nodes[node][1])
        for node in nodes:
            kind, children = nnf.nodes[node]
            if kind == OR:
                products = [
                    self._product.get(x) or (item[x], Circuit.ONE) for x in children
                ]
                item[node] = self._define_sum_of_products(products)
            elif kind == AND and not children:
                item[node] = Circuit.ONE
            elif kind == AND:
                # children have disjoint variables, so the lowest ones order them
                parts = tuple(sorted(children, key=self._lowest_variable.__getitem__))
                self._product[node] = self._split_product(parts)
                if node in needs_item:
                    item[node] = self._product_item(parts)
            else:
                literal = children[0]
                item[node] = int(leaf[abs(literal) - 1, int(literal > 0)])
        self.root = item[nnf.root]

    def _split_product(self, parts: tuple[int, ...]) -> Product:
        """Split parts in order of their variables into the items of two factors."""
        # the highest bit in which the first and last variable differ gives the boundary
        variables = [self._lowest_variable[x] for x in parts]
        bit = (variables[0] ^ variables[-1]).bit_length() - 1
        middle = variables[-1] >> bit << bit
        num_below = sum(v < middle for v in variables)
        return self._product_item(parts[:num_below]), self._product_item(
            parts[num_below:]
        )

    def _product_item(self, parts: tuple[int, ...]) -> int:
        """Item of the product of parts; defined once for each tuple."""
        if len(parts) == 1:
            return self._item[parts[0]]
        if parts not in self._product_items:
            self._product_items[parts] = self._define_sum_of_products(
                [self._split_product(parts)]
            )
        return self._product_items[parts]

    def _define_sum_of_products(self, products: list[Product]) -> int:
        """Return the number of a new item, the sum of the products."""
        item = self._first_item + len(self.products)
        self.products.append(products)
        self.depth[item] = 1 + max(
            self.depth[x] for product in products for x in product
        )
        return item
