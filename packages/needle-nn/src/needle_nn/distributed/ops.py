"""Collectives as operators: what ranks send each other has gradients, which go the other way.

Gradients are those of the sum of the losses of all ranks. Backward communicates too, so every rank that called one of these must
run backward through it. An op communicates once, when it is called, also in lazy mode; its result is kept with it, since one rank
alone cannot compute it again.
"""

from typing import Any

import needle_ndarray as nd
from needle import NDArray, Tensor, TensorOp, ops
from needle_nn.checks import described
from needle_nn.distributed.communicator import Communicator
from needle_nn.distributed.starting import current


class Communication(TensorOp):
    """y = what `communicate` gives, once."""

    needs = ""
    verb = ""

    def __init__(self, world: Communicator) -> None:
        self.world = world
        self.result: NDArray | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rank {self.world.rank} of {self.world.size})"

    def __call__(self, x: Tensor) -> Tensor:
        if self.result is not None:
            raise RuntimeError(f"{type(self).__name__}: an op that communicates is used once; make a new one")
        if not isinstance(x, Tensor):
            hint = f"; for NDArrays, world.{self.verb}" if isinstance(x, NDArray) else ""
            raise TypeError(f"{self.verb}: expected a Tensor, got {described(x)}{hint}")
        y = super().__call__(x)
        y.realize_cached_data()
        return y

    def compute(self, x: NDArray) -> NDArray:
        if self.result is None:
            self.result = self.communicate(x)
        return self.result

    def communicate(self, x: NDArray) -> NDArray:
        raise NotImplementedError


class AllReduce(Communication):
    """y = sum of x over ranks;  dx = sum of dy over ranks"""

    verb = "all_reduce"

    def communicate(self, x: Any) -> Any:
        return self.world.all_reduce(x)

    def gradient(self, out_grad, node):
        return AllReduce(self.world)(out_grad)


class AllReduceExtreme(Communication):
    """y = max (or min) of x over ranks;  dx = m dy / (sum of m over ranks), m = (x = y), dy summed over ranks"""

    verb, needs = "all_reduce", "inputs output"

    def __init__(self, world: Any, op: str) -> None:
        super().__init__(world)
        self.op = op

    def communicate(self, x: Any) -> Any:
        return self.world.all_reduce(x, self.op)

    def gradient(self, out_grad, node):
        found = ops.equal(node.inputs[0].detach(), node.detach()).astype(out_grad.dtype)
        return AllReduce(self.world)(out_grad) * (found / AllReduce(self.world)(found))


class AllGather(Communication):
    """y[r] = x of rank r;  dx = sum over ranks of dy[this rank]"""

    verb = "all_gather"

    def communicate(self, x: Any) -> Any:
        return self.world.all_gather(x)

    def gradient(self, out_grad, node):
        return ReduceScatter(self.world)(out_grad).reshape(node.inputs[0].shape)


class ReduceScatter(Communication):
    """y = this rank's rows of the sum of x over ranks;  dx = dy of all ranks, one below the other"""

    verb = "reduce_scatter"

    def communicate(self, x: Any) -> Any:
        return self.world.reduce_scatter(x)

    def gradient(self, out_grad, node):
        return AllGather(self.world)(out_grad).reshape(node.inputs[0].shape)


class AllToAll(Communication):
    """y[r] = x[this rank] of rank r;  dx[r] = dy[this rank] of rank r"""

    verb = "all_to_all"

    def communicate(self, x: Any) -> Any:
        return self.world.all_to_all(x)

    def gradient(self, out_grad, node):
        return AllToAll(self.world)(out_grad)


class Broadcast(Communication):
    """y = x of the root;  dx = sum of dy over ranks at the root, 0 elsewhere"""

    verb = "broadcast"

    def __init__(self, world: Any, root: int) -> None:
        super().__init__(world)
        self.root = root

    def communicate(self, x: Any) -> Any:
        return self.world.broadcast(x, self.root)

    def gradient(self, out_grad, node):
        return AllReduce(self.world)(out_grad) * float(self.world.rank == self.root)


class Send(Communication):
    """y = 0, and x goes to another rank;  dx = what that rank sends back: the gradient of what it received"""

    verb = "send"

    def __init__(self, world: Any, to: int, tag: int) -> None:
        super().__init__(world)
        self.to, self.tag = to, tag

    def communicate(self, x: Any) -> Any:
        self.world.send(x, self.to, self.tag)
        return nd.zeros((), x.dtype, x.device)

    def gradient(self, out_grad, node):
        # The 0 that comes as out_grad is that of a Send where this rank's own gradient went first: the order stays.
        return Recv(self.world, node.inputs[0], self.to, self.tag)(out_grad)


class Recv(Communication):
    """y = what another rank sent, and x is a 0 that gives backward a way to come here;  dx = 0, and dy goes to that rank"""

    verb = "recv"

    def __init__(self, world: Any, like: Any, source: int, tag: int) -> None:
        super().__init__(world)
        self.shape, self.dtype, self.source, self.tag = like.shape, like.dtype, source, tag

    def communicate(self, x: Any) -> Any:
        return self.world.recv(self.shape, self.dtype, self.source, self.tag).to(x.device)

    def gradient(self, out_grad, node):
        return Send(self.world, self.source, self.tag)(out_grad)


# ---- Functions -------------------------------------------------------------------------------------------------------------


def all_reduce(x: Tensor, op: str = "sum", *, world: Communicator | None = None) -> Tensor:
    """y = x of rank 0 + x of rank 1 + ..., the same on every rank; op is sum, max or min.

    >>> import needle as ndl
    >>> x = ndl.Tensor([1.0, 2.0])
    >>> y = all_reduce(x)
    >>> y.sum().backward()
    >>> y.tolist(), x.grad.tolist()
    ([1.0, 2.0], [1.0, 1.0])
    """
    if op == "sum":
        return AllReduce(current(world))(x)
    return AllReduceExtreme(current(world), op)(x)


def all_gather(x: Tensor, *, world: Communicator | None = None) -> Tensor:
    """y[r] = x of rank r:  (...) -> (size, ...)"""
    return AllGather(current(world))(x)


def reduce_scatter(x: Tensor, *, world: Communicator | None = None) -> Tensor:
    """y = this rank's n rows of the sum over ranks:  (size n, ...) -> (n, ...)"""
    return ReduceScatter(current(world))(x)


def all_to_all(x: Tensor, *, world: Communicator | None = None) -> Tensor:
    """y[r] = x[this rank] of rank r:  (size, ...) -> (size, ...)"""
    return AllToAll(current(world))(x)


def broadcast(x: Tensor, root: int = 0, *, world: Communicator | None = None) -> Tensor:
    """y = x of the root; the others give an x of the same shape and dtype."""
    return Broadcast(current(world), root)(x)


def send(x: Tensor, to: int, tag: int = 0, *, world: Communicator | None = None) -> Tensor:
    """Send x to the `recv` of another rank. The result is a 0: its `backward()` waits for the gradient of what was sent.

    >>> import needle as ndl
    >>> x = ndl.Tensor([1.0, 2.0])
    >>> sent = send(x, to=0)
    >>> y = recv(x, source=0)
    >>> (y * 3).sum().backward()
    >>> sent.backward()
    >>> x.grad.tolist()
    [3.0, 3.0]
    """
    return Send(current(world), to, tag)(x)


def recv(
    like: Tensor, source: int, tag: int = 0, *, after: Tensor | None = None, world: Communicator | None = None
) -> Tensor:
    """What rank `source` has sent or will send with this tag, as a tensor that sends its gradient back.

    Parameters
    ----------
    like : a Tensor of the shape, dtype and device of what comes
    source, tag : of the `send`
    after : the result of a `send` of this rank. Backward first sends the gradient of what is received here, then waits for that of
        what was sent there: for ranks that exchange something, which would wait for each other
    world : the communicator; that of `init()`
    """
    if not isinstance(like, Tensor):
        raise TypeError(f"recv: like: expected a Tensor of the shape and dtype that come, got {described(like)}")
    if after is None:
        after = Tensor(0.0, device=like.device, dtype=like.dtype, requires_grad=like.dtype.is_float)
    elif not isinstance(after, Tensor) or after.shape != ():
        raise TypeError(f"recv: after: expected what send gave, got {described(after)}")
    return Recv(current(world), like, source, tag)(after)
