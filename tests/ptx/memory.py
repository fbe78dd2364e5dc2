"""Memory whose bounds are checked, and who touched it since when."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from tests.ptx.arithmetic import Array, Fault

# A launch, a stretch of a block between barriers, and one of a warp between barriers or
# ``bar.warp.sync`` are times. What happens at one time happens in no order.
_times = itertools.count(1)
MANY = 0xFFFF  # more than one


def new_time() -> int:
    return next(_times)


@dataclass(frozen=True)
class Access:
    """What some threads do at once: arrays have one element for each of them."""

    instruction: int
    thread: Array
    warp_time: Array
    block: int
    block_time: int
    launch: int

    def keys(self) -> Iterator[tuple[Array | int, Array | int]]:
        """Yield the time and who: of a thread, of its warp, of its block."""
        yield self.warp_time, self.thread
        yield self.block_time, self.thread // 32
        yield self.launch, self.block


class Trail:
    """For each granule and kind of time: the last time, and who touched it then."""

    def __init__(self, granules: int) -> None:
        self.levels = np.zeros((3, granules), np.int64)
        self.last = np.zeros(granules, np.int64)

    def mark(self, cells: Array, access: Access) -> None:
        for level, (time, who) in zip(self.levels, access.keys(), strict=True):
            old, new = level[cells], time << 16 | who
            others = (old >> 16 == time) & (old != new)
            new = np.where(others, time << 16 | MANY, new)
            level[cells] = new
            # of several threads at one granule, one is left
            lost = level[cells] != new
            if lost.any():
                level[cells[lost]] |= MANY
        self.last[cells] = access.instruction

    def conflicts(self, cells: Array, access: Access) -> list[Array]:
        """Return which cells another thread, warp and block touched at this time."""
        return [
            (level[cells] >> 16 == time) & (level[cells] & MANY != who)
            for level, (time, who) in zip(self.levels, access.keys(), strict=True)
        ]


class Memory:
    """Bytes from the address ``base`` on, of which some are owned.

    ``granule`` is how many bytes are touched at once at least.
    """

    def __init__(
        self, base: int, size: int, granule: int, describe: Callable[[int], str]
    ) -> None:
        self.base, self.granule, self.describe = base, granule, describe
        # nobody reads what nobody wrote: NaN, -1
        self.bytes = np.full(size + -size % 16, 0xFF, np.uint8)
        self.owned = np.zeros(len(self.bytes), bool)
        self.names: list[tuple[int, str]] = []
        granules = len(self.bytes) // granule
        self.saved, self.writes = Trail(granules), Trail(granules)

    def add(self, at: int, content: Array, name: str) -> None:
        self.bytes[at : at + len(content)] = content
        self.owned[at : at + len(content)] = True
        self.names.append((at, name))

    def name(self, place: int) -> str:
        return ["nothing", *(n for at, n in self.names if at <= place)][-1]

    def places(self, address: Array, width: int, instruction: int) -> Array:
        """Return where accesses of ``width`` bytes begin; all of them are owned."""
        place = address.astype(np.int64) - self.base
        inside = (place >= 0) & (place + width <= len(self.bytes))
        safe = np.where(inside, place, 0)
        inside &= self.owned[safe] & self.owned[safe + width - 1]
        if not inside.all():
            near = self.name(int(place[~inside][0]))
            raise Fault(f"out of bounds, near {near}: {self.describe(instruction)}")
        if (place % width).any():
            raise Fault(f"misaligned: {self.describe(instruction)}")
        return place

    def read(self, place: Array, count: int, kind: np.dtype, access: Access) -> Array:
        """Return values [count, n] from n places."""
        cells, spread = self._cells(place, kind.itemsize * count, access)
        self._refuse(self.writes.conflicts(cells, spread), self.writes, cells, access)
        self.saved.mark(cells, spread)
        return self.bytes.view(kind)[_elements(place, count, kind)]

    def write(self, place: Array, values: Array, access: Access) -> None:
        """Store values [count, n] at n places; to repeat what is there is no race."""
        count, kind = len(values), values.dtype
        cells, spread = self._cells(place, kind.itemsize * count, access)
        view, where = self.bytes.view(kind), _elements(place, count, kind)
        changed = (view[where] != values).any(0)
        changed = np.broadcast_to(changed, (len(cells) // len(place), len(place)))
        for trail in (self.saved, self.writes):
            threads, warps, blocks = trail.conflicts(cells, spread)
            found = [threads & changed.ravel(), warps & changed.ravel(), blocks]
            self._refuse(found, trail, cells, access)
        view[where] = values
        if (view[where] != values).any():
            where = self.describe(access.instruction)
            raise Fault(f"race between lanes of one store: {where}")
        self.writes.mark(cells, spread)

    def _cells(self, place: Array, width: int, access: Access) -> tuple[Array, Access]:
        """Return all granules, and the access with as many threads."""
        count = max(1, width // self.granule)
        if count == 1:
            return place // self.granule, access
        cells = place // self.granule + np.arange(count)[:, None]
        thread, time = (np.tile(x, count) for x in (access.thread, access.warp_time))
        return cells.ravel(), replace(access, thread=thread, warp_time=time)

    def _refuse(
        self, found: list[Array], trail: Trail, cells: Array, access: Access
    ) -> None:
        for kind, at in zip(("lanes of a warp", "warps", "blocks"), found, strict=True):
            if at.any():
                cell = int(cells[at][0])
                two = int(trail.last[cell]), access.instruction
                between = " and ".join(self.describe(x) for x in two)
                name = self.name(cell * self.granule)
                raise Fault(f"race between {kind} at {name}: {between}")


def _elements(place: Array, count: int, kind: np.dtype) -> Array:
    return place // kind.itemsize + np.arange(count)[:, None]
