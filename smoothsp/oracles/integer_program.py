"""Linear integer programmes: any linear constraints, solved by HiGHS."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.threads.ranges import run_all
from smoothsp.oracles._inference import checks, in_graphs
from smoothsp.oracles._inference.structure import Structure
from smoothsp.oracles._inference.to_numpy import to_numpy
from smoothsp.oracles._inference.tracing import is_compiling, is_eager

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# How far from an integer, or beyond a bound of its size, HiGHS leaves a number.
_TOLERANCE = 1e-6


class IntegerProgram(Structure):
    r"""A batch of linear integer programmes.

    .. math:: s(y) = \langle \mathrm{scores}, y \rangle, \quad
        \mathrm{low} \le A y \le \mathrm{high}, \quad
        \mathrm{lower} \le y \le \mathrm{upper}, \quad
        y_i \in \mathbb{Z} \text{ for integer } i

    A variable with score ``-inf`` is fixed at 0.

    Parameters
    ----------
    scores
        ``(batch, N)``: score of one unit of each variable; float32 or float64; bfloat16
        and float16 are computed in float32.
    constraints
        ``(A, low, high)``, tensors or arrays: ``A (M, N)`` or ``(batch, M, N)``, also a
        sparse matrix of scipy; ``low`` and ``high`` numbers, ``(M,)`` or ``(batch,
        M)``, infinite where there is no bound. Or a ``scipy.optimize
        .LinearConstraint``, or a list of these. None without constraints.
    lower, upper
        Bounds of variables: numbers, ``(N,)`` or ``(batch, N)``; 0 and 1 by default.
    integer
        Which variables are integers: True for all, or bool ``(N,)``.
    time_limit
        Seconds of branch and bound for each row; None for no limit. When time runs out,
        ``decode`` returns the best output found so far, and ``bound()`` returns an
        upper bound of the maximum.

    Raises
    ------
    ImportError
        Without highspy: ``pip install "smoothsp[integer-programs]"``.
    TypeError
        For a wrong type, dtype or device, or under ``torch.func``: the solver needs the
        values. Under ``torch.compile`` for ``integer`` that is neither True nor False.
    ValueError
        For a wrong shape, NaN, bounds that exclude each other, or +inf in scores.
        Decoding also raises it for a row without an output, without a maximum, or
        without an output found in ``time_limit``.

    Notes
    -----
    An output is ``(batch, N)``: int64, or of the dtype of the scores where a variable
    is not an integer. ``hamming(y)`` is 1 for each variable that is 0 in y and cannot
    be negative, so the cost of an output counts its units there.

    The linear relaxation is solved first, warm-started from the preceding row if the
    constraints are equal. An integer solution of the relaxation is the best output.
    Otherwise branch and bound starts from the output of the preceding row. If several
    outputs are best, the one returned may depend on other rows. The maximum is exact up
    to HiGHS's tolerances: 1e-6 in constraints, and in the score 1e-6 of the row's
    largest score. Use scores of similar size where smaller differences matter.

    There is no ``decode_topk`` and no ``log_partition``. Train with
    ``StructuralHinge``, ``StructuredPerceptron``, ``SPOPlus``, ``PerturbedLoss``,
    ``SparseMAPLoss`` or the layers of decisions. On the CPU; tensors on a device are
    copied to the CPU and back.

    Source: Huangfu and Hall, "Parallelizing the Dual Revised Simplex Method" (2018),
    for HiGHS; Land and Doig, "An Automatic Method of Solving Discrete Programming
    Problems" (1960).

    Examples
    --------
    At most two of three tasks, and the third only with the first:

    >>> import torch
    >>> from smoothsp.oracles import IntegerProgram
    >>> A = torch.tensor([[1.0, 1.0, 1.0], [-1.0, 0.0, 1.0]])
    >>> scores = torch.tensor([[-1.0, 2.0, 4.0], [-3.0, 2.0, 2.0]])
    >>> program = IntegerProgram(scores, (A, -torch.inf, torch.tensor([2.0, 0.0])))
    >>> value, y = program.decode()
    >>> value.tolist(), y.tolist(), program.bound().tolist()
    ([3.0, 2.0], [[1, 0, 1], [0, 1, 0]], [3.0, 2.0])
    """

    scores: Tensor
    time_limit: float | None
    row_attributes = ("_which",)

    def __init__(
        self,
        scores: Tensor,
        constraints: Any = None,
        lower: Any = 0,
        upper: Any = 1,
        integer: Any = True,
        *,
        time_limit: float | None = None,
    ) -> None:
        _highs()
        if not (is_eager() or is_compiling()):
            raise TypeError(
                "scores: IntegerProgram needs values, which torch.func does not "
                "provide; call it outside"
            )
        scores = checks.as_potentials("scores", scores)
        self._record_versions({"scores": scores})
        if scores.dim() != 2:
            raise ValueError(f"scores: expected (batch, N), got {tuple(scores.shape)}")
        B, N = scores.shape
        if is_compiling():
            if not isinstance(integer, bool):
                raise TypeError(
                    "integer: expected True or False inside torch.compile, got "
                    f"{type(integer).__name__}"
                )
            self._output_dtype = in_graphs.INT if integer else in_graphs.FLOAT
            self._set_potentials({"scores": scores})
            return
        rows = _constraint_rows(constraints, B, N)
        bounds = _pair("lower", "upper", lower, upper, B, N)
        self._integer = _integers(integer, N)
        self._programs, which = _distinct(rows, bounds, B)
        self._which = torch.tensor(which, dtype=torch.int64, device=scores.device)
        if time_limit is not None:
            time_limit = checks.as_positive("time_limit", time_limit)
        self.time_limit = time_limit
        self._set_potentials({"scores": scores})
        self._require_valid("scores")

    def _can_be_infeasible(self, name: str) -> bool:
        # only the solver finds out
        return False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an output of one row."""
        return tuple(self.scores.shape[1:])

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """``(batch,)``: the number of variables."""
        return torch.full_like(self._which, self.scores.shape[1])

    @property
    def output_shapes(self) -> Int[Tensor, "batch 1"]:
        """``(batch, 1)``: ``lengths``, with an axis for the one axis of an output."""
        return self.lengths[:, None]

    # Outputs --------------------------------------------------------------------

    def _proved(self, y: Tensor) -> tuple[Tensor, bool]:
        """Outputs ``(batch, k, N)``, and whether k was there."""
        B, N = self.scores.shape
        if self._integer.all():
            y = checks.as_int64("y", y, self.scores.device)
        else:
            y = checks.as_dense("y", y)
            checks.require_device("y", y, self.scores.device)
        one = y.dim() == 2
        many = y[:, None] if one else y
        if many.dim() != 3 or (len(many), many.shape[2]) != (B, N):
            raise ValueError(
                f"y: expected ({B}, {N}) or ({B}, k, {N}), got {tuple(y.shape)}"
            )
        values = to_numpy(many.detach().cpu().double())
        for b, p in enumerate(self._which.tolist()):
            for k in range(values.shape[1]):
                wrong = self._programs[p].violation(values[b, k], self._integer)
                if wrong:
                    raise ValueError(
                        f"y: expected an output of the programme, got one with {wrong} "
                        f"at row {b}"
                    )
        return many, not one

    def score(self, y: Tensor) -> Float[Tensor, " batch *k"]:
        """Score of the outputs y, ``(batch, N)`` or ``(batch, k, N)``.

        Raises
        ------
        ValueError
            If y is not an output of the programme.
        """
        many, several = self._proved(y)
        value = self._value(many)
        return value if several else value.squeeze(1)

    def _value(self, y: Tensor) -> Tensor:
        used = y != 0
        scores = torch.where(used, self.scores[:, None], 0).double()
        return (scores * y).sum(2).to(self.scores.dtype)

    def hamming(self, y: Tensor) -> Float[Tensor, "batch N"]:
        """Cost 1 for variables that are 0 in y and cannot be negative, else 0."""
        many, several = self._proved(y)
        if several:
            raise ValueError(
                f"y: expected one output per row, (batch, N), got {tuple(y.shape)}"
            )
        if not self._programs:
            return torch.zeros_like(self.scores)
        low = torch.from_numpy(np.stack([p.lower for p in self._programs]))
        fine = low.to(self.scores.device)[self._which] >= 0
        return ((many[:, 0] == 0) & fine).to(self.scores.dtype)

    @property
    def _num_labels(self) -> int:
        return self.scores.shape[1]

    def label_counts(self, y: Tensor) -> Float[Tensor, "batch N"]:
        """Units of each variable: y, with 0 where it is negative."""
        return self._proved(y)[0][:, 0].clamp(min=0).to(self.scores.dtype)

    # Maxima ---------------------------------------------------------------------

    def decode(self) -> tuple[Float[Tensor, " batch"], Tensor]:
        """Highest score, and an output that attains it, within ``time_limit``.

        Returns
        -------
        value
            ``(batch,)``; its gradient is that of the output's score.
        y
            ``(batch, N)``.
        """
        y = torch.from_numpy(self._solve()[0]).to(self.scores.device)
        y = y.long() if self._integer.all() else y.to(self.scores.dtype)
        return self._value(y[:, None]).squeeze(1), y

    def bound(self) -> Float[Tensor, " batch"]:
        """Upper bound of all scores, from the relaxation or the search.

        ``decode()`` attains it up to rounding, unless ``time_limit`` ended the search.
        """
        y, bound = self._solve()
        attained = self._value(torch.from_numpy(y).to(self.scores.device)[:, None])
        found = torch.from_numpy(bound).to(self.scores)
        return torch.maximum(found, attained.detach().squeeze(1))

    def _solve(self) -> tuple[Floats, Floats]:
        """Best outputs ``(batch, N)`` and bounds ``(batch,)`` of their scores."""
        scores = to_numpy(self.scores.detach().cpu().double())
        y, bound = np.zeros(scores.shape), np.zeros(len(scores))
        if not scores.size:
            # without a variable only constraints of 0 are left
            for b in range(len(scores)):
                if self._programs[int(self._which[b])].violation(y[b], self._integer):
                    raise ValueError(_INFEASIBLE.format(b))
            return y, bound
        # rows of one programme are neighbours
        order = np.argsort(to_numpy(self._which.cpu()), kind="stable")
        pieces = np.array_split(order, min(len(order), torch.get_num_threads()))

        def solve(rows: Ints) -> None:
            solver, p = None, -1
            for b in rows.tolist():
                if solver is None or int(self._which[b]) != p:
                    p = int(self._which[b])
                    solver = _Solver(self._programs[p], self._integer, self.time_limit)
                y[b], bound[b] = solver.best(scores[b], b)

        run_all([partial(solve, rows) for rows in pieces])
        return y, bound


class _Program(NamedTuple):
    """Constraints by rows (CSR) with bounds, and bounds of variables."""

    starts: NDArray[np.int32]
    columns: NDArray[np.int32]
    value: Floats
    low: Floats
    high: Floats
    lower: Floats
    upper: Floats

    def violation(self, y: Floats, integer: NDArray[np.bool_]) -> str:
        """Description of why y is not an output; empty if it is one."""
        if not np.isfinite(y).all():
            return "a number that is not finite"
        slack = _TOLERANCE * (1 + np.abs(y))
        wrong = (y < self.lower - slack) | (y > self.upper + slack)
        wrong |= integer & (np.abs(y - np.round(y)) > _TOLERANCE)
        if wrong.any():
            i = int(wrong.argmax())
            return f"{y[i]:g} for variable {i}"
        row = np.repeat(np.arange(len(self.low)), np.diff(self.starts))
        terms = self.value * y[self.columns]
        total, size = (
            np.bincount(row, x, len(self.low)) for x in (terms, np.abs(terms))
        )
        room = _TOLERANCE * (1 + size)
        wrong = (total < self.low - room) | (total > self.high + room)
        if wrong.any():
            i = int(wrong.argmax())
            return f"{total[i]:g} for constraint {i}"
        return ""


_INFEASIBLE = (
    "constraints: row {} has no output: none meets all constraints within the bounds, "
    "with 0 for each variable that is forbidden (-inf); loosen them"
)


class _Solver:
    """Two models in HiGHS that share their constraints: relaxed, and of integers."""

    def __init__(
        self, program: _Program, integer: NDArray[np.bool_], limit: float | None
    ) -> None:
        self._program, self._integer, self._limit = program, integer, limit
        self._columns = np.arange(len(program.lower), dtype=np.int32)
        self._relaxed = self._model(False)
        self._whole: Any = None
        self._before: Floats | None = None

    def _model(self, whole: bool) -> Any:
        highspy, p = _highs(), self._program
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(p.lower), len(p.low)
        lp.col_cost_ = np.zeros(len(p.lower))
        lp.col_lower_, lp.col_upper_ = p.lower, p.upper
        lp.row_lower_, lp.row_upper_ = p.low, p.high
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = len(p.lower), len(p.low)
        lp.a_matrix_.start_, lp.a_matrix_.index_ = p.starts, p.columns
        lp.a_matrix_.value_ = p.value
        lp.sense_ = highspy.ObjSense.kMaximize
        if whole:
            kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
            lp.integrality_ = [kinds[int(x)] for x in self._integer]
        model = _quiet()
        if whole and self._limit is not None:
            model.setOptionValue("time_limit", self._limit)
        # rows are what threads share
        model.setOptionValue("threads", 1)
        model.setOptionValue("mip_rel_gap", 1e-9)
        model.setOptionValue("mip_abs_gap", 0.0)
        model.passModel(lp)
        return model

    def best(self, scores: Floats, row: int) -> tuple[Floats, float]:
        """The best output of such scores, and a bound of its score."""
        barred = scores == -np.inf
        finite = np.where(barred, 0.0, scores)
        # costs of one size, whatever units they are given in
        size = float(np.abs(finite).max(initial=0))
        unit = 2.0 ** np.floor(np.log2(size)) if size else 1.0
        cost = finite / unit
        y, bound = self._run(self._relaxed, cost, barred, row)
        integer = self._integer
        if (np.abs(y - np.round(y))[integer] > _TOLERANCE).any():
            # of some versions the limit counts what earlier calls took
            if self._whole is None or self._limit is not None:
                self._whole = self._model(True)
            if self._before is not None:
                start = _highs().HighsSolution()
                start.col_value = self._before.tolist()
                self._whole.setSolution(start)
            y, found = self._run(self._whole, cost, barred, row)
            bound = min(bound, found)
        y = np.where(integer, np.round(y), y)
        self._before = y
        return y, bound * unit

    def _run(
        self, model: Any, cost: Floats, barred: NDArray[np.bool_], row: int
    ) -> tuple[Floats, float]:
        status, p, n = _highs().HighsModelStatus, self._program, len(cost)
        model.changeColsCost(n, self._columns, cost)
        lower, upper = (np.where(barred, 0.0, x) for x in (p.lower, p.upper))
        if ((p.lower > 0) | (p.upper < 0))[barred].any():
            raise ValueError(_INFEASIBLE.format(row))
        model.changeColsBounds(n, self._columns, lower, upper)
        model.run()
        found = model.getModelStatus()
        if found == status.kUnboundedOrInfeasible:
            model.setOptionValue("presolve", "off")
            model.run()
            model.setOptionValue("presolve", "choose")
            found = model.getModelStatus()
        info = model.getInfo()
        whole = model is self._whole
        if found == status.kInfeasible:
            raise ValueError(_INFEASIBLE.format(row))
        if found in (status.kUnbounded, status.kUnboundedOrInfeasible):
            raise ValueError(
                f"scores: row {row} is unbounded: a variable without a bound raises "
                "the score; give finite bounds (lower, upper)"
            )
        if found == status.kTimeLimit and info.primal_solution_status != 2:
            raise ValueError(
                f"time_limit: expected an output of row {row} within {self._limit:g} s,"
                " got none; give it longer"
            )
        if found not in (status.kOptimal, status.kTimeLimit):
            words = model.modelStatusToString(found)
            raise ValueError(
                f"constraints: row {row} cannot be solved by HiGHS: {words}"
            )
        bound = info.mip_dual_bound if whole else info.objective_function_value
        return np.array(model.getSolution().col_value), float(bound)


def _quiet() -> Any:
    """Return a solver that prints nothing, not even when it is made."""

    class Quiet(_highs().Highs):  # type: ignore[misc]
        def enableCallbacks(self) -> None:
            # prints a banner unless the output is off before
            self.setOptionValue("output_flag", False)
            super().enableCallbacks()

    return Quiet()


def _highs() -> Any:
    try:
        import highspy
    except ImportError as error:
        raise ImportError(
            'IntegerProgram: needs highspy: pip install "smoothsp[integer-programs]"'
        ) from error
    return highspy


# Arguments ----------------------------------------------------------------------


def _floats(name: str, value: Any) -> Floats:
    """Numbers of a tensor, an array or a number, without NaN."""
    if isinstance(value, Tensor):
        value = to_numpy(value.detach().cpu().double())
    found = np.array(value)
    if found.dtype.kind not in "biuf":
        raise TypeError(f"{name}: expected numbers, got {type(value).__name__}")
    found = found.astype(np.float64)
    if np.isnan(found).any():
        raise ValueError(f"{name}: expected numbers, got NaN")
    return found


def _pair(
    low_name: str, high_name: str, low: Any, high: Any, B: int, size: int
) -> tuple[Floats, Floats]:
    """Bounds of ``(size,)`` or ``(batch, size)``, of which none exclude each other."""
    found = []
    for name, value in ((low_name, low), (high_name, high)):
        x = _floats(name, value)
        if x.shape not in ((), (size,), (B, size)):
            raise ValueError(
                f"{name}: expected a number, ({size},) or (batch, {size}) = "
                f"({B}, {size}), got {x.shape}"
            )
        found.append(x if x.ndim == 2 else np.broadcast_to(x, (size,)))
    wrong = (found[0] > found[1]) | (found[0] == np.inf) | (found[1] == -np.inf)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        a, b = (np.broadcast_to(x, wrong.shape)[at] for x in found)
        raise ValueError(
            f"{low_name}: expected at most {high_name}, got {a:g} and {b:g} at {at[-1]}"
        )
    return found[0], found[1]


def _integers(value: Any, N: int) -> NDArray[np.bool_]:
    if isinstance(value, Tensor):
        value = to_numpy(value.cpu())
    found = np.array(value)
    if found.dtype != np.bool_ or found.shape not in ((), (N,)):
        raise ValueError(
            f"integer: expected True, or bool ({N},), got {found.dtype} {found.shape}"
        )
    return np.broadcast_to(found, (N,)).copy()


Rows = tuple[Any, Floats, Floats]


def _constraint_rows(value: Any, B: int, N: int) -> list[Rows]:
    """Blocks of constraints: a matrix, in one or for each row, and its bounds."""
    if value is None:
        return []
    if hasattr(value, "lb"):
        value = [value]
    given = list(value) if isinstance(value, tuple | list) else None
    if given is None or not (all(hasattr(x, "lb") for x in given) or len(given) == 3):
        raise TypeError(
            "constraints: expected (A, low, high), LinearConstraint of scipy or a list "
            f"of these, got {type(value).__name__}"
        )
    if len(given) == 3 and not hasattr(given[0], "lb"):
        blocks = [tuple(given)]
    else:
        blocks = [(x.A, x.lb, x.ub) for x in given]
    found = []
    for A, low, high in blocks:
        if hasattr(A, "tocsr"):
            A = A.tocsr()
            shape = A.shape
            _floats("constraints", A.data)
        else:
            A = _floats("constraints", A)
            A = A[None] if A.ndim == 1 else A
            shape = A.shape
        several = len(shape) == 3 and shape[0] == B
        if (len(shape) != 2 and not several) or shape[-1] != N:
            raise ValueError(
                f"constraints: expected A (M, {N}) or (batch, M, {N}) with batch = {B},"
                f" got {tuple(shape)}"
            )
        finite = np.isfinite(A.data if hasattr(A, "tocsr") else A)
        if not finite.all():
            raise ValueError("constraints: expected finite numbers in A, got inf")
        M = shape[-2]
        pair = _pair("constraints, low", "constraints, high", low, high, B, M)
        found.append((A, *pair))
    return found


def _distinct(
    blocks: list[Rows], bounds: tuple[Floats, Floats], B: int
) -> tuple[list[_Program], list[int]]:
    """The programmes of a batch without repetition, and the one of each row."""
    each = any(A.ndim == 3 or x.ndim == 2 for A, *pair in blocks for x in pair)
    each |= any(x.ndim == 2 for x in bounds)
    if not each:
        return [_program(blocks, bounds, 0)], [0] * B
    known: dict[bytes, int] = {}
    programs: list[_Program] = []
    which = []
    for b in range(B):
        program = _program(blocks, bounds, b)
        key = b"|".join(x.tobytes() for x in program)
        if key not in known:
            known[key] = len(programs)
            programs.append(program)
        which.append(known[key])
    return programs, which


def _program(blocks: list[Rows], bounds: tuple[Floats, Floats], b: int) -> _Program:
    """Linear programme of row b."""
    counts = [np.zeros(1, np.int64)]
    index: list[Any] = []
    value: list[Any] = []
    low: list[Any] = []
    high: list[Any] = []
    for A, *pair in blocks:
        if hasattr(A, "tocsr"):
            counts.append(np.diff(A.indptr))
            index.append(A.indices)
            value.append(A.data)
        else:
            table = A[b] if A.ndim == 3 else A
            counts.append((table != 0).sum(1))
            index.append(np.nonzero(table)[1])
            value.append(table[table != 0])
        for x, to in zip(pair, (low, high), strict=True):
            to.append(x[b] if x.ndim == 2 else x)

    def joined(arrays: list[Any], kind: type) -> NDArray[Any]:
        return np.concatenate(arrays).astype(kind) if arrays else np.zeros(0, kind)

    lower, upper = (np.array(x[b] if x.ndim == 2 else x) for x in bounds)
    return _Program(
        np.cumsum(joined(counts, np.int64)).astype(np.int32),
        joined(index, np.int32),
        joined(value, np.float64),
        joined(low, np.float64),
        joined(high, np.float64),
        lower,
        upper,
    )
