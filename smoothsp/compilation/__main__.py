"""Compile the kernels of the usual calls for this processor, in two processes."""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import get_args

import torch

from smoothsp.compilation import (
    ignore_prebuilt,
    run_circuits,
    run_entropies_and_samples,
    run_prediction,
    run_training,
)
from smoothsp.compilation.listener import LOG, listener
from smoothsp.layers import LossName

PARTS = "training", "prediction"


def main(
    arguments: Sequence[str] | None = None, name: str = "smoothsp.compilation"
) -> int:
    """Compile one part, or start a process for each and wait for both."""
    parser = argparse.ArgumentParser(name, description=__doc__)
    parser.add_argument("part", nargs="?", choices=PARTS, help="compile only this part")
    parser.add_argument(
        "--native",
        action="store_true",
        help="compile for exactly this processor what smoothsp was installed with",
    )
    chosen = parser.parse_args(arguments)
    if chosen.part is not None:
        _compile_part(chosen.part, chosen.native)
        return 0
    sys.stdout.write("smoothsp: compiling kernels, for about a minute\n")
    sys.stdout.flush()
    command = [sys.executable, "-m", "smoothsp.compilation"]
    options = ["--native"] if chosen.native else []
    processes = [subprocess.Popen([*command, part, *options]) for part in PARTS]
    return max(process.wait() for process in processes)


def _compile_part(part: str, native: bool) -> None:
    """Compile the kernels of training or of prediction in this process."""
    LOG.setLevel("ERROR")  # the warning recommends to run this program
    start = time.monotonic()
    with ignore_prebuilt(native), torch.enable_grad():
        if part == "training":
            run_training(get_args(LossName), torch.float32)
            run_circuits(torch.float32)
        else:
            run_prediction(torch.float32)
            run_entropies_and_samples(torch.float32)
    seconds = time.monotonic() - start
    sys.stdout.write(
        f"smoothsp: {part}: {listener.count} functions in {seconds:.0f} s\n"
    )


if __name__ == "__main__":
    sys.exit(main())
