"""`needle launch --hosts`, and messages by TCP: machines are network namespaces of this one, which only root can make."""

import json
import os
import shutil
import subprocess

import pytest
from distributed_helpers import HERE, lines_of, needs_mpi, run

from needle_nn.distributed import launching

AGENT = "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"


def can_make_machines():
    """Whether this user may have network namespaces with cables between them, and Open MPI is there to use them."""
    if os.geteuid() or not all(map(shutil.which, ("ip", "tc", "unshare"))):
        return False
    trial = "mkdir -p /run/netns && mount -t tmpfs none /run/netns && ip link add name end1 type veth peer name end2"
    trial += " && ip netns add place"
    done = subprocess.run(["unshare", "--mount", "--net", "sh", "-c", trial], capture_output=True, timeout=20)
    try:
        return done.returncode == 0 and launching.find_launcher().flavour == "openmpi"
    except launching.LaunchError:
        return False


pytestmark = [needs_mpi, pytest.mark.skipif(not can_make_machines(), reason="needs root, ip, tc and Open MPI")]


def on_machines(tmp_path, count, ranks, *program, rate="", options=(), **more):
    """`needle launch --hosts` on so many machines."""
    import sys

    hosts = ",".join(f"10.9.0.{i + 1}" for i in range(count))
    launch = (sys.executable, "-m", "needle_nn.command.main", "launch", "--as-root", "--hosts", hosts, "-n", str(ranks))
    machines = ("unshare", "--mount", "--net", "sh", f"{HERE}/distributed_machines.sh", str(tmp_path), str(count), rate)
    return run(["-c", AGENT, *machines, *launch, *options, *map(str, program)], **more)


def test_the_contract_by_tcp(tmp_path):
    done = on_machines(tmp_path, 2, 2, "-m", "needle_nn.distributed.testing", "mpi")
    assert done.code == 0, done.out + done.err
    assert len(lines_of(done, "keeps the contract")) == 2 and done.left == []


def test_the_same_bits_by_tcp(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    alone, there = ({"kind": "gpt", "steps": 8, "folder": str(tmp_path / name)} for name in ("one", "two"))
    expected = run(["distributed_training.py", json.dumps(alone)])
    # what is quoted goes through a shell, as it does with ssh: the options come from a file
    (tmp_path / "program.py").write_text(
        f"import sys; sys.path.insert(0, {str(HERE)!r})\nimport distributed_training\n"
        f"distributed_training.main(**{ {**there, 'zero': True, 'slices': True}!r})\n"
    )
    found = on_machines(tmp_path, 2, 2, tmp_path / "program.py", options=["--no-prefix"])
    assert expected.code == found.code == 0, expected.err + found.out
    shas = [
        json.loads(next(line for line in done.out.splitlines() if '"sha"' in line))["sha"] for done in (expected, found)
    ]
    assert shas[0] == shas[1]


def test_a_rank_killed_on_another_machine_ends_all(tmp_path):
    done = on_machines(tmp_path, 2, 2, "distributed_failing.py", "segfault")
    assert done.code != 0 and done.left == [] and lines_of(done, "done") == []
    assert lines_of(done, "fails ")
