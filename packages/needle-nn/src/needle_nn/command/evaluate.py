"""needle eval: measure a trained model on test data."""

import argparse
import json
from typing import Any

import numpy as np

from needle_nn import nn
from needle_nn.command.page import mean_loss
from needle_nn.command.recipes import RECIPES
from needle_nn.command.runs import data_of, open_run, options, predictions, rebuild
from needle_nn.training import Trainer, accuracy, confusion_matrix, perplexity


def add_to(commands: Any) -> None:
    told = "measure a trained model on its test data"
    made = commands.add_parser("eval", help=told, description=told.capitalize() + ".")
    made.set_defaults(run=run)
    made.add_argument("run_folder", metavar="RUN", help="a folder of `needle train`, or one of its checkpoints")
    made.add_argument("--data", metavar="PATH", help="other data in the same form (default: that of the training)")
    made.add_argument(
        "--checkpoint", choices=["latest", "previous"], default="latest", help="which one (default: %(default)s)"
    )
    made.add_argument("--device", help="where to compute (default: as in training)")
    made.add_argument("--json", action="store_true", help="print one line of JSON")


def run(args: argparse.Namespace) -> int:
    found = open_run(args.run_folder, args.checkpoint)
    settings = {**found.settings, "data": args.data or found.settings["data"]}
    o, recipe = options(settings, args.device), RECIPES[found.recipe]
    model, data = rebuild(found, o), data_of(recipe, found.recipe, o)
    for fact in ("image", "classes", "words", "characters", "tokens"):
        if data.facts.get(fact) != found.facts.get(fact):
            raise ValueError(f"{settings['data'] or 'the data'}: its {fact} are not those the model was trained with")
    values: dict[str, Any] = {"checkpoint": found.path.name, "step": found.state["trainer"]["step"]}
    if "image" in found.facts:
        _, logits, labels = predictions(model, data.test)
        values |= {"loss": mean_loss(logits, labels), "accuracy": accuracy(logits, labels), "examples": len(labels)}
        rows = confusion_matrix(logits, labels, len(found.facts["classes"]))
        each = {
            name: float(row[i] / max(1, row.sum()))
            for i, (name, row) in enumerate(zip(found.facts["classes"], rows, strict=True))
        }
    else:
        loss = Trainer(model, None, nn.SoftmaxLoss()).evaluate(data.test)["loss"]
        values |= {"loss": loss, "perplexity": perplexity(loss)}
        each = {}
    if args.json:
        print(json.dumps(values | ({"accuracy of classes": each} if each else {})))
        return 0
    for name, value in values.items():
        print(f"{name:12} {_shown(name, value)}")
    if each:
        worst = sorted(each, key=each.__getitem__)[:3]
        print(f"{'hardest':12} " + ", ".join(f"{name} ({each[name]:.1%})" for name in worst))
    return 0


def _shown(name: str, value: Any) -> str:
    if name == "accuracy":
        return f"{value:.2%}"
    return f"{value:.4f}" if isinstance(value, (float, np.floating)) else str(value)
