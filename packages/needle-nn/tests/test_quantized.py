"""Layers of eight bits and models in half precision: error bounds, states, files, memory, gradients."""

import numpy as np
import pytest

import needle as ndl
import needle_ndarray as nd
from needle import nn
from needle_nn.checkpoint import load, load_checkpoint, save, save_checkpoint
from needle_nn.generation import Sampling, generate
from needle_nn.interop import from_torch, to_torch
from needle_nn.models import GPT, GPT2, LanguageModel, Llama
from needle_nn.weights import Weights

HALVES = ["float16", "bfloat16"]


def model():
    np.random.seed(0)  # noqa: NPY002
    return nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Residual(nn.Linear(48, 48)), nn.Linear(48, 10, bias=False))


def inputs(*shape):
    return ndl.Tensor(np.random.default_rng(1).normal(size=shape).astype("float32"))


def test_quantized_weights_are_off_by_half_a_step():
    layer = nn.Linear(300, 40)
    w = layer.weight.numpy()
    w[7] *= 100.0
    w[:, 3] = 0.0
    layer.weight.data = ndl.Tensor(w)
    small = nn.QuantizedLinear(layer)
    scale = np.maximum(np.abs(w).max(0) / 127, 0)
    found = (small.bytes.numpy().astype("float64") - 128) * small.scale.numpy()
    assert (np.abs(found - w) <= scale / 2 * (1 + 1e-5)).all() and (found[:, 3] == 0).all()
    assert small.bytes.numpy().min() >= 1  # -127: as far below 128 as 255 is above
    x = inputs(5, 300)
    bound = np.abs(x.numpy()) @ np.broadcast_to(scale / 2, w.shape) + 1e-3
    assert (np.abs(small(x).numpy() - layer(x).numpy()) <= bound).all()


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_a_quantized_model_is_near_and_small(rows):
    net, x = model(), inputs(rows, 64)
    expected, size = net(x).numpy(), sum(p.realize_cached_data().nbytes for p in net.state_dict().values())
    made = nn.quantize(net)
    assert made is net and isinstance(net[2].fn, nn.QuantizedLinear) and not hasattr(net[0], "weight")
    np.testing.assert_allclose(net(x).numpy(), expected, atol=0.03 * np.abs(expected).max())
    assert sum(p.realize_cached_data().nbytes for p in net.state_dict().values()) < 0.32 * size


def test_quantized_embedding():
    table = nn.Embedding(50, 16)
    w, ids = table.weight.numpy(), [[3, 49], [0, 3]]
    small = nn.quantize(nn.Sequential(table), embeddings=True)[0]
    assert small is table and type(table) is nn.QuantizedEmbedding
    step = np.abs(w).max(1, keepdims=True) / 127
    assert (np.abs(small(ids).numpy() - w[ids]) <= step[ids] / 2 * (1 + 1e-5)).all()


SIZES = {"vocab_size": 90, "context": 64, "embedding_size": 32, "num_layers": 2, "num_head": 4}
#: models whose embeddings are used in other ways than by ids: as the map to the vocabulary, row by row
MODELS = {
    "gpt": lambda: GPT(**SIZES),
    "gpt2": lambda: GPT2(**SIZES),
    "gpt2, not tied": lambda: GPT2(**SIZES, tied=False),
    "llama": lambda: Llama(**SIZES, hidden_size=48, num_groups=2, tied=True),
}


@pytest.mark.parametrize("name", MODELS)
def test_language_models_of_bytes(name, tmp_path):
    np.random.seed(1)  # noqa: NPY002
    net, ids = MODELS[name]().eval(), np.random.default_rng(0).integers(0, 90, (2, 9))
    expected = net(ids).numpy()
    held = {id(p): p.size for p in net.parameters()}
    assert nn.quantize(net, embeddings=True) is net
    found = net(ids).numpy()
    np.testing.assert_allclose(found, expected, atol=0.04 * np.abs(expected).max())
    state = net.state_dict()
    assert not [key for key, p in net.named_parameters() if p.ndim == 2 and p.shape[0] > 1]
    assert sum(p.realize_cached_data().nbytes for p in state.values()) < 0.4 * 4 * sum(held.values())
    again = nn.quantize(MODELS[name]().eval(), embeddings=True)
    save(tmp_path / "a", state)
    again.load_state_dict(load(tmp_path / "a"))
    assert np.array_equal(again(ids).numpy(), found)
    (made,) = generate(net, ids[:1], 20, sampling=Sampling(temperature=0))
    row = list(ids[0])
    for _ in range(20):
        row.append(int(net(np.array([row])).numpy()[0, -1].argmax()))
    assert row[9:] == made.tolist()


def test_the_positions_of_a_transformer_in_bytes():
    np.random.seed(1)  # noqa: NPY002
    net = LanguageModel(16, 30, 24, seq_model="transformer", seq_len=8, num_head=2, dim_head=8).eval()
    ids = np.random.default_rng(0).integers(0, 30, (6, 2))
    expected = net(ids)[0].numpy()
    found = nn.quantize(net, embeddings=True)(ids)[0].numpy()
    np.testing.assert_allclose(found, expected, atol=0.05 * np.abs(expected).max())


def test_an_embedding_as_a_map():
    table, x = nn.Embedding(7, 5), inputs(2, 3, 5)
    np.testing.assert_allclose(table.as_linear(x).numpy(), x.numpy() @ table.weight.numpy().T, rtol=1e-5)
    assert np.array_equal(table.rows(slice(2, 5)).numpy(), table.weight.numpy()[2:5])
    small = nn.QuantizedEmbedding(table)
    rows = small(np.arange(7)).numpy()
    np.testing.assert_allclose(small.as_linear(x).numpy(), x.numpy() @ rows.T, rtol=1e-5, atol=1e-6)
    assert np.array_equal(small.rows(slice(2, 5)).numpy(), rows[2:5])
    with pytest.raises(ValueError, match=r"QuantizedEmbedding: .*shape \(2, 4\)"):
        small.as_linear(inputs(2, 4))


def test_quantize_keeps_what_it_is_told_to():
    net = nn.quantize(model(), keep=lambda name, layer: name == "3")
    assert type(net[0]) is nn.QuantizedLinear and type(net[3]) is nn.Linear
    bad = nn.Linear(2, 2)
    bad.weight.data = ndl.Tensor(np.full((2, 2), np.nan, "float32"))
    with pytest.raises(ValueError, match=r"a weight of shape \(2, 2\) has NaN or infinite entries"):
        nn.quantize(bad)


def test_a_quantized_state_is_saved_and_loaded(tmp_path):
    net, x = nn.quantize(model()), inputs(4, 64)
    save(tmp_path / "a", net.state_dict())
    other = nn.quantize(model())
    other[0].bytes.data = ndl.Tensor(np.zeros((64, 48), "uint8"), dtype="uint8")
    other.load_state_dict(load(tmp_path / "a"))
    assert np.array_equal(other(x).numpy(), net(x).numpy())


def test_gradients_go_through_a_quantized_layer():
    layer, x = nn.Linear(6, 4), ndl.Tensor(inputs(3, 6).numpy(), requires_grad=True)
    small = nn.QuantizedLinear(layer)
    small(x).sum().backward()
    wide = (small.bytes.numpy().astype("float32") - 128) * small.scale.numpy()
    np.testing.assert_allclose(x.grad.numpy(), np.ones((3, 4)) @ wide.T, rtol=1e-5)


# ---- Halves ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("rows", [1, 30])
def test_a_model_in_half_precision(dtype, rows):
    net, x = model(), inputs(rows, 64)
    expected = net(x).numpy()
    assert (net.half() if dtype == "float16" else net.bfloat16()) is net
    assert {p.dtype for p in net.parameters()} == {dtype} and net(x).dtype == "float32"
    np.testing.assert_allclose(net(x).numpy(), expected, atol=0.02 * np.abs(expected).max())
    assert net(x.astype(dtype)).dtype == dtype
    assert {p.dtype for p in net.float().parameters()} == {"float32"}


@pytest.mark.parametrize("dtype", HALVES)
def test_half_states_and_files(tmp_path, dtype):
    net = model().to(dtype)
    save(tmp_path / "bare", net.state_dict())
    save_checkpoint(tmp_path / "all", {"net": net.state_dict(), "array": nd.array([1 / 3], dtype), "step": 3})
    everything = load_checkpoint(tmp_path / "all")
    assert everything["array"].dtype == dtype and everything["step"] == 3
    for state in (load(tmp_path / "bare"), everything["net"]):
        assert all(state[name].dtype == dtype for name in net.state_dict())
        for name, value in net.state_dict().items():
            assert np.array_equal(nd.words(state[name].realize_cached_data()), nd.words(value.realize_cached_data()))
        other = model().to(dtype)
        other.load_state_dict(state)
        wide = model()
        wide.load_state_dict(state)
        assert np.array_equal(wide[0].weight.numpy(), net[0].weight.numpy().astype("float32"))
    with Weights(tmp_path / "bare") as weights:
        for kind in ("float32", *HALVES):
            out = nd.empty((64, 48), kind)
            weights.copy_to("0.weight", out)
            assert np.array_equal(nd.words(out), nd.words(net[0].weight.realize_cached_data().astype(kind)))
            turned = nd.empty((48, 64), kind)
            weights.copy_to("0.weight", turned, (1, 0))
            assert np.array_equal(nd.words(turned), nd.words(out).T)


@pytest.mark.parity
@pytest.mark.parametrize("dtype", HALVES)
def test_pytorch_reads_and_writes_halves(tmp_path, dtype):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    net = model().to(dtype)
    save(tmp_path / "ours", net.state_dict())
    theirs = load_file(tmp_path / "ours")
    assert all(t.dtype == getattr(torch, dtype) for t in theirs.values())
    assert np.array_equal(theirs["0.weight"].float().numpy(), net[0].weight.numpy())
    save_file(theirs, tmp_path / "theirs")
    assert np.array_equal(load(tmp_path / "theirs")["0.weight"].numpy(), net[0].weight.numpy())


@pytest.mark.parametrize("dtype", HALVES)
def test_a_gpt2_in_half_precision(dtype, tmp_path):
    sizes = {"vocab_size": 90, "context": 16, "embedding_size": 32, "num_layers": 2, "num_head": 4}
    np.random.seed(1)  # noqa: NPY002
    wide = GPT2(**sizes).eval()
    expected = wide([[1, 2, 3, 4]]).numpy()
    save(tmp_path / "model.safetensors", {name: nd.array(a, dtype) for name, a in to_torch(wide).items()})
    wide.to(dtype)
    names = {name: value.numpy() for name, value in wide.state_dict().items()}
    small = GPT2(**sizes, dtype=dtype).eval()
    small.load_state_dict(names)
    got = small([[1, 2, 3, 4]])
    np.testing.assert_allclose(got.numpy(), expected, atol=0.03 * np.abs(expected).max())
    loaded = from_torch(GPT2(**sizes, dtype=dtype).eval(), tmp_path / "model.safetensors")
    assert np.array_equal(loaded([[1, 2, 3, 4]]).numpy(), got.numpy())
    assert {p.dtype for p in loaded.parameters()} == {dtype}


@pytest.mark.parametrize("dtype", HALVES)
def test_gradients_through_casts(dtype):
    x = ndl.Tensor(np.array([0.1, -2.0, 3.0], "float32"), requires_grad=True)
    y = x.astype(dtype) * 3
    assert y.dtype == dtype
    y.astype("float32").sum().backward()
    assert x.grad.dtype == "float32" and x.grad.tolist() == [3.0, 3.0, 3.0]
    small = ndl.Tensor(nd.array([1.0, 2.0], dtype), requires_grad=True)
    (small * small).sum().backward()
    assert small.grad.tolist() == [2.0, 4.0]
    ids = ndl.Tensor(np.array([2, 3]), requires_grad=False)
    assert (small + ids).dtype == dtype and (small + ids).tolist() == [3.0, 5.0]


def test_an_optimizer_wants_float32():
    net = model().bfloat16()
    with pytest.raises(TypeError, match=r"bfloat16, expected float32 or float64"):
        net(inputs(2, 64)).sum().backward()
        ndl.optim.SGD(net.parameters(), lr=0.1).step()
