r"""First-order models of networks around their current parameters.

.. math:: \theta(w) + J(w) \, d

with the displacement d as parameters: the model is affine in d for any network.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _pytree as pytree

from smoothsp.optim import _forward_mode
from smoothsp.optim._evaluation import RandomState
from smoothsp.optim._forward_mode import forward_ad

_PLAIN = None | bool | int | float | str


class Linearised(nn.Module):
    r"""First-order model of a module: :math:`\theta(w) + J(w) (u - u_0)`.

    The forward pass is one Jacobian-vector product and the backward pass one
    vector-Jacobian product, at the module's parameters w. The parameters u start at
    u_0, which is 0 by default, and any optimizer can train them. A loss that is convex
    in the outputs is convex in u.

    Parameters
    ----------
    model
        Any module that returns tensors, or tuples, lists and dicts of them. Keep its
        parameters fixed while you train u. It is not registered as a submodule: call
        ``to()``, ``train()`` and ``eval()`` on it yourself.
    params
        Parameters to linearise; by default all that require gradients. The other
        parameters are constants.

    Attributes
    ----------
    variables
        The parameters u, one for each of ``params``.
    exact
        True: return the outputs of the module itself, detached.

    Raises
    ------
    TypeError
        If the module returns anything other than tensors.
    RuntimeError
        If an operation lacks the derivative needed; the message names the submodule.

    Notes
    -----
    A forward pass carries the tangent (dual numbers) and costs about 2 ordinary passes.
    If an operation has no forward-mode derivative, two reverse passes compute the
    product at a cost of about 4 passes. Recurrent layers run without oneDNN and cuDNN,
    and attention in plain operations, since those implementations have forward-mode
    derivatives. Inputs get no gradient.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.optim import Linearised
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ELU())
    >>> x = torch.ones(2, 3)
    >>> linear = Linearised(model)
    >>> torch.equal(linear(x), model(x))  # no displacement yet
    True
    >>> linear(x).sum().backward()
    >>> model(x).sum().backward()
    >>> torch.allclose(linear.variables[0].grad, model[0].weight.grad)
    True
    """

    def __init__(
        self, model: nn.Module, params: Sequence[Tensor] | None = None
    ) -> None:
        super().__init__()
        if isinstance(model, DistributedDataParallel):
            model = model.module
        chosen = None if params is None else {id(p) for p in params}
        found = {
            name: p
            for name, p in model.named_parameters()
            if (p.requires_grad if chosen is None else id(p) in chosen)
        }
        if chosen is not None and len(found) < len(chosen):
            raise ValueError(
                "params: expected parameters of the model, got "
                f"{len(chosen) - len(found)} that it does not have"
            )
        if not found:
            raise ValueError("model: expected parameters that require grad, got none")
        # in a list, for it is no submodule of this one
        self._model = [model]
        self.names = list(found)
        self.origin = list(found.values())
        self.variables = nn.ParameterList(
            nn.Parameter(torch.zeros_like(p)) for p in self.origin
        )
        self.start: list[Tensor] | None = None
        self.exact = False
        self._reverse_only = False

    @property
    def network(self) -> nn.Module:
        """The module that is linearised."""
        return self._model[0]

    @torch.no_grad()
    def restart(self, start: list[Tensor] | None = None) -> None:
        """Set ``u = u_0``, the point without displacement; zero if None."""
        self.start = start
        for place, (u, p) in enumerate(zip(self.variables, self.origin, strict=True)):
            if u.dtype != p.dtype or u.device != p.device:
                # the module was moved
                u.data, u.grad = torch.empty_like(p), None
            if start is None:
                u.zero_()
            else:
                u.copy_(start[place])

    @torch.no_grad()
    def displacement(self) -> list[Tensor]:
        """``u - u_0``, detached."""
        if self.start is None:
            return [u.detach().clone() for u in self.variables]
        return [u - u_0 for u, u_0 in zip(self.variables, self.start, strict=True)]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Outputs of the module, to first order in ``u - u_0``."""
        model = self.network
        if not self.exact:
            return self._linear(model, args, kwargs)
        with torch.no_grad():
            flat, spec = _flatten(model(*args, **kwargs))
        # leaves, so that a closure can still call backward()
        detached = [leaf.detach() if _is_float(leaf) else leaf for leaf in flat]
        for leaf in detached:
            if _is_float(leaf):
                leaf.requires_grad_(torch.is_grad_enabled())
        return pytree.tree_unflatten(detached, spec)

    def _linear(self, model: nn.Module, args: Any, kwargs: Any) -> Any:
        graph = torch.is_grad_enabled()
        leaves = [p.detach().requires_grad_(graph) for p in self.origin]
        direction = self.displacement()
        tangents: Sequence[Tensor | None]
        random = RandomState(self.origin)
        failure: RuntimeError | None = None
        if not self._reverse_only:
            try:
                flat, spec, tangents = self._forward_mode(
                    model, args, kwargs, leaves, direction
                )
            except RuntimeError as found:
                failure = found
                random.restore()
        if self._reverse_only or failure is not None:
            leaves = [p.detach().requires_grad_() for p in self.origin]
            with torch.enable_grad(), _forward_mode.switches(model):
                flat, spec = self._call(model, leaves, args, kwargs)
            floats = [leaf for leaf in flat if _is_float(leaf)]
            try:
                if failure is not None:
                    if not _forward_mode.reverse_passes_agree(floats, leaves):
                        raise failure
                    self._reverse_only = True
                tangents = _forward_mode.by_two_reverse_passes(
                    floats, leaves, direction
                )
            except RuntimeError as found:
                raise self._blame(model, args, kwargs, failure or found) from found
        outputs = [leaf for leaf in flat if _is_float(leaf)]
        values = tuple(
            theta.detach() if tangent is None else theta.detach() + tangent.detach()
            for theta, tangent in zip(outputs, tangents, strict=True)
        )
        if graph:
            values = _Adjoint.apply(values, outputs, leaves, *self.variables)
        moved = iter(values)
        merged = [next(moved) if _is_float(leaf) else leaf for leaf in flat]
        return pytree.tree_unflatten(merged, spec)

    def _forward_mode(
        self,
        model: nn.Module,
        args: Any,
        kwargs: Any,
        leaves: list[Tensor],
        direction: list[Tensor],
    ) -> tuple[list[Any], Any, Sequence[Tensor | None]]:
        _forward_mode.load()
        with _forward_mode.switches(model), forward_ad.dual_level():
            duals = [
                forward_ad.make_dual(leaf, d)
                for leaf, d in zip(leaves, direction, strict=True)
            ]
            flat, spec = self._call(model, duals, args, kwargs)
            pairs = [forward_ad.unpack_dual(x) for x in flat if _is_float(x)]
        primals = iter([primal for primal, _ in pairs])
        flat = [next(primals) if _is_float(leaf) else leaf for leaf in flat]
        return flat, spec, [tangent for _, tangent in pairs]

    def _call(
        self, model: nn.Module, params: list[Tensor], args: Any, kwargs: Any
    ) -> tuple[list[Any], Any]:
        named = dict(zip(self.names, params, strict=True))
        return _flatten(functional_call(model, named, args, kwargs))

    def _blame(
        self, model: nn.Module, args: Any, kwargs: Any, failure: RuntimeError
    ) -> RuntimeError:
        def again() -> None:
            leaves = [p.detach().requires_grad_() for p in self.origin]
            zeros = [torch.zeros_like(p) for p in self.origin]
            self._forward_mode(model, args, kwargs, leaves, zeros)

        who, what = _forward_mode.culprit(model, again), str(failure).splitlines()[0]
        return RuntimeError(
            "Linearised: expected operations with a forward-mode derivative or a "
            f"second one in reverse mode, got one with neither in {who}: {what}; "
            "replace that module, or freeze its parameters and what comes before it"
        )


class _Adjoint(torch.autograd.Function):
    """The values, with the adjoint of the Jacobian as their gradient in u."""

    @staticmethod
    def forward(
        ctx: Any,
        values: tuple[Tensor, ...],
        outputs: list[Tensor],
        leaves: list[Tensor],
        *variables: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.outputs, ctx.leaves = outputs, leaves
        ctx.set_materialize_grads(False)
        return values

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        pairs = [
            (theta, c)
            for theta, c in zip(ctx.outputs, cotangents, strict=True)
            if c is not None and theta.requires_grad
        ]
        if not pairs:
            return (None, None, None, *(None for _ in ctx.leaves))
        pulled = torch.autograd.grad(
            [theta for theta, _ in pairs],
            ctx.leaves,
            [c for _, c in pairs],
            retain_graph=True,
            allow_unused=True,
        )
        return (None, None, None, *pulled)


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def _flatten(outputs: Any) -> tuple[list[Any], Any]:
    flat, spec = pytree.tree_flatten(outputs)
    for leaf in flat:
        if not isinstance(leaf, Tensor | _PLAIN):
            raise TypeError(
                "model: expected it to return tensors, or tuples, lists and dicts of "
                f"them, got a {type(leaf).__name__}; build it from the tensors in the "
                "closure"
            )
    return flat, spec
