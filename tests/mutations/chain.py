"""Deliberate faults in the kernels of chains, and a check of the laws that sees them.

Run as ``python -m tests.mutations.chain FOLDER 1``; see ``tests/mutations/runner.py``.
"""

import sys

import torch
from torch.testing import assert_close

from smoothsp.oracles import Chain, SparseMAP
from tests.mutations.runner import report
from tests.truth.chain_cases import ChainCase

# name: (kernel, line, what stands there instead); the line occurs at least once
_OF_KERNELS = {
    "none": ("chain/cpu/scores", "", ""),
    "forward without emissions": (
        "chain/cpu/forward_backward_float64",
        "a = exp(x) * c",
        "a = c",
    ),
    "backward one step off": (
        "chain/cpu/forward_backward_float64",
        (
            "conditionals = span(_fill_conditionals(b, n, chain, scratch))\n        "
            "offset ="
        ),
        (
            "conditionals = span(_fill_conditionals(b, N - 1, chain, "
            "scratch))\n        offset ="
        ),
    ),
    "edges transposed": (
        "chain/cpu/forward_backward_float64",
        "store_masked(edge_span, offset + e, S - j, p)",
        "store_masked(edge_span, offset + j * S + i, S - j, p)",
    ),
    "laws without end": (
        "chain/cpu/forward_backward_float64",
        "scratch.logs[N - 1, j] + (chain.end[j] - max_end)",
        "scratch.logs[N - 1, j]",
    ),
    "log space without moves": (
        "chain/cpu/forward_backward_float64",
        "c += _exp(x - max_term)",
        "c += _exp(scratch.logs[n - 1, i] - max_term)",
    ),
    "lanes without the mask": (
        "vectors/lane_rows",
        "row_scratch[n * S + s] = emissions[b, steps[b, n], s]",
        "row_scratch[n * S + s] = emissions[b, n, s]",
    ),
    "lanes without end": (
        "chain/cpu/forward_backward",
        "beta = select_lt(next_step, lane_lengths, load(message, j), beta)",
        "beta = select_lt(next_step, lane_lengths, load(message, j), one)",
    ),
    "lanes that begin too late": (
        "chain/cpu/forward_backward",
        "select_lt(step, lane_lengths, inverse_scale, zero)",
        "select_lt(next_step, lane_lengths, inverse_scale, zero)",
    ),
    "tile of another column": (
        "vectors/lane_products",
        "d = fma(v, splat_at(matrix, e + 3), d)",
        "d = fma(v, splat_at(matrix, e + 2), d)",
    ),
    "states without the mask": (
        "chain/cpu/forward_backward",
        "e = (rows[u] * T + steps[rows[u], n]) * S",
        "e = (rows[u] * T + n) * S",
    ),
    "states without end": (
        "chain/cpu/forward_backward",
        "beta = load(exp_end, j)",
        "beta = load(exp_end, 0)",
    ),
    "half of a product": ("vectors/state_products", "k = i + middle", "k = i"),
    "edges one step off": (
        "vectors/state_products",
        "e = row_offset + n * P - P + i",
        "e = row_offset + n * P + i",
    ),
    "decoding lanes without end": (
        "chain/cpu/viterbi_in_lanes",
        "+ end[s]",
        "+ 0 * end[s]",
    ),
    "minimum at the end": (
        "chain/cpu/viterbi_in_lanes",
        "if score > best",
        "if score < best",
    ),
    "back along another lane": (
        "chain/cpu/viterbi_in_lanes",
        "state[lane] = int(get_number(weights, (n * S + j) * L + lane))",
        "state[lane] = int(get_number(weights, (n * S + j) * L))",
    ),
    "moves transposed": (
        "chain/cpu/viterbi_over_states",
        "padded_transitions[i * P + j] = transitions[0, 0, i, j]",
        "padded_transitions[i * P + j] = transitions[0, 0, j, i]",
    ),
    "mask skipped": (
        "chain/cpu/viterbi_over_states",
        "labels[b, 0, steps[b, n]] = j",
        "labels[b, 0, n] = j",
    ),
    "maximum for the wrong row": (
        "chain/cpu/viterbi_over_states",
        "o1, o2, o3 = o + R, o + 2 * R, o + 3 * R",
        "o1, o2, o3 = o + R, o + 2 * R, o + 2 * R",
    ),
    "edges from the first state": (
        "chain/cpu/viterbi_over_states",
        "edges, edges_offset + i * S + j, S - j, neg_inf",
        "edges, edges_offset + j, S - j, neg_inf",
    ),
    "successor forgotten": (
        "chain/cpu/k_best",
        "candidates[table_offset + i] = score",
        "candidates[table_offset + i] = -np.inf",
    ),
    "successor from the best": (
        "chain/cpu/k_best",
        "candidates[table_offset + P + i] = previous",
        "candidates[table_offset + P + i] = -1",
    ),
    "gradient that is not weighted": (
        "chain/cpu/vjp",
        "weight = np.float64(weights[b])",
        "weight = np.float64(1)",
    ),
    "labels left out of the gradient": (
        "chain/cpu/scores",
        "emissions[b, t, j] += weight",
        "emissions[b, t, j] += 0",
    ),
    "rows in the wrong order": (
        "chain/cpu/records",
        "first[T - n + 1] += 1",
        "first[T - n] += 1",
    ),
    "cost of the gold label": (
        "chain/cpu/viterbi_in_lanes",
        "y = gold[b, t]",
        "y = 0",
    ),
    "violation of half the rows": (
        "chain/cpu/fused",
        "total += weights[b] * values[b]",
        "total += weights[b] * values[0]",
    ),
    "cost of the gold label, few rows": (
        "chain/cpu/viterbi_over_states",
        "alpha[o + n * P + gold[b, t]] =",
        "alpha[o + n * P] =",
    ),
    "violation of wrong moves": (
        "chain/cpu/hinge",
        "transitions[p, q, y, z] -= weight",
        "transitions[p, q, z, y] -= weight",
    ),
    "end subtracted": (
        "chain/cpu/scores",
        "last = np.float64(end[i])",
        "last = -np.float64(end[i])",
    ),
    "count of the wrong edge": (
        "chain/cpu/scores",
        "transitions[p, q, i, j] += weight",
        "transitions[p, q, j, i] += weight",
    ),
    "second order without past": (
        "chain/cpu/forward_backward_float64",
        "p = p * (splat(prefix_mean[n - 1, i] - expected) + edge_value)",
        "p = p * (splat(-expected) + edge_value)",
    ),
    "second order without future": (
        "chain/cpu/forward_backward_float64",
        "weights[0][b, t, s] - subtracted[n] + suffix_mean[s]",
        "weights[0][b, t, s] - subtracted[n]",
    ),
    "entropy of the unlikely only": (
        "chain/cpu/forward_backward_float64",
        "rest_prob, half, zero - q * minus_log, zero - max_prob * log_max_prob",
        "zero, one, zero, zero",
    ),
    "entropy of the last label only": (
        "chain/cpu/forward_backward_float64",
        "total = fma(p, splat_at(previous, i), total)",
        "total = zero",
    ),
    "entropy without transitions": (
        "chain/cpu/entropy",
        "z, chain.transitions, edges, 0, b * S * S, S * S, zeros",
        "z, chain.transitions, edges, 0, b * S * S, 0, zeros",
    ),
    "walk back to the first state": (
        "chain/cpu/samples",
        "states[x * K + k] * column_stride",
        "0",
    ),
    "walk back along another row": (
        "chain/cpu/samples",
        "o = n * P + x * row_stride",
        "o = n * P",
    ),
    "covariance without start": (
        "chain/cpu/covariance",
        "load(directions.nodes, j) + load(directions.start_marginals, j)",
        "load(directions.nodes, j)",
    ),
    "covariance without moves": (
        "chain/cpu/covariance",
        (
            "covariances = fma(load(directions.edges, e), load(second_sums, e), "
            "covariances)"
        ),
        "covariances = fma(zero, zero, covariances)",
    ),
    "covariance without the past": (
        "chain/cpu/covariance",
        "select_lt(zero, p, s * (prefix_sum / p), zero)",
        "zero",
    ),
    "edges of another step": (
        "chain/cpu/steps",
        "(n - 1) * _padded_size(S * S, V),",
        "0,",
    ),
    "steps without end": (
        "chain/cpu/steps",
        "z = fma(load(alphas, (N - 1) * P + j), exp_end, z)",
        "z = fma(load(alphas, (N - 1) * P + j), splat(one), z)",
    ),
    "steps without the mask": (
        "chain/cpu/steps",
        "e = (b * T + chain.steps[b, n]) * S",
        "e = (b * T + n) * S",
    ),
    "mixture that costs nothing": (
        "combinatorial/sparsemap_chains",
        "target[e] = scores_b[e] - strength * mean[g, e]",
        "target[e] = scores_b[e]",
    ),
    "mixture without the moves": (
        "combinatorial/sparsemap_chains",
        "total += transitions[0, 0, i, y[t]]",
        "total += 0",
    ),
    "mixture of outputs that share nothing": (
        "combinatorial/sparsemap_chains",
        "column[a] = num_equal[slots_of_row[a]] + 1",
        "column[a] = 1",
    ),
    "mixture off the simplex": (
        "combinatorial/updatable_cholesky",
        "t = (mass - 1) / square",
        "t = mass / square",
    ),
    "mixture that rotates the wrong way": (
        "combinatorial/updatable_cholesky",
        "put_number(solution, a + 1, cos * q - sin * p)",
        "put_number(solution, a + 1, cos * q + sin * p)",
    ),
}
FAULTS = {name: (f"_kernels/{x[0]}", *x[1:]) for name, x in _OF_KERNELS.items()}


def cases() -> list[ChainCase]:
    """Chains with a hole, left padding and an empty row.

    Few rows and many, few states and many, shared and other transitions: other kernels
    do these. Some underflow.
    """
    generator = torch.Generator().manual_seed(0)
    few = torch.tensor([[1, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 0]]).bool()
    many = torch.cat([few, few.flip(0), few])
    shared, own = (5, 5), (3, 3, 5, 5)
    kinds = [(few, shared, 1), (few, own, 1), (many, shared, 1)]
    kinds += [(few, shared, 1000), (few, own, 1000), (many, shared, 1000)]
    found = []
    for mask, edges, scale in kinds:
        shapes = ((len(mask), 4, 5), edges, (5,), (5,))
        drawn = [scale * torch.randn(s, generator=generator).double() for s in shapes]
        found.append(ChainCase(*drawn, mask=mask))
    # many states, of which the k best are enumerated lazily
    drawn = [
        torch.randn(s, generator=generator).double() for s in ((5, 3, 12), (12, 12))
    ]
    ends = [torch.randn(12, generator=generator).double() for _ in range(2)]
    found.append(ChainCase(*drawn, *ends, mask=many[:5, 1:]))
    return found


def check_laws() -> None:
    """Compare every oracle of every case with enumeration."""
    # so large that the entropy is lost in the rounding of the log-partition
    emissions = torch.tensor([[[0.0, 1, 2], [1, 0, 1], [2, 2, 0]]]).double()
    moves = torch.tensor([[0.0, 1, 0], [2, 0, 1], [0, 0, 1]]).double()
    shifted = Chain(emissions + 2.0**30, moves).entropy()
    assert_close(shifted, Chain(emissions, moves).entropy())
    for case in cases():
        ours, truth = case.leaves(), case.leaves()
        built = Chain(*ours.potentials().values(), mask=case.mask)
        moves = built.transitions.detach()
        if moves.dim() == 2:
            # by the kernel to which transitions of each step go
            edges = moves.expand(len(case.mask), case.mask.shape[1] - 1, *moves.shape)
            ends = built.start, built.end
            apart = Chain(built.emissions, edges, *ends, mask=case.mask)
            first = built.sample(5, torch.Generator().manual_seed(0))
            second = apart.sample(5, torch.Generator().manual_seed(0))
            assert torch.equal(first, second)
        value, y = built.decode()
        values, ys, valid = built.decode_topk(4)
        total = built.log_partition() + 2 * value + 3 * built.entropy()
        real = valid[:, 1]
        rows = built.augment(built.hamming(ys[:, 1])).decode()[0] - values[:, 1]
        asked = built.select(real).violation(ys[real, 1])
        assert_close(asked, rows[real].sum())
        leaves = list(ours.potentials().values())
        slopes = (
            torch.autograd.grad(x, leaves, retain_graph=True, allow_unused=True)
            for x in (asked, rows[real].sum())
        )
        for one, other in zip(*slopes, strict=True):
            assert_close(one, other)
        with torch.no_grad():
            assert_close(built.decode()[0], value)
            # so strong that outputs come and go
            sparse = SparseMAP(built, strength=30.0)
            mixture = sparse.marginals()
        for b, row in enumerate(truth):
            place = row.index(y[b])
            # the slope of the regularised score is highest at what has weight
            slope = row.scores.detach() - 30.0 * row.cost(mixture[b])
            held = [row.index(x) for x in sparse.outputs[b]]
            assert_close(sparse.weights[b].detach() @ slope[held], slope.max())
            assert_close(sparse.weights[b].sum().item(), 1.0)
            assert_close(value[b], row.maximum())
            assert_close(row.scores[place], row.maximum())
            assert_close(values[b], row.topk(4))
            places = [row.index(best) for best in ys[b][valid[b]]]
            assert len(set(places)) == min(4, row.count())
            assert_close(built.log_partition()[b], row.log_partition())
            assert_close(built.marginals()[b], row.marginals())
            assert_close(built.edge_marginals()[b], row.edge_marginals())
            p = row.probabilities
            logs = (row.scores - row.log_partition()) * (p > 0)
            entropy = -(p * logs).sum()
            assert_close(built.entropy()[b], entropy)
            expected = row.log_partition() + 2 * row.scores[place] + 3 * entropy
            expected = expected + 5 * (row.scores[place] - row.log_partition())
            if expected.requires_grad:
                expected.backward()
        (total.sum() + built.log_likelihood(y, 5)).backward()
        for name, gradient in truth.gradients().items():
            assert_close(ours.gradients()[name], gradient, rtol=1e-6, atol=1e-6)


if __name__ == "__main__":
    report(FAULTS, {"": check_laws}, sys.argv[1:])
