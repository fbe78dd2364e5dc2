"""What is wrong with the values of a chain, if anything."""

import numpy as np
from numba import njit

# Codes in fault[0]; fault[1:] is (row, step, from state, to state), -1 where unused.
FINE, EMISSION, TRANSITION, START, END, INFEASIBLE = range(6)


@njit(cache=True, nogil=True, error_model="numpy")
def find_fault(
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    shared,
    fault,
):
    """Fill fault[5] with the first NaN or +inf that is read, or row without an output.

    Reachability packs 64 states into a word, so a step costs S^2 / 64, not S^2.
    """
    B, _, S = emissions.shape
    W = (S + 63) // 64
    open_moves = np.zeros((S, W), np.uint64)
    reach = np.zeros(W, np.uint64)
    grown = np.zeros(W, np.uint64)
    one = np.uint64(1)
    fault[:] = -1
    fault[0] = FINE
    forbids = False
    for s in range(S):
        if not start[s] < np.inf:
            fault[0] = START
            fault[4] = s
            return
        if not end[s] < np.inf:
            fault[0] = END
            fault[3] = s
            return
        forbids |= start[s] == -np.inf or end[s] == -np.inf
    if shared:
        for i in range(S):
            for j in range(S):
                if not transitions[0, 0, i, j] < np.inf:
                    fault[0] = TRANSITION
                    fault[3] = i
                    fault[4] = j
                    return
                if transitions[0, 0, i, j] > -np.inf:
                    open_moves[i, j >> 6] |= one << np.uint64(j & 63)
                else:
                    forbids = True
    flat = emissions.reshape(-1)
    T = emissions.shape[1]
    for b in range(B):
        N = lengths[b]
        row_forbids = forbids
        # a run of real positions is counted in one loop, which the compiler vectorises
        n = 0
        while n < N:
            begin = steps[b, n]
            n += 1
            while n < N and steps[b, n] == steps[b, n - 1] + 1:
                n += 1
            stop = steps[b, n - 1] + 1
            wrong = 0
            low = 0
            for x in flat[(b * T + begin) * S : (b * T + stop) * S]:
                wrong += not x < np.inf
                low += x == -np.inf
            row_forbids |= low > 0
            if wrong > 0:
                for t in range(begin, stop):
                    for s in range(S):
                        if not emissions[b, t, s] < np.inf:
                            fault[0] = EMISSION
                            fault[1] = b
                            fault[2] = t
                            fault[4] = s
                            return
        if not shared:
            for n in range(1, N):
                t = steps[b, n]
                for i in range(S):
                    for j in range(S):
                        if not transitions[b, t - 1, i, j] < np.inf:
                            fault[0] = TRANSITION
                            fault[1] = b
                            fault[2] = t - 1
                            fault[3] = i
                            fault[4] = j
                            return
                        row_forbids |= transitions[b, t - 1, i, j] == -np.inf
        if not row_forbids:
            continue
        for n in range(lengths[b]):
            t = steps[b, n]
            if n > 0 and not shared:
                open_moves[:] = 0
                for i in range(S):
                    for j in range(S):
                        if transitions[b, t - 1, i, j] > -np.inf:
                            open_moves[i, j >> 6] |= one << np.uint64(j & 63)
            for w in range(W):
                grown[w] = 0
            for s in range(S):
                if n == 0:
                    if start[s] > -np.inf:
                        grown[s >> 6] |= one << np.uint64(s & 63)
                elif (reach[s >> 6] >> np.uint64(s & 63)) & one:
                    for w in range(W):
                        grown[w] |= open_moves[s, w]
            for s in range(S):
                if emissions[b, t, s] == -np.inf or (
                    n == lengths[b] - 1 and end[s] == -np.inf
                ):
                    grown[s >> 6] &= ~(one << np.uint64(s & 63))
            empty = True
            for w in range(W):
                reach[w] = grown[w]
                empty &= grown[w] == 0
            if empty:
                fault[0] = INFEASIBLE
                fault[1] = b
                fault[2] = t
                return
