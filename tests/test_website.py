"""The parts of docs/website: docstrings as a reference, links between files as links of the site, broken ones found."""

import importlib.util
import sys

import pytest


@pytest.fixture(scope="module")
def api(repository):
    return loaded(repository, "api")


def loaded(repository, name):
    spec = importlib.util.spec_from_file_location(name, repository / "docs" / "website" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def build(repository, api, monkeypatch):
    pytest.importorskip("yaml")
    monkeypatch.setitem(sys.modules, "api", api)
    return loaded(repository, "build")


def test_reference(api):
    pages = {name: api.page(name) for name in api.PAGES}
    for name, expected in {
        "tensor": ["### Tensor {", "Tensor.backward {", "### no_grad {", "check_gradients("],
        "ops": ["### matmul {", "### scaled_dot_product_attention {"],
        "nn": [
            "Linear(in_features, out_features, bias=True",
            "<code>in_features, out_features</code>",
            "```pycon\n>>> ",
        ],
        "optim": ["### SGD {", "### AdamW {"],
        "ndarray": ["### NDArray {", "### matmul {"],
        "backend": ["Backend.conv2d {"],
    }.items():
        assert [each for each in expected if each not in pages[name]] == []
    assert all(len(text.splitlines()) > 20 for text in pages.values())


def test_docstrings(api):
    assert api.inline("`a < b` & c") == "<code>a &lt; b</code> &amp; c"
    text = api.body("First line.\n\nParameters\n----------\na : one\n    more\nb : two\n\n>>> f(1)\n2\n")
    assert "<p>First line.</p>" in text and "<td>one more</td>" in text and "```pycon\n>>> f(1)\n2\n```" in text
    assert api.signature_of("f", lambda a, *, b=1: None)[0] == "f(a, *, b=1)"


def test_every_page_of_the_documentation_is_in_the_navigation(build, repository):
    named = {file for entries in build.NAVIGATION.values() for _, file in entries}
    pages = {path.relative_to(repository).as_posix() for path in repository.glob("docs/**/*.md")}
    assert pages <= named and all((repository / file).exists() for file in named)


def test_links_lead_into_the_site(build, tmp_path, repository):
    sources = build.Sources(tmp_path)
    sources.add(repository / "docs" / "reading.md")
    text = (tmp_path / "reading.md").read_text()
    assert "](source/packages/needle-ndarray/src/needle_ndarray/layout.pyx.md)" in text and "](learn.md)" in text
    assert "cython" in (tmp_path / "source/packages/needle-ndarray/src/needle_ndarray/layout.pyx.md").read_text()
    assert (tmp_path / "reading" / "layers.svg").exists() and (tmp_path / "learn" / "chapter5.md").exists()


def test_problems_are_found(build, tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="top"></h1><a href="b.html#there">1</a><a href="#top">2</a><a href="https://x.org">3</a>'
    )
    (tmp_path / "b.html").write_text(
        '<p id="there"></p><a href="c.html">1</a><a href="a.html#no">2</a><script src="https://x.org/s.js"></script>'
    )
    assert build.problems(tmp_path) == [
        "b.html: c.html: no such file",
        "b.html: a.html#no: no such heading",
        "b.html: fetches https://x.org/s.js",
    ]
