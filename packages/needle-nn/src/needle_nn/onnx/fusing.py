"""Groups of ops that are one node in ONNX: a convolution and its bias, batch norm by its running statistics, differences.

The members of a group have nodes of their own by then, each after its inputs; nobody uses these any more, and they go.
"""

from collections.abc import Callable
from typing import Any

from needle import ops
from needle_nn.onnx.converters.networks import convolution, transposed_convolution
from needle_nn.onnx.graph import Graph, Operand
from needle_nn.onnx.matching import Fitted
from needle_nn.onnx.registry import Call


class Fusing:
    """Looks at a node with those before it.

    Parameters
    ----------
    nodes, uses : all nodes, and how often each is used
    call, operand : the Call of a node, and its value, by its place
    """

    def __init__(
        self,
        graph: Graph,
        nodes: list[Fitted],
        uses: list[int],
        call: Callable[[int], Call],
        operand: Callable[[int], Operand],
    ) -> None:
        self.graph, self.nodes, self.uses, self.call, self.operand = graph, nodes, uses, call, operand

    def result(self, at: int) -> Any:
        """The name of what a group that ends here gives; None where none does."""
        if type(self.nodes[at].node.op) is not ops.EWiseAdd:
            return None
        a, b = self.nodes[at].node.inputs
        return self._biased(a, b) or self._biased(b, a) or self._batch_norm(at) or self._difference(at)

    def _of(self, at: int, *kinds: type) -> list[int] | None:
        """The inputs of a node if its op is of one of these classes."""
        node = self.nodes[at].node
        return node.inputs if type(node.op) in kinds else None

    def _biased(self, y: int, bias: int) -> Any:
        converters = {ops.Conv2d: convolution, ops.Conv: convolution, ops.Conv2dInputGrad: transposed_convolution}
        convert = converters.get(type(self.nodes[y].node.op))
        channels = (self.nodes[y].specs[0][0][-1],) if convert else ()
        if convert is None or self.uses[y] != 1 or self.nodes[bias].specs != [(channels, self.nodes[y].specs[0][1])]:
            return None
        return convert(self.graph, self.call(y), (self.operand(bias).name,))

    def _difference(self, at: int) -> Any:
        """a + -b, which is how a - b is recorded"""
        a, b = self.nodes[at].node.inputs
        negated, dtype = self._of(b, ops.Negate), self.nodes[at].specs[0][1]
        if negated is None or any(self.nodes[i].specs[0][1] != dtype for i in (a, negated[0])):
            return None
        return self.graph.op("Sub", self.operand(a), self.operand(negated[0]))

    def _batch_norm(self, at: int) -> Any:
        """x reshape(scale) + reshape(bias + -(mean scale)), scale = weight / sqrt(var + eps)"""
        product, wide_shift = self.nodes[at].node.inputs
        scaled, (shift,) = self._of(product, ops.EWiseMul), self._of(wide_shift, ops.Reshape) or (None,)
        if not scaled or shift is None:
            return None
        x, wide = scaled
        (scale,), moved = self._of(wide, ops.Reshape) or (None,), self._of(shift, ops.EWiseAdd)
        parts = self._of(scale, ops.EWiseDiv) if scale is not None else None
        negative = self._of(moved[1], ops.Negate) if moved else None
        root = self._of(parts[1], ops.Sqrt) if parts else None
        found = self._of(negative[0], ops.EWiseMul) if negative else None
        raised = self._of(root[0], ops.AddScalar) if root else None
        if not (found and raised and moved and parts) or found[1] != scale:
            return None
        shape, dtype = self.nodes[x].specs[0]
        vectors = [parts[0], moved[0], found[0], raised[0]]  # weight, bias, mean, variance
        if any(self.nodes[i].specs != [((shape[1],), dtype)] for i in vectors if len(shape) > 1) or len(shape) < 2:
            return None
        if self.nodes[wide].specs[0][0] != (shape[1],) + (1,) * (len(shape) - 2):
            return None  # the channels are another axis
        epsilon = float(self.nodes[root[0]].settings["scalar"]) if root else 0.0
        names = [self.operand(i).name for i in (x, *vectors)]
        return self.graph.op("BatchNormalization", *names, epsilon=epsilon)
