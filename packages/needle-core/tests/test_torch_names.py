"""PyTorch's names: every one is in the table and runs; beside PyTorch itself the numbers and gradients are the same."""

import functools
import re
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from torch_name_table import EXPRESSIONS

import needle as ndl
from needle import creation, sampling
from needle.torch_names import both, functions, in_place, methods, missing, ordering, products
from needle_ndarray.testing import each

#: Names that a test below runs, or that say what there is instead.
ELSEWHERE = {
    "preserve_format",
    "channels_last",
    "save",
    "load",
    "set_printoptions",
    "inference_mode",
    "half",
    "bfloat16",
    "detach_",
    "cuda",
    "as_tensor",
    "float16",
}


def given(t):
    """The tensors that expressions are made of, as needle's or PyTorch's, and those that require a gradient."""
    rng = np.random.default_rng(0)

    def tensor(*shape, low=-2.0, high=2.0):
        return t.tensor(rng.uniform(low, high, shape).astype("float32"), requires_grad=True)

    x, y, s, v, w, d = (
        tensor(2, 3), tensor(2, 3, low=0.2, high=0.8), tensor(3, 3), tensor(3), tensor(4), tensor(2, 3, 4),
    )  # fmt: skip
    k, b = t.tensor(rng.integers(0, 3, (2, 3))), t.tensor(rng.uniform(size=(2, 3)) < 0.5)
    p = t.tensor(np.array([[2, 0, 1], [0, 1, 2]]))
    space = {
        "p": p,
        "x": x,
        "y": y,
        "s": s,
        "v": v,
        "w": w,
        "d": d,
        "k": k,
        "b": b,
        "z": x.clone(),
        "c": x.detach().clone(),
    }
    return {**space, "t": t, "numpy": np}, [x, y, s, v, w, d]


def results(value, tensor):
    """What an expression gives, as a flat list of tensors and numbers."""
    if isinstance(value, tensor) or not isinstance(value, (tuple, list)):
        return [value]
    return [part for each_value in value for part in results(each_value, tensor)]


def run(t, expression):
    """Values, and the gradients of the inputs where there are some, in NumPy."""
    space, inputs = given(t)
    found = results(eval(expression, space), t.Tensor)
    weights = np.random.default_rng(1)
    total = 0.0
    for value in found:
        if isinstance(value, t.Tensor) and value.requires_grad:
            total = total + (value * t.tensor(weights.uniform(1, 2, tuple(value.shape)).astype("float32"))).sum()
    if isinstance(total, t.Tensor):
        total.backward()
    values = [value.detach().numpy() if isinstance(value, t.Tensor) else value for value in found]
    return values, [None if x.grad is None else x.grad.numpy() for x in inputs]


@each("expression", EXPRESSIONS)
def test_every_expression_runs(expression):
    run(ndl, expression)


def test_every_name_is_in_the_table():
    text = "\n".join(EXPRESSIONS)
    called = set(re.findall(r"\.(\w+)", text))
    names = {*both.FUNCTIONS, *methods.SAME, *methods.METHODS, *in_place.METHODS, *creation.__all__, *sampling.__all__}
    names |= (
        products.FUNCTIONS.keys() | ordering.FUNCTIONS.keys() | ordering.METHODS.keys() | vars(products.linalg).keys()
    )
    names = {name for name in names if name[0] != "_"}
    assert names | functions.FUNCTIONS.keys() <= called | ELSEWHERE
    assert not [name for name in functions.FUNCTIONS.keys() | both.FUNCTIONS.keys() if not hasattr(ndl, name)]


@pytest.mark.parity
@each("expression", EXPRESSIONS)
def test_the_same_as_pytorch(expression):
    torch = pytest.importorskip("torch")
    ours, our_grads = run(ndl, expression)
    theirs, their_grads = run(torch, expression)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        if not isinstance(b, np.ndarray):
            assert a == b or type(b).__module__ == "torch" or isinstance(b, torch.Generator) or b == pytest.approx(a)
            continue
        assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, b.dtype, a.shape, b.shape)
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)
    for a, b in zip(our_grads, their_grads, strict=True):
        a = np.zeros_like(b) if a is None and b is not None else a  # steps are constants, where PyTorch sends zeros
        assert (a is None) == (b is None), f"gradient {a}, expected {b}"
        if b is not None:
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


# ---- In place ---------------------------------------------------------------------------------------------


def test_writing_in_place_changes_the_array_of_a_constant():
    x = ndl.tensor([1.0, 2.0])
    shared = x.detach()
    assert x.add_(1).mul_(2) is x and shared.tolist() == [4.0, 6.0] and x.is_leaf()
    assert (
        ndl.tensor([3, 4]).add_(2).dtype == "int64"
        and ndl.tensor([1.0]).add_(ndl.tensor([1.0]).double()).dtype == "float32"
    )


def test_a_leaf_with_a_gradient_is_written_to_within_no_grad():
    x = ndl.tensor([1.0, 2.0], requires_grad=True)
    for write in (
        lambda: x.add_(1),
        lambda: x.zero_(),
        lambda: x.normal_(),
        lambda: x.copy_(x * 2),
        lambda: x.clamp_(0, 1),
    ):
        with pytest.raises(
            RuntimeError, match=r"_: a leaf that requires a gradient cannot be written to; do it within no_grad"
        ):
            write()
    array = x.realize_cached_data()
    with ndl.no_grad():
        x.sub_(ndl.tensor([1.0, 1.0]), alpha=0.5).clamp_(max=1.0)
    assert x.tolist() == [0.5, 1.0] and x.realize_cached_data() is array and x.requires_grad
    x.detach().fill_(7)
    x.data.add_(1)
    assert x.tolist() == [8.0, 8.0]


def test_a_recorded_tensor_becomes_the_result():
    x = ndl.tensor([-1.0, 2.0], requires_grad=True)
    y = x * 3
    y.relu_().add_(x).mul_(2)
    y.sum().backward()
    assert y.tolist() == [-2.0, 16.0] and x.grad.tolist() == [2.0, 8.0]
    z = ndl.tensor([1.0, 1.0])
    z.mul_(x)
    assert z.requires_grad and z.tolist() == [-1.0, 2.0]
    used = x * 2
    _ = used * 2
    with pytest.raises(RuntimeError, match=r"the tensor has been used already"):
        used.add_(1)


def test_what_does_not_fit_is_refused():
    for write, message in {
        (lambda: ndl.tensor([1, 2]).mul_(0.5)): r"mul_: the result is float32, the tensor int64",
        (
            lambda: ndl.tensor([1.0]).add_(ndl.tensor([1.0, 2.0]))
        ): r"add_: the result has shape \(2,\), the tensor \(1,\)",
        (lambda: ndl.tensor([1.0]).copy_(ndl.tensor([1.0, 2.0]))): r"\(2,\)",
    }.items():
        with pytest.raises((TypeError, ValueError), match=message):
            write()


# ---- Keywords ---------------------------------------------------------------------------------------------


def test_axes_have_many_names():
    x = ndl.tensor([[1.0, 2.0], [3.0, 4.0]])
    for name in ("axes", "axis", "dim"):
        for function in (
            ndl.summation,
            ndl.mean,
            ndl.sum,
            ndl.softmax,
            ndl.argmax,
            ndl.cumsum,
            ndl.var,
            ndl.logsumexp,
            ndl.prod,
        ):
            assert function(x, **{name: 0}).tolist() == function(x, 0).tolist()
        for method in (
            "sum",
            "mean",
            "var",
            "std",
            "any",
            "all",
            "argmax",
            "cumsum",
            "softmax",
            "logsumexp",
            "amax",
            "prod",
            "cumprod",
        ):
            assert getattr(x, method)(**{name: 0}).tolist() == getattr(x, method)(0).tolist()
        with pytest.raises(TypeError, match=r"two names for the same argument"):
            ndl.softmax(x, 0, **{name: 0}) if name != "axes" else ndl.softmax(x, axes=0, dim=0)
    assert ndl.mean(x, dim=0, keepdim=True).shape == x.mean(dim=0, keepdim=True).shape == (1, 2)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'along'"):
        ndl.softmax(x, along=0)
    with pytest.raises(TypeError, match=r"max: axes 0 and dim 1 are two names for the same argument"):
        ndl.max(x, 0, dim=1)


def test_out_is_refused_by_what_takes_axes():
    with pytest.raises(TypeError, match=r"cat: out= is not taken; out.copy_\(...\) writes a result"):
        ndl.cat([ndl.ones(2)], out=ndl.zeros(2))


def test_how_numbers_are_shown():
    before, x = np.get_printoptions(), ndl.tensor([1 / 3, 1e-6])
    try:
        ndl.set_printoptions(precision=2, sci_mode=False)
        assert repr(x).startswith("needle.Tensor([0.33, 0.  ]")
        ndl.set_printoptions(profile="full")
        assert np.get_printoptions()["threshold"] == 2**62 and np.get_printoptions()["precision"] == 4
        with pytest.raises(ValueError, match=r"profile 'long': expected 'default', 'short' or 'full'"):
            ndl.set_printoptions(profile="long")
    finally:
        np.set_printoptions(**before)


# ---- What is not there ------------------------------------------------------------------------------------


def test_what_is_not_there_says_what_is():
    x = ndl.tensor([1.0])
    with pytest.raises(AttributeError, match=r"Tensor has no 'svd'; NumPy has it"):
        x.svd()
    with pytest.raises(AttributeError, match=r"Tensor has no 'stride'; arrays have it"):
        _ = x.stride
    with pytest.warns(
        RuntimeWarning, match=r"compile: nothing is compiled; needle.capture\(step\) replays a whole step"
    ):
        assert ndl.compile(x) is x
    assert (x.half().dtype, x.bfloat16().dtype, ndl.half) == ("float16", "bfloat16", "float16")
    assert not hasattr(x, "svd") and "svd" not in dir(x) and "unsqueeze" in dir(x)
    for name in missing.METHODS:
        assert not hasattr(x, name)
    for name in missing.FUNCTIONS:
        assert not hasattr(ndl, name), name


#: Names that public programs use, and Needle does not have: each answer says what there is.
ABSENT = {
    "Tensor": """svd qr det inverse cholesky slogdet solve lstsq eig lu histc mode cummax logcumsumexp lgamma digamma erfinv stft
        index_reduce_ sum_to_size put_ renorm_ resize_ set_ t_ transpose_ squeeze_ as_strided stride storage data_ptr element_size
        conj real imag angle to_sparse coalesce map_ apply_ cauchy_ geometric_ log_normal_ pin_memory share_memory_ char short
        atan2_ logical_and_ hypot_ adjoint H isposinf nanmedian hsplit diagonal_scatter copysign heaviside sinc prelu""",
    "": """jit fft sparse complex64 int8 set_default_tensor_type set_default_device use_deterministic_algorithms seed get_rng_state
        cosine_similarity pairwise_distance pixel_shuffle group_norm prelu bilinear max_pool1d Stream Event FloatStorage HalfTensor
        GradScaler hann_window frombuffer asarray poisson fx export multiprocessing profiler atleast_3d combinations pdist
        gradient nested mps hub exp_ relu_ sqrt_ chain_matmul get_default_device polar view_as_complex""",
    "nn": """InstanceNorm3d LazyLinear DataParallel SyncBatchNorm CTCLoss AdaptiveLogSoftmaxWithLoss RReLU Fold LocalResponseNorm
        MultiMarginLoss CircularPad2d Buffer ChannelShuffle RNNBase FractionalMaxPool2d TripletMarginWithDistanceLoss quantized""",
    "nn.functional": """grid_sample affine_grid fold ctc_loss relu_ multi_head_attention_forward lp_pool2d rrelu upsample_nearest
        multi_margin_loss pdist channel_shuffle adaptive_max_pool3d""",
    "optim": "SparseAdam Adafactor Muon",
    "distributions": """Beta Gamma Dirichlet StudentT Poisson Binomial LogNormal OneHotCategorical RelaxedBernoulli Gumbel
        MixtureSameFamily TransformedDistribution transforms constraints""",
    "utils.data": "get_worker_info DistributedSampler ChainDataset",
}


@pytest.mark.skipif(
    find_spec("needle_nn") is None, reason="needle-nn, which some names are looked for in, is not installed"
)
@each("where", list(ABSENT))
def test_the_answer_to_a_name_that_is_absent(where):
    place = ndl.ones(2, 2) if where == "Tensor" else functools.reduce(getattr, where.split("."), ndl) if where else ndl
    for name in ABSENT[where].split():
        with pytest.raises(AttributeError, match=rf"{name}'; .{{8,}}"):
            getattr(place, name)


def test_classes_of_ops_are_attributes_that_dir_leaves_out():
    assert ndl.EWiseAdd is ndl.ops.EWiseAdd and "EWiseAdd" not in dir(ndl) and "EWiseAdd" in dir(ndl.ops)
    assert {"Tensor", "TensorOp", "add", "cat", "float32", "long", "nn"} <= set(dir(ndl))


def test_places_that_pytorch_has_names_for():
    pytest.importorskip("needle_nn")
    code = "import needle as torch; print(torch.utils.data.DataLoader.__name__, torch.utils.checkpoint.checkpoint.__name__)"
    code += "; import needle.nn.modules.linear, needle.distributions.categorical, needle.optim.optimizer"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["DataLoader", "checkpoint"], "")
    with pytest.raises(AttributeError, match=r"needle.utils' has no attribute 'tensorboard'; a Trainer"):
        _ = ndl.utils.tensorboard


def test_a_checkpoint_computes_again():
    x = ndl.tensor([0.5, 1.0], requires_grad=True)
    y = ndl.utils.checkpoint.checkpoint_sequential([ndl.sin, ndl.exp, ndl.tanh], 2, x, use_reentrant=False)
    expected = ndl.autograd.grad(ndl.tanh(ndl.exp(ndl.sin(x))).sum(), x)[0]
    np.testing.assert_allclose(ndl.autograd.grad(y.sum(), x)[0].numpy(), expected.numpy(), rtol=1e-6)


# ---- Devices, random numbers, files -----------------------------------------------------------------------


def test_questions_about_devices():
    assert isinstance(ndl.cuda.is_available(), bool) and ndl.cuda.device_count() >= 0
    ndl.cuda.manual_seed_all(0), ndl.cuda.empty_cache()
    device = ndl.device("cuda:0" if ndl.cuda.is_available() else "cpu")
    assert ndl.zeros(2, device=device).to(device).device == device and ndl.device("cuda:1").index == 1
    assert ndl.device("cpu").type == "cpu" and ndl.device("cpu").index is None


@pytest.mark.parametrize("own", [False, True])
def test_a_seed_makes_all_random_numbers_again(own):
    def drawn():
        ndl.manual_seed(3)
        p = ndl.tensor([[0.2, 0.5, 0.3]])
        made = [
            ndl.rand(3),
            ndl.randn(2, 2),
            ndl.randint(0, 9, (4,)),
            ndl.randperm(6),
            ndl.multinomial(p, 2),
            ndl.bernoulli(p),
        ]
        return [x.tolist() for x in [*made, ndl.zeros(3).normal_(), ndl.zeros(2).uniform_(), ndl.normal(p, p)]]

    ndl.random.seed(0 if own else None)
    try:
        assert drawn() == drawn()
    finally:
        ndl.random.seed(None)


def test_a_generator_is_a_stream_of_its_own(device):
    g = ndl.Generator().manual_seed(7)
    state = np.random.get_state()[1].tolist()  # noqa: NPY002
    first = [
        ndl.rand(3, generator=g, device=device).tolist(),
        ndl.randint(9, (3,), generator=g, device=device).tolist(),
    ]
    g.manual_seed(7)
    assert (
        first == [ndl.rand(3, generator=g).tolist(), ndl.randint(9, (3,), generator=g).tolist()]
        and g.initial_seed() == 7
    )
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002
    assert sorted(ndl.randperm(20, generator=g).tolist()) == list(range(20))


def test_random_numbers_in_a_captured_function():
    g, p = ndl.Generator(), ndl.tensor([[0.1, 0.5, 0.4]])

    def draw(p):
        chosen = ndl.multinomial(p, 3, replacement=True, generator=g), ndl.multinomial(p, 2), ndl.bernoulli(p)
        return *chosen, ndl.randint(0, 9, (4,)), ndl.randperm(5), ndl.sort(p).values, ndl.searchsorted(p[0], p)

    found = []
    for function in (draw, ndl.capture(draw)):
        g.manual_seed(1), ndl.manual_seed(0)
        found.append([[x.tolist() for x in function(p)] for _ in range(5)])
    assert found[0] == found[1] and not function.refusals


def test_gradients_by_autograd_grad():
    x, y = ndl.tensor([3.0], requires_grad=True), ndl.tensor([1.0], requires_grad=True)
    (first,) = ndl.autograd.grad(x**3, x, create_graph=True)
    assert ndl.autograd.grad(first, x)[0].tolist() == [18.0] and x.grad is None
    assert not ndl.autograd.grad(x**3, x)[0].requires_grad
    with pytest.raises(RuntimeError, match=r"nothing leads from the outputs to input 1"):
        ndl.autograd.grad(x * 2, [x, y])
    assert ndl.autograd.grad(x * 2, [x, y], allow_unused=True)[1] is None


def test_multinomial_draws_by_weight():
    ndl.manual_seed(0)
    p = ndl.tensor([[1.0, 3.0, 0.0], [0.0, 0.0, 2.0]])
    found = ndl.multinomial(p, 4000, replacement=True).numpy()
    assert abs((found[0] == 1).mean() - 0.75) < 0.03 and (found[0] != 2).all() and (found[1] == 2).all()
    firsts = [ndl.multinomial(p[0], 2).tolist() for _ in range(400)]
    assert all(sorted(pair) == [0, 1] for pair in firsts) and 0.6 < np.mean([pair[0] == 1 for pair in firsts]) < 0.9
    for weights, n, message in [([0.0, 1.0], 2, "2 samples of 1 positions"), ([-1.0, 1.0], 1, "weights from -1.0")]:
        with pytest.raises(ValueError, match=message):
            ndl.multinomial(ndl.tensor(weights), n)


def test_set_grad_enabled_as_a_mere_call():
    before = ndl.is_grad_enabled()
    ndl.set_grad_enabled(False)
    assert not ndl.is_grad_enabled()
    ndl.set_grad_enabled(True)

    @ndl.set_grad_enabled(False)
    def inside():
        return ndl.is_grad_enabled()

    @ndl.inference_mode()
    def inferred():
        return ndl.is_grad_enabled()

    assert ndl.is_grad_enabled() == before and not inside() and not inferred() and ndl.is_grad_enabled()
    with ndl.set_grad_enabled(False), ndl.set_grad_enabled(True):
        assert ndl.is_grad_enabled()
    assert ndl.is_grad_enabled()


def test_states_go_to_files_and_come_back(tmp_path):
    pytest.importorskip("needle_nn")
    ndl.save({"w": ndl.tensor([1.0, 2.0]), "step": 3}, tmp_path / "state.npz")
    found = ndl.load(tmp_path / "state.npz", map_location="cpu")
    assert found["step"] == 3 and found["w"].tolist() == [1.0, 2.0]


def test_from_numpy_shares_and_tensor_copies():
    host = np.ones(3)
    shared, copied = ndl.from_numpy(host), ndl.tensor(host)
    host[0] = 5
    assert shared.tolist() == [5.0, 1.0, 1.0] and copied.tolist() == [1.0, 1.0, 1.0] and shared.dtype == "float64"
    x = ndl.tensor([2.0])
    assert (
        ndl.as_tensor(x) is x
        and ndl.as_tensor(host).tolist() == host.tolist()
        and ndl.tensor([x[0], 3]).tolist() == [2.0, 3.0]
    )
    for wrong, message in [("text", "expected numbers"), ([1j], "expected numbers")]:
        with pytest.raises(TypeError, match=message):
            ndl.tensor(wrong)
    with pytest.raises(TypeError, match=r"int64 cannot require a gradient"):
        ndl.tensor([1], requires_grad=True)
