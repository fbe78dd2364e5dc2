"""The one rule for numbers, where it is written down."""

import pytest
import torch

from smoothsp.oracles import Multiclass
from smoothsp.oracles._inference import score_values
from smoothsp.oracles._inference.score_values import (
    COARSE,
    INVALID,
    LIMIT,
    LOW,
    NEG_INF_OR_LOW,
)

DTYPES = torch.float32, torch.float64
CODES = {
    0.0: 0,
    64.0: 0,
    -65.0: COARSE,
    1e12: COARSE,
    -1e12: COARSE,
    -torch.inf: NEG_INF_OR_LOW,
    -LIMIT: NEG_INF_OR_LOW | LOW,
    -1e30: NEG_INF_OR_LOW | LOW,
    torch.inf: INVALID,
    LIMIT: INVALID,
    torch.nan: INVALID,
}


class _OfAnotherClass(torch.Tensor):
    """No ordinary tensor: its memory might be anything."""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", CODES)
def test_one_number_among_many_is_found_wherever_it_stands(number, dtype):
    for size in (1, 7, 16, 17, 40):
        for place in {0, size // 2, size - 1}:
            x = torch.randn(size, dtype=dtype)
            x[place] = number
            assert score_values.value_flags(x) == CODES[number]
            # what stands around a view is not looked at
            around = torch.full((size + 2,), torch.nan, dtype=dtype)
            around[1:-1] = x
            assert score_values.value_flags(around[1:-1]) == CODES[number]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_that_kernels_cannot_read_is_looked_at_by_torch(dtype):
    x = torch.randn(3, 4, dtype=dtype)
    x[1, 2], x[2, 0] = -LIMIT, -torch.inf
    assert score_values.value_flags(x.T) == NEG_INF_OR_LOW | LOW
    assert (
        score_values.value_flags(x.as_subclass(_OfAnotherClass)) == NEG_INF_OR_LOW | LOW
    )
    x[0, 0] = torch.nan
    assert (
        score_values.value_flags(x.as_subclass(_OfAnotherClass))
        == NEG_INF_OR_LOW | LOW | INVALID
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_masked_number_is_minus_infinity_and_has_no_gradient(dtype):
    x = torch.tensor([1.0, -LIMIT, -1e20, -torch.inf, -1e12], dtype=dtype)
    x.requires_grad_()
    found = score_values.mask_low_scores(x)
    low = -torch.inf
    assert found.tolist() == [1.0, low, low, low, float(x.detach()[-1])]
    turned = torch.tensor([[0.0, -1e20], [1.0, 2.0]], dtype=dtype).T
    assert score_values.mask_low_scores(turned).tolist() == [[0.0, 1.0], [low, 2.0]]
    (grad,) = torch.autograd.grad(found.exp().sum() + found[-1], x)
    assert grad.tolist() == [found[0].exp().item(), 0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("barred", [-torch.inf, -1e30])
def test_a_candidate_that_is_not_there_has_no_gradient(barred):
    scores = torch.tensor([[1.0, barred]], dtype=torch.float64, requires_grad=True)
    values, _, valid = Multiclass(scores).decode_topk(2)
    assert valid.tolist() == [[True, False]]
    total = values[valid].sum() + torch.where(valid, values**2, 0.0).sum()
    (slope,) = torch.autograd.grad(total, scores)
    assert slope.tolist() == [[3, 0]]
