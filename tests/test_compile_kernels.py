"""Kernels that are compiled beforehand, and what a terminal is told meanwhile."""

import io
import sys
from types import SimpleNamespace
from typing import get_args

import pytest
import torch

import smoothsp
from smoothsp.compilation.listener import CompileListener, listener
from smoothsp.layers import LossName
from tests.programs import run


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def of(module, name="best"):
    def function(): ...

    function.__module__, function.__name__ = module, name
    return SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=function)})


def test_what_was_compiled_beforehand_is_not_compiled_again():
    smoothsp.compile_kernels(("crf", "hinge"))
    assert smoothsp.compile_kernels(("crf", "hinge")) == 0
    # nor by what it was compiled for, in other sizes
    before = listener.count
    head, x = smoothsp.LinearChain(7), torch.randn(9, 6, 7)
    tags = torch.zeros(9, 6, dtype=torch.int64)
    head(x, tags).backward()
    head(x, tags, loss="hinge").backward()
    head.decode(x, top_k=3)
    assert listener.count == before


def test_a_terminal_is_told_while_a_kernel_is_compiled(monkeypatch):
    terminal, listener = Terminal(), CompileListener()
    monkeypatch.setattr(sys, "stderr", terminal)
    ours, theirs = of("smoothsp._kernels.chain.cpu.viterbi"), of("scipy.best")
    listener.on_start(theirs)
    listener.on_start(of(None))  # of code that was made by exec
    assert terminal.getvalue() == ""
    listener.on_start(ours)
    written = terminal.getvalue()
    assert written.endswith("smoothsp: compiling best, cached on disk for later runs")
    listener.on_start(of("smoothsp._kernels.vectors.simd", "inner"))
    listener.on_end(of("smoothsp._kernels.vectors.simd", "inner"))
    assert terminal.getvalue() == written
    listener.on_end(ours)
    listener.on_end(theirs)
    assert terminal.getvalue() == written + "\r\x1b[K"
    assert listener.count == 2


def test_where_there_is_no_terminal_the_first_kernel_is_a_warning(monkeypatch, caplog):
    quiet, listener = io.StringIO(), CompileListener()
    monkeypatch.setattr(sys, "stderr", quiet)
    caplog.set_level("INFO", "smoothsp")
    for name in "one", "two":
        listener.on_start(of("smoothsp._kernels.chain.cpu.viterbi", name))
        listener.on_end(of("smoothsp._kernels.chain.cpu.viterbi", name))
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in said] == ["WARNING", "INFO", "INFO"]
    assert "python -m smoothsp.compilation" in said[0][1]
    assert said[2][1].startswith("compiled two in 0.")
    assert quiet.getvalue() == ""


@pytest.mark.long
def test_the_command_compiles_the_usual_calls_in_two_processes():
    command = sys.executable, "-m", "smoothsp.compilation"
    first = run(*command).stdout.splitlines()
    assert {line.split(":")[1] for line in first[1:]} == {" training", " prediction"}
    again = run(*command, "--native").stdout
    assert "training: 0 functions" in again and "prediction: 0 functions" in again
    losses = get_args(LossName)
    assert smoothsp.compile_kernels(losses, others=True) == 0


def test_a_loss_that_is_none_is_named():
    with pytest.raises(ValueError, match="loss: expected one of crf"):
        smoothsp.compile_kernels(("svm",))
    with pytest.raises(TypeError, match="losses: expected a list of names, got 'crf'"):
        smoothsp.compile_kernels("crf")
    with pytest.raises(TypeError, match="losses: expected a list of names, got 3"):
        smoothsp.compile_kernels(3)
    with pytest.raises(TypeError, match="dtypes: expected a list of dtypes, got torch"):
        smoothsp.compile_kernels(dtypes=torch.float32)
    with pytest.raises(TypeError, match=r"dtypes: .* got .float32"):
        smoothsp.compile_kernels(dtypes=["float32"])
