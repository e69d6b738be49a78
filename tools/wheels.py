"""Build wheels at once, each of one folder into another: `python tools/wheels.py SOURCE INTO [SOURCE INTO ...]`.

While one is being prepared, translated or packed, which one core does, the compilers of another have the others.
"""

import subprocess
import sys


def main(folders: list[str]) -> int:
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w"]
    builds = [subprocess.Popen([*pip, into, source]) for source, into in zip(folders[::2], folders[1::2], strict=True)]
    return max(build.wait() for build in builds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
