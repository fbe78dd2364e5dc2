"""Structures inside graphs of ``torch.compile``: a question is one op.

A graph holds no structure. It keeps what a structure was made of: its class, its
arguments, and its potentials. The op makes the structure again when the graph runs, and
asks it; so all that is true of a structure holds in a graph, the checks of values too.
Chains have finer ops, ``question.ask``.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

is_compiling = torch.compiler.is_compiling
# What PyTorch includes and excludes in calls outside of all ops.
_OUTSIDE = (
    torch._C._dispatch_tls_local_include_set(),
    torch._C._dispatch_tls_local_exclude_set(),
)
# Of an answer: the dtype of the potentials, int64 or bool.
_FLOAT, _INT, _BOOL = range(3)
Sizes = list[int]


class Recipe(NamedTuple):
    """What a structure was made of, in a graph.

    Attributes
    ----------
    number
        Of its class, and of arguments that are no tensors.
    tensors
        The other arguments.
    rows
        Which of their rows the structure has, if not all.
    """

    number: int
    tensors: tuple[Tensor, ...]
    rows: Tensor | None = None


# Classes and arguments by number: names, and values of what is no tensor.
_TENSOR = "tensor"
Layout = tuple[tuple[str, Any], ...]
_recipes: list[tuple[type, int, Layout]] = []


@torch._dynamo.assume_constant_result
def _number_of(kind: type, positional: int, layout: Layout) -> int:
    """The number of a class with such arguments, the first ones without names."""
    entry = kind, positional, layout
    if entry not in _recipes:
        _recipes.append(entry)
    return _recipes.index(entry)


def recorded(make: Callable[..., None]) -> Callable[..., None]:
    """Wrap a constructor: in a graph the structure keeps what it is made of."""

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **options: Any) -> None:
        if is_compiling() and "_recipe" not in self.__dict__:
            self.__dict__["_recipe"] = _recipe(type(self), args, options)
        make(self, *args, **options)

    return __init__


def _recipe(kind: type, args: tuple[Any, ...], options: dict[str, Any]) -> Recipe:
    layout, tensors = [], []
    for name, x in (*((str(i), x) for i, x in enumerate(args)), *options.items()):
        if isinstance(x, Tensor):
            layout.append((name, _TENSOR))
            tensors.append(x.detach())
        else:
            layout.append((name, _constant(x)))
    return Recipe(_number_of(kind, len(args), tuple(layout)), tuple(tensors))


def _constant(x: Any) -> Any:
    """A value that a graph may keep."""
    if isinstance(x, bool) or x is None:
        return x
    if isinstance(x, int):
        return operator.index(x)
    if isinstance(x, list | tuple):
        return tuple(_constant(y) for y in x)
    return x


def asked(question: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap a question: in a graph it is an op."""

    @functools.wraps(question)
    def ask(self: Any, *args: Any, **options: Any) -> Any:
        if is_compiling() and not self._has_finer_ops:
            return _QUESTIONS[name](self, *args, **options)
        return question(self, *args, **options)

    return ask


# Questions in a graph: the shapes of their answers --------------------------------


def _of_outputs(name: str) -> Callable[[Any, Tensor], Tensor]:
    def ask(structure: Any, y: Tensor) -> Tensor:
        rows = _rows(structure)
        many = y.dim() > 1 + len(structure.shape)
        shape = [*rows, y.shape[1]] if many else rows
        return _ask(structure, name, [], [y], [(_FLOAT, shape)])[0]

    return ask


def _of_rows(name: str) -> Callable[..., Tensor]:
    def ask(structure: Any, *about: Tensor) -> Tensor:
        answer = [(_FLOAT, _rows(structure))]
        return _ask(structure, name, [], list(about), answer)[0]

    return ask


def _decode(structure: Any) -> tuple[Tensor, Tensor]:
    rows = _rows(structure)
    answer = [(_FLOAT, rows), (_INT, [*rows, *structure.shape])]
    value, y = _ask(structure, "decode", [], [], answer)
    return value, y


def _decode_topk(structure: Any, k: int) -> tuple[Tensor, Tensor, Tensor]:
    rows = [*_rows(structure), k]
    outputs = [*rows, *structure.shape]
    answer = [(_FLOAT, rows), (_INT, outputs), (_BOOL, rows)]
    values, ys, valid = _ask(structure, "decode_topk", [k], [], answer)
    return values, ys, valid


def _of_parts(method: str) -> Callable[..., Tensor]:
    def ask(structure: Any, name: str | None = None) -> Tensor:
        names = list(structure._by_name())
        if name is None:
            name = names[0]
        if name not in names:
            raise ValueError(f"name: expected one of {names}, got {name!r}")
        x = structure._by_name()[name]
        own = name in structure._own
        shape = list(x.shape) if own else [*_rows(structure), *x.shape]
        options = [names.index(name)]
        return _ask(structure, method, options, [], [(_FLOAT, shape)])[0]

    return ask


def _hamming(structure: Any, y: Tensor) -> Tensor:
    answer = [(_FLOAT, list(structure._main.shape))]
    return _ask(structure, "hamming", [], [y], answer)[0]


def _label_counts(structure: Any, y: Tensor) -> Tensor:
    answer = [(_FLOAT, [*_rows(structure), structure._num_labels])]
    return _ask(structure, "label_counts", [], [y], answer)[0]


def _sample(
    structure: Any, n: int, generator: None = None, *, replace: bool = True
) -> Tensor:
    if generator is not None:
        raise TypeError(
            "generator: expected None inside torch.compile, where torch.manual_seed "
            "sets what is drawn"
        )
    answer = [(_INT, [*_rows(structure), n, *structure.shape])]
    return _ask(structure, "sample", [n, int(replace)], [], answer)[0]


_QUESTIONS: dict[str, Callable[..., Any]] = {
    "decode": _decode,
    "decode_topk": _decode_topk,
    "hamming": _hamming,
    "label_counts": _label_counts,
    "sample": _sample,
    **{name: _of_outputs(name) for name in ("score", "log_prob")},
    **{
        name: _of_rows(name)
        for name in ("log_partition", "entropy", "log_count", "log_prob_within")
    },
    **{name: _of_parts(name) for name in ("marginals", "max_marginals")},
}
NAMES = tuple(_QUESTIONS)
_NO_GRADIENT = ("hamming", "label_counts", "sample", "max_marginals", "log_count")


def _rows(structure: Any) -> Sizes:
    return [structure._main.shape[0]]


def _ask(
    structure: Any,
    name: str,
    options: Sizes,
    about: list[Tensor],
    answer: list[tuple[int, Sizes]],
) -> list[Tensor]:
    recipe = structure._recipe
    rows = [] if recipe.rows is None else [recipe.rows]
    potentials = structure._by_name().values()
    if name in _NO_GRADIENT:
        potentials = [x.detach() for x in potentials]
    shapes: Sizes = []
    for _, shape in answer:
        shapes = [*shapes, len(shape), *shape]
    found: list[Tensor] = ask_structure(
        name,
        recipe.number,
        options,
        list(recipe.tensors),
        rows,
        list(potentials),
        about,
        shapes,
        [kind for kind, _ in answer],
    )
    return found


# The ops ----------------------------------------------------------------------------


def _structure(
    number: int,
    tensors: Sequence[Tensor],
    rows: Sequence[Tensor],
    potentials: Sequence[Tensor],
) -> Any:
    """The structure that a graph stands for."""
    kind, positional, layout = _recipes[number]
    given = iter(tensors)
    values = [(name, next(given) if x == _TENSOR else x) for name, x in layout]
    args = [x for _, x in values[:positional]]
    made = kind(*args, **dict(values[positional:]))
    if rows:
        made = made.select(rows[0])
    own, common = made._own, made._common
    named = dict(zip((*own, *common), potentials, strict=True))
    if all(x.data_ptr() == named[n].data_ptr() for n, x in made._by_name().items()):
        if not any(x.requires_grad for x in potentials):
            return made
        return made._like({n: named[n] for n in own}, {n: named[n] for n in common})
    made = made._like({n: named[n] for n in own}, {n: named[n] for n in common})
    made._require_valid(next(iter(own)))
    return made


def _call(structure: Any, name: str, options: Sizes, about: Sequence[Tensor]) -> Any:
    method = getattr(structure, name)
    if name in ("marginals", "max_marginals"):
        return method(list(structure._by_name())[options[0]])
    if name == "sample":
        return method(options[0], replace=bool(options[1]))
    return method(*options, *about)


def _answer(
    name: str,
    number: int,
    options: Sizes,
    tensors: Sequence[Tensor],
    rows: Sequence[Tensor],
    potentials: Sequence[Tensor],
    about: Sequence[Tensor],
    shapes: Sizes,
    kinds: Sizes,
) -> list[Tensor]:
    with torch.no_grad():
        structure = _structure(number, tensors, rows, potentials)
        found = _call(structure, name, options, about)
    listed = list(found) if isinstance(found, tuple) else [found]
    every = (*tensors, *rows, *potentials, *about)
    given = {x.untyped_storage().data_ptr() for x in every if x.numel()}
    # an answer may not share the memory of an input
    return [
        x.clone() if x.untyped_storage().data_ptr() in given else x.contiguous()
        for x in listed
    ]


def _shapes(
    name: str,
    number: int,
    options: Sizes,
    tensors: Sequence[Tensor],
    rows: Sequence[Tensor],
    potentials: Sequence[Tensor],
    about: Sequence[Tensor],
    shapes: Sizes,
    kinds: Sizes,
) -> list[Tensor]:
    main, found, at = potentials[0], [], 0
    for kind in kinds:
        many = shapes[at]
        shape = shapes[at + 1 : at + 1 + many]
        dtype = (main.dtype, torch.int64, torch.bool)[kind]
        found.append(main.new_empty(shape, dtype=dtype))
        at += 1 + many
    return found


def _save(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    name, number, options, tensors, rows, potentials, about, *_ = inputs
    lists = tensors, rows, potentials, about
    ctx.asked, ctx.counts = (name, number, options), [len(x) for x in lists]
    ctx.save_for_backward(*tensors, *rows, *potentials, *about, *output[1:])
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, grads: list[Tensor | None]) -> tuple[Any, ...]:
    name, number, options = ctx.asked
    saved, lists = list(ctx.saved_tensors), []
    for many in ctx.counts:
        lists.append(saved[:many])
        saved = saved[many:]
    tensors, rows, potentials, about = lists
    some = [i for i, want in enumerate(ctx.needs_input_grad[5]) if want]
    slopes: list[Tensor | None] = [None] * len(potentials)
    grad = grads[0]
    if grad is not None and some:
        # Danskin: the gradient of a maximum is that of the score at a maximiser
        if name == "decode":
            name, about = "score", saved
        elif name == "decode_topk":
            ys, valid = saved
            some_outputs = valid.reshape(*valid.shape, *[1] * (ys.dim() - 2))
            name, options = "score", []
            about = [torch.where(some_outputs, ys, ys[:, :1])]
            grad = grad.masked_fill(~valid, 0)
        given = name, number, options, tensors, rows, potentials, about
        for i, slope in zip(some, ask_slope(*given, grad, some), strict=True):
            slopes[i] = slope
    nothing = ([None] * many for many in (*ctx.counts[:2], ctx.counts[3]))
    made_of, picked, others = nothing
    # PyTorch takes an empty list for one of tensors
    of_options = None if ctx.asked[2] else []
    return None, None, of_options, made_of, picked, slopes, others, None, None


def _slope(
    name: str,
    number: int,
    options: Sizes,
    tensors: Sequence[Tensor],
    rows: Sequence[Tensor],
    potentials: Sequence[Tensor],
    about: Sequence[Tensor],
    grad: Tensor,
    some: Sizes,
) -> list[Tensor]:
    """Gradients of some of the potentials."""
    # PyTorch calls an op with autograd switched off
    with torch._C._ForceDispatchKeyGuard(*_OUTSIDE), torch.enable_grad():
        free = [x.detach().requires_grad_(i in some) for i, x in enumerate(potentials)]
        structure = _structure(number, tensors, rows, free)
        value = _call(structure, name, options, about)
        wanted = [free[i] for i in some]
        found = torch.autograd.grad(
            value, wanted, grad, allow_unused=True, materialize_grads=True
        )
    return [x.contiguous() for x in found]


def _slope_shapes(*given: Any) -> list[Tensor]:
    potentials, some = given[5], given[-1]
    return [
        torch.empty_like(potentials[i], memory_format=torch.contiguous_format)
        for i in some
    ]


_STRUCTURE = (
    "str question, int number, SymInt[] options, Tensor[] tensors, Tensor[] rows, "
    "Tensor[] potentials, Tensor[] about"
)
# copies to the CPU and back do not belong into CUDA graphs
_tags = (torch.Tag.cudagraph_unsafe,) if hasattr(torch.Tag, "cudagraph_unsafe") else ()
ask_structure = torch.library.custom_op(
    "smoothsp::ask_structure",
    _answer,
    mutates_args=(),
    schema=f"({_STRUCTURE}, SymInt[] shapes, int[] kinds) -> Tensor[]",
    tags=_tags,
)
ask_structure.register_fake(_shapes)
ask_structure.register_autograd(_gradient, setup_context=_save)
ask_slope = torch.library.custom_op(
    "smoothsp::ask_slope",
    _slope,
    mutates_args=(),
    schema=f"({_STRUCTURE}, Tensor grad, int[] some) -> Tensor[]",
    tags=_tags,
)
ask_slope.register_fake(_slope_shapes)
