"""Parameters on a GPU, and all that is kept for them, stay there."""

import copy

import pytest
import torch
from torch import nn

from smoothsp.optim import SVRG, CasimirSVRG, Linearised, ProxLinear

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 5, bidirectional=True, batch_first=True)
        self.drop, self.out = nn.Dropout(0.2), nn.Linear(10, 3)

    def forward(self, x):
        return self.out(self.drop(self.lstm(x)[0]))


def problem():
    torch.manual_seed(0)
    model = Recurrent().cuda()
    x = torch.randn(24, 6, 4, device="cuda")
    y = x.argmax(-1).clamp(max=2)
    return model, list(zip(x.split(6), y.split(6), strict=True))


def cross_entropy(model):
    def closure(batch):
        scores = model(batch[0]).flatten(0, 1)
        loss = nn.functional.cross_entropy(scores, batch[1].flatten())
        loss.backward()
        return loss

    return closure


def on_device(optimizer):
    kept = [t for one in optimizer.state.values() for t in one.values()]
    params = [p for group in optimizer.param_groups for p in group["params"]]
    return all(t.is_cuda for t in [*kept, *params])


@pytest.mark.parametrize(
    "build",
    [
        lambda p: SVRG(p, 0.2),
        lambda p: CasimirSVRG.const(
            p, smoothness=4.0, num_batches=4, warm_start="extrapolation"
        ),
        lambda p: CasimirSVRG(p, smoothness=4.0, kappa=0.1, stop="relative"),
    ],
)
def test_svrg_and_casimir(build):
    model, batches = problem()
    optimizer = build(model.parameters())
    losses = [optimizer.epoch(cross_entropy(model), batches) for _ in range(10)]
    assert losses[-1] < losses[0] and on_device(optimizer)
    state = copy.deepcopy(optimizer.state_dict())
    optimizer.load_state_dict(state)
    optimizer.epoch(cross_entropy(model), batches)
    assert on_device(optimizer)


def test_prox_linear_through_a_recurrent_network():
    model, batches = problem()
    model.drop.eval()
    optimizer = ProxLinear(model, 10.0, smoothness=4.0)
    closure = cross_entropy(optimizer.model)
    values = [optimizer.step(closure, batches) for _ in range(4)]
    assert values == sorted(values, reverse=True) and values[-1] < values[0]
    assert on_device(optimizer)
    assert all(u.is_cuda for u in optimizer.model.variables)


def test_linearised_lstm_is_that_of_the_cpu():
    model, batches = problem()
    model.eval()
    x = batches[0][0]
    outputs = []
    for device in ("cuda", "cpu"):
        linear = Linearised(copy.deepcopy(model).to(device).double())
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for u in linear.variables:
                u.copy_(torch.randn(u.shape, generator=generator))
        found = linear(x.to(device).double())
        found.square().sum().backward()
        outputs.append(
            [found.detach().cpu(), *(u.grad.cpu() for u in linear.variables)]
        )
    for on_gpu, on_cpu in zip(*outputs, strict=True):
        torch.testing.assert_close(on_gpu, on_cpu)
