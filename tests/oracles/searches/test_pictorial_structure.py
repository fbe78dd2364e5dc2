"""Parts on larger grids against all pairs of places, shapes, costs, what is refused."""

import pytest
import torch
from torch.testing import assert_close

from smoothsp.losses import L2, StructuralHinge
from smoothsp.oracles import PictorialStructure, Structure, TopKStructure

CHAIN = torch.tensor([-1, 0, 1])
SPRINGS = torch.tensor([0.0, 1.0, 0.0, 1.0])


def drawn(seed, B=3, P=5, H=8, W=6):
    """Parts, springs of which some do not pull, anchors far and fractional."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    parts, springs, anchors = normal(B, P, H, W), normal(B, P, 4), 3 * normal(B, P, 2)
    springs[..., 1::2].clamp_(min=0)
    if seed % 2:
        # ties, and sums without rounding
        parts, springs, anchors = (2 * parts).round(), springs.round(), anchors.round()
    if seed % 3 == 0:
        barred = torch.rand(parts.shape, generator=generator) < 0.4
        parts = parts.masked_fill(barred, -torch.inf)
    return parts, springs, anchors


def over_all_pairs(parts, springs, parents, anchors):
    """Max-marginals ``[P, H W]`` of one row, each pair of places looked at."""
    P, H, W = parts.shape
    at = torch.stack(torch.meshgrid(torch.arange(H), torch.arange(W), indexing="ij"))
    places = at.flatten(1).T.double()
    pull = {}
    for p in range(P):
        d = places - places[:, None] - anchors[p]
        delta = torch.stack([d[..., 0], d[..., 0] ** 2, d[..., 1], d[..., 1] ** 2], -1)
        # [place of the parent, place of the part]
        pull[p] = delta @ springs[p]
    near = [[] for _ in range(P)]
    for p, q in enumerate(parents.tolist()):
        if q >= 0:
            near[p].append((q, pull[p].T))
            near[q].append((p, pull[p]))

    def worth(p, without):
        own = parts[p].flatten()
        for other, cost in near[p]:
            if other != without:
                own = own + (worth(other, p) - cost_from(p, other, cost)).amax(1)
        return own

    def cost_from(p, other, cost):
        # [place of p, place of the other]
        return cost

    found = torch.stack([worth(p, None) for p in range(P)])
    root = []
    for p in range(P):
        while parents[p] >= 0:
            p = int(parents[p])
        root.append(p)
    for p in range(P):
        for other in set(root) - {root[p]}:
            found[p] = found[p] + worth(other, None).max()
    return found


@pytest.mark.parametrize("parents", [[3, 0, -1, 2, 2], [-1, 0, -1, 2, 2], [-1] * 5])
@pytest.mark.parametrize("seed", range(6))
def test_transforms_find_what_all_pairs_of_places_do(seed, parents):
    parts, springs, anchors = drawn(seed)
    parents = torch.tensor(parents)
    built = PictorialStructure(parts, springs, parents, anchors)
    value, y = built.decode()
    assert_close(built.score(y), value, rtol=0, atol=0)
    found = built.max_marginals().flatten(2)
    for b in range(len(parts)):
        expected = over_all_pairs(parts[b], springs[b], parents, anchors[b])
        assert_close(found[b], expected, rtol=1e-11, atol=1e-11)
        assert_close(value[b], expected[0].max(), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("square", [0.0, 1e-310, 1e-12, 1e12])
def test_springs_of_any_strength(square):
    parts, _, anchors = drawn(1)
    springs = torch.tensor([0.5, square, -1.5, square]).double().expand(3, 5, 4)
    parents = torch.tensor([3, 0, -1, 2, 2])
    value, _ = PictorialStructure(parts, springs, parents, anchors).decode()
    for b in range(3):
        expected = over_all_pairs(parts[b], springs[b], parents, anchors[b])
        assert_close(value[b], expected[0].max(), rtol=1e-11, atol=1e-11)


def test_derivatives_are_finite_differences_in_all_that_is_given():
    parts, springs, anchors = (x[:2].requires_grad_() for x in drawn(2, H=4, W=3))
    parents = torch.tensor([3, 0, -1, 2, 2])

    def value(*potentials):
        parts, springs, anchors = potentials
        return PictorialStructure(parts, springs, parents, anchors).decode()[0]

    springs = springs.detach()
    springs[..., 1::2] += 0.5
    assert torch.autograd.gradcheck(value, (parts, springs.requires_grad_(), anchors))


def test_springs_and_anchors_of_all_rows_are_those_of_each():
    parts, springs, anchors = drawn(4)
    parents = torch.tensor([3, 0, -1, 2, 2])
    one = PictorialStructure(parts, springs[0], parents, anchors[0])
    each = PictorialStructure(
        parts, springs[:1].expand(3, 5, 4), parents, anchors[:1].expand(3, 5, 2)
    )
    for x, y in zip(one.decode(), each.decode(), strict=True):
        assert_close(x, y, rtol=0, atol=0)
    rows = torch.tensor([2, 0])
    own = PictorialStructure(parts, springs, parents, anchors)
    for x, y in zip(own.select(rows).decode(), own.decode(), strict=True):
        assert_close(x, y[rows], rtol=0, atol=0)
    zero = PictorialStructure(parts, springs, parents, torch.zeros(5, 2).double())
    bare = PictorialStructure(parts, springs, parents)
    assert_close(bare.decode()[0], zero.decode()[0], rtol=0, atol=0)


def test_the_cost_of_a_place_grows_with_the_square_of_its_distance():
    built = PictorialStructure(torch.zeros(2, 2, 5, 7), SPRINGS.expand(2, 4), CHAIN[:2])
    y = torch.tensor([[[0, 0], [2, 3]], [[4, 6], [1, 1]]])
    cost = built.distance_cost(y, torch.tensor([2.0, 4.0]))
    for b, reach in enumerate((2.0, 4.0)):
        for p, (row, column) in enumerate(y[b].tolist()):
            for r in range(5):
                for c in range(7):
                    squared = (r - row) ** 2 + (c - column) ** 2
                    expected = min(1.0, squared / reach**2)
                    assert cost[b, p, r, c] == pytest.approx(expected)
    assert_close(built.distance_cost(y, 2)[0], cost[0])
    hinge = StructuralHinge(reduction="none")(built, y, cost=built.distance_cost(y, 1))
    # all scores are 0, and so may all costs be 1, but for what springs take
    assert (hinge > 0).all()
    gold = built.score(y)
    best = built.augment(built.distance_cost(y, 1)).decode()[0]
    assert_close(hinge, best - gold)


def test_sizes_of_0_and_1():
    none = PictorialStructure(torch.zeros(0, 3, 2, 2), SPRINGS.expand(3, 4), CHAIN)
    value, y = none.decode()
    assert value.shape == (0,) and y.shape == (0, 3, 2)
    assert none.decode_topk(3)[1].shape == (0, 3, 3, 2)
    assert none.max_marginals().shape == (0, 3, 2, 2)
    empty = PictorialStructure(torch.zeros(2, 0, 2, 2), SPRINGS[None][:0], CHAIN[:0])
    value, y = empty.decode()
    assert value.tolist() == [0, 0] and y.shape == (2, 0, 2)
    assert empty.decode_topk(2)[2].tolist() == [[True, False]] * 2
    one = PictorialStructure(torch.tensor([[[[3.0]]]]), SPRINGS[None], CHAIN[:1])
    value, y = one.decode()
    assert value.item() == 3 and y.tolist() == [[[0, 0]]]
    assert isinstance(one, Structure) and isinstance(one, TopKStructure)
    assert StructuralHinge(L2(1.0, 2))(one, y) == 0
    two = PictorialStructure(torch.zeros(1, 2, 1, 9), SPRINGS.expand(2, 4), CHAIN[:2])
    assert two.decode()[0].item() == 0


def test_springs_of_roots_are_never_read():
    springs = SPRINGS.repeat(3, 1)
    springs[0] = torch.tensor([torch.nan, -1.0, torch.inf, -torch.inf])
    parts = torch.zeros(1, 3, 3, 3)
    springs.requires_grad_()
    value, _ = PictorialStructure(parts, springs, CHAIN).decode()
    value.sum().backward()
    assert value.item() == 0 and springs.grad.isfinite().all()


PARTS = torch.zeros(2, 3, 2, 2)
DEFORMATION = SPRINGS.expand(3, 4)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: PictorialStructure(torch.zeros(2, 3, 0, 2), DEFORMATION, CHAIN),
            "parts: ",
        ),
        (lambda: PictorialStructure(PARTS, DEFORMATION[:, :3], CHAIN), "deformation: "),
        (
            lambda: PictorialStructure(PARTS, -DEFORMATION, CHAIN),
            r"deformation: expected finite weights.*got -1 at row 0, part 1, entry 1",
        ),
        (
            lambda: PictorialStructure(PARTS, DEFORMATION, torch.tensor([1, 2, 0])),
            "parents: ",
        ),
        (
            lambda: PictorialStructure(PARTS, DEFORMATION, torch.tensor([-1, 3, 0])),
            "parents: ",
        ),
        (
            lambda: PictorialStructure(
                PARTS, DEFORMATION, CHAIN, torch.full((3, 2), torch.nan)
            ),
            "anchors: ",
        ),
        (
            lambda: PictorialStructure(PARTS, DEFORMATION, CHAIN).distance_cost(
                torch.zeros(2, 3, 2).long(), 0.0
            ),
            "reach: ",
        ),
    ],
)
def test_what_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
