"""Which methods are here, and all of them at a problem."""

from collections.abc import Callable
from importlib.util import find_spec

from inference.problems import Problem
from inference.questions import Method, Refusal
from methods import crf_layers, crfsuite_tagger, ours, struct_edges, torch_loop

Methods = dict[str, Method | Refusal]  # by question
Builder = Callable[[Problem], Methods]

JAX = "JAX scan"  # its module is imported where it is wanted: JAX starts threads

# name: (the package on the index, the module it installs); in the order of the tables
PACKAGES = {
    JAX: ("jax", "jax"),
    torch_loop.NAME: ("torch", "torch"),
    crf_layers.PYTORCH_CRF: ("pytorch-crf", "torchcrf"),
    crf_layers.TORCHCRF: ("TorchCRF", "TorchCRF"),
    struct_edges.NAME: ("torch-struct", "torch_struct"),
    crfsuite_tagger.NAME: ("python-crfsuite", "pycrfsuite"),
}
NAMES = (ours.NAME, *PACKAGES)


def installed() -> set[str]:
    return {n for n, (_, module) in PACKAGES.items() if find_spec(module) is not None}


def builders() -> dict[str, Builder]:
    """Of the installed methods; ours first."""
    known: dict[str, Builder] = {
        JAX: jax_scan,
        torch_loop.NAME: torch_loop.methods,
        crf_layers.PYTORCH_CRF: crf_layers.pytorch_crf,
        crf_layers.TORCHCRF: crf_layers.torchcrf,
        struct_edges.NAME: struct_edges.methods,
        crfsuite_tagger.NAME: crfsuite_tagger.methods,
    }
    here = installed()
    return {ours.NAME: ours.methods} | {n: b for n, b in known.items() if n in here}


def absent() -> list[str]:
    """One line for each peer that is not installed."""
    return [
        f"{name} is left out: pip install {package}"
        for name, (package, _) in PACKAGES.items()
        if name not in installed()
    ]


def jax_scan(problem: Problem) -> Methods:
    from methods import jax_scan

    return jax_scan.methods(problem)
