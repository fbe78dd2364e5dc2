"""Targets: found in rows, judged by their worst, absent when not measured."""

import pytest

from inference import cells, cold_start, memory, targets
from inference.problems import CASES, LARGE, RAGGED, SMALL
from inference.questions import DECODE, HINGE, NLL
from inference.targets import Target, evaluate
from methods import peers
from methods.crf_layers import PYTORCH_CRF
from report.results import COLD_START, MEMORY, ORACLES, SCALING, Results, Row

BOTH = ("float32", "float64")


def row(method, ratio=1.0, case=SMALL, question=NLL, dtype="float32", **more):
    given = {"section": ORACLES, "threads": 1, "median": 1e-4, "positions": 100} | more
    return Row(
        question=question,
        case=str(case),
        dtype=dtype,
        method=method,
        ratio=ratio,
        ratio_low=ratio * 0.99,
        ratio_high=ratio * 1.01,
        **given,
    )


def judged(measure, bound, rows, **more):
    (verdict,) = evaluate(Results(rows), (Target("", bound, measure, **more),))
    return verdict


def test_a_ratio_is_reached_or_missed():
    measure = targets.against(PYTORCH_CRF, NLL, (SMALL,), ("float32",))
    rows = [row(PYTORCH_CRF, 60.0)]
    assert judged(measure, 50, rows).word == "reached"
    assert judged(measure, 61, rows).word == "missed"
    assert judged(measure, 50, []).word == "not measured"


def test_other_shapes_dtypes_questions_and_methods_do_not_count():
    measure = targets.against(PYTORCH_CRF, NLL, (SMALL,), ("float32",))
    rows = [
        row(PYTORCH_CRF, case=CASES[1]),
        row(PYTORCH_CRF, dtype="float64"),
        row(PYTORCH_CRF, question=DECODE),
        row(peers.JAX),
        row(PYTORCH_CRF, section=SCALING),
    ]
    assert judged(measure, 50, rows).reached is None


def test_the_worst_shape_decides_and_is_named():
    measure = targets.against(peers.JAX, NLL, CASES, BOTH)
    rows = [row(peers.JAX, 5.0), row(peers.JAX, 0.9, RAGGED[0], dtype="float64")]
    verdict = judged(measure, 1, rows)
    assert verdict.reached is False
    assert verdict.worst[1].where == "(64, 5 to 80, 9) float64"


def test_both_thread_counts_must_keep_a_target():
    measure = targets.against(PYTORCH_CRF, NLL, (SMALL,), ("float32",))
    rows = [row(PYTORCH_CRF, 60.0), row(PYTORCH_CRF, 40.0, threads=2)]
    assert judged(measure, 50, rows).reached is False
    assert judged(measure, 40, rows).reached is True


def test_a_refused_method_is_not_measured():
    measure = targets.against(PYTORCH_CRF, NLL, (SMALL,), ("float32",))
    refused = Row(ORACLES, NLL, str(SMALL), "float32", 1, PYTORCH_CRF, note="over 25 s")
    assert judged(measure, 50, [refused]).reached is None


def test_a_call_is_at_most_so_long():
    measure = targets.whole_call(NLL, SMALL, ("float32",))
    assert judged(measure, 120, [row("smoothsp")], at_most=True).reached is True
    assert judged(measure, 99, [row("smoothsp")], at_most=True).reached is False


def test_our_time_in_terms_of_a_reference():
    measure = targets.in_terms_of(cells.ONE_BEST, NLL, (SMALL,), BOTH)
    verdict = judged(measure, 8, [row(cells.ONE_BEST, 0.25)], at_most=True)
    assert verdict.worst[1].value == 4


def test_ragged_time_is_counted_by_real_positions():
    # the full batch: 100 positions in half of our time, for 50 positions in ours
    rows = [
        row("smoothsp", 1.0, RAGGED[0], positions=50),
        row(cells.FULL, 0.5, RAGGED[0], positions=100),
    ]
    verdict = judged(targets.a_position(NLL), 1.25, rows, at_most=True)
    assert verdict.worst[1].value == pytest.approx(4)


def test_two_threads_are_judged_where_there_is_work():
    rows = [
        row(cells.ONE_THREAD, 1.1, median=1e-4),
        row(cells.ONE_THREAD, 1.7, LARGE[0], section=SCALING, median=1e-2),
    ]
    busy = judged(targets.speed_up(busy=True), 1.6, rows, threads=(2,))
    assert (busy.reached, busy.worst[2].value) == (True, 1.7)
    everywhere = judged(targets.speed_up(busy=False), 0.95, rows, threads=(2,))
    assert everywhere.worst[2].value == 1.1


def test_a_loss_within_the_quartiles_is_noise_and_others_are_not():
    noisy = row(cells.ONE_THREAD, 0.9)
    noisy = type(noisy)(**{**noisy.__dict__, "ratio_high": 1.01})
    verdict = judged(targets.speed_up(busy=False), 0.95, [noisy], threads=(2,))
    assert verdict.reached is True
    slower = row(cells.ONE_THREAD, 0.9)
    verdict = judged(targets.speed_up(busy=False), 0.95, [slower], threads=(2,))
    assert verdict.reached is False


def test_memory_is_counted_in_numbers_of_t_by_s():
    few, many = (memory.long_case(S) for S in memory.STATES)
    rows = [
        row("smoothsp", case=few, section=MEMORY, median=3 * 4 * 100_000 * 9),
        row("smoothsp", case=many, section=MEMORY, median=6 * 4 * 100_000 * 36),
    ]
    (found,) = targets.long_memory(Results(rows), 1)
    assert found.value == pytest.approx(3)
    (found,) = targets.growth_of_memory(Results(rows), 1)
    assert found.value == pytest.approx(2)


def test_cold_start_is_in_seconds():
    rows = [row(cold_start.WARM, section=COLD_START, median=0.2)]
    assert judged(targets.start(cold_start.WARM), 0.3, rows, at_most=True).reached
    assert judged(targets.start(cold_start.COLD), 20, rows, at_most=True).worst == {}


def test_every_target_can_be_evaluated_on_no_rows():
    verdicts = evaluate(Results())
    assert len(verdicts) == len(targets.TARGETS)
    assert {verdict.word for verdict in verdicts} == {"not measured"}
    names = [target.name for target in targets.TARGETS]
    assert len(set(names)) == len(names)


def test_hinge_has_its_own_rows():
    measure = targets.against(PYTORCH_CRF, HINGE, (SMALL,), BOTH)
    assert judged(measure, 1, [row(PYTORCH_CRF)]).reached is None
