"""Who may import whom, and which names are public."""

import ast
import functools
import importlib
import re
import sys

import pytest

import smoothsp
from tests.programs import ROOT, run

PACKAGE = ROOT / "smoothsp"

# What each part may import besides itself and the standard library.
MAY_IMPORT = {
    "_kernels": {"numpy", "numba", "llvmlite", "torch", "triton"},
    "oracles": {"smoothsp._kernels", "highspy", "numpy", "torch", "jaxtyping"},
    "losses": {"smoothsp.oracles", "torch", "jaxtyping"},
    "layers": {
        "smoothsp.constraints",
        "smoothsp.oracles",
        "smoothsp.losses",
        "smoothsp.schemes",
        "smoothsp.viterbi",
        "torch",
        "jaxtyping",
    },
    "viterbi": {"torch", "jaxtyping"},
    "testing": {"torch"},
    "compilation": {
        "smoothsp._kernels",
        "smoothsp.layers",
        "smoothsp.oracles",
        "numba",
        "torch",
    },
    "schemes": set(),
    "constraints": {"smoothsp.schemes", "smoothsp.oracles", "torch", "jaxtyping"},
    "metrics": {"smoothsp.schemes", "numpy", "torch"},
    "projections": {
        "smoothsp._kernels",
        "smoothsp.oracles",
        "numpy",
        "torch",
        "jaxtyping",
    },
    "linear": {
        "smoothsp._kernels",
        "smoothsp.losses",
        "smoothsp.metrics",
        "smoothsp.oracles",
        "smoothsp.optim",
        "smoothsp.projections",
        "smoothsp.schemes",
        "joblib",
        "numpy",
        "scipy",
        "sklearn",
        "torch",
        "tqdm",
    },
    "figures": {"smoothsp.metrics", "smoothsp.schemes", "matplotlib", "numpy"},
    "data": {
        "smoothsp.metrics",
        "smoothsp.schemes",
        "PIL",
        "cv2",
        "nltk",
        "numpy",
    },
    "models": {
        "smoothsp.atomic_files",
        "smoothsp.checkpoints",
        "smoothsp.constraints",
        "smoothsp.data",
        "smoothsp.divergence",
        "smoothsp.encoder_config",
        "smoothsp.figures",
        "smoothsp.json_files",
        "smoothsp.layers",
        "smoothsp.losses",
        "smoothsp.metrics",
        "smoothsp.optim",
        "smoothsp.oracles",
        "smoothsp.run_folder",
        "smoothsp.schemes",
        "smoothsp.training",
        "smoothsp.weight_files",
        "PIL",
        "cv2",
        "nltk",
        "numpy",
        "safetensors",
        "tokenizers",
        "torch",
        "torchmetrics",
        "torchvision",
        "tqdm",
        "transformers",
    },
    "training": {
        "smoothsp.checkpoints",
        "smoothsp.divergence",
        "smoothsp.optim",
        "smoothsp.run_folder",
        "numpy",
        "pytorch_lightning",
        "torch",
        "tqdm",
    },
    "run_folder": {"smoothsp.checkpoints"},
    "checkpoints": {"smoothsp.atomic_files", "torch"},
    "divergence": {"smoothsp.optim", "torch"},
    "atomic_files": set(),
    "optim": {"matplotlib", "torch"},
    "lightning": {"smoothsp.optim", "pytorch_lightning", "torch"},
    "hugging_face": {
        "smoothsp.constraints",
        "smoothsp.encoder_config",
        "smoothsp.json_files",
        "smoothsp.layers",
        "smoothsp.losses",
        "smoothsp.schemes",
        "smoothsp.weight_files",
        "torch",
        "transformers",
    },
    "weight_files": {"smoothsp.json_files", "safetensors", "torch"},
    "encoder_config": {"transformers"},
    "json_files": set(),
    "command_line": {
        "smoothsp.atomic_files",
        "smoothsp.compilation",
        "smoothsp.data",
        "smoothsp.json_files",
        "smoothsp.metrics",
        "smoothsp.models",
        "smoothsp.schemes",
        "PIL",
        "cv2",
        "numpy",
        "tqdm",
    },
    "__main__": {"smoothsp.command_line"},
}
PUBLIC = {
    "smoothsp": {
        "LinearChain",
        "compile_kernels",
        "constraints",
        "losses",
        "metrics",
        "optim",
        "oracles",
        "projections",
        "schemes",
    },
    "smoothsp.oracles": {
        "Alignment",
        "BinaryGraph",
        "BoxSearch",
        "CTC",
        "Chain",
        "Circuit",
        "CircuitStructure",
        "FactorGraph",
        "Formula",
        "Grammar",
        "IntegerProgram",
        "Knapsack",
        "LabelledSpanningTree",
        "Lattice",
        "LoopyGraph",
        "Matching",
        "Models",
        "Multiclass",
        "PartialStructure",
        "PictorialStructure",
        "PlackettLuce",
        "ProjectiveDependencies",
        "RegularChain",
        "RegularLanguage",
        "SecondOrderChain",
        "SemiMarkov",
        "ShortestPath",
        "SiblingDependencies",
        "SpanTree",
        "SpanningTree",
        "SparseMAP",
        "Structure",
        "Subset",
        "SumStructure",
        "Summed",
        "TopKStructure",
        "Tree",
        "UndirectedSpanningTree",
        "Warping",
        "approximate_by_alpha_expansion",
        "approximate_by_dual_decomposition",
        "topology",
    },
    "smoothsp.constraints": {"Constraints", "bio", "regular"},
    "smoothsp.testing": {"check_structure"},
    "smoothsp.schemes": {"PLAIN", "Notation", "convert", "detect", "notation_of"},
    "smoothsp.metrics": {"average_precision", "corloc", "span_f1", "spans"},
    "smoothsp.losses": {
        "CRFLoss",
        "Constants",
        "Entropy",
        "ImplicitMLE",
        "Interpolation",
        "L2",
        "LatentHinge",
        "ListwiseRanking",
        "MarginalLikelihood",
        "MinimumRisk",
        "NegativeIdentity",
        "NoiseContrastive",
        "PairwiseRanking",
        "Perturbed",
        "PerturbedLoss",
        "RankingHinge",
        "SPOPlus",
        "SolutionPool",
        "SparseMAP",
        "SparseMAPLoss",
        "StructuralHinge",
        "StructuredPerceptron",
        "functional",
        "regret",
        "smoothness_constants",
    },
    "smoothsp.projections": {
        "project_box_equality",
        "project_capped_simplex",
        "project_capped_simplex_kl",
        "project_chain_marginals",
        "project_elastic_net_ball",
        "project_l1_ball",
        "project_simplex",
        "project_weston_watkins",
        "prox_elastic_net",
    },
    "smoothsp.linear": {
        "Certificate",
        "ChainCRF",
        "ChainGP",
        "ChainSVM",
        "Comparison",
        "CrammerSingerSVC",
        "F1SVC",
        "HingeSVC",
        "L1SVC",
        "LPBoostClassifier",
        "ROCSVC",
        "StructuredSVM",
        "WestonWatkinsSVC",
        "compare",
        "scorers",
    },
    "smoothsp.linear.scorers": {"sequence_accuracy", "span_f1", "token_accuracy"},
    "smoothsp.linear.features": {"KernelFeatures", "Templates", "Words"},
    "smoothsp.linear.problems": {
        "LPBoostProblem",
        "LeastSquaresProblem",
        "Batch",
        "BatchProblem",
        "BinaryProblem",
        "CallbackProblem",
        "ChainProblem",
        "Corner",
        "F1Problem",
        "HashedChainProblem",
        "LinearProblem",
        "LowerBoundProblem",
        "MulticlassProblem",
        "PartitionedProblem",
        "Parts",
        "ROCAreaProblem",
        "Shared",
        "StructureProblem",
        "TopKLinearProblem",
    },
    "smoothsp.linear.solvers": {
        "AGM",
        "BCFW",
        "BMRM",
        "BatchFrankWolfe",
        "CappedSimplex",
        "CasimirSVRG",
        "CoordinateDescent",
        "ElasticNet",
        "ElasticNetBall",
        "GRID",
        "GridSolution",
        "LBFGS",
        "Minimum",
        "PathPoint",
        "PathSolution",
        "Pragam",
        "Prox",
        "Record",
        "RegularisationPath",
        "SDCA",
        "SGD",
        "SVRG",
        "Solution",
        "Solver",
        "Tolerance",
        "grid_search",
        "nonuniformity",
        "solve",
        "staleness",
        "minimise_composite",
    },
    "smoothsp.lightning": {"Snapshots"},
    "smoothsp.figures": {"draw"},
    "smoothsp.data": {
        "AnnotatedImage",
        "AnnotatedText",
        "ConstituencyTree",
        "DependencyTree",
        "MaskedImage",
        "SplitFiles",
        "Splits",
        "TaggedSentence",
        "Unaligned",
        "as_dependencies",
        "as_images",
        "as_masks",
        "as_tagged",
        "as_trees",
        "by_document",
        "dependencies",
        "read_box_splits",
        "read_boxes",
        "read_dependencies",
        "read_masks",
        "read_spans",
        "read_splits",
        "read_tagged",
        "read_trees",
        "tag_words",
        "trees",
        "unseen_labels",
    },
    "smoothsp.models": {
        "ConstituencyParser",
        "Constituents",
        "Parsed",
        "Parser",
        "Segmenter",
        "Span",
        "Tagged",
        "Tagger",
        "load",
    },
    "smoothsp.hugging_face": {
        "ChainConfig",
        "ChainForTokenClassification",
        "ChainOutput",
        "encode_words",
    },
    "smoothsp.models.tagger_options": {
        "MU",
        "NetworkOptions",
        "Options",
        "TOP_K",
        "TrainingOptions",
        "check",
    },
    "smoothsp.training": {
        "Fitted",
        "Jointly",
        "RunningAverage",
        "StructuredModule",
        "fit",
        "one_thread",
        "seed_all",
    },
    "smoothsp.checkpoints": {"read", "require_file", "require_same", "write"},
    "smoothsp.divergence": {"GROWTH", "diagnosed", "require_sound"},
    "smoothsp.run_folder": {
        "CHECKPOINT",
        "LOCK",
        "MODEL",
        "held",
        "is_main_process",
        "require_free",
    },
    "smoothsp.atomic_files": {"replace"},
    "smoothsp.models.localiser": {"Found", "Localiser", "LocaliserNetwork"},
    "smoothsp.optim": {
        "CasimirSVRG",
        "Linearised",
        "Plan",
        "ProxLinear",
        "SVRG",
        "SubgradientLR",
        "Trace",
        "estimate_smoothness",
        "plan",
        "schedules",
        "weighted_average",
    },
}
HEAVY = {
    "lightning",
    "matplotlib",
    "nltk",
    "pytorch_lightning",
    "seqeval",
    "sklearn",
    "torchvision",
    "tqdm",
    "transformers",
    "triton",
    "tyro",
}
SHARED_BY_RECIPES = {"corpora", "runs"}
NAMES_THAT_SAY_NOTHING = {"utils", "helpers", "base", "common"}

SOURCES = sorted(
    path
    for folder in ("smoothsp", "recipes", "benchmarks", "tests", "docs")
    for path in (ROOT / folder).rglob("*.py")
)
PARTS = sorted(
    (path.relative_to(PACKAGE).parts[0].removesuffix(".py"), path)
    for path in PACKAGE.rglob("*.py")
    if path != PACKAGE / "__init__.py"
)
USERS = [path for path in SOURCES if path.is_relative_to(ROOT / "recipes")]
USERS += [path for path in SOURCES if path.is_relative_to(ROOT / "benchmarks")]


def shown(path):
    return str(path.relative_to(ROOT))


@functools.cache
def parsed(path):
    """All nodes of a file, of which several tests read some."""
    return [*ast.walk(ast.parse(path.read_text()))]


def imported_names(path):
    """Yield (module, name); the name is None for a plain ``import module``."""
    for node in parsed(path):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{shown(path)}:{node.lineno} relative import"
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)


def imported_parts(path):
    """First two segments of what is imported from smoothsp, first one otherwise."""
    for module, name in imported_names(path):
        segments = [*module.split("."), *([name] if name else [])]
        yield ".".join(segments[: 2 if segments[0] == "smoothsp" else 1])


def test_imports_follow_the_table():
    for part, path in PARTS:
        assert part in MAY_IMPORT, f"smoothsp/{part} has no row in the import table"
        allowed = MAY_IMPORT[part] | {f"smoothsp.{part}"} | sys.stdlib_module_names
        extra = set(imported_parts(path)) - allowed
        assert not extra, f"{shown(path)} imports {sorted(extra)}"


def test_recipes_and_benchmarks_use_public_names_only():
    for path in USERS:
        uses_public_names_only(path)


def uses_public_names_only(path):
    for module, name in imported_names(path):
        if module.split(".")[0] != "smoothsp":
            continue
        private = [s for s in module.split(".") if s.startswith("_")]
        assert not private, f"{shown(path)} imports {module}"
        if name is not None:
            public = importlib.import_module(module).__all__
            assert name in public, f"{module}.{name} is not public"
    for node in parsed(path):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            root = node.value
            while isinstance(root, ast.Attribute):
                root = root.value
            private = isinstance(root, ast.Name) and root.id == "smoothsp"
            assert not private, f"{shown(path)}:{node.lineno} uses {node.attr}"


def test_no_topic_of_recipes_imports_another():
    folders = {
        path.parent.name for path in USERS if path.parent.parent.name == "recipes"
    }
    topics = folders - SHARED_BY_RECIPES
    assert topics
    for path in USERS:
        place = path.relative_to(ROOT).parts
        if place[0] == "recipes":
            used = {module.split(".")[0] for module, _ in imported_names(path)} & topics
            # a command has one topic; a folder of a topic, or of what all share, none
            own = used if len(place) == 2 else {place[1]}
            assert len(own) < 2 and used <= own, f"{shown(path)} imports {sorted(used)}"


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_those_written_here(module):
    names = importlib.import_module(module).__all__
    assert {name for name in names if not name.startswith("__")} == PUBLIC[module]
    assert all(hasattr(importlib.import_module(module), name) for name in names)


def test_import_is_light():
    # What torch itself brings along is not ours to judge.
    program = (
        "import sys, smoothsp; assert 'torch' not in sys.modules;"
        "import torch; before = set(sys.modules);"
        "[getattr(smoothsp, name) for name in smoothsp.__all__];"
        "print(*{name.split('.')[0] for name in set(sys.modules) - before});"
        "import smoothsp.figures, smoothsp.models;"
        "assert 'matplotlib' not in sys.modules"
    )
    loaded = set(run(sys.executable, "-c", program).stdout.split())
    assert "numba" in loaded
    assert not loaded & HEAVY


MAKERS = {"arange", "as_tensor", "empty", "eye", "full", "linspace", "ones", "rand"}
MAKERS |= {"randint", "randn", "tensor", "zeros"}
# modules and constants of their own are made on the default device, as torch's are
ON_DEFAULT_DEVICE = {
    "constraints",
    "hugging_face",
    "layers",
    "linear",
    "models",
    "optim",
}
ON_DEFAULT_DEVICE |= {"_kernels", "compilation", "viterbi"}
ANSWERS = [path for part, path in PARTS if part not in ON_DEFAULT_DEVICE]


def test_no_answer_depends_on_the_default_device():
    for path in ANSWERS:
        says_its_device(path)


def says_its_device(path):
    for node in parsed(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            root = node.func.value
            makes = isinstance(root, ast.Name) and root.id == "torch"
            if makes and node.func.attr in MAKERS:
                said = {x.arg for x in node.keywords}
                where = f"{shown(path)}:{node.lineno}"
                assert "device" in said, f"{where} torch.{node.func.attr}: no device"


def test_files_that_the_walk_through_names_exist():
    named = re.findall(r"`([\w/]+\.py)`", (ROOT / "docs/architecture.md").read_text())
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_the_map_of_folders_is_complete():
    text = (ROOT / "docs/architecture.md").read_text()
    named = {ROOT / name for name in re.findall(r"`(smoothsp/[\w/]+)/`", text)}
    assert [shown(x) for x in named if not x.is_dir()] == []
    folders = {path.parent for _, path in PARTS}
    inside = {x for x in folders if x not in named and x.parent not in named}
    # a package whose folders are all named needs no row of its own
    inside -= {x.parent for x in named}
    assert {shown(x) for x in inside} == set()


def imported_files(path):
    """Files of the package that a file imports, for more than its type hints."""
    hints = set()
    for node in parsed(path):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            hints |= {id(inner) for inner in ast.walk(node)}
    for node in parsed(path):
        if id(node) in hints or not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        module = getattr(node, "module", None)
        for alias in node.names:
            segments = (module or alias.name).split(".")
            for name in ([*segments, alias.name], segments) if module else [segments]:
                place = ROOT.joinpath(*name)
                if place.with_suffix(".py").is_file():
                    yield place.with_suffix(".py")
                    break
                if (place / "__init__.py").is_file():
                    yield place / "__init__.py"
                    break


@pytest.fixture(scope="module")
def imports():
    """Of each file of the package those that it imports."""
    # the program imports parts, and no part imports the program
    own = [path for _, path in PARTS if path != PACKAGE / "__main__.py"]
    return {path: set(imported_files(path)) - {path} for path in own}


def folders_reached(imports):
    """Of each folder those that its files import, directly or not."""
    near = {}
    for path, files in imports.items():
        near.setdefault(path.parent, set()).update({x.parent for x in files})
    far = {folder: set(others) - {folder} for folder, others in near.items()}
    for _ in near:
        for others in far.values():
            others |= {y for x in set(others) for y in far.get(x, ())}
    return far


def test_no_file_of_the_structures_is_imported_by_one_that_it_imports(imports):
    inside = {path: files for path, files in imports.items() if "oracles" in path.parts}
    # imports for type hints would hide a circle
    assert [shown(x) for x in inside if "TYPE_CHECKING" in x.read_text()] == []
    left = dict(inside)
    while free := [path for path, files in left.items() if not files & left.keys()]:
        for path in free:
            del left[path]
    assert [shown(path) for path in left] == [], "import circle"


def test_no_folder_imports_one_above_it(imports):
    reached = folders_reached(imports)
    circles = {shown(folder) for folder in reached if folder in reached[folder]}
    assert not circles, "these folders import each other in a circle"
    for path, files in imports.items():
        # files of the package's own folder are parts, with rows in the table of imports
        held = {x for x in files if x.parent in path.parent.parents}
        above = {shown(x) for x in held if x.parent != PACKAGE}
        assert not above, f"{shown(path)} imports from a folder that holds its own"


def test_the_table_of_imports_in_contributing_is_this_one():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| (`(?:smoothsp/)?[^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    table = {}
    for parts, allowed in rows:
        for part in re.findall(r"`smoothsp/(\w+)(?:\.py|/)`", parts):
            table[part] = set(re.findall(r"`(\w+)`", allowed))
    ours = {
        part: {x.removeprefix("smoothsp.") for x in allowed if "smoothsp." in x}
        for part, allowed in MAY_IMPORT.items()
    }
    assert table == ours


def test_files_that_contributing_names_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    folders = (ROOT, PACKAGE, PACKAGE / "_kernels")
    named = re.findall(r"`([\w./]+/[\w.]+\.(?:py|md))`", text)
    assert named
    lost = [x for x in named if not any((folder / x).is_file() for folder in folders)]
    assert not lost


def test_file_names_say_what_is_inside():
    for path in SOURCES:
        vague = NAMES_THAT_SAY_NOTHING & {path.stem.strip("_"), path.parent.name}
        assert not vague, shown(path)


def test_the_package_lists_its_public_names():
    names = dir(smoothsp)
    later = {"data", "figures", "lightning", "linear", "models"}
    assert set(names) == {*smoothsp.__all__, *later, "__version__"}
    for name in {*names} - {"lightning"}:
        assert getattr(smoothsp, name) is not None
