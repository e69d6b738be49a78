"""What a case is, and the table of all of them.

A case is set up once per process, then its expression is timed. In the snippets

    A(*shape)       is a float32 array with values in [0, 1); I(n, high) one of int64 below high
    P(*shape)       is a parameter, a tensor whose gradient is asked for; C and L are A and I as tensors without
    IMAGE, KERNEL   are parameters (n, h, w, c) and (kh, kw, in, out), laid out as the framework likes them best
    nd, ndl, ops    are needle_ndarray, needle and needle.ops; np, torch, F, jnp, jax, lax what everyone calls so
    train, infer, optimizer, epoch   make a function that does one step, pass or epoch: models_*.py and loading.py
    decode, prefill                  make one that computes a token, or a prompt, of a language model: generation_*.py

`run` is the expression of all frameworks that spell it alike; `needle`, `numpy`, `torch` and `jax` replace it. JAX jits the
expression as a whole, torch.compile compiles it (as `compile`, which is spelled as `torch` is). A `captured` case is run by
Needle under `needle.capture`; `eager` is Needle without it, `onnx` the model exported and run by ONNX Runtime.
"""

from dataclasses import dataclass

FRAMEWORKS = ("needle", "eager", "numpy", "torch", "compile", "jax", "onnx")
ARRAYS = ("needle", "numpy", "torch", "jax")
TENSORS = ("needle", "torch")
GRAPHS = ("needle", "torch", "compile", "jax")
CAPTURED = ("needle", "eager", "torch", "compile", "jax")


@dataclass(frozen=True)
class Case:
    """A row of the table.

    Parameters
    ----------
    setup, run : code, see above
    of : frameworks that are measured
    backward : after the expression, the gradients of all its parameters, given one of its value
    after : what `--check` compares once it has run, instead of its value; "-" where numbers are random
    elements : for times per element
    captured : Needle replays it as a plan
    """

    family: str
    name: str
    setup: str
    run: str = ""
    needle: str = ""
    numpy: str = ""
    torch: str = ""
    jax: str = ""
    of: tuple[str, ...] = ARRAYS
    backward: bool = False
    after: str = ""
    elements: int = 0
    captured: bool = False

    def snippet(self, framework: str) -> str:
        alike = {"compile": "torch", "eager": "needle"}.get(framework, framework)
        return getattr(self, alike, "") or self.run

    @property
    def key(self) -> str:
        return f"{self.family}: {self.name}"


def all_cases() -> list[Case]:
    from benchmarks import cases_arrays, cases_captured, cases_generation, cases_layers, cases_steps

    plain = [*cases_arrays.CASES, *cases_layers.CASES, *cases_steps.CASES]
    return [*plain, *cases_generation.CASES, *cases_captured.CASES]


def families() -> list[str]:
    """Their names; the last two are measured in processes of their own, without cases."""
    return [*dict.fromkeys(case.family for case in all_cases()), "memory", "install"]
