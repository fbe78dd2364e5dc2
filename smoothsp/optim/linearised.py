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

_CONSTANT_TYPES = None | bool | int | float | str


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
        selected_ids = None if params is None else {id(p) for p in params}
        linearised_params = {
            name: p
            for name, p in model.named_parameters()
            if (p.requires_grad if selected_ids is None else id(p) in selected_ids)
        }
        if selected_ids is not None and len(linearised_params) < len(selected_ids):
            raise ValueError(
                "params: expected parameters of the model, got "
                f"{len(selected_ids) - len(linearised_params)} that it does not have"
            )
        if not linearised_params:
            raise ValueError("model: expected parameters that require grad, got none")
        # In a list: an attribute would register the model as a submodule.
        self._model = [model]
        self.names = list(linearised_params)
        self.linearisation_point = list(linearised_params.values())
        self.variables = nn.ParameterList(
            nn.Parameter(torch.zeros_like(p)) for p in self.linearisation_point
        )
        self.start: list[Tensor] | None = None
        self.exact = False
        self._uses_double_backward = False

    @property
    def network(self) -> nn.Module:
        """The module that is linearised."""
        return self._model[0]

    @torch.no_grad()
    def restart(self, start: list[Tensor] | None = None) -> None:
        """Set ``u = u_0``, the point without displacement; zero if None."""
        self.start = start
        for index, (u, p) in enumerate(
            zip(self.variables, self.linearisation_point, strict=True)
        ):
            if u.dtype != p.dtype or u.device != p.device:
                # The module was moved to another dtype or device.
                u.data, u.grad = torch.empty_like(p), None
            if start is None:
                u.zero_()
            else:
                u.copy_(start[index])

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
            return self._evaluate_linearised(model, args, kwargs)
        with torch.no_grad():
            flat, spec = _flatten(model(*args, **kwargs))
        # Outputs become leaves, so that a closure can still call backward().
        detached = [leaf.detach() if _is_float(leaf) else leaf for leaf in flat]
        for leaf in detached:
            if _is_float(leaf):
                leaf.requires_grad_(torch.is_grad_enabled())
        return pytree.tree_unflatten(detached, spec)

    def _evaluate_linearised(self, model: nn.Module, args: Any, kwargs: Any) -> Any:
        needs_graph = torch.is_grad_enabled()
        leaves = [
            p.detach().requires_grad_(needs_graph) for p in self.linearisation_point
        ]
        direction = self.displacement()
        tangents: Sequence[Tensor | None]
        random = RandomState(self.linearisation_point)
        failure: RuntimeError | None = None
        # Forward mode needs no backward pass; its primal part has the adjoint's graph.
        if not self._uses_double_backward:
            try:
                flat, spec, tangents = self._jvp_by_forward_mode(
                    model, args, kwargs, leaves, direction
                )
            except RuntimeError as error:
                failure = error
                # The failed pass has used random numbers: dropout must repeat its mask.
                random.restore()
        if self._uses_double_backward or failure is not None:
            leaves = [p.detach().requires_grad_() for p in self.linearisation_point]
            with torch.enable_grad(), _forward_mode.forward_ad_backends(model):
                flat, spec = self._call_with_params(model, leaves, args, kwargs)
            floats = [leaf for leaf in flat if _is_float(leaf)]
            try:
                if failure is not None:
                    # Only if the second derivative in reverse mode exists is the
                    # failure one of forward mode; otherwise the error of the closure or
                    # model is raised unchanged.
                    if not _forward_mode.check_double_backward(floats, leaves):
                        raise failure
                    self._uses_double_backward = True
                tangents = _forward_mode.double_backward_jvp(floats, leaves, direction)
            except RuntimeError as error:
                raise self._unsupported_op_error(
                    model, args, kwargs, failure or error
                ) from error
        outputs = [leaf for leaf in flat if _is_float(leaf)]
        values = tuple(
            theta.detach() if tangent is None else theta.detach() + tangent.detach()
            for theta, tangent in zip(outputs, tangents, strict=True)
        )
        if needs_graph:
            # u receives the gradient of w: both are displaced equally.
            values = _Adjoint.apply(values, outputs, leaves, *self.variables)
        remaining_values = iter(values)
        merged = [next(remaining_values) if _is_float(leaf) else leaf for leaf in flat]
        return pytree.tree_unflatten(merged, spec)

    def _jvp_by_forward_mode(
        self,
        model: nn.Module,
        args: Any,
        kwargs: Any,
        leaves: list[Tensor],
        direction: list[Tensor],
    ) -> tuple[list[Any], Any, Sequence[Tensor | None]]:
        _forward_mode.warm_up()
        with _forward_mode.forward_ad_backends(model), forward_ad.dual_level():
            duals = [
                forward_ad.make_dual(leaf, d)
                for leaf, d in zip(leaves, direction, strict=True)
            ]
            flat, spec = self._call_with_params(model, duals, args, kwargs)
            pairs = [forward_ad.unpack_dual(x) for x in flat if _is_float(x)]
        primals = iter([primal for primal, _ in pairs])
        flat = [next(primals) if _is_float(leaf) else leaf for leaf in flat]
        return flat, spec, [tangent for _, tangent in pairs]

    def _call_with_params(
        self, model: nn.Module, params: list[Tensor], args: Any, kwargs: Any
    ) -> tuple[list[Any], Any]:
        named = dict(zip(self.names, params, strict=True))
        return _flatten(functional_call(model, named, args, kwargs))

    def _unsupported_op_error(
        self, model: nn.Module, args: Any, kwargs: Any, failure: RuntimeError
    ) -> RuntimeError:
        def repeat_forward() -> None:
            leaves = [p.detach().requires_grad_() for p in self.linearisation_point]
            zeros = [torch.zeros_like(p) for p in self.linearisation_point]
            self._jvp_by_forward_mode(model, args, kwargs, leaves, zeros)

        submodule, message = (
            _forward_mode.find_failing_submodule(model, repeat_forward),
            str(failure).splitlines()[0],
        )
        return RuntimeError(
            "Linearised: expected operations with a forward-mode derivative or "
            f"a second one in reverse mode, got neither in {submodule}: {message}"
            "; replace that module, or freeze its parameters and what comes before it"
        )


class _Adjoint(torch.autograd.Function):
    """Identity of the values whose backward pass is the adjoint J^T, for u."""

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
        # The graph is retained: a closure may call backward() for several losses.
        vjps = torch.autograd.grad(
            [theta for theta, _ in pairs],
            ctx.leaves,
            [c for _, c in pairs],
            retain_graph=True,
            allow_unused=True,
        )
        return (None, None, None, *vjps)


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def _flatten(outputs: Any) -> tuple[list[Any], Any]:
    flat, spec = pytree.tree_flatten(outputs)
    for leaf in flat:
        if not isinstance(leaf, Tensor | _CONSTANT_TYPES):
            raise TypeError(
                "model: expected it to return tensors, or tuples, lists and dicts of "
                f"them, got a {type(leaf).__name__}; build it from the tensors in the "
                "closure"
            )
    return flat, spec
