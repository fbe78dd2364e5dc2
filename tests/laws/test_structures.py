"""The nine laws that every structure obeys, each once, over all structures."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from tests.instances.strategies import (
    draw_case,
    every_structure,
    fill_padding,
    read,
    structure,
)
from tests.truth.chain_cases import Case, ChainCase, MulticlassCase

# Potentials reach 1000 and sums of ten of them are compared.
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


@every_structure
@given(st.data())
def test_1_the_decoded_value_is_the_maximum_and_the_output_attains_it(kind, data):
    case = draw_case(data, kind)
    value, y = structure(case).decode()
    assert y.dtype == torch.int64
    for b, row in enumerate(case):
        assert_close(value[b], row.maximum(), **CLOSE)
        assert_close(row.scores[row.index(y[b])], row.maximum(), **CLOSE)


@every_structure
@given(st.data(), st.integers(1, 9))
def test_2_topk_is_the_sorted_enumeration(kind, data, k):
    case = draw_case(data, kind)
    values, ys, valid = structure(case).decode_topk(k)
    assert ys.dtype == torch.int64
    assert valid.dtype == torch.bool
    for b, row in enumerate(case):
        assert_close(values[b], row.topk(k), **CLOSE)
        n = min(k, row.count())
        assert valid[b].tolist() == [i < n for i in range(k)]
        places = [row.index(y) for y in ys[b][:n]]
        assert len(set(places)) == n
        assert_close(row.scores[places], values[b][:n], **CLOSE)
        assert (ys[b][n:] == -1).all()
        assert (values[b][n:] == -math.inf).all()


@every_structure
@given(st.data())
def test_3_the_log_partition_is_the_logsumexp_of_the_enumeration(kind, data):
    case = draw_case(data, kind)
    value = structure(case).log_partition()
    for b, row in enumerate(case):
        assert_close(value[b], row.log_partition(), **CLOSE)


@every_structure
@given(st.data())
def test_4_marginals_are_the_enumerated_expectation(kind, data):
    case = draw_case(data, kind)
    marginals = structure(case).marginals()
    assert marginals.shape == case.parts.shape
    for b, row in enumerate(case):
        assert_close(marginals[b], row.marginals(), **CLOSE)


@every_structure
@given(st.data())
def test_4_every_gradient_of_the_log_partition_is_the_enumerated_one(kind, data):
    case = draw_case(data, kind, min_batch=1)
    ours, truth = case.leaves(), case.leaves()
    upstream = torch.linspace(-1.0, 2.0, len(case), dtype=torch.float64)
    (structure(ours).log_partition() * upstream).sum().backward()
    for factor, row in zip(upstream, truth, strict=True):
        if row.scores.requires_grad:
            (factor * row.log_partition()).backward()
    for name, expected in truth.gradients().items():
        assert_close(ours.gradients()[name], expected, **CLOSE)


@every_structure
@given(st.data(), st.sampled_from([0.25, 1.0, 7.0]))
def test_6_scaling_scales(kind, data, factor):
    case = draw_case(data, kind)
    scaled = structure(case).scale(factor)
    assert_close(scaled.decode()[0], factor * structure(case).decode()[0], **CLOSE)
    for b, row in enumerate(case.map(lambda v: factor * v)):
        assert_close(scaled.log_partition()[b], row.log_partition(), **CLOSE)


def answers(built: object, case: Case, k: int = 4) -> dict[str, torch.Tensor]:
    """Every number that a structure can be asked for without an output."""
    value, _ = built.decode()
    values, _, valid = built.decode_topk(k)
    found = {
        "value": value,
        "values": values,
        "valid": valid,
        "log_partition": built.log_partition(),
        "marginals": built.marginals(),
        "entropy": built.entropy(),
        "log_count": built.log_count(),
    }
    if isinstance(case, ChainCase):
        found["edge_marginals"] = built.edge_marginals()
    return found


def only(case: Case, b: int) -> Case:
    """The case that holds row b alone, from the raw arguments."""
    batched = {"emissions", "scores", "lengths", "mask"}
    if isinstance(case, ChainCase) and case.transitions.ndim == 4:
        batched = batched | {"transitions"}
    named = {name: getattr(case, name, None) for name in batched}
    return case.replace(**{k: v[b : b + 1] for k, v in named.items() if v is not None})


@every_structure
@given(st.data())
def test_7_a_batch_equals_its_rows_one_at_a_time(kind, data):
    case = draw_case(data, kind, min_batch=1)
    together = answers(structure(case), case)
    for b in range(len(case)):
        alone = answers(structure(only(case, b)), case)
        picked = answers(structure(case).select(torch.tensor([b])), case)
        for name, found in together.items():
            assert_close(found[b : b + 1], alone[name], **CLOSE)
            assert_close(alone[name], picked[name], **CLOSE)


@every_structure
@given(st.data())
def test_8_nan_in_the_padding_changes_nothing(kind, data):
    case = draw_case(data, kind, poison=False, min_batch=1)
    clean, poisoned = case.leaves(), fill_padding(case, math.nan).leaves()
    expected, found = (answers(structure(c), c) for c in (clean, poisoned))
    for name, value in expected.items():
        assert_close(found[name], value, rtol=0, atol=0)
    for leaves in (clean, poisoned):
        built = structure(leaves)
        total = built.log_partition() + built.decode()[0] + built.entropy()
        total = total + built.decode_topk(2)[0][:, 0]
        total.sum().backward()
    for name, gradient in clean.gradients().items():
        assert_close(poisoned.gradients()[name], gradient, rtol=0, atol=0)
        if name in read(clean):
            assert (gradient[~read(clean)[name]] == 0).all()


@every_structure
@given(st.data())
def test_9_minus_infinity_never_makes_nan(kind, data):
    case = draw_case(data, kind, forbid=True, poison=True, min_batch=1).leaves()
    built = structure(case)
    for answer in answers(built, case).values():
        assert not answer.isnan().any()
    assert built.log_partition().isfinite().all()
    assert built.decode()[0].isfinite().all()
    total = built.log_partition() + built.decode()[0] + built.entropy()
    values, _, valid = built.decode_topk(3)
    total = total + torch.where(valid, values, 0.0).sum(1)
    total.sum().backward()
    for gradient in case.gradients().values():
        assert gradient.isfinite().all()


def test_a_row_without_labels_has_one_output_of_value_zero():
    cases = [
        ChainCase(
            torch.full((1, 3, 2), math.nan).double(),
            torch.ones(2, 2).double(),
            torch.ones(2).double(),
            torch.ones(2).double(),
            mask=torch.zeros(1, 3, dtype=torch.bool),
        ),
        MulticlassCase(
            torch.full((1, 3), math.nan).double(),
            mask=torch.zeros(1, 3, dtype=torch.bool),
        ),
    ]
    for case in cases:
        built = structure(case)
        value, y = built.decode()
        values, ys, valid = built.decode_topk(3)
        zero = torch.zeros(1, dtype=torch.float64)
        for found in (value, built.log_partition(), built.entropy()):
            assert_close(found, zero)
        assert_close(built.log_count(), zero, check_dtype=False)
        assert_close(built.score(y), zero)
        assert_close(built.log_prob(y), zero)
        assert (y == -1).all()
        assert (ys == -1).all()
        assert valid.tolist() == [[True, False, False]]
        assert values.tolist() == [[0.0, -math.inf, -math.inf]]
        assert (built.sample(4) == -1).all()
        assert (built.marginals() == 0).all()
