"""The names that snippets use in each framework, and how an expression becomes what is timed there."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from benchmarks import loading, models_numpy
from benchmarks.cases import Case

ORDER = np.random.default_rng  # every case starts with the same generator


class Prepared(NamedTuple):
    """A statement to time, the names it needs, and a function that returns what one run of it comes to.

    `ready` raises an error where, after some calls, it is not what the case says: captured, and yet not replayed.
    """

    statement: str
    names: dict[str, Any]
    outcome: Callable[[], Any]
    ready: Callable[[], None] = lambda: None


def namespace(framework: str, checking: bool = False) -> dict[str, Any]:
    """Modules and makers; `checking`: without random numbers inside the models."""
    makers = {"needle": _needle, "eager": _needle, "numpy": _numpy, "torch": _torch, "compile": _torch, "jax": _jax}
    return {**makers, "onnx": _onnx}[framework](framework, not checking)


def _makers(random: np.random.Generator, array: Any, tensor: Any, parameter: Any) -> dict[str, Any]:
    def floats(*shape: int) -> np.ndarray:
        return random.random(shape, dtype=np.float32)

    return {
        "A": lambda *shape: array(floats(*shape)),
        "I": lambda n, high: array(random.integers(0, high, n)),
        "C": lambda *shape: tensor(floats(*shape)),
        "L": lambda n, high: tensor(random.integers(0, high, n)),
        "P": lambda *shape: parameter(floats(*shape)),
        "IMAGE": lambda *shape: parameter(floats(*shape)),
        "KERNEL": lambda *shape: parameter(floats(*shape)),
    }


def _numpy(framework: str, random: bool) -> dict[str, Any]:
    made = _makers(ORDER(0), *[lambda values: values] * 3)
    return {**made, "np": np, "epoch": loading.numpy, "train": models_numpy.train}


def _onnx(framework: str, random: bool) -> dict[str, Any]:
    from benchmarks import models_onnx

    return {"infer": models_onnx.infer}


def _needle(framework: str, random: bool) -> dict[str, Any]:
    import needle as ndl
    import needle_ndarray as nd
    from benchmarks import models_needle as models

    def tensor(values: np.ndarray) -> Any:
        return ndl.Tensor(values, requires_grad=False)

    made = _makers(ORDER(0), lambda values: nd.array(values, dtype=str(values.dtype)), tensor, ndl.Tensor)
    made |= {"nd": nd, "ndl": ndl, "ops": ndl.ops, "infer": models.infer, "optimizer": models.optimizer}
    return {
        **made,
        "train": lambda name, batch: models.train(name, batch, random),
        "epoch": loading.needle,
        **_generation("needle"),
        "constant": tensor,
    }


def _generation(framework: str) -> dict[str, Any]:
    """decode and prefill; imported when called, as commits of before that are compared have no generation."""
    module = f"benchmarks.generation_{framework}"
    return {name: lambda *how, name=name: getattr(import_module(module), name)(*how) for name in ("decode", "prefill")}


def _torch(framework: str, random: bool) -> dict[str, Any]:
    import torch

    from benchmarks import models_torch as models

    compiled = framework == "compile"
    draws = ORDER(0)

    def image(*shape: int) -> Any:  # (n, h, w, c) -> channels_last (n, c, h, w)
        return torch.from_numpy(draws.random(shape, dtype=np.float32)).permute(0, 3, 1, 2).requires_grad_()

    def kernel(*shape: int) -> Any:  # (kh, kw, in, out) -> (out, in, kh, kw)
        values = torch.from_numpy(draws.random(shape, dtype=np.float32)).permute(3, 2, 0, 1)
        return values.contiguous(memory_format=torch.channels_last).requires_grad_()

    def constant(values: np.ndarray) -> Any:
        return torch.from_numpy(values)

    made = _makers(draws, constant, constant, lambda values: constant(values).requires_grad_())
    made |= {"torch": torch, "F": torch.nn.functional, "IMAGE": image, "KERNEL": kernel}
    return {
        **made,
        "train": lambda name, batch: models.train(name, batch, random, compiled),
        "infer": lambda name, batch=1: models.infer(name, compiled, batch),
        "optimizer": models.optimizer,
        "epoch": loading.torch,
        **_generation("torch"),
        "constant": constant,
    }


def _jax(framework: str, random: bool) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    from benchmarks import models_jax as models

    parameters: list[Any] = []

    def parameter(values: np.ndarray) -> Any:
        parameters.append(jnp.asarray(values))
        return parameters[-1]

    made = _makers(ORDER(0), jnp.asarray, jnp.asarray, parameter)
    made |= {"jax": jax, "jnp": jnp, "lax": jax.lax, "infer": models.infer, "optimizer": models.optimizer}
    return {
        **made,
        "train": lambda name, batch: models.train(name, batch, random),
        "constant": jnp.asarray,
        "parameters": parameters,
    }


def prepare(case: Case, framework: str, checking: bool = False) -> Prepared:
    """Set a case up."""
    names = namespace(framework, checking)
    before = set(names)
    exec(case.setup, names)
    text = case.snippet(framework)
    used = [name for name in compile(text, case.key, "eval").co_names if name in set(names) - before]
    if case.captured and framework == "needle":
        return _captured(case, names, text, used)
    if not any(callable(names[name]) for name in used):
        if framework in ("jax", "compile"):
            return _whole(case, framework, names, text, used)
        if case.backward:
            return _backward(names, text, used)

    def outcome() -> Any:
        value = eval(text, names)
        return eval(case.after, names) if case.after else value

    return Prepared(text, names, outcome)


def _gradient(y: Any, names: dict[str, Any]) -> Any:
    """A gradient of y, the same numbers everywhere."""
    shape = tuple(y.shape)
    images = "torch" in names and len(shape) == 4 and not y.is_contiguous()  # channels_last
    if images:
        n, c, h, w = shape
        return names["constant"](ORDER(7).random((n, h, w, c), dtype=np.float32)).permute(0, 3, 1, 2)
    return names["constant"](ORDER(7).random(shape, dtype=np.float32))


def _backward(names: dict[str, Any], text: str, used: list[str]) -> Prepared:
    """Needle and PyTorch: forget the gradients, compute, and go back."""
    wanted = [name for name in used if names[name].requires_grad]
    y = eval(text, names)
    names["dy"] = _gradient(y, names) if tuple(y.shape) else None
    given = "dy" if tuple(y.shape) else ""
    statement = " = ".join(f"{name}.grad" for name in wanted) + f" = None\n({text}).backward({given})"

    def outcome() -> Any:
        exec(statement, names)
        return eval(text, names), [names[name].grad for name in wanted]

    return Prepared(statement, names, outcome)


def _captured(case: Case, names: dict[str, Any], text: str, used: list[str]) -> Prepared:
    """Needle: a function that makes a step, or that computes an expression and goes back, as a plan."""
    capture = names["ndl"].capture
    if any(callable(names[name]) for name in used):
        step = names["step"] = capture(names["step"], strict=True)
        return Prepared(text, names, lambda: eval(case.after or text, names), lambda: replays(step))
    wanted = [names[name] for name in used if names[name].requires_grad]
    expression = eval(f"lambda: {text}", names)

    def both() -> Any:
        for p in wanted:
            p.grad = None
        y = expression()
        y.backward()
        return y

    captured = names["both"] = capture(both, strict=True)
    return Prepared("both()", names, lambda: (captured(), [p.grad for p in wanted]), lambda: replays(captured))


def replays(captured: Any) -> None:
    """Raise an error if no plan has been replayed yet."""
    if not any(plan.replays for plan in captured.plans):
        raise RuntimeError(f"{captured} has not been replayed: {'; '.join(captured.refusals) or 'no plan was made'}")


def _whole(case: Case, framework: str, names: dict[str, Any], text: str, used: list[str]) -> Prepared:
    """JAX and torch.compile: the expression as one compiled function of the arrays in it."""
    listed = ", ".join(used)
    plain = eval(f"lambda {listed}: {text}", names)
    if framework == "compile":
        names["compiled"] = names["torch"].compile(plain)
        call = f"compiled({listed})"
        if case.backward:
            return _backward(names, call, used)
        return Prepared(call, names, lambda: eval(call, names))
    jax = names["jax"]
    names["ready"] = jax.block_until_ready
    if not case.backward:
        names["jitted"] = jax.jit(plain)
        call = f"ready(jitted({listed}))"
        return Prepared(call, names, lambda: eval(call, names))
    wanted = [i for i, name in enumerate(used) if any(names[name] is p for p in names["parameters"])]
    y = eval(text, names)
    names["dy"] = _gradient(y, names) if y.shape else jax.numpy.ones(())

    def both(dy: Any, *arrays: Any) -> Any:
        def of_wanted(*changing: Any) -> Any:
            given = dict(zip(wanted, changing, strict=True))
            return plain(*(given.get(i, a) for i, a in enumerate(arrays)))

        y, pull = jax.vjp(of_wanted, *(arrays[i] for i in wanted))
        return y, list(pull(dy))

    names["jitted"] = jax.jit(both)
    call = f"ready(jitted(dy, {listed}))"
    return Prepared(call, names, lambda: eval(call, names))
