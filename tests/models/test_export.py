"""Decoding that leaves this process: equal to ``decode`` wherever it is loaded."""

import shutil
import sys
import warnings
from importlib.util import find_spec

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from smoothsp import LinearChain
from smoothsp.losses import CRFLoss, ListwiseRanking, SPOPlus, StructuralHinge
from smoothsp.oracles import Chain, Multiclass, SpanningTree
from tests.programs import run

LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
SIZES = [(1, 1), (3, 6), (2, 0), (0, 3), (5, 9)]
B, T = (torch.export.Dim(name, min=2) for name in ("batch", "time"))
SHAPES = ({0: B, 1: T}, {0: B, 1: T})


def drawn(batch, time, width, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, time, width, generator=generator)
    mask = torch.rand(batch, time, generator=generator) < 0.7
    mask[2:3] = False
    return x, mask


def head_of(**options):
    torch.manual_seed(1)
    head = LinearChain(5, **options)
    with torch.no_grad():
        for scores in head.parameters():
            scores.normal_()
    return head


class Tagger(nn.Module):
    """The smallest network above a chain, which is decoded by kernels or alone."""

    def __init__(self, alone):
        super().__init__()
        self.head = head_of(constraints=LABELS)
        self.emit = nn.Linear(4, 5)
        self.alone = self.head.exportable() if alone else None

    def forward(self, x, mask):
        emissions = self.emit(x)
        if self.alone is not None:
            return self.alone(emissions, mask)
        best = self.head.decode(emissions, mask)
        return best.tags, best.scores


def exported(alone):
    tagger = Tagger(alone).eval()
    return tagger, torch.export.export(tagger, drawn(3, 4, 4), dynamic_shapes=SHAPES)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("constraints", [None, LABELS])
@pytest.mark.parametrize("batch_first", [True, False])
def test_the_exportable_decoder_equals_decode(size, constraints, batch_first):
    head = head_of(constraints=constraints, batch_first=batch_first)
    emissions, mask = drawn(*size, 5)
    emissions[~mask] = torch.nan
    if not batch_first:
        emissions, mask = emissions.transpose(0, 1), mask.transpose(0, 1)
    best = head.decode(emissions, mask)
    tags, scores = head.exportable()(emissions, mask)
    assert torch.equal(tags, best.tags)
    assert_close(scores, best.scores)
    assert scores.dtype == emissions.dtype


PROGRAM = """
import sys, torch
inputs, alone, kernels = sys.argv[1:]
x, mask, tags, scores = torch.load(inputs, weights_only=True)

def check(path):
    found = torch.export.load(path).module()(x, mask)
    assert torch.equal(found[0], tags) and torch.allclose(found[1], scores)

check(alone)
assert "smoothsp" not in sys.modules
import smoothsp
check(kernels)
print("equal")
"""


@pytest.mark.long
def test_exported_taggers_run_in_another_process(tmp_path):
    for alone in (True, False):
        tagger, program = exported(alone)
        text = program.graph_module.print_readable(print_output=False)
        assert ("torch.ops.smoothsp" in text) == (not alone)
        torch.export.save(program, tmp_path / f"{alone}.pt2")
    x, mask = drawn(5, 7, 4, seed=2)
    with torch.no_grad():
        torch.save([x, mask, *tagger(x, mask)], tmp_path / "inputs.pt")
    files = (tmp_path / name for name in ("inputs.pt", "True.pt2", "False.pt2"))
    assert run(sys.executable, "-c", PROGRAM, *files).stdout.split() == ["equal"]


COMPILED = """
import sys, torch
package, inputs = sys.argv[1:]
x, mask, tags, scores = torch.load(inputs, weights_only=True)
found = torch._inductor.aoti_load_package(package)(x, mask)
assert torch.equal(found[0], tags) and torch.allclose(found[1], scores)
assert "smoothsp" not in sys.modules
print("equal")
"""


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("g++"), reason="AOTInductor calls a C++ compiler")
def test_a_tagger_compiled_ahead_of_time_runs_in_another_process(tmp_path):
    tagger, program = exported(alone=True)
    package = str(tmp_path / "tagger.pt2")
    torch._inductor.aoti_compile_and_package(program, package_path=package)
    x, mask = drawn(5, 7, 4, seed=2)
    with torch.no_grad():
        torch.save([x, mask, *tagger(x, mask)], tmp_path / "inputs.pt")
    files = package, tmp_path / "inputs.pt"
    assert run(sys.executable, "-c", COMPILED, *files).stdout.split() == ["equal"]


READ = """
import sys, numpy, onnx, onnxruntime
path, inputs = sys.argv[1:]
graph = onnx.load(path)
onnx.checker.check_model(graph)
names = {node.domain for node in graph.graph.node}
names |= {entry.domain for entry in graph.opset_import}
assert names <= {"", "ai.onnx"}, names
given = numpy.load(inputs)
session = onnxruntime.InferenceSession(path)
found = session.run(None, {"x": given["x"], "mask": given["mask"]})
assert (found[0] == given["tags"]).all()
numpy.testing.assert_allclose(found[1], given["scores"], rtol=1e-5)
assert "torch" not in sys.modules
print("equal")
"""


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(
    not all(find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime")),
    reason='needs pip install "smoothsp[export]"',
)
def test_an_onnx_file_of_standard_operators_runs_without_torch(tmp_path):
    import numpy as np

    tagger, program = exported(alone=True)
    onnx = tmp_path / "tagger.onnx"
    names = {"input_names": ["x", "mask"], "output_names": ["tags", "scores"]}
    torch.onnx.export(program, f=onnx, dynamo=True, verbose=False, **names)
    x, mask = drawn(5, 7, 4, seed=2)
    with torch.no_grad():
        tags, scores = tagger(x, mask)
    names = {"x": x, "mask": mask, "tags": tags, "scores": scores}
    arrays = {name: value.numpy() for name, value in names.items()}
    np.savez(tmp_path / "inputs.npz", **arrays)
    files = onnx, tmp_path / "inputs.npz"
    assert run(sys.executable, "-c", READ, *files).stdout.split() == ["equal"]


@pytest.mark.parametrize("alone", [False, True])
def test_torchscript_is_refused_in_a_sentence(alone):
    tagger, given = Tagger(alone).eval(), drawn(3, 4, 4)
    words = "^torch.jit: TorchScript is not supported; use torch.export[^\\n]*$"
    for convert in (torch.jit.script, lambda model: torch.jit.trace(model, given)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(TypeError, match=words):
                convert(tagger)


@pytest.mark.parametrize(
    "given",
    [
        *(CRFLoss(), StructuralHinge(), SPOPlus(), ListwiseRanking()),
        *(StructuralHinge, LinearChain, Chain, SpanningTree),
    ],
    ids=str,
)
def test_torchscript_of_anything_is_refused_in_a_sentence(given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(TypeError, match="TorchScript is not supported"):
            torch.jit.script(given)


def test_a_structure_within_a_trace_is_refused():
    def best(scores):
        return Multiclass(scores).decode()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(TypeError, match="TorchScript is not supported"):
            torch.jit.trace(best, torch.zeros(2, 3))
