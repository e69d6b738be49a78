"""Which communicator a process gets: by what launchers tell it, by name, and where MPI is missing or another one."""

import subprocess
import sys

import pytest
from distributed_helpers import launch, needs_mpi, run

from needle_nn.distributed import launching, starting

CLEAN = dict.fromkeys(starting.SIZES, "")
INIT = "import needle.distributed as dist; print(dist.init())"
BLOCKED = "import sys; sys.modules['mpi4py'] = None; " + INIT
#: Program, environment: what it prints, or the last line of its error.
STARTS = {
    "by itself": (INIT, {}, "<Alone: rank 0 of 1>"),
    "without mpi4py": (BLOCKED, {}, "<Alone: rank 0 of 1>"),
    "a job of one": (BLOCKED, {"OMPI_COMM_WORLD_SIZE": "1", "SLURM_STEP_NUM_TASKS": "1"}, "<Alone: rank 0 of 1>"),
    "not a number": (BLOCKED, {"PMI_SIZE": "many"}, "<Alone: rank 0 of 1>"),
    "launched, without mpi4py": (
        BLOCKED,
        {"PMI_SIZE": "4"},
        "init: one of 4 processes (PMI_SIZE=4): mpi4py is not installed: pip install 'needle-nn[mpi]'",
    ),
    "mpi wanted": (
        BLOCKED.replace("init()", "init('mpi')"),
        {},
        "init: mpi4py is not installed: pip install 'needle-nn[mpi]'",
    ),
    "alone wanted": (BLOCKED.replace("init()", "init('alone')"), {"PMI_SIZE": "4"}, "<Alone: rank 0 of 1>"),
    "an unknown name": (
        INIT.replace("init()", "init('nccl2')"),
        {},
        "init: 'nccl2': no such communicator here (installed: alone, mpi",
    ),
    "not a name": (INIT.replace("init()", "init(2)"), {}, "TypeError: init: backend: expected a name, got 2"),
    "twice": (INIT.replace("init()", "init() is dist.init()"), {}, "True"),
    "twice, otherwise": (
        "import needle.distributed as dist; dist.init(); dist.init('mpi')",
        {},
        "ValueError: init: 'mpi': this process has the communicator 'alone' already",
    ),
}


@pytest.mark.parametrize("how", STARTS)
def test_init(how):
    program, env, told = STARTS[how]
    done = run(["-c", program], **{**CLEAN, **env})
    assert told in (done.out if done.code == 0 else done.err.splitlines()[-1]), done.err


def test_importing_needs_no_mpi():
    code = "import sys, needle.distributed, needle_nn.distributed.testing, needle_nn.command.main; print('mpi4py' in sys.modules)"
    assert run(["-c", code]).out == "False\n"


@needs_mpi
def test_mpi_of_one():
    done = run(["-c", INIT.replace("init()", "init('mpi')")], **CLEAN)
    assert done.out.startswith("<MPI: rank 0 of 1, ") and done.code == 0


@needs_mpi
def test_a_launcher_of_another_mpi_is_noticed():
    """Started as four by a launcher that the MPI loaded does not know: it counts one."""
    done = run(["-c", INIT], **{**CLEAN, "SLURM_STEP_NUM_TASKS": "4"})
    assert done.code == 1
    assert "init: SLURM_STEP_NUM_TASKS=4, but MPI counts 1: the launcher belongs to another MPI" in done.err


@needs_mpi
@pytest.mark.parametrize(
    ("name", "value"),
    [("NEEDLE_DISTRIBUTED_CHECKS", "2"), ("NEEDLE_DISTRIBUTED_TIMEOUT", "soon"), ("NEEDLE_DISTRIBUTED_TIMEOUT", "-1")],
)
def test_wrong_settings_are_one_line(name, value):
    done = run(["-c", INIT.replace("init()", "init('mpi')")], **{**CLEAN, name: value})
    assert done.code == 1 and done.err.splitlines()[-1].startswith(f"ValueError: {name}={value}: expected ")


# ---- needle launch ---------------------------------------------------------------------------------------------------------

COMMANDS = [
    ("openmpi", {}, "-n 4 --oversubscribe --bind-to none"),
    ("openmpi", {"as_root": True}, "-n 4 --oversubscribe --bind-to none --allow-run-as-root"),
    ("openmpi", {"hosts": ["a", "b"]}, "-n 4 --oversubscribe --bind-to none --host a:2,b:2 -x NEEDLE_SEED"),
    ("openmpi", {"hosts": ["a", "b", "c"]}, "-n 4 --oversubscribe --bind-to none --host a:2,b:2,c:2 -x NEEDLE_SEED"),
    ("mpich", {}, "-n 4"),
    ("mpich", {"hosts": ["a", "b"]}, "-n 4 -hosts a,b -ppn 2 -genvlist NEEDLE_SEED"),
]


@pytest.mark.parametrize(("flavour", "given", "expected"), COMMANDS)
def test_command(flavour, given, expected):
    env = {"NEEDLE_SEED": "1", "PATH": "/bin"}
    made = launching.command(launching.Launcher("mpiexec", flavour), ["train.py", "--lr", "1"], 4, **given, env=env)
    assert made == ["mpiexec", *expected.split(), sys.executable, "train.py", "--lr", "1"]


def fake_mpi(monkeypatch, library, launchers):
    """What mpi4py would load, and launchers by path with the version they tell."""

    def run(arguments, **_):
        version = launchers.get(arguments[0])
        return subprocess.CompletedProcess(arguments, 0, version if version is not None else library, "")

    monkeypatch.setattr(launching.subprocess, "run", run)
    monkeypatch.setattr(
        launching.shutil, "which", lambda name, path: f"{path}/{name}" if f"{path}/{name}" in launchers else None
    )
    monkeypatch.setattr(launching.os, "environ", {"PATH": "/on/path"})


def test_the_launcher_of_the_mpi_loaded_is_found(monkeypatch):
    launchers = {"/on/path/mpiexec": "mpiexec (Open MPI) 5.0", "/opt/mpich/bin/mpiexec": "HYDRA build details:"}
    fake_mpi(monkeypatch, "MPICH Version: 5.0\n/opt/mpich/lib/libmpi.so.12\n", launchers)
    assert launching.find_launcher() == ("/opt/mpich/bin/mpiexec", "mpich")
    fake_mpi(monkeypatch, "Open MPI v5.0\n/opt/mpich/lib/libmpi.so.40\n", launchers)
    assert launching.find_launcher() == ("/on/path/mpiexec", "openmpi")


def test_both_mpis_in_one_place_are_told_apart(monkeypatch):
    launchers = {"/on/path/mpiexec": "mpiexec (Open MPI) 5.0", "/on/path/mpiexec.hydra": "HYDRA build details:"}
    fake_mpi(monkeypatch, "MPICH Version: 5.0\n\n", launchers)
    assert launching.find_launcher().path == "/on/path/mpiexec.hydra"


NONE = {
    "MPICH Version: 5.0\n\n": r"no mpiexec of it was found; /on/path/mpiexec belongs to another MPI$",
    "Cray MPI 8\n\n": r"^the MPI loaded is Cray MPI 8, whose launcher is not known here: start with its own mpiexec$",
}


@pytest.mark.parametrize("library", NONE)
def test_no_launcher_is_one_line(library, monkeypatch):
    fake_mpi(monkeypatch, library, {"/on/path/mpiexec": "mpiexec (Open MPI) 5.0"})
    with pytest.raises(launching.LaunchError, match=NONE[library]):
        launching.find_launcher()


def test_root_is_refused_with_the_flag_that_helps(monkeypatch):
    monkeypatch.setattr(launching.os, "geteuid", lambda: 0)
    monkeypatch.setattr(launching.os, "environ", {})
    with pytest.raises(launching.LaunchError, match=r"--as-root$"):
        launching.refuse_root(launching.Launcher("mpiexec", "openmpi"), False)
    launching.refuse_root(launching.Launcher("mpiexec", "openmpi"), True)
    launching.refuse_root(launching.Launcher("mpiexec", "mpich"), False)


WRONG = {
    "-n 0 x.py": "--ranks must be at least 1, got 0",
    "-n 2 --restarts -1 x.py": "--restarts must be at least 0, got -1",
    "-n 2 --timeout 0 x.py": "--timeout must be above 0, got 0",
    "-n 2": "the following arguments are required: PROGRAM",
    "-n 2 --threads 0 x.py": "--threads must be at least 1, got 0",
    "-n 2 no/x.py": "needle launch: no/x.py: there is no such program",
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_command_lines(line, capsys):
    from needle_nn.command.main import main

    assert main(["launch", *line.split()]) == 2
    assert WRONG[line] in capsys.readouterr().err


@needs_mpi
def test_launch_hands_on_arguments_codes_and_whole_lines(tmp_path):
    """What the program gets and prints; half lines of ranks are not mixed; without a prefix nothing is added."""
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, os\nfor i in range(50):\n    sys.stdout.write('ab'); sys.stdout.flush(); sys.stdout.write(f'cd {i}\\n')\n"
        "print(sys.argv[1:], os.environ['NEEDLE_NUM_THREADS'], file=sys.stderr)\nsys.stdout.write('no newline')\n"
    )
    done = launch(2, script, "--lr", "-1", options=("--threads", "3"))
    for rank in range(2):
        lines = [line[3:] for line in done.out.splitlines() if line.startswith(f"{rank}: ")]
        assert lines == [*(f"abcd {i}" for i in range(50)), "no newline"]
        assert f"{rank}: ['--lr', '-1'] 3" in done.err.splitlines()
    assert done.code == 0
    plain = launch(2, script, options=("--no-prefix",))
    assert plain.out.count("abcd 7\n") == 2 and "0: " not in plain.out


@needs_mpi
@pytest.mark.parametrize("with_mpi4py", [True, False])
def test_plain_mpiexec_works(with_mpi4py):
    """Also without `python -m mpi4py`: an exception in one rank ends all."""
    launcher = launching.find_launcher()
    program = ["-m", "mpi4py", "distributed_failing.py"] if with_mpi4py else ["distributed_failing.py"]
    line = launching.command(launcher, [*program, "nothing"], 2, as_root=True)
    starter = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"
    done = run(["-c", starter, *line])
    assert done.code == 0 and done.out.count("done") == 2, done.err
    failed = run(["-c", starter, *line[:-1], "exception"])
    assert failed.code != 0 and failed.left == [] and "a mistake in the program" in failed.err
