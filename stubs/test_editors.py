"""What editors and type checkers make of the stubs: run by `nox -s typecheck`, beside mypy itself."""

import json
import subprocess
import sys

import jedi
import pytest

USES = """
import needle as ndl
import needle.nn as nn
from needle_ndarray import NDArray

x = ndl.Tensor([[1.0, 2.0]])
a = NDArray([1.0])
"""

#: A line, and what it is: the type that is revealed, or a part of the error.
LINES = {
    "reveal_type(x.sum())": "Tensor",
    "reveal_type(x.sum(axis=0, keepdims=True))": "Tensor",
    "reveal_type(x.sum(dim=(0, 1)))": "Tensor",
    "reveal_type(2 * x + 1 @ x)": "Tensor",
    "reveal_type(x.exp().unsqueeze(0).view(2, 1).add_(1))": "Tensor",
    "reveal_type(x.max(dim=1).indices)": "Any",
    "reveal_type(ndl.softmax(x, dim=1))": "Tensor",
    "reveal_type(ndl.exp(x).numpy())": "ndarray",
    "reveal_type(x.realize_cached_data().sum(1))": "NDArray",
    "reveal_type(a[1:] + 1)": "NDArray",
    "reveal_type(nn.Linear(2, 3))": "Linear",
    "reveal_type(ndl.optim.Adam(nn.Linear(2, 3).parameters()))": "Adam",
    "reveal_type(ndl.data.DigitsDataset())": "DigitsDataset",
    "x.summ()": 'has no attribute "summ"',
    'x.sum(axis="0")': 'incompatible type "str"',
    'x.reshape("2")': 'incompatible type "str"',
    'ndl.softmax(x, dim="0")': 'incompatible type "str"',
    "x + object()": "Unsupported operand types",
    "a.summ()": 'has no attribute "summ"',
    'a.sum(axis="0")': 'incompatible type "str"',
    "ndl.nothing": 'no attribute "nothing"',
    "nn.Nothing": 'no attribute "Nothing"',
    'nn.Linear("2", 3)': 'incompatible type "str"',
}


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What mypy says of every line."""
    folder = tmp_path_factory.mktemp("uses")
    file = folder / "uses.py"
    file.write_text(USES + "\n".join(LINES) + "\n")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file=",
        "--cache-dir",
        str(folder),
        "--no-error-summary",
        "--strict",
    ]
    output = subprocess.run([*command, str(file)], capture_output=True, text=True, check=False).stdout
    first = USES.count("\n") + 1
    return {line: [text for text in output.splitlines() if f":{i}:" in text] for i, line in enumerate(LINES, first)}


@pytest.mark.parametrize("line", LINES)
def test_mypy(said, line):
    errors = [text for text in said[line] if ": error:" in text]
    assert any(LINES[line] in text for text in said[line]), said[line]
    assert bool(errors) != line.startswith("reveal_type"), said[line]


def test_pyright(tmp_path):
    """The same lines are errors: basedpyright is pyright with a Node.js of its own."""
    file = tmp_path / "uses.py"
    file.write_text(USES + "\n".join(LINES) + "\n")
    (tmp_path / "pyproject.toml").write_text('[tool.basedpyright]\ntypeCheckingMode = "standard"\n')
    command = [
        sys.executable,
        "-m",
        "basedpyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        "-p",
        str(tmp_path),
    ]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    first = USES.count("\n")
    found = {
        each["range"]["start"]["line"] - first
        for each in json.loads(output)["generalDiagnostics"]
        if each["severity"] == "error"
    }
    assert {line for i, line in enumerate(LINES) if i in found} == {
        line for line in LINES if not line.startswith("reveal_type")
    }


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Two processes that test must not write one cache of jedi's."""
    monkeypatch.setattr(jedi.settings, "cache_directory", str(tmp_path_factory.getbasetemp() / "jedi"))


#: Text before the cursor, names that are completed, and names that are not.
COMPLETIONS = [
    ("x.sum().", "backward unsqueeze add_ numpy shape grad softmax", "summ"),
    ("(x + 1).ex", "exp expand expand_dims", "EWiseAdd"),
    ("ndl.", "Tensor exp softmax nn optim data no_grad", "EWiseAdd ReLUGrad SUM_OF_ROWS"),
    ("ndl.ops.", "EWiseAdd exp", "nothing"),
    ("nn.", "Linear Conv2d Sequential functional", "nothing"),
    ("ndl.optim.", "Adam SGD lr_scheduler", "nothing"),
    ("ndl.data.", "DataLoader DigitsDataset", "nothing"),
    ("a.sum().", "reshape isnan numpy", "backward"),
]


@pytest.mark.parametrize(("text", "names", "absent"), COMPLETIONS, ids=[row[0] for row in COMPLETIONS])
def test_jedi(text, names, absent):
    found = {each.name for each in jedi.Script(USES + text).complete()}
    assert set(names.split()) <= found
    assert not set(absent.split()) & found


def test_jedi_knows_arguments():
    (signature,) = jedi.Script(USES + "x.sum(").get_signatures()
    assert [p.name for p in signature.params][:3] == ["axes", "keepdims", "axis"]
