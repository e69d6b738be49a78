"""NCCL's communicator on the emulation of CUDA, by a stand-in of cupy.cuda.nccl over MPI: not on a GPU."""

from importlib.util import find_spec

import pytest
from distributed_helpers import launch, lines_of, needs_mpi, run

pytestmark = [needs_mpi, pytest.mark.skipif(find_spec("needle_cuda") is None, reason="needle-cuda is not installed")]
EMULATED = {"NEEDLE_CUDA_EMULATION": "1"}


@pytest.mark.parametrize("streams", ["immediate", "deferred"])
def test_contract(streams):
    """With deferred streams, what is not waited for is not there."""
    done = launch(
        2, "-m", "needle_nn.distributed.testing", "nccl", "cuda", NEEDLE_CUDA_EMULATION_STREAMS=streams, **EMULATED
    )
    assert done.code == 0, done.out + done.err
    assert len(lines_of(done, "on cuda")) == len(lines_of(done, "keeps the contract")) == 2 and done.left == []


def test_what_goes_by_nccl():
    done = launch(2, "distributed_nccl.py", **EMULATED)
    assert done.code == 0, done.out + done.err
    assert len(lines_of(done, "nccl is right")) == 2


def test_a_rank_without_a_gpu_is_told_to_all():
    done = launch(2, "distributed_nccl.py", NEEDLE_CUDA_EMULATION_DEVICES="1", **EMULATED)
    assert done.code != 0 and done.left == []
    assert lines_of(done, "init: NCCL: rank 1: cuda(1): no device 1: there is 1")


def test_without_cupy_it_says_what_is_missing():
    code = "import sys; sys.modules['cupy'] = None; import needle.distributed as dist; dist.init('nccl')"
    done = run(["-c", code], NEEDLE_CUDA_EMULATION="0")
    assert done.code == 1 and lines_of(done, "init: NCCL: rank 0: cuda(0): cupy is missing; pip install")
