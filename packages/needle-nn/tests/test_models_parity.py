"""Published networks beside PyTorch's, on random weights: real shapes, from files in three dtypes, gradients, and back again."""

import numpy as np
import pytest

import needle as ndl
from needle import init, nn
from needle_nn.generation import Sampling, generate
from needle_nn.interop import from_torch, pairs, to_torch
from needle_nn.models import GPT2, Llama, VisionTransformer, resnet18, resnet50, vit_b_16

pytestmark = pytest.mark.parity

IDS = np.random.default_rng(0).integers(0, 97, (2, 11))


def images(n, size):
    return np.random.default_rng(0).normal(size=(n, 3, size, size)).astype("float32")


#: ours, PyTorch's by its name in torch_models with its sizes, what they are given
SMALL = {
    "gpt2": (lambda: GPT2(97, 16, 32, 2, 4), ("GPT2", 97, 16, 32, 2, 4), IDS),
    "llama": (
        lambda: Llama(97, 16, 32, 48, 2, 4, 2, theta=500.0, eps=1e-5),
        ("Llama", 97, 32, 48, 2, 4, 2, 500.0, 1e-5),
        IDS,
    ),
    "vit": (lambda: VisionTransformer(32, 8, 2, 2, 16, 24), ("ViT", 32, 8, 2, 2, 16, 24), images(2, 32)),
    "resnet18": (resnet18, ("ResNet", (2, 2, 2, 2), False), images(2, 64)),
}
REAL = {
    "gpt2": (GPT2, ("GPT2", 50257, 1024, 768, 12, 12), IDS),
    "llama 1b, two layers": (
        lambda **made: Llama(2048, 8192, 2048, 8192, 2, 32, 8, theta=500000.0, eps=1e-5, **made),
        ("Llama", 2048, 2048, 8192, 2, 32, 8, 500000.0, 1e-5),
        np.random.default_rng(0).integers(0, 2048, (1, 130)),
    ),
    "resnet18": (resnet18, ("ResNet", (2, 2, 2, 2), False), images(1, 224)),
    "resnet50": (resnet50, ("ResNet", (3, 4, 6, 3), True), images(1, 224)),
    "vit_b_16": (vit_b_16, ("ViT", 224, 16, 12, 12, 768, 3072), images(1, 224)),
}

ROWS = SMALL | {f"real {name}": row for name, row in REAL.items()}


def rows_of(*names, slow=REAL):
    """Rows of small shapes; real ones take minutes together."""
    return [*names, *[pytest.param(f"real {name}", marks=pytest.mark.slow) for name in slow]]


def both(row):
    import torch_models

    make, (name, *sizes), x = row
    with init.without_draws():
        ours = make().eval()
    theirs = torch_models.fill(getattr(torch_models, name)(*sizes))
    return ours, theirs, x


def compare(found, wanted, what=""):
    wanted = wanted.detach().numpy() if hasattr(wanted, "detach") else wanted
    scale = abs(wanted).max()
    np.testing.assert_allclose(found / scale, wanted / scale, rtol=1e-5, atol=1e-5, err_msg=what)


@pytest.mark.parametrize("name", REAL)
def test_real_shapes(name):
    import torch

    ours, theirs, x = both(REAL[name])
    from_torch(ours, theirs.state_dict())
    with ndl.no_grad(), torch.no_grad():
        compare(ours(ndl.Tensor(x)).numpy(), theirs(torch.tensor(x)))


@pytest.mark.parametrize("name", SMALL)
def test_logits_loss_and_gradients(name):
    import torch

    ours, theirs, x = both(SMALL[name])
    from_torch(ours, theirs.state_dict())
    logits, wanted = ours(ndl.Tensor(x)), theirs(torch.tensor(x))
    compare(logits.numpy(), wanted)
    targets = np.random.default_rng(1).integers(0, logits.shape[-1], logits.shape[:-1]).reshape(-1)
    loss = nn.SoftmaxLoss()(logits.reshape((-1, logits.shape[-1])), targets)
    expected = torch.nn.functional.cross_entropy(wanted.flatten(0, -2), torch.tensor(targets))
    compare(loss.item(), expected)
    loss.backward()
    expected.backward()
    grads = dict(theirs.named_parameters())
    for pair in pairs(ours):
        if pair.tensor is not None and pair.name in grads:
            grad = pair.tensor.grad.numpy().reshape(pair.tensor.shape[-1:] if pair.flat else pair.tensor.shape)
            grad = grad if pair.axes is None else grad.transpose(np.argsort(pair.axes))
            compare(grad, grads[pair.name].grad, pair.name)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("resnet18", "float64"),
        *[
            pytest.param(name, "float64" if "resnet" in name else "float32", marks=pytest.mark.slow)
            for name in REAL
            if name != "resnet18"
        ],
    ],
)
def test_gradients_of_real_shapes(name, dtype):
    """Of relus in float64: among millions of them, the last bit of a float32 lets a few gradients pass or not."""
    import torch

    row = REAL[name]
    ours, theirs, x = both((lambda: row[0](dtype=dtype), *row[1:]))
    theirs.to(getattr(torch, dtype))
    from_torch(ours, theirs.state_dict())
    x = x if x.dtype.kind == "i" else x.astype(dtype)
    logits, expected = ours(ndl.Tensor(x, dtype=str(x.dtype))), theirs(torch.tensor(x))
    targets = np.random.default_rng(1).integers(0, logits.shape[-1], logits.shape[:-1]).reshape(-1)
    found = nn.SoftmaxLoss()(logits.reshape((-1, logits.shape[-1])), targets)
    wanted = torch.nn.functional.cross_entropy(expected.flatten(0, -2), torch.tensor(targets))
    found.backward()
    wanted.backward()
    compare(found.item(), wanted)
    grads = {key: p.grad for key, p in theirs.named_parameters()}
    of_ours = {pair.name: pair for pair in pairs(ours) if pair.name in grads}
    assert of_ours.keys() == grads.keys()
    for key, pair in of_ours.items():
        grad = pair.tensor.grad.numpy().reshape(pair.tensor.shape[-1:] if pair.flat else pair.tensor.shape)
        compare(grad if pair.axes is None else grad.transpose(np.argsort(pair.axes)), grads[key], key)


#: how tokens are drawn
DRAWS = {
    "likeliest": Sampling(temperature=0),
    "likeliest, penalty": Sampling(temperature=0, repetition_penalty=1.3),
    "all": Sampling(),
    "all at once": Sampling(temperature=0.7, top_k=20, top_p=0.8, repetition_penalty=1.2),
}


@pytest.mark.parametrize("how", DRAWS)
@pytest.mark.parametrize("name", rows_of("gpt2", "llama", slow=("gpt2", "llama 1b, two layers")))
def test_tokens_with_the_same_draws(name, how):
    """Those of PyTorch's logits, which are computed anew for every token; two prompts of different lengths."""
    import torch

    ours, theirs, _ = both(ROWS[name])
    from_torch(ours, theirs.state_dict())
    prompts = [[5, 9, 2], [7, 1, 1, 3, 96]]
    found = generate(ours, prompts, 11, sampling=DRAWS[how], seed=3)
    rows, rng = [list(prompt) for prompt in prompts], np.random.default_rng(3)
    for _ in range(11):
        with torch.no_grad():
            logits = np.stack([theirs(torch.tensor([row]))[0, -1].numpy() for row in rows])
        for row, token in zip(rows, DRAWS[how].draw(logits, rng, rows), strict=True):
            row.append(int(token))
    assert [row[len(prompt) :] for row, prompt in zip(rows, prompts, strict=True)] == [ids.tolist() for ids in found]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", rows_of(*SMALL))
def test_files_of_pytorch_and_back(tmp_path, name, dtype):
    import torch
    from safetensors.torch import save_file

    ours, theirs, x = both(ROWS[name])
    kind = getattr(torch, dtype)
    state = {
        key: p.to(kind).contiguous() if p.dtype.is_floating_point else p
        for key, p in theirs.state_dict().items()
        if key != "lm_head.weight" or "gpt2" not in name
    }
    save_file(state, tmp_path / "model.safetensors", {"format": "pt"})
    from_torch(ours, tmp_path)
    theirs.load_state_dict(
        {key: p.float() if p.dtype.is_floating_point else p for key, p in state.items()}, strict=False
    )
    compare(ours(ndl.Tensor(x)).numpy(), theirs(torch.tensor(x)))
    before = {key: p.clone() for key, p in theirs.state_dict().items()}
    theirs.load_state_dict({key: torch.from_numpy(array) for key, array in to_torch(ours).items()})
    torch.testing.assert_close(theirs.state_dict(), before, rtol=0, atol=0)
