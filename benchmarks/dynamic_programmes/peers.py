"""What other libraries are asked, in their own words; each is imported when asked."""

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def _torch_struct() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch_struct
    return torch_struct


def root_on_diagonal(arcs: Tensor) -> Tensor:
    """Scores ``[B, n, n]`` as torch-struct has them: a root's own on the diagonal."""
    words = arcs[:, 1:, 1:].clone()
    words.diagonal(dim1=1, dim2=2).copy_(arcs[:, 0, 1:])
    return words


def struct_dependencies(x: Tensor) -> Tensor:
    """Log-partition of projective trees."""
    found: Tensor = _torch_struct().DependencyCRF(x, multiroot=True).partition
    return found


def struct_best_dependencies(x: Tensor, k: int) -> Tensor:
    """Scores of the k best, ``[k, B]``, or of the best, ``[B]``."""
    law = _torch_struct().DependencyCRF(x, multiroot=True)
    if k == 1:
        best: Tensor = law.argmax
        return (best * x).sum((1, 2))
    every: Tensor = law.topk(k)
    return (every * x).sum((2, 3))


def _upper(x: Tensor) -> Tensor:
    return x[..., None]


def struct_spans(x: Tensor) -> Tensor:
    """Log-partition of binary trees over spans."""
    found: Tensor = _torch_struct().TreeCRF(_upper(x)).partition
    return found


def struct_best_spans(x: Tensor) -> Tensor:
    """The highest score of one."""
    best: Tensor = _torch_struct().TreeCRF(_upper(x)).argmax
    return (best * _upper(x)).sum((1, 2, 3))


def struct_grammar(words: Tensor, rules: Tensor, top: Tensor) -> Tensor:
    """Log-partition of a grammar."""
    found: Tensor = _torch_struct().SentCFG((words, rules, top)).partition
    return found


def flash_segments(x: Tensor, moves: Tensor, durations: Tensor) -> Tensor:
    """Log-partition of segmentations."""
    from flash_semicrf.streaming import semi_crf_streaming_forward

    total = torch.nn.functional.pad(x.cumsum(1), (0, 0, 1, 0))
    sizes = torch.full((len(x),), x.shape[1])
    found: Tensor = semi_crf_streaming_forward(
        total, moves, durations, sizes, len(durations)
    )
    return found


def soft_warping(distance: Tensor) -> Tensor:
    """Soft-DTW with gamma 1 and no band."""
    from pysdtw.sdtw_cpu import SoftDTWcpu

    B, N, M = distance.shape
    sizes = torch.tensor([[N, M]]).expand(B, 2)
    found: Tensor = SoftDTWcpu.apply(distance, sizes, 1.0, 0.0)
    return found


def klay_module(clauses: list[list[int]], V: int) -> Callable[..., Tensor]:
    """The logarithm of a formula's weighted count of models, over a batch."""
    import klay
    from pysdd.sdd import SddManager

    lines = [f"p cnf {V} {len(clauses)}"]
    lines += [" ".join(map(str, [*clause, 0])) for clause in clauses]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "formula.cnf"
        path.write_text("\n".join(lines) + "\n")
        manager, node = SddManager.from_cnf_file(str(path).encode())
    circuit = klay.Circuit()
    circuit.add_sdd(node)
    module = circuit.to_torch_module(semiring="log", compile=False)
    module.keep = manager
    batched = torch.func.vmap(module)

    def count(positive: Tensor, negative: Tensor) -> Tensor:
        return batched(positive, negative).reshape(len(positive))

    return count
