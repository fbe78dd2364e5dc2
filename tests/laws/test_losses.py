"""What every loss obeys, over every structure."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from smoothsp.losses import L2, Entropy, StructuralHinge, StructuredPerceptron
from smoothsp.losses import functional as F
from tests.instances.strategies import every_structure, generators, structure
from tests.truth.chain_cases import Case
from tests.truth.losses import GOLD, SMALL, draw_problem, every_smoothed_structure

CLOSE = {"rtol": 1e-8, "atol": 1e-8}


@every_smoothed_structure
@given(st.data(), st.booleans())
def test_no_loss_is_ever_negative(kind, smoothing, data, with_cost):
    case, y = draw_problem(data, kind)
    case = case.map(lambda v: v.float())
    cost = "hamming" if with_cost else None
    found = F.structural_hinge(structure(case), y, smoothing=smoothing, cost=cost)
    assert (found >= 0).all()


def slack(case: Case) -> float:
    return 1e-9 * (1 + max(float(row.maximum().abs()) for row in case))


@every_structure
@given(st.data(), st.sampled_from([1e-3, 0.5, 20.0]))
def test_smoothing_moves_the_hinge_up_by_at_most_the_proved_distance(kind, data, mu):
    case, y = draw_problem(data, kind, min_batch=1)
    built = structure(case)
    hinge = F.structural_hinge(built, y)
    count = built.log_count().exp()
    soft = F.structural_hinge(built, y, smoothing=Entropy(mu)) - hinge
    assert (soft >= -slack(case)).all()
    assert (soft <= mu * count.log() + slack(case)).all()
    for k in (1, 3, "exact"):
        soft = F.structural_hinge(built, y, smoothing=L2(mu, k)) - hinge
        most = count if k == "exact" else count.clamp(max=k)
        assert (soft >= -slack(case)).all()
        assert (soft <= mu / 2 * (1 - 1 / most) + slack(case)).all()


@every_structure
@given(st.data())
def test_no_smoothing_is_the_limit_of_every_smoothing(kind, data):
    case, y = draw_problem(data, kind)
    built = structure(case)
    hinge = F.structural_hinge(built, y)
    for smoothing in (L2(7.0, 1), L2(1e-12, 5), L2(1e-300, 5)):
        found = F.structural_hinge(built, y, smoothing=smoothing)
        assert_close(found, hinge, **CLOSE)
    # scores over mu stay below 2^40; ties of n outputs are mu log(n) above
    found = F.structural_hinge(built, y, smoothing=Entropy(1e-8))
    assert_close(found, hinge, rtol=1e-8, atol=1e-7)


@every_structure
def test_mu_may_underflow_in_float32(kind):
    case = SMALL[kind].map(lambda v: v.float())
    y = GOLD[kind]
    hinge = F.structural_hinge(structure(case), y)
    for mu in (1e-20, 1e-38, 1e-45):
        for smoothing in (Entropy(mu), L2(mu, 3)):
            leaves = case.leaves()
            found = F.structural_hinge(structure(leaves), y, smoothing=smoothing)
            assert_close(found, hinge, rtol=1e-6, atol=1e-6)
            found.sum().backward()
            for gradient in leaves.gradients().values():
                assert gradient.isfinite().all()


@every_smoothed_structure
@given(st.data(), st.floats(0, 1))
def test_the_loss_is_convex_in_the_potentials(kind, smoothing, data, way):
    case, y = draw_problem(data, kind, forbid=False, min_batch=1, spreads=("normal",))
    generator = data.draw(generators())

    def moved(v: torch.Tensor) -> torch.Tensor:
        return v + 2 * torch.randn(v.shape, generator=generator, dtype=v.dtype)

    other = case.map(moved)
    mixed = {
        name: way * v + (1 - way) * other.potentials()[name]
        for name, v in case.potentials().items()
    }
    one, two, between = (
        F.structural_hinge(structure(c), y, smoothing=smoothing)
        for c in (case, other, case.replace(**mixed))
    )
    assert (between <= way * one + (1 - way) * two + 1e-9).all()


def test_the_perceptron_is_the_hinge_without_cost():
    for kind, case in SMALL.items():
        built, y = structure(case), GOLD[kind]
        expected = StructuralHinge(cost=None)(built, y)
        assert_close(StructuredPerceptron()(built, y), expected)
