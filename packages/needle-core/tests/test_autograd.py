"""The engine: what is recorded, in which order it is walked, what backward leaves behind."""

import gc
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import needle as ndl
from needle import autograd, ops
from needle.autograd import Tensor
from needle.torch_names import meanings


def tensor(*shape, seed=0, **kwargs):
    return Tensor(np.random.default_rng(seed).normal(size=shape), dtype="float64", **kwargs)


# ---- What is recorded --------------------------------------------------------------------------


def test_a_result_that_needs_no_gradient_keeps_no_graph():
    x = tensor(3, requires_grad=False)
    y = x * 2
    assert y.op is None and y.inputs == () and y.is_leaf() and not y.requires_grad


def test_a_recorded_result():
    x, y = tensor(3), tensor(3, requires_grad=False)
    z = x * y
    assert type(z.op) is ndl.EWiseMul and z.inputs == (x, y) and z.requires_grad and not z.is_leaf()
    assert z.num_outputs == 1 and z.cached_data is z.realize_cached_data()


def test_minus_is_add_of_negate():
    a, b = tensor(2), tensor(2)
    c = a - b
    assert type(c.op) is ndl.EWiseAdd and type(c.inputs[1].op) is ndl.Negate
    d = a - 2
    assert type(d.op) is ndl.AddScalar and d.op.scalar == -2


def test_make_const_and_make_from_op():
    a = tensor(2)
    shared = Tensor.make_const(a.realize_cached_data(), requires_grad=True)
    assert shared.requires_grad and shared.realize_cached_data() is a.realize_cached_data()
    made = Tensor.make_from_op(ndl.EWiseAdd(), [a, shared])
    np.testing.assert_array_equal(made.numpy(), 2 * a.numpy())
    assert made.inputs == (a, shared)


def test_topological_order_is_depth_first_post_order():
    a, b = tensor(2), tensor(2)
    c = a * b
    d = c + a
    e = d * c
    assert autograd.find_topo_sort([e]) == [a, b, c, d, e]
    assert autograd.find_topo_sort([d, e]) == [a, b, c, d, e]
    assert autograd.find_topo_sort([b, a]) == [b, a]
    visited, order = set(), []
    autograd.topo_sort_dfs(d, visited, order)
    autograd.topo_sort_dfs(e, visited, order)
    assert order == [a, b, c, d, e] and visited == {a, b, c, d, e}


def test_tensors_are_dict_keys_by_identity():
    a = tensor(2)
    b = Tensor(a.numpy(), dtype="float64")
    assert {a: 1}[a] == 1 and (a == b) is False and (a == a) is True and (a != b) is True and len({a, b}) == 2


def test_sum_node_list():
    a, b, c = tensor(2, seed=1), tensor(2, seed=2), tensor(2, seed=3)
    np.testing.assert_allclose(autograd.sum_node_list([a, b, c]).numpy(), a.numpy() + b.numpy() + c.numpy())


def test_lists_and_functions_of_the_course():
    x = tensor(3)
    y = x * x
    autograd.compute_gradient_of_variables(y, Tensor(np.ones(3), dtype="float64"))
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.numpy())
    assert autograd.array_api is not None and autograd.NDArray is ndl.NDArray


# ---- Backward --------------------------------------------------------------------------


def test_backward_overwrites_and_accumulate_adds():
    x = tensor(3)
    (x * 2).sum().backward()
    (x * 5).sum().backward()
    assert x.grad.numpy().tolist() == [5, 5, 5]
    (x * 2).sum().backward(accumulate=True)
    assert x.grad.numpy().tolist() == [7, 7, 7] and x.grad.is_leaf()
    y = tensor(3)
    (y * 4).sum().backward(accumulate=True)
    assert y.grad.numpy().tolist() == [4, 4, 4]


def test_non_scalar_outputs_take_ones():
    x = tensor(2, 3)
    (x * 3).backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full((2, 3), 3.0))


def test_out_grad_is_used_and_checked():
    x = tensor(2, 3)
    y = x * 3
    y.backward(Tensor(np.arange(6.0).reshape(2, 3), dtype="float64"))
    np.testing.assert_array_equal(x.grad.numpy(), 3 * np.arange(6.0).reshape(2, 3))
    with pytest.raises(ValueError, match=r"out_grad has shape \(3,\), the tensor \(2, 3\)"):
        y.backward(tensor(3))
    with pytest.raises(ValueError, match=r"out_grad is on cpu_numpy\(\), the tensor on cpu\(\)"):
        (tensor(2, device=ndl.cpu()) * 1).backward(tensor(2, device=ndl.cpu_numpy()))


def test_backward_of_a_constant_says_so():
    with pytest.raises(RuntimeError, match=r"nothing .* requires a gradient"):
        (tensor(2, requires_grad=False) * 2).backward()


def test_backward_of_a_leaf():
    x = tensor(2)
    x.backward()
    assert x.grad.numpy().tolist() == [1, 1]


def test_a_value_used_many_times():
    x = tensor(4)
    y = x * x + x * 3 + x
    (y * y).sum().backward()
    v = x.numpy()
    np.testing.assert_allclose(x.grad.numpy(), 2 * (v * v + 4 * v) * (2 * v + 4))


def test_interior_gradients_are_kept_on_request_only():
    x = tensor(2)
    y = x * 2
    z = (y * 3).retain_grad()
    z.sum().backward()
    assert y.grad is None and z.grad.numpy().tolist() == [1, 1] and x.grad.numpy().tolist() == [6, 6]


def test_gradients_of_gradients():
    x = Tensor([2.0], dtype="float64")
    (x**4).backward()
    for expected in (4 * 2.0**3, 12 * 2.0**2, 24 * 2.0, 24.0):
        gradient = x.grad
        np.testing.assert_allclose(gradient.numpy(), [expected])
        gradient.backward()


def test_a_leaf_that_gets_nothing_has_no_stale_gradient():
    x, y = tensor(2), tensor(2)
    (x * y).sum().backward()

    class First(ndl.TensorOp):
        def compute(self, a, b):
            return a + b

        def gradient(self, out_grad, node):
            return out_grad, None

    First()(x, y).sum().backward()
    assert x.grad.numpy().tolist() == [1, 1] and y.grad is None


def test_gradients_function_leaves_grad_alone():
    x, w = tensor(3), tensor(3, seed=1)
    y = x * w
    gx, gy, none = autograd.gradients([(y * y).sum()], [x, y, tensor(1)])
    np.testing.assert_allclose(gx.numpy(), 2 * x.numpy() * w.numpy() ** 2)
    np.testing.assert_allclose(gy.numpy(), 2 * y.numpy())
    assert none is None and x.grad is None and w.grad is None
    (again,) = autograd.gradients([gx.sum()], [x])
    np.testing.assert_allclose(again.numpy(), 2 * w.numpy() ** 2)


def test_several_outputs():
    x = tensor(3)
    (g,) = autograd.gradients([x * 2, x * x], [x], [None, Tensor(np.full(3, 10.0), dtype="float64")])
    np.testing.assert_allclose(g.numpy(), 2 + 20 * x.numpy())


def test_hooks_see_and_replace_gradients():
    x = tensor(2)
    y = x * 2
    seen = []
    first = y.register_hook(lambda g: seen.append(g.numpy().tolist()))
    y.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: seen.append(g.numpy().tolist()))
    y.sum().backward()
    assert seen == [[1, 1], [20, 20]] and x.grad.numpy().tolist() == [20, 20]
    first()
    first()  # removing twice does no harm
    y.sum().backward()
    assert seen[2:] == [[20, 20]]
    y.register_hook(lambda g: g.sum())
    with pytest.raises(TypeError, match=r"hook returned Tensor, expected a Tensor of shape \(2,\)"):
        y.sum().backward()
    with pytest.raises(TypeError, match=r"expected a function, got int"):
        y.register_hook(3)


BAD_OPS = [
    ("too few", lambda g, node: (g,), ValueError, "Bad.gradient returned 1 gradients for 2 inputs"),
    (
        "shape",
        lambda g, node: (g.sum(), g),
        ValueError,
        r"Bad.gradient returned shape \(\) for an input of shape \(2,\)",
    ),
    (
        "slot",
        lambda g, node: (autograd.Slot(0, g), g),
        TypeError,
        "Bad.gradient returned Slot, expected a Tensor or None",
    ),
    ("array", lambda g, node: (g.numpy(), g), TypeError, "Bad.gradient returned ndarray, expected a Tensor or None"),
]


@pytest.mark.parametrize(
    ("gradient", "error", "message"), [row[1:] for row in BAD_OPS], ids=[row[0] for row in BAD_OPS]
)
def test_wrong_gradients_of_user_ops_are_named(gradient, error, message):
    class Bad(ndl.TensorOp):
        def compute(self, a, b):
            return a + b

        def gradient(self, out_grad, node):
            return gradient(out_grad, node)

    with pytest.raises(error, match=message):
        Bad()(tensor(2), tensor(2)).backward()


TUPLE_GRADIENTS = [
    ("tensor", lambda g: g, TypeError, "Pick.gradient returned Tensor, expected a TensorTuple"),
    ("slot", lambda g: autograd.Slot(7, g), IndexError, "Pick.gradient returned entry 7 of a tuple of 2"),
    ("negative", lambda g: autograd.Slot(-1, g), IndexError, "Pick.gradient returned entry -1 of a tuple of 2"),
    ("empty slot", lambda g: autograd.Slot(0, None), TypeError, "Pick.gradient returned Slot"),
    ("longer", lambda g: ops.make_tuple(g, g, g), ValueError, "Pick.gradient returned a tuple of 3 for one of 2"),
]


@pytest.mark.parametrize(
    ("gradient", "error", "message"), [row[1:] for row in TUPLE_GRADIENTS], ids=[row[0] for row in TUPLE_GRADIENTS]
)
def test_wrong_gradients_of_tuples(gradient, error, message):
    class Pick(ndl.TensorOp):
        def compute(self, pair):
            return pair[0]

        def gradient(self, out_grad, node):
            return gradient(out_grad)

    pair = ops.split(tensor(2, 3), 0)
    with pytest.raises(error, match=message):
        Pick()(pair).backward()


def test_wrong_results_of_user_ops_are_named():
    class Bad(ndl.TensorOp):
        def compute(self, a):
            return "text"

    with pytest.raises(TypeError, match=r"Bad.compute returned str, expected an NDArray"):
        Bad()(tensor(2))
    with pytest.raises(NotImplementedError, match=r"Silent.compute"):
        type("Silent", (ndl.TensorOp,), {})()(tensor(2))
    forward_only = type("Forward", (ndl.TensorOp,), {"compute": lambda self, a: a + 1})
    with pytest.raises(NotImplementedError, match=r"Forward has no gradient"):
        forward_only()(tensor(2)).backward()
    with pytest.raises(TypeError, match=r"EWiseAdd: expected a Tensor, got str"):
        ndl.EWiseAdd()("a")


def test_ops_take_what_numpy_made():
    class Double(ndl.TensorOp):
        def compute(self, a):
            return a.numpy() * 2

        def gradient(self, out_grad, node):
            return out_grad * 2

    x = tensor(2)
    y = Double()(x)
    y.backward()
    assert isinstance(y.realize_cached_data(), ndl.NDArray) and x.grad.numpy().tolist() == [2, 2]


# ---- Depth, life and death --------------------------------------------------------------------------


@pytest.mark.parametrize("length", [200_000])
def test_a_long_chain_of_ops(length):
    """Forward, backward and death without recursion, in a stack that has one byte for each op, and 13 for those of the last two."""
    code = f"""
import resource, threading
threading.stack_size(256 * 1024)
import needle as ndl
from needle import autograd
def work():
    start = autograd.TENSOR_COUNTER
    x = ndl.Tensor([1.0])
    y = x
    for _ in range({length}):
        y = y + 1
    assert autograd.TENSOR_COUNTER == start + {length} + 1
    y.backward()
    assert x.grad.numpy().tolist() == [1.0] and y.item() == {length} + 1
    del y
    assert autograd.TENSOR_COUNTER == start + 2, autograd.TENSOR_COUNTER
    y = x
    for _ in range({length // 10}):
        y = y * 1.0
    y.backward()                    # the gradients have a graph as deep
    with ndl.lazy_mode():
        z = x
        for _ in range({length // 10}):
            z = z + 1
    assert z.item() == {length // 10} + 1
    print("done")
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "done", done.stderr[-2000:]


@pytest.fixture
def no_gc():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_nothing_stays_alive_after_reset(no_gc):
    before = autograd.TENSOR_COUNTER
    w = tensor(20, 20)
    for _ in range(3):
        x = tensor(5, 20, requires_grad=False)
        y = ((x @ w).tanh() * 2).sum()
        y.backward()
        alive = weakref.ref(y)
        del y, x
        assert alive() is None
        w.grad = None
        assert before + 1 == autograd.TENSOR_COUNTER
    del w
    assert before == autograd.TENSOR_COUNTER


def test_the_garbage_collector_finds_a_gradient_that_refers_to_its_leaf():
    gc.collect()
    before = autograd.TENSOR_COUNTER
    x = tensor(3)
    (x * x).sum().backward()  # x.grad was computed from x
    del x
    gc.collect()
    assert before == autograd.TENSOR_COUNTER


class Held:
    """Bytes of arrays in use, above what there was at the beginning."""

    def __init__(self):
        gc.collect()
        self.start = ndl.backend_ndarray.memory_stats()["live_bytes"]

    def __call__(self):
        return ndl.backend_ndarray.memory_stats()["live_bytes"] - self.start


def test_backward_drops_what_only_the_graph_holds():
    x = tensor(64, 64, device=ndl.cpu())
    held = Held()
    size = x.nbytes
    y = x
    for _ in range(10):
        y = (y * 0.5).tanh()
    assert held() >= 10 * size  # the results of tanh: its gradient looks at them
    y.sum().backward()
    assert x.grad.nbytes == size
    assert held() <= 3 * size  # y, which we hold, x.grad, and a little


def test_forward_drops_what_no_gradient_looks_at():
    """Of h @ w + b and relu, backward looks at h, w and the result of relu."""
    x, w, b = tensor(64, 64), tensor(64, 64, device=ndl.cpu()), tensor(64, device=ndl.cpu())
    h = x = tensor(64, 64, device=ndl.cpu())
    held = Held()
    size = x.nbytes
    for _ in range(10):
        h = (h @ w + b).relu()
    ndl.Tensor(0.0) * 1  # let go of the last one
    assert held() <= 12 * size
    added = h.inputs[0]
    assert added.op.needs == "" and added.inputs[0].cached_data is None and added.inputs[0].shape == (64, 64)
    h.sum().backward()
    expected, v = np.ones((64, 64)), [x.numpy()]
    for _ in range(10):
        v.append(np.maximum(v[-1] @ w.numpy() + b.numpy(), 0))
    for value in reversed(v[1:]):
        expected = (expected * (value > 0)) @ w.numpy().T
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("name", sorted(n for n in ops.__all__ if isinstance(getattr(ops, n), type)))
def test_every_op_says_what_its_gradient_looks_at(name):
    assert set(getattr(ops, name).needs.split()) <= {"inputs", "output"}


@pytest.mark.parametrize("small_first", [True, False])
def test_a_value_that_a_small_result_looks_at_stays(small_first):
    """max is small and looks at h: were h dropped, a later change of b would make backward fail."""
    x, b = tensor(64, 64), tensor(64, 64)

    def forward():
        h = x + b
        parts = [h.max, lambda: (h + 1.0).sum()]
        first, second = (part() for part in (parts if small_first else parts[::-1]))
        return first + second

    y = forward()
    ndl.Tensor(np.ones((64, 64))) * 1
    (tensor(64, 64) * 1.0 + 1.0).sum()
    b.realize_cached_data()[0] = 9.0
    y.backward()
    assert x.grad.numpy().sum() == 64 * 64 + 1


def test_what_somebody_holds_is_not_dropped_in_forward():
    x, b = tensor(64, 64), tensor(64)
    h = x @ x
    y = (h + b).relu()
    z = (y + b).relu()
    assert h.cached_data is not None and y.cached_data is not None and z.cached_data is not None


def test_values_somebody_holds_stay():
    x = tensor(64, 64)
    h = x.tanh()
    y = (h * h).sum()
    y.backward()
    assert h.cached_data is not None and y.cached_data is not None
    assert y.inputs[0].cached_data is None  # h * h: nobody asked for it
    assert y.inputs[0].shape == (64, 64) and y.inputs[0].dtype == "float64" and y.inputs[0].device == x.device
    assert y.inputs[0].cached_data is None  # and looking at its shape does not compute it
    np.testing.assert_allclose(y.inputs[0].numpy(), h.numpy() ** 2)


def test_dropped_values_are_computed_again_for_second_derivatives():
    x = tensor(40, 40)
    ((x.tanh() * x).exp() * x).sum().backward()
    first = x.grad
    first.backward()
    v = x.numpy()
    eps = 1e-5

    def derivative(v):
        t = np.tanh(v)
        return np.exp(t * v) * (1 + v * (t + v * (1 - t * t)))

    np.testing.assert_allclose(first.numpy(), derivative(v), rtol=1e-12)
    np.testing.assert_allclose(
        x.grad.numpy(), (derivative(v + eps) - derivative(v - eps)) / (2 * eps), rtol=1e-6, atol=1e-7
    )


def test_backward_twice_gives_the_same():
    x = tensor(40, 40)
    y = (x.tanh() * x).sum()
    y.backward()
    first = x.grad.numpy()
    y.backward()
    np.testing.assert_array_equal(x.grad.numpy(), first)


# ---- Changes in place --------------------------------------------------------------------------

WRITES = {
    "array": lambda x: x.realize_cached_data().fill(3.0),
    "flat": lambda x: x.realize_cached_data().flat.__setitem__(0, 9.0),
    "data": lambda x: setattr(x, "data", Tensor(np.zeros((40, 40)), dtype="float64")),
    "cached_data": lambda x: setattr(
        x, "cached_data", Tensor(np.zeros((40, 40)), dtype="float64").realize_cached_data()
    ),
    "view": lambda x: x.realize_cached_data()[1:3].fill(0),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_gradient_needs_a_value_that_was_changed(write):
    x = tensor(40, 40)
    y = (x * x).sum()
    write(x)
    with pytest.raises(RuntimeError, match=r"EWiseMul: its input of shape \(40, 40\) \(a leaf\) was changed in place"):
        y.backward()


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_gradient_does_not_need_the_value_that_was_changed(write):
    x = tensor(40, 40)
    y = (x + 1).sum()
    write(x)
    y.backward()
    assert x.grad.numpy().min() == 1


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_dropped_value_cannot_be_had_from_a_changed_input(write):
    x = tensor(40, 40)
    (x.tanh() * 2).sum().backward()
    first = x.grad
    write(x)
    with pytest.raises(RuntimeError, match=r"Tanh: its input .* was changed in place after it was used"):
        first.backward()


def test_a_changed_result_is_noticed_too():
    x = tensor(40, 40)
    y = x.exp()
    z = y.sum()
    y.realize_cached_data()[0, 0] = 7
    with pytest.raises(RuntimeError, match=r"Exp: .*Exp's result.* was changed in place"):
        z.backward()


def test_writing_elsewhere_and_before_is_no_change():
    x, other = tensor(40, 40), tensor(40, 40)
    x.realize_cached_data()[0] = 1.0
    y = x.tanh()
    other.realize_cached_data()[0] = 1.0
    z = (y * x).sum()
    other.realize_cached_data()[1] = 1.0
    z.backward()
    first = x.grad
    other.realize_cached_data()[2] = 1.0
    first.backward()
    assert np.isfinite(x.grad.numpy()).all()


def test_data_put_into_a_result_stays():
    x = tensor(40, 40)
    y = x * 2
    y.data = Tensor(np.ones((40, 40)), dtype="float64")
    (y * y).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.full((40, 40), 4.0))
    assert (y.numpy() == 1).all()


# ---- Threads --------------------------------------------------------------------------


def train(seed, steps=60):
    rng = np.random.default_rng(seed)
    w1, w2 = (Tensor(rng.normal(size=s), dtype="float32") for s in ((10, 16), (16, 1)))
    for _ in range(steps):
        x = Tensor(rng.normal(size=(8, 10)), dtype="float32", requires_grad=False)
        loss = ((x @ w1).relu() @ w2 - 1) ** 2
        loss.sum().backward()
        for w in (w1, w2):
            w.data = w.data - w.grad.data * 0.01
    return w1.numpy(), w2.numpy()


def test_two_threads_train_two_models_as_one_after_the_other():
    alone = [train(seed) for seed in (1, 2, 3, 4)]
    together = [None] * 4
    threads = [threading.Thread(target=lambda i=i: together.__setitem__(i, train(i + 1))) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for a, b in zip(alone, together, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


def test_threads_share_a_model():
    """Gradients of one parameter in several graphs at once: the walks keep apart."""
    w = tensor(30, 30)
    wrong = []

    def work(k):
        for _ in range(50):
            y = (w * k).tanh()
            (g,) = autograd.gradients([y.sum()], [w])
            if not np.allclose(g.numpy(), k * (1 - np.tanh(k * w.numpy()) ** 2), rtol=1e-10):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in (0.5, 1.0, 2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# ---- Lists of names --------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(ops.__all__))
def test_every_op_is_an_attribute_of_needle(name):
    mine = meanings.FUNCTIONS  # those mean something else within compat("torch")
    assert getattr(ndl, name) is mine.get(name, getattr(ops, name))


@pytest.mark.parametrize("start", ["method", "function"])
def test_a_first_gradient_that_was_written_to(start):
    """It counts as it is when backward begins, whatever was done to it after the result was computed."""
    x = Tensor([[1.0, 2.0]])
    y = x @ Tensor([[3.0], [4.0]], requires_grad=False)
    first = ndl.ones(1, 1).mul_(2)
    found = ndl.autograd.grad(y, x, first)[0] if start == "function" else (y.backward(first), x.grad)[1]
    assert found.tolist() == [[6.0, 8.0]]
