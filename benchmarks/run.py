"""Processes that take turns: each framework measures a bit of a case, then the next one does, round by round."""

import contextlib
import json
import os
import queue
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cases import Case

HERE = Path(__file__).resolve().parent
THREAD_VARIABLES = ("NEEDLE_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
PATIENCE = 600  # seconds until a process that does not answer is given up: torch.compile may take minutes
LONGEST = 15.0  # seconds of turns per case: slow ones get fewer rounds, but never less than
FEWEST = 7


class Failed(Exception):
    """A process ended, or answered that something went wrong."""


class Player(NamedTuple):
    """Who is measured: a framework as an interpreter has it, under a label that results carry."""

    label: str
    framework: str
    python: str
    environment: tuple[tuple[str, str], ...] = ()


class Worker:
    """The process of a player; it ends with the driver, whose Ctrl-C it does not see."""

    def __init__(self, player: Player, threads: int):
        self.player = player
        self.told = tempfile.TemporaryFile("w+")  # noqa: SIM115  lives as long as the process
        variables = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads)) | dict(player.environment)
        variables["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no pool of compilers beside those who measure
        command = [player.python, str(HERE), "--worker", player.framework, str(threads)]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.told, "text": True}
        self.process = subprocess.Popen(command, env=variables, start_new_session=True, **pipes)
        self.answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put("")  # it has ended

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.answers.get(timeout=PATIENCE)
        except OSError:
            line = ""
        except queue.Empty:
            self.close()
            raise Failed(f"no answer within {PATIENCE} s") from None
        if not line:
            raise Failed(f"its process ended with code {self.process.wait()}: {self._last_words()}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def _last_words(self) -> str:
        self.told.seek(0)
        return " ".join(self.told.read().split())[-300:] or "it said nothing"

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        if self.process.stdin:
            with contextlib.suppress(OSError):  # it has ended, with a request unread
                self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.told.close()


class Team:
    """The workers of all players at one number of threads; one that has ended is started again for the next case."""

    def __init__(self, players: Iterable[Player], threads: int):
        self.players, self.threads = {p.label: p for p in players}, threads
        self.workers: dict[str, Worker] = {}

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, *exception: object) -> None:
        for worker in self.workers.values():
            worker.close()

    def ask(self, label: str, **request: Any) -> dict[str, Any]:
        worker = self.workers.get(label)
        if worker is None or not worker.alive:
            if worker is not None:
                worker.close()
            worker = self.workers[label] = Worker(self.players[label], self.threads)
        return worker.ask(**request)

    def versions(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for label in self.players:
            try:
                found |= self.ask(label, versions=True)
            except Failed as failure:
                found[label] = f"n/a ({failure})"
        return found


def measure(team: Team, case: Case, rounds: int) -> dict[str, Any]:
    """Best and median seconds per call; whoever starts changes every round. Who fails is left out, with the reason."""
    ready: dict[str, dict[str, Any]] = {}
    missing: dict[str, str] = {}
    times: dict[str, list[float]] = {}

    def attempt(label: str, **request: Any) -> dict[str, Any] | None:
        try:
            return team.ask(label, **request)
        except Failed as failure:
            missing[label] = str(failure)
            return None

    for label, player in team.players.items():
        if player.framework in case.of and (answer := attempt(label, case=case.key)):
            ready[label], times[label] = answer, []
    turn = sum(answer["call"] * answer["loops"] for answer in ready.values())
    rounds = max(min(rounds, FEWEST), min(rounds, int(LONGEST / max(turn, 1e-9))))
    for number in range(rounds):
        labels = [label for label in ready if label not in missing]
        first = number % max(len(labels), 1)
        for label in labels[first:] + labels[:first]:
            loops = ready[label]["loops"]
            if answer := attempt(label, run=loops, warm=loops > 1):
                times[label].append(answer["seconds"])
    return {
        "family": case.family,
        "name": case.name,
        "threads": team.threads,
        "elements": case.elements,
        "rounds": rounds,
        "times": {
            label: {"best": min(taken), "median": statistics.median(taken), "loops": ready[label]["loops"]}
            for label, taken in times.items()
            if taken and label not in missing
        },
        "missing": missing,
    }
