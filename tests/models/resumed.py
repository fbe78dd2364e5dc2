"""One contract for models that train: a run that is killed goes on, bit for bit."""

import os

import pytest

from smoothsp.models import files
from tests.recipes.runs import die, killed


def check_resuming(run, place):
    """``run(out, resume=, overwrite=)`` trains for three epochs in a folder."""
    whole = run(place / "whole")
    replace, left = os.replace, [1]

    def counted(source, target):
        if os.path.basename(target) == "checkpoint.ckpt":
            left[0] -= 1
            if left[0] < 0:
                die()
        replace(source, target)

    def cut():
        os.replace = counted
        run(place / "cut")

    killed(cut)
    with pytest.raises(ValueError, match=r"^out: expected a folder without a run"):
        run(place / "cut")
    again = run(place / "cut", resume=True)
    weights, others = (x.network.state_dict() for x in (whole, again))
    assert all((weights[name] == others[name]).all() for name in weights)
    config, content = files.read(place / "whole/model")
    about, same = files.read(place / "cut/model")
    assert content == same
    for row in config["about"]["history"] + about["about"]["history"]:
        del row["seconds"], row["cpu_seconds"]
    assert config == about
    run(place / "cut", overwrite=True)
