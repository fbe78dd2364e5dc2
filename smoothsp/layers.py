"""Neural network layers with potentials as parameters."""

import operator
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from smoothsp import constraints as tagging_rules
from smoothsp import schemes
from smoothsp.constraints import Constraints
from smoothsp.losses import L2, CRFLoss, Entropy, StructuralHinge, StructuredPerceptron
from smoothsp.losses.reduction import Reduction
from smoothsp.oracles import Chain
from smoothsp.oracles._inference import checks

if TYPE_CHECKING:
    from smoothsp.viterbi import Viterbi

LossName = Literal["crf", "hinge", "hinge-l2", "hinge-entropy", "perceptron"]
# Argument names of Chain and constraints.bio -> argument names of LinearChain.
ARGUMENT_NAMES = {
    "y": "tags",
    "start": "start_transitions",
    "end": "end_transitions",
    "labels": "constraints",
}

# Upper limit of top_k: memory for all outputs is allocated before decoding.
MAX_TOP_K = 10**6
INT64 = torch.iinfo(torch.int64)


class Decoding(NamedTuple):
    """Best tags of each row."""

    tags: Tensor
    """``(batch, time)`` int64; ``(time, batch)`` with ``batch_first=False``."""
    scores: Tensor
    """``(batch,)``."""


class TopKDecoding(NamedTuple):
    """The k best tag sequences of each row, best first."""

    tags: Tensor
    """``(batch, k, time)`` int64; ``(time, batch, k)`` with ``batch_first=False``."""
    scores: Tensor
    """``(batch, k)``, -inf where not valid."""
    valid: Tensor
    """``(batch, k)`` bool: does this output exist?"""


class LinearChain(nn.Module):
    r"""A linear-chain CRF head: learns transition scores for given emissions.

    Calling the module returns the loss, by default the mean negative log-likelihood
    over the batch,

    .. math:: \log \sum_{y'} \exp s(y') - s(y) \ge 0

    which you minimise without a minus sign. ``loss`` has the options.

    Parameters
    ----------
    num_tags
        Number of tags, or their labels: a sequence or a dictionary ``id2label``.
        Messages, ``decode_lists``, ``span_probabilities`` and ``class_weight`` use the
        labels. Those of ``constraints`` serve as well.
    constraints
        Allowed starts, transitions and ends, as returned by
        ``constraints.bio(labels)``. They hold in training and in decoding. Or the
        labels, as a sequence or a dictionary ``id2label``, which are passed to
        ``constraints.bio``.
    batch_first
        If False, emissions, tags, masks, decoded tags and marginals have time before
        batch.

    Attributes
    ----------
    transitions
        ``(num_tags, num_tags)``, ``[i, j]`` scores tag i followed by tag j.
    start_transitions, end_transitions
        ``(num_tags,)``.
    labels
        A tuple with the label of each tag, or None.

    Notes
    -----
    The state dict holds these three parameters only. A state dict of pytorch-crf, which
    uses the same names, loads unchanged.

    Emissions are ``(batch, time, num_tags)``. A mask is ``(batch, time)``, True where a
    position is real, with holes and left padding allowed, as in ``oracles.Chain``.
    Integer masks must hold only 0 and 1, where 1 is real, as in an ``attention_mask``.
    ``uint8`` masks work with a warning.

    Examples
    --------
    >>> import torch
    >>> from smoothsp import LinearChain
    >>> head = LinearChain(num_tags=3)
    >>> emissions = torch.zeros(1, 4, 3, requires_grad=True)
    >>> head(emissions, torch.tensor([[0, 1, 2, 0]])).backward()
    >>> tags, scores, valid = head.decode(emissions, top_k=5)
    >>> tags.shape, valid.all().item()
    (torch.Size([1, 5, 4]), True)
    """

    allowed_start: Tensor | None
    allowed_transitions: Tensor | None
    allowed_end: Tensor | None

    def __init__(
        self,
        num_tags: int | Sequence[str] | Mapping[int, str],
        constraints: Constraints | Mapping[int, str] | Sequence[str] | None = None,
        *,
        batch_first: bool = True,
    ) -> None:
        super().__init__()
        labels = None
        if isinstance(num_tags, Sequence | Mapping) and not isinstance(num_tags, str):
            labels = tuple(tagging_rules.as_label_list(num_tags))
            num_tags = len(labels)
        num_tags = checks.as_positive_int("num_tags", num_tags)
        if constraints is not None and not isinstance(constraints, Constraints):
            try:
                constraints = tagging_rules.bio(constraints)
            except (TypeError, ValueError) as error:
                raise _rename_argument(error) from None
        if constraints is not None and len(constraints.start) != num_tags:
            raise ValueError(
                f"constraints: expected {num_tags} tags to match num_tags, "
                f"got {len(constraints.start)}"
            )
        if constraints is not None and constraints.labels is not None:
            if labels not in (None, constraints.labels):
                raise ValueError(
                    f"constraints: expected those of the labels {', '.join(labels)}, "
                    f"got those of {', '.join(constraints.labels)}"
                )
            labels = constraints.labels
        self.num_tags = num_tags
        self.labels = labels
        self.batch_first = checks.as_flag("batch_first", batch_first)
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags))
        self.start_transitions = nn.Parameter(torch.empty(num_tags))
        self.end_transitions = nn.Parameter(torch.empty(num_tags))
        start, transitions, end = constraints or (None, None, None)
        self.register_buffer("allowed_start", start, persistent=False)
        self.register_buffer("allowed_transitions", transitions, persistent=False)
        self.register_buffer("allowed_end", end, persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise all scores from the uniform distribution on [-0.1, 0.1]."""
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    @staticmethod
    def __prepare_scriptable__() -> None:
        """Raise TypeError: ``torch.jit.script`` calls this method first."""
        raise TypeError(checks.NO_TORCHSCRIPT)

    def extra_repr(self) -> str:
        """Return the arguments that ``print`` shows."""
        constrained = self.allowed_transitions is not None
        order = "" if self.batch_first else ", batch_first=False"
        return f"num_tags={self.num_tags}, constrained={constrained}{order}"

    def structure(self, emissions: Tensor, mask: Tensor | None = None) -> Chain:
        """Return the chain of the given emissions and the scores of this head.

        The chain has the batch first for either ``batch_first``.
        """
        self._check_emissions(emissions)
        real = None if mask is None else self._as_bool_mask(mask, emissions)
        if not self.batch_first:
            emissions = emissions.transpose(0, 1)
            real = None if real is None else real.transpose(0, 1)
        transitions = _mask_forbidden(self.transitions, self.allowed_transitions)
        start = _mask_forbidden(self.start_transitions, self.allowed_start)
        end = _mask_forbidden(self.end_transitions, self.allowed_end)
        if emissions.dtype == torch.float64:
            transitions, start, end = transitions.double(), start.double(), end.double()
        try:
            return Chain(emissions, transitions, start, end, mask=real)
        except (TypeError, ValueError) as error:
            raise _rename_argument(error) from None

    def forward(
        self,
        emissions: Tensor,
        tags: Tensor,
        mask: Tensor | None = None,
        loss: nn.Module | LossName | None = None,
        weight: Tensor | None = None,
        reduction: Reduction | None = None,
        class_weight: Mapping[str, float] | Tensor | None = None,
    ) -> Tensor:
        """Return the loss of the gold tags, with the arguments of ``loss``."""
        return self.loss(emissions, tags, mask, loss, weight, reduction, class_weight)

    def loss(
        self,
        emissions: Tensor,
        tags: Tensor,
        mask: Tensor | None = None,
        loss: nn.Module | LossName | None = None,
        weight: Tensor | None = None,
        reduction: Reduction | None = None,
        class_weight: Mapping[str, float] | Tensor | None = None,
    ) -> Tensor:
        """Return the loss of the gold tags, which is never negative.

        Parameters
        ----------
        emissions
            ``(batch, time, num_tags)``.
        tags
            ``(batch, time)`` integers; any value at masked positions, such as -100.
        mask
            ``(batch, time)`` bool; all real if absent.
        loss
            A loss over structures, such as ``StructuralHinge()``, or a name: ``"crf"``
            (negative log-likelihood, the default), ``"hinge"``, ``"hinge-l2"``
            (smoothed by ``L2(1, 5)``), ``"hinge-entropy"`` (by ``Entropy(1)``),
            ``"perceptron"``.
        weight
            ``(batch,)`` weight of each example.
        reduction
            ``"mean"`` over the rows by default; ``"sum"``, ``"none"`` or
            ``"token_mean"`` as in ``StructuralHinge``. Not allowed if ``loss`` is a
            module, which has its own reduction.
        class_weight
            Weights of tags, as in ``StructuralHinge``: a tensor ``(num_tags,)``, or a
            dictionary from labels to numbers >= 0, 1 for labels that it lacks. Not
            allowed if ``loss`` is a module.

        Raises
        ------
        ValueError
            If gold tags violate the constraints; the message names the row and the
            position.
        """
        criterion = _resolve_loss(
            loss, reduction, self._class_weight_tensor(class_weight)
        )
        chain = self.structure(emissions, mask)
        self._check_tags(tags, emissions)
        if not self.batch_first:
            tags = tags.transpose(0, 1)
        try:
            value: Tensor = criterion(chain, tags, weight)
        except (TypeError, ValueError) as error:
            raise _rename_argument(error) from None
        if self.allowed_transitions is not None and not torch.compiler.is_compiling():
            self._require_allowed_tags(value, tags, chain)
        return value

    def decode(
        self,
        emissions: Tensor,
        mask: Tensor | None = None,
        top_k: int | None = None,
        pad_value: int = -1,
    ) -> Decoding | TopKDecoding:
        """Return the best tags, or the ``top_k`` best, with scores; no gradients.

        Parameters
        ----------
        emissions
            ``(batch, time, num_tags)``.
        mask
            ``(batch, time)`` bool; all real if absent.
        top_k
            Number of tag sequences for each row, from 1 to a million. None: the best.
        pad_value
            Fills masked positions, and sequences that do not exist.

        Returns
        -------
        Decoding or TopKDecoding
            ``tags`` ``(batch, time)`` int64 and ``scores`` ``(batch,)``. With
            ``top_k``: ``tags`` ``(batch, k, time)``, ``scores`` ``(batch, k)``, best
            first, and ``valid`` ``(batch, k)``, False where fewer sequences exist.
        """
        if _is_exporting_onnx():
            # Dynamo, tried next by the exporter, would trace the function as False
            torch.compiler.assume_constant_result(_is_exporting_onnx)  # type: ignore[no-untyped-call]
            raise TypeError(
                "decode: ONNX has no operators for the kernels of smoothsp; export "
                "head.exportable(), which computes the same in plain PyTorch"
            )
        try:
            pad_value = operator.index(pad_value)
        except TypeError:
            type_name = type(pad_value).__name__
            raise TypeError(f"pad_value: expected an int, got {type_name}") from None
        if not INT64.min <= pad_value <= INT64.max:
            raise ValueError("pad_value: expected an int64, got a larger integer")
        with torch.no_grad():
            chain = self.structure(emissions, mask)
            if top_k is None:
                scores, tags = chain.decode()
                tags = tags.masked_fill(tags < 0, pad_value)
                return Decoding(self._restore_axes(tags, 1), scores)
            if isinstance(top_k, bool) or not isinstance(top_k, int):
                type_name = type(top_k).__name__
                raise TypeError(f"top_k: expected an int or None, got {type_name}")
            if top_k < 1:
                raise ValueError(f"top_k: expected at least 1, got {top_k}")
            if top_k > MAX_TOP_K:
                got = top_k if top_k <= INT64.max else "an integer beyond int64"
                raise ValueError(f"top_k: expected at most {MAX_TOP_K}, got {got}")
            scores, tags, valid = chain.decode_topk(top_k)
            tags = tags.masked_fill(tags < 0, pad_value)
            return TopKDecoding(self._restore_axes(tags, 2), scores, valid)

    def decode_lists(
        self, emissions: Tensor, mask: Tensor | None = None
    ) -> list[list[str]] | list[list[int]]:
        """Return the best tags of each row as a list, of its real positions only.

        A list of labels if this head has them, of numbers otherwise.
        """
        tags = self.decode(emissions, mask).tags
        rows = tags if self.batch_first else tags.T
        indices: list[list[int]] = [[t for t in row if t >= 0] for row in rows.tolist()]
        if self.labels is None:
            return indices
        names = self.labels
        return [[names[tag] for tag in row] for row in indices]

    def exportable(self) -> "Viterbi":
        """Return ``decode`` in plain PyTorch, for ``torch.export`` and ONNX.

        The module copies the current scores and constraints. It maps emissions and a
        mask to tags, -1 at masked positions, and scores, as ``decode`` does. The
        exported program does not need smoothsp.
        """
        from smoothsp.viterbi import Viterbi

        return Viterbi(
            _mask_forbidden(self.transitions, self.allowed_transitions),
            _mask_forbidden(self.start_transitions, self.allowed_start),
            _mask_forbidden(self.end_transitions, self.allowed_end),
            self.batch_first,
        )

    def marginals(
        self, emissions: Tensor, mask: Tensor | None = None
    ) -> Float[Tensor, "batch time tag"]:
        """Return the probability of each tag at each position.

        ``(batch, time, num_tags)``, 0 where masked; differentiable.
        """
        return self._restore_axes(self.structure(emissions, mask).marginals(), 1)

    def tag_probabilities(
        self, emissions: Tensor, mask: Tensor | None, tags: Tensor
    ) -> Float[Tensor, "batch time"]:
        """Return the marginal probability of each given tag: its confidence.

        Parameters
        ----------
        emissions, mask
            As in ``decode``; a mask of None is all real.
        tags
            ``(batch, time)`` integers, such as those of ``decode``; any value at masked
            positions.

        Returns
        -------
        Tensor
            In the shape of ``tags``, 0 where masked; differentiable.
        """
        marginals = self.marginals(emissions, mask)
        self._check_tags(tags, emissions)
        all_real = torch.ones_like(tags, dtype=torch.bool)
        real = all_real if mask is None else self._as_bool_mask(mask, emissions)
        wrong = real & ((tags < 0) | (tags >= self.num_tags))
        if checks.has_concrete_values() and bool(wrong.any()):
            position = wrong.nonzero()[0].tolist()
            tag = int(tags[tuple(position)])
            row, step = position if self.batch_first else reversed(position)
            message = checks.label_range_message(self.num_tags, tag, row, step)
            raise _rename_argument(ValueError(message))
        safe = tags.long().masked_fill(~real, 0)
        return marginals.gather(2, safe.unsqueeze(2)).squeeze(2)

    def span_probabilities(
        self,
        emissions: Tensor,
        mask: Tensor | None,
        spans: Sequence[Collection[tuple[str, int, int]]],
    ) -> list[Float[Tensor, " span"]]:
        """Return the probability of each span: its confidence.

        It is the probability that the tags of a row contain exactly this span, as
        ``metrics.spans`` reads them: it begins at ``first``, ends at ``last``, and has
        this type.

        Parameters
        ----------
        emissions, mask
            As in ``decode``; a mask of None is all real.
        spans
            For each row ``(type, first, last)`` of some spans, as ``metrics.spans``
            returns them. Positions count the real ones from 0, as in ``decode_lists``.

        Returns
        -------
        list
            For each row a tensor with a number for each span; differentiable.

        Raises
        ------
        ValueError
            If this head has no labels, and for a type or a position that does not
            exist.

        Notes
        -----
        O(batch time num_tags^2) memory. A posterior is a Markov chain, so products of
        conditional probabilities over the span give exact probabilities.

        Examples
        --------
        >>> import torch
        >>> from smoothsp import LinearChain
        >>> head = LinearChain(["O", "B-PER", "I-PER"])
        >>> _ = [torch.nn.init.zeros_(scores) for scores in head.parameters()]
        >>> [row] = head.span_probabilities(
        ...     torch.zeros(1, 2, 3), None, [[("PER", 0, 1)]]
        ... )
        >>> row.detach()
        tensor([0.2222])
        """
        if self.labels is None:
            raise ValueError(
                "labels: expected those of the tags for spans, got none; write "
                "LinearChain(labels)"
            )
        parts = [schemes.split_tag(label) for label in self.labels]
        tags = [(schemes.CANONICAL_PREFIX.get(p, "O"), kind) for p, kind in parts]
        types = sorted({kind for role, kind in tags if role != "O"})
        chain = self.structure(emissions, mask)
        located = _locate_spans(spans, chain.mask.sum(1).tolist(), types)
        device = chain.emissions.device
        span_table = torch.tensor(located, dtype=torch.int64, device=device).reshape(
            -1, 4
        )
        row, kind, first, last = span_table.T
        continues = torch.tensor(
            [
                [a[1] == b[1] and a[0] in "BI" and b[0] in "IE" for b in tags]
                for a in tags
            ],
            device=device,
        )
        has_type = torch.tensor(
            [[role != "O" and tag == k for role, tag in tags] for k in types],
            device=device,
        ).reshape(len(types), self.num_tags)
        # pairs[:, t]: joint marginals of the labels at t - 1 and t; zeros for t = 0
        nodes = chain.marginals()
        pairs = nn.functional.pad(chain.edge_marginals(), (0, 0, 0, 0, 1, 0))
        # p(y_t | y_{t-1}) = p(y_{t-1}, y_t) / p(y_{t-1}): the posterior is a Markov
        # chain
        sums = pairs.sum(3, keepdim=True)
        transition_probs = pairs / sums.masked_fill(sums == 0, 1.0)
        # positions of each row, real ones first: spans count only those
        real_positions = (
            chain.mask.logical_not().to(torch.int8).argsort(dim=1, stable=True)
        )

        def at_position(tables: Tensor, position: Tensor) -> Tensor:
            return tables[row, real_positions[row, position]]

        # mass[n, j]: probability that span n has begun at first and the label is j
        starts_row = first == 0
        entered = (at_position(pairs, first) * ~continues).sum(1)
        mass = (
            torch.where(starts_row[:, None], at_position(nodes, first), entered)
            * has_type[kind]
        )
        max_steps = max((b - a for _, _, a, b in located), default=0)
        for step in range(1, max_steps + 1):
            inside = (first + step <= last)[:, None]
            transition = (
                at_position(transition_probs, (first + step).minimum(last)) * continues
            )
            mass = torch.where(
                inside, (mass.unsqueeze(1) @ transition).squeeze(1), mass
            )
        # the label after the span must not continue it
        ends_row = last + 1 == chain.mask.sum(1)[row]
        exit_probs = (
            at_position(transition_probs, torch.where(ends_row, last, last + 1))
            * ~continues
        ).sum(2)
        mass = mass * exit_probs.masked_fill(ends_row[:, None], 1.0)
        probs = mass.sum(1).clamp(max=1.0)
        return list(torch.split(probs, [len(row_spans) for row_spans in spans]))

    def _class_weight_tensor(
        self, class_weight: Mapping[str, float] | Tensor | None
    ) -> Tensor | None:
        """Return class weights as a tensor ``(num_tags,)``, also of a dictionary."""
        if not isinstance(class_weight, Mapping):
            return class_weight
        if self.labels is None:
            raise ValueError(
                "class_weight: expected a tensor for a head without labels, got a "
                "dictionary; write LinearChain(labels)"
            )
        unknown = [label for label in class_weight if label not in self.labels]
        if unknown:
            raise ValueError(
                f"class_weight: expected some of {', '.join(self.labels)}, got "
                f"{unknown[0]!r}"
            )
        weights = [
            checks.as_nonnegative(
                f"class_weight[{label!r}]", class_weight.get(label, 1.0)
            )
            for label in self.labels
        ]
        return torch.tensor(
            weights, dtype=torch.float64, device=self.transitions.device
        )

    def _restore_axes(self, result: Tensor, time_axis: int) -> Tensor:
        """Return a batch-first result in the layout of ``batch_first``."""
        return result if self.batch_first else result.movedim(time_axis, 0)

    @property
    def _axes_text(self) -> str:
        return "batch, time" if self.batch_first else "time, batch"

    def _check_emissions(self, emissions: Tensor) -> None:
        """Raise unless emissions have the type, shape and device of this head."""
        if not isinstance(emissions, Tensor):
            raise TypeError(
                "emissions: expected a torch.Tensor, got "
                f"{type(emissions).__name__}{_conversion_hint(emissions)}"
            )
        _require_dense("emissions", emissions)
        if emissions.dim() != 3 or emissions.shape[2] != self.num_tags:
            is_single = emissions.dim() == 2 and emissions.shape[1] == self.num_tags
            axis = 0 if self.batch_first else 1
            hint = (
                f"; for one sequence use emissions.unsqueeze({axis})"
                if is_single
                else ""
            )
            raise ValueError(
                f"emissions: expected ({self._axes_text}, num_tags) with num_tags = "
                f"{self.num_tags}, got {tuple(emissions.shape)}{hint}"
            )
        if emissions.device != self.transitions.device:
            raise TypeError(
                f"emissions: expected a tensor on {self.transitions.device} like this "
                f"head, got one on {emissions.device}; move the head with .to(device)"
            )
        is_float64 = self.transitions.dtype == torch.float64
        if is_float64 and emissions.dtype != torch.float64:
            raise TypeError(
                "emissions: expected torch.float64 like this head, got "
                f"{emissions.dtype}; convert them with .double(), or the head with "
                ".float()"
            )

    def _check_tags(self, tags: Tensor, emissions: Tensor) -> None:
        """Raise unless tags are integers in the shape of the emissions."""
        if not isinstance(tags, Tensor):
            raise TypeError(
                f"tags: expected a torch.Tensor, got {type(tags).__name__}"
                f"{_conversion_hint(tags)}"
            )
        _require_dense("tags", tags)
        if tags.dtype == torch.bool:
            raise TypeError(
                "tags: expected an integer dtype, got torch.bool; the order of "
                "arguments is emissions, tags, mask"
            )
        checks.require_shape(
            "tags", tags, tuple(emissions.shape[:2]), f"({self._axes_text})"
        )

    def _as_bool_mask(self, mask: Tensor, emissions: Tensor) -> Tensor:
        """Return the mask as bool; integers must be 0 and 1."""
        if not isinstance(mask, Tensor):
            hint = (
                "; for the k best outputs pass top_k=k" if isinstance(mask, int) else ""
            )
            raise TypeError(
                f"mask: expected a torch.Tensor, got {type(mask).__name__}"
                f"{hint or _conversion_hint(mask)}"
            )
        _require_dense("mask", mask)
        if mask.dim() == 1 and mask.dtype != torch.bool:
            raise ValueError(
                f"mask: expected ({self._axes_text}), got {tuple(mask.shape)}; from "
                "lengths: torch.arange(time) < lengths[:, None]"
            )
        checks.require_shape(
            "mask", mask, tuple(emissions.shape[:2]), f"({self._axes_text})"
        )
        if mask.dtype == torch.bool:
            return mask
        if mask.is_floating_point() or mask.is_complex():
            raise TypeError(
                "mask: expected torch.bool with True at real positions, or integers 0 "
                f"and 1, got {mask.dtype}; convert with .bool() where 1 is real, "
                "with == 0 where 0 is"
            )
        if mask.dtype == torch.uint8 and not torch.compiler.is_compiling():
            warnings.warn(
                "mask: torch.uint8 is read as torch.bool; convert with .bool()",
                stacklevel=4,
            )
        if checks.has_concrete_values():
            invalid = (mask != 0) & (mask != 1)
            if bool(invalid.any()):
                value = mask[invalid][0].item()
                raise ValueError(
                    f"mask: expected 0 and 1, 1 being real, in a mask of {mask.dtype}, "
                    f"got {value}; convert with .bool()"
                )
        return mask.bool()

    def _require_allowed_tags(
        self, value: Tensor, tags: Int[Tensor, "batch time"], chain: Chain
    ) -> None:
        """Raise with the row and the step if gold tags violate the constraints.

        The loss is then infinite, so finite losses need no check of the tags.
        """
        if not checks.has_concrete_values() or bool(value.detach().isfinite().all()):
            return
        start, transitions, end = (
            self.allowed_start,
            self.allowed_transitions,
            self.allowed_end,
        )
        if start is None or transitions is None or end is None:
            return
        for row, (gold, real) in enumerate(zip(tags, chain.mask, strict=True)):
            steps = real.nonzero().squeeze(1).tolist()
            path = gold[real].tolist()
            names = [self._tag_text(tag) for tag in path]
            where = f"at row {row}, step"
            for n, (step, tag) in enumerate(zip(steps, path, strict=True)):
                if n == 0 and not start[tag]:
                    raise ValueError(
                        f"tags: the constraints forbid starting with {names[n]} "
                        f"{where} {step}"
                    )
                if n > 0 and not transitions[path[n - 1], tag]:
                    raise ValueError(
                        f"tags: the constraints forbid {names[n]} after {names[n - 1]} "
                        f"{where} {step}; convert the tags to the scheme of the "
                        "constraints"
                    )
            if path and not end[path[-1]]:
                raise ValueError(
                    f"tags: the constraints forbid ending with {names[-1]} "
                    f"{where} {steps[-1]}"
                )

    def _tag_text(self, tag: int) -> str:
        """Return the label or the number of a tag, for messages."""
        return str(tag) if self.labels is None else repr(self.labels[tag])


def _is_exporting_onnx() -> bool:
    """Return whether ``torch.onnx.export`` is running."""
    return torch.onnx.is_in_onnx_export()


def _locate_spans(
    spans: object, lengths: list[int], types: list[str]
) -> list[tuple[int, int, int, int]]:
    """Return (row, index of the type, first, last) of each span, validated."""
    if not isinstance(spans, Sequence) or isinstance(spans, str):
        type_name = type(spans).__name__
        raise TypeError(
            f"spans: expected a list of spans for each row, got {type_name}"
        )
    if len(spans) != len(lengths):
        raise ValueError(
            f"spans: expected a list of spans for each of {len(lengths)} rows, got "
            f"{len(spans)}"
        )
    located = []
    for row, (row_spans, length) in enumerate(zip(spans, lengths, strict=True)):
        if not isinstance(row_spans, Collection) or isinstance(row_spans, str):
            raise TypeError(
                f"spans: expected a list of spans at row {row}, got "
                f"{type(row_spans).__name__}"
            )
        for span in row_spans:
            if not isinstance(span, tuple | list) or len(span) != 3:
                raise TypeError(
                    f"spans: expected (type, first, last) at row {row}, got {span!r}"
                )
            kind, first, last = span
            if kind not in types:
                raise ValueError(
                    f"spans: expected one of the types {', '.join(types)} at row "
                    f"{row}, got {kind!r}"
                )
            try:
                first, last = operator.index(first), operator.index(last)
            except TypeError:
                raise TypeError(
                    f"spans: expected (type, first, last) with ints first and last at "
                    f"row {row}, got {span!r}"
                ) from None
            if not 0 <= first <= last < length:
                raise ValueError(
                    f"spans: expected 0 <= first <= last < {length}, the real positions"
                    f" of row {row}, got {span!r}"
                )
            located.append((row, types.index(kind), first, last))
    return located


def _resolve_loss(
    loss: object, reduction: Reduction | None, class_weight: Tensor | None
) -> nn.Module:
    """Return the loss module of a name; modules are returned unchanged."""
    if isinstance(loss, nn.Module):
        if class_weight is not None:
            raise ValueError(
                "class_weight: expected none beside a loss module; write "
                f"{type(loss).__name__}(class_weight=...)"
            )
        if reduction is not None:
            raise ValueError(
                f"reduction: expected none beside a loss module, got {reduction!r}; "
                f"write {type(loss).__name__}(reduction={reduction!r})"
            )
        return loss
    loss_names = ", ".join(get_args(LossName))
    if loss is not None and not isinstance(loss, str):
        name = loss.__name__ if isinstance(loss, type) else ""
        hint = f"the class {name}; write {name}()" if name else type(loss).__name__
        raise TypeError(f"loss: expected one of {loss_names}, or a module, got {hint}")
    chosen = "mean" if reduction is None else reduction
    if loss is None or loss == "crf":
        return CRFLoss(class_weight, reduction=chosen)
    if loss == "hinge":
        return StructuralHinge(class_weight=class_weight, reduction=chosen)
    if loss == "hinge-l2":
        return StructuralHinge(L2(1.0, 5), class_weight=class_weight, reduction=chosen)
    if loss == "hinge-entropy":
        return StructuralHinge(
            Entropy(1.0), class_weight=class_weight, reduction=chosen
        )
    if loss == "perceptron":
        return StructuredPerceptron(class_weight, reduction=chosen)
    raise ValueError(f"loss: expected one of {loss_names}, or a module, got {loss!r}")


def _require_dense(name: str, value: Tensor) -> None:
    """Raise unless a tensor is strided and not nested."""
    # nested tensors have no shape, sparse ones no transpose
    if value.is_nested:
        raise TypeError(
            f"{name}: expected a dense tensor, got a nested one; pad it with "
            "torch.nested.to_padded_tensor and pass a mask"
        )
    if value.layout is not torch.strided:
        raise TypeError(
            f"{name}: expected a dense tensor, with layout torch.strided, got "
            f"{value.layout}; convert with .to_dense()"
        )


def _rename_argument(error: Exception) -> Exception:
    """Return the error with the argument of ``LinearChain`` in place of ``Chain``'s."""
    name, colon, message = str(error).partition(":")
    return type(error)(ARGUMENT_NAMES.get(name, name) + colon + message)


def _conversion_hint(value: object) -> str:
    """Return how to convert a value to a tensor, for the end of a message."""
    if hasattr(value, "logits"):
        return "; pass its .logits"
    if type(value).__module__ == "numpy":
        return "; convert with torch.from_numpy"
    if not isinstance(value, list | tuple):
        return ""
    while isinstance(value, list | tuple) and value:
        value = value[0]
    if isinstance(value, str):
        return "; number the tags first, with {tag: n for n, tag in enumerate(tags)}"
    return "; convert with torch.tensor"


def _mask_forbidden(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Return the scores with -inf where not allowed."""
    return scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)
