"""Problems partitioned over joblib workers, which map their parts into memory."""

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

# Arrays of at least this size are files; smaller ones are sent with each call.
_MIN_FILE_BYTES = 2**12
# Maximum number of parts that a worker keeps open; the oldest is closed first.
_MAX_OPEN_PARTS = 64


class PartitionedProblem:
    r"""Problem whose sums over examples are computed by parts, in parallel.

    .. math:: \frac{1}{n} \sum_i f_i(w) = \frac{1}{n} \sum_p n_p
        \cdot \frac{1}{n_p} \sum_{i \in p} f_i(w)

    For solvers that use the whole set at a time: :class:`BatchFrankWolfe`,
    :class:`LBFGS`, and all solvers of a :class:`BatchProblem`. Each part is written to
    files once, and workers map them into memory. From then on only weights are sent to
    the workers, and values and gradients back.

    joblib runs the workers, by default processes of this machine. For a cluster, choose
    a backend around the call: ``with joblib.parallel_config(backend="dask"):`` or
    ``"ray"``. Results are summed in the order of the parts, so that they do not depend
    on the number of workers.

    Parameters
    ----------
    problem
        A chain problem or a :class:`StructureProblem`: an object with ``subset(rows)``.
        For ``build``, ``batch.rows`` are indices within a part.
    partitions
        Number of parts, at least 1 and at least the number of workers. Parts are
        consecutive examples, about equally many.
    n_jobs
        As in ``joblib.Parallel``: None is 1, or the default of the active backend.
    folder
        Directory for the files of parts, visible to all workers; problems may share it.
        By default a temporary one of this machine, deleted with the problem.

    Raises
    ------
    TypeError
        From methods for single examples, which are not in this process.

    Notes
    -----
    If a worker process dies, the run ends with an error of joblib. Resume it from the
    ``state`` of the last certificate. Dask moves the parts of a lost worker to others,
    and the run continues.

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
        directory = Path(folder or tempfile.mkdtemp(prefix="smoothsp-"))
        if not folder:
            # delete the temporary files with the problem
            weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        bounds = np.linspace(0, n, partitions + 1).astype(int)
        self._sizes = np.diff(bounds)
        self._parts = [
            _serialise_part(
                problem.subset(np.arange(begin, end)), directory / f"part{part_index}"
            )
            for part_index, (begin, end) in enumerate(pairwise(bounds))
        ]

    def __len__(self) -> int:
        """Number of examples."""
        return self._n

    def _map_parts(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of each part in a worker; return the results in part order."""
        call_part = joblib.delayed(_call_part)
        calls = (call_part(part, method, arguments) for part in self._parts)
        # joblib may yield results in any order of completion; ``Parallel`` restores the
        # order
        return list(joblib.Parallel(n_jobs=self.n_jobs)(calls))

    def _mean_over_parts(self, method: str, *arguments: Any) -> ValueAndGradient:
        """Mean of values and gradients, weighted by the sizes of the parts."""
        total, gradient = 0.0, np.zeros(self.num_weights)
        results = self._map_parts(method, *arguments)
        for size, (value, part_gradient) in zip(
            self._sizes.tolist(), results, strict=True
        ):
            total += size * value
            gradient += size * part_gradient
        return total / self._n, gradient / self._n

    def risk(self, w: Weights) -> ValueAndGradient:
        """Mean hinge at w, and a subgradient; see :class:`BatchProblem`."""
        return self._mean_over_parts("risk", w)

    def smoothed_risk(
        self, w: Weights, mu: float, smoothing: str = "entropy", k: int = 5
    ) -> ValueAndGradient:
        """Mean hinge smoothed from below, and its gradient."""
        return self._mean_over_parts("smoothed_risk", w, mu, smoothing, k)

    def smoothed_tangent(
        self, w: Weights, mu: float, smoothing: str = "entropy", k: int = 5
    ) -> tuple[float, Weights, float]:
        """Result of ``smoothed_risk``, and the expected cost: a tangent at 0."""
        means, gradient = np.zeros(2), np.zeros(self.num_weights)
        results = self._map_parts("smoothed_tangent", w, mu, smoothing, k)
        for size, (value, part_gradient, cost) in zip(
            self._sizes, results, strict=True
        ):
            means += size * np.array([value, cost])
            gradient += size * part_gradient
        value, cost = (means / self._n).tolist()
        return value, gradient / self._n, cost

    def has_more_outputs(self, k: int) -> bool:
        """Whether an example has more than k outputs."""
        return any(self._map_parts("has_more_outputs", k))

    def diameter(self, smoothing: str = "entropy") -> float:
        """Largest gap between risk and smoothed risk, divided by mu."""
        return float(self._sizes @ self._map_parts("diameter", smoothing) / self._n)

    def likelihood(self, w: Weights) -> ValueAndGradient:
        """Mean negative log-likelihood of the gold outputs, and its gradient."""
        return self._mean_over_parts("likelihood", w)

    def mean_slope(self, w: Weights, loss: str, mu: float, k: int) -> ValueAndGradient:
        """Return the mean loss, smoothed from above, and its gradient."""
        return self._mean_over_parts("mean_slope", w, loss, mu, k)

    def hinges(self, w: Weights) -> Weights:
        """``(n,)``: the structured hinge of each example."""
        return np.concatenate(self._map_parts("hinges", w))

    def primal(self, w: Weights, lam: float) -> float:
        """Objective at w; ``lam > 0``."""
        lam = checks.as_positive("lam", lam)
        return float(lam / 2 * np.dot(w, w) + self.hinges(w).mean())

    def corners(self, w: Weights, scale: float) -> tuple[Weights, float, float]:
        """``scale`` times the sum of psi of the worst outputs, mean loss and hinge."""
        v, means = np.zeros(self.num_weights), np.zeros(2)
        results = self._map_parts("corners", w, scale)
        for size, (part_psi, *part_means) in zip(self._sizes, results, strict=True):
            v += part_psi
            means += size * np.array(part_means)
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


def _serialise_part(part: Any, folder: Path) -> tuple[str, bytes, list[Any]]:
    """Return a unique name, the pickled part, and the functions it refers to.

    Large arrays are written to files. Functions are returned, since joblib pickles
    closures and lambdas and the pickle module does not.
    """
    folder.mkdir(parents=True, exist_ok=True)
    buffer = BytesIO()
    functions: list[Any] = []
    _ArraysToFilesPickler(buffer, folder, functions).dump(part)
    return uuid.uuid4().hex, buffer.getvalue(), functions


class _ArraysToFilesPickler(pickle.Pickler):
    """Pickler that writes large arrays to files, to be memory-mapped."""

    def __init__(self, stream: BytesIO, folder: Path, functions: list[Any]) -> None:
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self.folder, self.functions = folder, functions

    def persistent_id(self, obj: Any) -> int | None:
        """Return the index of a function in ``functions``; None pickles the object."""
        if isinstance(obj, type) or not callable(obj):
            return None
        self.functions.append(obj)
        return len(self.functions) - 1

    def reducer_override(self, obj: Any) -> Any:
        """Replace a large array by a call that maps its file."""
        if type(obj) is not np.ndarray or obj.nbytes < _MIN_FILE_BYTES:
            return NotImplemented
        # named by content: equal arrays share a file, and no file in use is rewritten
        digest = hashlib.blake2b(np.ascontiguousarray(obj).data, digest_size=16)
        digest.update(f"{obj.dtype.str} {obj.shape}".encode())
        path = self.folder / f"{digest.hexdigest()}.npy"
        if not path.exists():
            # written under a temporary name: another worker never maps an incomplete
            # file
            temp_path = path.with_name(f"{uuid.uuid4().hex}.part")
            with temp_path.open("wb") as file:
                np.save(file, obj, allow_pickle=False)
            os.replace(temp_path, path)
        return _load_mapped_array, (str(path),)


class _PartUnpickler(pickle.Unpickler):
    """Unpickler for bytes of ``_ArraysToFilesPickler``, never for files."""

    def __init__(self, content: bytes, functions: list[Any]) -> None:
        super().__init__(BytesIO(content))
        self.functions = functions

    def persistent_load(self, function_index: int) -> Any:
        """Return the function with this index."""
        return self.functions[function_index]


def _load_mapped_array(path: str) -> NDArray[Any]:
    """Map an npy file into memory, copy-on-write."""
    mapped: NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    return mapped.view(np.ndarray)


# parts that this worker process has unpickled, by name
_OPEN_PARTS: dict[str, Any] = {}


def _call_part(
    part: tuple[str, bytes, list[Any]], method: str, arguments: tuple[Any, ...]
) -> Any:
    """Call a method of a part in a worker, which unpickles the part once."""
    name, content, functions = part
    if name not in _OPEN_PARTS:
        # a dict keeps the order of insertion: the first key is the oldest part
        while len(_OPEN_PARTS) >= _MAX_OPEN_PARTS:
            del _OPEN_PARTS[next(iter(_OPEN_PARTS))]
        _OPEN_PARTS[name] = _PartUnpickler(content, functions).load()
    return getattr(_OPEN_PARTS[name], method)(*arguments)
