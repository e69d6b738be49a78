"""Every public function and method of needle-core and needle-nn says the types of its arguments and of its result."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Of every op: `compute` takes and returns NDArrays, `gradient` Tensors. The stub of `Op` says it once for all.
OPS = ("compute", "gradient")


def public(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef, bool]]:
    """Functions and methods by name, and whether the first argument is the object."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name, node, False
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for method in node.body:
                if not isinstance(method, ast.FunctionDef) or method.name in OPS:
                    continue
                if method.name in ("__init__", "__call__") or not method.name.startswith("_"):
                    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in method.decorator_list)
                    yield f"{node.name}.{method.name}", method, not static


def is_annotated(function: ast.FunctionDef, bound: bool) -> bool:
    given = function.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs][bound:]
    arguments += [each for each in (given.vararg, given.kwarg) if each is not None]
    return function.returns is not None and all(each.annotation is not None for each in arguments)


@pytest.mark.parametrize(("package", "least"), [("core", 500), ("nn", 1200)])
def test_public_functions_are_annotated(package: str, least: int) -> None:
    count, without = 0, []
    for path in sorted((ROOT / f"packages/needle-{package}/src").rglob("*.py")):
        if path.parent.name.startswith("chapter"):
            continue  # exercises, for students
        for name, function, bound in public(ast.parse(path.read_text())):
            count += 1
            if not is_annotated(function, bound):
                without.append(f"{path.name}: {name}")
    assert without == []
    assert count >= least
