"""Ops with kernels of their own for value and gradient, and a reference composed of plain ops."""

from typing import Any

from needle.autograd import Tensor, TensorOp, TensorTupleOp, gradients
from needle.modes import enable_grad
from needle.ops.conversion import Alias


class FusedOp(TensorOp):
    """An op that computes its value and its gradient in one kernel each.

    A subclass has, besides `compute`:
    composed(*inputs)               the same value out of plain ops: what the second derivative, and the tests, go by
    compute_gradient(out_grad, *inputs)  the gradient of the first input, an NDArray, or a tuple for the first `differentiable`
    """

    needs = "inputs"
    differentiable = 1

    def composed(self, *inputs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}.composed")

    def compute_gradient(self, out_grad: Tensor, *inputs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}.compute_gradient")

    def gradient(self, out_grad, node):
        if self.differentiable == 1:
            return (FusedGradient(self)(out_grad, *node.inputs), *[None] * (len(node.inputs) - 1))
        grads = FusedGradients(self)(out_grad, *node.inputs).tuple()
        return grads + (None,) * (len(node.inputs) - len(grads))


class FusedGradient(TensorOp):
    """dx of a fused op with one differentiable input; its own gradient is that of the reference's."""

    needs = "inputs"
    __slots__ = ("op",)

    def __init__(self, op: Any) -> None:
        self.op = op

    def compute(self, out_grad, *inputs):
        return self.op.compute_gradient(out_grad, *inputs)

    def gradient(self, out_grad, node):
        return _of_reference(self.op, (out_grad,), node)


class FusedGradients(TensorTupleOp):
    """dx, dw, ... of a fused op with several differentiable inputs; their own gradients are those of the reference's."""

    needs = "inputs"
    __slots__ = ("op",)

    def __init__(self, op: Any) -> None:
        self.op = op

    def compute(self, out_grad, *inputs):
        return self.op.compute_gradient(out_grad, *inputs)

    def gradient(self, out_grad, node):
        return _of_reference(self.op, out_grad.tuple(), node)


def _of_reference(op, out_grads, node):
    """Gradients of the inputs of a FusedGradient, by way of the reference's gradient."""
    with enable_grad():
        dy, *inputs = [Alias()(x) for x in node.inputs]
        wanted = inputs[: op.differentiable]
        for x in (dy, *wanted):
            x.requires_grad_()  # a constant here as well: the reference's gradient depends on it
        first = gradients([op.composed(*inputs)], wanted, [dy])
        return _second(first, out_grads, [dy, *inputs])


def _second(first, out_grads, inputs):
    """Gradients of what depends on the inputs among the reference's gradients."""
    linked = [(g, v) for g, v in zip(first, out_grads, strict=True) if g is not None and g.requires_grad]
    return tuple(gradients([g for g, _ in linked], inputs, [v for _, v in linked]))


class FusedTupleOp(TensorTupleOp):
    """A fused op with several results, and with entries after them that its gradient wants kept.

    A subclass has `results`, how many there are, and besides `compute`, which returns results and kept ones:
    composed(*inputs)               the results out of plain ops
    compute_gradient(out_grads, kept, *inputs)   NDArrays: the gradients of all inputs
    """

    results = 1

    def composed(self, *inputs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}.composed")

    def compute_gradient(self, out_grads: Any, kept: Any, *inputs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}.compute_gradient")

    def gradient(self, out_grad, node):
        entries, n = node.tuple(), self.results
        return FusedTupleGradient(self, len(entries) - n)(*out_grad[:n], *entries[n:], *node.inputs).tuple()


class FusedTupleGradient(TensorTupleOp):
    """The gradients of a fused op's inputs, out of those of its results and what it kept; their own are the reference's."""

    needs = "inputs"

    def __init__(self, op: Any, kept: Any) -> None:
        self.op, self.kept = op, kept

    def compute(self, *args):
        n, m = self.op.results, self.op.results + self.kept
        return self.op.compute_gradient(args[:n], args[n:m], *args[m:])

    def gradient(self, out_grad, node):
        n, m = self.op.results, self.op.results + self.kept
        with enable_grad():
            fresh = [Alias()(x).requires_grad_() for x in node.inputs[:n] + node.inputs[m:]]
            grads, inputs = fresh[:n], fresh[n:]
            second = _second(gradients(self.op.composed(*inputs), inputs, grads), out_grad.tuple(), fresh)
        return second[:n] + (None,) * self.kept + second[n:]
