"""Decisions as layers, and losses over pools: each formula, from all outputs."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from smoothsp.losses import (
    ImplicitMLE,
    Interpolation,
    ListwiseRanking,
    NegativeIdentity,
    NoiseContrastive,
    PairwiseRanking,
    Perturbed,
    PerturbedLoss,
    SolutionPool,
)
from smoothsp.losses.perturbed import draw_noise
from smoothsp.oracles import Chain, Matching, Multiclass

CLOSE = {"rtol": 1e-9, "atol": 1e-9}
OUTPUTS = torch.tensor(list(itertools.permutations(range(3))))


def parts_of_all():
    """Of each permutation of three, its matrix: ``(6, 3, 3)``."""
    return torch.nn.functional.one_hot(OUTPUTS, 3).double()


def drawn(seed=0, batch=4):
    generator = torch.Generator().manual_seed(seed)
    shape = batch, 3, 3
    scores, g = (torch.randn(shape, generator=generator).double() for _ in range(2))
    return scores.requires_grad_(), g


def best(scores):
    """Parts of the best permutation, by listing them."""
    table = parts_of_all()
    return table[(scores.flatten(1) @ table.flatten(1).T).argmax(1)]


@pytest.mark.parametrize("strength", [0.1, 3.0])
def test_interpolation_is_a_difference_of_two_best_outputs(strength):
    scores, g = drawn(batch=40)
    found = Interpolation(strength)(Matching(scores))
    assert_close(found.detach(), best(scores.detach()))
    (found * g).sum().backward()
    moved = best(scores.detach() - strength * g)
    assert_close(scores.grad, (best(scores.detach()) - moved) / strength, **CLOSE)
    assert scores.grad.any()


def test_the_negative_identity_sends_back_what_comes():
    scores, g = drawn()
    forbidden = scores.detach().clone()
    forbidden[0, 1, 2] = -torch.inf
    forbidden.requires_grad_()
    found = NegativeIdentity()(Matching(forbidden))
    assert_close(found.detach(), best(forbidden.detach().clamp(min=-1e9)))
    (found * g).sum().backward()
    g[0, 1, 2] = 0
    assert_close(forbidden.grad, g)


@pytest.mark.parametrize("noise", ["gumbel", "normal", "sum_of_gamma"])
def test_implicit_mle_is_a_difference_of_means_under_one_noise(noise):
    scores, g = drawn()
    decide = ImplicitMLE(5, strength=2.0, sigma=0.7, noise=noise, seed=3)
    found = decide(Matching(scores))
    (found * g).sum().backward()
    again = decide(Matching(scores.detach() - 2.0 * g))
    assert_close(decide(Matching(scores.detach())), found.detach())
    assert_close(scores.grad, (found.detach() - again) / 2.0, **CLOSE)
    assert scores.grad.any()


def test_in_the_mean_implicit_mle_is_the_derivative_of_the_perturbed_maximum():
    scores = torch.tensor([[0.3, 0.0, -0.5]], dtype=torch.float64, requires_grad=True)
    g = torch.tensor([[1.0, -0.5, 0.0]], dtype=torch.float64)
    decide = ImplicitMLE(200_000, strength=0.05, noise="gumbel", seed=0)
    (decide(Multiclass(scores)) * g).sum().backward()
    p = scores.detach().softmax(1)
    exact = p * (g - (p * g).sum(1, keepdim=True))
    assert_close(scores.grad, exact, rtol=0, atol=0.02)


@pytest.mark.long
def test_kappa_sums_of_gamma_variables_add_up_to_a_gumbel_variable():
    """Its quantiles; ten terms of the sum miss a variance of 1 / 10."""
    # the difference of two Gumbel variables is logistic
    for kappa in (1, 4):
        one = torch.zeros(1, 2 * kappa, dtype=torch.float64)
        generator = torch.Generator().manual_seed(kappa)
        z, _ = draw_noise(one, 100_000, "sum_of_gamma", generator, kappa)
        assert abs(float(z.mean())) < 0.01
        a, b = z[0].reshape(-1, 2, kappa).sum(2).unbind(1)
        for x in (-1.0, 0.0, 1.0, 2.0):
            share = float(((a - b) < x).double().mean())
            assert share == pytest.approx(
                float(torch.sigmoid(torch.tensor(x))), abs=0.02
            )


@pytest.mark.parametrize(
    "layer", [Interpolation(1.0), NegativeIdentity(), ImplicitMLE(2, seed=0)]
)
def test_layers_take_empty_batches_and_float32(layer):
    scores = torch.zeros(0, 3, 3, requires_grad=True)
    layer(Matching(scores)).sum().backward()
    assert scores.grad.shape == (0, 3, 3)
    emissions = torch.randn(2, 4, 3, requires_grad=True)
    found = layer(Chain(emissions, torch.zeros(3, 3), lengths=torch.tensor([4, 2])))
    assert found.dtype == torch.float32
    assert_close(found.sum(2), torch.tensor([[1.0, 1, 1, 1], [1, 1, 0, 0]]))
    found.square().sum().backward()
    assert emissions.grad[1, 2:].eq(0).all() or isinstance(layer, NegativeIdentity)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Interpolation(0.0), "strength"),
        (lambda: Interpolation(float("nan")), "strength"),
        (lambda: ImplicitMLE(samples=0), "samples"),
        (lambda: ImplicitMLE(sigma=-1.0), "sigma"),
        (lambda: ImplicitMLE(noise="uniform"), "noise"),
        (lambda: ImplicitMLE(kappa=0), "kappa"),
        (lambda: PerturbedLoss(noise="gumbel", multiplicative=True), "noise"),
        (lambda: NoiseContrastive("some"), "against"),
        (lambda: PairwiseRanking(-1.0), "margin"),
        (lambda: ListwiseRanking(0.0), "temperature"),
    ],
)
def test_settings_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_multiplicative_noise_multiplies_the_potentials():
    scores, _ = drawn()
    generator = torch.Generator().manual_seed(1)
    perturbed = Perturbed(
        Matching(scores), 6, sigma=0.4, generator=generator, multiplicative=True
    )
    generator.manual_seed(1)
    z = torch.randn(4, 6, 3, 3, generator=generator, dtype=torch.float64)
    factor = (0.4 * z - 0.08).exp()
    noisy = (scores.detach()[:, None] * factor).flatten(0, 1)
    won = best(noisy).reshape(4, 6, 3, 3)
    assert_close(perturbed.marginals(), won.mean(1), **CLOSE)
    value = (won * noisy.reshape(won.shape)).sum((2, 3)).mean(1)
    assert_close(perturbed.maximum(), value, **CLOSE)
    (grad,) = torch.autograd.grad(perturbed.maximum().sum(), scores)
    assert_close(grad, (won * factor).mean(1), **CLOSE)


def test_the_derivative_of_shares_under_multiplicative_noise():
    """Of a choice of two, whose shares have a closed form."""
    theta = torch.tensor([[2.0, 1.5]], dtype=torch.float64, requires_grad=True)
    sigma, n = 0.5, 400_000

    def shares(theta):
        generator = torch.Generator().manual_seed(0)
        choice = Multiclass(theta)
        found = Perturbed(choice, n, sigma, "normal", generator, multiplicative=True)
        return found.marginals()[0, 0]

    (grad,) = torch.autograd.grad(shares(theta), theta)
    # log theta_1 - log theta_2 + sigma (Z_1 - Z_2) > 0
    normal = torch.distributions.Normal(0.0, 1.0)
    spread = sigma * 2**0.5
    at = (theta.detach()[0, 0] / theta.detach()[0, 1]).log() / spread
    slope = normal.log_prob(at).exp() / spread
    exact = torch.stack([slope / theta[0, 0], -slope / theta[0, 1]]).detach()
    assert_close(grad[0], exact, rtol=0, atol=0.01)


def predictions(seed=0):
    """Predicted and true scores of matchings, the best ones, and their scores."""
    scores, true = drawn(seed)
    table = parts_of_all().flatten(1)
    y = OUTPUTS[(true.flatten(1) @ table.T).argmax(1)]
    return scores, true, y, scores.flatten(1) @ table.T, true.flatten(1) @ table.T


def losses_of(loss, pool=OUTPUTS):
    scores, true, y, _, _ = predictions()
    loss.reduction = "none"
    return loss(Matching(scores), y, true, pool)


def test_contrastive_losses_are_their_formulas():
    _, _, _, s, t = predictions()
    gold = t.argmax(1, keepdim=True)
    ahead, gain = s - s.gather(1, gold), t - t.gather(1, gold)
    for against, relative in itertools.product(("all", "best"), (False, True)):
        wanted = ahead - gain if relative else ahead
        wanted = wanted.mean(1) if against == "all" else wanted.amax(1)
        assert_close(losses_of(NoiseContrastive(against, relative)), wanted, **CLOSE)


def test_ranking_losses_are_their_formulas():
    _, _, _, s, t = predictions()
    pairs = torch.zeros(4, dtype=torch.float64)
    for b, gold in enumerate(t.argmax(1)):
        rivals = [i for i in range(6) if t[b, i] < t[b, gold]]
        for i in rivals:
            pairs[b] += max(0.0, 0.3 + s[b, i] - s[b, gold]) / len(rivals)
    assert_close(losses_of(PairwiseRanking(0.3)), pairs, **CLOSE)
    lists = -((t / 2).softmax(1) * (s / 2).log_softmax(1)).sum(1)
    assert_close(losses_of(ListwiseRanking(2.0)), lists, **CLOSE)


def test_pools_of_each_row_and_of_all_rows_agree():
    every = OUTPUTS.expand(4, 6, 3)
    for loss in (NoiseContrastive(), PairwiseRanking(), ListwiseRanking()):
        assert_close(losses_of(loss), losses_of(loss, every))
        assert_close(losses_of(loss), losses_of(loss, SolutionPool(OUTPUTS)))
    with pytest.raises(ValueError, match="pool: "):
        losses_of(NoiseContrastive(), OUTPUTS[:, :2])


def test_a_pool_keeps_each_output_once():
    pool = SolutionPool(OUTPUTS[[0, 1, 0]])
    assert len(pool) == 2
    pool.add(OUTPUTS[[1, 5]])
    assert {tuple(y) for y in pool.outputs.tolist()} == {
        tuple(y) for y in OUTPUTS[[0, 1, 5]].tolist()
    }
