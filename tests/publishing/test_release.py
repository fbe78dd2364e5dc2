"""What a release consists of: versions that agree, citations, links, files."""

import importlib.util
import os
import re
import shutil
import site
import sys
import tarfile
from pathlib import Path

import pytest

import smoothsp
from tests.programs import ROOT, run

PAPERS = (
    "A Smoother Way to Train Structured Prediction Models",
    "Minding the Gaps for Block Frank-Wolfe Optimization of Structured SVMs",
    "An Exact Solver for the Weston-Watkins SVM Subproblem",
    "Lower Bounds for BMRM and Faster Rates for Training SVMs",
    "Regularized Risk Minimization by Nesterov's Accelerated Gradient Methods:"
    " Algorithmic Extensions and Empirical Studies",
)
VERSION = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.M)[
    1
]


def text_of(name):
    return (ROOT / name).read_text()


def test_one_version_everywhere():
    assert smoothsp.__version__ == VERSION
    assert f"\nversion: {VERSION}\n" in text_of("CITATION.cff")
    assert f"version = {{{VERSION}}}" in text_of("CITATION.bib")
    assert re.search(
        rf"^## (Unreleased \({VERSION}\)|{VERSION} \()", text_of("CHANGELOG.md"), re.M
    )


@pytest.mark.parametrize("title", PAPERS)
def test_papers_can_be_cited(title):
    assert title in re.sub(r"[{}]", "", text_of("CITATION.bib"))
    assert title in re.sub(r"\s+", " ", text_of("CITATION.cff"))


def test_links_of_the_readme_lead_somewhere_from_an_index():
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location(
        "hatch_build", ROOT / "hatch_build.py"
    )
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    text = "![a](b.png), [c](d/e.md#f), [g](#h), [i](https://j)\n```\nk[l](m)\n```\n"
    assert hook.with_absolute_links(text, "https://x/y", "1.2") == (
        "![a](https://x/y/raw/v1.2/b.png), [c](https://x/y/blob/v1.2/d/e.md#f),"
        " [g](#h), [i](https://j)\n```\nk[l](m)\n```\n"
    )
    assert hook.with_absolute_links(text, "", "1.2").startswith("a, c, [g](#h), [i](h")
    whole = hook.with_absolute_links(text_of("README.md"), "https://x/y", VERSION)
    assert not re.search(r"\]\((?!https://|#)", whole)


def test_a_wheel_can_be_built_from_the_sdist():
    """It takes what pyproject.toml lists; hatch_build.py reads the README there."""
    listed = text_of("pyproject.toml").split("targets.sdist]")[1].split("]")[0]
    assert {"/README.md", "/hatch_build.py", "/smoothsp"} <= set(
        re.findall(r'"(.+)"', listed)
    )


def git(folder, *arguments):
    name = ("-c", "user.name=a", "-c", "user.email=a@b")
    command = ["git", *name, *arguments]
    return run(*command, cwd=folder).stdout


def released(folder, tag, **environment):
    """Run the script of a release with the packages of this environment."""
    given = {
        "BUILD_ARGS": "--no-isolation",
        "INSTALL_ARGS": "--no-deps --no-index",
        "PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(site.getsitepackages()),
        "SMOOTHSP_REPOSITORY": "https://example.org/smoothsp",
    }
    given |= environment
    return run("bash", ".ci/release", tag, "dist", cwd=folder, env=given, check=False)


def test_what_a_run_leaves_behind_is_no_part_of_the_repository():
    """A model holds the words of what it was trained on."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs the repository")
    left = r"(^|/)(metrics\.json|vocabulary\.json|\.lock)$|\.(safetensors|pt|ckpt)$"
    found = [x for x in git(ROOT, "ls-files").splitlines() if re.search(left, x)]
    assert not found, f"{found}: remove them, and add --out FOLDER to the run"


@pytest.mark.long
def test_a_tag_becomes_files_that_install(tmp_path):
    pytest.importorskip("hatchling")
    pytest.importorskip("build")
    if not (ROOT / ".git").exists():
        pytest.skip("needs the repository")
    copy = tmp_path / "copy"
    for name in git(ROOT, "ls-files").splitlines():
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    kernels = copy / ".ci/kernels"  # of one call, for less to compile
    call = "import torch; smoothsp.oracles.Multiclass(torch.zeros(1, 2)).decode()"
    usual = "smoothsp.compile_kernels(get_args(LossName), others=True)"
    kernels.write_text(kernels.read_text().replace(usual, call))
    log = copy / "CHANGELOG.md"
    heading = f"## {VERSION} (2000-01-01)"
    log.write_text(re.sub(r"^## Unreleased.*$", heading, log.read_text(), flags=re.M))
    git(copy, "init", "-q")
    git(copy, "add", "-A")
    git(copy, "commit", "-qm", "all")

    assert "says" in released(copy, "v9.9.9").stderr
    git(copy, "tag", f"v{VERSION}")
    assert "address" in released(copy, f"v{VERSION}", SMOOTHSP_REPOSITORY="").stderr
    assert "lacks kernels" in released(copy, f"v{VERSION}").stderr
    shutil.rmtree(copy / "dist")
    run(sys.executable, ".ci/kernels", cwd=copy)
    done = released(copy, f"v{VERSION}")
    assert done.returncode == 0, done.stderr
    assert "is installed from the wheel and answers" in done.stdout

    sdist = next((copy / "dist").glob("*.tar.gz"))
    with tarfile.open(sdist) as archive:
        inside = {Path(*Path(name).parts[1:]) for name in archive.getnames()}
    named = re.findall(r"\]\(([^)#\s]+)", text_of("README.md"))
    named += re.findall(r"`((?:recipes|benchmarks)/[\w/.]+)`", text_of("README.md"))
    missing = {x for x in named if "://" not in x and Path(x) not in inside}
    assert not missing
    assert (
        set(map(Path, ("Makefile", ".ci/run", "hatch_build.py", "README.md"))) <= inside
    )
