"""Where and of what numbers are: the machine, its cores, the commit, the frameworks that can be imported."""

import datetime
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def memory() -> float:
    """GB of the machine, 0 where the system does not say."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, ValueError, OSError):
        return 0.0


def describe() -> dict[str, Any]:
    """What must be the same for results to stand in one file."""
    return {"cpu": cpu(), "cores": cores(), "memory": memory(), "system": f"{platform.system()} {platform.machine()}"}


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def git(*arguments: str) -> str:
    """What git says, nothing where it cannot say anything."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def commit() -> str:
    """The short name of HEAD, with a + where files have changed since."""
    name = git("rev-parse", "--short=10", "HEAD")
    return name + ("+" if name and git("status", "--porcelain", "--untracked-files=no") else "")


def importable(python: str, module: str) -> str:
    """Why an interpreter cannot import a module; nothing if it can."""
    try:
        done = subprocess.run([python, "-c", f"import {module}"], capture_output=True, text=True)
    except OSError as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
