"""Formulas in negation normal form: literals, conjunctions and disjunctions."""

from collections.abc import Iterable

AND, OR = "and", "or"
# The scope of each node has one bit for each variable.
MAX_VARIABLES = 1_000_000
Node = tuple[str, tuple[int, ...]]


class NNF:
    """A DAG of hash-consed nodes, children before parents, and its root.

    Nodes are integers. A literal is 1 + v or -(1 + v) for variable v. Equal nodes get
    the same number; constants and single children are simplified.

    Examples
    --------
    >>> from smoothsp.oracles._logic.nnf import NNF
    >>> sentence = NNF()
    >>> one, none = sentence.literal(1), sentence.literal(-1)
    >>> sentence.root = sentence.disjoin([one, sentence.conjoin([none, one, 0])])
    >>> sentence.nodes[sentence.root]
    ('or', (2, 4))
    """

    TRUE, FALSE = 0, 1

    def __init__(self) -> None:
        self.nodes: list[Node] = [(AND, ()), (OR, ())]
        self.root = self.TRUE
        self._ids: dict[Node, int] = {}

    def literal(self, literal: int) -> int:
        """Node of a literal: variable ``|literal| - 1`` is 1 (> 0) or 0 (< 0)."""
        return self._add_node(("literal", (literal,)))

    def conjoin(self, parts: Iterable[int]) -> int:
        """Node of the conjunction of ``parts``; of none, TRUE."""
        return self._simplify_and_join(
            AND, parts, neutral=self.TRUE, absorbing=self.FALSE
        )

    def disjoin(self, parts: Iterable[int]) -> int:
        """Node of the disjunction of ``parts``; of none, FALSE."""
        return self._simplify_and_join(
            OR, parts, neutral=self.FALSE, absorbing=self.TRUE
        )

    def _simplify_and_join(
        self, kind: str, parts: Iterable[int], neutral: int, absorbing: int
    ) -> int:
        # sorted, so that the order of the parts does not make a new node
        children = sorted(set(parts) - {neutral})
        if absorbing in children:
            return absorbing
        if len(children) < 2:
            return children[0] if children else neutral
        return self._add_node((kind, tuple(children)))

    def _add_node(self, node: Node) -> int:
        """Number of the node; a new one unless an equal node exists."""
        number = self._ids.setdefault(node, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(node)
        return number

    def descendants(self, *nodes: int) -> list[int]:
        """These nodes and their descendants, children first."""
        needed = set(nodes)
        # children have lower numbers: one downward pass reaches all descendants
        for node in range(max(nodes), -1, -1):
            kind, children = self.nodes[node]
            if node in needed and kind in (AND, OR):
                needed.update(children)
        return sorted(needed)

    def scopes(self) -> list[int]:
        """Variables mentioned below each node, as the bits of an integer."""
        scopes: list[int] = []
        for kind, children in self.nodes:
            bits = 0
            for child in children:
                bits |= scopes[child] if kind in (AND, OR) else 1 << (abs(child) - 1)
            scopes.append(bits)
        return scopes


def set_bits(bits: int) -> list[int]:
    """Positions of the bits of an integer that are 1, in ascending order."""
    return [v for v in range(bits.bit_length()) if bits >> v & 1]
