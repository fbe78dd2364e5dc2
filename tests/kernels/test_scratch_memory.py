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
chain = Chain(torch.randn({0}, {1}, {2}), torch.randn({2}, {2}))
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    chain.{3}
before = faults()
for _ in range(4):
    chain.{3}
print((faults() - before) / 4)
"""


def pages_of_a_call(*chain_and_question: object) -> float:
    theirs = ("MALLOC_", "GLIBC_TUNABLES")
    environment = {n: v for n, v in os.environ.items() if not n.startswith(theirs)}
    calls = CALLS.format(*chain_and_question)
    return float(programs.run(sys.executable, "-c", calls, env=environment).stdout)


@pytest.mark.long
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="counts glibc's pages")
def test_the_k_best_of_many_states_keep_their_pages():
    # 3 MB of scratch are 760 pages a piece, and there are eight pieces
    assert pages_of_a_call(64, 100, 200, "decode_topk(5)") < 760


@pytest.mark.long
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="counts glibc's pages")
def test_sums_of_one_long_row_keep_their_pages():
    # its scratch are 4,700 pages; that of four rows would be too large to be kept
    assert pages_of_a_call(1, 100_000, 5, "log_partition()") < 1000
