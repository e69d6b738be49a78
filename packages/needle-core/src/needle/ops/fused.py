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
            linked = [(g, v) for g, v in zip(first, out_grad.tuple(), strict=True) if g is not None and g.requires_grad]
            return tuple(gradients([g for g, _ in linked], [dy, *inputs], [v for _, v in linked]))
