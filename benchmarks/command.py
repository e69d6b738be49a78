"""Time Needle beside NumPy, PyTorch and JAX: a process each, taking turns round by round, in one run.

    python benchmarks                                    everything: a table, runs/benchmarks.json and a page beside it
    python benchmarks --family matmul --threads 1        one family; the file keeps the others
    python benchmarks --check                            do all frameworks compute the same numbers?
    python benchmarks --page results.json                the page again, from a file, without measuring
    python benchmarks --compare main~5 .                 Needle at one commit beside another; `.` is the tree as it is

A ratio is their time over Needle's: above 1 Needle is faster.
"""

import argparse
import sys
from pathlib import Path

from benchmarks import machine, results, table, targets
from benchmarks.cases import FRAMEWORKS, Case, all_cases, families
from benchmarks.run import Player
from benchmarks.session import Session

QUICK_FAMILIES = ("overhead", "small graphs", "elementwise", "matmul", "layers", "train steps", "install")


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_argument_group("what to do, instead of measuring")
    what.add_argument("--list", action="store_true", help="name the families and cases")
    what.add_argument("--check", action="store_true", help="compare the numbers that the frameworks come to")
    what.add_argument("--page", type=Path, metavar="JSON", help="write the page from a file of results")
    what.add_argument("--compare", nargs=2, metavar="COMMIT", help="measure Needle as it was at two commits")
    which = parser.add_argument_group("which")
    which.add_argument("--family", action="append", choices=families(), metavar="NAME", help="only these; repeatable")
    which.add_argument("--case", action="append", metavar="TEXT", help="only cases with this in their name; repeatable")
    which.add_argument("--frameworks", default=",".join(FRAMEWORKS), help="comma list (default: %(default)s)")
    which.add_argument("--threads", default="1,all", help="comma list of numbers or 'all' (default: %(default)s)")
    which.add_argument("--rounds", type=int, default=25, help="turns of each framework per case (default: %(default)s)")
    which.add_argument("--quick", action="store_true", help="5 rounds, all cores, the main families: some minutes")
    where = parser.add_argument_group("where")
    where.add_argument("--json", type=Path, default=Path("runs/benchmarks.json"), help="results (default: %(default)s)")
    where.add_argument("--fresh", action="store_true", help="forget the results that are in the file")
    where.add_argument("--into", type=Path, help="the page (default: the JSON file's name, with .md)")
    where.add_argument("--peers", default=sys.executable, metavar="PYTHON", help="an interpreter with torch and jax")
    options = parser.parse_args(given)
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: expected 1 or more")
    unknown = set(options.frameworks.split(",")) - set(FRAMEWORKS)
    if unknown:
        parser.error(f"--frameworks: unknown {', '.join(sorted(unknown))}; known: {', '.join(FRAMEWORKS)}")
    try:
        options.threads = thread_counts("all" if options.quick else options.threads)
    except ValueError:
        parser.error(f"--threads {options.threads}: expected numbers above 0 or 'all', joined by commas")
    if options.quick:
        options.rounds, options.family = min(options.rounds, 5), options.family or [*QUICK_FAMILIES]
    return options


def thread_counts(text: str) -> list[int]:
    """Numbers of threads, in order, each once; no more than there are cores.

    >>> thread_counts("1,1")
    [1]
    """
    most = machine.cores()
    counts = [most if part == "all" else int(part) for part in text.split(",")]
    if min(counts) < 1:
        raise ValueError(text)
    return sorted({min(count, most) for count in counts})


def chosen_cases(options: argparse.Namespace) -> list[Case]:
    return [
        case
        for case in all_cases()
        if (not options.family or case.family in options.family)
        and (not options.case or any(text in case.name for text in options.case))
    ]


def found_players(frameworks: str, peers: str) -> list[Player]:
    """The frameworks that can be imported; for the others a line that says why not."""
    players = []
    for name in [name for name in FRAMEWORKS if name in frameworks.split(",")]:
        python = sys.executable if name in ("needle", "eager", "numpy", "onnx") else peers
        module = {"needle": "needle_nn", "eager": "needle_nn", "compile": "torch", "onnx": "onnxruntime"}.get(
            name, name
        )
        why = machine.importable(python, module)
        if why:
            print(f"{name}: left out: {why}")
        else:
            players.append(Player(name, name, python))
    return players


def measured(options: argparse.Namespace) -> int:
    """Measure, print, write; 130 after Ctrl-C."""
    path, status = options.json, 0
    report = results.opened(path, options.fresh)
    players = found_players(options.frameworks, options.peers)
    chosen = options.family or ([] if options.case else families())
    cases = chosen_cases(options)
    chosen = chosen or [*dict.fromkeys(case.family for case in cases)]
    about = report["machine"]
    print(f"{about['cpu']}, {about['cores']} cores; best of {options.rounds} rounds; ratio = their time / Needle's")
    session = Session(path, report, players, options.rounds)
    try:
        session.run(cases, chosen, options.threads)
    except KeyboardInterrupt:
        print("\nstopped; what was measured is kept")
        status = 130
    results.arrange(report, [case.key for case in all_cases()])
    results.save(path, report)
    print("\n".join(["", *table.target_table(targets.outcomes(report))]))
    write_page(path, options.into)
    print(
        f"{path}: {len(report['results'])} results, {(sum(f['seconds'] for f in report['families'].values())) / 60:.0f} min"
    )
    return status


def write_page(path: Path, into: Path | None) -> None:
    from benchmarks import page

    into = into or path.with_suffix(".md")
    page.write(into, results.load(path))
    print(f"{into}: written")


def main(given: list[str] | None = None) -> int:
    options = arguments(given)
    try:
        if options.list:
            print("\n".join([*(case.key for case in chosen_cases(options)), "memory", "install"]))
            return 0
        if options.page:
            write_page(options.page, options.into)
            return 0
        if options.compare:
            from benchmarks import compare

            old, new = options.compare
            return compare.report(old, new, chosen_cases(options), options.threads, options.rounds)
        if options.check:
            from benchmarks import check

            players = found_players(options.frameworks, options.peers)
            return min(check.report(players, chosen_cases(options), max(options.threads)), 1)
        return measured(options)
    except (OSError, ValueError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
