"""Schedules of circuits on devices: definitions by level, and uses of items."""

from typing import NamedTuple

from torch import Tensor


class Schedule(NamedTuple):
    """Items in levels, each a sum over products or over uses; int32 tensors.

    The items of a level do not depend on each other:
    ``heads[levels[l]:levels[l + 1]]`` depend on levels before l. Item ``heads[h]`` has
    the runs ``starts[h]`` to ``starts[h + 1]``, as in ``CircuitArrays``.
    """

    levels: Tensor  # [levels + 1]
    heads: Tensor  # [H]
    starts: Tensor  # [H + 1]
    runs: Tensor  # [R, 5]: count, a, step_a, b, step_b


class DeviceCircuit(NamedTuple):
    """A circuit on a device. Item 0 is the empty product; the leaves follow.

    ``inside_schedule`` has the definitions and their products; items of depth d are
    level d - 1. ``outside_schedule`` has all items but the empty product and their
    uses; items of depth d are level ``max_depth - d``. A use is a defined item and the
    factor beside this one.
    """

    num_items: int
    max_depth: int
    inside_schedule: Schedule
    outside_schedule: Schedule
    depths: Tensor  # [items] int32: the number of nested definitions, 0 of leaves
    max_leaves: Tensor  # [items] int32: the most leaves of one product
    positions: Tensor  # [1 + leaves] int32: the position that a leaf labels, or -1
    values: Tensor  # [1 + leaves] int32: the label


class DeviceRowRoots(NamedTuple):
    """The rows of a batch on a device, in the order in which programs process them."""

    order: Tensor  # [B] int64: rows, those with the largest circuits first
    roots: Tensor  # [B] int64: the root items, of row b, not of order[b]
