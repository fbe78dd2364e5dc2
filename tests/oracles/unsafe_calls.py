"""Calls that lead out of a tensor's memory if nothing stops them.

Run as ``python -m tests.oracles.unsafe_calls float64``. Each is made in a process of
its own, which a read or a write out of bounds may end; a line a call is printed, its
name and what became of it. ``MALLOC_PERTURB_`` makes memory that was let go look like
it.
"""

import os
import sys
import traceback
from collections.abc import Callable

import torch
from torch import Tensor

from smoothsp import LinearChain, metrics
from smoothsp.losses import L2, CRFLoss, Entropy, StructuralHinge, StructuredPerceptron
from smoothsp.oracles import Chain, Multiclass

B, T, S = 5, 6, 3
CALLS: dict[str, Callable[[], None]] = {}
META = torch.device("meta")
DTYPE = getattr(torch, sys.argv[1]) if __name__ == "__main__" else torch.float32


def call(function: Callable[[], None]) -> Callable[[], None]:
    CALLS[function.__name__] = function
    return function


def refused(ask: Callable[[], object], error: type[Exception], words: str) -> None:
    """Require that a call is refused with these words."""
    try:
        ask()
    except error as found:
        if words in str(found):
            return
        raise
    raise AssertionError(f"accepted, expected: {words}")


def drawn() -> tuple[list[Tensor], Tensor]:
    """Potentials and labels, on the CPU whatever the default device."""
    draw = torch.Generator("cpu").manual_seed(0)
    shapes = ((B, T, S), (S, S), (S,), (S,))
    potentials = [
        torch.randn(shape, generator=draw, dtype=DTYPE, device="cpu")
        for shape in shapes
    ]
    return potentials, torch.randint(S, (B, T), generator=draw, device="cpu")


def everything(chain: Chain, y: Tensor) -> list[Tensor]:
    """All answers and losses."""
    weight = torch.linspace(0.5, 1, B, device="cpu")
    found = [*chain.decode(), *chain.decode_topk(3), chain.score(y), chain.lengths]
    found += [chain.log_partition(), chain.marginals(), chain.entropy(), chain.mask]
    found += [chain.edge_marginals(), chain.log_prob(y), chain.log_count()]
    found += [chain.hamming(y), chain.label_counts(y), chain.log_likelihood(y, weight)]
    found += [chain.violation(y, weight), chain.scale(2.0).log_partition()]
    draw = torch.Generator("cpu").manual_seed(1)
    found += [chain.sample(2, generator=draw)]
    found += [chain.select(torch.arange(2, device="cpu")).log_partition()]
    classes = torch.ones(S, device="cpu")
    for loss in (
        StructuralHinge(),
        StructuralHinge(Entropy(0.5), reduction="token_mean"),
        StructuralHinge(L2(0.5, "exact")),
        CRFLoss(class_weight=classes, reduction="token_mean"),
        StructuredPerceptron(reduction="none"),
    ):
        found.append(loss(chain, y, weight=weight))
    return found


@call
def default_device_is_another() -> None:
    potentials, y = drawn()
    for padding in ({}, {"lengths": y[:, 0].clone()}, {"mask": y > 0}):
        answers = []
        for device in ("cpu", "meta"):
            torch.set_default_device(device)
            leaves = [x.clone().requires_grad_() for x in potentials]
            found = everything(Chain(*leaves, **padding), y)
            total = sum(x.sum() for x in found if x.requires_grad)
            total.backward()
            with torch.no_grad():
                found += Chain(*leaves, **padding).decode()
            answers.append([*found, *(x.grad for x in leaves)])
            edges = potentials[1].expand(B, T - 1, S, S)
            answers[-1] += everything(Chain(potentials[0], edges, **padding), y)
        for expected, other in zip(*answers, strict=True):
            assert torch.equal(expected, other)


@call
def default_device_of_the_rest() -> None:
    torch.set_default_device("meta")
    scores, y = drawn()[0][0][0], drawn()[1][0]
    classes = Multiclass(scores, mask=scores > -9)
    assert classes.decode_topk(5)[1].device == classes.sample(2).device == y.device
    assert StructuralHinge(L2(0.5, "exact"))(classes, y).isfinite()
    assert metrics.average_precision([0.9, 0.1], [2.0, 1.0], 1) == 1
    assert metrics.corloc([0.9, 0.5, 0.6, 0.0]) == 0.5
    head = LinearChain(S)
    assert head.transitions.device == META  # as any module's parameters
    torch.nn.Module.to_empty(head, device="cpu").to(DTYPE).reset_parameters()
    assert head.loss(drawn()[0][0], drawn()[1]).isfinite()
    assert head.decode(drawn()[0][0], top_k=2).tags.device == y.device


@call
def compiled_with_bad_lengths_and_labels() -> None:
    potentials, y = drawn()

    @torch.compile(backend="eager", fullgraph=True)
    def ask(lengths: Tensor, y: Tensor) -> object:
        chain = Chain(*potentials, lengths=lengths)
        return chain.log_prob(y), chain.score(y), chain.decode(), chain.entropy()

    good, bad = torch.full((B,), T), torch.tensor([T, T, T, 10**6, T])
    ask(good, y)
    refused(lambda: ask(bad, y), ValueError, "got 1000000 at row 3")
    refused(lambda: ask(-bad, y), ValueError, "got -6 at row 0")
    y[2, 1] = 10**6
    refused(lambda: ask(good, y), ValueError, "got 1000000 at row 2, step 1")


@call
def ops_with_bad_lengths() -> None:
    (emissions, transitions, start, end), y = drawn()
    steps, good = torch.arange(T).repeat(B, 1), torch.full((B,), T)
    bad = torch.tensor([T, T, T, 10**6, T])
    more = {
        "score": [y[:, None]],
        "topk": [2],
        "sample": [torch.rand(B, 1, T).double()],
        "log_partition": [True],
    }
    for name in (*more, "decode", "entropy"):
        op = getattr(torch.ops.smoothsp, f"chain_{name}")
        potentials = (emissions, transitions, start, end, steps)
        op(*potentials, good, *more.get(name, []))
        for wrong, words in ((bad, "got 1000000 at row 3"), (-bad, "got -6 at row 0")):
            given = (*potentials, wrong, *more.get(name, []))
            refused(lambda: op(*given), ValueError, words)  # noqa: B023


@call
def ops_with_bad_positions_and_labels() -> None:
    (emissions, _, _, _), y = drawn()
    weights, paths = emissions[:, :1, 0], y[:, None]
    steps, lengths = torch.arange(T).repeat(B, 1), torch.full((B,), T)
    count = torch.ops.smoothsp.chain_count
    count(weights, paths, steps, lengths, S, True, 1)
    for bad_steps, bad_paths, words in (
        (steps + 1, paths, "row 0"),
        (steps.flip(1), paths, "row 0"),
        (steps, paths + 10**6, "row 0, step 0"),
    ):
        bad = (weights, bad_paths, bad_steps, lengths, S, True, 1)
        refused(lambda: count(*bad), ValueError, words)  # noqa: B023


@call
def lengths_changed_afterwards() -> None:
    potentials, y = drawn()
    lengths = torch.tensor([6, 3, 0, 1, 5])
    expected = Chain(*potentials, lengths=lengths.clone())
    chain = Chain(*potentials, lengths=lengths)
    lengths.fill_(10**6)
    for a, b in zip(everything(expected, y), everything(chain, y), strict=True):
        assert torch.equal(a, b)
    chain.lengths.fill_(10**6)
    assert torch.equal(chain.log_partition(), expected.log_partition())
    assert torch.equal(chain.decode()[1], expected.decode()[1])


@call
def masks_changed_afterwards() -> None:
    potentials, y = drawn()
    mask = y > 0
    expected, chain = (
        Chain(*potentials, mask=mask.clone()),
        Chain(*potentials, mask=mask),
    )
    built, scores = Multiclass(potentials[0][:, 0], mask=mask[:, :S]), None
    scores = built.log_partition()
    mask.fill_(True)
    chain.mask.fill_(True)
    for a, b in zip(everything(expected, y), everything(chain, y), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(built.log_partition(), scores)


@call
def rows_on_another_device() -> None:
    potentials, _ = drawn()
    for built in (Chain(*potentials), Multiclass(potentials[0][:, 0])):
        for rows in (torch.zeros(2, dtype=torch.int64), torch.zeros(B).bool()):
            there = rows.to("meta")
            refused(lambda: built.select(there), TypeError, "rows: ")  # noqa: B023
        for wrong in (torch.tensor(1), torch.zeros(2, 2).long(), torch.tensor([B])):
            refused(lambda: built.select(wrong), ValueError, "rows: ")  # noqa: B023
        refused(lambda: built.select(torch.zeros(B - 1).bool()), ValueError, "rows: ")  # noqa: B023
        assert len(built.select(torch.tensor([-1, 0, 0])).lengths) == 3


@call
def weights_of_another_kind() -> None:
    potentials, y = drawn()
    chain = Chain(*potentials)
    for ask in (chain.log_likelihood, chain.violation):
        refused(lambda: ask(y, torch.ones(B, device="meta")), TypeError, "weight: ")  # noqa: B023
        refused(lambda: ask(y, torch.ones(B - 1)), ValueError, "weight: ")  # noqa: B023
        refused(lambda: ask(y, torch.ones(B) * 1j), TypeError, "weight: ")  # noqa: B023
    for make in (StructuralHinge, CRFLoss, StructuredPerceptron):
        for reduction in ("none", "sum", "mean", "token_mean"):
            loss = make(reduction=reduction)
            there = torch.ones(B, device="meta")
            for built, gold in ((chain, y), (Multiclass(potentials[0][:, 0]), y[:, 0])):
                refused(lambda: loss(built, gold, weight=there), TypeError, "weight: ")  # noqa: B023
                classes = make(
                    reduction=reduction, class_weight=torch.ones(S, device="meta")
                )
                refused(lambda: classes(built, gold), TypeError, "class_weight: ")  # noqa: B023


@call
def storage_that_was_let_go() -> None:
    potentials, _ = drawn()
    edges = potentials[1].expand(B, T - 1, S, S).contiguous()
    for place, value in [*enumerate(potentials), (1, edges)]:
        given = list(potentials)
        given[place] = value.clone()
        given[place].untyped_storage().resize_(0)
        refused(lambda: Chain(*given), ValueError, "memory was freed")  # noqa: B023


if __name__ == "__main__":
    # what every call needs is loaded once
    everything(Chain(*drawn()[0]), drawn()[1])
    for name, function in CALLS.items():
        child = os.fork()
        if child == 0:
            status = 1
            try:
                function()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        _, waited = os.waitpid(child, 0)
        status = os.waitstatus_to_exitcode(waited)
        sys.stdout.write(f"{name}\t{status}\n")
        sys.stdout.flush()
