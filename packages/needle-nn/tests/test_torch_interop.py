"""Weights to and from PyTorch by type of module: layouts, names, ties, and what does not fit."""

import numpy as np
import pytest
import safetensors.numpy
from checkpoint_helpers import same
from layer_table import ROWS

import needle as ndl
from needle import nn
from needle_nn.checkpoint import CheckpointError, save
from needle_nn.interop import Pair, from_torch, register, to_torch

rng = np.random.default_rng


def draw(shape, seed=0):
    return rng(seed).normal(size=shape).astype("float32")


#: module, PyTorch's names and shapes
MODULES = {
    "Linear": (lambda: nn.Linear(3, 5), {"weight": (5, 3), "bias": (5,)}),
    "Linear/square": (lambda: nn.Linear(4, 4, bias=False), {"weight": (4, 4)}),
    "Conv1d": (lambda: nn.Conv1d(4, 6, 3, groups=2), {"weight": (6, 2, 3), "bias": (6,)}),
    "Conv2d": (lambda: nn.Conv2d(4, 6, (3, 5), groups=2), {"weight": (6, 2, 3, 5), "bias": (6,)}),
    "Conv": (lambda: nn.Conv(2, 6, 3, bias=False), {"weight": (6, 2, 3, 3)}),
    "Conv3d": (lambda: nn.Conv3d(4, 6, (3, 5, 2), groups=2), {"weight": (6, 2, 3, 5, 2), "bias": (6,)}),
    "ConvTranspose3d": (
        lambda: nn.ConvTranspose3d(4, 6, (3, 5, 2), groups=2),
        {"weight": (4, 3, 3, 5, 2), "bias": (6,)},
    ),
    "BatchNorm3d": (
        lambda: nn.BatchNorm3d(3),
        {**dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (3,)), "num_batches_tracked": ()},
    ),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 6, (3, 5), groups=2), {"weight": (4, 3, 3, 5), "bias": (6,)}),
    "Embedding": (lambda: nn.Embedding(7, 3), {"weight": (7, 3)}),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(7, 3), {"weight": (7, 3)}),
    "BatchNorm2d": (
        lambda: nn.BatchNorm2d(3),
        {"weight": (3,), "bias": (3,), "running_mean": (3,), "running_var": (3,), "num_batches_tracked": ()},
    ),
    "LayerNorm1d": (lambda: nn.LayerNorm1d(3), {"weight": (3,), "bias": (3,)}),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), {"weight": (4,), "bias": (4,)}),
    "LSTM": (
        lambda: nn.LSTM(3, 2, 2),
        {
            f"{name}_l{i}": shape
            for i, n in enumerate((3, 2))
            for name, shape in (("weight_ih", (8, n)), ("weight_hh", (8, 2)), ("bias_ih", (8,)), ("bias_hh", (8,)))
        },
    ),
    "GRU": (lambda: nn.GRU(3, 2, bias=False), {"weight_ih_l0": (6, 3), "weight_hh_l0": (6, 2)}),
    "GRU/both ways": (
        lambda: nn.GRU(3, 2, 2, bias=False, bidirectional=True),
        {
            f"{name}_l{i}{way}": shape
            for i, n in enumerate((3, 4))
            for way in ("", "_reverse")
            for name, shape in (("weight_ih", (6, n)), ("weight_hh", (6, 2)))
        },
    ),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(2, 4, 3), {"weight": (2, 4, 3), "bias": (4,)}),
    "Bilinear": (lambda: nn.Bilinear(2, 3, 4), {"weight": (4, 2, 3), "bias": (4,)}),
    "LayerNorm": (lambda: nn.LayerNorm((3, 4)), {"weight": (3, 4), "bias": (3, 4)}),
    "PReLU": (lambda: nn.PReLU(), {"weight": (1,)}),
    "ParameterList": (lambda: nn.ParameterList([nn.Parameter(ndl.ones(2))]), {"0": (2,)}),
    "TransformerEncoderLayer": (
        lambda: nn.TransformerEncoderLayer(4, 2, 6),
        {"self_attn.in_proj_weight": (12, 4), "self_attn.in_proj_bias": (12,), "self_attn.out_proj.weight": (4, 4)}
        | {"self_attn.out_proj.bias": (4,), "linear1.weight": (6, 4), "linear1.bias": (6,), "linear2.weight": (4, 6)}
        | {f"{name}.{part}": (4,) for name in ("norm1", "norm2") for part in ("weight", "bias")}
        | {"linear2.bias": (4,)},
    ),
    "RNN": (lambda: nn.RNN(3, 2, bias=False), {"weight_ih_l0": (2, 3), "weight_hh_l0": (2, 2)}),
    "LSTMCell": (lambda: nn.LSTMCell(3, 2, bias=False), {"weight_ih": (8, 3), "weight_hh": (8, 2)}),
    "Sequential": (lambda: nn.Sequential(nn.ReLU(), nn.Linear(2, 3, bias=False)), {"1.weight": (3, 2)}),
    "ModuleList": (lambda: nn.ModuleList([nn.Residual(nn.Linear(2, 2, bias=False))]), {"0.fn.weight": (2, 2)}),
}


@pytest.mark.parametrize("name", MODULES)
def test_there_and_back(name):
    make, shapes = MODULES[name]
    state = {key: draw(shape, i) for i, (key, shape) in enumerate(shapes.items())}
    model = make()
    assert from_torch(model, state) is model
    back = to_torch(model)
    assert {key: array.shape for key, array in back.items()} == shapes
    assert all(array.flags.c_contiguous and array.flags.writeable for array in back.values())
    for key in set(state) - {"num_batches_tracked"}:
        np.testing.assert_array_equal(back[key], state[key])
    if "num_batches_tracked" in state:
        assert same(back["num_batches_tracked"], np.zeros((), np.int64))
        del state["num_batches_tracked"]
        from_torch(make(), state)  # files of other programs lack it


def test_every_layer_with_weights_is_here():
    """Those of needle.nn without a twin in PyTorch keep their own names and layouts inside, Linears excepted."""
    kinds = {kind for kind in vars(nn).values() if isinstance(kind, type) and issubclass(kind, nn.Module)}
    tested = {type(module) for make, _ in MODULES.values() for _, module in make().named_modules()}
    alike = {"RMSNorm", "InstanceNorm", "BatchNorm1d", "RNNCell", "GRUCell"}  # as a sister or a parent in the table
    alike |= {"TransformerDecoderLayer", "TransformerDecoder", "TransformerEncoder", "ParameterDict"}
    ours = {"WeightNorm", "MultiHeadAttention", "AttentionLayer", "TransformerLayer", "Transformer"}
    ours |= {"QuantizedLinear", "QuantizedEmbedding"}
    without = {row.name for row in ROWS if not row.build().parameters()} | {"Module", "ModuleDict"}
    assert {kind.__name__ for kind in kinds - tested} - without - alike - ours == set()


def test_a_square_weight_is_transposed():
    weight = draw((3, 3))
    model = from_torch(nn.Linear(3, 3, bias=False), {"weight": weight})
    x = draw((2, 3), 1)
    np.testing.assert_allclose(model(ndl.Tensor(x)).numpy(), x @ weight.T, rtol=1e-5)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Embedding(5, 3), nn.Embedding(5, 3)
        self.head.weight = self.tokens.weight


@pytest.mark.parametrize("names", [("tokens.weight",), ("head.weight",), ("tokens.weight", "head.weight")])
def test_tied_weights_under_any_of_their_names(names):
    table = draw((5, 3))
    model = from_torch(Tied(), dict.fromkeys(names, table))
    np.testing.assert_array_equal(model.tokens.weight.numpy(), table)
    assert list(to_torch(model)) == ["tokens.weight", "head.weight"] and model.head.weight is model.tokens.weight


def test_tied_weights_that_differ():
    with pytest.raises(ValueError, match=r"tokens.weight and head.weight are one tensor in Tied, but differ"):
        from_torch(Tied(), {"tokens.weight": draw((5, 3)), "head.weight": draw((5, 3), 1)})


LARGE = np.ones((5, 300_000), "float32")  # read in blocks
LAST = LARGE.copy()
LAST[-1, -1] = 2
NANS = (
    np.array([0x7FC00001, 0x7FC00002, 0x80000000], np.uint32).view("float32"),
    np.array([np.nan, np.nan, 0.0], "float32"),
)
#: two arrays that a tied weight has in a file, and whether they are taken
TIES = {
    "the same": (draw((5, 3)), draw((5, 3)), True),
    "large": (LARGE, LARGE, True),
    "large, the last differs": (LARGE, LAST, False),
    "other dtypes, one value": (draw((5, 3)).astype("float16"), draw((5, 3)).astype("float16").astype("float32"), True),
    "other dtypes": (draw((5, 3)), draw((5, 3)).astype("float16"), False),
    "NaN and zeros of other bits": (*(np.tile(a, (5, 1)) for a in NANS), True),
    "NaN and a number": (np.full((5, 3), np.nan, "float32"), np.zeros((5, 3), "float32"), False),
}


@pytest.mark.parametrize("case", TIES)
def test_tied_weights_in_files(tmp_path, case, monkeypatch):
    """Bytes that are the same are compared in blocks; where tensors differ nothing is changed."""
    one, other, taken = TIES[case]

    class Wide(Tied):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(2, 2, bias=False)
            self.head.weight = self.tokens.weight = nn.Parameter(ndl.zeros(*one.shape))

    state = {"first.weight": draw((2, 2)), "tokens.weight": one, "head.weight": other}
    safetensors.numpy.save_file(state, tmp_path / "a.safetensors")
    if one is other:  # neither is read as a whole
        monkeypatch.setattr("needle_nn.weights.same_numbers", None)
    for given in (tmp_path / "a.safetensors", state):
        model = Wide()
        before = model.first.weight.numpy()
        if taken:
            np.testing.assert_array_equal(from_torch(model, given).tokens.weight.numpy(), one)
            continue
        with pytest.raises(ValueError, match=r"tokens.weight and head.weight are one tensor in Wide, but differ"):
            from_torch(model, given)
        assert not model.tokens.weight.numpy().any() and (model.first.weight.numpy() == before).all()


WRONG = {
    "missing": ({"weight": (5, 3)}, "missing: bias"),
    "unexpected": ({"weight": (5, 3), "bias": (5,), "scale": (1,)}, "unexpected: scale"),
    "ours": ({"weight": (3, 5), "bias": (5,)}, r"other shapes: weight \(3, 5\) instead of \(5, 3\)"),
    "all": ({"weight": (3,), "scale": (1,)}, r"missing: bias; unexpected: scale; other shapes: weight \(3,\)"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_changes_nothing(tmp_path, case):
    shapes, reason = WRONG[case]
    state = {name: draw(shape) for name, shape in shapes.items()}
    save(tmp_path / "a.safetensors", state)
    for given in (state, tmp_path / "a.safetensors"):
        model = nn.Linear(3, 5)
        before = model.state_dict()
        with pytest.raises(ValueError, match=f"from_torch: Linear: {reason}"):
            from_torch(model, given)
        assert all((before[name].numpy() == x.numpy()).all() for name, x in model.state_dict().items())


def test_not_strict():
    model, weight = nn.Linear(3, 5), draw((5, 3))
    bias = model.bias.numpy()
    from_torch(model, {"weight": weight, "scale": np.ones(1)}, strict=False)
    np.testing.assert_array_equal(model.weight.numpy(), weight.T)
    np.testing.assert_array_equal(model.bias.numpy(), bias)


def test_a_long_list_of_names_is_cut():
    model = nn.Sequential(*[nn.Linear(1, 1) for _ in range(30)])
    with pytest.raises(ValueError, match=r"3\.bias and 52 more$"):
        from_torch(model, {})


@pytest.mark.parametrize("given", [None, 3, [("weight", np.ones(1))]])
def test_what_is_no_state(given):
    with pytest.raises(TypeError, match="expected a state_dict or the path of a safetensors file, got"):
        from_torch(nn.Linear(1, 1), given)


@pytest.mark.parametrize("name", ["model.pt", "model.pth", "weights.bin"])
def test_files_of_torch_save_are_named(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\3\4" + bytes(30) + b"archive/data.pkl" + bytes(99))
    with pytest.raises(CheckpointError, match=rf"{name}: no safetensors file but a pickle.*save_file\(torch.load"):
        from_torch(nn.Linear(1, 1), tmp_path / name)


def test_names_of_files_may_differ():
    class Renamed(nn.Linear):
        def torch_name(self, name):
            return None if name == "mask" else name.removeprefix("model.")

    state = {"model.weight": draw((5, 3)), "model.bias": draw(5), "mask": np.ones(9)}
    model = from_torch(Renamed(3, 5), state)
    np.testing.assert_array_equal(model.weight.numpy(), state["model.weight"].T)
    with pytest.raises(ValueError, match=r"weight and model\.weight both are weight"):
        from_torch(Renamed(3, 5), {"weight": draw((5, 3)), **state})


def test_a_rule_of_ones_own():
    class Scaled(nn.Linear):
        def __init__(self):
            super().__init__(2, 3)
            self.scale = nn.Parameter(ndl.ones(3))

    @register(Scaled)
    def pairs(module):
        yield Pair("w", module.weight, (1, 0))
        yield Pair("b", module.bias, flat=True)
        yield Pair("g", module.scale)

    assert {name: array.shape for name, array in to_torch(Scaled()).items()} == {"w": (3, 2), "b": (3,), "g": (3,)}


def test_a_module_that_holds_itself():
    model = nn.Sequential(nn.Linear(2, 2))
    model.again = model
    assert set(to_torch(model)) == {"0.weight", "0.bias"}


# ---- With PyTorch -----------------------------------------------------------------------------------------------


def twins():
    """Modules of ours and PyTorch's, and an input."""
    from torch import nn as tn

    image, sequence, ids = draw((2, 4, 9, 8)), draw((5, 2, 4)), rng(0).integers(0, 7, (2, 3))
    return {
        "Linear": (nn.Linear(4, 4), tn.Linear(4, 4), sequence),
        "Conv1d": (nn.Conv1d(2, 6, 3, groups=2), tn.Conv1d(2, 6, 3, groups=2), sequence),
        "Conv2d": (nn.Conv2d(4, 4, 3, groups=2), tn.Conv2d(4, 4, 3, groups=2), image),
        "ConvTranspose2d": (nn.ConvTranspose2d(4, 4, 3, 2, groups=2), tn.ConvTranspose2d(4, 4, 3, 2, groups=2), image),
        "BatchNorm2d": (nn.BatchNorm2d(4), tn.BatchNorm2d(4), image),
        "Embedding": (nn.Embedding(7, 3), tn.Embedding(7, 3), ids),
        "EmbeddingBag": (nn.EmbeddingBag(7, 3), tn.EmbeddingBag(7, 3), ids),
        "LSTM": (nn.LSTM(4, 4, 2), tn.LSTM(4, 4, 2), sequence),
        "GRU": (nn.GRU(4, 4, 2), tn.GRU(4, 4, 2), sequence),
        "RNN": (nn.RNN(4, 4, 2), tn.RNN(4, 4, 2), sequence),
        "nested": (
            nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.LayerNorm1d(4)),
            tn.Sequential(tn.Sequential(tn.Linear(4, 4), tn.ReLU()), tn.LayerNorm(4)),
            sequence,
        ),
    }


@pytest.mark.parity
def test_like_pytorch(tmp_path):
    import torch
    from safetensors.torch import save_file

    for name, (ours, theirs, x) in twins().items():
        theirs.eval()
        ours.eval()
        for p in theirs.state_dict().values():
            if p.dtype.is_floating_point:
                p.copy_(torch.rand_like(p).to(torch.bfloat16))
        wanted = theirs(torch.tensor(x))
        state = theirs.state_dict()
        kinds = {"tensors": state, "parameters": dict(theirs.named_parameters()) | dict(theirs.named_buffers())}
        for kind in (torch.float32, torch.float64, torch.bfloat16):
            cast = {key: p.to(kind) if p.dtype.is_floating_point else p for key, p in state.items()}
            save_file(cast, tmp_path / f"{kind}.safetensors")
            kinds |= {kind: cast, f"file of {kind}": tmp_path / f"{kind}.safetensors"}
        for given in kinds.values():
            from_torch(ours, {key: np.zeros(p.shape, "f4") for key, p in state.items()})
            found = from_torch(ours, given)(ndl.Tensor(x))
            first = [y[0] if isinstance(y, tuple) else y for y in (found, wanted)]
            np.testing.assert_allclose(first[0].numpy(), first[1].detach().numpy(), 1e-5, 1e-5, err_msg=name)
        result = theirs.load_state_dict({key: torch.from_numpy(array) for key, array in to_torch(ours).items()})
        assert not result.missing_keys and not result.unexpected_keys
        torch.testing.assert_close(theirs.state_dict(), state)
