"""What programs on a device read of a circuit: definitions by level, and uses."""

from typing import NamedTuple

from torch import Tensor


class Schedule(NamedTuple):
    """Items, each a sum over products or over uses, in levels: int32 tensors.

    A level is items that do not need each other: ``heads[levels[l]:levels[l + 1]]``
    need those of levels before l. Item ``heads[h]`` has the runs ``starts[h]`` to
    ``starts[h + 1]``. A run is ``count`` pairs of items, ``a + i * step_a`` and
    ``b + i * step_b`` for i from 0: five integers.
    """

    levels: Tensor  # [levels + 1]
    heads: Tensor  # [H]
    starts: Tensor  # [H + 1]
    runs: Tensor  # [R, 5]: count, a, step_a, b, step_b


class DeviceCircuit(NamedTuple):
    """A circuit on a device. Item 0 is the empty product, then come the leaves.

    ``upwards`` has the definitions, of which those of depth d are level d - 1, and
    their products. ``downwards`` has all items but the empty product, of which those of
    depth d are level ``deepest - d``, and their uses: the item that is defined, and the
    other factor.
    """

    num_items: int
    max_depth: int
    inside_schedule: Schedule
    outside_schedule: Schedule
    depths: Tensor  # [items] int32: how many definitions deep, 0 of leaves
    max_leaves: Tensor  # [items] int32: the most leaves that one product uses
    positions: Tensor  # [1 + leaves] int32: which label a leaf sets, -1 for none
    values: Tensor  # [1 + leaves] int32: to what


class DeviceRowRoots(NamedTuple):
    """The rows of a batch on a device, in the order in which programs take them."""

    order: Tensor  # [B] int64: rows with much to do first
    roots: Tensor  # [B] int64: the items that answer, of row b, not of order[b]
