"""Warps that run a decoded kernel.

Threads of a block run in teams: each warp alone, in random order, or all together. A
team runs its threads at the lowest instruction, as far as a barrier. What the threads
of a team do at one instruction is one operation on arrays.
"""

import operator
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.ptx.arithmetic import TYPES, Array, Fault, fused
from tests.ptx.decode import SHARED, SPECIAL, Instruction, Operand, Program
from tests.ptx.memory import Access, Memory, new_time

RUNS, AT_BARRIER, AT_WARP, GONE = range(4)
SPACES = ("shared", "global")
# A launch that takes more instructions than so many does not end.
MOST_STEPS = 3_000_000
B32, B64 = TYPES["b32"], TYPES["b64"]


@dataclass
class Launch:
    """What all blocks of a launch share."""

    program: Program
    memory: Memory
    arguments: dict[str, int]
    blocks: int
    shared_bytes: int
    order: random.Random
    together: bool
    steps: int = 0

    def run(self) -> None:
        self.time = new_time()
        order = list(range(self.blocks))
        self.order.shuffle(order)
        with np.errstate(all="ignore"):
            for block in order:
                Block(self, block).run()


class Block:
    """The threads of one program, and what they share."""

    def __init__(self, launch: Launch, number: int) -> None:
        self.launch, self.number = launch, number
        self.time = dict.fromkeys(SPACES, new_time())
        program = launch.program
        granule, size = program.narrowest("shared"), launch.shared_bytes
        self.shared = Memory(SHARED, size, granule, launch.memory.describe)
        self.shared.add(0, self.shared.bytes[:size], "shared memory")
        warps = program.threads // 32
        sizes = [warps] if launch.together else [1] * warps
        firsts = np.cumsum([0, *sizes[:-1]]) * 32
        self.teams = [Team(self, f, 32 * n) for f, n in zip(firsts, sizes, strict=True)]

    def run(self) -> None:
        while True:
            self.launch.order.shuffle(self.teams)
            for team in self.teams:
                team.run()
            state = np.concatenate([team.state for team in self.teams])
            if (state == GONE).all():
                return
            at = np.concatenate([team.at for team in self.teams])[state != GONE]
            if (state != AT_BARRIER).any() or (at != at[0]).any():
                places = sorted({str(self.launch.program.code[x]) for x in at})
                gone = int((state == GONE).sum())
                raise Fault(
                    f"hangs: {gone} of {len(state)} threads have ended, others wait "
                    f"at {', '.join(places)}"
                )
            orders = self.launch.program.code[at[0]].orders
            self.time |= dict.fromkeys(orders, new_time())
            for team in self.teams:
                team.pass_barrier(orders)


class Team:
    """Threads that run together: at one instruction, those that stand there."""

    def __init__(self, block: Block, first: int, size: int) -> None:
        self.block, self.launch = block, block.launch
        self.threads = np.arange(first, first + size)
        self.size, self.lane, self.all = size, np.arange(size), np.ones(size, bool)
        self.at = np.zeros(size, np.int64)
        self.state = np.full(size, RUNS)
        self.registers: dict[str, Array] = {"_": np.zeros(size, np.uint64)}
        special = (self.threads, block.number, block.launch.blocks)
        special += (block.launch.program.threads, self.threads % 32, self.threads // 32)
        for name, value in zip(SPECIAL, special, strict=True):
            self.registers[name] = np.broadcast_to(np.uint32(value), size)
        for name, number in block.launch.arguments.items():
            self.registers[name] = np.full(size, number, np.uint64)
        self.warp_time = {space: np.zeros(size, np.int64) for space in SPACES}
        self.new_warp_time(self.all, SPACES)

    def new_warp_time(self, which: Array, spaces: tuple[str, ...]) -> None:
        for warp in np.unique(self.lane[which] // 32):
            time = new_time()
            for space in spaces:
                self.warp_time[space][32 * warp : 32 * warp + 32] = time

    def pass_barrier(self, orders: tuple[str, ...]) -> None:
        self.state[:] = RUNS
        self.at += 1
        self.new_warp_time(self.all, orders)

    def run(self) -> None:
        """Run until all threads wait or have ended."""
        while (runs := self.state == RUNS).any():
            here = int(self.at[runs].min())
            active = runs & (self.at == here)
            others = self.at[runs & ~active]
            self._run_group(here, active, int(others.min()) if len(others) else None)

    def _run_group(self, here: int, active: Array, others: int | None) -> None:
        """Run threads that stand at ``here`` until they part or reach the others."""
        code, mask = self.launch.program.code, None if active.all() else active
        while others is None or here < others:
            step = code[here]
            self.launch.steps += 1
            if self.launch.steps > MOST_STEPS:
                raise Fault(f"does not end: {step}")
            which = mask
            if step.guard:
                said = self.registers[step.guard] ^ step.negated
                which = said if mask is None else said & mask
                if not which.any():
                    here += 1
                    continue
                which = None if which.all() else which
            if step.op == "compute":
                self._compute(step, which)
            elif which is None and step.name in ACTIONS:
                ACTIONS[step.name](self, step, here, self.all)
            elif step.op == "bra":
                taken = active if which is None else which
                if (taken == active).all():
                    here = step.target
                    continue
                self.at[active] = here + 1
                self.at[taken] = step.target
                return
            else:
                chosen = active if which is None else which
                self.at[active] = here + 1
                self.at[chosen] = here
                if not self._act(step, here, chosen):
                    return
                self.at[chosen] = here + 1
            here += 1
        self.at[active] = here

    def _fetch(self, operand: Operand, kind: np.dtype) -> Array:
        found = operand
        if isinstance(operand, str):
            found = self.registers.get(operand)
            if found is None:  # never written: as good as any other number
                width = self.launch.program.kind_of(operand)
                found = np.full(self.size, 0xFF, np.uint8).astype(width)
        if found.dtype is kind or found.dtype == kind:
            return found
        if found.dtype.itemsize != kind.itemsize:
            found = found.astype(f"u{kind.itemsize}")
        return found.view(kind)

    def _store(self, register: str, value: Array, which: Array | None) -> None:
        if register == "_":
            return
        width = self.launch.program.kind_of(register)
        if len(value) != self.size:
            value = value.repeat(self.size)
        if value.dtype is not width and value.dtype != width:
            if value.dtype.itemsize != width.itemsize:
                value = value.astype(value.dtype.str[:2] + str(width.itemsize))
            value = value.view(width)
        if which is not None:
            value = np.where(which, value, self._fetch(register, width))
        self.registers[register] = value

    def _compute(self, step: Instruction, which: Array | None) -> None:
        rule = step.rule
        values = list(map(self._fetch, step.operands, rule.operands))
        if step.divides:
            zero = np.broadcast_to(values[1] == 0, self.size)
            if (zero if which is None else zero & which).any():
                raise Fault(f"division by 0: {step}")
        found = rule.compute(*values)
        if found.dtype != rule.result:
            found = found.astype(rule.result)
        self._store(step.results[0], found, which)

    def _act(self, step: Instruction, here: int, which: Array) -> bool:
        """Do what is no arithmetic. Returns whether the threads go on at once."""
        if step.op == "ret":
            self.state[which] = GONE
            return False
        if step.op == "barrier":
            self.state[which] = AT_BARRIER
            return False
        if step.name in ALONE:
            ACTIONS[step.name](self, step, here, which)
            return True
        # all lanes of a warp take part in what is left
        waiting = (self.state == AT_WARP) & (self.at == here)
        whole = (which | waiting).reshape(-1, 32).all(1)
        ready = np.repeat(whole, 32)
        self.state[which & ~ready] = AT_WARP
        if not ready.any():
            return False
        self.state[ready] = RUNS
        ACTIONS[step.name](self, step, here, ready)
        self.at[ready] = here + 1
        return bool((ready == which).all())

    def access(self, here: int, which: Array) -> Access:
        space, block = self.launch.program.code[here].space, self.block
        who = self.threads[which], self.warp_time[space][which], block.number
        return Access(here, *who, block.time[space], self.launch.time)

    def spread(self, operand: Operand, kind: np.dtype) -> Array:
        """Return a register or a constant as one number for each thread."""
        found = self._fetch(operand, kind)
        return found if len(found) == self.size else found.repeat(self.size)


def _access(team: Team, step: Instruction, here: int, which: Array) -> None:
    is_global = step.space == "global"
    memory = team.launch.memory if is_global else team.block.shared
    count = max(len(step.results), len(step.operands) - 1)
    base = team.spread(step.operands[0], B64 if is_global else B32)
    address = base[which].astype(np.int64) + step.offset
    place = memory.places(address, count * step.kind.itemsize, here)
    access = team.access(here, which)
    if step.op == "ld":
        found = memory.read(place, count, step.kind, access)
        mask = None if len(place) == team.size else which
        for register, values in zip(step.results, found, strict=True):
            into = values
            if mask is not None:
                into = np.zeros(team.size, step.kind)
                into[which] = values
            team._store(register, into, mask)
    else:
        values = [team.spread(x, step.kind)[which] for x in step.operands[1:]]
        memory.write(place, np.stack(values), access)


def _repack(team: Team, step: Instruction, here: int, which: Array) -> None:
    half = np.dtype(f"u{step.kind.itemsize // 2}")
    mask = None if which is team.all or which.all() else which
    if step.op == "pack":
        low, high = (team._fetch(x, half) for x in step.operands)
        whole = np.empty((max(len(low), len(high)), 2), half)
        whole[:, 0], whole[:, 1] = low, high
        team._store(step.results[0], whole.view(step.kind)[:, 0], mask)
    else:
        whole = np.ascontiguousarray(team._fetch(step.operands[0], step.kind))
        halves = whole.view(half).reshape(-1, 2)
        for register, x in zip(step.results, halves.T, strict=True):
            team._store(register, np.ascontiguousarray(x), mask)


def _shuffle(team: Team, step: Instruction, here: int, which: Array) -> None:
    """``shfl.sync``: each lane reads a register of another."""
    by, clamp = (team._fetch(x, B32) for x in step.operands[1:3])
    lane = team.lane % 32
    by, segment = by.astype(np.int64) & 31, clamp.astype(np.int64) >> 8 & 31
    clamp = clamp.astype(np.int64) & 31
    first, last = lane & segment, (lane & segment) | (clamp & ~segment)
    how = step.op.split(".")[1]
    if how == "idx":
        source = first | (by & ~segment)
    else:
        source = {"up": operator.sub, "down": operator.add, "bfly": operator.xor}[how](
            lane, by
        )
    good = source >= last if step.op == "shfl.up" else source <= last
    source = team.lane - lane + np.where(good, source, lane)
    which = None if which is team.all else which
    values = team.spread(step.operands[0], B32)
    team._store(step.results[0], values[source], which)
    if len(step.results) > 1:
        team._store(step.results[1], good, which)


def _reduce(team: Team, step: Instruction, here: int, which: Array) -> None:
    """``redux.sync``: one answer for all lanes of a warp."""
    values = np.broadcast_to(team._fetch(step.operands[0], step.kind), team.size)
    functions: dict[str, Callable[..., Array]] = {
        "add": lambda x, axis: x.sum(axis, dtype=step.kind),
        "min": np.min if step.kind.kind != "f" else np.nanmin,
        "max": np.max if step.kind.kind != "f" else np.nanmax,
    }
    found = functions[step.op.split(".")[1]](values.reshape(-1, 32), axis=1)
    team._store(step.results[0], np.repeat(found, 32), which)


def _warp_barrier(team: Team, step: Instruction, here: int, which: Array) -> None:
    team.new_warp_time(which, step.orders)


def _multiply_matrices(team: Team, step: Instruction, here: int, which: Array) -> None:
    """``mma.m8n8k4`` of float64: lane l has A[l / 4, l % 4], B[l % 4, l / 4], ..."""
    f8 = TYPES["f64"]
    a, b, *c = (np.broadcast_to(team._fetch(x, f8), team.size) for x in step.operands)
    a, b = a.reshape(-1, 8, 4), b.reshape(-1, 8, 4)
    total = np.stack(c, -1).reshape(-1, 8, 8)
    for k in range(4):
        total = fused(a[:, :, None, k], b[:, None, :, k], total)
    for register, x in zip(step.results, total.reshape(-1, 2).T, strict=True):
        team._store(register, np.ascontiguousarray(x), which)


def _move_matrices(team: Team, step: Instruction, here: int, which: Array) -> None:
    """``ldmatrix``, ``stmatrix``: matrices of 8 rows of 16 bytes.

    Lane 8 k + r has the address of row r of matrix k; lane l holds four bytes of each.
    """
    address = np.broadcast_to(team._fetch(step.operands[0], B32), team.size)
    count = max(len(step.results), len(step.operands) - 1)
    memory, access = team.block.shared, team.access(here, which)
    for k in range(count):
        lane = team.lane
        row = address[lane // 32 * 32 + 8 * k + lane % 32 // 4].astype(np.int64)
        memory.places(row[which] + step.offset, 16, here)
        row = row + step.offset + 4 * (lane % 4)
        place = memory.places(row[which], 4, here)
        if step.op == "ldmatrix":
            into = np.zeros(team.size, np.uint32)
            into[which] = memory.read(place, 1, B32, access)[0]
            team._store(step.results[k], into, which)
        else:
            values = np.broadcast_to(team._fetch(step.operands[1 + k], B32), team.size)
            memory.write(place, values[which][None], access)


# What threads do that is no arithmetic, alone or with the other lanes of their warps.
ALONE = {"ld", "st", "pack", "unpack"}
ACTIONS: dict[str, Callable[[Team, Instruction, int, Array], None]] = {
    "ld": _access,
    "st": _access,
    "pack": _repack,
    "unpack": _repack,
    "shfl": _shuffle,
    "redux": _reduce,
    "warp_barrier": _warp_barrier,
    "mma": _multiply_matrices,
    "ldmatrix": _move_matrices,
    "stmatrix": _move_matrices,
}
