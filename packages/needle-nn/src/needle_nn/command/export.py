"""needle export: a trained model as an ONNX file."""

import argparse
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from needle_nn import nn
from needle_nn.command.arguments import UsageError
from needle_nn.command.runs import open_run, options, rebuild
from needle_nn.lora import merge_lora


class Form(NamedTuple):
    """How a model is called: an example, the axis of the batch, and the names of what goes in and comes out."""

    model: nn.Module
    example: tuple[Any, ...]
    axis: int
    inputs: list[str]
    outputs: list[str]


def add_to(commands: Any) -> None:
    told = "write a trained model as an ONNX file, for onnxruntime and others"
    made = commands.add_parser("export", help=told, description=told.capitalize() + ".")
    made.set_defaults(run=run)
    made.add_argument("run_folder", metavar="RUN", help="a folder of `needle train`, or one of its checkpoints")
    made.add_argument("file", metavar="FILE", help="what to write, as model.onnx")
    made.add_argument(
        "--length", type=int, metavar="N", help="characters or words of a text that it takes (default: as in training)"
    )
    made.add_argument(
        "--checkpoint", choices=["latest", "previous"], default="latest", help="which one (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    from needle_nn.onnx import export  # here: the other commands need not wait for it

    if args.length is not None and args.length < 1:
        raise UsageError(f"--length {args.length}: expected 1 or more")
    found = open_run(args.run_folder, args.checkpoint)
    if "image" in found.facts and args.length is not None:
        raise UsageError(f"--length: {args.run_folder} is a run of {found.recipe}, which takes pictures")
    model = rebuild(found, options(found.settings, "cpu"))
    form = form_of(found.recipe, model, found.facts, args.length or found.settings.get("context") or 1)
    path = export(
        form.model, form.example, args.file, batch_axis=form.axis, input_names=form.inputs, output_names=form.outputs
    )
    shapes = [["batch" if i == form.axis else str(n) for i, n in enumerate(x.shape)] for x in form.example]
    takes = [f"{name} ({', '.join(shape)})" for name, shape in zip(form.inputs, shapes, strict=True)]
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB; {', '.join(takes)} -> {', '.join(form.outputs)}")
    return 0


def form_of(recipe: str, model: Any, facts: Mapping[str, Any], length: int) -> Form:
    """The inputs of a recipe's model: pictures as its loader gives them, or `length` ids of a text, and a recurrent state."""
    if "image" in facts:
        image = facts["image"] if recipe == "cifar10" else [math.prod(facts["image"])]
        return Form(model, (np.zeros((1, *image), "float32"),), 0, ["pixels"], ["logits"])
    if "characters" in facts:
        return Form(model, (np.zeros((1, min(length, model.context)), "int64"),), 0, ["ids"], ["logits"])
    if "tokens" in facts:
        ids = np.zeros((1, min(length, model.model.context)), "int64")
        return Form(merge_lora(model.model), (ids,), 0, ["ids"], ["logits"])
    words = model.model
    ids = np.zeros((length, 1), "int64")
    _, state = words(ids)
    states = state if isinstance(state, tuple) else (state,)
    if isinstance(words.seq_model, nn.Transformer):
        return Form(words, (ids,), 1, ["ids"], ["logits", "state"])
    names = ["h", "c"][: len(states)]
    hosts = [np.zeros(part.shape, "float32") for part in states]
    return Form(_Stateful(words), (ids, *hosts), 1, ["ids", *names], ["logits", *[f"next_{name}" for name in names]])


class _Stateful(nn.Module):
    """A language model whose state is an argument, or two: (ids, h, c) -> logits, (h, c)"""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids, *states):
        return self.model(ids, states if len(states) > 1 else states[0])
