"""The Python blocks of all pages run, and relative links lead somewhere."""

import builtins
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
import torch

import smoothsp
from tests import sweeps

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    page for page in ROOT.rglob("*.md") if page.relative_to(ROOT).parts[0][0] != "."
)
GOES_ON = "# After the block above.\n"


def programs(page):
    """The Python blocks of a page, each after those that it goes on from, with the
    outputs that the page shows of them: blocks of text after "This prints", or with
    nothing in between."""
    whole = []
    pattern = r"```python\n(.*?)```(?:\s+(?:This prints\s+)?```text\n(.*?)```)?"
    for block, output in re.findall(pattern, page.read_text(), re.DOTALL):
        if block.startswith(GOES_ON):
            whole[-1] = whole[-1][0] + block, [*whole[-1][1], output]
        else:
            whole.append((block, [output]))
    return whole


# they train for seconds
LONG = {f"optimizers-{number}" for number in (2, 4, 5)}
# those of recipes load what a recipe has trained
BLOCKS = [
    pytest.param(
        *(page, block, outputs),
        id=(name := f"{page.stem}-{number}"),
        marks=[pytest.mark.long] if name in LONG else [],
    )
    for page in PAGES
    if page.parent.name != "recipes"
    for number, (block, outputs) in enumerate(programs(page))
]
FOR_USERS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOR_USERS.remove(ROOT / "docs/architecture.md")
# Classes of other libraries, and what structures of one's own are written with.
NAMES_OF_OTHERS = {"AveragedModel", "DataLoader", "DistributedDataParallel"}
NAMES_OF_OTHERS |= {"LinearConstraint"}
NAMES_OF_OTHERS |= {"ConvergenceWarning", "GradScaler", "GridSearchCV", "LinearSVC"}
NAMES_OF_OTHERS |= {"AutoModel", "AutoTokenizer", "ModelCheckpoint", "Scan", "Trainer"}
NAMES_OF_OTHERS |= {"AutoModelForTokenClassification"}
NAMES_OF_PEERS = {
    *("AlignmentCRF", "CRF", "DependencyCRF", "LinearChainCRF", "SemiMarkovCRF"),
    *("NonProjectiveDependencyCRF", "TreeCRF", "Dependency2oCRF", "MatrixTree"),
    *("FrankWolfeSSVM", "GraphCRF", "GridCRF", "MultiClassClf", "NSlackSSVM"),
    "OneSlackSSVM",
}
TO_WRITE_WITH = {
    "CircuitStructure",
    "PartialStructure",
    "Structure",
    "SumStructure",
    "TopKStructure",
}


@pytest.fixture
def precision(page):
    """That of most tests, whose kernels a plain run shares; --long runs what stands."""
    before = torch.get_default_dtype()
    if page.parent.name == "docs" and not sweeps.long:
        torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("precision")
@pytest.mark.parametrize(("page", "block", "outputs"), BLOCKS)
def test_block_runs(page, block, outputs, capsys):
    exec(compile(block, str(page), "exec"), {"__name__": page.stem})
    if torch.get_default_dtype() == torch.float32:  # as the page has it
        # other lines may stand between them
        shown = ".*".join(map(re.escape, outputs))
        assert re.search(rf"{shown}\Z", capsys.readouterr().out, re.DOTALL)


def test_the_front_page_and_the_first_one_show_what_is_printed():
    for page in ("README.md", "docs/getting_started.md"):
        assert any(any(outputs) for _, outputs in programs(ROOT / page)), page


def anchors(page):
    """Where links into a page lead: its headings, as GitHub and the site name them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in headings
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page):
    broken = []
    for link, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        target = page.parent / link if link else page
        if "://" in link:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(f"{link}#{anchor}")
    assert not broken, f"{page.relative_to(ROOT)} links to missing {broken}"


def documented_names():
    """Dotted names of the package that pages mention, and those that they import."""
    for page in PAGES:
        text = page.read_text()
        for name in re.findall(r"(?<![\w./])smoothsp(?:\.[A-Za-z]\w*)+(?![\w/])", text):
            if not name.endswith((".py", ".md", ".git")):
                yield name
        for module, names in re.findall(
            r"^from (smoothsp[\w.]*) import ([\w, ]+)$", text, re.MULTILINE
        ):
            yield from (f"{module}.{name.strip()}" for name in names.split(","))


def test_documented_names_are_there():
    for name in sorted(set(documented_names())):
        module, *attributes = name.split(".")
        found = importlib.import_module(module)
        for attribute in attributes:
            module += f".{attribute}"
            if not hasattr(found, attribute):
                importlib.import_module(module)
            found = getattr(found, attribute)


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def public_names():
    """All names that smoothsp's modules make public, and those of Python."""
    found = set(dir(builtins))
    for module in pkgutil.walk_packages(smoothsp.__path__, "smoothsp."):
        if not any(part[0] == "_" for part in module.name.split(".")):
            found |= set(getattr(importlib.import_module(module.name), "__all__", ()))
    return found | set(smoothsp.__all__)


@pytest.mark.parametrize("page", FOR_USERS, ids=lambda page: page.stem)
def test_every_class_that_is_named_can_be_imported(page):
    named = re.findall(r"`([A-Z]\w*[a-z]\w*)[`(.]", page.read_text())
    others = NAMES_OF_OTHERS | (NAMES_OF_PEERS if page.stem == "migration" else set())
    assert set(named) - public_names() - others == set()


@pytest.mark.parametrize("page", ["README.md", "docs/structures.md"])
def test_every_structure_is_named(page):
    text = (ROOT / page).read_text()
    classes = {n: getattr(smoothsp.oracles, n) for n in smoothsp.oracles.__all__}
    structures = {
        name
        for name, x in classes.items()
        if isinstance(x, type) and hasattr(x, "decode") and name not in TO_WRITE_WITH
    }
    missing = {name for name in structures | {"Formula"} if f"`{name}" not in text}
    assert missing == {"Models"}  # which a formula makes


def test_every_loss_is_named():
    text = (ROOT / "README.md").read_text() + (
        ROOT / "docs/how_to_choose.md"
    ).read_text()
    for name in smoothsp.losses.__all__:
        x = getattr(smoothsp.losses, name)
        if isinstance(x, type) and issubclass(x, torch.nn.Module):
            assert text.count(f"`{name}(") >= 2, name
