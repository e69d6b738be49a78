"""The API reference as Markdown, from the docstrings of the installed packages: compiled classes have no source to read.

A docstring's first line is its summary; blocks of `>>>` are shown as examples, `Parameters` as a table.
"""

import importlib
import inspect
import re
from html import escape
from types import ModuleType
from typing import Any

#: Pages: title, then (heading, module, names or None for all public ones).
PAGES: dict[str, tuple[str, list[tuple[str, str, list[str] | None]]]] = {
    "tensor": ("Tensor and autograd", [
        ("", "needle", ["Tensor", "TensorTuple", "Op", "TensorOp", "TensorTupleOp", "operator"]),
        ("Gradients of functions", "needle", "grad value_and_grad vjp jvp jacobian hessian hvp vmap checkpoint".split()),
        ("Modes", "needle", "no_grad enable_grad lazy_mode anomaly_mode compat capture profile draw_graph".split()),
        ("Engine", "needle.autograd", ["gradients", "find_topo_sort", "compute_gradient_of_variables"]),
        ("Checking", "needle.testing", None),
    ]),
    "ops": ("Operators", [("", "needle.ops", None)]),
    "init": ("Creation and initialisation", [("", "needle.init", None), ("Random numbers", "needle.random", None)]),
    "nn": ("Layers", [("", "needle.nn", None)]),
    "optim": ("Optimizers", [("", "needle.optim", None)]),
    "data": ("Data", [("", "needle.data", None)]),
    "training": ("Training and checkpoints", [("", "needle_nn.training", None), ("Checkpoints", "needle_nn.checkpoint", None)]),
    "models": ("Models", [("", "needle_nn.models", None), ("Generation", "needle_nn.generation", None)]),
    "ndarray": ("NDArray", [("", "needle_ndarray", None)]),
    "backend": ("Backend interface", [("", "needle_ndarray.backend", ["Backend", "Op"])]),
}  # fmt: skip
PARAMETERS = re.compile(r"^(Parameters|Returns|Yields)\n-{3,}\n", re.MULTILINE)


def page(name: str) -> str:
    title, sections = PAGES[name]
    out = [f"# {title}", ""]
    for heading, module_name, names in sections:
        module = importlib.import_module(module_name)
        out += [f"## {heading}" if heading else "", ""]
        if heading == "" and module.__doc__ and names is None and not module.__doc__.startswith("Re-export"):
            out += [body(module.__doc__), ""]
        out += [f"`import {module_name}`", ""]
        for each in names or public_names(module):
            out += [entry(each, getattr(module, each))]
    return "\n".join(out) + "\n"


def public_names(module: ModuleType) -> list[str]:
    """What `from module import *` gives, without modules and classes of ops that a function makes."""
    names = getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]
    found = []
    for name in dict.fromkeys(names):
        value = getattr(module, name)
        if inspect.ismodule(value) or not callable(value):
            continue
        if module.__name__ == "needle.ops" and isinstance(value, type):
            continue
        if not (getattr(value, "__module__", None) or "").startswith("needle"):
            continue
        found.append(name)
    return sorted(found, key=lambda name: (not name[0].isupper(), name.lower()))


def entry(name: str, value: Any, level: int = 3) -> str:
    """A heading with the signature, the docstring, and the methods of a class."""
    anchor = re.sub(r"\W+", "-", name).strip("-")
    out = [f"{'#' * level} {name} {{ #{anchor} }}", ""]
    signature, text = signature_of(name.rpartition(".")[2], value)
    if signature:
        out += [f'<pre class="signature"><code>{escape(signature)}</code></pre>', ""]
    out += [body(text) if text else "", ""]
    if isinstance(value, type) and level == 3:
        for method in methods(value):
            out += [entry(f"{name}.{method}", getattr(value, method), 4)]
    return "\n".join(out)


def methods(cls: type) -> list[str]:
    """Public methods and properties with a docstring of their own, that a base within the package has not documented already."""
    found = []
    for name, value in vars(cls).items():
        if (
            name.startswith("_")
            or name == "function"
            or not (callable(value) or isinstance(value, (property, classmethod, staticmethod)))
        ):
            continue
        doc = inspect.getdoc(getattr(cls, name))
        inherited = any(name in vars(base) and inspect.getdoc(getattr(base, name)) == doc for base in cls.__mro__[1:])
        if doc and not inherited:
            found.append(name)
    return found


def signature_of(name: str, value: Any) -> tuple[str, str]:
    """(signature, docstring without it), types left to editors; a few functions have theirs in the first line of the docstring."""
    text = inspect.getdoc(value) or ""
    embedded = re.match(r"(?:\w+\.)?" + re.escape(name) + r"(\(.*?\)(?: -> [^\n:]+)?)(?:\n|: |$)", text)
    if embedded:
        return name + embedded[1], text[embedded.end() :].lstrip()
    if isinstance(value, property) or not callable(value):
        return "", text
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "", text
    plain = [each.replace(annotation=each.empty) for each in found.parameters.values()]
    return name + str(found.replace(parameters=plain, return_annotation=found.empty)), text


def body(text: str) -> str:
    """A docstring as HTML: paragraphs, examples, tables of parameters, lists."""
    text = inspect.cleandoc(text)
    pieces = PARAMETERS.split(text)
    out = [paragraphs(pieces[0])]
    for kind, rest in zip(pieces[1::2], pieces[2::2], strict=True):
        block, _, after = rest.partition("\n\n")
        out += [parameters(kind, block), paragraphs(after)]
    return "\n\n".join(each for each in out if each)


def inline(text: str) -> str:
    return re.sub(r"`+([^`]+)`+", r"<code>\1</code>", escape(text, quote=False))


def paragraphs(text: str) -> str:
    out = []
    for block in re.split(r"\n\s*\n", text.strip()):
        if not block.strip():
            continue
        if block.lstrip().startswith(">>>"):
            out.append(f"```pycon\n{inspect.cleandoc(block)}\n```")
        elif "\n    " in block or block.startswith(("- ", "| ")):
            out.append(f"<pre>{escape(block)}</pre>")
        else:
            prose, mark, example = block.partition("\n>>>")
            out.append(f"<p>{inline(' '.join(prose.split()))}</p>")
            if mark:
                out.append(f"```pycon\n>>>{example}\n```")
    return "\n\n".join(out)


def parameters(kind: str, block: str) -> str:
    """`name : what it is`, further lines indented, as a table."""
    rows: list[list[str]] = []
    for line in block.split("\n"):
        if line.startswith(" ") and rows:
            rows[-1][1] += " " + line.strip()
        else:
            name, _, says = line.partition(" : ")
            rows.append([name, says])
    cells = "".join(f"<tr><td><code>{escape(a)}</code></td><td>{inline(b)}</td></tr>" for a, b in rows)
    return f"<p><strong>{kind}</strong></p>\n<table>{cells}</table>"
