"""A run's folder: the settings it was started with, and the model it has come to."""

import argparse
import random as python_random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import needle.random
from needle import no_grad
from needle_ndarray import device as find_device
from needle_nn import nn
from needle_nn.checkpoint import CheckpointError, Checkpoints, load_checkpoint
from needle_nn.command.recipes import RECIPES, Recipe


class Run(NamedTuple):
    """What a checkpoint tells: the recipe's name, the settings, facts about the data, and the trainer's state."""

    recipe: str
    settings: dict[str, Any]
    facts: dict[str, Any]
    state: dict[str, Any]
    path: Path


def open_run(place: str, which: str = "latest") -> Run:
    """The run in a folder, or in one of its checkpoint files."""
    path = Path(place)
    if not path.exists() and not path.is_symlink():
        raise CheckpointError(f"{place}: no such run; a run is a folder that `needle train` has left")
    if not path.is_dir():
        state = load_checkpoint(path)
    else:
        checkpoints = Checkpoints(path)
        path = checkpoints.find(which)
        state = checkpoints.load(which)
    run = state.get("run") if isinstance(state, dict) else None
    if not isinstance(run, dict) or not isinstance(run.get("recipe"), str) or run["recipe"] not in RECIPES:
        raise CheckpointError(f"{path}: a checkpoint, but not of `needle train`")
    _check(path, run, ("settings", "facts"))
    _check(path, state, ("model", "trainer"))
    _check(path, run["settings"], ("data", "seed", "device", *RECIPES[run["recipe"]].defaults), None)
    _check(path, state["trainer"], ("epoch", "step", "batch", "seconds", "means"), None)
    return Run(run["recipe"], run["settings"], run["facts"], state, path)


def _check(path: Path, held: Mapping[str, Any], names: tuple[str, ...], kind: Any = dict) -> None:
    """A checkpoint of another version, or of another program, may lack what a run is built from."""
    for name in names:
        if name not in held or (kind is not None and not isinstance(held[name], kind)):
            raise CheckpointError(f"{path}: a checkpoint of `needle train`, but without {name}")


def options(settings: Mapping[str, Any], device: str | None = None) -> argparse.Namespace:
    """Settings as recipes take them; the device is looked up, and has to work."""
    chosen = find_device(device or settings["device"])
    _ = chosen.backend  # says in one line why it cannot be used
    return argparse.Namespace(**{**settings, "device": chosen})


def seed_everything(seed: int) -> None:
    """Start all generators that anything here draws from."""
    python_random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  the course's generator
    needle.random.seed(seed)


def rebuild(run: Run, o: argparse.Namespace) -> nn.Module:
    """The model of a run, with its trained weights, in eval mode."""
    model = RECIPES[run.recipe].model(o, run.facts)
    model.load_state_dict(run.state["model"])
    return model.eval()


def predictions(model: nn.Module, loader: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, logits and labels of a whole loader, in eval mode."""
    parts: list[tuple[np.ndarray, ...]] = []
    model.eval()
    with no_grad():
        for x, y in loader:
            parts.append((x.numpy(), model(x).numpy(), y.numpy()))
    inputs, logits, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
    return inputs, logits, labels


def data_of(recipe: Recipe, name: str, o: argparse.Namespace) -> Any:
    """The recipe's data; where --data is missing, what it should be."""
    from needle_nn.command.arguments import UsageError

    if recipe.needs_data and not o.data:
        raise UsageError(f"{name}: give --data, {recipe.data_help}")
    return recipe.data(o)
