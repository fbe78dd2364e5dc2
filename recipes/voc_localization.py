"""Object localiser in the manner of R-CNN: which of 1,000 candidate boxes is it?

Selective search proposes boxes, a network that was trained on ImageNet describes them
from one pass over the image, twelve numbers say where each is, and a linear score or a
small network chooses one. The choice is ``smoothsp.oracles.Multiclass`` over the
candidates of an image, trained with a structural hinge whose cost is 1 - IoU, smoothed
over the 10 best boxes, by any of ``smoothsp.optim`` or by subgradients.

    python recipes/voc_localization.py                           # invented images
    python recipes/voc_localization.py --data DIR --class dog    # Pascal VOC layout
    python recipes/voc_localization.py --data DIR --class horse \
        --backbone efficientnet-lite0 --weights imagenet         # real features
    python recipes/voc_localization.py --predict FOLDER          # finds it elsewhere
    python recipes/voc_localization.py --download --class dog    # fetches VOC 2007
    python recipes/voc_localization.py --finetune --side 224 --optimizer sgd
    python recipes/voc_localization.py --objects several         # all classes

Of the images of a folder it takes those with exactly one box of the class. Training
writes ``checkpoint.pt`` (all that ``--resume`` needs) after every round, which is an
epoch, or with prox-linear an outer iteration; at the end ``model``, a folder that
``smoothsp.models.load`` takes, ``history.csv``, ``metrics.json``, ``curves.png`` and
``sheet.png``. A run that is killed and resumed ends with the numbers of one that was
not. Candidates and features are kept in ``--cache``, 2 MB an image.

The weights that are kept are those with the highest CorLoc on the validation images;
the test images have no say in anything. The table has beside them what chooses a box
without a look at the image.

The weights of the backbone are random unless ``--weights`` says otherwise.

With ``--objects several`` the output is a set of boxes with classes in which boxes that
overlap exclude each other: ``smoothsp.oracles.IntegerProgram`` with a constraint for
each clique of conflicts. ``--loss`` is the smoothed hinge over sets, the likelihood of
groups of windows, or softmax of each window, which non-maximum suppression follows.
``--predict`` writes the JSON of COCO and the XML of Pascal VOC.

Reproduces: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
section 7.1.2, but for one pass over an image in place of one for each box, and the
twelve numbers. Results: ``docs/results/images.md``.
"""

if __name__ == "__main__":
    from runs import start

    start.quietly()

import copy
from typing import Any

import torch

from localization import folder as localization_folder
from localization import prediction, report, toy
from localization.images import Data, Images, Preparation
from localization.settings import Config, check, values
from localization.several import annotations
from localization.several import images as several_images
from localization.several import model as several_model
from localization.several import prediction as several_prediction
from localization.several import report as several_report
from localization.several.network import ObjectScores
from localization.several.training import Run as SeveralRun
from localization.training import Run, Settings
from runs import checkpoint, options, terminal
from runs import folder as run_folder
from runs.interrupts import stopping
from smoothsp.models.backbones import backbone
from smoothsp.models.box_scores import KINDS
from smoothsp.models.localiser import Localiser, LocaliserNetwork


def main(config: Config) -> dict[str, float]:
    """Train; the numbers that come back are those of the weights that were kept."""
    check(config)
    if config.objects == "several":
        return several(config)
    if config.predict is not None:
        return prediction.predict(
            config.model_folder, config.predict, config.nbest, config.skip_bad
        )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with run_folder.held(config.out, config.model_folder):
        return train(config, load(config, device))


def describe(config: Config, data: Data) -> str:
    """What a figure shows, for its title."""
    return (
        f"{config.kind or toy.CLASS}: {len(data.parts['train'])} training images,"
        f" {config.scores} scores, {config.backbone} with weights: {config.weights}"
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
        print(f"features of {config.backbone} with random weights, never trained")
    network = backbone(config.backbone, config.weights).to(device)
    data = Preparation(
        config.proposals,
        config.max_boxes,
        config.side,
        config.finetune,
        config.cache,
        config.workers,
    ).data(found.lists, network)
    boxes = sum(map(len, data.parts["train"].boxes)) / len(data.parts["train"])
    print(f"{boxes:.0f} candidates an image")
    return data


def train(config: Config, data: Data) -> dict[str, float]:
    images = data.parts["train"]
    given = values(config)
    settings = {
        "data": {part: own.checksum() for part, own in data.parts.items()},
        "backbone": config.backbone,
        "weights": data.backbone.checksum(),
        "side": config.side,
        "finetune": config.finetune,
        "scores": config.scores,
        "optimizer": config.optimizer,
        "seed": config.seed,
        **given,
    }
    path = config.checkpoint
    saved = checkpoint.to_resume(path, settings, config.resume)
    torch.manual_seed(config.seed)
    network = network_of(config, data)
    convex = config.scores == "linear" and not config.finetune
    averaged = convex and config.optimizer.startswith("sgd")
    decay = given.pop("decay") / len(images)
    run = Run(
        network if config.finetune else network.scores,
        images,
        Settings(config.optimizer, decay, averaged, **given),
        config.seed,
    )
    if saved:
        checkpoint.use(path, lambda: run.load(saved))
    weights = sum(p.numel() for p in run.network.parameters())
    print(f"{weights:,} weights on {run.device}, {config.optimizer}")
    run_rounds(config, run, data.parts["val"], settings)
    about = {"settings": settings, "features": config.weights}
    result = report.write(config.out, about, run, data.parts, describe(config, data))
    save_model(config, network, run, result)
    return result


def network_of(config: Config, data: Data) -> LocaliserNetwork:
    layers = copy.deepcopy(data.backbone) if config.finetune else data.backbone
    scores = KINDS[config.scores](data.scale)
    return LocaliserNetwork(layers, scores).to(data.scale.mean.device)


def save_model(
    config: Config, network: LocaliserNetwork, run: Run, result: dict[str, float]
) -> None:
    # those that were kept, whatever the last round made of them
    (network if config.finetune else network.scores).load_state_dict(run.best)
    about = {"weights": config.weights, "optimizer": config.optimizer, **result}
    kind = config.kind or toy.CLASS
    localiser = Localiser(
        network, kind, config.proposals, config.max_boxes, config.side, about
    )
    localiser.save(config.model_folder)


def run_rounds(config: Config, run: Run, val: Images, settings: dict[str, Any]) -> None:
    while not run.history or run.passes < config.passes:
        number = len(run.history)
        with stopping(f"round {number - 1}" if number else ""):
            # the first line is that of the weights before training
            if number:
                run.round()
            row = run.record(val)
            checkpoint.save(config.checkpoint, {"settings": settings} | run.state())
        print(
            f"round {number:>3}  {row['passes']:4.0f} passes  {run.said(row)}"
            f"  {row['seconds']:.1f} s",
            flush=True,
        )


def several(config: Config) -> dict[str, float]:
    """Train on several objects in an image, or use what was trained."""
    if config.predict is not None:
        return several_prediction.predict(
            config.model_folder, config.predict, config.skip_bad
        )
    if config.evaluate is not None:
        return several_prediction.evaluate(
            config.model_folder, config.evaluate, config.cache, config.skip_bad
        )
    with run_folder.held(config.out, config.model_folder):
        return train_several(config)


def train_several(config: Config) -> dict[str, float]:
    found = annotations.read(
        config.data or toy.make(config.cache, toy.SIZES), config.skip_bad
    )
    print(found.summary())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    layers = backbone(config.backbone, config.weights).to(device)
    data = several_images.prepare(found, layers, config.side, config.cache)
    images = data.parts["train"]
    given = values(config)
    settings = {
        "data": {part: own.checksum() for part, own in data.parts.items()},
        "backbone": config.backbone,
        "weights": layers.checksum(),
        "side": config.side,
        "loss": config.loss,
        "seed": config.seed,
        **given,
    }
    saved = checkpoint.to_resume(config.checkpoint, settings, config.resume)
    torch.manual_seed(config.seed)
    scores = ObjectScores(data.mean, data.deviation, len(data.classes)).to(device)
    run = SeveralRun(
        scores,
        images,
        Settings("adam", averaged=True, **given),
        config.seed,
        config.loss,
    )
    if saved:
        checkpoint.use(config.checkpoint, lambda: run.load(saved))
    count = sum(p.numel() for p in scores.parameters())
    boxes = sum(len(images.windows(n).boxes) for n in range(len(images))) / len(images)
    print(f"{count:,} weights on {run.device}, {boxes:.0f} windows an image")
    run_rounds(config, run, data.parts["val"], settings)
    title = (
        f"{len(images)} training images, {config.loss}, {config.backbone} with weights:"
        f" {config.weights}"
    )
    result = several_report.write(
        config.out, {"settings": settings}, run, data.parts, title
    )
    scores.load_state_dict(run.best)
    about = {"backbone": config.backbone, "side": config.side, "decoder": run.decoder}
    detector = several_model.detector(layers, scores, data, about | {"about": result})
    detector.save(config.model_folder)
    return result


def command_line() -> None:
    terminal.run(lambda: main(options.read(Config)))


if __name__ == "__main__":
    command_line()
