"""Structured SVMs by enumeration: an oracle in plain Python, and the optimum."""

import numpy as np
import scipy.optimize

from smoothsp.linear.problems import CallbackProblem
from tests.truth.linear_chain import corners, cost, dense_rows, gold, phi


def viterbi(problem, i, w):
    """The labelling of most cost plus score; ties to the lower label from the end."""
    W, A, start, end = problem.split(w)
    y = gold(problem, i)
    U = dense_rows(problem, i) @ W + problem.cost_scale[i] * problem.cost[y]
    U[0] += start
    U[-1] += end
    alpha, back = U[0], []
    for u in U[1:]:
        table = alpha[:, None] + A
        back.append(table.argmax(0))
        alpha = table.max(0) + u
    labels = [int(alpha.argmax())]
    for step in reversed(back):
        labels.append(int(step[labels[-1]]))
    return tuple(reversed(labels))


def as_callbacks(problem):
    """The same problem behind an oracle in Python."""
    here = [phi(problem, i, gold(problem, i)) for i in range(len(problem))]

    def oracle(i, w):
        y = viterbi(problem, i, w)
        return here[i] - phi(problem, i, y), cost(problem, i, y), y

    return CallbackProblem(len(problem), problem.num_weights, oracle)


def columns(problem):
    """psi, loss and example of every corner of every example."""
    found = [corners(problem, i) for i in range(len(problem))]
    psi = np.concatenate([psi for psi, _, _ in found])
    loss = np.concatenate([loss for _, loss, _ in found])
    owner = np.repeat(np.arange(len(problem)), [len(loss) for _, loss, _ in found])
    return psi, loss, owner


def optimum(psi, loss, owner, lam, lower=-np.inf, upper=np.inf):
    """Weights and primal value of the quadratic program in w and slacks, by SLSQP."""
    n, d = int(owner.max()) + 1, psi.shape[1]
    slacks = np.eye(n)[owner]

    def value(x):
        return lam / 2 * x[:d] @ x[:d] + x[d:].mean()

    def gradient(x):
        return np.concatenate([lam * x[:d], np.full(n, 1 / n)])

    begin = np.concatenate([np.clip(np.zeros(d), lower, upper), np.zeros(n)])
    begin[d:] = [max(loss[owner == i] - psi[owner == i] @ begin[:d]) for i in range(n)]
    found = scipy.optimize.minimize(
        value,
        begin,
        jac=gradient,
        method="SLSQP",
        bounds=[(lower, upper)] * d + [(None, None)] * n,
        constraints={
            "type": "ineq",
            "fun": lambda x: psi @ x[:d] + slacks @ x[d:] - loss,
            "jac": lambda x: np.concatenate([psi, slacks], axis=1),
        },
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    w = found.x[:d]
    hinges = [max(loss[owner == i] - psi[owner == i] @ w) for i in range(n)]
    return w, lam / 2 * w @ w + np.mean(hinges)
