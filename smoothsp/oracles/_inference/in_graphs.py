"""Structures inside graphs of ``torch.compile``: a question is one op.

A graph holds no structure. It keeps what a structure was made of: its class, its
arguments, and its potentials. The op makes the structure again when the graph runs, and
asks it; so all that is true of a structure holds in a graph, the checks of values too.
While a graph is traced, constructors compute potentials and shapes only.
Chains have finer ops, ``op.ask``.
"""

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from smoothsp.oracles._inference.tracing import is_compiling

# What PyTorch includes and excludes in calls outside of all ops.
_OUTSIDE = (
    torch._C._dispatch_tls_local_include_set(),
    torch._C._dispatch_tls_local_exclude_set(),
)
Sizes = list[int]
# Of an answer: the dtype of the potentials, int64 or bool, and its shape.
FLOAT, INT, BOOL = range(3)
ResultSpec = tuple[int, Sizes]
Function = TypeVar("Function", bound=Callable[..., Any])


def compile_time_constant(function: Function) -> Function:
    """Have the compiler call a function, and keep the result as a constant."""
    # torch.compiler.assume_constant_result would import the whole compiler
    vars(function)["_dynamo_marked_constant"] = True
    return function


# What a graph keeps of a structure --------------------------------------------------


class RecordedCall(NamedTuple):
    """Class and arguments of a structure, in a graph.

    Attributes
    ----------
    number
        Of the call that made it, ``_calls``.
    tensors
        Those among the arguments.
    rows
        Which rows of the result the structure has; all if empty.
    """

    number: int
    tensors: tuple[Tensor, ...]
    rows: tuple[Tensor, ...] = ()

    def select(self, rows: Tensor) -> "RecordedCall":
        """The recipe of some of the rows."""
        picked = self.rows[0][rows] if self.rows else rows
        return RecordedCall(self.number, self.tensors, (picked,))


class ConstantArgument:
    """An immutable argument of constructors that a graph keeps as an object."""

    @compile_time_constant
    def _number(self) -> int:
        if not any(x is self for x in _objects):
            _objects.append(self)
        return next(i for i, x in enumerate(_objects) if x is self)


# A function, how many of its arguments have no name, and all arguments by name. An
# argument is the name of a kind, and a value of this kind.
EncodedArgument = tuple[str, Any]
Call = tuple[Callable[..., Any], int, tuple[tuple[str, EncodedArgument], ...]]
# What numbers in graphs stand for.
_calls: list[Call] = []
_objects: list[ConstantArgument] = []


@compile_time_constant
def _number_of(
    function: Callable[..., Any], unnamed: int, arguments: tuple[Any, ...]
) -> int:
    entry = function, unnamed, arguments
    if entry not in _calls:
        _calls.append(entry)
    return _calls.index(entry)


def record_call(
    function: Callable[..., Any],
    args: Sequence[Any],
    options: Mapping[str, Any] = MappingProxyType({}),
) -> RecordedCall:
    """The recipe of what ``function(*args, **options)`` returns."""
    tensors: list[Tensor] = []
    arguments = []
    for name, x in (*((str(i), x) for i, x in enumerate(args)), *options.items()):
        arguments.append((name, _kept(x, tensors)))
    return RecordedCall(
        _number_of(function, len(args), tuple(arguments)), tuple(tensors)
    )


def _kept(x: Any, tensors: list[Tensor]) -> EncodedArgument:
    if isinstance(x, Tensor):
        tensors.append(x.detach())
        return "tensor", None
    if isinstance(x, tuple | list):
        return "tuple", tuple(_kept(y, tensors) for y in x)
    if isinstance(x, ConstantArgument):
        # Dynamo then takes the graph for this object only
        id(x)
        return "object", x._number()
    if isinstance(x, bool) or not isinstance(x, int):
        return "constant", x
    # a size that a compiler leaves open is one number from here on
    return "constant", operator.index(x)


def _value(kept: EncodedArgument, given: Iterator[Tensor]) -> Any:
    kind, x = kept
    if kind == "tensor":
        return next(given)
    if kind == "tuple":
        return tuple(_value(y, given) for y in x)
    return _objects[x] if kind == "object" else x


def _called(number: int, tensors: Sequence[Tensor], *first: Any) -> Any:
    """Result of a call, with further first arguments."""
    function, unnamed, arguments = _calls[number]
    given = iter(tensors)
    values = [(name, _value(kept, given)) for name, kept in arguments]
    args = [x for _, x in values[:unnamed]]
    return function(*first, *args, **dict(values[unnamed:]))


# Constructors and questions ---------------------------------------------------------


def record_constructor(make: Callable[..., None]) -> Callable[..., None]:
    """Wrap a constructor: in a graph the structure keeps its recipe."""

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **options: Any) -> None:
        if is_compiling() and "_constructor_call" not in self.__dict__:
            self.__dict__["_constructor_call"] = record_call(type(self), args, options)
        make(self, *args, **options)

    return __init__


def as_graph_op(question: Any) -> Any:
    """Wrap a method or property: in a graph it is an op."""
    if isinstance(question, property):
        return property(as_graph_op(question.fget))
    name = question.__name__

    @functools.wraps(question)
    def ask(self: Any, *args: Any, **options: Any) -> Any:
        if is_compiling() and not self._traces_methods:
            return _QUESTIONS[name](self, *args, **options)
        return question(self, *args, **options)

    return ask


def call_as_graph_op(
    structure: Any,
    function: Callable[..., Any],
    args: Sequence[Any],
    *answers: Callable[[Any], ResultSpec],
    constant: bool = False,
) -> Any:
    """Result of ``function(structure, *args)``, which needs values: in a graph an op.

    Parameters
    ----------
    structure, function, args
        The function returns a tensor or a tuple of tensors, of which the first has a
        gradient in the potentials.
    answers
        Functions of the structure to the dtype and shape of each tensor.
    constant
        Whether no tensor has a gradient.
    """
    if not is_compiling() or not hasattr(structure, "_graph_tensors"):
        return function(structure, *args)
    call = record_call(function, args)
    name = _CONSTANT if constant else _FUNCTION
    expected = [answer(structure) for answer in answers]
    found = _ask(structure, name, [call.number], call.tensors, expected)
    return found[0] if len(found) == 1 else tuple(found)


def cost_result(structure: Any) -> ResultSpec:
    """An answer of the shape of a cost."""
    return FLOAT, list(structure._first_potentials.shape)


def float_per_row(structure: Any) -> ResultSpec:
    """An answer of a number for each row."""
    return FLOAT, _rows(structure)


def bool_per_row(structure: Any) -> ResultSpec:
    """An answer of a bool for each row."""
    return BOOL, _rows(structure)


# Questions in a graph: the shapes of their answers ----------------------------------


def _of_outputs(name: str) -> Callable[[Any, Tensor], Tensor]:
    def ask(structure: Any, y: Tensor) -> Tensor:
        rows = _rows(structure)
        many = y.dim() > 1 + len(structure.shape)
        shape = [*rows, y.shape[1]] if many else rows
        return _ask(structure, name, [], [y], [(FLOAT, shape)])[0]

    return ask


def _of_rows(name: str) -> Callable[..., Tensor]:
    def ask(structure: Any, *about: Tensor) -> Tensor:
        return _ask(structure, name, [], about, [(FLOAT, _rows(structure))])[0]

    return ask


def _decode(structure: Any) -> tuple[Tensor, Tensor]:
    rows = _rows(structure)
    answer = [(FLOAT, rows), (structure._output_dtype, [*rows, *structure.shape])]
    value, y = _ask(structure, "decode", [], [], answer)
    return value, y


def _decode_topk(structure: Any, k: int) -> tuple[Tensor, Tensor, Tensor]:
    rows = [*_rows(structure), k]
    answer = [(FLOAT, rows), (INT, [*rows, *structure.shape]), (BOOL, rows)]
    values, ys, valid = _ask(structure, "decode_topk", [k], [], answer)
    return values, ys, valid


def _of_parts(method: str) -> Callable[..., Tensor]:
    def ask(structure: Any, name: str | None = None) -> Tensor:
        potentials = structure._named_potentials()
        names = list(potentials)
        if name is not None and name not in names:
            raise ValueError(f"name: expected one of {names}, got {name!r}")
        options = [] if name is None else [names.index(name)]
        name = name or names[0]
        shape = list(potentials[name].shape)
        if name not in structure._row_potentials:
            shape = [*_rows(structure), *shape]
        return _ask(structure, method, options, [], [(FLOAT, shape)])[0]

    return ask


def _hamming(structure: Any, y: Tensor) -> Tensor:
    answer = [(FLOAT, list(structure._first_potentials.shape))]
    return _ask(structure, "hamming", [], [y], answer)[0]


def _label_counts(structure: Any, y: Tensor) -> Tensor:
    answer = [(FLOAT, [*_rows(structure), structure._num_labels])]
    return _ask(structure, "label_counts", [], [y], answer)[0]


def _lengths(structure: Any) -> Tensor:
    return _ask(structure, "lengths", [], [], [(INT, _rows(structure))])[0]


def _output_shapes(structure: Any) -> Tensor:
    answer = [(INT, [*_rows(structure), len(structure.shape)])]
    return _ask(structure, "output_shapes", [], [], answer)[0]


def _sample(
    structure: Any, n: int, generator: None = None, *, replace: bool = True
) -> Tensor:
    if generator is not None:
        raise TypeError(
            "generator: expected None inside torch.compile, where torch.manual_seed "
            "sets what is drawn"
        )
    answer = [(INT, [*_rows(structure), n, *structure.shape])]
    return _ask(structure, "sample", [n, int(replace)], [], answer)[0]


_FUNCTION, _CONSTANT = "function", "constant"
_QUESTIONS: dict[str, Callable[..., Any]] = {
    "decode": _decode,
    "decode_topk": _decode_topk,
    "hamming": _hamming,
    "label_counts": _label_counts,
    "lengths": _lengths,
    "output_shapes": _output_shapes,
    "sample": _sample,
    **{name: _of_outputs(name) for name in ("score", "log_prob")},
    **{
        name: _of_rows(name)
        for name in ("log_partition", "entropy", "log_count", "log_prob_within")
    },
    "bound": _of_rows("bound"),
    **{name: _of_parts(name) for name in ("marginals", "max_marginals")},
}
METHOD_NAMES = tuple(_QUESTIONS)
_NO_GRADIENT = (
    *("hamming", "label_counts", "lengths", "output_shapes", "sample"),
    *("max_marginals", "log_count", "bound", _CONSTANT),
)


def _rows(structure: Any) -> Sizes:
    return [structure._first_potentials.shape[0]]


def _ask(
    structure: Any,
    name: str,
    options: Sizes,
    about: Sequence[Tensor],
    answer: Sequence[ResultSpec],
) -> list[Tensor]:
    made_of = structure.__dict__.get("_constructor_call")
    if made_of is None:
        raise TypeError(
            f"{type(structure).__name__}: expected a structure that is made inside the "
            "compiled function, got one from outside; pass it potentials instead"
        )
    potentials = structure._graph_tensors()
    if name in _NO_GRADIENT:
        potentials = [x.detach() for x in potentials]
    shapes: Sizes = []
    for _, shape in answer:
        shapes = [*shapes, len(shape), *shape]
    found: list[Tensor] = structure_op(
        name,
        made_of.number,
        options,
        list(made_of.tensors),
        list(made_of.rows),
        potentials,
        list(about),
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
    made = _called(number, tensors)
    if rows:
        made = made.select(rows[0])
    held = made._graph_tensors()
    if any(x.requires_grad for x in potentials) or any(
        one.data_ptr() != two.data_ptr()
        for one, two in zip(held, potentials, strict=True)
    ):
        made = made._with_graph_tensors(potentials)
        made._require_valid(next(iter(made._named_potentials())))
    return made


def _call(structure: Any, name: str, options: Sizes, about: Sequence[Tensor]) -> Any:
    if name in (_FUNCTION, _CONSTANT):
        return _called(options[0], about, structure)
    method = getattr(structure, name)
    if isinstance(method, Tensor):
        return method
    if name in ("marginals", "max_marginals"):
        names = list(structure._named_potentials())
        return method(*(names[i] for i in options))
    if name == "sample":
        # not all structures have an argument for it
        distinct = {} if options[1] else {"replace": False}
        return method(options[0], **distinct)
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
    # PyTorch calls an op with autograd switched off, for what is inside it, too
    with torch._C._ForceDispatchKeyGuard(*_OUTSIDE), torch.no_grad():
        structure = _structure(number, tensors, rows, potentials)
        found = _call(structure, name, options, about)
    listed = found if isinstance(found, tuple) else (found,)
    return _with_own_memory(listed, (*tensors, *rows, *potentials, *about))


def _with_own_memory(found: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
    """Answers that share memory neither with what was given nor with each other."""
    taken = {x.untyped_storage().data_ptr() for x in given if x.numel()}
    own = []
    for x in found:
        place = x.untyped_storage().data_ptr()
        own.append(x.clone() if place in taken else x.contiguous())
        taken.add(place)
    return own


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
        for i, slope in zip(some, structure_grad_op(*given, grad, some), strict=True):
            slopes[i] = slope
    nothing = ([None] * many for many in (*ctx.counts[:2], ctx.counts[3]))
    made_of, picked, others = nothing
    # PyTorch takes an empty list for one of tensors
    of_options: list[None] | None = None if ctx.asked[2] else []
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
    with torch._C._ForceDispatchKeyGuard(*_OUTSIDE), torch.enable_grad():
        free = [x.detach().requires_grad_(i in some) for i, x in enumerate(potentials)]
        structure = _structure(number, tensors, rows, free)
        value = _call(structure, name, options, about)
        value = value[0] if isinstance(value, tuple) else value
        wanted = [free[i] for i in some]
        found = torch.autograd.grad(
            value, wanted, grad, allow_unused=True, materialize_grads=True
        )
    return _with_own_memory(found, (*tensors, *rows, *potentials, *about, grad))


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
structure_op = torch.library.custom_op(
    "smoothsp::ask_structure",
    _answer,
    mutates_args=(),
    schema=f"({_STRUCTURE}, SymInt[] shapes, int[] kinds) -> Tensor[]",
    tags=_tags,
)
structure_op.register_fake(_shapes)
structure_op.register_autograd(_gradient, setup_context=_save)
structure_grad_op = torch.library.custom_op(
    "smoothsp::ask_slope",
    _slope,
    mutates_args=(),
    schema=f"({_STRUCTURE}, Tensor grad, int[] some) -> Tensor[]",
    tags=_tags,
)
structure_grad_op.register_fake(_slope_shapes)
