"""Writing: what an op has kept is the old value or an error, whoever writes; gradients share memory with nobody."""

import operator

import numpy as np
import pytest
from op_table import DIFFERENTIABLE, outputs

import needle as ndl
import needle_ndarray as nd
from needle import autograd, ops
from needle.autograd import gradients
from needle_ndarray.testing import each


def projections(results):
    rng = np.random.default_rng(1)
    return [ndl.Tensor(rng.standard_normal(y.shape), device=y.device, dtype=y.dtype) for y in results]


def held(row, device):
    """Inputs that are results themselves (so that a write to one leaves the leaf alone), the leaves, and the outputs."""
    leaves = row.tensors(device)
    inputs = [ops.clone(x) for x in leaves]
    return leaves, inputs, outputs(row.fn(*inputs))


def write(x):
    array = x.realize_cached_data()
    if array.size and 0 not in [s for s, n in zip(array.strides, array.shape, strict=True) if n > 1]:
        array[...] = array.numpy()[(slice(None, None, -1),) * array.ndim] + 1.0
        return True
    return False


def gradients_or_error(results, leaves, grads):
    try:
        return [None if g is None else g.numpy() for g in gradients(results, leaves, grads)]
    except RuntimeError as error:
        assert "was changed in place after it was used" in str(error)
        return None


@each("row", DIFFERENTIABLE)
def test_a_write_after_the_forward_is_an_error_or_changes_nothing(row, device):
    leaves, inputs, results = held(row, device)
    expected = gradients_or_error(results, leaves, projections(results))
    for place in range(len(inputs) + len(results)):
        leaves, inputs, results = held(row, device)
        grads = projections(results)
        if not write([*inputs, *results][place]):
            continue
        got = gradients_or_error(results, leaves, grads)
        for a, b in zip(got or [], expected, strict=got is not None):
            np.testing.assert_array_equal(a, b, err_msg=f"{row.id}: written to {place}")


READING = {
    "realize_cached_data": lambda x: ndl.Tensor(x.realize_cached_data().copy(), requires_grad=False),
    "cached_data": lambda x: ndl.Tensor(x.cached_data.copy(), requires_grad=False),
    "numpy": lambda x: ndl.Tensor(x.numpy(), requires_grad=False),
    "tolist": lambda x: ndl.Tensor(x.tolist(), requires_grad=False),
    "item": lambda x: ndl.Tensor(np.full(x.shape, x[0].item(), "float32"), requires_grad=False),
    "array": lambda x: ndl.Tensor(np.asarray(x), requires_grad=False),
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "Tensor": lambda x: ndl.Tensor(x, requires_grad=False),
    "make_const": lambda x: ndl.Tensor.make_const(x),
    "comparison": lambda x: (x > 0).astype("float32"),
}


@pytest.mark.parametrize("how", READING)
def test_a_gradient_of_your_own_reads_only_what_the_forward_saw(how):
    class Square(ndl.TensorOp):
        def compute(self, x):
            return x * x

        def gradient(self, out_grad, node):
            return out_grad * READING[how](node.inputs[0])

    x = ndl.Tensor([1.0, 2.0])
    h = x * 1.0
    y = Square()(h)
    y.sum().backward()  # nothing was written: no error
    h = x * 1.0
    y = Square()(h)
    h.realize_cached_data()[...] = 5.0
    with pytest.raises(RuntimeError, match=r"Square: its input of shape \(2,\) .* was changed in place"):
        y.sum().backward()


def test_a_gradient_may_write_to_what_it_makes():
    class Mask(ndl.TensorOp):
        def compute(self, x):
            return x * 1.0

        def gradient(self, out_grad, node):
            mask = ndl.zeros(*node.shape)
            mask.realize_cached_data()[0] = 1.0
            return ndl.Tensor.make_const(mask.realize_cached_data() * out_grad.realize_cached_data())

    x = ndl.Tensor([1.0, 2.0])
    Mask()(x).backward()
    assert x.grad.tolist() == [1.0, 0.0]


# ---- Arguments --------------------------------------------------------------------------

KEYS = {
    "NumPy": (lambda: np.array([0, 1]), lambda k: k.fill(2)),
    "NDArray": (lambda: nd.array([0, 1], dtype="int64"), lambda k: k.fill(2)),
    "Tensor": (lambda: ndl.Tensor(np.array([0, 1])), lambda k: k.realize_cached_data().fill(2)),
    "list": (lambda: [0, 1], lambda k: k.__setitem__(slice(None), [2, 2])),
    "nested list": (lambda: [[0], [1]], lambda k: k[0].__setitem__(0, 2)),
    "tuple with an array": (lambda: (np.array([0, 1]), slice(None)), lambda k: k[0].fill(2)),
    "tuple with a list": (lambda: ([0, 1], ...), lambda k: k[0].__setitem__(0, 2)),
    "two arrays": (lambda: (np.array([0, 1]), nd.array([0, 1], dtype="int64")), lambda k: (k[0].fill(2), k[1].fill(0))),
    "mask": (lambda: np.array([True, False, True]), lambda k: k.fill(True)),
    "mask of two axes": (lambda: np.eye(3, 4, dtype=bool), lambda k: k.fill(True)),
    "NDArray mask": (lambda: nd.array([True, False, True], dtype="bool"), lambda k: k.fill(True)),
    "slice of arrays": (lambda: slice(np.array(0), np.array(2)), lambda k: k.stop.fill(3)),
    "0-d array": (lambda: np.array(1), lambda k: k.fill(2)),
}
INDEXING = {
    "getitem": lambda x, k: x[k],
    "setitem": lambda x, k: ops.setitem(x, k, 0.0),
    "setitem of a Tensor": lambda x, k: ops.setitem(x * 1.0, k, x[k]),
    "add_at": lambda x, k: ops.AddAt(k, (3, 4))(x[k]),
}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("op", INDEXING)
def test_a_key_that_changes_after_the_forward_changes_nothing(op, key):
    make, change = KEYS[key]
    grads = []
    for changed in (False, True):
        for lazy in (False, True):
            x, k = ndl.Tensor(np.arange(12.0).reshape(3, 4)), make()
            with ndl.lazy_mode(lazy):
                y = INDEXING[op](x, k)
                if changed:
                    change(k)
                (y * y).sum().backward()
            grads.append(x.grad.numpy())
    for g in grads[1:]:
        np.testing.assert_array_equal(g, grads[0])


POSITIONS = {name: KEYS[name] for name in ("NumPy", "NDArray", "Tensor", "list")}


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize(
    "fn",
    {
        "take": lambda x, k: ops.take(x, k, 0),
        "embedding": lambda x, k: ops.embedding(k, x),
        "gather": lambda x, k: ops.gather(x[0], k),
        "cross_entropy": lambda x, k: ops.cross_entropy(x[:2], k),
        "one_hot": lambda x, k: ndl.init.one_hot(3, k) @ x,
        "where": lambda x, k: ops.where(k, x[:, :2], 0.0),
    }.items(),
    ids=lambda item: item[0],
)
def test_positions_that_change_after_the_forward(fn, positions):
    make, change = POSITIONS[positions]
    grads = []
    for changed in (False, True):
        x, k = ndl.Tensor(np.arange(12.0).reshape(3, 4)), make()
        y = fn[1](x, k)
        if changed:
            change(k)
        try:
            (y * y).sum().backward()
        except RuntimeError as error:
            assert "was changed in place" in str(error) and changed
            return
        grads.append(x.grad.numpy())
    np.testing.assert_array_equal(*grads)


def change_list(given):
    given[:] = [1] * len(given)


AXES = {
    "summation": (lambda x, a: ops.summation(x, a), [0]),
    "mean": (lambda x, a: ops.mean(x, a), [0]),
    "max": (lambda x, a: ops.max(x, a), [0]),
    "min": (lambda x, a: ops.min(x, a), [0]),
    "var": (lambda x, a: ops.var(x, a), [0]),
    "std": (lambda x, a: ops.std(x, a), [0]),
    "logsumexp": (lambda x, a: ops.logsumexp(x, a), [0]),
    "softmax": (lambda x, a: ops.softmax(x, a), [0]),
    "logsoftmax": (lambda x, a: ops.logsoftmax(x, a), [0]),
    "flip": (lambda x, a: ops.flip(x, a), [0]),
    "permute": (lambda x, a: ops.permute(x, a), [1, 0]),
    "transpose": (lambda x, a: ops.transpose(x, a), [1, 0]),
    "reshape": (lambda x, a: ops.reshape(x, a), [6, 2]),
    "broadcast_to": (lambda x, a: ops.broadcast_to(x, a), [2, 3, 4]),
    "dilate": (lambda x, a: ops.dilate(x, a, 1), [0]),
    "pad": (lambda x, a: ops.pad(x, [a, (0, 0)]), [2, 0]),
    "add_scalar": (lambda x, a: ops.add_scalar(x, np.asarray(a, "float32")), [3]),
    "clip": (lambda x, a: ops.clip(x, a[0]), [3]),
}
AXES |= {
    f"{name}, an array": (lambda x, a, fn=fn: fn(x, np.asarray(a)), start)
    for name, (fn, start) in AXES.items()
    if name in ("reshape", "broadcast_to")
}


@pytest.mark.parametrize("op", AXES)
def test_axes_and_shapes_that_change_after_the_forward(op):
    fn, start = AXES[op]
    grads = []
    for changed in (False, True):
        x, a = ndl.Tensor(np.arange(12.0).reshape(3, 4)), list(start)
        y = fn(x, a)
        if changed:
            change_list(a)
        (y * y).sum().backward()
        grads.append(x.grad.numpy())
    np.testing.assert_array_equal(*grads)


SCALARS = {
    "add": lambda x, c: ops.add_scalar(x, c),
    "mul": lambda x, c: ops.mul_scalar(x, c),
    "div": lambda x, c: ops.divide_scalar(x, c),
    "power": lambda x, c: ops.power_scalar(x, c),
    "clip": lambda x, c: ops.clip(x, c),
    "layer_norm": lambda x, c: ops.layer_norm(x, eps=c),
    "batch_norm": lambda x, c: ops.batch_norm(x, eps=c),
    "attention": lambda x, c: ops.scaled_dot_product_attention(x, x, x, scale=c),
    "pad": lambda x, c: ops.pad(x, ((1, 1), (0, 0)), c),
    "fused_add_scalars": lambda x, c: ops.fused_add_scalars(x, c, c)[0],
    "dropout": lambda x, c: ops.Dropout(c / 8)(x, ndl.Tensor(np.eye(3, 4, dtype=bool))),
}


@pytest.mark.parametrize("op", SCALARS)
def test_a_scalar_given_as_an_array_may_change_after_the_forward(op):
    grads = []
    for changed in (False, True):
        x, c = ndl.Tensor(np.arange(1.0, 13.0).reshape(3, 4)), np.array([2.0], "float32")
        y = SCALARS[op](x, c)
        if changed:
            c[:] = 3.0
        (y * y).sum().backward()
        grads.append(x.grad.numpy())
    np.testing.assert_array_equal(*grads)


def test_constants_of_your_own_operators_are_copied():
    @ndl.operator
    def masked(x, mask=None, scale=()):
        return x * nd.array(mask) * scale[0]

    @masked.defgradient
    def _(out_grad, node, mask=None, scale=()):
        return out_grad * ndl.Tensor(mask) * scale[0]

    x, mask, scale = ndl.Tensor([1.0, 2.0]), np.array([1.0, 0.0]), [3.0]
    y = masked(x, mask=mask, scale=scale)
    mask[:], scale[0] = 7.0, 9.0
    y.backward()
    assert x.grad.tolist() == [3.0, 0.0]


def test_a_batch_norm_op_called_twice():
    """The op keeps mean and variance of what it computed last."""
    op, weight, bias = ops.BatchNorm(1e-5), ndl.ones(3), ndl.zeros(3)
    rng = np.random.default_rng(0)
    a, b = (ndl.Tensor(rng.standard_normal((5, 3)) * scale, dtype="float64") for scale in (1.0, 10.0))
    weight, bias = weight.astype("float64"), bias.astype("float64")
    first, _ = op(a, weight, bias), op(b, weight, bias)
    (first * first * first).sum().backward()
    again = ndl.Tensor(a.numpy(), dtype="float64")
    (ops.BatchNorm(1e-5)(again, weight, bias) ** 3).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), again.grad.numpy(), rtol=1e-10)


# ---- Gradients and their memory --------------------------------------------------------------------------


def two(fn, *args):
    """Two leaves, and what backward was asked for."""
    a, b = ndl.Tensor(np.arange(1.0, 5.0).reshape(2, 2)), ndl.Tensor(np.arange(5.0, 9.0).reshape(2, 2))
    return a, b, fn(a, b)


class Swap(ndl.TensorOp):
    """A gradient that hands out its inputs: y = sum a b."""

    def compute(self, a, b):
        return (a * b).sum()

    def gradient(self, out_grad, node):
        return node.inputs[1], node.inputs[0]


SHARING = {
    "sum": lambda a, b: (a + b).sum(),
    "no reduction": lambda a, b: a + b,
    "scaled": lambda a, b: ((a + b) * 3.0).sum(),
    "product": lambda a, b: ((a + b) * (a + b)).sum(),
    "reshaped": lambda a, b: (a.reshape(4) + b.reshape(4)).sum(),
    "transposed": lambda a, b: (a.T + b).sum(),
    "twice": lambda a, b: (a + a + b).sum(),
    "slices": lambda a, b: (a[0] + b[0]).sum(),
    "stack": lambda a, b: ops.stack([a, b]).sum(),
    "split": lambda a, b: sum(ops.split(ops.stack([a, b]), 0).tuple()),
    "concatenate": lambda a, b: ops.concatenate([a, b]) * 2.0,
    "identity": lambda a, b: a + 0.0 + (b + 0.0),
    "inputs": lambda a, b: Swap()(a, b),
    "inputs in between": lambda a, b: Swap()(a * 1.0, b * 1.0),
    "mean": lambda a, b: ops.mean(a) + ops.mean(b),
    "views of one gradient": lambda a, b: (a.reshape(4)[:2] + b.reshape(4)[2:]) * 1.0,
}


def memory(x):
    """The bytes of a tensor, all of them where a stride is 0."""
    return np.asarray(x.realize_cached_data())


def assert_apart(named):
    for i, (name, x) in enumerate(named):
        for other, y in named[i + 1 :]:
            assert not np.shares_memory(memory(x), memory(y)), f"{name} and {other}"


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("case", SHARING)
def test_gradients_share_memory_with_nobody(case, given, accumulate, lazy):
    with ndl.lazy_mode(lazy):
        a, b, y = two(SHARING[case])
        out_grad = ndl.Tensor(np.ones(y.shape), requires_grad=False) if given else None
        y.backward(out_grad, accumulate=accumulate)
        held = [
            ("a", a),
            ("b", b),
            ("a.grad", a.grad),
            ("b.grad", b.grad),
            *([("out_grad", out_grad)] if given else []),
        ]
        assert_apart(held)
    before, kept = b.grad.numpy(), [x.numpy() for _, x in held]
    with ndl.no_grad():
        a.grad[...] = a.grad * 0.1  # no broadcast view either
    assert np.array_equal(b.grad.numpy(), before) and all(
        np.array_equal(x.numpy(), old) for (name, x), old in zip(held, kept, strict=True) if name != "a.grad"
    )


@pytest.mark.parametrize("case", SHARING)
def test_gradients_of_the_function_share_memory_with_nobody(case):
    a, b, y = two(SHARING[case])
    out_grad = ndl.Tensor(np.ones(y.shape), requires_grad=False)
    found = gradients([y], [a, b], [out_grad])
    assert_apart([("a", a), ("b", b), ("da", found[0]), ("db", found[1]), ("out_grad", out_grad)])


def test_what_retain_grad_and_hooks_keep_is_apart():
    a, b, h = two(lambda a, b: (a + b).retain_grad())
    seen = []
    a.register_hook(seen.append)
    y = h + 0.0
    out_grad = ndl.Tensor(np.ones((2, 2)))
    y.backward(out_grad)
    assert_apart([("h", h.grad), ("a", a.grad), ("b", b.grad), ("seen", seen[0]), ("out_grad", out_grad)])


def test_a_hook_that_writes_changes_one_gradient_only():
    a, b, y = two(lambda a, b: (a + b) * 1.0)
    a.register_hook(lambda g: g.realize_cached_data().fill(7.0))
    y.backward()
    assert a.grad.tolist() == [[7.0, 7.0]] * 2 and b.grad.tolist() == [[1.0, 1.0]] * 2


def test_the_course_s_function_copies_too():
    v, g = ndl.Tensor([1.0, 2.0]), ndl.Tensor([3.0, 4.0])
    autograd.compute_gradient_of_variables(v + 0.0, g)
    assert v.grad.tolist() == [3.0, 4.0] and not np.shares_memory(memory(v.grad), memory(g))


def test_a_copied_gradient_can_be_differentiated_again():
    a, _, y = two(lambda a, b: (a * a + b * b).sum())
    y.backward()
    first = a.grad
    first.backward()
    assert a.grad.tolist() == [[2.0, 2.0]] * 2
    a, _, y = two(lambda a, b: a + b)
    v = ndl.Tensor(np.ones((2, 2)))
    y.backward(v)
    (a.grad * 3.0).sum().backward()
    assert v.grad.tolist() == [[3.0, 3.0]] * 2


# ---- One gradient for several leaves: each has memory of its own ---------------------------------------------------------------

LOOKS = {
    "grad": lambda x: x.grad.realize_cached_data(),
    "step": lambda x: autograd.with_gradients([x])[2][0],
    "cached_data": lambda x: x.grad.cached_data,
    "detach": lambda x: x.grad.detach().realize_cached_data(),
}


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_write_to_one_gradient_leaves_the_others_alone(look, first, accumulate):
    leaves = [ndl.Tensor([1.0, 2.0]) for _ in range(3)]
    scale = ndl.Tensor([3.0, 5.0], requires_grad=False)
    ((leaves[0] + leaves[1] + leaves[2]) * scale).sum().backward(accumulate=accumulate)
    for turn in range(3):
        x = leaves[(first + turn) % 3]
        LOOKS[look](x)[...] = -float(turn + 1)
    for turn in range(3):
        assert leaves[(first + turn) % 3].grad.tolist() == [-float(turn + 1)] * 2


def shared():
    """Two leaves that have one gradient, g, which also is an input in the graph of another's; its product with a."""
    a, b, c = (ndl.Tensor([n, 2.0]) for n in (1.0, 3.0, 5.0))
    scale = ndl.Tensor([3.0, 5.0])  # g has a graph
    ((a * b + c) * scale).sum().backward()
    return a, b, c


def test_a_graph_that_has_the_gradient_of_a_leaf_is_not_written_to():
    a, b, c = shared()
    c.grad.realize_cached_data()[...] = 0.0
    assert b.grad.tolist() == [3.0, 10.0] and a.grad.tolist() == [9.0, 10.0]
    a.grad.sum().backward()  # d/db of (g b): g, as it was
    assert b.grad.tolist() == [3.0, 5.0]


def test_looking_within_no_grad_and_lazy_mode_keeps_the_graph():
    for mode in (ndl.no_grad, ndl.lazy_mode):
        *_, c = shared()
        with mode():
            grad = c.grad
        assert grad.requires_grad and grad is c.grad and grad.cached_data is not None


def test_what_an_op_holds_is_copied():
    kept = []

    class Keep(ndl.TensorOp):
        def compute(self, x):
            return x * 1.0

        def gradient(self, out_grad, node):
            kept.append(out_grad)
            return out_grad

    a, b = ndl.Tensor([1.0, 2.0]), ndl.Tensor([3.0, 4.0])
    scale = ndl.Tensor([3.0, 5.0], requires_grad=False)
    ((a + Keep()(b)) * scale).sum().backward()
    kept[0].realize_cached_data()[...] = 0.0
    assert a.grad.tolist() == b.grad.tolist() == [3.0, 5.0]


# ---- In-place operators --------------------------------------------------------------------------

IN_PLACE = {
    "+=": operator.iadd,
    "-=": operator.isub,
    "*=": operator.imul,
    "/=": operator.itruediv,
    "**=": operator.ipow,
    "@=": operator.imatmul,
}
OPERANDS = {
    "Tensor": lambda: ndl.Tensor([[2.0, 1.0], [1.0, 3.0]]),
    "NDArray": lambda: nd.array([[2.0, 1.0], [1.0, 3.0]]),
    "NumPy": lambda: np.array([[2.0, 1.0], [1.0, 3.0]]),
    "list": lambda: [[2.0, 1.0], [1.0, 3.0]],
    "number": lambda: 2.0,
    "NumPy number": lambda: np.float32(2.0),
}


@pytest.mark.parametrize("kind", OPERANDS)
@pytest.mark.parametrize("sign", IN_PLACE)
def test_in_place_operators_write_into_a_leaf_within_no_grad(sign, kind, device):
    if sign == "@=" and "umber" in kind:
        return
    host = np.array([[1.0, 2.0], [3.0, 4.0]], "float32")
    p, other = ndl.Tensor(host, device=device), OPERANDS[kind]()
    if isinstance(other, (ndl.Tensor, nd.NDArray)):
        other = other.to(device)
    alias, array, before = p.detach(), p.realize_cached_data(), p.realize_cached_data().version
    with ndl.no_grad():
        q = IN_PLACE[sign](p, other)
    expected = IN_PLACE[sign](host.copy(), np.asarray(other.numpy() if hasattr(other, "numpy") else other, "float32"))
    assert q is p and p.realize_cached_data() is array and array.version > before and p.requires_grad
    np.testing.assert_allclose(alias.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("sign", IN_PLACE)
def test_in_place_operators_record_elsewhere(sign):
    p = old = ndl.Tensor([[1.0, 2.0], [3.0, 4.0]])
    p = IN_PLACE[sign](p, ndl.Tensor([[2.0, 1.0], [1.0, 3.0]]))
    assert p is not old and p.op is not None and old.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    constant = ndl.Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=False)
    assert IN_PLACE[sign](constant, constant) is not constant
    h = old * 1.0
    with ndl.no_grad():
        assert IN_PLACE[sign](h, h) is not h and h.tolist() == old.tolist()  # a result: the graph needs it


def test_a_step_of_gradient_descent_by_hand():
    w = ndl.Tensor([1.0, 2.0])
    (w * w).sum().backward()
    params = [w]
    with ndl.no_grad():
        for p in params:
            p -= 0.5 * p.grad
    assert w.tolist() == [0.0, 0.0]


def test_an_in_place_write_is_seen_by_what_was_computed_before():
    w = ndl.Tensor([1.0, 2.0])
    y = (w * w).sum()
    with ndl.no_grad():
        w -= 1.0
    with pytest.raises(RuntimeError, match=r"was changed in place"):
        y.backward()


@pytest.mark.parametrize(
    ("left", "right", "error", "message"),
    [
        (
            lambda: ndl.Tensor([1.0]),
            lambda: ndl.Tensor([1.0, 2.0]),
            ValueError,
            r"out has shape \(1,\), the result \(2,\)",
        ),
        (lambda: ndl.Tensor(np.array([1])), lambda: 0.5, TypeError, r"cannot store float64 in an array of int"),
        (lambda: ndl.ones(1).broadcast_to(3), lambda: 1.0, ValueError, r"broadcast view"),
        (lambda: ndl.Tensor([1.0]), lambda: "a", TypeError, r"unsupported operand"),
    ],
)
def test_in_place_operators_keep_shape_and_dtype(left, right, error, message):
    x = left()
    with ndl.no_grad(), pytest.raises(error, match=message):
        x += right()
