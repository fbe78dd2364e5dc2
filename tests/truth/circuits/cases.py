"""Small cases of structures, and what a list of all outputs says about them."""

import importlib
import itertools
import math
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType

import torch
from torch import Tensor

import tests.truth.circuits
import tests.truth.searches

Potentials = dict[str, Tensor]


def entries_wrong(y: Tensor, gold: Tensor) -> Tensor:
    """How many entries of y are not those of the gold output."""
    return (y != gold).sum()


@dataclass(frozen=True)
class Case:
    """A batch, and all outputs of each of its rows.

    Attributes
    ----------
    build
        Makes the structure of potentials, and of options by name.
    potentials
        float64, by the structure's own names; the first is what a cost is added to.
    outputs
        Of each row a list of tensors, all of one shape, -1 where nothing is labelled.
    parts
        ``parts(potentials, b, y)``: the entries of the potentials that y uses, as pairs
        of a name and an index; those of a batch begin with the row.
    options
        What else the structure takes; tensors have an entry for each row.
    shared
        Names of the potentials without an axis for rows.
    wrong
        How many labels of an output are not those of another: the Hamming cost.
    repair
        Makes sound potentials of drawn ones.
    """

    build: Callable[..., object]
    potentials: Potentials
    outputs: Sequence[Sequence[Tensor]]
    parts: Callable[[int, Tensor], list[tuple[str, tuple[int, ...]]]]
    options: dict[str, object] = field(default_factory=dict)
    shared: tuple[str, ...] = ()
    wrong: Callable[[Tensor, Tensor], Tensor] = entries_wrong
    repair: Callable[[Potentials], Potentials] = dict

    def __len__(self) -> int:
        return len(self.outputs)

    def structure(self, **potentials: Tensor) -> object:
        return self.build(**{**self.potentials, **potentials}, **self.options)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Case":
        """The same with other potentials."""
        potentials = {name: change(x) for name, x in self.potentials.items()}
        return replace(self, potentials=potentials)

    def leaves(self) -> "Case":
        """The same, whose potentials take gradients."""
        return self.map(lambda x: x.detach().clone().requires_grad_())

    def scores(self, b: int) -> Tensor:
        """Scores of all outputs of row b, differentiable."""
        return torch.stack([self.score(b, y) for y in self.outputs[b]])

    def score(self, b: int, y: Tensor) -> Tensor:
        """The sum of the entries that y uses."""
        zero = torch.zeros((), dtype=next(iter(self.potentials.values())).dtype)
        return sum((self.potentials[n][i] for n, i in self.parts(b, y)), zero)

    def row(self, b: int) -> "Case":
        """Row b alone."""
        potentials = {
            name: x if name in self.shared else x[b : b + 1]
            for name, x in self.potentials.items()
        }
        options = {
            name: x[b : b + 1] if isinstance(x, Tensor) else x
            for name, x in self.options.items()
        }
        return replace(
            self,
            potentials=potentials,
            outputs=[self.outputs[b]],
            options=options,
            parts=lambda _, y: [
                (n, i if n in self.shared else (0, *i[1:])) for n, i in self.parts(b, y)
            ],
        )

    def read(self) -> dict[str, Tensor]:
        """Which entries some output uses."""
        found = {n: torch.zeros_like(x).bool() for n, x in self.potentials.items()}
        for b, outputs in enumerate(self.outputs):
            for y in outputs:
                for name, place in self.parts(b, y):
                    found[name][place] = True
        return found

    def padding(self, b: int) -> Tensor:
        """Which entries no output of row b labels."""
        return (torch.stack(list(self.outputs[b])) == -1).all(0)

    def index(self, b: int, y: Tensor) -> int:
        """The place of y among the outputs of row b."""
        (place,) = (i for i, x in enumerate(self.outputs[b]) if torch.equal(x, y))
        return place


def files_of(package: ModuleType) -> tuple[str, ...]:
    """Names of its files of cases."""
    names = (module.name for module in pkgutil.iter_modules(package.__path__))
    return tuple(name for name in names if name != "cases")


KINDS = files_of(tests.truth.circuits)
SEARCHES = files_of(tests.truth.searches)
# Of these, those that sum over their outputs as circuits do.
SUMMED = tuple(name for name in SEARCHES if name.startswith("spanning_tree"))
SPREADS = ("normal", "ties", "large")


def draw(kind: str, seed: int, forbid: bool | None = None) -> Case:
    """A case of a structure: some with ties, large scores, forbidden parts."""
    generator = torch.Generator().manual_seed(seed)
    folder = "searches" if kind in SEARCHES else "circuits"
    case = importlib.import_module(f"tests.truth.{folder}.{kind}").case(generator)
    spread = SPREADS[seed % 3]

    def values(x: Tensor) -> Tensor:
        drawn = torch.randn(x.shape, generator=generator, dtype=torch.float64)
        if spread == "ties":
            return (2 * drawn).round()
        return drawn if spread == "normal" else 300 * drawn

    case = case.map(values)
    case = replace(case, potentials=case.repair(case.potentials))
    if seed % 2 if forbid is None else forbid:
        case = _forbid_some(case, generator)
    return case


def _forbid_some(case: Case, generator: torch.Generator) -> Case:
    """Forbid parts of the first potentials, but one output of each row."""
    name = next(iter(case.potentials))
    drawn = torch.rand(case.potentials[name].shape, generator=generator)
    some = drawn < 0.3
    for b, outputs in enumerate(case.outputs):
        kept = outputs[int(torch.randint(len(outputs), (), generator=generator))]
        for part, place in case.parts(b, kept):
            if part == name:
                some[place] = False
    barred = case.potentials[name].masked_fill(some, -math.inf)
    return replace(case, potentials={**case.potentials, name: barred})


def strings(values: int, length: int) -> list[tuple[int, ...]]:
    """All strings over 0 to values - 1."""
    return list(itertools.product(range(values), repeat=length))


def check_shapes(case: Case) -> None:
    """``output_shapes`` hold all outputs of a row, and are those of the row alone."""
    built = case.structure()
    shapes = built.output_shapes
    assert shapes.shape == (len(case), case.outputs[0][0].dim())
    assert torch.equal(built.select(torch.arange(len(case))).output_shapes, shapes)
    for b, shape in enumerate(shapes.tolist()):
        labelled = (torch.stack(list(case.outputs[b])) >= 0).any(0)
        for axis, size in enumerate(shape):
            rest = [i for i in range(labelled.dim()) if i != axis]
            used = labelled.sum(rest) if rest else labelled
            # an axis that counts labels ends with one, one of moves before its end
            end = int(used.nonzero().max()) + 1 if used.any() else 0
            assert size - 1 <= end <= size <= built.shape[axis] or not end
        assert torch.equal(case.row(b).structure().output_shapes[0], shapes[b])


def check_strides(case: Case) -> None:
    """Potentials whose axes lie in memory in another order have the same gradients."""
    found = []
    for turned in (False, True):
        given = {n: x.clone().requires_grad_() for n, x in case.potentials.items()}
        laid = {n: _turned(x) if turned else x for n, x in given.items()}
        built = case.structure(**laid)
        value, y = built.decode()
        total = value.sum() + 3 * built.score(y).sum()
        if hasattr(built, "log_partition"):
            total = total + 7 * built.log_partition().sum()
        slopes = torch.autograd.grad(total, list(given.values()), allow_unused=True)
        found.append([total.detach(), *slopes])
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


def check_lengths(case: Case) -> None:
    """Whoever changes ``lengths``, or the shapes of outputs, changes no answer."""
    built = case.structure()
    value, shapes = built.decode()[0], built.output_shapes.clone()
    built.lengths.fill_(0)
    built.output_shapes.fill_(0)
    assert torch.equal(built.decode()[0], value)
    assert torch.equal(built.output_shapes, shapes)


def _turned(x: Tensor) -> Tensor:
    """The same numbers; the first axis, not the last, has neighbours side by side."""
    back = tuple(range(x.dim()))[::-1]
    return x.permute(back).contiguous().permute(back)
