"""Low-rank adaptation: what is trained, what stays, and what comes of it."""

import numpy as np
import pytest

import needle as ndl
from needle import nn, optim
from needle_nn.checkpoint import load, save
from needle_nn.lora import LoRA, add_lora, load_lora_state, lora_state, merge_lora
from needle_nn.models import GPT, GPT2, Llama, VisionTransformer

rng = np.random.default_rng
IDS = rng(0).integers(0, 23, (4, 9))
IMAGES = rng(0).normal(size=(4, 3, 16, 16)).astype("float32")

#: model, names, how many linear maps these are, input
MODELS = {
    "GPT": (lambda: GPT(23, 12, 16, 2, 4), ["qkv", "mlp.1"], 4, IDS),
    "GPT2": (lambda: GPT2(23, 12, 16, 2, 4), ["c_attn"], 2, IDS),
    "Llama": (lambda: Llama(23, 12, 16, 24, 2, 4, 2), ["q_proj", "v_proj", "mlp.down_proj"], 6, IDS),
    "VisionTransformer": (lambda: VisionTransformer(16, 8, 2, 2, 16, 24, 23), ["mlp.0", "heads.head"], 3, IMAGES),
    "Sequential": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(768, 8), nn.ReLU(), nn.Linear(8, 23)),
        ["1"],
        1,
        IMAGES,
    ),
}


def step(model, x, optimizer):
    y = model(ndl.Tensor(x))
    loss = nn.SoftmaxLoss()(y.reshape((-1, 23)), np.arange(y.size // 23) % 23)
    optimizer.reset_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@pytest.mark.parametrize("name", MODELS)
def test_only_what_was_added_learns(name):
    make, names, count, x = MODELS[name]
    model = make()
    before, kept = model(ndl.Tensor(x)).numpy(), model.state_dict()
    trained = add_lora(model, names, rank=2)
    assert sum(isinstance(module, LoRA) for _, module in model.named_modules()) == count
    assert len(trained) == 2 * count and all(p.requires_grad for p in trained)
    np.testing.assert_array_equal(model(ndl.Tensor(x)).numpy(), before)  # B begins as zeros
    optimizer = optim.Adam(trained, lr=0.05)
    losses = [step(model, x, optimizer) for _ in range(12)]
    assert losses[-1] < losses[0] - 0.05
    for key, array in model.state_dict().items():
        if ".lora_" not in key:
            there = kept[f".{key}".replace(".linear.", ".")[1:]]
            np.testing.assert_array_equal(array.numpy(), there.numpy(), err_msg=key)
    assert [p.grad is None for p in model.parameters()] == [not p.requires_grad for p in model.parameters()]


@pytest.mark.parametrize("name", MODELS)
def test_merged_it_is_the_same_function(name):
    make, names, _, x = MODELS[name]
    model = make()
    shapes = {key: p.shape for key, p in model.named_parameters()}
    optimizer = optim.Adam(add_lora(model, names, rank=3, alpha=5), lr=0.05)
    for _ in range(3):
        step(model, x, optimizer)
    learnt = model.eval()(ndl.Tensor(x)).numpy()
    assert merge_lora(model) is model
    np.testing.assert_allclose(model(ndl.Tensor(x)).numpy(), learnt, rtol=1e-4, atol=1e-5)
    assert {key: p.shape for key, p in model.named_parameters()} == shapes
    assert all(p.requires_grad for p in model.parameters())


def test_a_file_of_what_was_learnt(tmp_path):
    make, names, _, x = MODELS["GPT2"]
    np.random.seed(0)  # noqa: NPY002
    model = make()
    whole = model.state_dict()
    optimizer = optim.Adam(add_lora(model, names), lr=0.05)
    step(model, x, optimizer)
    save(tmp_path / "lora.safetensors", lora_state(model))
    other = make()
    other.load_state_dict(whole)
    add_lora(other, names)
    load_lora_state(other, load(tmp_path / "lora.safetensors"))
    np.testing.assert_array_equal(other(x).numpy(), model(x).numpy())
    with pytest.raises(ValueError, match="4 tensors here, 0 given"):
        load_lora_state(other, {})


WRONG = {
    "no such name": (lambda: add_lora(GPT2(9, 4, 8, 1, 2), ["c_attn", "q_proj"]), ValueError, "no Linear of GPT2 is called q_proj"),
    "no name": (lambda: add_lora(GPT2(9, 4, 8, 1, 2), []), ValueError, "no Linear of GPT2 is named"),
    "an embedding": (lambda: add_lora(GPT2(9, 4, 8, 1, 2), ["wte"]), ValueError, "no Linear of GPT2 is called wte"),
    "rank": (lambda: add_lora(GPT2(9, 4, 8, 1, 2), ["c_attn"], rank=0), ValueError, "rank must be an int of at least 1, got 0"),
    "a relu": (lambda: LoRA(nn.ReLU()), TypeError, "expected a Linear, got ReLU"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_refused(case):
    call, kind, message = WRONG[case]
    with pytest.raises(kind, match=message):
        call()


def test_a_model_that_is_refused_stays_as_it_was():
    model = GPT2(9, 4, 8, 1, 2)
    with pytest.raises(ValueError, match="q_proj"):
        add_lora(model, ["c_attn", "q_proj"])
    assert not any(isinstance(module, LoRA) for _, module in model.named_modules())
    assert all(p.requires_grad for p in model.parameters())
    add_lora(model, ["c_attn"])
    with pytest.raises(ValueError, match="has LoRA already"):
        add_lora(model, ["c_proj"])
