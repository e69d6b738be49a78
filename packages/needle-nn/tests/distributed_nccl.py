"""Run as ranks on the emulation: what is on a rank's device is exchanged by NCCL, and only there; mistakes are refused."""

import numpy as np

import needle as ndl
import needle.distributed as dist
import needle_ndarray as nd
from needle_nn.distributed import parallel

world = dist.init("nccl")
parallel.GATHERED_WHOLE = 0  # gradients travel in slices, as those of large models
asked: list[str] = []


class Counted:
    """NCCL's communicator, which notes what is asked of it."""

    def __init__(self, ring):
        self.ring = ring

    def __getattr__(self, name):
        def call(*args):
            asked.append(name)
            return getattr(self.ring, name)(*args)

        return call


world._ring = Counted(world._ring)


def check_gradients_stay_on_the_device():
    rng = np.random.default_rng(world.rank)
    drawn = [rng.standard_normal(shape).astype("float32") for shape in ((7, 3), (5,))]

    def summed(device):
        params = [ndl.zeros(*a.shape, device=device, requires_grad=True) for a in drawn]
        for p, a in zip(params, drawn, strict=True):
            p.grad = ndl.Tensor(a, device=device)
        dist.sum_gradients(params, 2.0, world)
        assert all(p.grad.device == device for p in params)
        return [p.grad.numpy().tobytes() for p in params]

    expected = summed(nd.cpu())
    assert asked == [], asked
    assert summed(world.device) == expected
    assert asked == ["send", "recv"] * world.size + ["allGather"], asked


def check_another_device_goes_by_the_host():
    asked.clear()
    other = nd.cuda(1 - world.device.number) if hasattr(world.device, "number") else nd.cuda(world.rank ^ 1)
    found = world.all_reduce(nd.ones((3,), device=other))
    assert found.device == other and found.tolist() == [2.0] * 3 and asked == []


def check_what_nccl_refuses_is_one_line():
    world._ring.ring.destroy()
    try:
        world.broadcast(nd.ones((3,), device=world.device))
    except dist.DistributedError as error:
        assert "NCCL says: " in str(error) and "\n" not in str(error)
    else:
        raise AssertionError("no error")


check_gradients_stay_on_the_device()
check_another_device_goes_by_the_host()
check_what_nccl_refuses_is_one_line()
world.barrier()
print("nccl is right")
