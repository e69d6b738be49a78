"""NVRTC compiles every module for three architectures, and no kernel spills registers. Needs cupy and NVRTC, no GPU.

`nox -s cuda_compile` installs both, and there nothing is skipped. By itself it compiles a module for one architecture, neighbours
for different ones; the other two are marked `slow`, and `-- all` runs them.
"""

import os
import shutil
import subprocess

import pytest

from needle_cuda import catalogue, launch
from needle_cuda.testing import cubin, nvrtc
from needle_cuda.testing.resources import Row, family, table

#: Kernels that may use local memory, with the bytes and the reason. Everything else has its values in registers.
REDUCTION = (40, "sin, cos and tan of large numbers, reduced by a table of digits of pi")
STACK = dict.fromkeys((f"unary_{op}{layout}" for op in ("sin", "cos", "tan") for layout in ("", "_strided")), REDUCTION)


def has_nvrtc():
    try:
        from cupy.cuda import nvrtc as library

        library.getVersion()
    except Exception:
        return False
    return True


COMPILES = os.environ.get("NEEDLE_CUDA_COMPILE") == "1" or has_nvrtc()
needs_nvrtc = pytest.mark.skipif(not COMPILES, reason="no cupy with NVRTC: nox -s cuda_compile brings it")
MODULES = catalogue.modules() if COMPILES else []  # one skipped test instead of hundreds
ADD = """
extern "C" __global__ void add(float* a, int n) {
    __shared__ float tile[64];
    tile[threadIdx.x] = a[n];
    __syncthreads();
    a[0] = tile[n];
}"""
SPILLS = """
extern "C" __global__ void __launch_bounds__(1024) spills(const float* a, float* out, int n) {
    float held[200];
#pragma unroll
    for (int i = 0; i < 200; i++) held[i] = a[i * n];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 200; i++) out[i * n] = held[i] * held[199 - i];
}"""


def compilations():
    """Every module with every architecture."""
    architectures = nvrtc.ARCHITECTURES
    for i, module in enumerate(MODULES):
        for j, architecture in enumerate(architectures):
            marks = () if (i + j) % len(architectures) == 0 else pytest.mark.slow
            name = "-".join("-".join(part) if isinstance(part, tuple) else part for part in (*module, architecture))
            yield pytest.param(*module, architecture, marks=marks, id=name)


@needs_nvrtc
@pytest.mark.parametrize("file, dtype, defines, architecture", list(compilations()))
def test_module_compiles_without_spills(file, dtype, defines, architecture):
    code = nvrtc.compile_cubin(launch.source(file), launch.options(file, dtype, defines), architecture, file)
    found = cubin.resources(code)
    assert found, "no kernels"
    for kernel, needs in found.items():
        assert needs.stack <= STACK.get(kernel, (0, ""))[0], f"{kernel} on {architecture}: {needs}"
        assert needs.shared <= 48 * 1024 and 0 < needs.registers <= 255, f"{kernel} on {architecture}: {needs}"


@needs_nvrtc
def test_a_wrong_kernel_does_not_compile():
    with pytest.raises(nvrtc.NVRTCError, match=r"wrong\.cu\(1\): error"):
        nvrtc.compile_cubin("__global__ void k() { missing; }", (), "sm_80", "wrong.cu")


@needs_nvrtc
@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
def test_resources_of_known_kernels(architecture):
    """A spill is seen, and shared memory has the size it is declared with."""
    needs = cubin.resources(nvrtc.compile_cubin(ADD + SPILLS, ("-std=c++17",), architecture))
    assert needs["add"].shared == 256 and needs["add"].stack == 0 and needs["add"].registers < 32
    assert needs["spills"].stack > 0 and needs["spills"].registers <= 64


@needs_nvrtc
@pytest.mark.skipif(not shutil.which("cuobjdump"), reason="no cuobjdump")
def test_cuobjdump_agrees(tmp_path):
    path = tmp_path / "code.cubin"
    path.write_bytes(nvrtc.compile_cubin(ADD + SPILLS, (), "sm_80"))
    said = subprocess.check_output(["cuobjdump", "--dump-resource-usage", str(path)], text=True)
    for kernel, needs in cubin.resources(path.read_bytes()).items():
        line = said.split(f"Function {kernel}:")[1].split("Function")[0]
        assert (
            f"REG:{needs.registers} " in line and f"STACK:{needs.stack} " in line and f"SHARED:{needs.shared} " in line
        )


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
def test_ptxas_agrees(tmp_path):
    """What the cubin says is what ptxas says when it makes one."""
    source = tmp_path / "code.cu"
    source.write_text(ADD + SPILLS)
    path = tmp_path / "code.cubin"
    made = subprocess.run(
        ["nvcc", "-cubin", "-arch=sm_80", "-Xptxas", "-v", "-o", str(path), str(source)],
        capture_output=True,
        text=True,
        check=True,
    )
    for kernel, needs in cubin.resources(path.read_bytes()).items():
        said = made.stderr.split(f"Function properties for {kernel}\n")[1].split("Compiling entry")[0]
        assert f"{needs.stack} bytes stack frame" in said and f"Used {needs.registers} registers" in said
        assert needs.shared == 0 or f"{needs.shared} bytes smem" in said


def test_what_is_no_cubin():
    with pytest.raises(ValueError, match="no cubin: it starts with b'#!'"):
        cubin.resources(b"#!")


def test_table():
    needs = [cubin.Resources(20, 0, 0), cubin.Resources(24, 0, 128), cubin.Resources(40, 8, 0)]
    rows = [
        Row("ewise.cu", "unary_exp", "float32", ("UNARY_OP=exp",), "sm_80", needs[0]),
        Row("ewise.cu", "unary_log", "float64", ("UNARY_OP=log",), "sm_80", needs[1]),
        Row("matmul.cu", "matmul_64", "float32", (), "sm_80", needs[2]),
    ]
    assert table(rows).splitlines()[2:] == [
        "| ewise.cu | `unary_*` | 20 to 24 | 0 to 128 | 0 |",
        "| matmul.cu | `matmul_64` | 40 | 0 | 8 |",
    ]
    assert table(rows, full=True).splitlines()[3] == "| ewise.cu | `unary_log` | float64 UNARY_OP=log | 24 | 128 | 0 |"
    assert [family(name) for name in ("binary_floor_divide_strided", "reduce_sum_rows", "softmax")] == [
        "binary_*_strided",
        "reduce_*_rows",
        "softmax",
    ]
