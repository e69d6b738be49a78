"""Builds the site: `python docs/website/build.py FOLDER`. Static files, no fetch from anywhere else, every link followed.

Pages are the Markdown files of the repository, which stay readable where they are: links between them become links of the site, and
a source file that a page links to becomes a page with its text.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from api import PAGES as API
from api import page as api_page

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\[[^\]]*\])\(([^)\s]+)\)")
LANGUAGES = {
    ".pyx": "cython",
    ".pxd": "cython",
    ".py": "python",
    ".cu": "cuda",
    ".cuh": "cuda",
    ".c": "c",
    ".h": "c",
    ".toml": "toml",
}

#: The pages in order: heading -> [(title, file of the repository)].
NAVIGATION: dict[str, list[tuple[str, str]]] = {
    "Start": [("Needle", "README.md"), ("All pages", "docs/index.md"), ("Examples", "docs/examples.md")],
    "Learn": [
        ("The course", "docs/learn.md"),
        *[(f"Chapter {i}", f"packages/needle-nn/src/needle_nn/learning/chapter{i}/text.md") for i in range(1, 7)],
        ("Reading Needle", "docs/reading.md"),
    ],
    "Use": [
        ("NDArray", "docs/ndarray.md"), ("Autograd", "docs/autograd.md"), ("Layers, data, training", "docs/nn.md"),
        ("Optimizers", "docs/optim.md"), ("Models you know", "docs/models.md"), ("From PyTorch", "docs/from_pytorch.md"),
        ("Capture", "docs/capture.md"), ("Profiler", "docs/profiler.md"), ("ONNX", "docs/onnx.md"),
        ("Several processes", "docs/distributed.md"), ("Many ranks", "docs/scaling.md"), ("CUDA", "docs/cuda.md"),
        ("Benchmarks", "docs/benchmarks.md"), ("Editors and notebooks", "docs/editors.md"),
    ],
    "Extend": [
        ("Add an operator", "docs/extend/operator.md"), ("Write a backend", "docs/extend/backend.md"),
        ("A backend in C", "docs/extend/c_backend.md"), ("Add an elementwise op", "docs/extend/kernel.md"),
        ("Work on Needle", "CONTRIBUTING.md"),
    ],
    "Packages": [
        (f"needle-{name}{title}", f"packages/needle-{name}/{file}.md")
        for name in ("ndarray", "core", "nn", "cuda")
        for title, file in (("", "README"), (", changes", "CHANGELOG"))
    ],
}  # fmt: skip


def place(path: Path) -> Path:
    """Where a file of the repository is in the site's sources."""
    name = path.relative_to(ROOT)
    if name == Path("README.md"):
        return Path("index.md")
    if name == Path("docs/index.md"):
        return Path("contents.md")
    if chapter := re.search(r"learning/(chapter\d)/text\.md$", name.as_posix()):
        return Path("learn") / f"{chapter[1]}.md"
    if name.parts[0] == "docs" and (name.suffix == ".md" or path.suffix in (".svg", ".png")):
        return name.relative_to("docs")
    if name.suffix == ".md":
        return Path("more", *[part.lower() for part in name.parts])
    return Path("source") / name if name.suffix in (".svg", ".png") else Path("source") / f"{name}.md"


class Sources:
    """The Markdown that mkdocs gets: pages, and whatever they link to."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.done: set[Path] = set()

    def add(self, path: Path) -> Path:
        """Write a file of the repository, and all it links to; its place in the site."""
        target = place(path)
        if target in self.done:
            return target
        self.done.add(target)
        out = self.folder / target
        out.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in (".svg", ".png"):
            shutil.copy(path, out)
        elif path.suffix == ".md":
            out.write_text(self.linked(path, target))
        else:
            language = LANGUAGES.get(path.suffix, "text")
            fence = "`" * 6
            out.write_text(
                f'# {path.name}\n\n`{path.relative_to(ROOT)}`\n\n{fence}{language} linenums="1"\n{path.read_text()}{fence}\n'
            )
        return target

    def linked(self, path: Path, target: Path) -> str:
        """The text of a page with its links as the site has them; code stays as it is."""

        def follow(match: re.Match[str]) -> str:
            link, _, fragment = match[2].partition("#")
            if not link or re.match(r"\w+:", match[2]):
                return match[0]
            to = (path.parent / link).resolve()
            if to.is_dir():  # a folder: what it exports, or nothing
                to = next((to / name for name in ("README.md", "__init__.py") if (to / name).exists()), to)
            if not to.is_file():
                return match[1].strip("[]")
            place = self.add(to)
            up = Path(*[".."] * (len(target.parts) - 1)) if len(target.parts) > 1 else Path()
            return f"{match[1]}({(up / place).as_posix()}{'#' + fragment if fragment else ''})"

        text, at, out = path.read_text(), 0, []
        for block in [*BLOCK.finditer(text), None]:
            end = block.start() if block else len(text)
            out += [LINK.sub(follow, text[at:end]), block[0] if block else ""]
            at = block.end() if block else end
        return "".join(out)


def configuration(sources: Sources, out: Path) -> dict:
    pages = [
        {title: [{name: str(sources.add(ROOT / file))} for name, file in entries]}
        for title, entries in NAVIGATION.items()
    ]
    reference = []
    (sources.folder / "api").mkdir()
    for name, (title, _) in API.items():
        (sources.folder / "api" / f"{name}.md").write_text(api_page(name))
        reference.append({title: f"api/{name}.md"})
    shutil.copy(Path(__file__).parent / "style.css", sources.folder / "style.css")
    palette = [
        {"media": f"(prefers-color-scheme: {scheme})", "scheme": name, "primary": "indigo", "accent": "indigo",
         "toggle": {"icon": "material/theme-light-dark", "name": "Switch between light and dark"}}
        for scheme, name in (("light", "default"), ("dark", "slate"))
    ]  # fmt: skip
    features = [
        "navigation.tabs",
        "navigation.top",
        "navigation.footer",
        "toc.follow",
        "search.highlight",
        "content.code.copy",
    ]
    return {
        "site_name": "Needle",
        "site_description": "A deep-learning framework you can read in a weekend and train real models with",
        "docs_dir": str(sources.folder),
        "site_dir": str(out),
        "use_directory_urls": False,  # the files work when they are opened without a server
        "theme": {"name": "material", "font": False, "palette": palette, "features": features},
        "plugins": ["search"],
        "extra_css": ["style.css"],
        "markdown_extensions": [
            "attr_list", "md_in_html", "tables",
            {"toc": {"permalink": True, "toc_depth": 3}},
            {"pymdownx.highlight": {"pygments_lang_class": True}}, "pymdownx.superfences",
        ],
        "nav": [*pages, {"Reference": reference}],
        "validation": {"omitted_files": "ignore", "absolute_links": "warn", "unrecognized_links": "warn", "anchors": "warn"},
    }  # fmt: skip


# ---- Links -----------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Anchors and links of a page, and what a browser would fetch for it."""

    def __init__(self, path: Path):
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in ("script", "img", "iframe", "source") and "src" in found:
            self.fetched.append(found["src"])
        if tag == "link" and found.get("rel") not in ("canonical", "prev", "next", "edit"):
            self.fetched.append(found.get("href", ""))


def problems(site: Path) -> list[str]:
    """Links that lead nowhere, and fetches from elsewhere, a line each."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        for link in [*page.links, *page.fetched]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.fetched and parts.scheme != "data":
                    found.append(f"{path.relative_to(site)}: fetches {link}")
                continue
            to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if path.name == "404.html" and parts.path.startswith("/"):
                to = site / parts.path.lstrip("/")
            to = to / "index.html" if to.is_dir() else to
            if not to.exists():
                found.append(f"{path.relative_to(site)}: {link}: no such file")
            elif parts.fragment and to in pages and unquote(parts.fragment) not in pages[to].anchors:
                found.append(f"{path.relative_to(site)}: {link}: no such heading")
    for style in site.rglob("*.css"):
        found += [f"{style.name}: fetches {url}" for url in re.findall(r"url\(['\"]?(https?:[^)]+)", style.read_text())]
    return found


def main(out: Path) -> int:
    with tempfile.TemporaryDirectory() as folder:
        sources = Sources(Path(folder) / "pages")
        sources.folder.mkdir()
        settings = configuration(sources, out.resolve())
        file = Path(folder) / "mkdocs.yml"
        file.write_text(yaml.safe_dump(settings, sort_keys=False))
        environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # mkdocs 1 and its theme are maintained until May 2027
        subprocess.run(
            [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-f", str(file)],
            check=True,
            env=environment,
        )
    found = problems(out.resolve())
    print(*found, sep="\n")
    print(f"{out}: {len(list(out.rglob('*.html')))} pages, {len(found)} broken links or outside fetches")
    return min(1, len(found))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/site")))
