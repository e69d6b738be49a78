"""Compare the versions of the four distributions with each other, with what they ask of each other, and with a release's.

python tools/versions.py [VERSION]
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def mistakes(projects: dict[str, dict], wanted: str | None = None) -> list[str]:
    """A line for each version or bound that does not fit.

    Parameters
    ----------
    projects : {name: the table [project] of its pyproject.toml}
    wanted : the version of a release, without the v
    """
    found = []
    wanted = wanted or projects["needle-ndarray"]["version"]
    major, minor = wanted.split(".")[:2]
    bound = f">={major}.{minor},<{major}.{int(minor) + 1}"
    for name, project in projects.items():
        if project["version"] != wanted:
            found.append(f"{name} has version {project['version']}, expected {wanted}")
        extras = [need for needs in project.get("optional-dependencies", {}).values() for need in needs]
        for need in [*project.get("dependencies", []), *extras]:
            other = re.match(r"[\w-]+", need)
            if other and other[0] in projects and need != other[0] + bound:
                found.append(f"{name} asks for {need}, expected {other[0]}{bound}")
    return found


def main() -> None:
    paths = sorted(ROOT.glob("packages/*/pyproject.toml"))
    projects = {path.parent.name: tomllib.loads(path.read_text(encoding="utf-8"))["project"] for path in paths}
    if found := mistakes(projects, sys.argv[1] if len(sys.argv) > 1 else None):
        sys.exit("\n".join(found))
    print(f"all {len(projects)} have version {projects['needle-ndarray']['version']}")


if __name__ == "__main__":
    main()
