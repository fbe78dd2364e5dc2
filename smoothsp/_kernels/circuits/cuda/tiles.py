"""Evaluation of a circuit by one program: rows as lanes, levels in a loop.

A program computes ``LANES`` rows of the batch in one launch, independently of other
programs. The chart of its rows, ``[num_items, LANES]``, is in global memory. It
computes ``HEADS`` items of a level at a time, ``EDGES`` products of each; a barrier
ends the level. Each item is computed by the threads that write it: inside from its
products, outside from the definitions that use it. No two threads write to one place,
and the bits of a row depend neither on other rows nor on the order of threads.

Names of blocks begin with b_; comments behind them give their shapes.
"""

import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

# Eight lanes of float32 fill a sector of 32 bytes, the smallest read of a GPU.
LANES = 8
# Blocks [HEADS, EDGES, LANES] have eight cells for each of 128 threads.
HEADS, EDGES, WARPS = 16, 8, 4
# Registers per thread. Without this limit the assembler spills registers to the stack,
# so that more programs run at once.
REGISTERS = 255


def num_programs(B):
    """Return the number of programs for B rows."""
    return triton.cdiv(B, LANES)


def chart_spec(circuit, B, dtype, device):
    """Return the arguments of ``torch.empty`` for a chart of all rows."""
    shape = (num_programs(B), circuit.num_items, LANES)
    return {"size": shape, "dtype": dtype, "device": device}


@triton.jit
def program_rows(order, B, LANES: tl.constexpr):
    """Return the rows of this program, int64 [LANES], and which lanes have one."""
    row_index = tl.program_id(0) * LANES + tl.arange(0, LANES)
    real = row_index < B
    return tl.load(order + row_index, mask=real, other=0), real


@triton.jit
def chart_offset(items, LANES: tl.constexpr):
    """Return the offset of this program's chart."""
    return tl.program_id(0).to(tl.int64) * items * LANES


@triton.jit
def run_bounds(starts, h, real):
    """Return first runs and numbers of runs of the items h, and the largest number."""
    b_first = tl.load(starts + h, mask=real, other=0)
    b_count = tl.load(starts + h + 1, mask=real, other=0) - b_first
    return b_first, b_count, tl.max(b_count, 0)


@triton.jit
def load_run(runs, b_run, real):
    """Return count, items and steps of runs, each [HEADS], and the largest count."""
    run = runs + b_run * 5
    b_count = tl.load(run, mask=real, other=0)
    b_a, b_step_a = tl.load(run + 1, mask=real), tl.load(run + 2, mask=real)
    b_b, b_step_b = tl.load(run + 3, mask=real), tl.load(run + 4, mask=real)
    return b_count, b_a, b_step_a, b_b, b_step_b, tl.max(b_count, 0)


@triton.jit
def edge_offsets(b_item, LANES: tl.constexpr):
    """Return offsets in a chart of items [HEADS, EDGES]: [HEADS, EDGES, LANES]."""
    return b_item[:, :, None] * LANES + tl.arange(0, LANES)[None, None, :]


@triton.jit
def item_offsets(b_item, LANES: tl.constexpr):
    """Return offsets in a chart of items [HEADS]: [HEADS, LANES]."""
    return b_item[:, None] * LANES + tl.arange(0, LANES)[None, :]
