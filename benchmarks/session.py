"""A measuring run: family by family, number of threads by number of threads, into a file that is never half written."""

import time
from pathlib import Path
from typing import Any

from benchmarks import install, machine, memory, results, table
from benchmarks.cases import FRAMEWORKS, Case
from benchmarks.run import Player, Team, measure
from benchmarks.workloads import BATCHES


class Session:
    """Measures what was chosen and keeps the report and its file up to date, case by case.

    Parameters
    ----------
    path, report : the file of results and what it holds so far
    players : the frameworks that are measured
    rounds : turns of each per case
    """

    def __init__(self, path: Path, report: dict[str, Any], players: list[Player], rounds: int):
        self.path, self.report, self.players, self.rounds = path, report, players, rounds
        self.peers = [name for name in FRAMEWORKS[1:] if any(p.framework == name for p in players)]
        self.started = time.perf_counter()
        self.done = self.total = 0

    def run(self, cases: list[Case], families: list[str], threads: list[int]) -> None:
        """All of it; Ctrl-C ends it, and what was measured stays."""
        self.total = len(cases) * len(threads)
        for family in families:
            start = time.perf_counter()
            versions: dict[str, str] = {}
            chosen = [case for case in cases if case.family == family]
            if not chosen and family not in ("memory", "install"):
                continue
            print(f"\n{family}{self._remaining()}", flush=True)
            try:
                if family == "memory":
                    self._memory(max(threads))
                elif family == "install":
                    self._install()
                else:
                    print(table.heading(self.peers))
                    for count in threads:
                        self._cases(chosen, count, versions)
            finally:  # also of a family that was interrupted
                self._note(family, start, versions)

    def _cases(self, cases: list[Case], threads: int, versions: dict[str, str]) -> None:
        frameworks = {name for case in cases for name in case.of}
        with Team([p for p in self.players if p.framework in frameworks], threads) as team:
            versions |= team.versions()
            for case in cases:
                result = measure(team, case, self.rounds)
                self.done += 1
                results.put(self.report, result)
                results.save(self.path, self.report)
                print(table.line(result, self.peers), flush=True)
                for name, why in result["missing"].items():
                    print(f"    {name}: n/a: {why[:160]}", flush=True)

    def _memory(self, threads: int) -> None:
        print("\n".join(table.memory_table([])))
        for model in BATCHES:
            row = memory.row(self.players, model, threads)
            results.replace_rows(self.report["memory"], [row], "model")
            results.save(self.path, self.report)
            print(table.memory_table([row])[-1], flush=True)

    def _install(self) -> None:
        results.replace_rows(self.report["install"], install.measure(self.players, self.rounds), "module")
        print("\n".join(table.install_table(self.report["install"])), flush=True)

    def _note(self, family: str, start: float, versions: dict[str, str]) -> None:
        """When, of which commit and with what a family was measured."""
        self.report["families"][family] = {
            "date": machine.now(),
            "commit": machine.commit(),
            "rounds": self.rounds,
            "seconds": round(time.perf_counter() - start, 1),
            "versions": versions,
        }
        results.save(self.path, self.report)

    def _remaining(self) -> str:
        taken = time.perf_counter() - self.started
        if self.done == self.total:
            return ""
        if not self.done:
            return f"  (case 1 of {self.total})"
        left = taken / self.done * (self.total - self.done) / 60
        return f"  (case {self.done + 1} of {self.total}, {taken / 60:.0f} min so far, about {left:.0f} to go)"
