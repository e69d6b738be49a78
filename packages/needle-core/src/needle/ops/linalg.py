"""Products: matmul and einsum."""

from __future__ import annotations

import math
from typing import Any

from needle.autograd import Tensor, TensorOp, array_api, as_constant, data_of
from needle.ops.reductions import broadcast_to, sum_to
from needle.ops.shapes import reshape
from needle.typing import Operand
from needle_ndarray.extension import RULES, parse_einsum


class MatMul(TensorOp):
    """y = a @ b;  da = dy @ b^T, db = a^T @ dy, summed over leading axes that were broadcast.

    `transposed` says which of a and b is taken with its last two axes swapped: what gradients ask for, in one node.
    """

    needs = "inputs"

    def __init__(self, transposed: tuple[bool, bool] = (False, False)) -> None:
        self.transposed = tuple(transposed)

    def compute(self, a, b):
        ta, tb = self.transposed
        return (a.mT if ta else a) @ (b.mT if tb else b)

    def gradient(self, out_grad, node):
        a, b = node.inputs
        ta, tb = self.transposed
        da = db = None
        if a.requires_grad:
            da = sum_to(PRODUCT[tb, True](b, out_grad) if ta else PRODUCT[False, not tb](out_grad, b), a.shape)
        if b.requires_grad:
            if b.ndim == 2 and a.ndim > 2 and not ta:  # not a product per leading entry, and then their sum
                db = ROWS_PRODUCT(out_grad, a) if tb else ROWS_PRODUCT(a, out_grad)
            else:
                db = sum_to(PRODUCT[True, ta](out_grad, a) if tb else PRODUCT[not ta, False](a, out_grad), b.shape)
        return da, db


class Linear(TensorOp):
    """y = x w + b, w of two axes;  dx = dy w^T, dw = x^T dy over all rows, db = dy summed to b's shape"""

    needs = "inputs"

    def compute(self, x, w, b):
        return array_api.linear(x, w, b)

    def gradient(self, out_grad, node):
        x, w, b = node.inputs
        dx = PRODUCT[False, True](out_grad, w) if x.requires_grad else None
        dw = None
        if w.requires_grad:
            dw = PRODUCT[True, False](x, out_grad) if x.ndim == 2 else ROWS_PRODUCT(x, out_grad)
        return dx, dw, sum_to(out_grad, b.shape) if b.requires_grad else None


class RowsProduct(TensorOp):
    """y = a^T b over all rows, (..., k) and (..., n) -> (k, n);  da = b dy^T, db = a dy"""

    needs = "inputs"

    def compute(self, a, b):
        rows = math.prod(a.shape[:-1])
        return a.reshape((rows, a.shape[-1])).mT @ b.reshape((rows, b.shape[-1]))

    def gradient(self, out_grad, node):
        a, b = node.inputs
        return PRODUCT[False, True](b, out_grad), PRODUCT[False, False](a, out_grad)


PRODUCT = {(ta, tb): MatMul((ta, tb)) for ta in (False, True) for tb in (False, True)}
ROWS_PRODUCT, LINEAR = RowsProduct(), Linear()  # they hold nothing: one does for all calls
LINEAR_RULE = RULES["linear"]


class Einsum(TensorOp):
    """y = sums of products by index letters;  da = einsum of dy and the other operands, to a's letters"""

    needs = "inputs"
    broadcasts = True

    def __init__(self, inputs: Any, output: str) -> None:
        self.inputs, self.output = tuple(inputs), output

    def compute(self, *args):
        return array_api.einsum(f"{','.join(self.inputs)}->{self.output}", *args)

    def gradient(self, out_grad, node):
        return tuple(
            [self.part(i, out_grad, node.inputs) if x.requires_grad else None for i, x in enumerate(node.inputs)]
        )

    def part(self, i: int, out_grad: Tensor, operands: Any) -> Tensor:
        letters, x = self.inputs[i], operands[i]
        names = [self.output, *self.inputs[:i], *self.inputs[i + 1 :]]
        terms = [out_grad, *operands[:i], *operands[i + 1 :]]
        # A letter that only this operand has was summed over: its gradient is the same along that axis.
        alone = [c for c in dict.fromkeys(letters) if c not in "".join(names)]
        for letter in alone:
            names.append(letter)
            terms.append(_ones(x, x.shape[letters.index(letter)]))
        # A letter that repeats in this operand walks its diagonal: elsewhere the gradient is 0.
        full, spare = (
            "",
            [c for c in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in "".join(self.inputs)],
        )
        for axis, letter in enumerate(letters):
            if letter in full:
                other = spare.pop()
                names.append(letter + other)
                terms.append(Tensor.make_const(array_api.eye(x.shape[axis], dtype=x.dtype, device=x.device)))
                letter = other
            full += letter
        return Einsum(names, full)(*terms)


def _ones(x, n):
    return broadcast_to(Tensor.make_const(array_api.full((1,), 1, x.dtype, x.device)), (n,))


def _tensors(name, *operands):
    """All as tensors, arrays as constants on the device of the first tensor."""
    like = next((x for x in operands if isinstance(x, Tensor)), None)
    if like is None:
        raise TypeError(
            f"{name}: expected a Tensor, got {', '.join([type(x).__name__ for x in operands]) or 'nothing'}"
        )
    return [as_constant(x, like, name) for x in operands]


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """(..., m, k) @ (..., k, n) -> (..., m, n); leading axes broadcast, 1-d operands are a row or a column."""
    a, b = _tensors("matmul", a, b)
    if a.ndim > 1 and b.ndim > 1:
        return MatMul()(a, b)
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"matmul: {a.shape} @ {b.shape}: 0-d operands, use * instead")
    left = reshape(a, (1, a.shape[0])) if a.ndim == 1 else a
    right = reshape(b, (b.shape[0], 1)) if b.ndim == 1 else b
    y = MatMul()(left, right)
    rows = () if a.ndim == 1 else y.shape[-2:-1]
    return reshape(y, y.shape[:-2] + rows + (() if b.ndim == 1 else y.shape[-1:]))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight + bias: (..., k), (k, n) and a bias that broadcasts to the result, or none -> (..., n)."""
    if bias is None:
        return matmul(x, weight)
    if not (isinstance(x, Tensor) and isinstance(weight, Tensor) and isinstance(bias, Tensor)):
        x, weight, bias = _tensors("linear", x, weight, bias)
    if LINEAR_RULE.fits(data_of(x), data_of(weight), data_of(bias)):
        return LINEAR(x, weight, bias)
    return matmul(x, weight) + bias


def einsum(subscripts: str, *operands: Any) -> Tensor:
    """Sums of products by index letters, as in NumPy: `einsum("bij,bjk->bik", a, b)`."""
    operands = _tensors("einsum", *operands)
    inputs, output = parse_einsum(subscripts, tuple([data_of(x) for x in operands]))
    return Einsum(inputs, output)(*operands)
