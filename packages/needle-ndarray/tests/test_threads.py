"""The same bits for every number of threads; several Python threads; forks."""

import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray.testing.calls import call


def floats(*shape, dtype="float32", salt=0):
    return nd.array(np.random.default_rng(salt).normal(size=shape), dtype)


def scattered():
    index = np.random.default_rng(1).integers(0, 50, 3000)
    return nd.scatter_add(nd.zeros((50, 300)), index, floats(3000, 300))


def seeded(draw):
    nd.random.seed(5)
    out = draw(100_003)
    nd.random.seed(None)
    return out


def joined(arrays):
    return nd.concatenate([a.reshape(-1) for a in arrays])


def labels(n, classes):
    return nd.array(np.random.default_rng(3).integers(0, classes, n), "int64")


def queries(batch=5, dtype="float32"):
    return [floats(batch, 150, 16, dtype=dtype, salt=i) for i in range(4)]


def stepped(verb, states, dtype="float32", **numbers):
    """Parameters after two steps, large and small ones, and one gradient that is a view."""
    shapes = [(3,), (300, 301), (40, 50), (70_001,), ()]
    params, grads, *lists = ([floats(*s, dtype=dtype, salt=i) for s in shapes] for i in range(2 + states))
    grads[1] = floats(301, 300, dtype=dtype).T
    lists[1:] = [[abs(a) for a in v] for v in lists[1:]]
    for _ in range(2):
        getattr(nd, verb)(params, grads, *lists, **numbers)
    return joined(params)


def layer(verb, gates, times=5, batch=53, n=37, dtype="float32"):
    """Everything that a recurrent layer and its gradient return."""
    sums, weight, bias = (floats(*s, dtype=dtype) for s in ((times, batch, gates * n), (n, gates * n), (gates * n,)))
    h0, c0, dh, dc = (floats(batch, n, dtype=dtype, salt=i) for i in range(4))
    grad = floats(times, batch, n, dtype=dtype, salt=4)
    if verb == "lstm":
        h, c, kept = nd.lstm(sums, weight, bias, h0, c0)
        return joined([h, c, kept, *nd.lstm_grad(grad, weight, c, kept, dh, dc)])
    if verb == "gru":
        h, kept = nd.gru(sums, weight, bias, h0)
        return joined([h, kept, *nd.gru_grad(grad, weight, h, kept, dh)])
    h = nd.rnn(sums, weight, bias, h0)
    return joined([h, *nd.rnn_grad(grad, weight, h, dh)])


def cell(strided):
    x, y, c = floats(301, 400)[::strided], floats(301, 400, salt=1)[::strided], floats(301, 100)[::strided]
    h_out, c_out, gates = nd.zeros(c.shape), nd.zeros(c.shape), nd.zeros(x.shape)
    call(x.backend, "lstm_cell", x, y, floats(400), c, h_out, c_out, gates)
    ds, dc = nd.zeros(x.shape), nd.zeros(c.shape)
    call(x.backend, "lstm_cell_grad", h_out, c, c_out, gates, c, c_out, ds, dc)
    return joined([h_out, c_out, gates, ds, dc])


def filled(a):
    a[:, ::-2].fill(2.5)
    return a


WORK = {
    "sum": lambda: floats(1000, 301).sum(),
    "sum axis 0": lambda: floats(1000, 301).sum(0),
    "sum axis 1": lambda: floats(1000, 301).sum(1),
    "sum float64": lambda: floats(1000, 301, dtype="float64").sum(),
    "sum strided": lambda: floats(1000, 301)[::2, ::3].sum(),
    "sum transposed": lambda: floats(1000, 301).T.sum(0),
    "prod": lambda: (floats(200_001) / 1000 + 1).prod(),
    "mean": lambda: floats(700, 300).mean((0, 1)),
    "var": lambda: floats(700, 300).var(0),
    "max": lambda: floats(200_001).max(),
    "argmax": lambda: floats(300, 700).argmax(0),
    "cumsum": lambda: floats(300, 700).cumsum(1),
    "fill": lambda: nd.full((517, 413), 2.5),
    "fill strided": lambda: filled(floats(517, 826)),
    "matmul": lambda: floats(517, 300) @ floats(300, 413),
    "matmul wide": lambda: floats(20, 300) @ floats(300, 2000),
    "matmul float64": lambda: floats(300, 300, dtype="float64") @ floats(300, 300, dtype="float64"),
    "matmul transposed": lambda: floats(300, 517).T @ floats(413, 300).T,
    "matmul batched": lambda: floats(7, 130, 90) @ floats(7, 90, 110),
    "matmul int": lambda: floats(300, 200).astype("int32") @ floats(200, 100).astype("int32"),
    "softmax": lambda: floats(200, 500).softmax(),
    "log_softmax": lambda: floats(200, 500).log_softmax(0),
    "logsumexp": lambda: floats(200, 500).logsumexp(1),
    "softmax_grad": lambda: nd.softmax_grad(floats(200, 501), floats(200, 501, salt=1)),
    "softmax_grad transposed": lambda: nd.softmax_grad(floats(501, 200).T, floats(501, 200, salt=1).T),
    "log_softmax_grad": lambda: nd.log_softmax_grad(floats(200, 501), floats(200, 501, salt=1)),
    "logsumexp_grad": lambda: nd.logsumexp_grad(floats(200), floats(200, 501), floats(200, salt=1), 1),
    "exp": lambda: floats(100_003).exp(),
    "tanh": lambda: floats(101, 997).T.tanh(),
    "add": lambda: floats(1000, 301) + floats(301),
    "power": lambda: abs(floats(100_003)) ** floats(100_003),
    "copy": lambda: floats(1000, 301).T.copy(),
    "cast": lambda: floats(1000, 301).T.astype("int64"),
    "where": lambda: nd.where(floats(1000, 301) > 0, floats(1000, 301), 0.0),
    "take": lambda: floats(300, 301)[np.random.default_rng(2).integers(0, 300, 900)],
    "scatter_add": scattered,
    "uniform": lambda: seeded(nd.random.uniform),
    "normal": lambda: seeded(nd.random.normal),
    "layer_norm": lambda: nd.layer_norm(floats(500, 301), floats(301), floats(301)),
    "layer_norm_grad": lambda: joined(nd.layer_norm_grad(floats(1501, 101), floats(1501, 101, salt=1), floats(101))),
    "layer_norm_grad strided": lambda: joined(nd.layer_norm_grad(floats(301, 500).T, floats(500, 602)[:, ::2])),
    "batch_norm": lambda: joined(nd.batch_norm(floats(3001, 101), floats(101), floats(101))),
    "batch_norm_grad": lambda: joined(
        nd.batch_norm_grad(floats(1501, 101), floats(1501, 101), floats(101), abs(floats(101)))
    ),
    "cross_entropy": lambda: nd.cross_entropy(floats(300, 501), labels(300, 501)),
    "cross_entropy_grad": lambda: nd.cross_entropy_grad(floats(300), floats(300, 501), labels(300, 501)),
    "attention": lambda: nd.attention(*queries()[:3], causal=True),
    "attention of one": lambda: nd.attention(*queries(1, "float64")[:3]),
    "attention_grad": lambda: joined(nd.attention_grad(*queries(), causal=True)),
    "conv2d": lambda: nd.conv2d(floats(3, 30, 31, 7), floats(3, 3, 7, 20), 1, 1),
    "conv2d by columns": lambda: nd.conv2d(floats(3, 8, 9, 700), floats(3, 3, 700, 5), 2, 1),
    "conv2d 1x1": lambda: nd.conv2d(floats(3, 30, 31, 20), floats(1, 1, 20, 30)),
    "conv2d depthwise": lambda: nd.conv2d(floats(3, 60, 31, 20), floats(3, 3, 1, 20), groups=20),
    "conv2d groups": lambda: nd.conv2d(floats(3, 30, 31, 20), floats(3, 3, 5, 12), groups=4),
    "input_grad": lambda: nd.conv2d_input_grad(floats(3, 30, 31, 20), floats(3, 3, 7, 20), (3, 30, 31, 7), 1, 1),
    "input_grad strided": lambda: nd.conv2d_input_grad(
        floats(3, 15, 16, 20), floats(3, 3, 7, 20), (3, 30, 31, 7), 2, 1
    ),
    "input_grad one image": lambda: nd.conv2d_input_grad(
        floats(1, 30, 31, 20), floats(3, 3, 7, 20), (1, 60, 61, 7), 2, 1
    ),
    "weight_grad": lambda: nd.conv2d_weight_grad(floats(3, 30, 31, 7), floats(3, 30, 31, 20), (3, 3, 7, 20), 1, 1),
    "weight_grad depthwise": lambda: nd.conv2d_weight_grad(
        floats(3, 62, 31, 20), floats(3, 60, 29, 20), (3, 3, 1, 20), groups=20
    ),
    "max_pool2d": lambda: nd.max_pool2d(floats(3, 90, 91, 7), 3, 2),
    "max_pool2d_grad": lambda: nd.max_pool2d_grad(floats(1, 88, 89, 9), floats(1, 90, 91, 9), 3, 1),
    "avg_pool2d": lambda: nd.avg_pool2d(floats(3, 90, 91, 7), 3, 2),
    "avg_pool2d_grad": lambda: nd.avg_pool2d_grad(floats(1, 88, 89, 9), (1, 90, 91, 9), 3, 1),
    "sgd_step": lambda: stepped("sgd_step", 1, lr=0.1, momentum=0.9, weight_decay=0.01, l1=0.1),
    "sgd_step float64": lambda: stepped("sgd_step", 0, "float64", lr=0.1),
    "adam_step": lambda: stepped("adam_step", 2, lr=0.1, weight_decay=0.01, decoupled=True),
    "lstm": lambda: layer("lstm", 4),
    "lstm float64": lambda: layer("lstm", 4, dtype="float64"),
    "lstm of 3 rows": lambda: layer("lstm", 4, 3, 3, 160),
    "gru": lambda: layer("gru", 3),
    "rnn": lambda: layer("rnn", 1),
    "lstm_cell": lambda: cell(1),
    "lstm_cell strided": lambda: cell(2),
    "einsum": lambda: nd.einsum("bij,bkj->bik", floats(6, 130, 90), floats(6, 70, 90)),
}


@pytest.mark.parametrize("name", WORK)
def test_same_bits(name, threads):
    results = []
    for n in (1, 2, 3, 7):
        threads(n)
        results.append(WORK[name]().numpy().tobytes())
    assert len(set(results)) == 1


def test_set_and_get(threads):
    for n in (1, 2, 5):
        threads(n)
        assert nd.get_num_threads() == n
    for bad in (0, -1, 1.5, "2", None, True, 10**9):
        with pytest.raises((ValueError, TypeError), match="set_num_threads"):
            threads(bad)


@pytest.mark.parametrize(
    "text, outcome",
    [("1", "1"), ("3", "3"), ("0", None), ("many", None), ("-2", None), ("", None), ("99999999999", None)],
)
def test_environment(text, outcome):
    done = subprocess.run(
        [sys.executable, "-c", "import needle_ndarray as nd; print(nd.get_num_threads())"],
        env={**os.environ, "NEEDLE_NUM_THREADS": text}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if outcome:
        assert done.stdout.strip() == outcome
    else:
        last = done.stderr.strip().splitlines()[-1]
        assert done.returncode == 1 and last.startswith("ImportError") and f"NEEDLE_NUM_THREADS={text}" in last


def run(code, timeout=120):
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)],
        capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads in /proc")
def test_import_starts_no_threads():
    code = """
        import os
        import numpy as np
        before = len(os.listdir("/proc/self/task"))
        import needle_ndarray as nd
        imported = len(os.listdir("/proc/self/task"))
        (nd.ones(10) + 1).sum(), nd.ones((4, 4)) @ nd.ones((4, 4))
        print(imported - before, len(os.listdir("/proc/self/task")) - before)
    """
    assert run(code) == "0 0"


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads in /proc")
def test_blas_brings_no_threads_of_its_own():
    code = """
        import os
        import numpy as np
        import needle_ndarray as nd
        nd.set_num_threads(1)
        before = len(os.listdir("/proc/self/task"))
        nd.ones((700, 700)) @ nd.ones((700, 700))
        print(len(os.listdir("/proc/self/task")) - before, os.environ.get("OPENBLAS_NUM_THREADS"))
    """
    assert run(code) == "0 None" or "OPENBLAS_NUM_THREADS" in os.environ


def test_python_threads_at_once():
    """Several Python threads compute at the same time, each with threads below: every result is right."""
    x = np.random.default_rng(0).normal(size=(400, 300)).astype(np.float32)
    a = nd.array(x)
    expected = [a.sum().item(), (a @ a.T).numpy(), a.exp().numpy(), a.softmax().numpy()]
    wrong = []

    def work():
        for _ in range(15):
            got = [a.sum().item(), (a @ a.T).numpy(), a.exp().numpy(), a.softmax().numpy()]
            if got[0] != expected[0] or any(
                not np.array_equal(g, e) for g, e in zip(got[1:], expected[1:], strict=True)
            ):
                wrong.append(1)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for t in workers:
        t.start()
    for t in workers:
        t.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("before", ["nothing", "threads", "threads in a Python thread"])
def test_forked_child(before):
    """A child of a process whose threads have worked computes on, and comes back."""
    code = f"""
        import os, signal, threading
        import numpy as np
        import needle_ndarray as nd
        nd.set_num_threads(2)
        x = np.random.default_rng(0).normal(size=(600, 500)).astype(np.float32)
        a = nd.array(x)
        def work():
            return [a.sum().item(), (a @ a.T).numpy(), a.exp().numpy(), a.softmax().sum(0).numpy()]
        def busy():
            for _ in range(3): work()
        if {before!r} == "threads": busy()
        if {before!r} == "threads in a Python thread":
            t = threading.Thread(target=busy); t.start(); t.join()
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)  # a child that hangs is killed, and reported as -14
            child = work()
            ok = np.isfinite(child[1]).all() and abs(child[0] - x.sum(dtype=np.float64)) < 1
            os._exit(0 if ok else 3)
        _, status = os.waitpid(pid, 0)
        busy()
        print(os.waitstatus_to_exitcode(status))
    """
    assert run(code) == "0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_multiprocessing_after_threads():
    code = """
        import multiprocessing as mp
        import needle_ndarray as nd
        def work(i):
            return float((nd.ones((300, 300)) * i).sum().item()), float((nd.ones((300, 300)) @ nd.ones((300, 300))).sum().item())
        if __name__ == "__main__":
            nd.set_num_threads(2)
            nd.ones(300000).sum(), nd.ones((600, 600)) @ nd.ones((600, 600))
            with mp.get_context("fork").Pool(2) as pool:
                print(pool.map(work, range(3)))
    """
    assert run(code) == "[(0.0, 27000000.0), (90000.0, 27000000.0), (180000.0, 27000000.0)]"


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="no list of a process's threads here")
def test_child_has_threads_of_its_own():
    """A forked child's large operations start new threads, with the same bits; what is small starts none."""
    code = """
        import os, signal
        import numpy as np
        import needle_ndarray as nd
        nd.set_num_threads(3)
        a = nd.array(np.random.default_rng(0).normal(size=(600, 500)).astype(np.float32))
        def started():
            before = set(os.listdir("/proc/self/task"))
            result = a.exp().numpy()
            return result, len(set(os.listdir("/proc/self/task")) - before)
        expected, new = started()
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)  # a child that hangs is killed, and reported as -14
            nd.ones(4) + 1
            got, more = started()
            os._exit(0 if new == more == 2 and np.array_equal(got, expected) else 3)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    assert run(code, timeout=60) == "0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_while_threads_work():
    """A child that is forked in the middle of somebody else's operation starts with a pool that is free."""
    code = """
        import os, signal, threading
        import needle_ndarray as nd
        nd.set_num_threads(4)
        a, done = nd.ones((300, 400)), []
        def busy():
            while not done: a.exp()
        workers = [threading.Thread(target=busy) for _ in range(2)]
        for t in workers: t.start()
        codes = set()
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)
                os._exit(0 if a.sum().item() == (a + 0).sum().item() == 120000 else 3)
            codes.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        done.append(1)
        for t in workers: t.join()
        print(codes)
    """
    assert run(code, timeout=120) == "{0}"
