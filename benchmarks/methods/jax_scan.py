"""The chain as a jitted `lax.scan` in JAX, in the forms that were fastest here.

NLL: in probability space, a product and a logarithm a step. Decode: back-pointers while
there are few states, otherwise the lattice of maxima, from which the way back takes one
column a step. Hinge: the score of the augmented maximiser, by Danskin's theorem.
Arrays are on the device before a call, and every call waits for its answer.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from inference.problems import Problem
from inference.questions import DECODE, HINGE, MARGINALS, NLL, TOP, Answer, Method

FEW_STATES = 16
jax.config.update("jax_enable_x64", True)  # float32 stays float32


def score(emissions, transitions, start, end, labels, mask):
    unary = jnp.take_along_axis(emissions, labels[..., None], 2)[..., 0]
    moves = transitions[labels[:, :-1], labels[:, 1:]]
    last = labels[:, -1]
    if mask is not None:
        unary, moves = unary * mask, moves * mask[:, 1:]
        last = jnp.take_along_axis(labels, mask.sum(1, keepdims=True) - 1, 1)[:, 0]
    return unary.sum(1) + moves.sum(1) + start[labels[:, 0]] + end[last]


def steps(emissions, mask):
    """Emissions [T - 1, B, S] of positions 1, 2, ..., and which are real [T - 1, B]."""
    real = None if mask is None else mask[:, 1:].T
    return emissions[:, 1:].swapaxes(0, 1), real


def keep(real, new, old):
    if real is None:
        return new
    return jnp.where(real.reshape(-1, *[1] * (new.ndim - 1)), new, old)


def log_partition(emissions, transitions, start, end, mask):
    highest = lax.stop_gradient(transitions.max())
    weights = jnp.exp(transitions - highest)

    def step(alpha, given):
        emission, real = given
        top = lax.stop_gradient(alpha.max(1, keepdims=True))
        moved = jnp.log(jnp.exp(alpha - top) @ weights) + top + emission
        return keep(real, moved, alpha), None

    given = steps(emissions + highest, mask)
    # fewer rows, less work a step: then the loop itself is what costs
    unroll = 8 if emissions.shape[0] < 4 else 1
    alpha, _ = lax.scan(step, start + emissions[:, 0], given, unroll=unroll)
    return jax.nn.logsumexp(alpha + end, axis=1)


def nll(emissions, transitions, start, end, labels, mask):
    potentials = (emissions, transitions, start, end)
    return (log_partition(*potentials, mask) - score(*potentials, labels, mask)).mean()


def decode(emissions, transitions, start, end, mask):
    few = transitions.shape[0] <= FEW_STATES

    def step(best, given):
        emission, real = given
        moves = best[:, :, None] + transitions
        moved = keep(real, moves.max(1) + emission, best)
        return moved, lax.argmax(moves, 1, jnp.int32) if few else best

    def back(label, given):
        kept, real = given
        if few:
            before = jnp.take_along_axis(kept, label[:, None], 1)[:, 0]
        else:
            before = lax.argmax(kept + transitions.T[label], 1, jnp.int32)
        return keep(real, before, label), label

    given = steps(emissions, mask)
    best, kept = lax.scan(step, start + emissions[:, 0], given)
    label = lax.argmax(best + end, 1, jnp.int32)
    first, labels = lax.scan(back, label, (kept, given[1]), reverse=True)
    return (best + end).max(1), jnp.concatenate([first[None], labels]).T


def hinge(emissions, transitions, start, end, labels, mask):
    potentials = (emissions, transitions, start, end)
    cost = 1 - jax.nn.one_hot(labels, len(start), dtype=emissions.dtype)
    augmented = (emissions + cost, transitions, start, end)
    _, worst = decode(*map(lax.stop_gradient, augmented), mask)
    wrong = worst != labels if mask is None else (worst != labels) & mask
    gap = score(*potentials, worst, mask) - score(*potentials, labels, mask)
    return (gap + wrong.sum(1)).mean()


def decode_topk(emissions, transitions, start, end, mask, k):
    B, _, S = emissions.shape
    best = jnp.full((B, S, k), -jnp.inf, emissions.dtype)
    best = best.at[:, :, 0].set(start + emissions[:, 0])
    here = jnp.arange(S * k, dtype=jnp.int32).reshape(1, S, k)

    def step(best, given):
        emission, real = given
        moves = (best[:, :, :, None] + transitions[:, None, :]).reshape(B, S * k, S)
        moved, pointer = lax.top_k(moves.swapaxes(1, 2), k)
        moved = keep(real, moved + emission[:, :, None], best)
        return moved, keep(real, pointer, here).reshape(B, S * k)

    def back(cell, pointer):  # a cell is state * k + rank
        return jnp.take_along_axis(pointer, cell, 1), cell

    best, pointers = lax.scan(step, best, steps(emissions, mask))
    values, cell = lax.top_k((best + end[:, None]).reshape(B, S * k), k)
    first, cells = lax.scan(back, cell, pointers, reverse=True)
    labels = jnp.concatenate([first[None], cells]) // k  # [T, B, k]
    return values, labels.transpose(1, 2, 0)


def marginals(emissions, transitions, start, end, mask):
    def total(emissions):
        return log_partition(emissions, transitions, start, end, mask).sum()

    return jax.grad(total)(emissions)


def methods(problem: Problem) -> dict[str, Method]:
    given = [jnp.asarray(x.detach().numpy()) for x in problem.potentials]
    labels = jnp.asarray(problem.labels.numpy(), jnp.int32)
    mask = None if problem.lengths is None else jnp.asarray(problem.mask.numpy())
    gradients = partial(jax.value_and_grad, argnums=(0, 1, 2, 3))

    def loss(value, gradient) -> Answer:
        return read(value), *map(read, gradient)

    answers = {
        NLL: (gradients(nll), (labels, mask), lambda x: loss(*x)),
        HINGE: (gradients(hinge), (labels, mask), lambda x: loss(*x)),
        DECODE: (decode, (mask,), lambda x: (read(x[1]),)),
        MARGINALS: (marginals, (mask,), lambda x: (read(x),)),
    }
    for k, question in TOP.items():
        function = partial(decode_topk, k=k)
        answers[question] = (function, (mask,), lambda x: (read(x[1]),))
    return {
        question: Method(question, problem, jitted(f, *given, *rest), reader, True)
        for question, (f, rest, reader) in answers.items()
    }


def jitted(function, *given):
    compiled = jax.jit(function)
    return lambda: jax.block_until_ready(compiled(*given))


def read(array) -> torch.Tensor:
    found = torch.from_numpy(np.array(array))
    return found if found.is_floating_point() else found.long()
