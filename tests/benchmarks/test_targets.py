"""Targets: found in rows, judged by their worst, absent when not measured."""

import pytest

from inference import cells, targets
from inference.problems import CASES, RAGGED, SMALL
from inference.questions import DECODE, NLL
from inference.targets import Target, evaluate
from methods import peers
from methods.crf_layers import PYTORCH_CRF
from report.results import ORACLES, SCALING, Results, Row

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


def test_ragged_time_is_counted_by_real_positions():
    # the full batch: 100 positions in half of our time, for 50 positions in ours
    rows = [
        row("smoothsp", 1.0, RAGGED[0], positions=50),
        row(cells.FULL, 0.5, RAGGED[0], positions=100),
    ]
    verdict = judged(targets.a_position(NLL), 1.25, rows, at_most=True)
    assert verdict.worst[1].value == pytest.approx(4)


def test_every_target_can_be_evaluated_on_no_rows():
    verdicts = evaluate(Results())
    assert len(verdicts) == len(targets.TARGETS)
    assert {verdict.word for verdict in verdicts} == {"not measured"}
    names = [target.name for target in targets.TARGETS]
    assert len(set(names)) == len(names)
