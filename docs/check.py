"""Check the documentation: run its Python examples, follow its links.

A block fenced as `python` is run, the blocks of a page one after the other in one namespace; with `>>>` prompts it is
a doctest. A fragment that cannot run by itself is fenced as `py`. Links to files of this repository must lead
somewhere, and their #anchors to a heading.
"""

import contextlib
import doctest
import io
import re
import sys
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("packages/*/*.md")),
    *sorted(ROOT.glob("packages/*/src/**/*.md")),
    *sorted(ROOT.glob("*/README.md")),
]
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def anchor(heading: str) -> str:
    """The anchor GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {anchor(heading) for heading in HEADING.findall(BLOCK.sub("", page.read_text()))}


def broken_links(page: Path):
    """Yield one line per link of the page that leads nowhere."""
    for link in LINK.findall(BLOCK.sub("", page.read_text())):
        if re.match(r"\w+:", link):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or not target.is_relative_to(ROOT):
            yield f"{link}: no such file"
        elif fragment and target.suffix == ".md" and fragment not in anchors(target):
            yield f"{link}: no such heading"


def failed_examples(page: Path, counts: dict[str, int]):
    """Run the page's Python blocks; yield one report per block that fails."""
    text = page.read_text()
    sys.path[0] = str(page.parent)  # what stands beside a page can be imported there
    space: dict[str, object] = {"__name__": page.stem}
    for block in BLOCK.finditer(text):
        if block[1] != "python":
            continue
        counts["examples"] += 1
        line = text.count("\n", 0, block.start()) + 1
        if ">>>" in block[2]:
            test = doctest.DocTestParser().get_doctest(block[2], space, page.name, str(page), line)
            report: list[str] = []
            doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append, clear_globs=False)
            space = test.globs
            if report:
                yield "".join(report)
        else:
            try:
                # as many empty lines as come before the block, so that a traceback shows the page's line
                code = compile("\n" * line + block[2], str(page), "exec")
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(code, space)
            except Exception:
                yield traceback.format_exc()


def main() -> int:
    counts = {"examples": 0}
    failures = 0
    for page in dict.fromkeys(PAGES):
        for problem in [*broken_links(page), *failed_examples(page, counts)]:
            failures += 1
            print(f"{page.relative_to(ROOT)}: {problem}")
    print(f"{len(set(PAGES))} pages, {counts['examples']} examples: {failures} failures")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
