"""The report of a run: what its page shows."""

import datetime
import math
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from needle_ndarray.extension import config
from needle_nn import __version__
from needle_nn.command.runs import predictions
from needle_nn.command.writers import writer_of
from needle_nn.report import Report, Sample, write_report
from needle_nn.training import confusion_matrix, perplexity
from needle_nn.training.callbacks import read_metrics

SHOWN = 24  # pictures


def write_page(path: Path, name: str, settings: Mapping[str, Any], data: Any, trainer: Any) -> dict[str, str]:
    """Measure the trained model once more, write the page, and return its figures."""
    model, facts = trainer.model, data.facts
    now = datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")
    report = Report(
        f"needle train {name}", f"{data.about} · {now}", history=read_metrics(path.with_name("metrics.jsonl"))
    )
    if "image" in facts:
        inputs, logits, labels = predictions(model, data.test)
        report.confusion, report.classes = confusion_matrix(logits, labels), facts["classes"]
        report.samples = pick_samples(inputs.reshape(-1, *facts["image"]), logits, labels, facts["classes"])
        figures = {
            "test accuracy": f"{(logits.argmax(1) == labels).mean():.2%}",
            "test loss": f"{mean_loss(logits, labels):.4f}",
        }
        shape = (1, *inputs.shape[1:])
    else:
        loss = trainer.evaluate(data.test)["loss"]
        figures = {"validation loss": f"{loss:.4f}", "perplexity": f"{perplexity(loss):.2f}"}
        if "characters" in facts:
            figures["bits per character"] = f"{loss / math.log(2):.3f}"
        writer, begin = writer_of(model, facts, settings)
        report.texts = [
            (
                f"temperature {t}, " + (f"{k} likeliest" if k else "all"),
                begin,
                "".join(writer.stream(begin, 250, seed=0, temperature=t, top_k=k)),
            )
            for t, k in ((0.7, 40), (1.0, None))
        ]
        shape = (settings["context"], 1) if "words" in facts else (1, settings["context"])
    core = model.model if hasattr(model, "carried") else model
    count = sum(p.size for p in model.parameters())
    figures |= {"parameters": f"{count:,}", "steps": f"{trainer.step:,}", "training time": duration(trainer.seconds)}
    report.figures, report.model = figures, core.summary(shape)
    report.settings = {name.replace("_", " "): value for name, value in settings.items()}
    report.environment = {
        "needle-nn": __version__,
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        **config(),
    }
    write_report(path, report)
    return figures


def pick_samples(images: np.ndarray, logits: np.ndarray, labels: np.ndarray, classes: list[str]) -> list[Sample]:
    """Mistakes, the surest first, and as many others: images (n, C, H, W), logits (n, classes), labels (n,)."""
    share = np.exp(logits - logits.max(axis=1, keepdims=True))
    share /= share.sum(axis=1, keepdims=True)
    guess, sure = logits.argmax(axis=1), share.max(axis=1)
    wrong = np.flatnonzero(guess != labels)
    wrong = wrong[np.argsort(-sure[wrong], kind="stable")][: SHOWN // 2]
    right = np.flatnonzero(guess == labels)[: SHOWN - len(wrong)]
    return [
        Sample(np.moveaxis(images[i], 0, -1), classes[int(labels[i])], classes[int(guess[i])], float(sure[i]))
        for i in (*wrong, *right)
    ]


def mean_loss(logits: np.ndarray, labels: np.ndarray) -> float:
    """Mean cross-entropy, in float64."""
    z = logits.astype(np.float64)
    top = z.max(axis=1)
    total = top + np.log(np.exp(z - top[:, None]).sum(axis=1))
    return float((total - z[np.arange(len(z)), labels.astype(np.int64)]).mean())


def duration(seconds: float) -> str:
    """A time to read.

    >>> duration(7.25), duration(80), duration(600), duration(9000)
    ('7.2 s', '80.0 s', '10.0 min', '2.5 h')
    """
    for size, unit in ((120, "s"), (7200, "min")):
        if seconds < size:
            return f"{seconds / (size / 120):.1f} {unit}"
    return f"{seconds / 3600:.1f} h"
