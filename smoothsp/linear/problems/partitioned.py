"""A set of examples in parts, each where a worker of joblib has it."""

import hashlib
import os
import pickle
import shutil
import tempfile
import uuid
import weakref
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.inputs import checks
from smoothsp.linear.problems.batch import ValueAndGradient

Weights = NDArray[np.float64]

# Arrays of at least so many bytes are files; smaller ones travel with each question.
_LARGE = 2**12
# Parts that a worker keeps open.
_KEPT = 64


class PartitionedProblem:
    r"""A problem whose sums over examples are computed by parts, in parallel.

    .. math:: \frac{1}{n} \sum_i f_i(w) = \frac{1}{n} \sum_p n_p
        \cdot \frac{1}{n_p} \sum_{i \in p} f_i(w)

    For solvers that use the whole set at a time: :class:`BatchFrankWolfe`,
    :class:`LBFGS`, and all that ask a :class:`BatchProblem`. Each part is written to
    files once, which workers map into memory; from then on only weights travel there,
    and values and gradients back.

    joblib runs the workers: processes of this machine, or whatever backend is chosen
    around the call, ``with joblib.parallel_config(backend="dask"):`` or ``"ray"``, for
    a cluster. Parts are added up in their order, so that the answer has the same bits
    with any number of workers.

    Parameters
    ----------
    problem
        A chain problem or a :class:`StructureProblem`: what has ``subset(rows)``. A
        ``build`` that looks at ``batch.rows`` sees the numbers within a part.
    partitions
        How many parts, at least 1; neighbours in order, of about equal numbers of
        examples. At least as many as workers.
    n_jobs
        Of ``joblib.Parallel``: None is 1, or what the backend around says.
    folder
        Where the files of parts go: a directory that all workers see, which may have
        those of other problems. By default a temporary one of this machine, which goes
        with the problem.

    Raises
    ------
    TypeError
        From what solvers ask that look at single examples.

    Notes
    -----
    A worker that dies ends a run of processes with an error of joblib; the ``state`` of
    the last certificate goes on. Dask gives its parts to others, and the run does not
    notice.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import ChainProblem, PartitionedProblem
    >>> problem = ChainProblem(np.eye(4), [0, 1, 1, 0], lengths=[2, 1, 1])
    >>> parts = PartitionedProblem(problem, 2)
    >>> w = np.ones(problem.num_weights)
    >>> abs(parts.risk(w)[0] - problem.risk(w)[0]) < 1e-12
    True
    """

    def __init__(
        self,
        problem: Any,
        partitions: int,
        *,
        n_jobs: int | None = None,
        folder: Any = None,
    ) -> None:
        if not hasattr(problem, "subset"):
            raise TypeError(
                "problem: expected one with subset(rows), as ChainProblem and"
                f" StructureProblem have, got {type(problem).__name__}"
            )
        n = len(problem)
        if checks.as_positive_int("partitions", partitions) > n:
            raise ValueError(
                f"partitions: expected at most the {n} examples, got {partitions}"
            )
        self.num_weights, self.n_jobs = int(problem.num_weights), n_jobs
        self.checksum, self._n = problem.checksum, n
        self.called = problem.called
        home = Path(folder or tempfile.mkdtemp(prefix="smoothsp-"))
        if not folder:
            # gone with the problem
            weakref.finalize(self, shutil.rmtree, home, ignore_errors=True)
        ends = np.linspace(0, n, partitions + 1).astype(int)
        self._sizes = np.diff(ends)
        self._parts = [
            _written(problem.subset(np.arange(a, b)), home / f"part{number}")
            for number, (a, b) in enumerate(pairwise(ends))
        ]

    def __len__(self) -> int:
        """Number of examples."""
        return self._n

    def _ask(self, question: str, *arguments: Any) -> list[Any]:
        """The answers of all parts, in their order."""
        ask = joblib.delayed(_answer)
        calls = (ask(part, question, arguments) for part in self._parts)
        return list(joblib.Parallel(n_jobs=self.n_jobs)(calls))

    def _mean(self, question: str, *arguments: Any) -> ValueAndGradient:
        total, slope = 0.0, np.zeros(self.num_weights)
        answers = self._ask(question, *arguments)
        for size, (value, part) in zip(self._sizes.tolist(), answers, strict=True):
            total += size * value
            slope += size * part
        return total / self._n, slope / self._n

    def risk(self, w: Weights) -> ValueAndGradient:
        """Mean hinge at w, and a subgradient; see :class:`BatchProblem`."""
        return self._mean("risk", w)

    def smoothed_risk(
        self, w: Weights, mu: float, smoothing: str = "entropy", k: int = 5
    ) -> ValueAndGradient:
        """Mean hinge smoothed from below, and its gradient."""
        return self._mean("smoothed_risk", w, mu, smoothing, k)

    def smoothed_tangent(
        self, w: Weights, mu: float, smoothing: str = "entropy", k: int = 5
    ) -> tuple[float, Weights, float]:
        """Result of ``smoothed_risk``, and the expected cost: a tangent at 0."""
        means, slope = np.zeros(2), np.zeros(self.num_weights)
        answers = self._ask("smoothed_tangent", w, mu, smoothing, k)
        for size, (value, part, cost) in zip(self._sizes, answers, strict=True):
            means += size * np.array([value, cost])
            slope += size * part
        value, cost = (means / self._n).tolist()
        return value, slope / self._n, cost

    def has_more_outputs(self, k: int) -> bool:
        """Whether an example has more than k outputs."""
        return any(self._ask("has_more_outputs", k))

    def diameter(self, smoothing: str = "entropy") -> float:
        """Largest gap between risk and smoothed risk, divided by mu."""
        return float(self._sizes @ self._ask("diameter", smoothing) / self._n)

    def likelihood(self, w: Weights) -> ValueAndGradient:
        """Mean negative log-likelihood of the gold outputs, and its gradient."""
        return self._mean("likelihood", w)

    def mean_slope(self, w: Weights, loss: str, mu: float, k: int) -> ValueAndGradient:
        """The mean loss, smoothed from above, and its gradient."""
        return self._mean("mean_slope", w, loss, mu, k)

    def hinges(self, w: Weights) -> Weights:
        """``(n,)``: the structured hinge of each example."""
        return np.concatenate(self._ask("hinges", w))

    def primal(self, w: Weights, lam: float) -> float:
        """The objective at w; ``lam > 0``."""
        lam = checks.as_positive("lam", lam)
        return float(lam / 2 * np.dot(w, w) + self.hinges(w).mean())

    def corners(self, w: Weights, scale: float) -> tuple[Weights, float, float]:
        """``scale`` times the sum of psi of the worst outputs, mean loss and hinge."""
        v, means = np.zeros(self.num_weights), np.zeros(2)
        answers = self._ask("corners", w, scale)
        for size, (part, *rest) in zip(self._sizes, answers, strict=True):
            v += part
            means += size * np.array(rest)
        loss, hinge = (means / self._n).tolist()
        return v, loss, hinge

    def worst(self, i: int, w: Weights) -> Any:
        """Raise an error: single examples are in worker processes."""
        raise TypeError(
            "problem: expected examples in this process for a solver that uses them "
            "one at a time; use a solver of the whole set, such as BatchFrankWolfe or "
            "LBFGS, with PartitionedProblem"
        )

    def slopes(self, *arguments: Any) -> Any:
        """Raise an error: gradients of examples are in worker processes."""
        self.worst(0, np.zeros(0))


def _written(part: Any, folder: Path) -> tuple[str, bytes, list[Any]]:
    """A name for a part, the part as bytes, and the functions that it calls.

    Its large arrays are files; functions are left to joblib, which takes any.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stream = BytesIO()
    functions: list[Any] = []
    _ArraysApart(stream, folder, functions).dump(part)
    return uuid.uuid4().hex, stream.getvalue(), functions


class _ArraysApart(pickle.Pickler):
    """Writes large arrays to files of their own, which are mapped when read."""

    def __init__(self, stream: BytesIO, folder: Path, functions: list[Any]) -> None:
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self.folder, self.functions = folder, functions

    def persistent_id(self, thing: Any) -> int | None:
        """The place of a function among those that are left out."""
        if isinstance(thing, type) or not callable(thing):
            return None
        self.functions.append(thing)
        return len(self.functions) - 1

    def reducer_override(self, thing: Any) -> Any:
        """A large array as a file."""
        if type(thing) is not np.ndarray or thing.nbytes < _LARGE:
            return NotImplemented
        # a name for what is in it: parts of other problems may be there, and be read
        known = hashlib.blake2b(np.ascontiguousarray(thing).data, digest_size=16)
        known.update(f"{thing.dtype.str} {thing.shape}".encode())
        path = self.folder / f"{known.hexdigest()}.npy"
        if not path.exists():
            begun = path.with_name(f"{uuid.uuid4().hex}.part")
            with begun.open("wb") as stream:
                np.save(stream, thing, allow_pickle=False)
            os.replace(begun, path)
        return _mapped, (str(path),)


class _WithFunctions(pickle.Unpickler):
    """Reads what ``_ArraysApart`` wrote in this program, never a file."""

    def __init__(self, content: bytes, functions: list[Any]) -> None:
        super().__init__(BytesIO(content))
        self.functions = functions

    def persistent_load(self, place: int) -> Any:
        """The function at this place."""
        return self.functions[place]


def _mapped(path: str) -> NDArray[Any]:
    """An array of a file; what is written to it stays in this process."""
    found: NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    return found.view(np.ndarray)


# parts that this process has opened, by name
_OPEN: dict[str, Any] = {}


def _answer(
    part: tuple[str, bytes, list[Any]], question: str, arguments: tuple[Any, ...]
) -> Any:
    """Result of a partition, which is opened once in each worker."""
    name, content, functions = part
    if name not in _OPEN:
        while len(_OPEN) >= _KEPT:
            del _OPEN[next(iter(_OPEN))]
        _OPEN[name] = _WithFunctions(content, functions).load()
    return getattr(_OPEN[name], question)(*arguments)
