"""Scratch memory of a call is not given back to the system and asked for again."""

import os
import platform
import sys

import pytest

from tests import programs

CALLS = """
import resource, torch
from smoothsp.oracles import Chain

torch.set_num_threads(2)
torch.manual_seed(0)
chain = Chain(torch.randn(64, 100, 200), torch.randn(200, 200))
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    chain.decode_topk(5)
before = faults()
for _ in range(4):
    chain.decode_topk(5)
print((faults() - before) / 4)
"""


@pytest.mark.long
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="counts glibc's pages")
def test_the_k_best_of_many_states_keep_their_pages():
    theirs = ("MALLOC_", "GLIBC_TUNABLES")
    environment = {n: v for n, v in os.environ.items() if not n.startswith(theirs)}
    found = programs.run(sys.executable, "-c", CALLS, env=environment)
    # 3 MB of scratch are 760 pages a piece, and there are eight pieces
    assert float(found.stdout) < 760
