"""What trees with siblings have besides the laws: a twin, a recurrence, messages."""

import pytest
import torch
from torch.testing import assert_close

from smoothsp.oracles import ProjectiveDependencies, SiblingDependencies


def drawn(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).double()


@pytest.mark.parametrize("single_root", [False, True])
def test_siblings_of_score_0_make_projective_trees(single_root):
    arcs, lengths = drawn(3, 13, 13), torch.tensor([12, 5, 0])
    options = {"lengths": lengths, "single_root": single_root}
    built = SiblingDependencies(arcs, arcs.new_zeros(3, 13, 13, 13), **options)
    twin = ProjectiveDependencies(arcs, **options)
    for ask in ("log_partition", "marginals", "entropy", "log_count"):
        assert_close(getattr(built, ask)(), getattr(twin, ask)())
    assert_close(built.decode_topk(9)[0], twin.decode_topk(9)[0])


def recurrence(arcs, siblings):
    """Log-sum over trees of one sentence, span by span, in plain torch."""
    n = len(arcs) - 1
    full = {(h, h): arcs.new_zeros(()) for h in range(n + 1)}
    half, joint = {}, {}

    def total(ways):
        return torch.stack(ways).logsumexp(0)

    for width in range(1, n + 1):
        for i in range(n + 1 - width):
            j = i + width
            joint[i, j] = total([full[i, k] + full[j, k + 1] for k in range(i, j)])
            for h, m, near in ((i, j, i + 1), (j, i, j - 1)):
                if m:
                    ways = [full[m, near]]
                    for r in range(i + 1, j):
                        pair = joint[min(r, m), max(r, m)] + siblings[h, r, m]
                        ways.append(half[h, r] + pair)
                    half[h, m] = total(ways) + arcs[h, m]
            inside = range(i + 1, j + 1)
            full[i, j] = total([half[i, r] + full[r, j] for r in inside])
            if i:
                inside = range(i, j)
                full[j, i] = total([half[j, r] + full[r, i] for r in inside])
            else:
                full[j, 0] = arcs.new_tensor(-torch.inf)
    return full[0, n]


def test_sums_and_their_gradients_are_those_of_the_recurrence():
    given = [drawn(1, 11, 11), drawn(1, 11, 11, 11)]
    ours, theirs = ([x.clone().requires_grad_() for x in given] for _ in range(2))
    found, expected = (
        SiblingDependencies(*ours).log_partition(),
        recurrence(*(x[0] for x in theirs)),
    )
    assert_close(found[0], expected)
    found.sum().backward()
    expected.backward()
    for x, y in zip(ours, theirs, strict=True):
        assert_close(x.grad, torch.nan_to_num(y.grad))


@pytest.mark.parametrize("size", [(0, 3), (2, 1), (2, 2)])
def test_sizes_of_0_and_1(size):
    B, m = size
    built = SiblingDependencies(torch.zeros(B, m, m), torch.zeros(B, m, m, m))
    assert built.decode()[1].shape == (B, m - 1)
    assert_close(built.log_count().exp(), torch.full((B,), {1: 1.0, 2: 1.0, 3: 3.0}[m]))


@pytest.mark.parametrize(
    ("arcs", "siblings", "message"),
    [
        ((2, 3), (2, 3, 3, 3), "arcs: "),
        ((2, 0, 0), (2, 0, 0, 0), "arcs: "),
        ((2, 3, 3), (2, 3, 3), "siblings: "),
    ],
)
def test_what_is_no_sentence_is_refused(arcs, siblings, message):
    with pytest.raises(ValueError, match=message):
        SiblingDependencies(torch.zeros(arcs), torch.zeros(siblings))
    with pytest.raises(TypeError, match="siblings: "):
        SiblingDependencies(torch.zeros(1, 2, 2), torch.zeros(1, 2, 2, 2).double())
