"""Deliberate faults in topologies and in the engine of circuits, and a check of laws.

Run as ``python -m tests.mutations.circuits FOLDER 1``; see
``tests/mutations/runner.py``.
"""

import functools
import sys

import torch
from torch.testing import assert_close

from tests.mutations.runner import report
from tests.truth.circuits import chain
from tests.truth.circuits.cases import draw

KERNELS = "_kernels/circuits/cpu/"
ENGINE = "oracles/_circuits/"
RULES = "oracles/_inference/rules"
# name: (file, line, what stands there instead); the line occurs at least once
FAULTS = {
    "none": ("oracles/graphs/tree", "", ""),
    # topologies
    "a half without its arc": (
        "oracles/projective",
        "c.multiply(incomplete[i, j], adjacent[i, j], arc[i, j])",
        "c.multiply(incomplete[i, j], adjacent[i, j], arc[j, i])",
    ),
    "arcs that may not point left": (
        "oracles/projective",
        "(incomplete[right, k], complete[k, left])",
        "(incomplete[right, k][:, :1], complete[k, left][:, :1])",
    ),
    "a split that overlaps": (
        "oracles/span_tree",
        "(inside[i[:, None], k], inside[k + 1, j[:, None]])",
        "(inside[i[:, None], k], inside[k, j[:, None]])",
    ),
    "transitions the wrong way": (
        "oracles/semi_markov",
        "(ending[t][None], transition[t].T)",
        "(ending[t][None], transition[t])",
    ),
    "a rule's symbols exchanged": (
        "oracles/grammar",
        "(pairs, rule.reshape(1, S, S * S))",
        "(pairs, rule.transpose(0, 2, 1).reshape(1, S, S * S))",
    ),
    "messages that skip the edge": (
        "oracles/graphs/tree",
        "c.define(message[v], (edge[v], subtree[None]))",
        "c.define(message[v], (subtree[None],))",
    ),
    "labels with the scores of those before": (
        "oracles/ctc",
        "merged[t, :num_labels], frame[t, 1 : num_labels + 1]",
        "merged[t, :num_labels], frame[t, :num_labels]",
    ),
    "subsets of one more": (
        "oracles/subset",
        "c.define(pair_roots, (count[:, low:],))",
        "c.define(pair_roots, (count[:, max(low - 1, 0) :],))",
    ),
    "elements chosen again": (
        "oracles/knapsack",
        "without_element[weight:] = prefix[v, : max(capacity + 1 - weight, 0)]",
        "without_element[weight - 1 :] = prefix[v, : max(capacity + 2 - weight, 0)]",
    ),
    "arcs of another order": (
        "oracles/graphs/lattice",
        "c.define_each(prefix[1:], counts, prefix[start[order]], arc[order])",
        "c.define_each(prefix[1:], counts, prefix[start[order]], arc)",
    ),
    "three labels turned around": (
        "oracles/second_order_chain",
        "(previous, np.moveaxis(transition, 0, 2))",
        "(previous, np.moveaxis(transition, 0, 2).transpose(1, 0, 2))",
    ),
    "siblings turned around": (
        "oracles/sibling_dependencies",
        "c.multiply(pair, adjacent[lower, upper], sibling[h, inner, m])",
        "c.multiply(pair, adjacent[lower, upper], sibling[h, m, inner])",
    ),
    "gaps that open again": (
        "oracles/alignment",
        "np.array([[open_gap, open_gap, extend_gap]])",
        "np.array([[open_gap, open_gap, open_gap]])",
    ),
    "languages that forget where they are": (
        "oracles/regular_chain",
        "order = np.lexsort((q, s, next_state[q, s]))",
        "order = np.lexsort((q, next_state[q, s], s))",
    ),
    # the builder
    "runs that begin one too late": (
        ENGINE + "circuit",
        "ends = np.append(0, np.cumsum(counts)).astype(np.int32)\n    within",
        "ends = np.append(0, np.cumsum(counts)).astype(np.int32)\n"
        "    starts = starts + (counts[0] == 0)\n    counts = counts * 1\n"
        "    ends[1:-1] -= counts[1:] > 1\n    within",
    ),
    "rows of one size visit one definition less": (
        ENGINE + "circuit",
        ("order[: topology.depth_first_order(*args, np.array([root]), order)]"),
        ("order[1 : topology.depth_first_order(*args, np.array([root]), order)]"),
    ),
    "left factors for right": (
        ENGINE + "circuit",
        "return left, right[0] if right",
        "return left, left if right",
    ),
    "each root that of the last row": (
        ENGINE + "circuit_batch",
        ("self.rows = RowRoots(order, np.ascontiguousarray(root_array, np.int64))"),
        (
            "self.rows = RowRoots(order, "
            "np.ascontiguousarray(root_array[order], np.int64))"
        ),
    ),
    # the loops
    "leaves one lane off": (
        KERNELS + "lanes",
        "offset = rows[lane] * width + first_score\n            # only",
        "offset = lane * width + first_score\n            # only",
    ),
    "the first product for the largest": (
        KERNELS + "max_product",
        "top = maximum(load(x, a) + load(x, b), top)",
        "top = maximum(load(x, a), top)",
    ),
    "a trace along another lane": (
        KERNELS + "max_product",
        "if x[a * L + lane] + x[b * L + lane] == goal:",
        "if x[a * L] + x[b * L] >= goal:",
    ),
    "sums without the last exponent": (
        KERNELS + "inside_outside",
        "log_scaled(np.float64(m[offset]), np.float64(e[offset]))",
        "log_scaled(np.float64(m[offset]), np.float64(e[offset]) - 1)",
    ),
    "one factor gets no marginal": (
        KERNELS + "inside_outside",
        "store(mu, a, load(mu, a) + v)\n                store(mu, b",
        "store(mu, b",
    ),
    "a product alone gives the left its share only": (
        KERNELS + "inside_outside",
        "store(mu, b, load(mu, b) + g)",
        "store(mu, b, load(mu, b) + zero)",
    ),
    "a tile's second for its third": (
        KERNELS + "max_product",
        "store(x, np.intp(heads[first_head + 2]) * L, t2)",
        "store(x, np.intp(heads[first_head + 2]) * L, t1)",
    ),
    "means of the left factor": (
        KERNELS + "tangent",
        "mean = fma(q, load(d, a) + load(d, b), mean)",
        "mean = fma(q, load(d, a), mean)",
    ),
    "marginals that do not move": (
        KERNELS + "tangent",
        "v = q * fma(g, load(d, a) + load(d, b) - mean, item_tangent)",
        "v = q * item_tangent",
    ),
    "the third best forgotten": (
        KERNELS + "k_best",
        "if v > best and (v < score or (v == score and n > number)):",
        "if v > best and v < score and n > number:",
    ),
    "draws by the first share": (
        KERNELS + "samples",
        "remaining = u * m[item * L + lane]",
        "remaining = 0 * m[item * L + lane]",
    ),
    "gradients that add up leaves wrongly": (
        KERNELS + "scores",
        "flat[b * width + leaf] += weight",
        "flat[b * width + leaf] = weight",
    ),
    "max-marginals without the other factor": (
        KERNELS + "max_marginals",
        "store(outside, a, maximum(g + w, load(outside, a)))",
        "store(outside, a, maximum(g, load(outside, a)))",
    ),
    "draws that forget what they left out": (
        KERNELS + "samples_without_replacement",
        "number,\n                            excluded_products,",
        "number,\n                            -1,",
    ),
    "the rest of a set as likely as all of it": (
        KERNELS + "samples_without_replacement",
        "waiting_time = _log_exponential(state) - log_remaining",
        "waiting_time = _log_exponential(state) - log_p",
    ),
    "relative entropy without its normalisers": (
        "oracles/_inference/distribution",
        (
            "total = (\n            q.log_partition()\n            - "
            "p.log_partition()\n            - _expected_score(p, "
            "score_differences)\n        )"
        ),
        "total = -_expected_score(p, score_differences)",
    ),
    # derivatives
    "no factor of the row": (
        ENGINE + "engine",
        "grads.append(cpu.scale_rows_inplace(weights, x))",
        "grads.append(x)",
    ),
    "shared scores of rows that weigh alike": (
        ENGINE + "engine",
        "grads.append(cpu.sum_weighted_rows(weights, x))",
        "grads.append(x.sum(0))",
    ),
    "entropy with the wrong sign": (
        RULES,
        (
            "return weight_rows(\n            -grad,\n            "
            "self._covariance_with_scores(ctx),\n            "
            "self.engine.num_row_potentials,\n            needs_grad,\n  "
            "      ), ()"
        ),
        (
            "return weight_rows(grad, "
            "self._covariance_with_scores(ctx), "
            "self.engine.num_row_potentials, needs_grad), ()"
        ),
    ),
}
KINDS = (
    "chain",
    "projective",
    "projective_single_root",
    "span_tree_labelled",
    "semi_markov",
    "grammar",
    "tree",
    "ctc",
    "loopy_graph",
    "subset",
    "knapsack",
    "lattice_of_each_row",
    "second_order_chain",
    "semi_markov_by_step",
    "sibling_dependencies",
    "alignment_affine",
    "regular_chain",
)


def check_kind(kind: str) -> None:
    for seed in (0, 4, 5):
        check_one(draw(kind, seed))


def check_tiles() -> None:
    """Four items of the same left factors."""
    generator = torch.Generator().manual_seed(0)
    four = chain.case(generator, S=4).map(
        lambda x: torch.randn(x.shape, generator=generator, dtype=torch.float64)
    )
    check_one(four)


def check_one(case) -> None:
    """Answers and gradients of a small batch are those of enumeration."""
    ours, truth = case.leaves(), case.leaves()
    structure = ours.structure()
    value, y = structure.decode()
    values, ys, valid = structure.decode_topk(5)
    log_z, entropy = structure.log_partition(), structure.entropy()
    weights = torch.linspace(1, 2, len(case), dtype=torch.float64)
    total = weights * (value + 2 * log_z + 3 * entropy)
    total = total + values.masked_fill(~valid, 0).sum(1)
    expected = torch.zeros((), dtype=torch.float64)
    for b in range(len(case)):
        scores = truth.scores(b)
        assert_close(scores[truth.index(b, y[b])], scores.max())
        ranked = scores.sort(descending=True).values[:5]
        ranked = ranked[ranked > -torch.inf]
        assert_close(values[b, : len(ranked)], ranked)
        places = [truth.index(b, one) for one in ys[b][valid[b]]]
        assert len(set(places)) == len(ranked)
        assert_close(log_z[b], scores.logsumexp(0))
        p = (scores - scores.logsumexp(0)).exp()
        row = -(p * torch.where(p > 0, p, 1).log()).sum()
        assert_close(entropy[b], row, atol=1e-7, rtol=1e-7)
        best = scores[truth.index(b, y[b])]
        row = best + 2 * scores.logsumexp(0) + 3 * row
        expected = expected + weights[b] * row + scores[places].sum()
    assert_close(total.sum(), expected, atol=1e-6, rtol=1e-7)
    total.sum().backward()
    expected.backward()
    for name, x in truth.potentials.items():
        assert_close(ours.potentials[name].grad, x.grad, atol=1e-6, rtol=1e-6)


def check_draws() -> None:
    case = draw("span_tree", 0)
    structure, n = case.structure(), 300
    drawn = structure.sample(n, generator=torch.Generator().manual_seed(0))
    for b in range(len(case)):
        chances = case.scores(b).softmax(0)
        counts = torch.zeros_like(chances)
        for y in drawn[b]:
            counts[case.index(b, y)] += 1
        spread = (chances * (1 - chances) / n).sqrt()
        assert ((counts / n - chances).abs() <= 5 * spread + 1e-9).all()


def check_further() -> None:
    case = draw("span_tree", 0)
    structure, times = case.structure(), 1000
    other = structure.scale(0.5)
    kl = structure.kl(other)
    for b in range(len(case)):
        scores = case.scores(b)
        p, q = scores.log_softmax(0), (scores / 2).log_softmax(0)
        assert_close(kl[b], (p.exp() * (p - q)).sum(), atol=1e-7, rtol=1e-7)
        if len(scores) == 1:
            continue
        assert_close(structure.max_marginals()[b].max(), scores.max())
        row = case.row(b).structure().select(torch.zeros(times).long())
        drawn = row.sample(3, torch.Generator().manual_seed(0), replace=False)
        chances = scores.softmax(0)
        second = chances[:, None] * chances / (1 - chances[:, None])
        expected = second.nan_to_num(0).fill_diagonal_(0).sum(0)
        counts = torch.zeros_like(chances)
        for ys in drawn:
            places = [case.index(b, y) for y in ys if (y >= 0).any()]
            assert len(set(places)) == len(places) == min(3, len(scores))
            counts[places[1]] += 1
        spread = (expected * (1 - expected) / times).sqrt()
        assert ((counts / times - expected).abs() <= 5 * spread + 3e-3).all()


LAWS = {kind: functools.partial(check_kind, kind) for kind in KINDS}
LAWS |= {
    "lanes": check_tiles,
    "samples": check_draws,
    "divergences max_marginals distinct_samples": check_further,
}


if __name__ == "__main__":
    report(FAULTS, LAWS, sys.argv[1:])
