"""Bad input is refused at the door, in words that say what and where."""

import math

import numpy as np
import pytest
import torch

from smoothsp.oracles import Chain, Multiclass

E = torch.zeros(2, 3, 4)
T = torch.zeros(4, 4)
EDGES = torch.zeros(2, 2, 4, 4)
Y = torch.zeros(2, 3, dtype=torch.int64)
SCORES = torch.zeros(2, 4)
NAN, INF = math.nan, math.inf


def put(tensor: torch.Tensor, *place: object) -> torch.Tensor:
    """Return a copy with a value at an index: ``put(x, 1, 2, value)``."""
    *index, value = place
    copy = tensor.clone()
    copy[tuple(index)] = value
    return copy


def mask(*rows: list[int]) -> torch.Tensor:
    return torch.tensor(rows).bool()


# what is built, the words that have to stand in the message, in this order
VALUES = {
    "large_k": (lambda: Chain(E, T).decode_topk(10**30), "k: "),
    "large_n": (lambda: Chain(E, T).sample(10**12), "n: "),
    "no_candidates": (
        lambda: Multiclass(torch.zeros(1, 0)),
        r"scores: .*got \(1, 0\); for rows without candidates pass a mask",
    ),
    "nan_emission": (
        lambda: Chain(put(E, 1, 2, 3, NAN), T),
        r"emissions: .*got nan at row 1, step 2, state 3",
    ),
    "inf_emission": (
        lambda: Chain(put(E, 1, 0, 0, INF), T),
        r"emissions: .*got inf at row 1, step 0",
    ),
    "nan_under_a_hole_is_skipped": (
        lambda: Chain(
            put(E, 0, slice(1, 3), 0, NAN), T, mask=mask([1, 0, 1], [1, 1, 1])
        ),
        r"emissions: .*got nan at row 0, step 2",
    ),
    "nan_transition": (
        lambda: Chain(E, put(T, 1, 2, NAN)),
        r"transitions: .*got nan at .*from state 1 to state 2",
    ),
    "inf_edge": (
        lambda: Chain(E, put(EDGES, 1, 0, 2, 3, INF)),
        r"transitions: .*got inf at row 1, step 0, from state 2 to state 3",
    ),
    "nan_start": (lambda: Chain(E, T, put(T[0], 2, NAN)), r"start: .*nan at state 2"),
    "inf_end": (lambda: Chain(E, T, end=put(T[0], 3, INF)), r"end: .*inf at state 3"),
    "infeasible_emissions": (
        lambda: Chain(put(E, 1, 2, slice(None), -INF), T),
        r"row 1 has no feasible output.* step 2",
    ),
    "infeasible_transitions": (
        lambda: Chain(E, torch.full((4, 4), -INF), lengths=torch.tensor([1, 2])),
        r"transitions: row 1 has no feasible output.* step 1",
    ),
    "infeasible_ends": (
        lambda: Chain(E, put(T, slice(None), 0, -INF), end=put(T[0] - INF, 0, 0.0)),
        r"row 0 has no feasible output",
    ),
    "nan_cost": (
        lambda: Chain(E, T).augment(put(E, 0, 1, 2, NAN)),
        r"nan at row 0, step 1, state 2",
    ),
    "nan_score": (
        lambda: Multiclass(put(SCORES, 1, 2, NAN)),
        r"scores: .*got nan at row 1, entry \[2\]",
    ),
    "infeasible_scores": (
        lambda: Multiclass(put(SCORES, 1, slice(None), -INF)),
        r"scores: row 1 has no feasible output",
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_no_score_can_have_is_named_with_its_place(name):
    build, message = VALUES[name]
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("given", ["lengths", "mask"])
def test_of_long_rows_the_last_real_step_is_looked_at_and_no_later_one(given, dtype):
    emissions = torch.zeros(3, 80, 9, dtype=dtype)
    moves = torch.zeros(9, 9, dtype=dtype)
    real = torch.arange(80) < torch.tensor([[0], [70], [80]])
    if given == "mask":
        real[1, 3:60] = False
        positions = {"mask": real}
    else:
        positions = {"lengths": real.sum(1)}
    padded = emissions.masked_fill(~real[..., None], NAN)
    torch.testing.assert_close(
        Chain(padded, moves, **positions).log_partition(),
        Chain(emissions, moves, **positions).log_partition(),
        rtol=0,
        atol=0,
    )
    with pytest.raises(ValueError, match="got nan at row 1, step 69, state 8"):
        Chain(put(emissions, 1, 69, 8, NAN), moves, **positions)
    with pytest.raises(ValueError, match="got nan at row 2, step 79, state 0"):
        Chain(put(emissions, 2, 79, 0, NAN), moves, **positions)


@pytest.mark.parametrize("S", [64, 65, 130])
def test_of_many_states_the_last_may_be_the_only_one_left(S):
    emissions, transitions = torch.zeros(1, 3, S), torch.full((S, S), -INF)
    transitions[S - 1, 0] = transitions[0, S - 2] = 0.0
    start = put(torch.full((S,), -INF), S - 1, 0.0)
    value, y = Chain(emissions, transitions, start).decode()
    assert value.item() == 0
    assert y.tolist() == [[S - 1, 0, S - 2]]
    end = put(torch.zeros(S), S - 2, -INF)
    with pytest.raises(ValueError, match=r"row 0 has no feasible output.* step 2"):
        Chain(emissions, transitions, start, end)


SHAPES = {
    "flat_emissions": (lambda: Chain(E[0], T), "emissions: "),
    "no_state": (lambda: Chain(E[..., :0], T[:0, :0]), "emissions: "),
    "transitions": (lambda: Chain(E, torch.zeros(4, 5)), "transitions: "),
    "edges_of_every_step": (lambda: Chain(E, torch.zeros(2, 3, 4, 4)), "transitions: "),
    "start": (lambda: Chain(E, T, T), "start: "),
    "end": (lambda: Chain(E, T, end=T[0, :3]), "end: "),
    "mask": (lambda: Chain(E, T, mask=mask([1, 1], [1, 0])), "mask: "),
    "lengths": (lambda: Chain(E, T, lengths=torch.tensor([1, 1, 1])), "lengths: "),
    "long": (
        lambda: Chain(E, T, lengths=torch.tensor([3, 4])),
        r"lengths: expected values from 0 to 3.*got 4 at row 1",
    ),
    "negative": (
        lambda: Chain(E, T, lengths=torch.tensor([-1, 3])),
        r"lengths: expected values from 0 to 3.*got -1 at row 0",
    ),
    "both": (
        lambda: Chain(
            E, T, lengths=torch.tensor([1, 1]), mask=mask([1, 1, 1], [1, 1, 1])
        ),
        "lengths, mask: ",
    ),
    "cost": (lambda: Chain(E, T).augment(E[:, :2]), "cost: "),
    "flat_scores": (lambda: Multiclass(T[0]), "scores: "),
    "no_candidate": (lambda: Multiclass(SCORES[:, :0]), "scores: "),
    "candidate_mask": (
        lambda: Multiclass(SCORES, mask=mask([1], [1])),
        r"mask: expected \(batch, candidate\) = \(2, 4\), got \(2, 1\)",
    ),
    "candidate_cost": (
        lambda: Multiclass(SCORES).augment(E),
        r"cost: expected the shape of scores = \(2, 4\), got \(2, 3, 4\)",
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_that_does_not_fit_is_named_beside_the_one_expected(name):
    build, message = SHAPES[name]
    with pytest.raises(ValueError, match=message):
        build()


META = torch.zeros(2, 3, 4, device="meta")

TYPES = {
    "numpy": (lambda: Chain(np.zeros((2, 3, 4)), T), "emissions: .* torch.as_tensor"),
    "list": (
        lambda: Chain(E, T, lengths=[1, 1]),
        "lengths: .* list; .* torch.as_tensor",
    ),
    "integers": (lambda: Chain(E.long(), T), "emissions: "),
    "mixed": (lambda: Chain(E, T.double()), "transitions: "),
    "mixed_start": (lambda: Chain(E, T, T[0].double()), "start: "),
    "device": (lambda: Chain(META, T), "emissions: "),
    "mixed_devices": (lambda: Chain(E, T.to("meta")), "transitions: "),
    "mask_device": (
        lambda: Chain(E, T, mask=torch.ones(2, 3, device="meta").bool()),
        "mask: ",
    ),
    "lengths_device": (
        lambda: Chain(E, T, lengths=torch.ones(2, device="meta").long()),
        "lengths: ",
    ),
    "integer_mask": (lambda: Chain(E, T, mask=torch.ones(2, 3).long()), "mask: "),
    "float_lengths": (lambda: Chain(E, T, lengths=torch.ones(2)), "lengths: "),
    "cost": (lambda: Chain(E, T).augment(E.long()), "cost: "),
    "float_y": (lambda: Chain(E, T).score(Y.float()), "y: "),
    "y_device": (lambda: Chain(E, T).score(Y.to("meta")), "y: "),
    "float_k": (lambda: Chain(E, T).decode_topk(2.0), "k: "),
    "scores_device": (lambda: Multiclass(SCORES.to("meta")), "scores: "),
    "candidate_mask": (lambda: Multiclass(SCORES, mask=SCORES), "mask: "),
}


@pytest.mark.parametrize("name", TYPES)
def test_a_type_that_does_not_fit_is_named(name):
    build, message = TYPES[name]
    with pytest.raises(TypeError, match=message):
        build()


HOLE = mask([1, 0, 1], [1, 1, 1])
LABELS = {
    "too_large": (
        lambda c: c(put(Y, 1, 2, 4)),
        r"y: .*\[0, 4\).*got 4 at row 1, step 2",
    ),
    "minus_one": (lambda c: c(put(Y, 0, 2, -1)), r"y: .*got -1 at row 0, step 2"),
    "minus_hundred": (
        lambda c: c(put(Y, 1, 1, -100)),
        r"y: .*-100 at row 1, step 1.*mask",
    ),
}


@pytest.mark.parametrize("question", ["score", "log_prob", "hamming"])
@pytest.mark.parametrize("name", LABELS)
def test_a_label_out_of_range_is_named_with_its_row_and_step(name, question):
    ask, message = LABELS[name]
    with pytest.raises(ValueError, match=message):
        ask(getattr(Chain(E, T, mask=HOLE), question))


def test_of_several_labels_out_of_range_that_of_the_first_row_is_named():
    for chain in (Chain(E, T), Chain(E, EDGES)):
        with pytest.raises(ValueError, match=r"y: .*got 7 at row 0, step 1"):
            chain.score(put(put(Y, 0, 1, 7), 1, 2, 9))


@pytest.mark.parametrize("question", ["score", "log_prob"])
def test_a_label_out_of_range_in_a_list_of_outputs_is_named_too(question):
    ys = put(torch.zeros(2, 5, 3, dtype=torch.int64), 1, 3, 2, 9)
    with pytest.raises(ValueError, match=r"y: .*9.* at row 1, step 2"):
        getattr(Chain(E, T), question)(ys)


@pytest.mark.parametrize("question", ["score", "log_prob", "hamming"])
def test_labels_at_masked_positions_are_never_looked_at(question):
    ask = getattr(Chain(E, T, mask=HOLE), question)
    assert torch.equal(ask(put(Y, 0, 1, -100)), ask(put(Y, 0, 1, 10**12)))


@pytest.mark.parametrize("question", ["score", "log_prob", "hamming"])
@pytest.mark.parametrize("label", [4, -1, 3])
def test_a_candidate_that_is_not_there_is_named_with_its_row(question, label):
    built = Multiclass(SCORES, mask=mask([1, 1, 1, 0], [0, 0, 0, 0]))
    with pytest.raises(ValueError, match=rf"y: .*\[0, 4\).*got {label} at row 0"):
        getattr(built, question)(torch.tensor([label, -100]))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_lengths_are_copied_wherever_they_lie(dtype):
    every_other = torch.tensor([3, 9, 0, 9], dtype=dtype)[::2]
    backwards = torch.tensor([0, 3], dtype=dtype).flip(0)
    for given in (every_other, backwards, every_other.expand(2)):
        found = Chain(E, T, lengths=given).lengths
        assert found.tolist() == [3, 0]
        assert found.dtype == torch.int64 and found.is_contiguous()
    one = torch.tensor(2, dtype=dtype).expand(2)
    assert Chain(E, T, lengths=one).lengths.tolist() == [2, 2]
    assert Chain(E[:0], T, lengths=one[:0]).lengths.tolist() == []
