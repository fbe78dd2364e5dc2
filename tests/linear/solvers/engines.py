"""The two engines of BCFW, and what their states mean, by enumeration."""

import numpy as np

from smoothsp.linear.engines.callback_dual import CallbackEngine
from smoothsp.linear.engines.compiled_dual import ChainEngine
from smoothsp.linear.solvers import BCFW
from tests.truth.frank_wolfe import as_callbacks
from tests.truth.linear_chain import corners, gold

LAM = 0.2
KINDS = ("compiled", "callbacks")


def engine_of(kind, problem, **options):
    options.setdefault("lam", LAM)
    solver = BCFW(**options)
    if kind == "compiled":
        return ChainEngine(problem, solver.engine_settings)
    return CallbackEngine(as_callbacks(problem), solver.engine_settings)


def weights_of(engine, problem, i):
    """alpha_i over the labellings in the order of ``corners``, from stored outputs."""
    psi, loss, outputs = corners(problem, i)
    alpha = np.zeros(len(loss))
    if isinstance(engine, CallbackEngine):
        for slot in engine.output_cache[i]:
            key = slot.corner.key or tuple(gold(problem, i).tolist())
            alpha[outputs.index(key)] += slot.alpha
        return psi, loss, alpha
    q, T = engine.label_cache.buffers, len(outputs[0])
    for k in range(q.size[i]):
        o = q.word[i] + k * T
        alpha[outputs.index(tuple(q.labels[o : o + T]))] += q.alpha[q.slot[i] + k]
    return psi, loss, alpha


def exact_gaps(engine, problem):
    """Block gaps from the marginals or the blocks, by enumeration."""
    n, w, found = len(problem), engine.w, []
    if isinstance(engine, CallbackEngine):
        inner = engine.blocks @ w
    else:
        inner = [engine_block(engine, problem, i) @ w for i in range(n)]
    ell = engine.ell if isinstance(engine, CallbackEngine) else engine._duals.ell
    for i in range(n):
        psi, loss, _ = corners(problem, i)
        found.append((loss - psi @ w).max() / n - ell[i] + LAM * inner[i])
    return np.maximum(found, 0)


def engine_block(engine, problem, i):
    """w_i of a chain, from its marginals."""
    s, d = engine._sequences, engine._duals
    w = np.zeros(problem.num_weights)
    W, A, start, end = problem.split(w)
    lo, hi = problem.offsets[i : i + 2]
    mu = -d.mu.reshape(-1, s.P)[lo:hi, : s.S].copy()
    mu[np.arange(hi - lo), problem.labels[lo:hi]] += 1
    for t in range(lo, hi):
        row = slice(problem.indptr[t], problem.indptr[t + 1])
        W[problem.indices[row]] += np.outer(problem.values[row], mu[t - lo])
    A -= d.edges.reshape(-1, s.S, s.P)[i, :, : s.S]
    for t in range(lo + 1, hi):
        A[problem.labels[t - 1], problem.labels[t]] += 1
    start += mu[0]
    end += mu[-1]
    return w / (LAM * len(problem))
