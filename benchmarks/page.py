"""The results as a Markdown page, with pictures in the folder beside it."""

import math
import re
from pathlib import Path
from typing import Any

from benchmarks import pictures, results, table, targets
from benchmarks.cases import families
from benchmarks.results import NAMES
from needle_nn.command.bench import readable

NOTES = Path(__file__).resolve().parent / "notes.md"
AHEAD = 0.95  # below this ratio a peer is ahead; nearer to 1 it is level


def write(path: Path, report: dict[str, Any], notes: Path = NOTES) -> None:
    """The page, and its pictures in the folder of the same name without the ending."""
    folder = path.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    drawn: dict[str, str] = {}
    text = "\n".join(render(report, drawn, folder.name, remarks(notes)))
    for old in set(folder.glob("*.svg")) - {folder / name for name in drawn}:
        old.unlink()
    for name, picture in drawn.items():
        (folder / name).write_text(picture, encoding="utf-8")
    path.write_text(text + "\n", encoding="utf-8")


def remarks(path: Path) -> dict[str, str]:
    """{name of a target: what notes.md says about it}"""
    if not path.exists():
        return {}
    parts = re.split(r"^## +(.+?) *$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def render(report: dict[str, Any], drawn: dict[str, str], folder: str, notes: dict[str, str]) -> list[str]:
    """Lines of the page; pictures are put into `drawn`."""
    most = max(results.threads_in(report), default=1)

    def picture(name: str, svg: str, about: str) -> list[str]:
        drawn[name] = svg
        return [f"![{about}]({folder}/{name})", ""]

    out = [*introduction(report, most), "## Targets", ""]
    found = targets.outcomes(report)
    if any(o.value is not None for o in found):
        out += picture(
            "targets.svg", pictures.targets("Targets: measured, as multiples of what is required", found), "Targets"
        )
    out += [*table.target_table(found), "", "## Where peers are ahead", "", *ahead(report, found, most, notes), ""]
    overview = geometric_means(report, most)
    if overview:
        out += ["## Families", "", f"Geometric means of their times over Needle's, {cores(most)}.", ""]
        out += picture("families.svg", pictures.bars(f"Geometric means, {cores(most)}", overview), "Families")
        out += [*means_table(overview), ""]
    for family in [name for name in families() if results.of_family(report, name)]:
        out += [f"### {family.capitalize()}", "", *family_part(report, family, most, picture)]
    out += [*memory_part(report["memory"]), *install_part(report["install"]), *missing_part(report), *METHOD]
    return out


def cores(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def introduction(report: dict[str, Any], most: int) -> list[str]:
    about, runs = report["machine"], report["families"].values()
    versions: dict[str, str] = {}
    for run in runs:
        versions |= run["versions"]
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    commits = ", ".join(dict.fromkeys(f"`{run['commit']}`" for run in runs if run["commit"]))
    dates = sorted({run["date"][:10] for run in runs})
    rounds = sorted({run["rounds"] for run in runs})
    minutes = sum(run["seconds"] for run in runs) / 60
    when = " to ".join(dict.fromkeys(dates[:1] + dates[-1:]))
    memory = f", {about['memory']:g} GB" if about["memory"] else ""
    one = f" Beside the tables with {cores(most)} are those with one." if 1 in results.threads_in(report) else ""
    ran = {label for result in report["results"] for label in (*result["times"], *result["missing"])}
    absent = [NAMES[name] for name in NAMES if name not in ran] + ([] if one else ["one thread"])
    gaps = f" Not run: {', '.join(absent)}." if absent else ""
    return [
        "# Benchmarks",
        "",
        f"Measured on {about['cpu']}, {about['cores']} cores{memory}, {about['system']}, {when}; {named};"
        f" commit {commits or 'unknown'}.",
        "",
        f"Each framework computes in a process of its own; all take turns, round by round, in one run: best of"
        f" {' or '.join(map(str, rounds)) or 'no'} rounds, fewer for slow cases. **A ratio is their time over Needle's: above 1"
        f" Needle is faster.**{one} The whole run took {minutes:.0f} min.{gaps}",
        "",
        "```sh",
        "nox -s bench                                  # everything, on any machine: table, JSON and this page in runs/",
        "nox -s bench -- --quick                       # the main families in some minutes",
        "needle bench                                  # Needle alone, without peers",
        "python benchmarks --page runs/benchmarks.json --into docs/benchmarks.md",
        "```",
        "",
        "This page is generated; [benchmarks/README.md](../benchmarks/README.md) says how, and how to add a case.",
        "",
    ]


def ahead(report: dict[str, Any], found: list[targets.Outcome], threads: int, notes: dict[str, str]) -> list[str]:
    """Missed requirements with what notes.md says about them, then every case in which a peer is faster."""
    missed = [o for o in found if o.value is not None and not o.kept]
    lines = [] if missed else ["All required values that were measured are reached.", ""]
    for o in missed:
        name = f"{o.name}, against {NAMES[o.peer]}" if o.peer else o.name
        short = 1 - o.share(o.value or 0)
        told = f"- **{name}: {o.shown[0]}, required {o.shown[1]}: {short:.0%} short.** {' '.join(notes.get(o.name, '').split())}"
        lines.append(told.rstrip())
    lines += [""] if missed else []
    rows = [r for r in report["results"] if r["threads"] == threads]
    for peer in [name for name in NAMES if name != "needle"]:
        known = [(ratio, r) for r in rows if (ratio := results.ratios(r).get(peer)) is not None]
        faster = sorted(((ratio, r) for ratio, r in known if ratio < AHEAD), key=lambda pair: pair[0])
        if not known:
            continue
        told = f"{NAMES[peer]} is ahead (ratio below {AHEAD}) in {len(faster)} of {len(known)} cases, {cores(threads)}"
        if not faster:
            lines += [f"{told}.", ""]
            continue
        cells = [
            [
                f"{r['family']}: {r['name']}",
                f"**{ratio:.2f}×**",
                *(readable(r["times"][p]["best"]) for p in ("needle", peer)),
            ]
            for ratio, r in faster
        ]
        lines += folded(told, table.grid(["case", "ratio", "Needle", NAMES[peer]], cells))
    return lines[:-1] if lines else []


def folded(summary: str, lines: list[str]) -> list[str]:
    return ["<details>", f"<summary>{summary}</summary>", "", *lines, "", "</details>", ""]


def geometric_means(report: dict[str, Any], threads: int) -> list[tuple[str, dict[str, float]]]:
    """[(family, {peer: mean of their times over Needle's})]"""
    rows = []
    for family in families():
        logs: dict[str, list[float]] = {}
        for r in results.of_family(report, family, threads):
            for peer, ratio in results.ratios(r).items():
                logs.setdefault(peer, []).append(math.log(ratio))
        if logs:
            means = {p: math.exp(sum(logs[p]) / len(logs[p])) for p in NAMES if p in logs}
            rows.append((family, means))
    return rows


def means_table(rows: list[tuple[str, dict[str, float]]]) -> list[str]:
    peers = [p for p in NAMES if any(p in means for _, means in rows)]
    cells = [
        [f"[{family}](#{family.replace(' ', '-')})", *(f"**{means[p]:.2f}×**" if p in means else "" for p in peers)]
        for family, means in rows
    ]
    return table.grid(["family", *(f"/ {NAMES[p]}" for p in peers)], cells)


def family_part(report: dict[str, Any], family: str, most: int, picture: Any) -> list[str]:
    rows = results.of_family(report, family, most)
    stem = family.replace(" ", "-")
    out = []
    if family == "curves":
        out += picture("curves.svg", pictures.curves(f"Time per element, {cores(most)}", rows), "Time per element")
    elif any(map(results.ratios, rows)):
        shown = [(r["name"], results.ratios(r)) for r in rows]
        out += picture(
            f"{stem}.svg", pictures.bars(f"{family.capitalize()}, {cores(most)}", shown), f"Ratios, {family}"
        )
    for threads in reversed(results.threads_in(report)):
        rows = results.of_family(report, family, threads)
        if rows:
            out += folded(cores(threads), times_table(rows))
    return out


def times_table(rows: list[dict[str, Any]]) -> list[str]:
    """Ratios of the best times, of the medians against PyTorch, then the best times."""
    peers = [p for p in NAMES if p != "needle" and any(p in r["times"] or p in r["missing"] for r in rows)]
    medians = "torch" in peers
    head = ["case", *(f"/ {NAMES[p]}" for p in peers), *(["/ PyTorch, medians"] if medians else [])]
    lines = []
    for r in rows:
        best, median = results.ratios(r), results.ratios(r, "median").get("torch")

        def absent(name: str, r: dict[str, Any] = r) -> str:
            return "n/a" if name in r["missing"] else ""

        cells = [f"**{best[p]:.2f}×**" if p in best else absent(p) for p in peers]
        cells += ["" if median is None else f"{median:.2f}×"] if medians else []
        times = r["times"]
        cells += [readable(times[p]["best"]) if p in times else absent(p) for p in ("needle", *peers)]
        lines.append([r["name"], *cells])
    return table.grid([*head, *(NAMES[p] for p in ("needle", *peers))], lines)


def memory_part(rows: list[dict[str, Any]]) -> list[str]:
    told = "How much three train steps add to what a process holds once the model is built, and the peak of the\nwhole process."
    told += " The growth of JAX is left out: it holds the memory of its compiler."
    return ["### Memory", "", told, "", *table.memory_table(rows), ""] if rows else []


def install_part(rows: list[dict[str, Any]]) -> list[str]:
    return ["### Import and disk", "", *table.install_table(rows), ""] if rows else []


def missing_part(report: dict[str, Any]) -> list[str]:
    """What a peer could not do, with its reason."""
    reasons: dict[str, list[str]] = {}
    for r in report["results"]:
        for name, why in r["missing"].items():
            told = why[:200].replace("<", "&lt;").replace("|", "/").replace("`", "'")
            reasons.setdefault(f"{NAMES.get(name, name)}: {told}", []).append(f"{r['name']} ({cores(r['threads'])})")
    if not reasons:
        return []
    return ["### Not measured", "", *(f"- {why}: {'; '.join(names)}" for why, names in reasons.items()), ""]


METHOD = """\
## How it is measured

A turn is as many calls as fit into 30 ms, at least one, after one call that fills the caches; whoever begins changes every round.
With one thread a process may use one core only. NumPy computes on one thread, but for its matrix products. PyTorch is used as it is
quickest here: images in channels_last, `nn.LSTM` and `nn.GRU`, `scaled_dot_product_attention`, `zero_grad(set_to_none=True)`, Adam
with `fused=True`, SGD with `foreach=True`, `inference_mode`. torch.compile compiles the loss of a step, or the expression of a
case; JAX jits the whole step, with its buffers donated. "f+b" is forward and backward. `python benchmarks --check` shows that all
come to the same numbers from the same weights.\
""".splitlines()
