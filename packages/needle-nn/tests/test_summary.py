"""How a module looks: its repr, and the table of its layers."""

import numpy as np
import pytest

from needle import nn


def test_repr_shows_settings_and_children():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.depth, self.name, self.sizes, self._hidden = 2, "net", (1, 2), 7
            self.stem = nn.Conv2d(1, 2, 3, bias=False)
            self.tail = {"a": [nn.Dropout(0.1)]}

    assert repr(Net()) == (
        "Net(depth=2, name='net', sizes=(1, 2)\n"
        "  stem: Conv2d(in_channels=1, out_channels=2, bias=None, kernel_size=3, stride=1, padding=0, dilation=1, groups=1)\n"
        "  tail.a.0: Dropout(p=0.1)\n"
        ")"
    )
    assert repr(nn.Sequential()) == "Sequential()"


def test_summary_counts_and_restores():
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.LSTM(4, 2), nn.Identity())
    model.modules[0].weight.requires_grad_(False)
    model.modules[1].eval()
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    assert model.summary((5, 7, 3)).splitlines() == [
        "layer                       output                           parameters",
        "Sequential                  (5, 7, 2), (1, 7, 2), (1, 7, 2)          80",
        "  0: Linear                 (5, 7, 4)                                16",
        "  1: Dropout                (5, 7, 4)                                 0",
        "  2: LSTM                   (5, 7, 2), (1, 7, 2), (1, 7, 2)          64",
        "    lstm_cells.0: LSTMCell  not called                               64",
        "  3: Identity               (5, 7, 2), (1, 7, 2), (1, 7, 2)           0",
        "80 parameters, 68 trained, 320 bytes",
    ]
    assert [m.training for _, m in model.named_modules()] == [True, True, False, True, True, True]
    assert "forward" not in vars(model) and all(p.grad is None for p in model.parameters())
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


def test_summary_restores_after_an_error():
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5))
    with pytest.raises(ValueError, match=r"Linear: input has shape \(2, 5\)"):
        model.summary((2, 5))
    assert model.training and not any("forward" in vars(m) for _, m in model.named_modules())


def test_summary_of_several_inputs_and_of_nothing_trained():
    table = nn.AttentionLayer(6, 2, 4, k_features=5, v_features=5).summary((2, 3, 6), (2, 4, 5), (2, 4, 5))
    assert "attn: MultiHeadAttention  (2, 2, 3, 4)" in table
    assert nn.ReLU().summary((2, 3)).splitlines()[-1] == "0 parameters, 0 trained, 0 bytes"
