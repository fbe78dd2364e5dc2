"""A batch that is cut into pieces is answered as if it were whole."""

import os
import threading
import time
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from smoothsp._kernels.threads.ranges import CoreAffinity, run_all, run_rows
from smoothsp.oracles import Chain
from smoothsp.oracles._chain import chunks
from smoothsp.oracles._chain.chunks import rows_per_chunk, rows_per_chunk_rowwise

# in lanes, over states; three pieces and a rest of one row each
SHAPES = [(97, 5, 3), (25, 4, 40)]


@pytest.fixture(params=[1, 3], ids="threads={}".format)
def pieces(request, monkeypatch):
    """The smallest pieces, and threads to take them."""
    monkeypatch.setattr(chunks, "MIN_CHUNK_WORK", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def drawn(shape, dtype=torch.float64):
    """Potentials that want gradients, labels, lengths with 0, and weights of rows."""
    B, T, S = shape
    draw = torch.Generator().manual_seed(B)
    sizes = (shape, (S, S), (S,), (S,))
    potentials = [
        torch.randn(size, generator=draw, dtype=dtype, requires_grad=True)
        for size in sizes
    ]
    y = torch.randint(S, (B, T), generator=draw)
    lengths = torch.randint(T + 1, (B,), generator=draw)
    return potentials, y, lengths, torch.linspace(-1, 2, B, dtype=dtype)


def test_pieces_are_whole_groups_of_rows_and_depend_on_the_shape_alone(pieces):
    for B, T, S in SHAPES:
        rows = rows_per_chunk(B, T, S)
        assert rows < B and rows % (32 if S == 3 else 8) == 0
    assert rows_per_chunk(0, 5, 3) == 0


def test_a_small_batch_is_one_piece():
    assert rows_per_chunk(32, 50, 50) == 32
    assert 4096 / 40 < rows_per_chunk(4096, 100, 9) < 4096 / 4


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
def test_losses_and_gradients(pieces, shape, by_row, ragged):
    potentials, y, lengths, weights = drawn(shape)
    chain = Chain(*potentials, lengths=lengths if ragged else None)
    weight = weights if by_row else -0.3
    costly = chain.augment(chain.hamming(y) * 0.5)
    rows = costly.decode()[0] - chain.score(y)
    pairs = [
        (chain.log_likelihood(y, weight), chain.log_prob(y)),
        (chain.violation(y, weight, 0.5), rows),
    ]
    for found, by_rows in pairs:
        expected = (by_rows * weight).sum()
        assert_close(found, expected, rtol=1e-11, atol=1e-11)
        mine = torch.autograd.grad(3 * found, potentials)
        theirs = torch.autograd.grad(3 * expected, potentials, retain_graph=True)
        for a, b in zip(mine, theirs, strict=True):
            assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_decoding(pieces, shape):
    potentials, _, lengths, _ = drawn(shape)
    chain = Chain(*potentials, lengths=lengths)
    value, y = chain.decode()
    with torch.no_grad():
        found, labels = chain.decode()
    assert torch.equal(found, value)
    assert torch.equal(labels, y)


def test_the_same_bits_on_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(chunks, "MIN_CHUNK_WORK", 1)
    potentials, y, lengths, weights = drawn(SHAPES[0], torch.float32)
    answers = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        loss = Chain(*potentials, lengths=lengths).log_likelihood(y, weights)
        answers.append([loss, *torch.autograd.grad(loss, potentials)])
    torch.set_num_threads(1)
    for other in answers[1:]:
        for a, b in zip(answers[0], other, strict=True):
            assert torch.equal(a, b)


def test_each_of_several_threads_has_rows_of_its_own(monkeypatch):
    threads = 1
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    cases = [(2, 100, 400), (8, 100, 200), (8, 100, 100), (16, 100, 200)]
    assert [rows_per_chunk_rowwise(*case) for case in cases] == [8, 8, 8, 8]
    threads = 2
    assert [rows_per_chunk_rowwise(*case) for case in cases] == [1, 4, 8, 4]
    assert [rows_per_chunk_rowwise(*case, itemsize=8) for case in cases] == [1, 4, 4, 4]
    # three pieces would leave one thread idle at the end
    assert rows_per_chunk_rowwise(64, 80, 50) == 16
    # in lanes as many as a sum over rows has
    assert rows_per_chunk_rowwise(4096, 100, 9) == rows_per_chunk(4096, 100, 9)


@pytest.mark.parametrize("rows", [2, 7, 8])
def test_the_same_bits_of_every_row_on_any_number_of_threads(rows, monkeypatch):
    monkeypatch.setattr(chunks, "MIN_CHUNK_WORK", 1)
    potentials, _, lengths, _ = drawn((rows, 9, 40), torch.float32)
    answers = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        chain = Chain(*potentials, lengths=lengths)
        value = chain.log_partition()
        gradients = torch.autograd.grad((value * value).sum(), potentials)
        answers.append([value, *gradients, chain.marginals(), *chain.decode()])
    torch.set_num_threads(1)
    for other in answers[1:]:
        for a, b in zip(answers[0], other, strict=True):
            assert torch.equal(a, b)


def test_labels_out_of_range_are_named_by_their_row(pieces):
    potentials, y, _, _ = drawn(SHAPES[0])
    y[70, 2] = 3
    chain = Chain(*potentials)
    for ask in (chain.log_likelihood, chain.violation):
        with pytest.raises(ValueError, match=r"got 3 at row 70, step 2"):
            ask(y)


def test_a_row_too_wide_for_its_dtype_is_not_lost(pieces):
    emissions = torch.zeros(97, 40, 3)
    emissions[70, ::2] = torch.tensor([0.0, 3000.0, -3000.0])
    chain = Chain(emissions, torch.tensor([[0.0, -2000, 0], [-2000, 0, 0], [0, 0, 0]]))
    y = torch.zeros(97, 40, dtype=torch.int64)
    expected = chain.log_prob(y).double().sum()
    assert expected < -1e4
    assert_close(chain.log_likelihood(y).double(), expected, rtol=1e-6, atol=0)


def test_run_all_keeps_the_order(pieces):
    assert run_all([]) == []
    assert run_all([lambda i=i: i * i for i in range(50)]) == [i * i for i in range(50)]


def test_run_all_raises_what_a_piece_raises(pieces):
    def fail():
        raise KeyError("a piece")

    for place in range(5):
        pieces = [int] * 5
        pieces[place] = fail
        with pytest.raises(KeyError, match="a piece"):
            run_all(pieces)


def test_an_error_waits_for_the_pieces_under_way(pieces):
    begun, ended = threading.Event(), []

    def long():
        begun.set()
        time.sleep(0.2)
        ended.append(None)

    def fail():
        # with one thread there is nothing to wait for
        begun.wait(10 if torch.get_num_threads() > 1 else 0)
        raise ZeroDivisionError

    later = [lambda: ended.append("begun after the error")] * 20
    with pytest.raises(ZeroDivisionError):
        run_all([fail, *later, long, *later])
    assert ended.count(None) == begun.is_set()


def test_run_all_calls_each_piece_once(pieces):
    calls = [0] * 23

    def call(i):
        calls[i] += 1

    for _ in range(20):
        run_all([partial(call, i) for i in range(23)])
    assert calls == [20] * 23


def test_run_rows_covers_every_row_once(pieces):
    for rows in (1, 2, 7, 100):
        seen = [0] * rows

        def kernel(first, last, seen):
            for row in range(first, last):
                seen[row] += 1

        run_rows(kernel, rows, 10**9, seen)
        run_rows(kernel, rows, 10**9, seen, group_size=3)
        assert seen == [2] * rows


def test_ranges_hold_whole_groups(pieces):
    firsts = []
    run_rows(lambda first, last: firsts.append(first), 29, 10**9, group_size=4)
    assert all(first % 4 == 0 for first in firsts)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux has it")
def test_threads_of_a_pool_are_kept_off_the_core_of_their_caller():
    cores = os.sched_getaffinity(0)
    placement, began, end = CoreAffinity(), threading.Event(), threading.Event()
    native = []

    def live():
        placement.register_thread()
        native.append(threading.get_native_id())
        began.set()
        end.wait()

    thread = threading.Thread(target=live)
    thread.start()
    began.wait()
    try:
        for core in sorted(cores):
            os.sched_setaffinity(0, {core})
            placement.avoid_current_core()
            # a caller that has one core only asks for nothing
            assert os.sched_getaffinity(native[0]) == cores
        os.sched_setaffinity(0, cores)
        placement = CoreAffinity()
        placement._thread_ids.append(native[0])
        placement.avoid_current_core()
        assert len(os.sched_getaffinity(native[0])) == max(len(cores) - 1, 1)
    finally:
        os.sched_setaffinity(0, cores)
        end.set()
        thread.join()
    placement.avoid_current_core()  # a thread that has ended is no error
