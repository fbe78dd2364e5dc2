"""Losses of chains by enumeration, and the methods of the papers on dense arrays."""

import numpy as np

from tests.truth.linear_chain import corners


def projection(z):
    """The point of the simplex closest to z, by bisection on the threshold."""
    low, high = z.min() - 1, z.max()
    for _ in range(200):
        middle = (low + high) / 2
        if np.maximum(z - middle, 0).sum() > 1:
            low = middle
        else:
            high = middle
    u = np.maximum(z - high, 0)
    return u / u.sum()


class Truth:
    """All corners of all examples; values and slopes of every loss at any w."""

    def __init__(self, problem, loss, mu=1.0, k=5):
        self.corners = [corners(problem, i)[:2] for i in range(len(problem))]
        self.loss, self.mu, self.k = loss, mu, k

    def one(self, i, w, mu=None):
        """Loss and slope of example i."""
        psi, cost = self.corners[i]
        mu = self.mu if mu is None else mu
        if self.loss == "likelihood":
            cost, mu = 0 * cost, 1.0
        z = cost - psi @ w
        if self.loss == "hinge" or mu == 0:
            u = np.zeros(len(z))
            u[z.argmax()] = 1
            return z.max(), -psi.T @ u
        if self.loss == "hinge-l2":
            best = np.argsort(-z, kind="stable")[: self.k]
            u = np.zeros(len(z))
            u[best] = projection(z[best] / mu)
            return u @ z + mu / 2 * (1 - u @ u), -psi.T @ u
        u = np.exp((z - z.max()) / mu)
        value = z.max() + mu * np.log(u.sum())
        return value, -psi.T @ (u / u.sum())

    def mean(self, w, mu=None):
        """Mean loss and its slope."""
        found = [self.one(i, w, mu) for i in range(len(self.corners))]
        return np.mean([f for f, _ in found]), np.mean([g for _, g in found], axis=0)

    def objective(self, w, lam, mu=None):
        f, g = self.mean(w, mu)
        return f + lam / 2 * w @ w, g + lam * w


def sgd(truth, lam, orders, rate, shares, w):
    """Last iterate and weighted mean; ``rate(t)`` and ``shares(t)`` with t from 1."""
    mean, total, t = 0 * w, 0.0, 0
    for order in orders:
        for i in order:
            t += 1
            w = w - rate(t) * (truth.one(i, w)[1] + lam * w)
            total += shares(t)
            if total:
                mean = mean + shares(t) / total * (w - mean)
    return w, mean


def svrg_epoch(truth, lam, order, rate, w, mu, kappa=0.0, z=0.0):
    """The mean of the iterates."""
    full = truth.mean(w, mu)[1]
    x, mean = w, 0 * w
    for t, i in enumerate(order, start=1):
        v = truth.one(i, x, mu)[1] - truth.one(i, w, mu)[1] + full
        x = x - rate * (v + lam * x + kappa * (x - z))
        mean = mean + (x - mean) / t
    return mean
