"""Draws layers.svg and step.svg of docs/reading.md: `python docs/reading/draw.py`."""

from html import escape
from pathlib import Path

HERE = Path(__file__).parent
FONT = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif'"
COLORS = {
    "nn": "#e8f0e4",
    "core": "#e4ecf7",
    "ndarray": "#f7efe0",
    "cuda": "#f3e4ee",
    "user": "#f4f4f4",
    "white": "#ffffff",
}


def box(x, y, w, h, color, title="", under="", size=15, anchor="middle"):
    """A rectangle with a title, and small lines of text below it."""
    out = [f"<rect x='{x}' y='{y}' width='{w}' height='{h}' rx='6' fill='{COLORS[color]}' stroke='#555'/>"]
    lines = under.split("\n") if under else []
    left = x + w / 2 if anchor == "middle" else x + 12
    top = y + h / 2 - 9 * len(lines) + 5 if anchor == "middle" else y + 21
    out.append(
        f"<text x='{left}' y='{top:g}' font-size='{size}' text-anchor='{anchor}' font-weight='600'>{escape(title)}</text>"
    )
    for i, line in enumerate(lines):
        out.append(
            f"<text x='{left}' y='{top + 18 * (i + 1):g}' font-size='12.5' text-anchor='{anchor}' fill='#333'>{escape(line)}</text>"
        )
    return "\n".join(out)


def text(x, y, content, size=12.5, anchor="start", color="#333"):
    return f"<text x='{x}' y='{y}' font-size='{size}' text-anchor='{anchor}' fill='{color}'>{escape(content)}</text>"


def arrow(x1, y1, x2, y2):
    return f"<line x1='{x1}' y1='{y1}' x2='{x2}' y2='{y2}' stroke='#555' stroke-width='1.6' marker-end='url(#head)'/>"


def picture(name, width, height, title, parts):
    tip = "<path d='M0,0 L8,4 L0,8 z' fill='#555'/>"
    head = f"<marker id='head' markerWidth='9' markerHeight='9' refX='7' refY='4' orient='auto'>{tip}</marker>"
    size = f"viewBox='0 0 {width} {height}' width='{width}' height='{height}'"
    lines = [
        f"<svg xmlns='http://www.w3.org/2000/svg' {size} {FONT} role='img'>",
        f"<title>{escape(title)}</title>",
        f"<defs>{head}</defs>",
        f"<rect width='{width}' height='{height}' fill='white'/>",
        *parts,
        "</svg>",
    ]
    (HERE / name).write_text("\n".join(lines) + "\n")


def layers():
    def package(y, h, color, name, says):
        return [
            box(10, y, 800, h, color),
            text(24, y + 24, name, 15, color="#111"),
            text(796, y + 24, says, anchor="end"),
        ]

    def row(y, h, names, color="white"):
        w = (776 - 12 * (len(names) - 1)) / len(names)
        return [box(22 + i * (w + 12), y, w, h, color, *each) for i, each in enumerate(names)]

    parts = [box(10, 10, 800, 40, "user", "your program, the course, the command needle")]
    parts += package(64, 98, "nn", "needle-nn", "pure Python")
    parts += row(
        98,
        52,
        [
            ("nn", "layers"),
            ("optim", "update rules"),
            ("data", "batches"),
            ("training", "loop, checkpoints"),
            ("models", "GPT, ResNet ..."),
        ],
    )
    parts += package(176, 98, "core", "needle-core, imported as needle", "ops in Python, engine in Cython")
    parts += row(
        210,
        52,
        [
            ("Tensor", "array + how it was made"),
            ("ops", "a formula and its gradient each"),
            ("autograd", "record, sort, walk back"),
        ],
    )
    parts += package(288, 98, "ndarray", "needle-ndarray", "Cython")
    parts += row(
        322,
        52,
        [
            ("NDArray", "shape, strides, offset"),
            ("dispatch", "dtypes, broadcasting, result"),
            ("rules", "what each verb takes"),
        ],
    )
    parts += [
        box(
            10,
            400,
            800,
            34,
            "white",
            "the backend interface: 15 verbs that a backend must have, others with defaults",
            size=14,
        )
    ]
    parts += [box(10, 448, 394, 98, "ndarray"), text(24, 472, "needle-ndarray", 15, color="#111")]
    parts += [
        box(22, 484, 179, 50, "white", "NumPy backend", "the reference"),
        box(213, 484, 179, 50, "white", "CPU backend", "Cython kernels, threads"),
    ]
    parts += [box(416, 448, 190, 98, "cuda"), text(430, 472, "needle-cuda", 15, color="#111")]
    parts += [box(428, 484, 166, 50, "white", "CUDA backend", ".cu kernels, cupy")]
    parts += [box(618, 448, 192, 98, "user"), text(632, 472, "by entry point", 15, color="#111")]
    parts += [box(630, 484, 168, 50, "white", "yours", "docs/extend")]
    picture("layers.svg", 820, 556, "The layers of Needle and the four packages that hold them", parts)


def step():
    down = [
        ("core", "loss.backward()", "Tensor, autograd/tensor.pyx"),
        ("core", "Walk.run", "autograd/backward.pyx: nodes in reverse order,\nsorted by autograd/topology.pyx"),
        ("core", "MatMul.gradient(out_grad, node)", "ops/linalg.py: out_grad @ b.T and a.T @ out_grad"),
        (
            "core",
            "apply",
            "autograd/recording.pyx: take the arrays out of the\nTensors, call MatMul.compute, record if asked for",
        ),
        ("ndarray", "NDArray.__matmul__", "ndarray.pyx; b.T is a view: nothing is copied"),
        ("ndarray", "dispatch", "dispatch.pyx: common dtype, shapes, a new result"),
        ("ndarray", "backend.matmul(a, b, out)", "the interface, backend.pyx: one verb"),
        ("ndarray", "the kernel", "kernels/matmul.pyx: large products to OpenBLAS;\nor numpy_backend.py, or matmul.cu"),
    ]
    up = [
        ("core", "b.grad, ready to read", "what has arrived at a leaf is its gradient"),
        ("core", "arrive: added to what is there", "autograd/backward.pyx: a value used twice\ngets two contributions"),
        ("core", "two Tensors, one per input", "summed over broadcast axes, cast if need be"),
        ("core", "a Tensor", "with a graph only for second derivatives"),
        ("ndarray", "an NDArray", "the result"),
        ("ndarray", "out, in its own buffer", "buffer.pyx: memory from a cache of blocks"),
        ("ndarray", "out is written", "its version counts up: autograd sees changes"),
        ("ndarray", "numbers", "the loops run without Python's lock"),
    ]
    parts, y = [], 40
    parts += [text(20, 26, "down: from a name to numbers", 14), text(430, 26, "up: from numbers to a gradient", 14)]
    for (color, title, under), (color2, title2, under2) in zip(down, up, strict=True):
        h = 64 if "\n" in under + under2 else 50
        parts += [
            box(20, y, 380, h, color, title, under, 14, "start"),
            box(430, y, 370, h, color2, title2, under2, 14, "start"),
        ]
        if y > 40:
            parts += [arrow(210, y - 18, 210, y - 2), arrow(615, y - 2, 615, y - 17)]
        y += h + 18
    parts += [arrow(400, y - 50, 428, y - 50)]
    picture(
        "step.svg",
        820,
        y,
        "The way of one gradient: from loss.backward() down to a kernel, and back up to .grad",
        parts,
    )


if __name__ == "__main__":
    layers()
    step()
