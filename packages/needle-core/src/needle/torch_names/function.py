"""PyTorch's way to write an operator: a class with `forward(ctx, ...)` and `backward(ctx, ...)`; `needle.operator` is Needle's.

>>> import needle as ndl
>>> class Cube(ndl.autograd.Function):
...     @staticmethod
...     def forward(ctx, x):
...         ctx.save_for_backward(x)
...         return x**3
...     @staticmethod
...     def backward(ctx, grad):
...         (x,) = ctx.saved_tensors
...         return grad * 3 * x**2
>>> x = ndl.tensor([2.0], requires_grad=True)
>>> Cube.apply(x).backward()
>>> x.grad.tolist()
[12.0]
"""

from typing import Any

from needle.autograd import Tensor, TensorOp, TensorTuple, TensorTupleOp, is_grad_enabled
from needle.modes import no_grad


class Context:
    """What `forward` leaves for `backward`: attributes, and the tensors it has saved."""

    def __init__(self) -> None:
        self._saved: tuple[Any, ...] = ()
        self._real: dict[int, Any] = {}  # tensors that forward saw: those of the graph
        self.needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self._saved = tensors

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was saved; inputs and outputs with their graphs, so that gradients have gradients."""
        return tuple([self._real.get(id(x), x) for x in self._saved])

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Nothing: what `backward` does not use gets no gradient."""

    def mark_dirty(self, *tensors: Any) -> None:
        raise NotImplementedError("mark_dirty: forward gets its inputs to read; return a new tensor")

    def set_materialize_grads(self, value: bool) -> None:
        """Nothing: gradients are there, zeros where nothing leads to an output."""


class _Methods:
    """What the two kinds of op share: one output, or several."""

    def __init__(self, function: Any, args: tuple[Any, ...], ctx: Context, places: list[int]) -> None:
        self.function, self.args, self.ctx, self.places = function, args, ctx, places
        self.known: Any = None  # the arrays of the call that found out how many there are

    def __repr__(self) -> str:
        return f"{self.function.__name__}()"

    def run(self, arrays: Any) -> Any:
        given = list(self.args)
        self.seen = [Tensor.make_const(a) for a in arrays]
        for place, x in zip(self.places, self.seen, strict=True):
            given[place] = x
        with no_grad():
            self.made = self.function._forward(self.ctx, given)
        several = isinstance(self.made, (tuple, list))
        outputs = [x.realize_cached_data() for x in (self.made if several else [self.made])]
        return tuple(outputs) if several else outputs[0]

    def compute(self, *arrays: Any) -> Any:
        found, self.known = self.known, None
        return self.run(arrays) if found is None else found

    def gradient(self, out_grad: Any, node: Any) -> Any:
        ctx = self.ctx
        ctx._real = {id(x): real for x, real in zip(self.seen, node.inputs, strict=True)}
        several = isinstance(out_grad, TensorTuple)
        outputs = list(node.tuple()) if several else [node]
        ctx._real |= {id(x): y for x, y in zip(self.made if several else [self.made], outputs, strict=True)}
        found = self.function.backward(ctx, *(out_grad.tuple() if several else (out_grad,)))
        found = list(found) if isinstance(found, (tuple, list)) else [found]
        if len(found) < len(self.args):
            name = self.function.__name__
            raise RuntimeError(f"{name}.backward returned {len(found)} gradients, expected {len(self.args)}")
        return tuple([found[place] for place in self.places])


class _One(_Methods, TensorOp):
    pass


class _Several(_Methods, TensorTupleOp):
    pass


class Function:
    """Subclasses define static methods forward(ctx, *args) and backward(ctx, *grads); `apply` calls and records them."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        raise NotImplementedError("Function: forward is not defined")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError("Function: backward is not defined")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """What backward will need; where a subclass has it, `forward` is called without ctx."""

    @classmethod
    def _forward(cls, ctx: Context, given: list[Any]) -> Any:
        if cls.setup_context is Function.setup_context:
            return cls.forward(ctx, *given)
        made = cls.forward(*given)
        cls.setup_context(ctx, tuple(given), made)
        return made

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """forward(ctx, *args), recorded."""
        places = [i for i, x in enumerate(args) if isinstance(x, Tensor)]
        tensors = [args[i] for i in places]
        ctx = Context()
        ctx.needs_input_grad = tuple([isinstance(x, Tensor) and x.requires_grad for x in args])
        op = _Methods(cls, args, ctx, places)
        known = op.run([x.realize_cached_data() for x in tensors])
        if not tensors or not is_grad_enabled() or not any(ctx.needs_input_grad):
            return op.made
        node = (_Several if isinstance(known, tuple) else _One)(cls, args, ctx, places)
        node.known, node.seen, node.made = known, op.seen, op.made
        found = node(*tensors)
        return found.tuple() if isinstance(found, TensorTuple) else found
