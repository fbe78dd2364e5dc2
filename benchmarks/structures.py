"""Time choices, paths, siblings and second-order chains next to plain PyTorch.

Peers are the textbook recurrences in log space, as PyTorch makes them fast: whole
batches, all items of a level at once. pytorch-crf has second-order chains as chains of
pairs of labels; PyEPO, if it is installed, solves shortest paths by linear
programmes. One command races everything, on one thread and on two, each in a
process of its own, and writes a CSV and a table:

    pip install -e ".[bench]"
    python benchmarks/structures.py

Values and gradients must agree with those in float64 first. On one thread that is time
of its CPU, on two of the clock. Targets are for an idle machine.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

import circuits
from dynamic_programmes.races import ROWS, Call, Race, drawn, values, with_gradients
from smoothsp import losses, oracles

NONE = -math.inf


def subset(N: int, low: int, high: int, target: float) -> Race:
    """From ``low`` to ``high`` of N elements."""
    scores = drawn(ROWS, N)

    def plain(x: Tensor) -> Tensor:
        ways = torch.full((ROWS, high + 1), NONE, dtype=x.dtype)
        ways[:, 0] = 0
        for v in range(N):
            chosen = torch.nn.functional.pad(ways[:, :-1], (1, 0), value=NONE)
            ways = torch.logaddexp(ways, chosen + x[:, v, None])
        return ways[:, low:].logsumexp(1)

    return Race(
        f"subset, {low} to {high} of {N}: log-partition and gradients",
        target,
        lambda dtype: with_gradients(
            lambda x: oracles.Subset(x, low, high).log_partition(), scores.to(dtype)
        ),
        # where both ways are impossible its gradient is NaN: values alone are compared
        {"plain PyTorch": lambda dtype: with_gradients(plain, scores.to(dtype))},
    )


def best_subsets(N: int, low: int, high: int, target: float) -> Race:
    """The best of ``low`` to ``high`` of N elements, and a sort of their scores."""
    scores = drawn(ROWS, N)

    def ours(dtype: torch.dtype) -> Call:
        x = scores.to(dtype)
        return values(lambda: oracles.Subset(x, low, high).decode()[0])

    def plain(dtype: torch.dtype) -> Call:
        x = scores.to(dtype)

        def call() -> Tensor:
            ranked, at = x.sort(1, descending=True)
            keep = ranked[:, :high] > 0
            keep[:, :low] = True
            torch.zeros_like(at).scatter_(1, at[:, :high], keep.long())
            return (ranked[:, :high] * keep).sum(1)

        return values(call)

    name = f"subset, {low} to {high} of {N}: decode"
    return Race(name, target, ours, {"a sort in PyTorch": plain})


def knapsacks(N: int, capacity: int, target: float) -> list[Race]:
    """The best knapsacks, and sums over all."""
    scores = drawn(ROWS, N)
    weights = torch.randint(1, 20, (N,), generator=torch.Generator().manual_seed(0))

    def plain(x: Tensor, join: Callable[..., Tensor]) -> Tensor:
        # a knapsack of capacity c is one of at most c: from 0 on all are possible
        ways = x.new_zeros(ROWS, capacity + 1)
        for v, weight in enumerate(weights.tolist()):
            lighter = ways[:, : capacity + 1 - weight] + x[:, v, None]
            joined = join(ways[:, weight:], lighter)
            ways = torch.cat([ways[:, :weight], joined], 1)
        return ways[:, -1]

    def build(x: Tensor) -> oracles.Knapsack:
        return oracles.Knapsack(x, weights, capacity)

    def best(dtype: torch.dtype) -> Call:
        x = scores.to(dtype)
        return values(lambda: build(x).decode()[0])

    def best_plain(dtype: torch.dtype) -> Call:
        # it differentiates a maximum to find where it is
        return with_gradients(lambda x: plain(x, torch.maximum), scores.to(dtype))

    name = f"knapsack, {N} elements, capacity {capacity}"
    return [
        Race(f"{name}: best", target, best, {"plain PyTorch": best_plain}),
        Race(
            f"{name}: log-partition and gradients",
            target,
            lambda dtype: with_gradients(
                lambda x: build(x).log_partition(), scores.to(dtype)
            ),
            {
                "plain PyTorch": lambda dtype: with_gradients(
                    lambda x: plain(x, torch.logaddexp), scores.to(dtype)
                )
            },
        ),
    ]


def second_order(T: int, S: int, target: float) -> Race:
    """Negative log-likelihoods of second-order chains."""
    emissions, transitions = drawn(ROWS, T, S), drawn(S, S, S)
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(S, (ROWS, T), generator=generator)

    def score(e: Tensor, m: Tensor) -> Tensor:
        total = e.gather(2, y[..., None]).sum((1, 2))
        return total + m[y[:, :-2], y[:, 1:-1], y[:, 2:]].sum(1)

    def ours(e: Tensor, m: Tensor) -> Tensor:
        return -oracles.SecondOrderChain(e, m).log_prob(y)

    def plain(e: Tensor, m: Tensor) -> Tensor:
        upto = e[:, 0, :, None] + e[:, 1, None]
        for t in range(2, T):
            upto = torch.logsumexp(upto[..., None] + m, 1) + e[:, t, None]
        return upto.flatten(1).logsumexp(1) - score(e, m)

    def pairs(e: Tensor, m: Tensor) -> Tensor:
        from torchcrf import CRF

        at = torch.arange(S)
        moves = m.new_full((S, S, S, S), -1e4)
        moves[:, at, at] = m
        zero = m.new_zeros(S * S)
        crf = CRF(S * S, batch_first=True)
        given = {"transitions": moves.reshape(S * S, S * S)}
        given |= dict.fromkeys(("start_transitions", "end_transitions"), zero)
        for name, x in given.items():
            # tensors that gradients pass, in place of parameters
            delattr(crf, name)
            setattr(crf, name, x)
        labels = e[:, 1:, None].expand(ROWS, T - 1, S, S).clone()
        labels[:, 0] += e[:, 0, :, None]
        tags = y[:, :-1] * S + y[:, 1:]
        found: Tensor = -crf(labels.flatten(2), tags, reduction="none")
        return found

    def made(loss: Callable[..., Tensor]) -> Callable[[torch.dtype], Call]:
        return lambda dtype: with_gradients(
            loss, emissions.to(dtype), transitions.to(dtype)
        )

    return Race(
        f"second-order chain, {T} x {S}: loss and gradients",
        target,
        made(ours),
        {"plain PyTorch": made(plain), "pytorch-crf on pairs": made(pairs)},
        tolerance=1e-3,
    )


def siblings(n: int, target: float) -> Race:
    """Negative log-likelihoods of projective trees with siblings."""
    arcs, pairs = drawn(ROWS, n + 1, n + 1), drawn(ROWS, n + 1, n + 1, n + 1)
    structure = oracles.SiblingDependencies(arcs, pairs)
    heads = structure.sample(1, torch.Generator().manual_seed(0))[:, 0]

    def ours(x: Tensor, s: Tensor) -> Tensor:
        return -oracles.SiblingDependencies(x, s).log_prob(heads)

    def plain(x: Tensor, s: Tensor) -> Tensor:
        # columns of spans by width: full and half of heads on the left and on the
        # right, [B, n + 1 - width]
        full = {0: (x.new_zeros(ROWS, n + 1),) * 2}
        half: dict[int, tuple[Tensor, Tensor]] = {}
        joint: dict[int, Tensor] = {}
        for w in range(1, n + 1):
            size = n + 1 - w
            i = torch.arange(size)
            splits = [
                full[k][0][:, :size] + full[w - 1 - k][1][:, k + 1 : k + 1 + size]
                for k in range(w)
            ]
            joint[w] = torch.stack(splits).logsumexp(0)
            right, left = [full[w - 1][1][:, 1 : 1 + size]], [full[w - 1][0][:, :size]]
            for k in range(1, w):
                # r is k words right of the head i, and k words left of the head i + w
                pair = joint[w - k][:, k : k + size] + s[:, i, i + k, i + w]
                right.append(half[k][0][:, :size] + pair)
                pair = joint[w - k][:, :size] + s[:, i + w, i + w - k, i]
                left.append(half[k][1][:, w - k : w - k + size] + pair)
            ways = torch.stack([torch.stack(right), torch.stack(left)])
            ends = ways.logsumexp(1)
            half[w] = ends[0] + x[:, i, i + w], ends[1] + x[:, i + w, i]
            right = [
                half[k][0][:, :size] + full[w - k][0][:, k : k + size]
                for k in range(1, w + 1)
            ]
            left = [
                half[k][1][:, w - k : w - k + size] + full[w - k][1][:, :size]
                for k in range(1, w + 1)
            ]
            ways = torch.stack([torch.stack(right), torch.stack(left)])
            ends = ways.logsumexp(1)
            # nothing is the head of the root
            none = ends.new_full((ROWS, 1), NONE)
            full[w] = ends[0], torch.cat([none, ends[1, :, 1:]], 1)
        return full[n][0][:, 0] - oracles.SiblingDependencies(x, s).score(heads)

    return Race(
        f"siblings, {n} words: loss and gradients",
        target,
        lambda dtype: with_gradients(ours, arcs.to(dtype), pairs.to(dtype)),
        {
            "plain PyTorch": lambda dtype: with_gradients(
                plain, arcs.to(dtype), pairs.to(dtype)
            )
        },
        tolerance=1e-3,
    )


def lattices(nodes: int, arcs: int, target: float) -> Race:
    """Sums over the paths of one graph."""
    index, scores = drawn_graph(nodes, arcs, 0), drawn(ROWS, arcs)

    # of each level, which depends on those before it: nodes, arcs into them, in columns
    depth = [0] * nodes
    for start, end in sorted(index.tolist()):
        depth[end] = max(depth[end], depth[start] + 1)
    levels = []
    for level in range(1, max(depth) + 1):
        ends = [v for v in range(nodes) if depth[v] == level]
        into = [(index[:, 1] == v).nonzero().flatten() for v in ends]
        # one more arc, from one more node, is impossible
        padded = torch.nn.utils.rnn.pad_sequence(into, True, arcs)
        levels.append((torch.tensor(ends), padded))
    starts = torch.cat([index[:, 0], torch.tensor([nodes])])

    def plain(x: Tensor) -> Tensor:
        x = torch.nn.functional.pad(x, (0, 1))
        reach = x.new_full((ROWS, nodes + 1), NONE)
        reach[:, 0] = 0
        for ends, into in levels:
            ways = reach[:, starts[into]] + x[:, into]
            reach = reach.index_copy(1, ends, ways.logsumexp(2))
        return reach[:, nodes - 1]

    return Race(
        f"lattice, {nodes} nodes, {arcs} arcs: log-partition and gradients",
        target,
        lambda dtype: with_gradients(
            lambda x: oracles.Lattice(x, index).log_partition(), scores.to(dtype)
        ),
        {"plain PyTorch": lambda dtype: with_gradients(plain, scores.to(dtype))},
        tolerance=1e-3,
    )


def lattices_of_rows(nodes: int, arcs: int) -> list[Race]:
    """A graph of each row, known or new, beside one of all rows: ours alone."""
    scores = drawn(ROWS, arcs)
    one = drawn_graph(nodes, arcs, 0)
    many = torch.stack([drawn_graph(nodes, arcs, seed) for seed in range(ROWS)])

    def asked(index: Callable[[], Tensor]) -> Callable[[torch.dtype], Call]:
        return lambda dtype: with_gradients(
            lambda x: oracles.Lattice(x, index()).log_partition(), scores.to(dtype)
        )

    def fresh(dtype: torch.dtype) -> Call:
        # arcs in another order at each call, the same in both dtypes
        generator = torch.Generator().manual_seed(0)

        def index() -> Tensor:
            return many[:, torch.randperm(arcs, generator=generator)]

        return asked(index)(dtype)

    name = f"{ROWS} lattices that differ, {nodes} nodes, {arcs} arcs"
    alone = {"smoothsp, one graph": asked(lambda: one)}
    options = {"comparable": False, "tolerance": 1e-3}
    return [
        Race(f"{name}: known", 0.5, asked(lambda: many), alone, **options),
        Race(f"{name}: new at each call", math.nan, fresh, alone, **options),
    ]


def undirected(nodes: int, target: float) -> Race:
    """Sums over the spanning trees of complete graphs."""
    index = torch.combinations(torch.arange(nodes))
    scores = drawn(ROWS, len(index))
    start, end = index.T

    def plain(x: Tensor) -> Tensor:
        weights = x.new_zeros(ROWS, nodes, nodes)
        weights = weights.index_put((torch.arange(ROWS)[:, None], start, end), x.exp())
        weights = weights + weights.mT
        laplacian = torch.diag_embed(weights.sum(2)) - weights
        return torch.linalg.slogdet(laplacian[:, 1:, 1:])[1]

    return Race(
        f"undirected trees, {nodes} nodes: log-partition and gradients",
        target,
        lambda dtype: with_gradients(
            lambda x: oracles.UndirectedSpanningTree(x, index).log_partition(),
            scores.to(dtype),
        ),
        {"torch.linalg": lambda dtype: with_gradients(plain, scores.to(dtype))},
    )


BATCH = 32


def grid_paths(instances: int) -> list[Race]:
    """Paths of a 5 x 5 grid under many costs, and epochs of training by them."""
    at = torch.arange(25).reshape(5, 5)
    ways = [(at[:, :-1], at[:, 1:]), (at[:-1], at[1:])]
    index = torch.cat([torch.stack([x.flatten() for x in way], 1) for way in ways])
    # the peer's order: the arcs of a line to the right, then those down from it
    index = index[
        (index[:, 0] // 5 * 50 + (index[:, 1] - index[:, 0])).argsort(stable=True)
    ]
    E = len(index)
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(instances, 5, generator=generator).double()
    map_ = torch.randint(2, (E, 5), generator=generator).double()
    costs = ((features @ map_.T / math.sqrt(5) + 3) ** 4 + 1) / 3.5**4

    def build(x: Tensor) -> oracles.ShortestPath:
        return oracles.ShortestPath(-x, index, 0, 24)

    best, y = build(costs).decode()

    def peer() -> object:
        from pyepo.model.ort import shortestPathModel

        model = shortestPathModel((5, 5))
        if model.arcs != [tuple(arc) for arc in index.tolist()]:
            raise RuntimeError("arcs in another order")
        return model

    def epoch(loss: Callable[..., Tensor]) -> Callable[[torch.dtype], Call]:
        """One epoch of a linear model, always the same; the mean loss."""

        def make(dtype: torch.dtype) -> Call:
            x, c, w, z = (t.to(dtype) for t in (features, costs, y, -best[:, None]))

            def call() -> tuple[Tensor]:
                torch.manual_seed(0)
                model = torch.nn.Linear(5, E)
                model = model.to(dtype)
                optimizer = torch.optim.Adam(model.parameters(), 0.01)
                total = torch.zeros((), dtype=dtype)
                for first in range(0, instances, BATCH):
                    some = slice(first, first + BATCH)
                    found = loss(model(x[some]), c[some], w[some], z[some])
                    optimizer.zero_grad()
                    found.backward()
                    optimizer.step()
                    total += found.detach()
                return (total / math.ceil(instances / BATCH),)

            return call

        return make

    def solved(dtype: torch.dtype) -> Call:
        model, tables = peer(), costs.to(dtype).numpy()

        def call() -> Tensor:
            found = []
            for table in tables:
                model.setObj(table)  # type: ignore[attr-defined]
                found.append(-model.solve()[1])  # type: ignore[attr-defined]
            return torch.tensor(found)

        return values(call)

    def lost(x: Tensor, c: Tensor, w: Tensor, z: Tensor) -> Tensor:
        return losses.SPOPlus()(build(x), w.long(), -c)

    def perturbed(x: Tensor, c: Tensor, w: Tensor, z: Tensor) -> Tensor:
        return losses.PerturbedLoss(8, 1.0)(build(x), w.long())

    def lost_by_peer(dtype: torch.dtype) -> Call:
        import pyepo

        return epoch(pyepo.func.SPOPlus(peer()))(dtype)

    def perturbed_by_peer(dtype: torch.dtype) -> Call:
        import pyepo

        loss = pyepo.func.PFY(peer(), n_samples=8, sigma=1.0)
        return epoch(lambda x, c, w, z: loss(x, w))(dtype)

    name, theirs = f"{instances:,} shortest paths, 5 x 5 grid", "PyEPO with OR-Tools"
    return [
        Race(
            f"{name}: decode",
            30,
            lambda dtype: values(lambda: build(costs.to(dtype)).decode()[0]),
            {theirs: solved},
        ),
        Race(f"{name}: an epoch of SPO+", 30, epoch(lost), {theirs: lost_by_peer}),
        Race(
            f"{name}: an epoch of 8 perturbed samples",
            30,
            epoch(perturbed),
            {theirs: perturbed_by_peer},
            # noise of another dtype is other noise
            tolerance=0.2,
        ),
    ]


def drawn_graph(nodes: int, arcs: int, seed: int) -> Tensor:
    """Arcs to higher numbers, into each node and out of each, ``[arcs, 2]``."""
    generator = torch.Generator().manual_seed(seed)
    path = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)], 1)
    ends = torch.randint(nodes, (3 * arcs, 2), generator=generator).sort(1).values
    return torch.cat([path, ends[ends[:, 0] < ends[:, 1]][: arcs - nodes + 1]])


def all_races() -> list[Race]:
    """In the order of the table."""
    return [
        subset(30, 3, 10, 15),
        best_subsets(30, 3, 10, 1.2),
        best_subsets(300, 3, 100, 1.2),
        *knapsacks(30, 100, 30),
        second_order(50, 9, 10),
        siblings(20, 20),
        lattices(100, 1000, 10),
        lattices(400, 1000, 10),
        *lattices_of_rows(100, 1000),
        undirected(30, 1),
        *grid_paths(1000),
    ]


if __name__ == "__main__":
    circuits.main(all_races, __file__, "structures", __doc__ or "")
