"""Object localiser in the manner of R-CNN: which of 1,000 candidate boxes is it?

Selective search proposes boxes, AlexNet describes them, a linear score or a small
network chooses one. The choice is ``smoothsp.oracles.Multiclass`` over the candidates
of an image, trained with a structural hinge whose cost is 1 - IoU, smoothed over the 10
best boxes, by any of ``smoothsp.optim`` or by subgradients.

    python recipes/voc_localization.py                           # invented images
    python recipes/voc_localization.py --data DIR --class dog    # Pascal VOC layout
    python recipes/voc_localization.py --download --class dog    # fetches VOC 2007
    python recipes/voc_localization.py --scores nonlinear --optimizer prox-linear
    python recipes/voc_localization.py --compare                 # four optimizers

Of the images of a folder it takes those with exactly one box of the class. Training
writes ``checkpoint.pt`` (all that ``--resume`` needs) after every round, which is an
epoch, or with prox-linear an outer iteration; at the end ``history.csv``,
``metrics.json``, ``curves.png`` and ``sheet.png``. A run that is killed and resumed
ends with the numbers of one that was not. Candidates and features are kept in
``--cache``, 5 MB an image.

The weights of AlexNet are random unless ``--weights`` says otherwise: a baseline, and
not what the paper used (``--weights imagenet``, which is downloaded).

Reproduces: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
section 7.1.2. Measured: ``README.md``.
"""

import copy
import dataclasses
import math
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import torch
import tyro

from localization import comparison, features, report, toy
from localization import folder as localization_folder
from localization.images import Data, Images, Preparation
from localization.network import LinearScores, Localiser, NonlinearScores
from localization.training import TUNED, Method, Run, Settings
from runs import checkpoint, terminal
from runs import folder as run_folder

Proposals = Literal["selective-search", "grid"]
Scores = Literal["linear", "nonlinear"]
CHOICES = {"proposals": Proposals, "scores": Scores, "optimizer": Method}
# the paper's two, and about that of AlexNet's own training
DECAY = {"linear": 10.0, "nonlinear": 1.0, "convolutions": 0.1}
CHOSEN = ("decay", "lr", "t_0", "smoothness", "mu")


@dataclass(frozen=True)
class Config:
    """Train an object localiser, or compare optimizers on it."""

    data: Path | None = None
    """Folder in Pascal VOC layout; default: invented images."""
    kind: Annotated[str | None, tyro.conf.arg(name="class")] = None
    """Class of the object to find. Needed with --data and --download."""
    download: bool = False
    """Fetch VOC 2007 into --data, or into --cache."""
    skip_bad: bool = False
    """Leave out what is wrong with files, and count it, instead of stopping."""
    proposals: Proposals = "selective-search"
    """Where candidates come from; grid is a sliding window."""
    max_boxes: int = 1000
    """Most candidates of an image."""
    weights: str = "random"
    """Of AlexNet: a file of its state dict, imagenet to download, or random."""
    finetune: bool = False
    """Train AlexNet too, with RoI-align over the whole image instead of crops."""
    scores: Scores = "linear"
    """Linear in the features, or with a hidden layer of 16 channels."""
    optimizer: Method = "casimir-const"
    """What trains it; sgd-sqrt and sgd-inv shrink the step by 1/sqrt(t) and 1/t."""
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
    passes: int = 30
    """Calls of the inference oracle per image, those of full gradients not counted."""
    seed: int = 1
    """Of the initial weights and the order of images."""
    workers: int = os.cpu_count() or 1
    """Processes for selective search."""
    cache: Path = dataclasses.field(default_factory=localization_folder.cache_folder)
    """Folder of candidates and features, shared by all runs."""
    out: Path = Path("runs/voc_localization")
    """Folder of the checkpoint, the numbers and the figures."""
    resume: bool = False
    """Continue the run in --out from its last whole round."""
    compare: bool = False
    """Train with each of the four optimizers of the paper's figure, seeds 1, 2, 3,
    after tuning the step size of each."""

    @property
    def checkpoint(self) -> Path:
        return self.out / "checkpoint.pt"


def main(config: Config) -> dict[str, float]:
    """Train; the numbers that come back are those of the lowest objective."""
    check(config)
    with run_folder.held(config.out):
        return run(config)


def run(config: Config) -> dict[str, float]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = load(config, device)
    if config.compare:
        once, title = partial(train, data=data), describe(config, data)
        return comparison.compare(config, tuned(config), once, title)
    return train(config, data)


def check(config: Config) -> None:
    named = config.data is not None or config.download
    if named != (config.kind is not None):
        raise ValueError(
            f"class: expected {'the class to find' if named else 'none without --data'}"
            f", got {config.kind!r}. Give --data DIR --class NAME"
        )
    for name, allowed in CHOICES.items():
        if getattr(config, name) not in get_args(allowed):
            raise ValueError(
                f"{name}: expected one of {', '.join(get_args(allowed))}, got"
                f" {getattr(config, name)!r}"
            )
    for name in ("max_boxes", "passes", "workers"):
        if getattr(config, name) < 1:
            raise ValueError(
                f"{name}: expected at least 1, got {getattr(config, name)}"
            )
    if config.seed < 0:
        raise ValueError(f"seed: expected at least 0, got {config.seed}")
    used = set(_defaults(config)) | ({"t_0"} if config.optimizer == "sgd" else set())
    for name in CHOSEN:
        value = getattr(config, name)
        if value is None:
            continue
        if config.compare and name != "decay":
            raise ValueError(
                f"{name}: expected none with --compare, where each optimizer has its"
                f" own, got {value}"
            )
        if name not in used:
            raise ValueError(
                f"{name}: expected none with --optimizer {config.optimizer}, got"
                f" {value}"
            )
        if not value > 0 or (value == math.inf and name != "lr"):
            raise ValueError(f"{name}: expected a positive number, got {value}")


def _defaults(config: Config) -> dict[str, float]:
    return {"decay": DECAY[_trained(config)]} | tuned(config)[config.optimizer]


def tuned(config: Config) -> dict[str, dict[str, float]]:
    """Numbers of each optimizer, for what is trained."""
    trained = _trained(config)
    return {method: TUNED[trained, method] for method in get_args(Method)}


def _trained(config: Config) -> str:
    return "convolutions" if config.finetune else config.scores


def describe(config: Config, data: Data) -> str:
    """What a figure shows, for its title."""
    return (
        f"{config.kind or toy.CLASS}: {len(data.parts['train'])} training images,"
        f" {config.scores} scores, AlexNet with weights: {config.weights}"
        f"{', then trained too' if config.finetune else ''}"
    )


def load(config: Config, device: torch.device) -> Data:
    folder, kind = config.data, config.kind
    if config.download:
        folder = localization_folder.download(folder or config.cache / "voc2007")
    if folder is None:
        folder, kind = toy.make(config.cache, toy.SIZES), toy.CLASS
    found = localization_folder.read(folder, kind, config.skip_bad)
    print(found.summary(kind))
    if config.weights == "random":
        print("features of AlexNet with random weights, never trained: a baseline")
    layers = features.backbone(config.weights).to(device)
    data = Preparation(
        config.proposals,
        config.max_boxes,
        config.finetune,
        config.cache,
        config.workers,
    ).data(found.lists, layers)
    boxes = sum(map(len, data.parts["train"].boxes)) / len(data.parts["train"])
    print(f"{boxes:.0f} candidates an image")
    return data


def train(config: Config, data: Data) -> dict[str, float]:
    images = data.parts["train"]
    values = _defaults(config) | {
        name: value for name in CHOSEN if (value := getattr(config, name)) is not None
    }
    settings = {
        "data": {part: own.checksum() for part, own in data.parts.items()},
        "weights": features.checksum(data.layers),
        "finetune": config.finetune,
        "scores": config.scores,
        "optimizer": config.optimizer,
        "seed": config.seed,
        **values,
    }
    path = config.checkpoint
    saved = checkpoint.load_to_resume(path, settings) if config.resume else None
    if saved:
        print(f"resuming {path} after round {len(saved['history']) - 1}")
    elif path.exists():
        print(f"starting over: {path} will be replaced (--resume continues it)")
    torch.manual_seed(config.seed)
    network = network_of(config, data)
    convex = config.scores == "linear" and not config.finetune
    averaged = convex and config.optimizer.startswith("sgd")
    decay = values.pop("decay") / len(images)
    run = Run(
        network,
        images,
        Settings(config.optimizer, decay, averaged, **values),
        config.seed,
    )
    if saved:
        checkpoint.use(path, lambda: run.load(saved))
    weights = sum(p.numel() for p in network.parameters())
    print(f"{weights:,} weights on {run.device}, {config.optimizer}")
    run_rounds(config, run, data.parts["val"], settings)
    about = {"settings": settings, "features": config.weights}
    title = describe(config, data)
    return report.write(config.out, about, run, data.parts, title)


def network_of(config: Config, data: Data) -> Localiser:
    if config.scores == "linear":
        scores = LinearScores(data.spread)
    else:
        scores = NonlinearScores(data.mean, data.spread)
    layers = copy.deepcopy(data.layers) if config.finetune else None
    return Localiser(scores, layers).to(data.spread.device)


def run_rounds(config: Config, run: Run, val: Images, settings: dict[str, Any]) -> None:
    while not run.history or run.passes < config.passes:
        number = len(run.history)
        try:
            # the first line is that of the weights before training
            if number:
                run.round()
            row = run.record(val)
            checkpoint.save(config.checkpoint, {"settings": settings} | run.state())
        except KeyboardInterrupt:
            keep = f"add --resume to continue after round {number - 1}"
            print(f"\nstopped; {keep if number else 'no round was finished'}")
            raise
        print(
            f"round {number:>3}  {row['passes']:4.0f} passes  objective"
            f" {row['objective']:.4f}  val CorLoc {100 * row['val_corloc']:5.1f} %"
            f"  AP {100 * row['val_ap']:5.1f} %  {row['seconds']:.1f} s",
            flush=True,
        )


def command_line() -> None:
    terminal.run(lambda: main(tyro.cli(Config)))


if __name__ == "__main__":
    command_line()
