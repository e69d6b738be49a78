"""The tool in benchmarks/: statistics, merging, pages from a file, small runs of Needle's half, and like compared with like."""

import importlib
import json
import sys
import xml.etree.ElementTree as ElementTree

import pytest


@pytest.fixture(scope="module")
def tool(repository):
    """Modules of the tool by name, from this checkout."""
    sys.path.insert(0, str(repository))
    try:
        yield lambda name: importlib.import_module(f"benchmarks.{name}")
    finally:
        sys.path.remove(str(repository))


def result(family, name, threads=2, elements=0, missing=None, **best):
    times = {label: {"best": t, "median": t * 1.1, "loops": 3} for label, t in best.items()}
    about = {"family": family, "name": name, "threads": threads, "elements": elements, "rounds": 2}
    return {**about, "times": times, "missing": missing or {}}


@pytest.fixture
def report(tool):
    """Results of every part of a page, made up."""
    made = tool("results").empty()
    run = {"date": "2026-01-02 03:04 UTC", "commit": "abc", "rounds": 2, "seconds": 60.0, "versions": {"needle": "1"}}
    made["families"] = {"overhead": run, "curves": run}
    made["results"] = [
        result("overhead", "recorded add 8x8", needle=1e-7, torch=1e-6),
        result("overhead", "recorded add 8x8", threads=1, needle=1e-7, torch=1.1e-6),
        result("strided", "add transposed 2000x1000", needle=2e-3, torch=1e-3, numpy=4e-3),
        result("elementwise", "exp 1M", needle=1e-3, torch=2e-3, missing={"compile": "no <compiler> | here"}),
        *[result("curves", f"{op} 10^{p}", elements=10**p, needle=1e-9 * 10**p, numpy=2e-9 * 10**p)
          for op in ("add", "sum") for p in (2, 3, 4)],
    ]  # fmt: skip
    made["memory"] = [
        {
            "model": "mlp",
            "name": "tiny MLP",
            "needle": {"growth": 1e6, "peak": 5e7},
            "captured": {"growth": 8e5, "peak": 5e7},
            "torch": {"growth": 3e6, "peak": 2e8},
        },
        {"model": "lenet", "name": "LeNet", "needle": {"growth": 4e6, "peak": 5e7}, "torch": {"missing": "crashed"}},
    ]
    parts = {"bytes": 4e7, "parts": {"needle-core": 1e7, "openblas": 3e7}}
    made["install"] = [{"framework": "needle", "module": "needle", "import": 0.1, "beyond_numpy": 0.03, **parts}]
    return made


# ---- Results ------------------------------------------------------------------------------------------------------------


def test_ratios_are_their_time_over_ours(tool):
    results = tool("results")
    row = result("f", "n", needle=2.0, torch=3.0, jax=1.0)
    assert results.ratios(row) == {"torch": 1.5, "jax": 0.5}
    assert results.ratios(row, "median") == pytest.approx({"torch": 1.5, "jax": 0.5})
    assert results.ratios(result("f", "n", torch=3.0)) == {}


def test_put_replaces_what_was_measured_again_and_keeps_the_rest(tool):
    results = tool("results")
    kept = {"results": [result("f", "n", needle=2.0, torch=3.0, missing={"jax": "gone"})]}
    results.put(kept, result("f", "n", needle=1.0, missing={"torch": "crashed"}))
    results.put(kept, result("f", "n", threads=1, needle=5.0))
    first, second = kept["results"]
    assert {name: t["best"] for name, t in first["times"].items()} == {"needle": 1.0}
    assert first["missing"] == {"jax": "gone", "torch": "crashed"}
    assert second["threads"] == 1
    results.put(kept, result("f", "n", torch=4.0))
    assert set(kept["results"][0]["times"]) == {"needle", "torch"} and set(kept["results"][0]["missing"]) == {"jax"}


def test_results_are_arranged_as_the_cases_are(tool):
    kept = {"results": [result("f", "b"), result("f", "gone"), result("f", "a"), result("f", "a", threads=1)]}
    tool("results").arrange(kept, ["f: a", "f: b", "f: c"])
    assert [(r["name"], r["threads"]) for r in kept["results"]] == [("a", 1), ("a", 2), ("b", 2)]


def test_files_of_results(tool, tmp_path, report):
    results = tool("results")
    path = tmp_path / "new" / "results.json"
    results.save(path, report)
    assert results.load(path) == results.opened(path, fresh=False) == report
    assert results.opened(path, fresh=True)["results"] == []
    report["machine"]["cpu"] = "another"
    results.save(path, report)
    with pytest.raises(ValueError, match="another machine"):
        results.opened(path, fresh=False)
    path.write_text("[]")
    with pytest.raises(ValueError, match="not a file of results"):
        results.load(path)


# ---- Targets, table, page -------------------------------------------------------------------------------------------------


def test_targets(tool, report):
    found = {(o.name, o.peer): o for o in tool("targets").outcomes(report)}
    kept, missed = found["recorded add 8x8", "torch"], found["elementwise, transposed operand", "torch"]
    assert kept.value == pytest.approx(10) and kept.kept and not kept.reached
    assert missed.value == pytest.approx(0.5) and not missed.kept
    assert found["exp on 1M to 16M", "torch"].value is None  # two of three cases are not there
    assert found["peak memory of every train step", "torch"].value == pytest.approx(3)
    assert found["peak memory of every captured step", "eager"].value == pytest.approx(1.25)
    assert found["import, with NumPy's", ""].kept and found["installed size beyond NumPy", ""].kept


def test_every_target_names_cases_that_exist(tool):
    keys = {case.key for case in tool("cases").all_cases()}
    wanted = {f"{t.family}: {case}" for t in tool("targets").TARGETS for case in t.cases}
    assert wanted <= keys


def test_cases_have_names_of_their_own(tool):
    cases = tool("cases")
    keys = [case.key for case in cases.all_cases()]
    assert len(keys) == len(set(keys))
    for case in cases.all_cases():
        assert "needle" in case.of and set(case.of) <= set(cases.FRAMEWORKS), case.key
        assert all(case.snippet(name) for name in case.of), case.key


def test_table(tool, report):
    table = tool("table")
    line = table.line(report["results"][3], ("numpy", "torch", "compile"))
    assert line.split() == ["exp", "1M", "2", "-", "2.00x", "n/a", "1", "ms", "-", "2", "ms", "n/a"]
    marked = [line for line in table.target_table(tool("targets").outcomes(report)) if "missed" in line]
    assert len(marked) == 1 and "transposed" in marked[0]


def test_page(tool, report, tmp_path):
    page, notes = tool("page"), tmp_path / "notes.md"
    notes.write_text("# Notes\n\n## elementwise, transposed operand\n\nThe profile\nshows it.\n")
    path = tmp_path / "docs" / "benchmarks.md"
    (tmp_path / "docs" / "benchmarks").mkdir(parents=True)
    (tmp_path / "docs" / "benchmarks" / "of-an-older-run.svg").write_text("")
    page.write(path, report, notes)
    text = path.read_text()
    assert "0.50×, required 1.2×: 58% short.** The profile shows it." in text
    assert "| recorded add 8x8 | PyTorch | **10.00×** | 8× | 12× | ✓ |" in text
    assert "PyTorch is ahead (ratio below 0.95) in 1 of 3 cases, 2 threads" in text
    assert "| strided: add transposed 2000x1000 | **0.50×** | 2 ms | 1 ms |" in text
    assert "no &lt;compiler> / here" in text
    drawn = {picture.name for picture in (tmp_path / "docs" / "benchmarks").iterdir()}
    assert drawn == {
        "targets.svg", "families.svg", "overhead.svg", "strided.svg", "elementwise.svg", "curves.svg",
    }  # fmt: skip
    assert all(f"](benchmarks/{name})" in text for name in drawn)
    for name in drawn:
        picture = (tmp_path / "docs" / "benchmarks" / name).read_text()
        assert ElementTree.fromstring(picture).tag.endswith("svg") and "prefers-color-scheme: dark" in picture


def test_page_of_nothing(tool, tmp_path):
    tool("page").write(tmp_path / "page.md", tool("results").empty())
    assert "not measured" in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        ([[2, 1.0, 3.0, 5.0]], [[2, 1.0001, 3.0, 5.0]], ""),
        ([[2, 1.0, 3.0, 5.0]], [[3, 1.0, 3.0, 5.0]], "2 numbers here, 3 there"),
        ([[2, 1.0, 3.0, 5.0]], [[2, 1.0, 3.0, 6.0]], "sum x^2 5 here, 6 there"),
        ([[2, float("nan"), 3.0, 5.0]], [[2, float("nan"), 3.0, 5.0]], "sum nan"),
        ([[1, 1, 1, 1]], [], "1 values here, 0 there"),
    ],
)
def test_difference_of_numbers(tool, ours, theirs, told):
    assert told in tool("check").difference(ours, theirs) and bool(tool("check").difference(ours, theirs)) == bool(told)


# ---- Processes ------------------------------------------------------------------------------------------------------------


def test_needle_half_runs(repository, python, tmp_path):
    """Two rounds; a second run of another family adds to the file."""
    command = [str(repository / "benchmarks"), "--frameworks", "needle,numpy", "--rounds", "2", "--threads", "1"]
    done = python(*command, "--json", "r.json", "--family", "overhead", "--case", "add 8x8", "--case", "slice")
    assert done.returncode == 0, done.stderr
    assert "recorded add 8x8" in done.stdout and "target" in done.stdout
    done = python(*command, "--json", "r.json", "--family", "train steps", "--case", "tiny MLP 2-16-16-1, batch 32")
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / "r.json").read_text())
    assert {r["name"]: set(r["times"]) for r in kept["results"]} == {
        "add 8x8": {"needle", "numpy"},
        "slice a[2:6, 1:7]": {"needle", "numpy"},
        "recorded add 8x8": {"needle"},
        "recorded slice a[2:6, 1:7]": {"needle"},
        "tiny MLP 2-16-16-1, batch 32": {"needle"},
    }
    assert set(kept["families"]) == {"overhead", "train steps"} and kept["families"]["overhead"]["rounds"] == 2
    assert all(t["best"] <= t["median"] for r in kept["results"] for t in r["times"].values())
    assert (tmp_path / "r.md").exists() and (tmp_path / "r" / "overhead.svg").exists()


def test_a_worker_that_fails_is_reported_and_the_rest_goes_on(tool):
    """A case that raises, one that does not exist there, and a process that ends."""
    run, cases = tool("run"), tool("cases")
    keys = {case.key: case for case in cases.all_cases()}
    known = keys["overhead: add 8x8"]
    broken = cases.Case("overhead", "not in the table", "", "1")
    gone = run.Player("gone", "numpy", sys.executable, (("PYTHONHOME", "/nonexistent"),))
    players = [run.Player("numpy", "numpy", sys.executable), gone]
    with run.Team(players, 1) as team:
        assert "KeyError" in run.measure(team, broken, 1)["missing"]["numpy"]
        found = run.measure(team, known, 3)
    assert set(found["times"]) == {"numpy"} and "ended" in found["missing"]["gone"]
    assert 0 < found["times"]["numpy"]["best"] <= found["times"]["numpy"]["median"]


@pytest.mark.parametrize("name", ["captured steps: tiny MLP 2-16-16-1, batch 32",
                                  "captured graphs: ((a*b + c)*a).sum() 8x8, forward + backward"])  # fmt: skip
def test_captured_cases_are_replayed(tool, name):
    """Before the calls that count; a function that is not says so."""
    case = next(case for case in tool("cases").all_cases() if case.key == name)
    prepared = tool("frameworks").prepare(case, "needle")
    with pytest.raises(RuntimeError, match="has not been replayed"):
        prepared.ready()
    for _ in range(tool("worker").FIRST):
        exec(prepared.statement, prepared.names)
    prepared.ready()


@pytest.mark.parametrize("model", ["mlp", "mlpresnet", "lenet", "resnet9", "lstm tiny", "gru tiny", "transformer tiny"])
def test_models_learn(tool, model):
    step = tool("models_needle").train(model, 4, random=False)
    losses = [step().item() for _ in range(8)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--rounds", "0"], "expected 1 or more"),
        (["--threads", "many"], "expected numbers above 0"),
        (["--frameworks", "needle,tensorflow"], "unknown tensorflow"),
        (["--family", "none"], "invalid choice"),
    ],
)
def test_wrong_arguments(tool, capsys, arguments, told):
    with pytest.raises(SystemExit):
        tool("command").arguments(arguments)
    assert told in capsys.readouterr().err


def test_compare_prints_ratios(tool):
    compare = tool("compare")
    rows = [result("f", name, old=old, new=1e-3) for name, old in (("slow", 5e-4), ("same", 1e-3), ("fast", 3e-3))]
    lines = compare.summary(rows, "old", "new")
    assert "slower by a tenth or more: 1" in lines and "faster by a tenth or more: 1" in lines
    assert "0.50x" in lines[2] and "3.00x" in lines[4]
    rows.append(result("g", "new", new=1e-3))  # not at the old commit: in no mean
    _, _, *lines = compare.means(rows, "old", "new")
    assert [row.split() for row in lines] == [["f", "2", "3", "1.14x", "1.14x", "0.50x", "slow"]]
    with pytest.raises(ValueError, match="no such commit"):
        compare.state("no-such-commit")


# ---- Like with like -------------------------------------------------------------------------------------------------------


@pytest.mark.parity
@pytest.mark.parametrize("model", ["mlp", "mlpresnet", "lenet", "resnet9", "lstm tiny", "gru tiny", "transformer tiny"])
def test_twins_have_the_same_losses(tool, model):
    """Four steps from the same weights, in Needle and PyTorch, and in JAX where it is installed."""
    pytest.importorskip("torch")
    losses = {}
    for framework in ("needle", "torch", "jax"):
        if framework == "jax" and not importlib.util.find_spec("jax"):
            continue
        step = tool(f"models_{framework}").train(model, 6, random=False)
        losses[framework] = [step().item() for _ in range(4)]
    for theirs in losses.values():
        assert theirs == pytest.approx(losses["needle"], rel=1e-3)


@pytest.mark.parity
@pytest.mark.parametrize("model", ["mlpresnet", "lenet", "resnet9", "lstm tiny", "transformer tiny"])
def test_twins_infer_the_same(tool, model):
    pytest.importorskip("torch")
    ours, theirs = (tool(f"models_{name}").infer(model)().numpy() for name in ("needle", "torch"))
    assert theirs == pytest.approx(ours, rel=1e-3, abs=1e-4)


@pytest.mark.parity
def test_small_cases_have_the_same_numbers(tool):
    """What `--check` does, on the cases that are quick."""
    pytest.importorskip("torch")
    run, check = tool("run"), tool("check")
    small = ("overhead", "small graphs", "layers", "optimizers")
    cases = [c for c in tool("cases").all_cases() if c.family in small and c.after != "-" and "2048" not in c.name]
    players = [run.Player(name, name, sys.executable) for name in ("needle", "numpy", "torch")]
    wrong = [v for v in check.verdicts(players, cases, 1) if v.problem]
    assert wrong == []
