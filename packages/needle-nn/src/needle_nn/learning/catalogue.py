"""The chapters: their numbers, titles, files, and what they need to run."""

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Chapter:
    number: int
    name: str
    title: str
    files: tuple[
        str, ...
    ]  # endings of the student's files; the first one is checked, the others are read by its checks
    compare: tuple[str, ...]  # Needle's own sources for the same task
    seconds: float = 20.0  # a check may take

    @property
    def folder(self) -> Path:
        return HERE / f"chapter{self.number}"

    @property
    def text(self) -> str:
        return (self.folder / "text.md").read_text(encoding="utf-8")

    def start(self, ending: str) -> str:
        return (self.folder / f"start{ending}").read_text(encoding="utf-8")

    def file(self, ending: str = "") -> str:
        """The name of the student's file."""
        return f"chapter{self.number}_{self.name}{ending or self.files[0]}"


CHAPTERS = (
    Chapter(
        1,
        "softmax",
        "Softmax regression and a two-layer network by hand",
        (".py",),
        ("apps/ndarray_demo.py", "needle/ops/network.py", "needle_ndarray/numpy_backend.py"),
    ),
    Chapter(
        2,
        "autograd",
        "Build automatic differentiation",
        (".py",),
        ("docs/toy_engine.py", "needle/autograd/backward.pyx", "needle/autograd/topology.pyx", "needle/ops/arithmetic.py"),
    ),
    Chapter(
        3,
        "modules",
        "Modules and optimizers",
        (".py",),
        ("needle_nn/nn/module.py", "needle_nn/nn/basic.py", "needle_nn/nn/norms.py", "needle_nn/optim/"),
    ),
    Chapter(
        4,
        "arrays",
        "Strided arrays and a CPU kernel",
        (".py", ".c"),
        ("needle_ndarray/layout.pyx", "needle_ndarray/kernels/strided.pyx", "needle_ndarray/kernels/gemm.h"),
    ),
    Chapter(
        5,
        "cuda",
        "A CUDA kernel, on any laptop",
        (".cu",),
        tuple(f"needle_cuda/kernels/{name}.cu" for name in ("ewise", "strided", "reduce", "matmul")),
        seconds=60.0,
    ),
    Chapter(
        6,
        "networks",
        "Convolution, recurrent networks, a transformer",
        (".py",),
        ("needle/ops/convolution.py", "needle_nn/nn/recurrent.py", "needle_nn/nn/attention.py"),
        seconds=60.0,
    ),
)  # fmt: skip


def chapter(number: int) -> Chapter:
    for each in CHAPTERS:
        if each.number == number:
            return each
    raise ValueError(f"chapter {number}: there are chapters 1 to {len(CHAPTERS)}")
