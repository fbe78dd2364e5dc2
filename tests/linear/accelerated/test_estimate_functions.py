"""The theorems of accelerated methods, at every iteration of drawn problems."""

import functools
import math

import numpy as np
import pytest

from smoothsp.linear.solvers.accelerated.estimate_functions import (
    L_INCREASE,
    InfiniteMemory,
    OneMemory,
    divergence,
)
from smoothsp.linear.solvers.accelerated.prox_terms import (
    CappedSimplex,
    ElasticNet,
    ElasticNetBall,
)
from tests.sweeps import thinned


class LeastSquares:
    """``|Ax - b|^2 / (2n) + bend / 2 |x|^2``."""

    def __init__(self, rng, n, size, bend=0.0):
        self.A, self.b = rng.normal(size=(n, size)), rng.normal(size=n) * 3
        self.n, self.bend = n, bend
        self.hessian = self.A.T @ self.A / n + bend * np.eye(size)
        self.L = float(np.linalg.eigvalsh(self.hessian)[-1])

    def value(self, x):
        return float(np.sum((self.A @ x - self.b) ** 2)) / (
            2 * self.n
        ) + self.bend / 2 * float(x @ x)

    def value_and_gradient(self, x):
        value = self.value(x)
        slope = self.A.T @ (self.A @ x - self.b) / self.n + self.bend * x
        return value, slope, value - float(slope @ x)


class Linear:
    """A drawn matrix game smoothed by entropy: ``mu log mean exp(<u_i, x> / mu)``."""

    def __init__(self, rng, rows, size, mu):
        self.U, self.mu, self.rows = rng.uniform(-1, 1, (rows, size)), mu, rows
        # of the divergence, the relative entropy
        self.L = float(np.abs(self.U).max() ** 2) / mu

    def value(self, x):
        return self.value_and_gradient(x)[0]

    def value_and_gradient(self, x):
        z = self.U @ x / self.mu
        top = z.max()
        mass = np.exp(z - top)
        value = self.mu * (top + math.log(mass.mean()))
        slope = self.U.T @ (mass / mass.sum())
        return value, slope, value - float(slope @ x)


def minimum(f, simple, start, steps=800):
    method = OneMemory(f, simple, simple.at(start), f.L, True, getattr(f, "bend", 0.0))
    for _ in range(steps):
        method.step()
        if method.has_stalled:
            break
    return method.x, f.value(method.x) + simple.at(method.x).psi


# l1 of f and l2 of the simple term, each 0 or not
BENDS = [(0.0, 0.0), (0.0, 0.3), (0.2, 0.1)]


@functools.cache
def euclidean(l1, l2):
    """A problem, a start, and the minimum."""
    rng = np.random.default_rng(3)
    f, simple = LeastSquares(rng, 30, 12, l1), ElasticNet(0.1, l2)
    start = simple.at(rng.normal(size=12))
    best, value = minimum(f, simple, start.x)
    return f, simple, start, simple.at(best), value


@functools.cache
def entropic(lam, cap):
    rng = np.random.default_rng(4)
    f, simple = Linear(rng, 15, 8, 0.05), CappedSimplex(8, lam, cap)
    start = simple.at(np.full(8, 1 / 8))
    best, value = minimum(f, simple, start.x, 800)
    return f, simple, start, simple.at(best), value


def first_bound(f, adaptive):
    return f.L / 10 if adaptive else f.L


@pytest.mark.parametrize(("l1", "l2"), BENDS)
@pytest.mark.parametrize("adaptive", [False, True])
def test_infinite_memory_keeps_what_is_proved_of_it(l1, l2, adaptive):
    f, simple, start, best, value = euclidean(l1, l2)
    method = InfiniteMemory(f, simple, start, first_bound(f, adaptive), adaptive, l1)
    lam, far, tried = l1 + l2, divergence(best, start), []
    for k in range(1, 150):
        if lam / f.L * k > 80 or method.has_stalled:
            break
        method.step()
        tried.append(method.L)
        now = f.value(method.x) + simple.at(method.x).psi
        # (15): the objective is at most the minimum of the model
        assert now <= method.estimate + 1e-9 * (1 + abs(now))
        A = 1 / method.inverse_weight
        if adaptive:
            # Lemma 8, with the 4 that the print omits
            product = math.prod((1 + math.sqrt(lam / (4 * L))) ** 2 for L in tried[1:])
            sums = math.sqrt(4 / tried[0]) + sum(L**-0.5 for L in tried[1:])
            least = max(product / (tried[0] - l1), sums * sums / 4)
            assert max(tried) < L_INCREASE * f.L
        else:
            # Lemma 5
            rate = (1 + math.sqrt(lam / (4 * f.L))) ** (2 * k - 2)
            least = max((k + 1) ** 2 / (4 * f.L), rate / (f.L - l1))
        assert least * (1 - 1e-9) <= A
        # Theorem 6, and a certificate that is one
        assert now - value <= far / least + 1e-9 * (1 + abs(value))
        assert method.lower_bound() <= value + 1e-9 * (1 + abs(value))
    assert now - value <= 0.05 * (1 + abs(value))


@pytest.mark.parametrize(("l1", "l2"), BENDS)
@pytest.mark.parametrize("adaptive", [False, True])
def test_one_memory_keeps_what_is_proved_of_it(l1, l2, adaptive):
    f, simple, start, best, value = euclidean(l1, l2)
    method = OneMemory(f, simple, start, first_bound(f, adaptive), adaptive, l1)
    lam, far, tried, product, sums = l1 + l2, divergence(best, start), [], 1.0, 0.0
    for _ in range(150):
        if product < 1e-13 or method.has_stalled:
            break
        method.step()
        now = f.value(method.x) + simple.at(method.x).psi
        # (27)
        assert now <= method.estimate + 1e-9 * (1 + abs(now))
        tried.append(method.L + l2)
        first = tried[0]
        if len(tried) > 1:
            product *= 1 - math.sqrt(lam / tried[-1])
            sums += tried[-1] ** -0.5
        # Lemma 13, or 16 if adaptive: the same where L does not change
        share = min(product, 4 / first / (2 / math.sqrt(first) + sums) ** 2)
        assert method.first_weight <= share * (1 + 1e-9)
        # Theorem 14
        assert now - value <= (first - lam) * far * share + 1e-9 * (1 + abs(value))
        assert method.lower_bound() <= value + 1e-9 * (1 + abs(value))
        assert max(tried) - l2 < L_INCREASE * f.L
    assert now - value <= 0.05 * (1 + abs(value))


@pytest.mark.parametrize(
    ("adaptive", "lam", "cap"),
    thinned([(True, 0.05, 0.3), (False, 0.0, math.inf), (False, 0.05, 0.3)], 3, 2),
)
def test_entropy_certifies_what_is_proved_of_it(cap, lam, adaptive):
    f, simple, start, best, value = entropic(lam, cap)
    # no point of the simplex is farther from its middle in relative entropy
    most = math.log(8) if math.isinf(cap) else -math.log(cap) + math.log(8)
    far = divergence(best, start)
    for method in (InfiniteMemory, OneMemory):
        run = method(f, simple, start, f.L / 8 if adaptive else f.L, adaptive)
        previous = math.inf
        for k in range(1, 100):
            run.step()
            if run.has_stalled:
                break
            now = f.value(run.x) + simple.at(run.x).psi
            gap = now - run.lower_bound()
            assert now - value >= -1e-10
            assert gap >= -1e-10
            if method is InfiniteMemory:
                # Theorems 6 and 10
                assert now - value <= far * run.inverse_weight + 1e-10
                assert gap <= most * run.inverse_weight + 1e-10
                rate = 4 * f.L / (k + 1) ** 2
            else:
                # Theorems 14 and 18
                first = f.L if not adaptive else previous if k > 1 else run.L
                previous = first
                assert gap <= first * run.first_weight * most + 1e-10
                rate = 4 * (f.L + lam) / (1 + k) ** 2
            if not adaptive:
                assert now - value <= rate * far + 1e-10
        assert gap <= 0.01
        assert run.x.sum() == pytest.approx(1.0) and run.x.max() <= cap + 1e-12


def test_steps_solve_the_equations_of_the_paper():
    rng = np.random.default_rng(5)
    for l1, l2 in BENDS:
        f, simple = LeastSquares(rng, 9, 4, l1), ElasticNet(0.0, l2)
        lam, start = l1 + l2, simple.at(np.zeros(4))
        one, all_ = (
            m(f, simple, start, f.L, False, l1) for m in (OneMemory, InfiniteMemory)
        )
        A = 0.0
        for k in range(12):
            c, share = one.divergence_weight, one.first_weight
            one.step()
            all_.step()
            if k:
                a = 1 - one.first_weight / share
                left = (1 - a) * (c + l2 * a) + l1 * a
                assert left == pytest.approx(f.L * a * a, rel=1e-9)
                assert one.divergence_weight == pytest.approx(
                    (f.L + l2) * a * a, rel=1e-9
                )
            a = 1 / all_.inverse_weight - A
            left = (a + A) * (l1 * a + lam * A + 1) + a * l2 * A
            assert left == pytest.approx(f.L * a * a, rel=1e-9)
            A = 1 / all_.inverse_weight


def printed_infinite(f, l1, l2, x, steps):
    """Algorithm 1 as it is printed, with Psi = l2 / 2 |x|^2."""
    lam, A, z, G, B = l1 + l2, 0.0, x, np.zeros_like(x), np.zeros_like(x)
    start = x
    for _ in range(steps):
        kappa = f.L - l1
        root = (1 + 2 * lam * A) ** 2 + 4 * kappa * A * (1 + lam * A)
        a = (1 + 2 * lam * A + math.sqrt(root)) / (2 * kappa)
        t1, t2, t3 = 1 + lam * A, l1 * a, l2 * a * A / (A + a)
        t = t1 + t2 + t3
        u = (a * t1 * z + (t * A + t3 * a) * x) / (t * (A + a) - t2 * a)
        G, B = G + a * f.value_and_gradient(u)[1], B + a * u
        z = (start + l1 * B - G) / (1 + lam * (A + a))
        x, A = (A * x + a * z) / (A + a), A + a
        yield x


def printed_one(f, l1, l2, x, steps):
    """Algorithm 3 as it is printed, with Psi = l2 / 2 |x|^2."""
    lam, c, Lp = l1 + l2, f.L + l2, f.L + l2
    x = z = (f.L * x - f.value_and_gradient(x)[1]) / Lp
    yield x
    for _ in range(steps - 1):
        a = (-(c - lam) + math.sqrt((c - lam) ** 2 + 4 * Lp * c)) / (2 * Lp)
        t1, t2, t3 = (1 - a) * c, l1 * a, l2 * a * (1 - a)
        t = t1 + t2 + t3
        u = ((t - (t1 + t2) * a) * x + t1 * a * z) / (t - t2 * a)
        W = t1 + a * l1
        z = (t1 * z + a * l1 * u - a * f.value_and_gradient(u)[1]) / (W + a * l2)
        x, c = (1 - a) * x + a * z, (1 - a) * c + lam * a
        yield x


def test_iterates_are_those_of_the_printed_algorithms():
    rng = np.random.default_rng(6)
    for l1, l2 in BENDS:
        f, simple = LeastSquares(rng, 9, 4, l1), ElasticNet(0.0, l2)
        start = rng.normal(size=4)
        for method, printed in (
            (InfiniteMemory, printed_infinite),
            (OneMemory, printed_one),
        ):
            run = method(f, simple, simple.at(start), f.L, False, l1)
            for x in printed(f, l1, l2, start, 15):
                run.step()
                np.testing.assert_allclose(run.x, x, rtol=0, atol=1e-10)


def test_a_thousand_digits_of_the_model_do_not_overflow():
    rng = np.random.default_rng(7)
    f, simple = LeastSquares(rng, 9, 4), ElasticNet(0.0, 5.0)
    run = InfiniteMemory(f, simple, simple.at(np.ones(4)), f.L, False)
    for _ in range(3000):
        run.step()
    exact = np.linalg.solve(f.hessian + 5 * np.eye(4), f.A.T @ f.b / f.n)
    assert run.inverse_weight == 0 and np.abs(run.x - exact).max() < 1e-12
    gap = f.value(run.x) + simple.at(run.x).psi - run.lower_bound()
    assert abs(gap) < 1e-12


@pytest.mark.parametrize(
    "simple",
    [
        ElasticNet(0.4, 0.7),
        ElasticNetBall(0.4, 1.0, 1.5),
        ElasticNetBall(0.4, 0.0, 1.5),
        ElasticNetBall(0.0, 1.0, 1.5),
        CappedSimplex(5),
        CappedSimplex(5, 0.3),
        CappedSimplex(5, 0.0, 0.3),
        CappedSimplex(5, 0.3, 0.3),
    ],
)
def test_conjugates_and_minima_are_the_best_of_many_points(simple):
    rng = np.random.default_rng(8)
    for _ in range(5):
        v, p = rng.normal(size=5), rng.normal(size=5)
        # any point is the solution of some problem
        points = [
            simple.solve(rng.normal(size=5) * 10.0**e, 1.0) for e in (-2, 0, 1, 2)
        ]
        points += [simple.solve(v * 10.0**e, 1.0, 1e-9) for e in range(-2, 6)]
        if simple.strong:
            points.append(simple.solve(v, 1e-9))
        most = max(float(v @ q.x) - q.psi for q in points)
        known = simple.conjugate(v)
        assert most <= known + 1e-9
        assert most >= known - 2e-3 * (1 + abs(known))
        for step in (1e-3, 1.0, 50.0):
            found = simple.solve(p, 1.0, step)

            def total(q, p=p, step=step):
                return q.d - float(p @ q.x) + step * q.psi

            near = [simple.at(0.99 * found.x + 0.01 * q.x) for q in points]
            assert all(total(found) <= total(q) + 1e-10 for q in [*points, *near])
    assert ElasticNet(1.0).conjugate(np.array([2.0])) == math.inf
    assert ElasticNet(1.0).conjugate(np.array([0.5])) == 0
