"""Write the stubs that have a row for every operator: `python stubs/write.py`, or with --check compare them.

    needle/ops/__init__.pyi       op classes, and functions with all names that their arguments go by
    needle/__init__.pyi           those functions, and PyTorch's names
    stubs/missing.txt             methods that only say what there is instead, for stubtest to leave out
    needle/autograd/tensor.pyi    in the class Tensor, below a line that says so: the methods that `needle.torch_names` adds

Names, arguments and types are those of the functions themselves. The other stubs are written by hand; stubtest compares all of
them with what is there at run time.
"""

import argparse
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any

import needle
from needle import ops, torch_names
from needle.autograd import Tensor
from needle.torch_names import missing

SOURCE = Path(__file__).parents[1] / "packages/needle-core/src/needle"
MARK = "    # Of needle.torch_names, written by stubs/write.py"
IMPORTS = """
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

from needle.autograd import Tensor as Tensor, TensorTuple as TensorTuple
from needle.ops.helpers import ValuesAndIndices
from needle.typing import ArrayLike, Axes, DeviceLike, DTypeLike, Key, Number, Operand, Pair, Shape, Tensors
"""
#: Types whose names are those of methods of Tensor, and of dtypes of needle.
BUILTIN = re.compile(r"(?<![.\w])(bool|int|float|type)\b")
#: The types of properties that are no bool.
PROPERTIES = {"grad_fn": "Op | None", "is_leaf": "_Answer", "itemsize": "builtins.int"}
FUNCTIONS = (FunctionType, BuiltinFunctionType)


def annotation(given: Any) -> str:
    """A type as it is written in a stub."""
    if given is inspect.Parameter.empty:
        return "Any"
    text = given if isinstance(given, str) else inspect.formatannotation(given)
    return re.sub(r"\b(typing|collections\.abc|needle(?:_ndarray)?(?:\.\w+)*)\.(?=\w)", "", text)


def argument(parameter: inspect.Parameter) -> str:
    """An argument with its type and default; defaults that are no numbers or names are left to run time."""
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{stars}{parameter.name}: {annotation(parameter.annotation)}"
    if parameter.default is parameter.empty:
        return text
    plain = parameter.default is None or type(parameter.default) in (bool, int, float, str)
    return f"{text} = {parameter.default!r}" if plain else f"{text} = ..."


def signature(function: Any, method: bool = False) -> str:
    """The arguments and the result of a function, or of a function that is a method."""
    found = inspect.signature(function)
    parts = [argument(p) for p in found.parameters.values()]
    if method:
        parts[0] = "self" if next(iter(found.parameters)) == "self" else "_self"
    kinds = [p.kind for p in found.parameters.values()]
    first = kinds.index(inspect.Parameter.KEYWORD_ONLY) if inspect.Parameter.KEYWORD_ONLY in kinds else None
    if first is not None and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parts.insert(first, "*")
    if inspect.Parameter.POSITIONAL_ONLY in kinds:
        parts.insert(1 + max(i for i, kind in enumerate(kinds) if kind is inspect.Parameter.POSITIONAL_ONLY), "/")
    return f"({', '.join(parts)}) -> {annotation(found.return_annotation)}"


def ops_stub() -> str:
    """The stub of needle.ops."""
    classes, functions = [], []
    for name in ops.__all__:
        value = getattr(ops, name)
        if isinstance(value, FunctionType):
            functions.append(f"def {name}{signature(value)}: ...")
        elif isinstance(value, type):
            classes.append(f"from {value.__module__} import {name} as {name}")
        else:
            functions.append(f"{name}: {type(value).__name__}")
    exported = "\n".join(f'    "{name}",' for name in ops.__all__)
    return f"{IMPORTS}{chr(10).join(classes)}\n\n{chr(10).join(functions)}\n\n__all__ = [\n{exported}\n]\n"


def imported(name: str, value: Any) -> str | None:
    """The import of a name of `needle` that another module has, so that editors find where it is written."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    written = isinstance(value, type) or not hasattr(value, "__wrapped__")
    return f"from {module.__name__} import {name} as {name}" if module and written and name in vars(module) else None


def needle_stub() -> str:
    """The stub of needle: op classes are left to needle.ops."""
    lines, rows = [], []
    skipped = {name for name in ops.__all__ if not isinstance(getattr(ops, name), FunctionType)}
    for name in ops.__all__:
        if name not in skipped:
            lines.append(f"from needle.ops import {name} as {name}")
    modules = ["autograd", "backend_ndarray", "init", "ops", "random", *needle._ON_FIRST_USE]
    lines += [f"from needle import {name} as {name}" for name in modules]
    lines += [f"from needle.{module} import {name} as {name}" for name, module in needle._FROM.items()]
    for name, value in vars(needle).items():
        if (
            name.startswith("_")
            or name in skipped
            or name in ops.__all__
            or inspect.ismodule(value)
            or name in needle._FROM
        ):
            continue
        line = imported(name, value)
        if line:
            lines.append(line)
        elif isinstance(value, FUNCTIONS):
            text = BUILTIN.sub(r"builtins.\1", signature(value))
            rows.append(f"def {name}{text}: ...")
        elif name in vars(needle.backend_ndarray):
            lines.append(f"from needle_ndarray import {name} as {name}")
        elif value is None:
            rows.append(f"{name}: None")
    rows += [f"{name}: DType" for name in torch_names.ON_REQUEST if name != "compile"]
    head = [
        "import builtins",
        IMPORTS,
        "from needle_ndarray import DType",
        *lines,
        "__version__: str",
        "def __dir__() -> list[builtins.str]: ...",
    ]
    return "\n".join([*head, *rows]) + "\n"


def tensor_stub() -> str:
    """The stub of Tensor, with the rows of added methods renewed."""
    rows = []
    for name in sorted(torch_names.METHODS):
        value = vars(Tensor)[name]
        if isinstance(value, property):
            rows.append(f"    @property\n    def {name}(self) -> {PROPERTIES.get(name, 'builtins.bool')}: ...")
        else:
            text = BUILTIN.sub(r"builtins.\1", signature(value, method=True))
            rows.append(f"    def {name}{text}: ...")
    above = (SOURCE / "autograd/tensor.pyi").read_text().split(MARK)[0]
    return f"{above}{MARK}\n{chr(10).join(rows)}\n"


def formatted(text: str) -> str:
    """As ruff writes it."""
    for command in (
        ["check", "--select=I,F401,F811", "--fix", "-q"],
        ["format", "-q"],
    ):
        run = ["ruff", *command, "--stdin-filename", str(SOURCE / "written.pyi"), "-"]
        text = subprocess.run(run, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing, and fail where a file would change")
    check = parser.parse_args().check
    head = '"""Written by stubs/write.py from the functions themselves."""\n'
    made = {
        "ops/__init__.pyi": head + ops_stub(),
        "__init__.pyi": head + needle_stub(),
        "autograd/tensor.pyi": tensor_stub(),
    }
    texts = {SOURCE / name: formatted(text) for name, text in made.items()}
    texts[Path(__file__).with_name("missing.txt")] = (
        f"needle\\.autograd\\.tensor\\.Tensor\\.({'|'.join(sorted(missing.METHODS))})\n"
    )
    stale = [path.name for path, text in texts.items() if not path.exists() or path.read_text() != text]
    for path, text in texts.items():
        if not check:
            path.write_text(text)
    if stale and check:
        sys.exit(f"{', '.join(stale)}: not what the functions say; python stubs/write.py renews them")


if __name__ == "__main__":
    main()
