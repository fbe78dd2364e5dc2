"""The library without the parts of Python that only Linux has."""

import sys

from tests.programs import run

PROGRAM = """
from tests.other_systems import block

block()

import importlib, pkgutil, sys
from pathlib import Path

import numpy as np
import torch

import smoothsp
from smoothsp.linear import ChainCRF
from smoothsp.losses import CRFLoss
from smoothsp.oracles import Chain
from smoothsp.run_folder import held

for module in pkgutil.walk_packages(smoothsp.__path__, "smoothsp."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)

emissions = torch.zeros(2, 3, 2, requires_grad=True)
chain = Chain(emissions, torch.zeros(2, 2))
loss = CRFLoss()(chain, torch.zeros(2, 3, dtype=torch.long))
loss.backward()
assert torch.isclose(loss, 3 * torch.tensor(2.0).log()) and emissions.grad.any()
assert chain.decode()[1].shape == (2, 3)

folder = Path(sys.argv[1])
tagger = ChainCRF(C=1.0).fit([[{"a": 1.0}, {"b": 1.0}]], [["P", "Q"]])
tagger.save(folder / "tagger.npz")
assert ChainCRF.load(folder / "tagger.npz").predict([[{"b": 1.0}]])[0].tolist() == ["Q"]
with held(folder / "run"):
    assert (folder / "run").is_dir()
print("done")
"""


def test_nothing_that_only_linux_has_is_needed(tmp_path):
    done = run(sys.executable, "-c", PROGRAM, str(tmp_path))
    assert done.stdout.rstrip().endswith("done")
