"""Published networks: their names, what they compute, and folders they are loaded from."""

import json

import model_references as reference
import numpy as np
import pytest

import needle as ndl
from needle import init, nn
from needle_nn.checkpoint import CheckpointError, save
from needle_nn.interop import from_torch, to_torch
from needle_nn.models import GPT2, Llama, VisionTransformer, load_pretrained, resnet18, resnet50, vit_b_16
from needle_nn.models.llama import Rotation
from needle_nn.models.resnet import BasicBlock, Bottleneck, ResNet

rng = np.random.default_rng
IDS = rng(0).integers(0, 23, (2, 9))
IMAGES = rng(0).normal(size=(2, 3, 32, 32))

#: model, what it is given, and the reference on weights in the names of files
MODELS = {
    "GPT2": (
        lambda **d: GPT2(23, 12, 16, 2, 4, **d),
        IDS,
        lambda w: reference.gpt2(w, IDS, 4),
    ),
    "GPT2/untied": (
        lambda **d: GPT2(23, 12, 16, 2, 2, hidden_size=24, tied=False, **d),
        IDS,
        lambda w: reference.gpt2(w, IDS, 2),
    ),
    "Llama": (
        lambda **d: Llama(23, 12, 16, 24, 2, 4, **d),
        IDS,
        lambda w: reference.llama(w, IDS, 4, 4),
    ),
    "Llama/groups": (
        lambda **d: Llama(23, 12, 16, 24, 2, 4, 2, theta=500.0, eps=1e-5, **d),
        IDS,
        lambda w: reference.llama(w, IDS, 4, 2, 500.0, 1e-5),
    ),
    "Llama/one group": (
        lambda **d: Llama(23, 12, 20, 24, 1, 4, 1, dim_head=6, attention_bias=True, mlp_bias=True, **d),
        IDS,
        lambda w: reference.llama(w, IDS, 4, 1),
    ),
    "Llama/tied": (
        lambda **d: Llama(23, 12, 16, 24, 1, 2, tied=True, **d),
        IDS,
        lambda w: reference.llama(w, IDS, 2, 2),
    ),
    "ResNet/basic": (
        lambda **d: ResNet(BasicBlock, (2, 1, 1, 2), 7, width=4, **d),
        IMAGES,
        lambda w: reference.resnet(w, IMAGES, 2),
    ),
    "ResNet/bottleneck": (
        lambda **d: ResNet(Bottleneck, (1, 2, 1, 1), 7, width=4, **d),
        IMAGES,
        lambda w: reference.resnet(w, IMAGES, 3),
    ),
    "VisionTransformer": (
        lambda **d: VisionTransformer(32, 8, 2, 2, 16, 24, 7, **d),
        IMAGES,
        lambda w: reference.vit(w, IMAGES, 2, 8),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_like_the_reference(name):
    make, x, expected = MODELS[name]
    model = make(dtype="float64").eval()
    weights = reference.draw({key: array.shape for key, array in to_torch(model).items()})
    if "tied" in name and "un" not in name:
        weights["model.embed_tokens.weight"] = weights["lm_head.weight"]
    elif name == "GPT2":
        weights["transformer.wte.weight"] = weights["lm_head.weight"]
    from_torch(model, weights)
    found = model(ndl.Tensor(x, dtype=str(x.dtype))).numpy()
    # Angles of rotary positions are float32, as the published weights were trained with.
    near = 1e-6 if "Llama" in name else 1e-11
    np.testing.assert_allclose(found, expected(weights), rtol=near, atol=near)
    assert abs(found).max() > 0.1


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_learns(name):
    make, x, _ = MODELS[name]
    model = make()
    y = model(ndl.Tensor(x.astype("float32") if x.dtype.kind == "f" else x))
    nn.SoftmaxLoss()(y, ndl.Tensor(np.zeros(y.shape[:-1], int))).backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not np.isfinite(p.grad.numpy()).all()] == []


@pytest.mark.parametrize("name", MODELS)
def test_devices_agree(name):
    make, x, _ = MODELS[name]
    with init.without_draws():
        models = [make(device=device).eval() for device in (ndl.cpu(), ndl.cpu_numpy())]
    weights = reference.draw({key: a.shape for key, a in to_torch(models[0]).items() if key != "lm_head.weight"})
    for model in models:
        from_torch(model, weights, strict=False)
    values = [m(ndl.Tensor(x, device=m.parameters()[0].device, dtype="float32" if x.dtype.kind == "f" else None)).numpy()
              for m in models]  # fmt: skip
    np.testing.assert_allclose(*values, rtol=1e-4, atol=1e-4)


#: published sizes, and some of the names in the files
PUBLISHED = {
    "gpt2": (GPT2, 124_439_808, {"transformer.h.11.mlp.c_proj.weight": (3072, 768), "lm_head.weight": (50257, 768)}),
    "resnet18": (
        resnet18,
        11_689_512,
        {"layer4.1.bn2.running_var": (512,), "layer2.0.downsample.0.weight": (128, 64, 1, 1)},
    ),
    "resnet50": (resnet50, 25_557_032, {"layer1.0.downsample.1.weight": (256,), "fc.weight": (1000, 2048)}),
    "vit_b_16": (
        vit_b_16,
        86_567_656,
        {
            "class_token": (1, 1, 768),
            "encoder.pos_embedding": (1, 197, 768),
            "encoder.layers.encoder_layer_11.self_attention.in_proj_weight": (2304, 768),
            "encoder.layers.encoder_layer_0.mlp.3.weight": (768, 3072),
            "heads.head.bias": (1000,),
        },
    ),
    "llama 3.2 1b": (
        lambda: Llama(128256, 131072, 2048, 8192, 16, 32, 8, theta=500000.0, tied=True),
        1_235_814_400,
        {
            "model.layers.15.self_attn.k_proj.weight": (512, 2048),
            "model.layers.0.mlp.down_proj.weight": (2048, 8192),
            "model.norm.weight": (2048,),
        },
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes_and_names(name, monkeypatch):
    """Without their memory: every weight is one number, broadcast."""
    make, count, shapes = PUBLISHED[name]
    from needle_ndarray import zeros

    def light(*shape, device=None, dtype="float32", requires_grad=False):
        return ndl.Tensor.make_const(zeros((1,) * len(shape), dtype, device).broadcast_to(shape))

    monkeypatch.setattr(init, "zeros", light)
    with init.without_draws():
        model = make()
    assert sum(p.size for p in model.parameters()) == count
    from needle_nn.interop import pairs

    found = {pair.name: pair.shape for pair in pairs(model)}
    assert {key: found[key] for key in shapes} == shapes


def test_initial_weights_of_gpt2():
    np.random.seed(0)  # noqa: NPY002  the generator that initial weights come from
    model = GPT2(300, 200, 128, 2, 4)
    spread = {key: float(p.numpy().std()) for key, p in model.named_parameters() if p.ndim == 2 and "bias" not in key}
    assert all(abs(s / (0.01 if "c_proj" in key else 0.02) - 1) < 0.05 for key, s in spread.items())
    loss = nn.SoftmaxLoss()(model(rng(0).integers(0, 300, (4, 50))).reshape((-1, 300)), rng(1).integers(0, 300, 200))
    assert abs(loss.item() - np.log(300)) < 0.1


def test_names_of_older_files():
    model = GPT2(23, 12, 16, 1, 4)
    state = {key.removeprefix("transformer."): a for key, a in to_torch(model).items() if key != "lm_head.weight"}
    state |= {"h.0.attn.bias": np.tri(12), "h.0.attn.masked_bias": np.float32(-1e4)}
    other = from_torch(GPT2(23, 12, 16, 1, 4), state)
    np.testing.assert_array_equal(other(IDS).numpy(), model(IDS).numpy())
    vit = VisionTransformer(32, 8, 1, 2, 16, 24, 7)
    older = {
        k.replace(".mlp.0.", ".mlp.linear_1.").replace(".mlp.3.", ".mlp.linear_2."): a for k, a in to_torch(vit).items()
    }
    assert any("linear_1" in key for key in older)
    from_torch(VisionTransformer(32, 8, 1, 2, 16, 24, 7), older)
    llama = Llama(23, 12, 16, 24, 1, 4)
    from_torch(llama, {**to_torch(llama), "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(2)})


def test_scaled_rotation():
    """Llama 3's: turns of less than 1 in the first context are `factor` times slower, of more than 4 as they are."""
    settings = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    plain, scaled = (Rotation(32, 10000.0, s).frequencies for s in (None, settings))
    turns = 64 * plain / (2 * np.pi)
    np.testing.assert_allclose((scaled / plain)[turns > 4], 1, rtol=1e-6)
    np.testing.assert_allclose((scaled / plain)[turns < 1], 1 / 8, rtol=1e-6)
    between = (turns > 1) & (turns < 4)
    smooth = (turns - 1) / 3
    expected = (1 - smooth) * plain / 8 + smooth * plain
    assert between.any()
    np.testing.assert_allclose(scaled[between], expected[between], rtol=1e-6)


# ---- Folders -----------------------------------------------------------------------------------------------

CONFIGS = {
    "GPT2": {"model_type": "gpt2", "vocab_size": 23, "n_positions": 12, "n_embd": 16, "n_layer": 2, "n_head": 4,
             "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"]},
    "Llama/groups": {"model_type": "llama", "vocab_size": 23, "max_position_embeddings": 12, "hidden_size": 16,
                     "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                     "rope_theta": 500.0, "rms_norm_eps": 1e-5, "rope_scaling": None, "tie_word_embeddings": False},
}  # fmt: skip


def folder(tmp_path, name, **changes):
    make, x, _ = MODELS[name]
    model = make().eval()
    state = to_torch(model)
    if name == "GPT2":
        del state["lm_head.weight"]  # as in the published file
    save(tmp_path / "model.safetensors", state)
    (tmp_path / "config.json").write_text(json.dumps({**CONFIGS[name], **changes}))
    return model, x


@pytest.mark.parametrize("name", CONFIGS)
def test_folders(tmp_path, name):
    model, x = folder(tmp_path, name)
    found = load_pretrained(tmp_path)
    assert not found.training and type(found) is type(model)
    np.testing.assert_array_equal(found(x).numpy(), model(x).numpy())
    double = load_pretrained(tmp_path, dtype="float64")
    assert {str(p.dtype) for p in double.parameters()} == {"float64"}
    np.testing.assert_allclose(double(x).numpy(), model(x).numpy(), rtol=1e-4, atol=1e-5)


SCALED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8}  # fmt: skip
#: settings as transformers 5 writes them, and as it was before
ROTARY = {
    "theta": ({"rope_parameters": {"rope_theta": 70.0, "rope_type": "default"}}, {"rope_theta": 70.0}),
    "scaling": (
        {"rope_parameters": {"rope_theta": 70.0, **SCALED}},
        {"rope_theta": 70.0, "rope_scaling": SCALED},
    ),
    "theta outside": ({"rope_parameters": {"rope_type": "default"}, "rope_theta": 70.0}, {"rope_theta": 70.0}),
    "a window as wide as the context": ({"sliding_window": 12, "rope_theta": 70.0}, {"rope_theta": 70.0}),
}


@pytest.mark.parametrize("case", ROTARY)
def test_settings_of_newer_files(tmp_path, case):
    newer, older = ROTARY[case]
    found = []
    for settings in (newer, older, {"rope_theta": 500.0}):
        folder(tmp_path, "Llama/groups", **{"rope_theta": None, **settings})
        config = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
        model = load_pretrained(tmp_path)
        found.append(model.model._rotation.frequencies)
    np.testing.assert_array_equal(found[0], found[1])
    assert abs(found[0] - found[2]).max() > 0.01
    assert load_pretrained(tmp_path, context=4).context == 4


WRONG = {
    "no config": ("GPT2", None, "config.json: No such file"),
    "no JSON": ("GPT2", "{", "config.json: expected JSON"),
    "another model": ("GPT2", {"model_type": "bert"}, "model_type is 'bert', known are gpt2, llama, mistral"),
    "a list": ("GPT2", "[]", "model_type is None"),
    "activation": ("GPT2", {"activation_function": "tanh"}, "activation_function = 'tanh', expected 'gelu_new'"),
    "scaled by layer": ("GPT2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True"),
    "a size as text": ("GPT2", {"n_layer": "2"}, "n_layer = '2', expected a positive number"),
    "another size": ("GPT2", {"n_layer": 3}, r"from_torch: GPT2: missing: transformer\.h\.2\.ln_1\.weight"),
    "heads": ("GPT2", {"n_head": 3}, "embedding_size 16 does not make 3 heads"),
    "window": (
        "Llama/groups",
        {"sliding_window": 4},
        "sliding_window = 4, expected None or a context of at most that, and",
    ),
    "a window as text": ("Llama/groups", {"sliding_window": "4"}, "sliding_window = '4', expected a positive number"),
    "a part rotated": ("Llama/groups", {"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5, expected 1"),
    "newer, a part rotated": (
        "Llama/groups",
        {"rope_parameters": {"partial_rotary_factor": 0.5}},
        "partial_rotary_factor",
    ),
    "newer scaling": ("Llama/groups", {"rope_parameters": {"rope_type": "linear"}}, "rope_scaling of type 'linear'"),
    "newer, a list": ("Llama/groups", {"rope_parameters": []}, r"rope_parameters = \[\], expected an object"),
    "newer, a word": ("Llama/groups", {"rope_parameters": {"rope_theta": "x"}}, "has rope_theta = 'x', expected"),
    "another scaling": ("Llama/groups", {"rope_scaling": {"type": "yarn", "factor": 2}}, "rope_scaling of type 'yarn'"),
    "scaling without numbers": ("Llama/groups", {"rope_scaling": {"rope_type": "llama3"}}, "has factor = None"),
}


@pytest.mark.parametrize("case", WRONG)
def test_folders_that_are_wrong(tmp_path, case):
    name, change, reason = WRONG[case]
    folder(tmp_path, name, **(change if isinstance(change, dict) else {}))
    if change is None:
        (tmp_path / "config.json").unlink()
    elif isinstance(change, str):
        (tmp_path / "config.json").write_text(change)
    with pytest.raises((CheckpointError, ValueError), match=reason) as caught:
        load_pretrained(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ids", [[1, 2], [[]], [[1] * 13], [[[1]]]])
@pytest.mark.parametrize("name", ["GPT2", "Llama"])
def test_ids_that_do_not_fit(name, ids):
    with pytest.raises(ValueError, match=rf"{name}: ids have shape .*, expected \(B, T\), T from 1 to 12"):
        MODELS[name][0]()(ids)
