"""Subroutines: functions called by kernels only, compiled to LLVM bitcode.

numba compiles each function to machine code, for calls from Python, and again inside
each kernel. A subroutine is compiled to LLVM bitcode only, which saves a quarter of the
time.

    njit         types -> LLVM -> optimised -> machine code, and wrappers for Python
    subroutine   types -> LLVM -> optimised (not with ``optimise=False``)

A kernel links the code of its subroutines into its own module, where LLVM optimises all
of it together and may inline it. Python cannot call a compiled subroutine. On disk it
is cached as bitcode: see ``kernel`` for the place of the cache and its key.
"""

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from numba import _dynfunc, njit
from numba.core import config, types
from numba.core.caching import CompileResultCacheImpl
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, compile_result
from numba.core.compiler_machinery import register_pass
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import NativeLowering

from smoothsp._kernels.compilation.cache import SourceHashCache


def subroutine(
    function: Callable[..., Any] | None = None,
    *,
    machine_code: bool = False,
    optimise: bool = True,
    **options: Any,
) -> Any:
    """Compile a function that only kernels call.

    ``machine_code``: also emit machine code; LLVM's passes on the way make some loops
    faster. ``optimise=False``: skip LLVM's passes before linking, for functions without
    hot loops. ``options`` are those of numba.njit.
    """
    if function is None:
        return functools.partial(
            subroutine, machine_code=machine_code, optimise=optimise, **options
        )
    options["error_model"] = "numpy"
    if machine_code:
        options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    else:
        options["pipeline_class"] = _Compiler if optimise else _UnoptimisedCompiler
    return function if config.DISABLE_JIT else Subroutine(function, options)


class Subroutine:
    """A function whose numba dispatcher is created when a kernel first calls it."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.py_func, self.options = function, options

    @functools.cached_property
    def dispatcher(self) -> Any:
        """The numba dispatcher, created on first use."""
        compiled = njit(**self.options)(self.py_func)
        compiled.__class__ = _Dispatcher
        if "pipeline_class" in self.options:
            compiled._cache = SubroutineCache(self.py_func)
        return compiled

    @property
    def _numba_type_(self) -> Any:
        return types.Dispatcher(self.dispatcher)

    def __call__(self, *arguments: Any) -> Any:
        return self.dispatcher(*arguments)


class _Dispatcher(CPUDispatcher):  # type: ignore[misc]
    """Dispatcher that compiles for types of numbers, never for literal values."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        args = [types.unliteral(argument) for argument in args]
        kws = {name: types.unliteral(argument) for name, argument in kws.items()}
        return super().get_call_template(args, kws)


class _Library(JITCodeLibrary):  # type: ignore[misc]
    """Bitcode of a subroutine and its callees, optimised but without machine code."""

    optimise = True

    def _optimize_final_module(self) -> None:
        if self.optimise:
            super()._optimize_final_module()

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def bitcode(self) -> bytes:
        code: bytes = self._get_module_for_linking().as_bitcode()
        return code

    def load_bitcode(self, bitcode: bytes) -> None:
        """Replace the content of the library by bitcode."""
        self._shared_module = self._final_module = llvm.parse_bitcode(bitcode)
        self._finalize_final_module()

    def make_entry_point(self, fndesc: Any, environment: Any) -> Any:
        """Return the object by which numba finds the subroutine; calling it raises."""
        name = fndesc.qualname.split(".")[-1]
        module = fndesc.lookup_module()
        doc = f"{name}: a subroutine of kernels"
        return _dynfunc.make_function(
            module, name, doc, _NOT_CALLABLE, environment, (self,)
        )


# Entry point for calls from Python: PyObject_Call of an object that is not callable
# raises TypeError.
_NOT_CALLABLE = ctypes.cast(ctypes.pythonapi.PyObject_Call, ctypes.c_void_p).value


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):  # type: ignore[misc]
    """Lowering of typed statements to LLVM code, without machine code."""

    _name = "lowering_of_subroutines"
    library_class = _Library

    def run_pass(self, state: Any) -> bool:
        flags = state.flags.copy()
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        state.flags = flags
        context = state.targetctx
        library = self.library_class(context.codegen(), state.func_id.func_qualname)
        state.library = library
        super().run_pass(state)
        library.finalize()
        name = library.make_entry_point(state.cr.fndesc, state.cr.env)
        context.insert_user_function(name, state.cr.fndesc, [library])
        state.cr = state.cr._replace(cfunc=name)
        return True


class _UnoptimisedLibrary(_Library):
    optimise = False


@register_pass(mutates_CFG=True, analysis_only=False)
class _UnoptimisedLowering(_Lowering):
    _name = "lowering_of_glue"
    library_class = _UnoptimisedLibrary


class _Compiler(CompilerBase):  # type: ignore[misc]
    lowering_class = _Lowering

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [
            (self.lowering_class if step is NativeLowering else step, why)
            for step, why in passes.passes
        ]
        passes.finalize()
        return [passes]


class _UnoptimisedCompiler(_Compiler):
    lowering_class = _UnoptimisedLowering


class BitcodeCacheImpl(CompileResultCacheImpl):  # type: ignore[misc]
    """Serialisation of a subroutine: bitcode, descriptor and signature."""

    def reduce(self, cres: Any) -> Any:
        cres.fndesc.typemap = cres.fndesc.calltypes = None
        library = cres.library
        return (
            library.name,
            library.bitcode(),
            cres.fndesc,
            cres.environment,
            cres.signature,
            cres.reload_init,
        )

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        name, bitcode, fndesc, environment, signature, reload_init = payload
        for reload in reload_init:
            reload()
        library = _Library(target_context.codegen(), name)
        library.load_bitcode(bitcode)
        return compile_result(
            target_context=target_context,
            typing_context=target_context.typing_context,
            library=library,
            environment=environment,
            entry_point=library.make_entry_point(fndesc, environment),
            fndesc=fndesc,
            signature=signature,
            objectmode=False,
            lifted=(),
            reload_init=reload_init,
        )


class SubroutineCache(SourceHashCache):
    _impl_class = BitcodeCacheImpl
    suffix = ".subroutine"  # a kernel may be one, too
