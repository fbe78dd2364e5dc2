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
    python recipes/voc_localization.py --download --class dog    # fetches VOC 2007
    python recipes/voc_localization.py --finetune --side 224 --optimizer sgd
    python recipes/voc_localization.py --objects several         # all classes
    smoothsp predict runs/voc_localization/model FOLDER          # finds it elsewhere

Of the images of a folder it takes those with exactly one box of the class. Training
writes ``checkpoint.ckpt`` (all that ``--resume`` needs) after every epoch and ``model``
after every best one; at the end ``history.csv``, ``metrics.json``, ``curves.png`` and
``sheet.png``. A run that is killed and resumed ends with the numbers of one that was
not. Candidates and features are kept in ``--cache``, 2 MB an image.

The weights that are kept are those with the highest mean IoU on the validation images;
the test images have no say in anything. The table has beside them what chooses a box
without a look at the image.

The weights of the backbone are random unless ``--weights`` says otherwise.

With ``--objects several`` the output is a set of boxes with classes in which boxes that
overlap exclude each other: ``smoothsp.oracles.IntegerProgram`` with a constraint for
each clique of conflicts. ``--loss`` is the smoothed hinge over sets, the likelihood of
groups of windows, or softmax of each window, which non-maximum suppression follows.

Reproduces: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
section 7.1.2, but for one pass over an image in place of one for each box, and the
twelve numbers. Results: ``docs/results/images.md``.
"""

if __name__ == "__main__":
    from runs import sigint

    sigint.default_sigint()

    from localization.settings import Config
    from runs import start

    start.read_options(Config)

from localization import epoch_optimizers, report, synthetic
from localization import folder as localization_folder
from localization.folder import Folder
from localization.optimizers import build_callbacks, training_options
from localization.settings import (
    EPOCH_METHODS,
    Config,
    optimizer_values,
    require_compatible,
    trained_part,
)
from runs import options, terminal
from smoothsp.models.box_images import cache_folder
from smoothsp.models.localiser import Localiser
from smoothsp.run_folder import require_free


def main(config: Config) -> dict[str, float]:
    """Train; return the numbers of the best model."""
    require_compatible(config)
    require_free(config.out, config.resume, config.overwrite)
    folder = load(config)
    print(folder.summary())
    if config.weights == "random":
        print(f"features of {config.backbone} with random weights, never trained")
    localiser = train(config, folder)
    if localiser.about.get("interrupted"):
        raise KeyboardInterrupt
    return report.write(config, localiser, folder)


def load(config: Config) -> Folder:
    """Read the images, or draw some."""
    folder, kind = config.data, config.kind
    cache = config.cache or cache_folder()
    if config.download:
        folder = localization_folder.download(folder or cache / "voc2007")
    if folder is None:
        folder = synthetic.make(cache, synthetic.SIZES)
        kind = synthetic.CLASS if config.objects == "one" else None
    return localization_folder.read(folder, kind, config.skip_bad)


def train(config: Config, folder: Folder) -> Localiser:
    if config.objects == "one" and config.optimizer in EPOCH_METHODS:
        return epoch_optimizers.train(config, folder.lists)
    trainer = None
    if config.objects == "one":
        convex = trained_part(config) == "linear"
        calls = build_callbacks(config.optimizer, optimizer_values(config), convex)
        trainer = {"callbacks": calls}
    try:
        return Localiser.train(
            folder.lists["train"],
            folder.lists["val"],
            out=config.out,
            resume=config.resume,
            overwrite=config.overwrite,
            trainer=trainer,
            **training_options(config),
        )
    except RuntimeError as error:
        if "lower lr" not in str(error):
            raise
        raise ValueError(str(error)) from error


def command_line() -> None:
    terminal.run(lambda: main(options.read(Config)))


if __name__ == "__main__":
    command_line()
