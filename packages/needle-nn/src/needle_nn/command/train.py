"""needle train: from a recipe to a folder with checkpoints, metrics.jsonl and report.html."""

import argparse
import os
import shlex
import sys
from contextlib import ExitStack
from typing import Any

from needle_nn import nn, optim
from needle_nn.checkpoint import Checkpoints
from needle_nn.command.arguments import UsageError
from needle_nn.command.page import write_page
from needle_nn.command.ranks import check_ranks, first_alone, is_to_launch, launch_train
from needle_nn.command.recipes import RECIPES, Data, Recipe
from needle_nn.command.runs import Run, data_of, open_run, options, seed_everything
from needle_nn.distributed import Communicator, init, sharded
from needle_nn.training import (
    Callback,
    EarlyStop,
    MetricsFile,
    ProfileSteps,
    ProgressBar,
    SaveCheckpoints,
    TensorBoard,
    Trainer,
    accuracy,
)

#: Settings of a recipe: flag, type, help. A recipe has those it gives a default.
FLAGS: dict[str, tuple[Any, str]] = {
    "epochs": (int, "passes over the data"),
    "steps": (int, "stop after this many steps, whatever the epochs"),
    "patience": (int, "stop when the validation loss got no better for this many epochs"),
    "lr": (float, "learning rate"),
    "batch_size": (int, "examples in a step"),
    "weight_decay": (float, "pull of the weights towards 0"),
    "accumulate": (int, "batches whose gradients make one step"),
    "workers": (int, "threads that load data ahead"),
    "context": (int, "characters or words the model looks back"),
    "width": (int, "numbers that stand for a character or word"),
    "layers": (int, "layers of the model"),
    "dropout": (float, "share of numbers dropped in training"),
    "base": (str, "the folder of the model that learns: config.json, safetensors files, tokenizer.json"),
    "maps": (str, "linear maps that learn, by the ends of their names, as c_attn,c_proj (default: those of attention)"),
    "rank": (int, "rows of the matrices beside each map"),
    "alpha": (float, "weight of what they add, over the rank"),
}
MAY_CHANGE = {"epochs", "steps", "patience", "data", "device", "workers", "base"}  # when a run goes on
POSITIVE = {"epochs", "steps", "batch_size", "accumulate", "context", "width", "layers", "lr", "patience", "rank"}


METAVARS = {int: "N", float: "X", str: "TEXT"}


def add_to(commands: Any) -> None:
    made = commands.add_parser("train", help="train a model by a recipe", description="Train a model by a recipe.")
    recipes = made.add_subparsers(title="recipes", dest="recipe", metavar="RECIPE", required=True)
    for name, recipe in RECIPES.items():
        _add_recipe(recipes.add_parser(name, help=recipe.help, description=recipe.help + "."), name, recipe)


def _add_recipe(made: argparse.ArgumentParser, name: str, recipe: Recipe) -> None:
    made.set_defaults(run=run)
    made.add_argument("--data", metavar="PATH", help=recipe.data_help)
    made.add_argument("--out", metavar="FOLDER", default=f"runs/{name}", help="the run's folder (default: %(default)s)")
    made.add_argument(
        "--resume",
        nargs="?",
        const="latest",
        choices=["latest", "previous"],
        help="go on with the run in --out, from its latest checkpoint or the one before",
    )
    made.add_argument("--overwrite", action="store_true", help="begin again where --out holds a run already")
    for flag, (kind, told) in FLAGS.items():
        if flag in recipe.defaults:
            default = recipe.defaults[flag]
            shown = "" if default is None else f" (default: {default})"
            made.add_argument(f"--{flag.replace('_', '-')}", type=kind, metavar=METAVARS[kind], help=told + shown)
    if len(recipe.models) > 1:
        made.add_argument("--model", choices=recipe.models, help=f"which network (default: {recipe.defaults['model']})")
    made.add_argument("--seed", type=int, metavar="N", help="of all random numbers (default: 0)")
    made.add_argument("--device", help="where to compute: cpu, cpu_numpy, cuda (default: cpu)")
    made.add_argument(
        "--checkpoint-every", type=int, default=100, metavar="N", help="steps between checkpoints (default: 100)"
    )
    made.add_argument(
        "--log-every", type=int, default=10, metavar="N", help="steps between lines of metrics.jsonl (default: 10)"
    )
    made.add_argument(
        "--capture",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="replay steps as plans, with the same bits; a model that carries a state from batch to batch stays eager",
    )
    made.add_argument(
        "--profile",
        metavar="FILE",
        help="profile 20 steps: show where the time goes, write a trace for Perfetto to FILE",
    )
    made.add_argument("--ranks", type=int, default=1, metavar="N", help="processes that share the parts of a step")
    made.add_argument(
        "--sharded", action="store_true", help="with --ranks: each keeps the optimizer's states of its share only"
    )
    made.add_argument(
        "--overlap", action="store_true", help="with --ranks: send gradients while backward goes on, with the same bits"
    )
    made.add_argument(
        "--restarts", type=int, default=0, metavar="N", help="with --ranks: go on so often when one fails"
    )
    made.add_argument("--as-root", action="store_true", help="with --ranks: let Open MPI start as root")
    made.add_argument("--tensorboard", action="store_true", help="write for TensorBoard, too, in FOLDER/tensorboard")
    made.add_argument("--quiet", action="store_true", help="show nothing but errors")


def settings_of(args: argparse.Namespace, earlier: Run | None) -> dict[str, Any]:
    """The settings of this run: those given, else those of the run it goes on with, else the defaults."""
    recipe = RECIPES[args.recipe]
    defaults = {"data": None, "seed": 0, "device": "cpu", **recipe.defaults}
    given = {name: getattr(args, name, None) for name in defaults}
    given = {name: value for name, value in given.items() if value is not None}
    if earlier is not None:
        if earlier.recipe != args.recipe:
            raise UsageError(f"{args.out} holds a run of {earlier.recipe}, not of {args.recipe}")
        for name in given.keys() - MAY_CHANGE:
            if given[name] != earlier.settings[name]:
                flag = name.replace("_", "-")
                raise UsageError(
                    f"--{flag} {given[name]}: the run in {args.out} has {earlier.settings[name]}; it cannot change when it goes on"
                )
        defaults = earlier.settings
    chosen = {**defaults, **given}
    if "steps" in given and "epochs" not in given and earlier is None:
        chosen["epochs"] = None  # so many steps, whatever the epochs
    every = {"log_every": args.log_every, "checkpoint_every": args.checkpoint_every}
    for name, value in [*((name, chosen.get(name)) for name in sorted(POSITIVE)), *every.items()]:
        if value is not None and not value > 0:
            raise UsageError(f"--{name.replace('_', '-')} must be above 0, got {value}")
    if not 0 <= chosen["seed"] < 2**32:
        raise UsageError(f"--seed must be from 0 to {2**32 - 1}, got {chosen['seed']}")
    for name in ("data", "base"):
        if chosen.get(name):
            chosen[name] = os.path.abspath(chosen[name])
    return chosen


def earlier_run(args: argparse.Namespace, checkpoints: Checkpoints, tell: bool = True) -> Run | None:
    """The run to go on with, if that was asked for and there is one."""
    if args.resume and args.overwrite:
        raise UsageError("--resume and --overwrite exclude each other")
    if not args.resume:
        check_free(args, checkpoints)
    elif checkpoints.files():
        return open_run(args.out, args.resume)
    elif tell:
        print(f"nothing to resume in {args.out}: starting", file=sys.stderr)
    return None


def check_free(args: argparse.Namespace, checkpoints: Checkpoints) -> None:
    if checkpoints.files() and not args.overwrite:
        raise UsageError(
            f"{args.out} holds a run: --resume goes on with it, --overwrite begins again, --out names another folder"
        )


def run(args: argparse.Namespace) -> int:
    checkpoints = Checkpoints(args.out)
    args.overwrite &= os.environ.get("NEEDLE_RESTART", "0") == "0"  # ranks that start again go on
    if args.profile and not os.path.isdir(os.path.dirname(os.path.abspath(args.profile))):
        raise UsageError(f"--profile {args.profile}: there is no such folder")
    if args.overlap and args.capture:
        raise UsageError("--overlap and --capture exclude each other: a captured step sends its gradients at its end")
    if is_to_launch(args):
        return launch_train(args, settings_of(args, earlier_run(args, checkpoints, tell=False)))
    world = init()
    first = world.rank == 0
    with ExitStack() as held:
        if first and checkpoints.folder.is_dir():
            held.enter_context(checkpoints.lock)
        with first_alone(world):  # what is wrong is told once, and ends the others
            earlier = earlier_run(args, checkpoints, tell=first)
            settings = settings_of(args, earlier)
            o = options(settings)
            check_ranks(settings, world.size)
            seed_everything(o.seed)
            data = data_of(RECIPES[args.recipe], args.recipe, o)
        world.barrier()  # all have read: the folder may change
        if first:
            held.enter_context(checkpoints.lock)  # makes a new folder, now that nothing is wrong with the arguments
            if earlier is None:
                check_free(args, checkpoints)
        return train(args, checkpoints, earlier, settings, o, data, world)


def train(
    args: argparse.Namespace,
    checkpoints: Checkpoints,
    earlier: Run | None,
    settings: dict[str, Any],
    o: argparse.Namespace,
    data: Data,
    world: Communicator,
) -> int:
    """Train in a folder that is ours; rank 0 shows and writes what is to be shown and written."""
    recipe, folder = RECIPES[args.recipe], checkpoints.folder
    model = recipe.model(o, data.facts)
    optimizer = recipe.optimizer(o, model)
    if args.sharded:
        optimizer = sharded(optimizer, world)
    shows = world.rank == 0 and not args.quiet
    if args.overwrite and world.rank == 0:
        for path in checkpoints.files():
            path.unlink()
    again = f"go on with: needle train {args.recipe} --resume --out {shlex.quote(args.out)}"
    saved = {"recipe": args.recipe, "settings": settings, "facts": data.facts}
    callbacks: list[Callback] = [MetricsFile(folder / "metrics.jsonl", args.log_every)]
    callbacks += [TensorBoard(folder / "tensorboard", args.log_every)] if args.tensorboard and not world.rank else []
    callbacks += [] if args.quiet else [ProgressBar()]
    callbacks += [ProfileSteps(args.profile, quiet=args.quiet)] if args.profile else []
    callbacks += [EarlyStop(optim.EarlyStopping(o.patience))] if o.patience else []
    callbacks.append(
        SaveCheckpoints(checkpoints, args.checkpoint_every, extra=saved, go_on=again)
    )  # after those it saves
    trainer = Trainer(
        model,
        optimizer,
        nn.SoftmaxLoss(),
        metrics={} if recipe.text else {"accuracy": accuracy},
        callbacks=callbacks,
        schedule=recipe.schedule(optimizer, _total_steps(o, data.train)),
        accumulate=o.accumulate,
        clip_norm=recipe.clip_norm,
        keep={"carried": model.carried} if hasattr(model, "carried") else {},
        capture=args.capture,
        world=world,
        overlap=args.overlap,
    )
    if earlier is not None:
        trainer.load_state_dict(earlier.state)
    if shows:
        ranks = f", {world.size} ranks" if world.size > 1 else ""
        print(f"{args.recipe}: {data.about}\n{o.model}: {_size(model)}, on {o.device}{ranks}, to {folder}/")
        if earlier is not None:
            print(f"going on from {earlier.path.name}: step {trainer.step}, epoch {trainer.epoch + 1}")
        if done := _done(trainer, o):
            print(f"nothing left to train: {done}", flush=True)
    trainer.fit(data.train, o.epochs, steps=o.steps, valid=data.test)
    if trainer.stopped and shows:
        print(f"stopped: {trainer.stopped}")
    if world.rank:
        return 0
    figures = write_page(folder / "report.html", args.recipe, settings, data, trainer)
    if shows:
        print("  ".join(f"{name} {value}" for name, value in figures.items()))
        print(f"report: {folder / 'report.html'}")
    return 0


def _total_steps(o: argparse.Namespace, loader: Any) -> int:
    """Steps that the schedule is laid out for: those of all epochs, or, where there is no number of these, --steps."""
    return max(1, o.steps if o.epochs is None else o.epochs * -(-len(loader) // o.accumulate))


def _done(trainer: Trainer, o: argparse.Namespace) -> str:
    """Which of --epochs and --steps a run that goes on has reached already."""
    if o.epochs is not None and trainer.epoch >= o.epochs:
        return f"{trainer.epoch} epochs are done, --epochs is {o.epochs}"
    if o.steps is not None and trainer.step >= o.steps:
        return f"{trainer.step} steps are done, --steps is {o.steps}"
    return ""


def _size(model: nn.Module) -> str:
    count, trained = (
        sum(p.size for p in model.parameters() if p.requires_grad or everything) for everything in (True, False)
    )
    return f"{count:,} parameters" + (f", {trained:,} of them trained" if trained < count else "")
