"""How a program evaluates a circuit: rows as lanes, levels in a loop.

A program computes ``LANES`` rows of the batch in one launch and waits for no other
program. The chart of its rows, ``[items, LANES]``, is in global memory. Of a level it
computes ``HEADS`` items at a time, ``EDGES`` products of each; a barrier ends the
level. An item is computed where it is written: upwards from its products, downwards
from the definitions that use it. So no two threads write to one place, and a row's bits
depend neither on other rows nor on the order of threads.

Names of blocks begin with b_; comments behind them give their shapes.
"""

import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

# Eight lanes of float32 fill a sector of 32 bytes, the least that a GPU reads.
LANES = 8
# Blocks [HEADS, EDGES, LANES] have eight cells for each of 128 threads.
HEADS, EDGES, WARPS = 16, 8, 4
# Registers that a thread may use. Where this is not said the assembler spills some to
# the stack, so that more programs run at once.
REGISTERS = 255


def num_programs(B):
    """How many programs B rows need."""
    return triton.cdiv(B, LANES)


def chart_spec(circuit, B, dtype, device):
    """Shape, dtype and device of a chart of all rows, for ``torch.empty``."""
    shape = (num_programs(B), circuit.num_items, LANES)
    return {"size": shape, "dtype": dtype, "device": device}


@triton.jit
def program_rows(order, B, LANES: tl.constexpr):
    """The rows of this program, [LANES] int64, and which lanes have one."""
    row_index = tl.program_id(0) * LANES + tl.arange(0, LANES)
    real = row_index < B
    return tl.load(order + row_index, mask=real, other=0), real


@triton.jit
def chart_offset(items, LANES: tl.constexpr):
    """The offset at which the chart of this program begins."""
    return tl.program_id(0).to(tl.int64) * items * LANES


@triton.jit
def run_bounds(starts, h, real):
    """The first run of each of the items h, how many there are, and the most."""
    b_first = tl.load(starts + h, mask=real, other=0)
    b_count = tl.load(starts + h + 1, mask=real, other=0) - b_first
    return b_first, b_count, tl.max(b_count, 0)


@triton.jit
def load_run(runs, b_run, real):
    """Count, items and steps of a run of each item, each [HEADS]; the largest count."""
    run = runs + b_run * 5
    b_count = tl.load(run, mask=real, other=0)
    b_a, b_step_a = tl.load(run + 1, mask=real), tl.load(run + 2, mask=real)
    b_b, b_step_b = tl.load(run + 3, mask=real), tl.load(run + 4, mask=real)
    return b_count, b_a, b_step_a, b_b, b_step_b, tl.max(b_count, 0)


@triton.jit
def edge_offsets(b_item, LANES: tl.constexpr):
    """Where items [HEADS, EDGES] lie in a chart: [HEADS, EDGES, LANES]."""
    return b_item[:, :, None] * LANES + tl.arange(0, LANES)[None, None, :]


@triton.jit
def item_offsets(b_item, LANES: tl.constexpr):
    """Where items [HEADS] lie in a chart: [HEADS, LANES]."""
    return b_item[:, None] * LANES + tl.arange(0, LANES)[None, :]
