"""needle learn: the course. Chapters, what the student starts from, checks of the student's files, solutions."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from needle_nn.command.arguments import UsageError
from needle_nn.files import replacing

FOLDER = "course"
MARKS = {"passed": "ok", "failed": "FAILED", "empty": "-"}


def add_to(commands: Any) -> None:
    told = "six chapters with exercises, and checks of what you write"
    made = commands.add_parser("learn", help=told, description=told.capitalize() + ". Alone it lists the chapters.")
    made.set_defaults(run=overview, folder=FOLDER)
    what = made.add_subparsers(dest="what", metavar="WHAT")
    for name, run, help in (
        ("start", start, "write a chapter's text and the file to fill in"),
        ("check", check, "run the checks on your file"),
        ("solution", solution, "show Needle's own solution, and which of its sources to compare with"),
    ):
        part = what.add_parser(name, help=help, description=help.capitalize() + ".")
        part.add_argument("chapter", type=int, metavar="CHAPTER", help="1 to 6")
        if name != "solution":
            part.add_argument("folder", nargs="?", default=FOLDER, help=f"where your files are (default: {FOLDER})")
        if name == "check":
            part.add_argument("--seconds", type=float, help="a check may take (default: 20, or 60 in chapters 5 and 6)")
        part.set_defaults(run=run)


def _chapter(number: int) -> Any:
    from needle_nn.learning import CHAPTERS, chapter

    if not 1 <= number <= len(CHAPTERS):
        raise UsageError(f"chapter {number}: expected a number from 1 to {len(CHAPTERS)}")
    return chapter(number)


# ---- Progress ----------------------------------------------------------------------------------------


def _progress(folder: Path) -> dict[str, list[int]]:
    """{chapter: [checks passed, checks]} as `check` left it; a file that is damaged counts as none."""
    try:
        held = json.loads((folder / "progress.json").read_text(encoding="utf-8"))
        return {str(key): [int(passed), int(total)] for key, (passed, total) in held.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def overview(args: argparse.Namespace) -> int:
    from needle_nn.learning import CHAPTERS

    folder = Path(args.folder)
    progress = _progress(folder)
    for each in CHAPTERS:
        passed, total = progress.get(str(each.number), [0, 0])
        done = f"{passed} of {total} checks pass" if total else "started" if (folder / each.file()).exists() else ""
        print(f"{each.number}  {each.title:53} {done}".rstrip())
    following = next((c for c in CHAPTERS if len(set(progress.get(str(c.number), [0, 1]))) > 1), None)
    if following is not None:
        verb = "check" if (folder / following.file()).exists() else "start"
        print(f"\nnext: needle learn {verb} {following.number}   (files are in {folder}/)")
    return 0


# ---- Files ---------------------------------------------------------------------------------------------


def start(args: argparse.Namespace) -> int:
    """Write what is not there yet; a student's file is never overwritten."""
    found, folder = _chapter(args.chapter), Path(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = {folder / f"chapter{found.number}.md": found.text.replace("../", "")}  # links are those of a clone
    written |= {folder / found.file(ending): found.start(ending) for ending in found.files}
    for path, text in written.items():
        if path.exists():
            print(f"{path} is there already, and stays as it is")
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}")
    more = "" if args.folder == FOLDER else f" {args.folder}"
    others = " and ".join(found.file(ending) for ending in found.files)
    print(
        f"\nread {folder / f'chapter{found.number}.md'}, fill in {others}, then: needle learn check {found.number}{more}"
    )
    return 0


def check(args: argparse.Namespace) -> int:
    from needle_nn.learning.checking import THE_FILE, check_file

    found, folder = _chapter(args.chapter), Path(args.folder)
    if not hasattr(os, "killpg"):
        raise UsageError("checks end a file that takes too long, which needs Linux or macOS; on Windows use WSL")
    if args.seconds is not None and not args.seconds > 0:
        raise UsageError(f"--seconds must be above 0, got {args.seconds:g}")
    path = folder / found.file()
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: needle learn start {found.number} writes it")
    print(f"chapter {found.number}: {found.title}  ({path})\n")
    states: list[str] = []
    told: set[str] = set()
    hints = 2
    for result in check_file(found, path, args.seconds):
        states.append(result.state)
        print(f"{MARKS[result.state]:>6}  {result.title}")
        if result.title == THE_FILE:  # it could not be loaded: there is nothing to count
            print(f"        {result.told}")
            return 1
        if result.state == "failed":
            if result.told in told:  # as of a file that does not compile, in each of its checks
                print("        as above")
                continue
            told.add(result.told)
            print(f"        {result.told}")
            if result.hint and hints > 0 and "does not compile" not in result.told:
                print(f"        hint: {result.hint}")
            hints -= 1
        sys.stdout.flush()  # what the student's file prints goes to the same place
    passed = states.count("passed")
    print(f"\n{passed} of {len(states)} checks pass")
    progress = _progress(folder)
    progress[str(found.number)] = [passed, len(states)]
    with replacing(folder / "progress.json") as unfinished:
        unfinished.write_text(json.dumps(progress) + "\n", encoding="utf-8")
    if passed == len(states):
        print(f"compare with Needle's own: needle learn solution {found.number}")
    return 0 if passed == len(states) else 1


def solution(args: argparse.Namespace) -> int:
    found = _chapter(args.chapter)
    for ending in found.files:
        print((found.folder / f"solution{ending}").read_text(encoding="utf-8"))
    print("Needle's sources for the same:")
    for name in found.compare:
        print(f"  {name}")
    return 0
