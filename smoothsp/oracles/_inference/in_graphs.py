"""Structures inside graphs of ``torch.compile``: each method call is one op.

A graph holds no structure, but the call of its constructor (class and arguments) and
its potentials. When the graph runs, the op rebuilds the structure and calls the method.
Values are therefore checked as in eager mode. While a graph is traced, constructors
compute potentials and shapes only. Chains use ``op.graph_op``, which takes potentials
instead of a recorded call.
"""

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from smoothsp.oracles._inference.tracing import is_compiling

# Dispatch keys outside of all ops, restored inside ours: structures call autograd.
_OUTER_DISPATCH_KEYS = (
    torch._C._dispatch_tls_local_include_set(),
    torch._C._dispatch_tls_local_exclude_set(),
)
Ints = list[int]
# A result's dtype (that of the potentials, int64 or bool) and its shape.
FLOAT, INT, BOOL = range(3)
ResultSpec = tuple[int, Ints]
Function = TypeVar("Function", bound=Callable[..., Any])


def compile_time_constant(function: Function) -> Function:
    """Mark a function whose result the compiler keeps as a constant."""
    # torch.compiler.assume_constant_result would import the whole compiler
    vars(function)["_dynamo_marked_constant"] = True
    return function


# Recorded calls ---------------------------------------------------------------------


class RecordedCall(NamedTuple):
    """Call of a constructor, recorded in a graph.

    Attributes
    ----------
    call_index
        Index in ``_RECORDED_CALLS``.
    tensors
        The tensors among the arguments.
    rows
        Index of the rows that ``select`` picked; empty for all rows.
    """

    call_index: int
    tensors: tuple[Tensor, ...]
    rows: tuple[Tensor, ...] = ()

    def select(self, rows: Tensor) -> "RecordedCall":
        """Return the recorded call with an index of rows."""
        picked = self.rows[0][rows] if self.rows else rows
        return RecordedCall(self.call_index, self.tensors, (picked,))


class ConstantArgument:
    """Immutable argument of constructors that a graph keeps by identity."""

    @compile_time_constant
    def _register(self) -> int:
        if not any(x is self for x in _CONSTANT_ARGUMENTS):
            _CONSTANT_ARGUMENTS.append(self)
        return next(i for i, x in enumerate(_CONSTANT_ARGUMENTS) if x is self)


# Function, number of positional arguments, and all arguments by name. An argument is
# encoded as the name of a kind and a value of this kind.
EncodedArgument = tuple[str, Any]
CallEntry = tuple[Callable[..., Any], int, tuple[tuple[str, EncodedArgument], ...]]
# Ops take integers and tensors only: graphs refer to these entries by index.
_RECORDED_CALLS: list[CallEntry] = []
_CONSTANT_ARGUMENTS: list[ConstantArgument] = []


@compile_time_constant
def _call_index(
    function: Callable[..., Any], unnamed: int, arguments: tuple[Any, ...]
) -> int:
    entry = function, unnamed, arguments
    if entry not in _RECORDED_CALLS:
        _RECORDED_CALLS.append(entry)
    return _RECORDED_CALLS.index(entry)


def record_call(
    function: Callable[..., Any],
    args: Sequence[Any],
    options: Mapping[str, Any] = MappingProxyType({}),
) -> RecordedCall:
    """Record ``function(*args, **options)``, with its tensors detached."""
    tensors: list[Tensor] = []
    arguments = []
    for name, x in (*((str(i), x) for i, x in enumerate(args)), *options.items()):
        arguments.append((name, _encode_argument(x, tensors)))
    return RecordedCall(
        _call_index(function, len(args), tuple(arguments)), tuple(tensors)
    )


def _encode_argument(x: Any, tensors: list[Tensor]) -> EncodedArgument:
    if isinstance(x, Tensor):
        tensors.append(x.detach())
        return "tensor", None
    if isinstance(x, tuple | list):
        return "tuple", tuple(_encode_argument(y, tensors) for y in x)
    if isinstance(x, ConstantArgument):
        # makes Dynamo guard on the identity of this object
        id(x)
        return "object", x._register()
    if isinstance(x, bool) or not isinstance(x, int):
        return "constant", x
    # specialises a symbolic size to its value
    return "constant", operator.index(x)


def _decode_argument(encoded: EncodedArgument, tensors: Iterator[Tensor]) -> Any:
    kind, x = encoded
    if kind == "tensor":
        return next(tensors)
    if kind == "tuple":
        return tuple(_decode_argument(y, tensors) for y in x)
    return _CONSTANT_ARGUMENTS[x] if kind == "object" else x


def _replay_call(index: int, tensors: Sequence[Tensor], *first_arguments: Any) -> Any:
    """Repeat a recorded call, with ``first_arguments`` before the recorded ones."""
    function, unnamed, arguments = _RECORDED_CALLS[index]
    remaining = iter(tensors)
    values = [
        (name, _decode_argument(encoded, remaining)) for name, encoded in arguments
    ]
    args = [x for _, x in values[:unnamed]]
    return function(*first_arguments, *args, **dict(values[unnamed:]))


# Wrappers of constructors and methods -----------------------------------------------


def record_constructor(make: Callable[..., None]) -> Callable[..., None]:
    """Wrap a constructor: while traced, the structure records its call."""

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **options: Any) -> None:
        # the outermost constructor records itself, not those of its base classes
        if is_compiling() and "_constructor_call" not in self.__dict__:
            self.__dict__["_constructor_call"] = record_call(type(self), args, options)
        make(self, *args, **options)

    return __init__


def as_graph_op(method: Any) -> Any:
    """Wrap a method or property: while traced, a call is one op."""
    if isinstance(method, property):
        return property(as_graph_op(method.fget))
    name = method.__name__

    @functools.wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        if is_compiling() and not self._traces_methods:
            return _METHODS[name](self, *args, **options)
        return method(self, *args, **options)

    return call


def call_as_graph_op(
    structure: Any,
    function: Callable[..., Any],
    args: Sequence[Any],
    *result_specs: Callable[[Any], ResultSpec],
    has_no_gradient: bool = False,
) -> Any:
    """Return ``function(structure, *args)``; while traced, as one op.

    For functions that read values, which a traced tensor does not have.

    Parameters
    ----------
    structure, function, args
        The function returns a tensor or a tuple of tensors. Only the first has a
        gradient in the potentials.
    result_specs
        Functions from the structure to the dtype and shape of each tensor.
    has_no_gradient
        Whether no result has a gradient.
    """
    if not is_compiling() or not hasattr(structure, "_graph_tensors"):
        return function(structure, *args)
    call = record_call(function, args)
    name = _CONSTANT if has_no_gradient else _FUNCTION
    expected = [result_spec(structure) for result_spec in result_specs]
    results = _call_structure_op(
        structure, name, [call.call_index], call.tensors, expected
    )
    return results[0] if len(results) == 1 else tuple(results)


def cost_result(structure: Any) -> ResultSpec:
    """Specification of a result in the shape of a cost."""
    return FLOAT, list(structure._first_potentials.shape)


def float_per_row(structure: Any) -> ResultSpec:
    """Specification of a result with a number for each row."""
    return FLOAT, _batch_shape(structure)


def bool_per_row(structure: Any) -> ResultSpec:
    """Specification of a result with a bool for each row."""
    return BOOL, _batch_shape(structure)


# Methods while traced: calls of the op with the shapes of their results -------------


def _make_output_method(name: str) -> Callable[[Any, Tensor], Tensor]:
    def call(structure: Any, y: Tensor) -> Tensor:
        rows = _batch_shape(structure)
        has_k = y.dim() > 1 + len(structure.shape)
        shape = [*rows, y.shape[1]] if has_k else rows
        return _call_structure_op(structure, name, [], [y], [(FLOAT, shape)])[0]

    return call


def _make_row_method(name: str) -> Callable[..., Tensor]:
    def call(structure: Any, *arguments: Tensor) -> Tensor:
        return _call_structure_op(
            structure, name, [], arguments, [(FLOAT, _batch_shape(structure))]
        )[0]

    return call


def _decode(structure: Any) -> tuple[Tensor, Tensor]:
    rows = _batch_shape(structure)
    specs = [(FLOAT, rows), (structure._output_dtype, [*rows, *structure.shape])]
    value, y = _call_structure_op(structure, "decode", [], [], specs)
    return value, y


def _decode_topk(structure: Any, k: int) -> tuple[Tensor, Tensor, Tensor]:
    rows = [*_batch_shape(structure), k]
    specs = [(FLOAT, rows), (INT, [*rows, *structure.shape]), (BOOL, rows)]
    values, ys, valid = _call_structure_op(structure, "decode_topk", [k], [], specs)
    return values, ys, valid


def _make_part_method(method: str) -> Callable[..., Tensor]:
    def call(structure: Any, name: str | None = None) -> Tensor:
        potentials = structure._named_potentials()
        names = list(potentials)
        if name is not None and name not in names:
            raise ValueError(f"name: expected one of {names}, got {name!r}")
        options = [] if name is None else [names.index(name)]
        name = name or names[0]
        shape = list(potentials[name].shape)
        if name not in structure._row_potentials:
            shape = [*_batch_shape(structure), *shape]
        return _call_structure_op(structure, method, options, [], [(FLOAT, shape)])[0]

    return call


def _hamming(structure: Any, y: Tensor) -> Tensor:
    specs = [(FLOAT, list(structure._first_potentials.shape))]
    return _call_structure_op(structure, "hamming", [], [y], specs)[0]


def _label_counts(structure: Any, y: Tensor) -> Tensor:
    specs = [(FLOAT, [*_batch_shape(structure), structure._label_counts_width])]
    return _call_structure_op(structure, "label_counts", [], [y], specs)[0]


def _lengths(structure: Any) -> Tensor:
    return _call_structure_op(
        structure, "lengths", [], [], [(INT, _batch_shape(structure))]
    )[0]


def _output_shapes(structure: Any) -> Tensor:
    specs = [(INT, [*_batch_shape(structure), len(structure.shape)])]
    return _call_structure_op(structure, "output_shapes", [], [], specs)[0]


def _sample(
    structure: Any, n: int, generator: None = None, *, replace: bool = True
) -> Tensor:
    if generator is not None:
        raise TypeError(
            "generator: expected None inside torch.compile, where torch.manual_seed "
            "sets what is drawn"
        )
    specs = [(INT, [*_batch_shape(structure), n, *structure.shape])]
    return _call_structure_op(structure, "sample", [n, int(replace)], [], specs)[0]


_FUNCTION, _CONSTANT = "function", "constant"
_METHODS: dict[str, Callable[..., Any]] = {
    "decode": _decode,
    "decode_topk": _decode_topk,
    "hamming": _hamming,
    "label_counts": _label_counts,
    "lengths": _lengths,
    "output_shapes": _output_shapes,
    "sample": _sample,
    **{name: _make_output_method(name) for name in ("score", "log_prob")},
    **{
        name: _make_row_method(name)
        for name in ("log_partition", "entropy", "log_count", "log_prob_within")
    },
    "bound": _make_row_method("bound"),
    **{name: _make_part_method(name) for name in ("marginals", "max_marginals")},
}
METHOD_NAMES = tuple(_METHODS)
_NOT_DIFFERENTIABLE = (
    *("hamming", "label_counts", "lengths", "output_shapes", "sample"),
    *("max_marginals", "log_count", "bound", _CONSTANT),
)


def _batch_shape(structure: Any) -> Ints:
    return [structure._first_potentials.shape[0]]


def _call_structure_op(
    structure: Any,
    name: str,
    options: Ints,
    arguments: Sequence[Tensor],
    specs: Sequence[ResultSpec],
) -> list[Tensor]:
    call = structure.__dict__.get("_constructor_call")
    if call is None:
        raise TypeError(
            f"{type(structure).__name__}: expected a structure that is made inside the "
            "compiled function, got one from outside; pass it potentials instead"
        )
    potentials = structure._graph_tensors()
    if name in _NOT_DIFFERENTIABLE:
        potentials = [x.detach() for x in potentials]
    shapes: Ints = []
    for _, shape in specs:
        shapes = [*shapes, len(shape), *shape]
    results: list[Tensor] = structure_op(
        name,
        call.call_index,
        options,
        list(call.tensors),
        list(call.rows),
        potentials,
        list(arguments),
        shapes,
        [kind for kind, _ in specs],
    )
    return results


# The ops ----------------------------------------------------------------------------


def _rebuild_structure(
    number: int,
    tensors: Sequence[Tensor],
    rows: Sequence[Tensor],
    potentials: Sequence[Tensor],
) -> Any:
    """Rebuild a structure from its recorded call, with the potentials of the graph."""
    structure = _replay_call(number, tensors)
    if rows:
        structure = structure.select(rows[0])
    graph_tensors = structure._graph_tensors()
    # the recorded tensors are detached: gradients need the potentials of the graph
    if any(x.requires_grad for x in potentials) or any(
        left.data_ptr() != right.data_ptr()
        for left, right in zip(graph_tensors, potentials, strict=True)
    ):
        structure = structure._with_graph_tensors(potentials)
        structure._require_valid(next(iter(structure._named_potentials())))
    return structure


def _call_method(
    structure: Any, name: str, options: Ints, arguments: Sequence[Tensor]
) -> Any:
    if name in (_FUNCTION, _CONSTANT):
        return _replay_call(options[0], arguments, structure)
    method = getattr(structure, name)
    if isinstance(method, Tensor):
        return method
    if name in ("marginals", "max_marginals"):
        names = list(structure._named_potentials())
        return method(*(names[i] for i in options))
    if name == "sample":
        # not every structure has the argument ``replace``
        options_without_replacement = {} if options[1] else {"replace": False}
        return method(options[0], **options_without_replacement)
    return method(*options, *arguments)


def _run_structure_op(
    name: str,
    number: int,
    options: Ints,
    tensors: Sequence[Tensor],
    rows: Sequence[Tensor],
    potentials: Sequence[Tensor],
    arguments: Sequence[Tensor],
    shapes: Ints,
    kinds: Ints,
) -> list[Tensor]:
    # PyTorch runs ops below autograd, but functions of structures differentiate inside
    with torch._C._ForceDispatchKeyGuard(*_OUTER_DISPATCH_KEYS), torch.no_grad():
        structure = _rebuild_structure(number, tensors, rows, potentials)
        result = _call_method(structure, name, options, arguments)
    results = result if isinstance(result, tuple) else (result,)
    return _clone_shared_memory(results, (*tensors, *rows, *potentials, *arguments))


def _clone_shared_memory(
    results: Sequence[Tensor], inputs: Sequence[Tensor]
) -> list[Tensor]:
    """Copy results that share memory with inputs or each other, as custom ops must."""
    used_storages = {x.untyped_storage().data_ptr() for x in inputs if x.numel()}
    copies = []
    for x in results:
        storage_ptr = x.untyped_storage().data_ptr()
        copies.append(x.clone() if storage_ptr in used_storages else x.contiguous())
        used_storages.add(storage_ptr)
    return copies


def _fake_results(
    name: str,
    number: int,
    options: Ints,
    tensors: Sequence[Tensor],
    rows: Sequence[Tensor],
    potentials: Sequence[Tensor],
    arguments: Sequence[Tensor],
    shapes: Ints,
    kinds: Ints,
) -> list[Tensor]:
    first_potentials, results, offset = potentials[0], [], 0
    for kind in kinds:
        num_axes = shapes[offset]
        shape = shapes[offset + 1 : offset + 1 + num_axes]
        dtype = (first_potentials.dtype, torch.int64, torch.bool)[kind]
        results.append(first_potentials.new_empty(shape, dtype=dtype))
        offset += 1 + num_axes
    return results


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    name, number, options, tensors, rows, potentials, arguments, *_ = inputs
    lists = tensors, rows, potentials, arguments
    ctx.arguments, ctx.lengths = (name, number, options), [len(x) for x in lists]
    ctx.save_for_backward(*tensors, *rows, *potentials, *arguments, *output[1:])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grads: list[Tensor | None]) -> tuple[Any, ...]:
    name, number, options = ctx.arguments
    saved, lists = list(ctx.saved_tensors), []
    for count in ctx.lengths:
        lists.append(saved[:count])
        saved = saved[count:]
    tensors, rows, potentials, arguments = lists
    indices = [i for i, want in enumerate(ctx.needs_input_grad[5]) if want]
    grads_out: list[Tensor | None] = [None] * len(potentials)
    grad = grads[0]
    if grad is not None and indices:
        # Danskin: the gradient of a maximum is that of the score at a maximiser
        if name == "decode":
            name, arguments = "score", saved
        elif name == "decode_topk":
            ys, valid = saved
            valid_outputs = valid.reshape(*valid.shape, *[1] * (ys.dim() - 2))
            name, options = "score", []
            arguments = [torch.where(valid_outputs, ys, ys[:, :1])]
            grad = grad.masked_fill(~valid, 0)
        call_args = name, number, options, tensors, rows, potentials, arguments
        for i, potential_grad in zip(
            indices, structure_grad_op(*call_args, grad, indices), strict=True
        ):
            grads_out[i] = potential_grad
    no_grads = ([None] * count for count in (*ctx.lengths[:2], ctx.lengths[3]))
    tensor_grads, row_grads, argument_grads = no_grads
    # for an empty list of integers PyTorch expects an empty list, not None
    option_grads: list[None] | None = None if ctx.arguments[2] else []
    return (
        None,
        None,
        option_grads,
        tensor_grads,
        row_grads,
        grads_out,
        argument_grads,
        None,
        None,
    )


def _run_grad_op(
    name: str,
    number: int,
    options: Ints,
    tensors: Sequence[Tensor],
    rows: Sequence[Tensor],
    potentials: Sequence[Tensor],
    arguments: Sequence[Tensor],
    grad: Tensor,
    indices: Ints,
) -> list[Tensor]:
    """Gradients of the potentials at ``indices``."""
    with torch._C._ForceDispatchKeyGuard(*_OUTER_DISPATCH_KEYS), torch.enable_grad():
        leaves = [
            x.detach().requires_grad_(i in indices) for i, x in enumerate(potentials)
        ]
        structure = _rebuild_structure(number, tensors, rows, leaves)
        value = _call_method(structure, name, options, arguments)
        value = value[0] if isinstance(value, tuple) else value
        inputs = [leaves[i] for i in indices]
        grads = torch.autograd.grad(
            value, inputs, grad, allow_unused=True, materialize_grads=True
        )
    return _clone_shared_memory(grads, (*tensors, *rows, *potentials, *arguments, grad))


def _fake_gradients(*args: Any) -> list[Tensor]:
    potentials, indices = args[5], args[-1]
    return [
        torch.empty_like(potentials[i], memory_format=torch.contiguous_format)
        for i in indices
    ]


_STRUCTURE = (
    "str question, int number, SymInt[] options, Tensor[] tensors, Tensor[] rows, "
    "Tensor[] potentials, Tensor[] about"
)
# a CUDA graph cannot capture copies to the CPU and back
_tags = (torch.Tag.cudagraph_unsafe,) if hasattr(torch.Tag, "cudagraph_unsafe") else ()
structure_op = torch.library.custom_op(
    "smoothsp::ask_structure",
    _run_structure_op,
    mutates_args=(),
    schema=f"({_STRUCTURE}, SymInt[] shapes, int[] kinds) -> Tensor[]",
    tags=_tags,
)
structure_op.register_fake(_fake_results)
structure_op.register_autograd(_backward, setup_context=_setup_context)
structure_grad_op = torch.library.custom_op(
    "smoothsp::ask_slope",
    _run_grad_op,
    mutates_args=(),
    schema=f"({_STRUCTURE}, Tensor grad, int[] some) -> Tensor[]",
    tags=_tags,
)
structure_grad_op.register_fake(_fake_gradients)
