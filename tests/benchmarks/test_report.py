"""Rows to CSV and back, tables between markers, numbers as one reads them."""

import pytest
import torch

import oracles
from inference import circuits_on_cuda, on_cuda
from inference.problems import SMALL, Case
from inference.questions import DECODE, MARGINALS, NLL, TOP
from inference.targets import evaluate
from measuring import timing
from report import results, tables
from report.results import ORACLES, Results, Row
from smoothsp.oracles import SpanTree

OURS = Row(
    ORACLES, NLL, str(SMALL), "float32", 1, "smoothsp",
    *(7.8e-5, 7e-5, 9e-5, 1.0, 1.0, 1.0), 15, 1.0, 15, 2, 1600,
)  # fmt: skip
PEER = Row(
    ORACLES, NLL, str(SMALL), "float32", 1, "torch-struct",
    *(5.5e-3, 5e-3, 6e-3, 70.4, 69.0, 72.0), 2, 1.0, 15, 2, 1600,
)  # fmt: skip
REFUSED = Row(ORACLES, NLL, str(SMALL), "float32", 1, "pytorch-crf", note="over 25 s")


def test_rows_survive_the_csv(tmp_path):
    path = tmp_path / "results" / "oracles.csv"
    results.write(path, [OURS, PEER, REFUSED], {"machine": "a, b", "seed": "0"})
    rows, where = results.read(path)
    assert rows[:2] == [OURS, PEER]
    assert not rows[2].measured and rows[2].note == "over 25 s"
    assert where == {"machine": "a, b", "seed": "0"}


def test_a_table_of_peers():
    table = tables.peer_table(Results([PEER, OURS, REFUSED]), NLL)
    assert table == [
        ["(B, T, S)", "dtype", "threads", "smoothsp", "pytorch-crf", "torch-struct"],
        [
            "(32, 50, 9)",
            "float32",
            "1",
            "78 us (70 us to 90 us)",
            "over 25 s",
            "5.5 ms, 70.4x (n = 2)",
        ],
    ]


def test_tables_stand_between_their_markers(tmp_path):
    path = tmp_path / "README.md"
    path.write_text("above\n<!-- a -->\nold\n<!-- end of a -->\nbelow\n")
    tables.fill(path, {"a": "| new \\1 |"})
    tables.fill(path, {"a": "| new \\1 |"})
    lines = ["above", "<!-- a -->", "| new \\1 |", "<!-- end of a -->", "below", ""]
    assert path.read_text() == "\n".join(lines)
    with pytest.raises(ValueError, match="<!-- b -->"):
        tables.fill(path, {"b": ""})


def test_the_page_has_a_place_for_every_table():
    found = tables.tables(Results([OURS]), evaluate(Results([OURS])), WHERE)
    text = (oracles.HERE / oracles.PAGE).read_text()
    for name in [*found, "cuda"]:
        assert f"<!-- {name} -->" in text
        assert f"<!-- end of {name} -->" in text


WHERE = {"date": "2000-01-01", "commit": "0", "machine": "one"}


def test_without_a_device_nothing_is_measured(monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit) as ended:
        on_cuda.main(oracles.parse(["--device", "cuda"]))
    assert ended.value.code == 2
    assert "no CUDA device is here, nothing measured" in capsys.readouterr().err


def test_circuits_are_judged_and_stand_in_the_table():
    case = circuits_on_cuda.Case("spans (2, 3)", SpanTree, ((2, 3, 3),))
    effort = timing.Effort(2, 0.0)
    asked = ((case,), ("float32",), effort, 0, "cpu", timing.on_the_wall)
    found = list(circuits_on_cuda.rows(*asked))
    # 18 scores, and as many gradients or labels
    assert [moved for _, moved in found] == [2 * 72, 72 + 144]
    rows = [on_cuda.beside_the_floor(*each, 1e9, 2e9) for each in found]
    table = tables.cuda_table(Results(rows), ["smoothsp"])
    assert [line[:3] for line in table[1:]] == [
        ["log-partition, forward + backward", "spans (2, 3)", "float32"],
        ["decode", "spans (2, 3)", "float32"],
    ]


def test_a_wrong_value_is_not_timed():
    exact = (torch.ones(2).double(), torch.zeros(2).long())
    circuits_on_cuda.agree("spans", exact, exact)
    with pytest.raises(SystemExit, match="spans: smoothsp is off by 1"):
        circuits_on_cuda.agree("spans", (2 * exact[0], exact[1]), exact)


def test_the_floor_counts_real_positions_once():
    problem = Case(4, 5, 3, shortest=3).draw(torch.float64, seed=0)
    # 16 real positions of 3 scores, 9 + 3 + 3 shared ones, 16 labels, 8 bytes each
    assert on_cuda.bytes_of(NLL, problem) == 8 * (2 * (48 + 15) + 16)
    assert on_cuda.bytes_of(DECODE, problem) == 8 * (48 + 15 + 16)
    assert on_cuda.bytes_of(MARGINALS, problem) == 8 * (48 + 15 + 48)
    assert on_cuda.bytes_of(TOP[5], problem) == 8 * (48 + 15 + 5 * 16)
