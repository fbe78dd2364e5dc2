"""What segmentations have besides the laws of circuits: masks, tags, messages."""

import pytest
import torch
from torch.testing import assert_close

from smoothsp.oracles import Chain, SemiMarkov


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).double()


def test_masked_positions_are_skipped_as_if_deleted():
    segments, moves = drawn(3, 5, 2, 3), drawn(3, 3)
    rows = [[0, 2, 3], [], [0, 1, 2, 3, 4]]
    mask = torch.zeros(3, 5, dtype=torch.bool)
    for b, kept in enumerate(rows):
        mask[b, kept] = True
    segments[~mask] = torch.nan
    chain = SemiMarkov(segments, moves, mask=mask)
    _, y = chain.decode()
    for b, kept in enumerate(rows):
        alone = SemiMarkov(segments[b : b + 1, kept], moves)
        best, ours = alone.decode()[1], y[b : b + 1, kept]
        assert_close(best, ours)
        assert_close(alone.log_partition(), chain.log_partition()[b : b + 1])
        assert_close(alone.marginals(), chain.marginals()[b : b + 1, kept])
        assert_close(alone.hamming(ours), chain.hamming(y)[b : b + 1, kept])
        assert_close(alone.to_tags(ours), chain.to_tags(y)[b : b + 1, kept])
    assert (y[~mask] == -1).all()
    picked = chain.select(torch.tensor([2, 0]))
    assert_close(picked.log_partition(), chain.log_partition()[[2, 0]])


def test_segments_of_one_position_are_a_chain():
    emissions, moves, start, end = drawn(2, 6, 3), drawn(3, 3), drawn(3), drawn(3)
    lengths = torch.tensor([6, 4])
    ours = SemiMarkov(emissions[:, :, None], moves, start, end, lengths=lengths)
    chain = Chain(emissions, moves, start, end, lengths=lengths)
    assert_close(ours.log_partition(), chain.log_partition())
    assert_close(ours.decode(), chain.decode())
    assert_close(ours.entropy(), chain.entropy())
    assert_close(ours.marginals()[:, :, 0], chain.marginals())


def test_tags_and_outputs_convert_into_each_other():
    tags = torch.tensor([[1, 1, 0, 0, 0], [2, 0, 0, -100, -100]])
    y = SemiMarkov.from_tags(tags)
    assert y.tolist() == [[1, -1, 0, -1, -1], [2, 0, -1, -1, -1]]
    chain = SemiMarkov(torch.zeros(2, 5, 3, 3), lengths=torch.tensor([5, 3]))
    assert_close(chain.to_tags(y), tags.clamp(min=-1))
    starts = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 0, 0]]).bool()
    y = SemiMarkov.from_tags(tags, starts)
    assert y.tolist() == [[1, 1, 0, -1, -1], [2, 0, 0, -1, -1]]
    assert_close(chain.to_tags(y[:, None]), tags.clamp(min=-1)[:, None])
    with pytest.raises(ValueError, match=r"starts: .* got False at row 0, position 2"):
        SemiMarkov.from_tags(tags, starts & (torch.arange(5) != 2))


def test_tags_of_no_state_are_refused():
    chain = SemiMarkov(drawn(2, 4, 2, 3), lengths=torch.tensor([4, 2]))
    y = torch.tensor([[0, -1, 2, 1], [1, 2, 9, -100]])
    assert chain.to_tags(y).tolist() == [[0, 0, 2, 1], [1, 2, -1, -1]]
    for place, wrong in (((0, 3), 3), ((1, 0), -2)):
        bad = y.clone()
        bad[place] = wrong
        message = f"y: expected states from 0 to 2 .* got {wrong} at row {place[0]}"
        for shaped in (bad, bad[:, None]):
            with pytest.raises(ValueError, match=message):
                chain.to_tags(shaped)
    # what is none of the k best
    _, ys, valid = SemiMarkov(drawn(1, 1, 1, 2)).decode_topk(3)
    assert valid.tolist() == [[True, True, False]]
    assert SemiMarkov(drawn(1, 1, 1, 2)).to_tags(ys)[0, 2].item() == -1


@pytest.mark.parametrize("T", [0, 1, 3])
@pytest.mark.parametrize("B", [0, 1])
def test_small_sizes(B, T):
    segments = drawn(B, T, 2, 1).requires_grad_()
    chain = SemiMarkov(segments)
    value, y = chain.decode()
    assert_close(chain.score(y), value)
    assert_close(chain.to_tags(y), torch.zeros(B, T).long())
    assert chain.hamming(y).shape == segments.shape
    assert chain.label_counts(y).shape == (B, 1)
    assert chain.sample(2).shape == (B, 2, T)
    chain.log_partition().sum().backward()
    assert segments.grad.isfinite().all()


@pytest.mark.parametrize(
    ("y", "found"),
    [
        ([-1, 0, 0, 0], "not from the first position"),
        ([0, -1, -1, 1], "too long"),
        ([0, 2, 0, 0], "no such state"),
        ([-1, -1, -1, -1], "no segment"),
    ],
)
def test_what_is_no_segmentation_is_refused(y, found):
    chain = SemiMarkov(drawn(1, 4, 2, 2))
    with pytest.raises(ValueError, match="y: "):
        chain.score(torch.tensor([y]))


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"segments": drawn(2, 4, 3)}, ValueError, "segments: "),
        ({"segments": drawn(2, 4, 0, 3)}, ValueError, "at least one duration"),
        ({"transitions": drawn(2, 3)}, ValueError, "transitions: "),
        ({"start": drawn(3).float()}, TypeError, "start"),
        ({"end": drawn(2)}, ValueError, "end: "),
        ({"lengths": torch.tensor([4, 5])}, ValueError, "lengths: .* got 5 at row 1"),
        ({"mask": torch.ones(2, 4)}, TypeError, "mask: "),
        (
            {"lengths": torch.tensor([1, 1]), "mask": torch.ones(2, 4).bool()},
            ValueError,
            "got both",
        ),
    ],
)
def test_wrong_arguments_are_named(change, kind, message):
    arguments = {"segments": drawn(2, 4, 2, 3), **change}
    with pytest.raises(kind, match=message):
        SemiMarkov(**arguments)


def test_nan_is_refused_where_it_is_read_only():
    segments = drawn(2, 4, 2, 3)
    segments[1, 2, 1, 0] = torch.nan  # would pass the end of row 1
    SemiMarkov(segments, lengths=torch.tensor([4, 3]))
    with pytest.raises(ValueError, match=r"segments: .* row 1, entry \[2, 1, 0\]"):
        SemiMarkov(segments)
