"""Integer linear programmes with any linear constraints, solved by HiGHS."""

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

# Feasibility and integrality tolerance of HiGHS, relative to magnitudes above 1.
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
    row_attributes = ("_program_index",)

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
        _import_highspy()
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
        rows = _as_constraint_blocks(constraints, B, N)
        bounds = _as_bounds("lower", "upper", lower, upper, B, N)
        self._integer = _as_integer_mask(integer, N)
        self._programs, program_index = _distinct_programs(rows, bounds, B)
        self._program_index = torch.tensor(
            program_index, dtype=torch.int64, device=scores.device
        )
        if time_limit is not None:
            time_limit = checks.as_positive("time_limit", time_limit)
        self.time_limit = time_limit
        self._set_potentials({"scores": scores})
        self._require_valid("scores")

    def _can_be_infeasible(self, name: str) -> bool:
        # feasibility needs the solver: decoding raises the error
        return False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an output of one row."""
        return tuple(self.scores.shape[1:])

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """``(batch,)``: the number of variables."""
        return torch.full_like(self._program_index, self.scores.shape[1])

    @property
    def output_shapes(self) -> Int[Tensor, "batch 1"]:
        """``(batch, 1)``: ``lengths``, with an axis for the one axis of an output."""
        return self.lengths[:, None]

    # Outputs --------------------------------------------------------------------

    def _checked_outputs(self, y: Tensor) -> tuple[Tensor, bool]:
        """Validate outputs; return ``(batch, k, N)``, and whether y has the axis k."""
        B, N = self.scores.shape
        if self._integer.all():
            y = checks.as_int64("y", y, self.scores.device)
        else:
            y = checks.as_dense("y", y)
            checks.require_device("y", y, self.scores.device)
        lacks_k = y.dim() == 2
        y_with_k = y[:, None] if lacks_k else y
        if y_with_k.dim() != 3 or (len(y_with_k), y_with_k.shape[2]) != (B, N):
            raise ValueError(
                f"y: expected ({B}, {N}) or ({B}, k, {N}), got {tuple(y.shape)}"
            )
        values = to_numpy(y_with_k.detach().cpu().double())
        for b, p in enumerate(self._program_index.tolist()):
            for k in range(values.shape[1]):
                violation = self._programs[p].describe_violation(
                    values[b, k], self._integer
                )
                if violation:
                    raise ValueError(
                        "y: expected an output of the programme, got one with "
                        f"{violation} at row {b}"
                    )
        return y_with_k, not lacks_k

    def score(self, y: Tensor) -> Float[Tensor, " batch *k"]:
        """Score of the outputs y, ``(batch, N)`` or ``(batch, k, N)``.

        Raises
        ------
        ValueError
            If y is not an output of the programme.
        """
        y_with_k, has_k = self._checked_outputs(y)
        value = self._score_outputs(y_with_k)
        return value if has_k else value.squeeze(1)

    def _score_outputs(self, y: Tensor) -> Tensor:
        """Scores ``(batch, k)`` of valid outputs ``(batch, k, N)``."""
        # forbidden variables are 0: avoid 0 * -inf
        used = y != 0
        scores = torch.where(used, self.scores[:, None], 0).double()
        return (scores * y).sum(2).to(self.scores.dtype)

    def hamming(self, y: Tensor) -> Float[Tensor, "batch N"]:
        """Cost 1 for variables that are 0 in y and cannot be negative, else 0."""
        y_with_k, has_k = self._checked_outputs(y)
        if has_k:
            raise ValueError(
                f"y: expected one output per row, (batch, N), got {tuple(y.shape)}"
            )
        if not self._programs:
            return torch.zeros_like(self.scores)
        low = torch.from_numpy(np.stack([p.lower for p in self._programs]))
        is_nonnegative = low.to(self.scores.device)[self._program_index] >= 0
        return ((y_with_k[:, 0] == 0) & is_nonnegative).to(self.scores.dtype)

    @property
    def _label_counts_width(self) -> int:
        return self.scores.shape[1]

    def label_counts(self, y: Tensor) -> Float[Tensor, "batch N"]:
        """Units of each variable: y, clipped below at 0."""
        return self._checked_outputs(y)[0][:, 0].clamp(min=0).to(self.scores.dtype)

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
        y = torch.from_numpy(self._solve_rows()[0]).to(self.scores.device)
        y = y.long() if self._integer.all() else y.to(self.scores.dtype)
        return self._score_outputs(y[:, None]).squeeze(1), y

    def bound(self) -> Float[Tensor, " batch"]:
        """Upper bound of all scores, from the relaxation or the search.

        ``decode()`` attains it up to rounding, unless ``time_limit`` ended the search.
        """
        y, bound = self._solve_rows()
        attained = self._score_outputs(
            torch.from_numpy(y).to(self.scores.device)[:, None]
        )
        upper = torch.from_numpy(bound).to(self.scores)
        return torch.maximum(upper, attained.detach().squeeze(1))

    def _solve_rows(self) -> tuple[Floats, Floats]:
        """Best outputs ``(batch, N)`` and bounds ``(batch,)`` of their scores."""
        scores = to_numpy(self.scores.detach().cpu().double())
        y, bound = np.zeros(scores.shape), np.zeros(len(scores))
        if not scores.size:
            # without variables, each constraint is low <= 0 <= high
            for b in range(len(scores)):
                if self._programs[int(self._program_index[b])].describe_violation(
                    y[b], self._integer
                ):
                    raise ValueError(_INFEASIBLE.format(b))
            return y, bound
        # rows of equal constraints are neighbours, so each is warm-started by the last
        order = np.argsort(to_numpy(self._program_index.cpu()), kind="stable")
        # contiguous chunks keep equal programmes together; each thread has its models
        chunks = np.array_split(order, min(len(order), torch.get_num_threads()))

        def solve_chunk(rows: Ints) -> None:
            solver, p = None, -1
            for b in rows.tolist():
                if solver is None or int(self._program_index[b]) != p:
                    p = int(self._program_index[b])
                    solver = _Solver(self._programs[p], self._integer, self.time_limit)
                y[b], bound[b] = solver.maximise(scores[b], b)

        run_all([partial(solve_chunk, rows) for rows in chunks])
        return y, bound


class _Program(NamedTuple):
    """Constraint matrix in CSR form with bounds of rows, and bounds of variables."""

    starts: NDArray[np.int32]
    columns: NDArray[np.int32]
    value: Floats
    low: Floats
    high: Floats
    lower: Floats
    upper: Floats

    def describe_violation(self, y: Floats, integer: NDArray[np.bool_]) -> str:
        """Describe the first violation of y; empty if y is feasible."""
        if not np.isfinite(y).all():
            return "a number that is not finite"
        slack = _TOLERANCE * (1 + np.abs(y))
        is_violated = (y < self.lower - slack) | (y > self.upper + slack)
        is_violated |= integer & (np.abs(y - np.round(y)) > _TOLERANCE)
        if is_violated.any():
            i = int(is_violated.argmax())
            return f"{y[i]:g} for variable {i}"
        row = np.repeat(np.arange(len(self.low)), np.diff(self.starts))
        terms = self.value * y[self.columns]
        total, size = (
            np.bincount(row, x, len(self.low)) for x in (terms, np.abs(terms))
        )
        # relative to the summands, whose cancellation leaves rounding errors
        row_slack = _TOLERANCE * (1 + size)
        is_violated = (total < self.low - row_slack) | (total > self.high + row_slack)
        if is_violated.any():
            i = int(is_violated.argmax())
            return f"{total[i]:g} for constraint {i}"
        return ""


_INFEASIBLE = (
    "constraints: row {} has no output: none meets all constraints within the bounds, "
    "with 0 for each variable that is forbidden (-inf); loosen them"
)


class _Solver:
    """HiGHS models of one programme: the linear relaxation, and the integer programme.

    Both are kept between rows, which differ in the objective only.
    """

    def __init__(
        self, program: _Program, integer: NDArray[np.bool_], time_limit: float | None
    ) -> None:
        self._program, self._integer, self._time_limit = program, integer, time_limit
        self._columns = np.arange(len(program.lower), dtype=np.int32)
        self._relaxed = self._build_model(False)
        self._mip: Any = None
        self._warm_start: Floats | None = None

    def _build_model(self, is_integer: bool) -> Any:
        """Pass the constraints to a new HiGHS model, with objective 0."""
        highspy, p = _import_highspy(), self._program
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
        if is_integer:
            kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
            lp.integrality_ = [kinds[int(x)] for x in self._integer]
        model = _build_silent_solver()
        if is_integer and self._time_limit is not None:
            model.setOptionValue("time_limit", self._time_limit)
        # one thread per model: the rows of the batch are already distributed
        model.setOptionValue("threads", 1)
        model.setOptionValue("mip_rel_gap", 1e-9)
        model.setOptionValue("mip_abs_gap", 0.0)
        model.passModel(lp)
        return model

    def maximise(self, scores: Floats, row: int) -> tuple[Floats, float]:
        """Best output ``(N,)`` for ``scores (N,)``, and an upper bound of its score."""
        forbidden = scores == -np.inf
        finite = np.where(forbidden, 0.0, scores)
        # HiGHS has absolute tolerances: divide by a power of two, which is exact
        magnitude = float(np.abs(finite).max(initial=0))
        unit = 2.0 ** np.floor(np.log2(magnitude)) if magnitude else 1.0
        cost = finite / unit
        y, bound = self._run_solver(self._relaxed, cost, forbidden, row)
        integer = self._integer
        if (np.abs(y - np.round(y))[integer] > _TOLERANCE).any():
            # some versions of HiGHS count the time of earlier runs towards the limit
            if self._mip is None or self._time_limit is not None:
                self._mip = self._build_model(True)
            if self._warm_start is not None:
                start = _import_highspy().HighsSolution()
                start.col_value = self._warm_start.tolist()
                self._mip.setSolution(start)
            # both bounds hold: a time limit may leave the relaxation's the better one
            y, mip_bound = self._run_solver(self._mip, cost, forbidden, row)
            bound = min(bound, mip_bound)
        # integral up to HiGHS's tolerance: round to exact integers
        y = np.where(integer, np.round(y), y)
        self._warm_start = y
        return y, bound * unit

    def _run_solver(
        self, model: Any, cost: Floats, forbidden: NDArray[np.bool_], row: int
    ) -> tuple[Floats, float]:
        """Solve for one objective with forbidden variables fixed at 0.

        Returns the solution and the dual bound; raises ValueError that names the row.
        """
        status, p, n = _import_highspy().HighsModelStatus, self._program, len(cost)
        model.changeColsCost(n, self._columns, cost)
        lower, upper = (np.where(forbidden, 0.0, x) for x in (p.lower, p.upper))
        # a forbidden variable is fixed at 0, which its bounds must allow
        if ((p.lower > 0) | (p.upper < 0))[forbidden].any():
            raise ValueError(_INFEASIBLE.format(row))
        model.changeColsBounds(n, self._columns, lower, upper)
        model.run()
        model_status = model.getModelStatus()
        if model_status == status.kUnboundedOrInfeasible:
            # presolve cannot tell the two apart, the simplex method can
            model.setOptionValue("presolve", "off")
            model.run()
            model.setOptionValue("presolve", "choose")
            model_status = model.getModelStatus()
        info = model.getInfo()
        is_mip = model is self._mip
        if model_status == status.kInfeasible:
            raise ValueError(_INFEASIBLE.format(row))
        if model_status in (status.kUnbounded, status.kUnboundedOrInfeasible):
            raise ValueError(
                f"scores: row {row} is unbounded: a variable without a bound raises "
                "the score; give finite bounds (lower, upper)"
            )
        if model_status == status.kTimeLimit and info.primal_solution_status != 2:
            raise ValueError(
                f"time_limit: expected an output of row {row} within "
                f"{self._time_limit:g} s, got none; give it longer"
            )
        if model_status not in (status.kOptimal, status.kTimeLimit):
            status_text = model.modelStatusToString(model_status)
            raise ValueError(
                f"constraints: row {row} cannot be solved by HiGHS: {status_text}"
            )
        bound = info.mip_dual_bound if is_mip else info.objective_function_value
        return np.array(model.getSolution().col_value), float(bound)


def _build_silent_solver() -> Any:
    """Return a HiGHS solver that prints nothing, not even when constructed."""

    class SilentHighs(_import_highspy().Highs):  # type: ignore[misc]
        def enableCallbacks(self) -> None:
            # prints a banner unless the output is off before
            self.setOptionValue("output_flag", False)
            super().enableCallbacks()

    return SilentHighs()


def _import_highspy() -> Any:
    try:
        import highspy
    except ImportError as error:
        raise ImportError(
            'IntegerProgram: needs highspy: pip install "smoothsp[integer-programs]"'
        ) from error
    return highspy


# Arguments ----------------------------------------------------------------------


def _as_floats(name: str, value: Any) -> Floats:
    """Convert a tensor, array or number to float64; raise for NaN."""
    if isinstance(value, Tensor):
        value = to_numpy(value.detach().cpu().double())
    array_ = np.array(value)
    if array_.dtype.kind not in "biuf":
        raise TypeError(f"{name}: expected numbers, got {type(value).__name__}")
    array_ = array_.astype(np.float64)
    if np.isnan(array_).any():
        raise ValueError(f"{name}: expected numbers, got NaN")
    return array_


def _as_bounds(
    low_name: str, high_name: str, low: Any, high: Any, B: int, size: int
) -> tuple[Floats, Floats]:
    """Validate bounds; return them as ``(size,)`` or ``(batch, size)``."""
    bounds = []
    for name, value in ((low_name, low), (high_name, high)):
        x = _as_floats(name, value)
        if x.shape not in ((), (size,), (B, size)):
            raise ValueError(
                f"{name}: expected a number, ({size},) or (batch, {size}) = "
                f"({B}, {size}), got {x.shape}"
            )
        bounds.append(x if x.ndim == 2 else np.broadcast_to(x, (size,)))
    is_empty = (bounds[0] > bounds[1]) | (bounds[0] == np.inf) | (bounds[1] == -np.inf)
    if is_empty.any():
        index = tuple(int(i) for i in np.argwhere(is_empty)[0])
        a, b = (np.broadcast_to(x, is_empty.shape)[index] for x in bounds)
        raise ValueError(
            f"{low_name}: expected at most {high_name}, got {a:g} and {b:g} at "
            f"{index[-1]}"
        )
    return bounds[0], bounds[1]


def _as_integer_mask(value: Any, N: int) -> NDArray[np.bool_]:
    if isinstance(value, Tensor):
        value = to_numpy(value.cpu())
    is_integer = np.array(value)
    if is_integer.dtype != np.bool_ or is_integer.shape not in ((), (N,)):
        raise ValueError(
            f"integer: expected True, or bool ({N},), got {is_integer.dtype} "
            f"{is_integer.shape}"
        )
    return np.broadcast_to(is_integer, (N,)).copy()


ConstraintBlock = tuple[Any, Floats, Floats]


def _as_constraint_blocks(value: Any, B: int, N: int) -> list[ConstraintBlock]:
    """Validate constraints; return blocks (A, low, high).

    A is ``(M, N)``, dense or CSR, or ``(batch, M, N)``.
    """
    if value is None:
        return []
    if hasattr(value, "lb"):
        value = [value]
    entries = list(value) if isinstance(value, tuple | list) else None
    if entries is None or not (
        all(hasattr(x, "lb") for x in entries) or len(entries) == 3
    ):
        raise TypeError(
            "constraints: expected (A, low, high), LinearConstraint of scipy or a list "
            f"of these, got {type(value).__name__}"
        )
    if len(entries) == 3 and not hasattr(entries[0], "lb"):
        blocks = [tuple(entries)]
    else:
        blocks = [(x.A, x.lb, x.ub) for x in entries]
    checked_blocks = []
    for A, low, high in blocks:
        if hasattr(A, "tocsr"):
            A = A.tocsr()
            shape = A.shape
            _as_floats("constraints", A.data)
        else:
            A = _as_floats("constraints", A)
            A = A[None] if A.ndim == 1 else A
            shape = A.shape
        has_batch = len(shape) == 3 and shape[0] == B
        if (len(shape) != 2 and not has_batch) or shape[-1] != N:
            raise ValueError(
                f"constraints: expected A (M, {N}) or (batch, M, {N}) with batch = {B},"
                f" got {tuple(shape)}"
            )
        finite = np.isfinite(A.data if hasattr(A, "tocsr") else A)
        if not finite.all():
            raise ValueError("constraints: expected finite numbers in A, got inf")
        M = shape[-2]
        pair = _as_bounds("constraints, low", "constraints, high", low, high, B, M)
        checked_blocks.append((A, *pair))
    return checked_blocks


def _distinct_programs(
    blocks: list[ConstraintBlock], bounds: tuple[Floats, Floats], B: int
) -> tuple[list[_Program], list[int]]:
    """Distinct programmes of a batch, and the index of each row's programme."""
    has_batch = any(A.ndim == 3 or x.ndim == 2 for A, *pair in blocks for x in pair)
    has_batch |= any(x.ndim == 2 for x in bounds)
    if not has_batch:
        return [_build_program(blocks, bounds, 0)], [0] * B
    index_of_key: dict[bytes, int] = {}
    programs: list[_Program] = []
    program_index = []
    # rows with equal constraints share one solver, and so its warm starts
    for b in range(B):
        program = _build_program(blocks, bounds, b)
        key = b"|".join(x.tobytes() for x in program)
        if key not in index_of_key:
            index_of_key[key] = len(programs)
            programs.append(program)
        program_index.append(index_of_key[key])
    return programs, program_index


def _build_program(
    blocks: list[ConstraintBlock], bounds: tuple[Floats, Floats], row: int
) -> _Program:
    """Stack the constraint blocks of one row to a CSR programme."""
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
            table = A[row] if A.ndim == 3 else A
            counts.append((table != 0).sum(1))
            index.append(np.nonzero(table)[1])
            value.append(table[table != 0])
        for x, to in zip(pair, (low, high), strict=True):
            to.append(x[row] if x.ndim == 2 else x)

    def concatenate(arrays: list[Any], kind: type) -> NDArray[Any]:
        return np.concatenate(arrays).astype(kind) if arrays else np.zeros(0, kind)

    lower, upper = (np.array(x[row] if x.ndim == 2 else x) for x in bounds)
    return _Program(
        np.cumsum(concatenate(counts, np.int64)).astype(np.int32),
        concatenate(index, np.int32),
        concatenate(value, np.float64),
        concatenate(low, np.float64),
        concatenate(high, np.float64),
        lower,
        upper,
    )
