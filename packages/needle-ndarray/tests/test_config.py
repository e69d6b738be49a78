"""What is chosen at import: instruction set, BLAS, devices; and what a bad choice says."""

import os
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray import kernels

RESULTS = """
    import hashlib
    import numpy as np
    import needle_ndarray as nd
    from needle_ndarray.backend import UNARY
    rng = np.random.default_rng(0)
    exact, fused = hashlib.sha256(), hashlib.sha256()
    near = []
    for dtype in ("float32", "float64"):
        x, y = (rng.normal(size=(37, 301)).astype(dtype) for _ in range(2))
        a, b = nd.array(abs(x), dtype), nd.array(y, dtype)
        for name in ("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "maximum", "less"):
            exact.update(getattr(nd, name)(a, b).numpy().tobytes())
        for name in ("sqrt", "rsqrt", "floor", "round", "sign", "relu"):
            exact.update(getattr(nd, name)(a).numpy().tobytes())
        for reduced in (a.sum(0), a.sum(1), a.sum(), a.max(0), a.argmax(1), a.T.cumsum(0), a[:, ::3].sum(0)):
            exact.update(reduced.numpy().tobytes())
        nd.random.seed(1)
        exact.update(nd.random.normal(1001, dtype=dtype).numpy().tobytes())
        exact.update(nd.random.uniform(1001, dtype=dtype).numpy().tobytes())
        results = [getattr(nd, name)(a) for name, op in UNARY.items() if op.compute_dtype[4] >= 0]      # takes floats
        results += [getattr(nd, name)(a, b) for name in ("power", "atan2", "hypot", "logaddexp")]
        results += [getattr(nd, name)(a) for name in ("softmax", "log_softmax", "logsumexp")]
        for result in results:
            fused.update(result.numpy().tobytes())
            near.append(float(np.sum(result.numpy(), where=np.isfinite(result.numpy()), dtype="float64")))
        near.append(float((a @ b.T).sum().item()))
    i = nd.array(rng.integers(-50, 50, (37, 301)), "int32")
    exact.update((i @ i.T).numpy().tobytes() + (i // 7).numpy().tobytes() + (i.T * i.T).numpy().tobytes())
    from needle_ndarray import kernels
    print(kernels.LEVEL, exact.hexdigest(), fused.hexdigest(), *near)
"""


def run(code, **env):
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=120, check=False)


def test_show_config(capsys):
    assert nd.show_config() is None
    text = capsys.readouterr().out
    for word in (
        "needle-ndarray",
        nd.__version__,
        np.__version__,
        "instruction set",
        kernels.LEVEL,
        "threads",
        "BLAS",
        "MiB",
        "cuda()",
    ):
        assert word in text
    assert len(text.splitlines()) < 20


@pytest.mark.parametrize("level", kernels.USABLE)
def test_levels_agree(level):
    """Every level that was built and runs here: the same bits, but for products, and vector mathematics where one level fuses."""
    chosen, here = run(RESULTS, NEEDLE_ISA=level), run(RESULTS)
    assert chosen.returncode == here.returncode == 0, chosen.stderr + here.stderr
    name, exact, fused, *near = chosen.stdout.split()
    other, expected, expected_fused, *others = here.stdout.split()
    assert name == level and exact == expected
    assert fused == expected_fused or kernels.fuses(name) != kernels.fuses(other)
    np.testing.assert_allclose(np.array(near, float), np.array(others, float), rtol=1e-6)


FAULT = """
    import os, warnings
    os.environ.pop("NEEDLE_ISA", None)
    import needle_ndarray as nd
    from needle_ndarray import kernels
    from needle_ndarray.config import config
    kernels.UNPROVEN = {kernels.LEVEL}
    results = kernels._results
    def faulty(modules):
        found, kernels._results = results(modules), results     # the unproven level is the first one
        if FAMILY in found:
            found[FAMILY][-1].flat[3] += 1
        return found
    kernels._results = faulty
    before = kernels.LEVEL
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert nd.exp(nd.zeros(3)).tolist() == [1, 1, 1] and config()["instruction set"].startswith(kernels.LEVEL)
    print(before, kernels.LEVEL, len(caught), *[warning.message for warning in caught])
"""


@pytest.mark.skipif(len(kernels.USABLE) < 2, reason="only one level was built for this processor")
@pytest.mark.parametrize("family", [*kernels.FAMILIES, "none"])
def test_a_level_with_wrong_results_is_refused(family):
    """With one warning, at first use; and a level whose results are right stays."""
    done = run(textwrap.dedent(FAULT).replace("FAMILY", repr(family)))
    assert done.returncode == 0, done.stderr
    before, level, count, *message = done.stdout.split()
    if family == "none":
        assert (before, level, count) == (kernels.USABLE[-1], kernels.USABLE[-1], "0"), done.stdout
    else:
        assert (before, level, count) == (kernels.USABLE[-1], kernels.USABLE[-2], "1") and f"({family}):" in message


def test_the_best_level_is_chosen():
    assert kernels.USABLE and set(kernels.USABLE) <= set(kernels.BUILT)
    if "NEEDLE_ISA" not in os.environ:
        assert kernels.USABLE[-1] == kernels.LEVEL == kernels.settle()


@pytest.mark.parametrize("text", ["v9", "", "avx512", "V3"])
def test_bad_level(text):
    done = run("import needle_ndarray", NEEDLE_ISA=text)
    last = done.stderr.strip().splitlines()[-1]
    assert (
        done.returncode == 1
        and last.startswith("ImportError")
        and f"NEEDLE_ISA={text}" in last
        and kernels.LEVEL in last
    )


def test_without_openblas():
    """numpy.matmul steps in, with the same results within rounding."""
    code = """
        import needle_ndarray as nd, numpy as np
        x = np.arange(90000, dtype=np.float32).reshape(300, 300) % 7
        a = nd.array(x)
        assert np.array_equal((a @ a).numpy(), x @ x)
        assert np.array_equal((a.T[::2] @ a[:, ::-1]).numpy(), x.T[::2] @ x[:, ::-1])
        assert np.array_equal((nd.stack([a, a]) @ a).numpy(), np.stack([x, x]) @ x)
        assert np.array_equal((a.astype("float64") @ a.astype("float64")).numpy(), x.astype(float) @ x)
        nd.show_config()
    """
    missing = "import sys; sys.modules['scipy_openblas32'] = None\n"
    for done in (run(code, NEEDLE_BLAS="numpy"), run(missing + textwrap.dedent(code))):
        assert done.returncode == 0, done.stderr
        assert "numpy.matmul" in done.stdout


def test_numpy_backend_by_environment():
    done = run("import needle_ndarray as nd; print(nd.default_device(), nd.zeros(2).device)", NEEDLE_BACKEND="np")
    assert done.stdout.split() == ["cpu_numpy()", "cpu_numpy()"]


def test_import_is_silent_and_light():
    code = """
        import sys
        import needle_ndarray
        heavy = ("torch", "cupy", "scipy", "pytest", "hypothesis", "scipy_openblas32", "numpy.testing")
        print([name for name in heavy if name in sys.modules])
    """
    done = run(code)
    assert done.stdout.strip() == "[]" and done.stderr == ""


def test_everything_public_is_there():
    """The names of the array API standard and of the course that this package promises."""
    names = """
        avg_pool2d avg_pool2d_grad conv2d conv2d_input_grad conv2d_weight_grad max_pool2d max_pool2d_grad
        abs add all any arange argmax argmin array asarray astype bitwise_and bitwise_or bitwise_xor
        broadcast_arrays broadcast_to can_cast ceil clip concat concatenate cos cumsum divide e einsum empty
        empty_like equal exp expand_dims expm1 eye finfo flip floor floor_divide from_dlpack from_numpy full
        full_like gather greater greater_equal iinfo inf isfinite isinf isnan less less_equal linspace log log1p
        log_softmax logical_and logical_not logical_or logical_xor logsumexp matmul max maximum mean min minimum
        moveaxis multiply nan negative newaxis nonzero not_equal ones ones_like pad permute permute_dims pi pow
        power prod relu remainder repeat reshape result_type roll round rsqrt scatter_add sigmoid sign sin
        softmax split sqrt squeeze stack std subtract sum swapaxes take take_along_axis tanh tile transpose
        trunc unstack var where zeros zeros_like bool uint8 int32 int64 float32 float64 random cpu cuda cpu_numpy
        default_device all_devices device NDArray set_num_threads get_num_threads empty_cache memory_stats
        set_cache_limit show_config
    """.split()
    assert [name for name in names if not hasattr(nd, name)] == []
    assert nd.zeros(1).__array_namespace__() is nd


def test_interface_version_is_checked():
    class Old(nd.Backend):
        name = "old"
        interface_version = 0

    from needle_ndarray import devices

    devices.BUILT_IN["old"] = f"{__name__}:Old"
    globals()["Old"] = Old
    try:
        with pytest.raises(nd.DeviceError, match=rf"version 0.*version {nd.INTERFACE_VERSION}"):
            _ = nd.device("old").backend
    finally:
        del devices.BUILT_IN["old"], globals()["Old"]


def test_register():
    """A backend without an entry point; names that are taken or unfit are refused."""
    from needle_ndarray.numpy_backend import NumPyBackend

    where = nd.register("trial", NumPyBackend)
    assert where in nd.all_devices() and nd.ones(3, device="trial").sum().item() == 3
    for name in ("cpu", "two words", "", None):
        with pytest.raises(ValueError, match="register"):
            nd.register(name, NumPyBackend)


def test_threads_that_come_first_get_one_backend():
    """Arrays of two backends of one name would not go together."""
    from concurrent.futures import ThreadPoolExecutor

    from needle_ndarray.numpy_backend import NumPyBackend

    def slow():
        time.sleep(0.05)
        return NumPyBackend()

    nd.register("slow_trial", slow)
    with ThreadPoolExecutor(4) as pool:
        arrays = list(pool.map(lambda i: nd.full((2,), i, device="slow_trial"), range(4)))
    assert (arrays[0] + arrays[1] + arrays[2] + arrays[3]).tolist() == [6.0, 6.0]


def test_register_refuses_another_interface():
    class Old(nd.Backend):
        name = "old"
        interface_version = 1

    with pytest.raises(nd.DeviceError, match=r"version 1,.*version 2;"):
        nd.ones(3, device=nd.register("old_interface", Old))
