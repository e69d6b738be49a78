"""Ops with kernels of their own for value and gradient, and a twin composed of plain ops."""

from needle.autograd import TensorOp, TensorTupleOp, gradients
from needle.modes import enable_grad
from needle.ops.conversion import Alias


class FusedOp(TensorOp):
    """An op that computes its value and its gradient in one kernel each.

    A subclass has, besides `compute`:
    composed(*inputs)               the same value out of plain ops: what the second derivative, and the tests, go by
    compute_gradient(out_grad, *inputs)  NDArrays: the gradients of the first `differentiable` inputs
    """

    needs = "inputs"
    differentiable = 1

    def composed(self, *inputs):
        raise NotImplementedError(f"{type(self).__name__}.composed")

    def compute_gradient(self, out_grad, *inputs):
        raise NotImplementedError(f"{type(self).__name__}.compute_gradient")

    def gradient(self, out_grad, node):
        grads = FusedGradient(self)(out_grad, *node.inputs).tuple()
        return grads + (None,) * (len(node.inputs) - len(grads))


class FusedGradient(TensorTupleOp):
    """The gradients of a fused op's inputs; their own gradients are those of the twin's."""

    needs = "inputs"

    def __init__(self, op):
        self.op = op

    def compute(self, out_grad, *inputs):
        return self.op.compute_gradient(out_grad, *inputs)

    def gradient(self, out_grad, node):
        with enable_grad():
            dy, *inputs = [Alias()(x) for x in node.inputs]
            wanted = inputs[: self.op.differentiable]
            for x in (dy, *wanted):
                x.requires_grad_()  # a constant here as well: the twin's gradient depends on it
            first = gradients([self.op.composed(*inputs)], wanted, [dy])
            return _second(first, out_grad, [dy, *inputs])


def _second(first, out_grad, inputs):
    """Gradients of what depends on the inputs among the twin's gradients."""
    linked = [(g, v) for g, v in zip(first, out_grad.tuple(), strict=True) if g is not None and g.requires_grad]
    return tuple(gradients([g for g, _ in linked], inputs, [v for _, v in linked]))


class FusedTupleOp(TensorTupleOp):
    """A fused op with several results, and with entries after them that its gradient wants kept.

    A subclass has `results`, how many there are, and besides `compute`, which returns results and kept ones:
    composed(*inputs)               the results out of plain ops
    compute_gradient(out_grads, kept, *inputs)   NDArrays: the gradients of all inputs
    """

    results = 1

    def composed(self, *inputs):
        raise NotImplementedError(f"{type(self).__name__}.composed")

    def compute_gradient(self, out_grads, kept, *inputs):
        raise NotImplementedError(f"{type(self).__name__}.compute_gradient")

    def gradient(self, out_grad, node):
        entries, n = node.tuple(), self.results
        return FusedTupleGradient(self, len(entries) - n)(*out_grad[:n], *entries[n:], *node.inputs).tuple()


class FusedTupleGradient(TensorTupleOp):
    """The gradients of a fused op's inputs, out of those of its results and what it kept; their own are those of the twin's."""

    needs = "inputs"

    def __init__(self, op, kept):
        self.op, self.kept = op, kept

    def compute(self, *args):
        n, m = self.op.results, self.op.results + self.kept
        return self.op.compute_gradient(args[:n], args[n:m], *args[m:])

    def gradient(self, out_grad, node):
        n, m = self.op.results, self.op.results + self.kept
        with enable_grad():
            fresh = [Alias()(x).requires_grad_() for x in node.inputs[:n] + node.inputs[m:]]
            grads, inputs = fresh[:n], fresh[n:]
            second = _second(gradients(self.op.composed(*inputs), inputs, grads), out_grad, fresh)
        return second[:n] + (None,) * self.kept + second[n:]
