"""The same values and gradients as PyTorch, for every row of op_table.py that has a twin there."""

from functools import partial
from itertools import product

import numpy as np
import op_table
import pytest
from op_table import AXES, BY_ID, IDS, KEYS, MASK, REPEATED, ROWS, TOLERANCE, outputs

import needle as ndl
from needle.autograd import gradients

torch = pytest.importorskip("torch")
F = torch.nn.functional

pytestmark = pytest.mark.parity

#: Ops whose every form is one function of the same tensors.
BY_NAME = {
    "negate": torch.neg,
    "gelu": F.gelu,
    "silu": F.silu,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "power": None,  # by id: some rows have a constant base or exponent
    "clone": torch.clone,
}
for name in "log log1p exp expm1 sqrt sin cos tanh sigmoid erf relu abs add divide maximum minimum matmul".split():
    BY_NAME[name] = getattr(torch, name)


def _same(row):
    """Whether a row is its op of its inputs, and nothing else."""
    return row.id.endswith(" ".join(str(x.shape) for x in row.inputs)) or row.id.split("/")[1].startswith("(")


TWINS = {row.id: BY_NAME[row.name] for row in ROWS if BY_NAME.get(row.name) and _same(row)}
TWINS |= {row.id: torch.pow for row in ROWS if row.name == "power" and _same(row)}
TWINS |= {
    row.id: lambda x, w, *b: x @ w + b[0] if b else x @ w
    for row in ROWS
    if row.name == "linear"
}  # fmt: skip


def _dims(axes, x):
    """Axes as PyTorch takes them: a tuple, all of them for None"""
    return tuple(range(x.ndim)) if axes is None else axes if isinstance(axes, tuple) else (axes,)


def _moment(function, correction, x, axes, keep):
    if axes == ():
        return x * 0
    return function(x, _dims(axes, x), correction=correction, keepdim=keep)


REDUCTIONS = {
    "summation": lambda x, axes, keep: x.sum(_dims(axes, x), keepdim=keep) if axes != () else x * 1,
    "mean": lambda x, axes, keep: x.mean(_dims(axes, x), keepdim=keep) if axes != () else x * 1,
    "var": partial(_moment, torch.var, 0),
    "std": partial(_moment, torch.std, 0),
    "max": lambda x, axes, keep: torch.amax(x, _dims(axes, x), keepdim=keep) if axes != () else x * 1,
    "min": lambda x, axes, keep: torch.amin(x, _dims(axes, x), keepdim=keep) if axes != () else x * 1,
    "logsumexp": lambda x, axes, keep: torch.logsumexp(x, _dims(axes, x), keepdim=keep) if axes != () else x * 1,
}
TWINS |= {
    f"{name}/{axes}{' keepdims' * keep}": partial(lambda fn, axes, keep, x: fn(x, axes, keep), fn, axes, keep)
    for (name, fn), axes, keep in product(REDUCTIONS.items(), AXES, [False, True])
    if f"{name}/{axes}{' keepdims' * keep}" in BY_ID
}
TWINS |= {
    f"{name}/ddof {ddof} axes {axes}": partial(lambda fn, n, axes, x: _moment(fn, n, x, axes, False), fn, ddof, axes)
    for (name, fn), ddof, axes in product({"var": torch.var, "std": torch.std}.items(), [1, 2], [None, 0, (0, 1)])
}
OPERATORS = {
    "with tensors": lambda fn: fn,
    "with a number": lambda fn: lambda a: fn(a, 1.7),
    "with a number first": lambda fn: lambda a: fn(1.7, a),
    "with an array": lambda fn: lambda a: fn(a, torch.tensor([1.5, 2, 0.25])),
}
TWINS |= {
    f"Tensor/{op} {form}": wrapped(fn)
    for (op, fn), (form, wrapped) in product(op_table.OPERATORS.items(), OPERATORS.items())
}
TWINS |= {
    f"{name}/{shape} {axis}": partial(fn, dim=axis)
    for name, fn in {"softmax": torch.softmax, "logsoftmax": torch.log_softmax}.items()
    for shape, axis in [((2, 3), -1), ((2, 3), 0), ((4,), 0), ((2, 1), 1), ((0, 3), 1)]
}
TWINS |= {  # PyTorch's own gradients: what they are differentiated to is the second derivative of softmax
    f"{name}/{shape} axes {axis}": lambda g, y, fn=fn, axis=axis: fn(g, y, axis, y.dtype)
    for name, fn in {
        "SoftmaxGrad": torch.ops.aten._softmax_backward_data,
        "LogSoftmaxGrad": torch.ops.aten._log_softmax_backward_data,
    }.items()
    for shape, axis in [((2, 3), -1), ((2, 3), 0), ((3, 18), 1), ((0, 3), 1)]
}
TWINS |= {
    f"cumsum/{s} {axis}": partial(torch.cumsum, dim=axis) for s, axis in [((2, 3), 0), ((2, 3), -1), ((2, 3, 4), 1)]
}
TWINS |= {
    f"power_scalar/{c!r}": partial(lambda c, x: x**c, c) for c in [0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.7, 2.0]
}  # fmt: skip
TWINS |= {
    f"where/{c.shape} {a} {b}": partial(lambda c, a, b: torch.where(torch.tensor(c), a, b), c)
    for c, a, b in [(MASK, (2, 3), (2, 3)), (MASK, (3,), (2, 1)), (MASK[0], (2, 3), ()), (MASK, (4, 1, 1), (2, 3))]
}

# ---- Shapes, products, indexing --------------------------------------------------------------------------

TWINS |= {
    "make_tuple/2": lambda a, b: (a, b),
    "stack/default": lambda *a: torch.stack(a),
    "reshape/(2, 3) (-1,)": lambda x: x.reshape(-1),
    "broadcast_to/(1, 1) (3, 2, 4)": lambda x: x.broadcast_to(3, 2, 4),
    "broadcast_to/(3,) (2, 3)": lambda x: x.broadcast_to(2, 3),
    "transpose/(2, 3, 4) None": lambda x: x.mT,
    "transpose/(2, 3, 4) (-3, 2)": lambda x: x.transpose(-3, 2),
    "permute/(2, 3, 4) (2, 0, 1)": lambda x: x.permute(2, 0, 1),
    "permute/(2, 3, 4) (0, -1, 1)": lambda x: x.permute(0, -1, 1),
    "swapaxes/(2, 3, 4) 0 -1": lambda x: x.swapaxes(0, -1),
    "squeeze/(1, 2, 1) (0, 2)": lambda x: x.squeeze((0, 2)),
    "expand_dims/(2, 3) 1": lambda x: x.unsqueeze(1),
    "flip/(2, 3, 4) (0, -1)": lambda x: x.flip(0, -1),
    "pad/(2, 3) ((1, 2), (0, 1))": lambda x: F.pad(x, (0, 1, 1, 2)),
    "pad/(2,) ((3, 0),) 1.5": lambda x: F.pad(x, (3, 0), value=1.5),
    "split/(2, 3) 1": lambda x: x.unbind(1),
    "stack/[(2, 3), (2, 3), (2, 3)] axis 1": lambda *a: torch.stack(a, 1),
    "concatenate/[(2, 3), (2, 1), (2, 2)] axis 1": lambda *a: torch.cat(a, 1),
    "clip/(3, 4) -0.5 0.7": lambda x: x.clip(-0.5, 0.7),
    "clip/(3, 4) None 0.4": lambda x: x.clip(max=0.4),
    "Tensor/a @ b with its transpose": lambda a: a @ a.T,
    "sum_to/(2, 3) (3,)": lambda x: x.sum_to_size(3),
    "sum_to/(4, 1, 3) (1, 1)": lambda x: x.sum_to_size(1, 1),
}
TWINS |= {
    row.id: partial(torch.einsum, row.id.split("/")[1])
    for row in ROWS
    if row.name == "einsum" and "->" in row.id
}  # fmt: skip


def _torch_key(key):
    if isinstance(key, tuple):
        return tuple(_torch_key(item) for item in key)
    return torch.tensor(key) if isinstance(key, np.ndarray) else key


def _put(key, a, b):
    out = a.clone()
    out[_torch_key(key)] = b
    return out


def _gather_twin(index, axis, x):
    return torch.gather(x, axis, torch.tensor(index))


NO_NEGATIVE_STEPS = {"negative step"}  # PyTorch has none
TWINS |= {
    f"getitem/{form}": partial(lambda key, x: x[_torch_key(key)], key)
    for form, (_, key) in KEYS.items()
    if form not in NO_NEGATIVE_STEPS
}
TWINS |= {
    "GetItem/x[Tensor key]": lambda x: x[torch.tensor([1, 1, 0])],
    "GetItem/x[Tensor mask]": lambda x: x[x > 0],
    "GetItem/x[...] of 0-d": lambda x: x[...].clone(),
}
TWINS |= {
    f"setitem/{form}": partial(_put, key) for form, (_, key) in KEYS.items() if form not in NO_NEGATIVE_STEPS | REPEATED
}
TWINS |= {
    f"gather/{shape} {np.array(index)} {axis}": partial(_gather_twin, index, axis)
    for shape, index, axis in [
        ((2, 3), [[0, 2, 2], [1, 1, 0]], -1),
        ((2, 3), [[0], [2]], 1),
        ((2, 3), [[1, 0]], 0),
        ((4,), [3, 3, 0], 0),
    ]
}
TWINS |= {
    f"embedding/{form}": partial(
        lambda ids, w: F.embedding(torch.tensor(np.asarray(ids, dtype=np.int64)), w), IDS[form]
    )
    for form in ("list", "ints", "floats", "one", "none")
}

# ---- PyTorch's names ------------------------------------------------------------------------------------

BY_FUNCTION = {
    name: getattr(torch, name)
    for name in "tan asin acos atan sinh cosh asinh acosh atanh log2 log10 atan2 hypot logaddexp".split()
}
TWINS |= {row.id: BY_FUNCTION[row.name] for row in ROWS if row.name in BY_FUNCTION and "far apart" not in row.id}
TWINS |= {
    **{f"cumprod/{s} {axis}": partial(torch.cumprod, dim=axis) for s, axis in [((4,), 0), ((2, 3), -1), ((2, 5, 2), 1)]},
    "cumprod/a zero among them": lambda x: torch.cumprod(x * torch.tensor([1.0, 0, 1, 1]).to(x), 0),
    "prod/a zero among them": lambda x: torch.prod(x * torch.tensor([1.0, 0, 1, 1]).to(x), 0),
    "prod/(2, 3, 5) None": torch.prod,
    "prod/(2, 3, 5) 1 keepdims": lambda x: x.prod(1, keepdim=True),
    "diff/(2, 5) 1 2": lambda x: x.diff(2),
    "remainder/number": lambda x: torch.remainder(x, 0.7),
    "flatten/(2, 3, 4) 1": lambda x: x.flatten(1),
    "narrow/(4, 2) 0 1 2": lambda x: x.narrow(0, 1, 2),
    "chunk/(2, 5) 3 1": lambda x: x.chunk(3, 1),
    "split_sizes/(2, 4) (1, 0, 3) -1": lambda x: x.split((1, 0, 3), -1),
    "roll/(2, 3) (1, 2) (0, 1)": lambda x: x.roll((1, 2), (0, 1)),
    "tile/(2, 3) (2, 1)": lambda x: x.tile(2, 1),
    "repeat/(2, 3) 3 -1": lambda x: x.repeat_interleave(3, -1),
    "repeat/(3,) [1, 0, 2] 0": lambda x: x.repeat_interleave(torch.tensor([1, 0, 2]), 0),
    "tril/(2, 3, 3) -1": lambda x: x.tril(-1),
    "triu/(2, 4) 1": lambda x: x.triu(1),
    "diag/(3, 3) ": torch.diag,
    "diag/(2,) -2": lambda x: x.diag(-2),
    "moveaxis/(2, 3, 4) (0, 1) (2, 0)": lambda x: x.moveaxis((0, 1), (2, 0)),
    "meshgrid/ij": lambda *a: torch.meshgrid(*a, indexing="ij"),
    "broadcast_arrays/three": torch.broadcast_tensors,
    "sort/(3, 2, 2) [1, True]": lambda x: x.sort(1, descending=True).values,
    "topk/(2, 4) [2, -1, False]": lambda x: x.topk(2, -1, largest=False).values,
    "amax/(0, 2)": lambda x: x.amax((0, 2)),
    "amin/1 keepdims": lambda x: x.amin(1, keepdim=True),
    "max/dim, the values": lambda x: x.max(1).values,
    "min/two tensors": torch.min,
    "to/device and dtype": lambda x: x.to("cpu", x.dtype) * 2,
}  # fmt: skip

# ---- Networks --------------------------------------------------------------------------


def _given(row):
    """The keyword arguments that a row's twin is called with."""
    return dict(row.ref.keywords)


def _channels_first(x):
    return x.movedim(-1, 1)


def _conv(row, x, w, bias=None):
    given = _given(row)
    (top, bottom), (left, right) = op_table._sides(given.pop("padding", 0))
    given.pop("bias", None)
    y = F.conv2d(
        F.pad(_channels_first(x), (left, right, top, bottom)), w.permute(3, 2, 0, 1).contiguous(), bias, **given
    )
    return y.movedim(1, -1)


def _conv1d(row, x, w, bias=None):
    given = _given(row)
    before, after = op_table._pair(given.pop("padding", 0))
    return F.conv1d(F.pad(_channels_first(x), (before, after)), w.permute(2, 1, 0).contiguous(), bias, **given).movedim(
        1, -1
    )


def _conv_transpose(row, x, w, bias=None):
    return F.conv_transpose2d(_channels_first(x), w.permute(3, 2, 0, 1).contiguous(), bias, **_given(row)).movedim(
        1, -1
    )


def _pool(function, row, x):
    given = _given(row)
    return function(_channels_first(x), given.pop("size"), **given).movedim(1, -1)


def _layer_norm(row, x, weight=None, bias=None):
    return F.layer_norm(x, x.shape[-1:], weight, bias, **_given(row))


def _batch_norm(row, x, weight=None, bias=None):
    given = _given(row)
    axis = given.pop("axis", 1)
    y = F.batch_norm(x.movedim(axis, 1), None, None, weight, bias, training=True, **given)
    return y.movedim(1, axis)


def _cross_entropy(row, x):
    given = _given(row)
    labels = torch.tensor(np.asarray(given.pop("labels"), dtype=np.int64))
    x = x.movedim(-1, 1) if x.ndim > 2 else x
    return F.cross_entropy(x, labels, **given)


def _attention(row, q, k, v, mask=None):
    given = _given(row)
    mask = given.pop("mask", mask)
    mask = torch.tensor(mask, dtype=None if mask.dtype == bool else q.dtype) if isinstance(mask, np.ndarray) else mask
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=given.pop("causal", False), **given)


def _squares(row, a, b):
    return F.mse_loss(a, b)


NETWORK = {
    "conv2d": _conv,
    "conv1d": _conv1d,
    "conv_transpose2d": _conv_transpose,
    "max_pool2d": partial(_pool, F.max_pool2d),
    "avg_pool2d": partial(_pool, F.avg_pool2d),
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
    "cross_entropy": _cross_entropy,
    "mean_squared_error": _squares,
    "scaled_dot_product_attention": _attention,
}
#: Forms that PyTorch has not, or has otherwise.
NOT_THERE = {
    "batch_norm/in evaluation",
    "scaled_dot_product_attention/causal, more keys",  # PyTorch aligns the mask at the start
    "scaled_dot_product_attention/mask and causal",
    "scaled_dot_product_attention/learned mask",
    "max_pool2d/no images",
    "avg_pool2d/no images",
}
TWINS |= {
    row.id: partial(NETWORK[row.name], row)
    for row in ROWS
    if row.name in NETWORK and row.id not in NOT_THERE
}  # fmt: skip

# ---- Kinks: where a formula alone would be 0/0, or infinite times 0 -----------------------------------

INF, NAN = float("inf"), float("nan")
NUMBERS = [0.0, 1.0, -1.0, 2.0, INF, -INF, 1e-320]
PAIRS = list(product(NUMBERS, NUMBERS))
EQUAL_ROWS = [[2.0, 2.0, 2.0], [0.0, 0.0, 0.0], [1.0, 3.0, 3.0], [-INF, 1.0, 2.0], [1e200, 1e200, 1e200]]
KINKS = {
    **{name: (getattr(ndl, name), getattr(torch, name), (NUMBERS,)) for name in "sqrt log log1p abs relu tanh".split()},
    **{
        f"power {c}": (lambda x, c=c: x**c, lambda x, c=c: x**c, ([n for n in NUMBERS if n != -INF],))
        for c in (0, 0.5, 1, 1.5, 2, -1)
    },
    "clip": (lambda x: x.clip(-1, 1), lambda x: x.clamp(-1, 1), (NUMBERS,)),
    **{
        name: (getattr(ndl, name), twin, tuple(zip(*PAIRS, strict=True)))
        for name, twin in [("power", torch.pow), ("divide", torch.div), ("maximum", torch.maximum)]
    },
    "std": (lambda x: ndl.std(x, 1), lambda x: x.std(1, correction=0), (EQUAL_ROWS,)),
    "std, ddof": (lambda x: ndl.std(x, 1, ddof=1), lambda x: x.std(1), (EQUAL_ROWS,)),
    "std of all": (lambda x: x[:2].std(), lambda x: x[:2].std(correction=0), ([[3.0] * 4] * 2,)),
    "max": (lambda x: ndl.max(x, 1), lambda x: x.amax(1), (EQUAL_ROWS,)),
    "min": (lambda x: ndl.min(x, 1), lambda x: x.amin(1), (EQUAL_ROWS,)),
    "logsumexp": (lambda x: ndl.logsumexp(x, 1), lambda x: x.logsumexp(1), (EQUAL_ROWS,)),
    "softmax": (lambda x: ndl.softmax(x)[:, :1], lambda x: x.softmax(1)[:, :1], (EQUAL_ROWS,)),
    "length": (lambda x: (x * x).sum(1).sqrt(), lambda x: (x * x).sum(1).sqrt(), (EQUAL_ROWS,)),
}


@pytest.mark.parametrize("kink", KINKS)
def test_gradients_at_kinks(kink):
    ours, theirs, given = KINKS[kink]
    xs = [ndl.Tensor(np.array(x), dtype="float64") for x in given]
    ts = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in given]
    ours(*xs).sum().backward()
    theirs(*ts).sum().backward()
    for x, t in zip(xs, ts, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-12)


# ---- The tests --------------------------------------------------------------------------


def test_twins_are_rows():
    assert set(TWINS) <= set(BY_ID), set(TWINS) - set(BY_ID)


def test_most_differentiable_ops_have_a_twin():
    without = {row.name for row in ROWS if row.order} - {BY_ID[name].name for name in TWINS}
    assert without <= {
        *(
            "add_scalar",
            "mul_scalar",
            "divide_scalar",
            "fused_add_scalars",
            "tuple_get_item",
        ),  # the operators' rows do these
        *("dilate", "undilate", "take", "astype", "to_device", "Alias", "AddAt", "ScatterAdd", "FitTo", "NegateBeside"),
        *(
            "TanhGrad",
            "SigmoidGrad",
            "ReLUGrad",
            "MatMul",
            "LogSumExpGrad",
        ),  # second derivatives of tanh, sigmoid, relu, matmul and logsumexp do these
        *("lstm", "gru", "rnn"),  # their layers have twins, in needle-nn
        *("conv", "attention_probabilities", "Dropout", "dropout"),  # others of their kind have one
    }


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("row_id", TWINS)
def test_parity(row_id, dtype, device):
    row = BY_ID[row_id]
    ours = row.tensors(device, dtype)
    results = outputs(row.fn(*ours))
    theirs = [torch.tensor(x, dtype=getattr(torch, dtype), requires_grad=True) for x in row.arrays(dtype)]
    expected = TWINS[row_id](*theirs)
    expected = [expected] if isinstance(expected, torch.Tensor) else list(expected)
    assert [tuple(y.shape) for y in results] == [tuple(y.shape) for y in expected]
    rng = np.random.default_rng(0)
    out_grads = [rng.standard_normal(y.shape) for y in results]
    got = gradients(results, ours, [ndl.Tensor(g, dtype=dtype, device=device) for g in out_grads])
    their_grads = [torch.tensor(g, dtype=y.dtype) for g, y in zip(out_grads, expected, strict=True)]
    wanted = torch.autograd.grad(expected, theirs, their_grads)
    for a, b in zip([*results, *got], [*expected, *wanted], strict=True):
        assert a.dtype == str(b.dtype).removeprefix("torch.")
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), **TOLERANCE[dtype])
