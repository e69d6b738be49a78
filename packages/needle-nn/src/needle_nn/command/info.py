"""needle info: versions, devices, instruction set, BLAS."""

import argparse
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import needle

PACKAGES = ("needle-core", "needle-nn", "needle-cuda", "safetensors", "cupy")


def add_to(commands: Any) -> None:
    told = "show versions, devices, instruction set and BLAS"
    made = commands.add_parser("info", help=told, description=told.capitalize() + ".")
    made.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    for name in PACKAGES:
        print(f"{name:16} {_version(name)}")
    needle.show_config()
    return 0


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
