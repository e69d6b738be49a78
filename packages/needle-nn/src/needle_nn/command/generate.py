"""needle generate: let a trained model write."""

import argparse
from collections.abc import Callable
from typing import Any

from needle_nn.command.arguments import UsageError
from needle_nn.command.writers import FORMS, open_writer

#: Settings of the draws: type, default, whether a value is right, help.
SAMPLING: dict[str, tuple[Any, Any, Callable[[Any], bool], str]] = {
    "temperature": (float, 0.8, lambda x: 0 <= x < float("inf"), "0: the likeliest; 1: as learned"),
    "top_k": (int, None, lambda x: x > 0, "draw among the N likeliest only"),
    "top_p": (float, None, lambda x: 0 < x <= 1, "draw among the fewest likeliest that have this share together"),
    "repetition_penalty": (float, 1.0, lambda x: 0 < x < float("inf"), "above 1: fewer repetitions"),
}
RULES = (
    "--length, --top-k and --repetition-penalty must be above 0, --top-p too and at most 1,"
    " --temperature at least 0, --seed too"
)


def add_to(commands: Any) -> None:
    told = "let a language model write"
    made = commands.add_parser("generate", help=told, description=told.capitalize() + ".")
    made.set_defaults(run=run)
    add_model(made)
    made.add_argument("--prompt", metavar="TEXT", help="how it begins (default: as the text it was trained on)")
    made.add_argument(
        "--length", type=int, default=500, metavar="N", help="characters, words or tokens to add (default: %(default)s)"
    )
    for flag, (kind, default, _, told) in SAMPLING.items():
        shown = "" if default is None else f" (default: {default})"
        name = "--" + flag.replace("_", "-")
        made.add_argument(name, type=kind, default=default, metavar="N" if kind is int else "X", help=told + shown)
    made.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end before this text; may be repeated"
    )
    made.add_argument("--seed", type=int, default=0, metavar="N", help="of the draws (default: %(default)s)")


def add_model(made: Any) -> None:
    """Which model: arguments that `needle serve` has, too."""
    made.add_argument(
        "model_folder",
        metavar="MODEL",
        help="a folder of `needle train text` or `ptb`, or one of its checkpoints; or a folder with config.json, safetensors"
        " files and tokenizer.json, as Hugging Face keeps GPT-2 and Llama",
    )
    made.add_argument(
        "--checkpoint", choices=["latest", "previous"], default="latest", help="of a run (default: %(default)s)"
    )
    made.add_argument("--device", help="where to compute (default: as in training, or cpu)")
    made.add_argument(
        "--weights",
        choices=FORMS,
        default="float32",
        help="how they are kept: in half the memory, or a quarter, in less time for a token (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    right = {"length": args.length > 0, "seed": args.seed >= 0}
    right |= {
        flag: getattr(args, flag) is None or fits(getattr(args, flag)) for flag, (_, _, fits, _) in SAMPLING.items()
    }
    if wrong := [f"--{name.replace('_', '-')} {getattr(args, name)}" for name, fits in right.items() if not fits]:
        raise UsageError(f"{', '.join(wrong)}: {RULES}")
    if "" in args.stop:
        raise UsageError("--stop: expected a text that is not empty")
    writer, begin = open_writer(args.model_folder, args.checkpoint, args.device, args.weights)
    prompt = begin if args.prompt is None else args.prompt
    how = {flag: getattr(args, flag) for flag in SAMPLING}
    pieces = writer.stream(prompt, args.length, stop=args.stop, seed=args.seed, **how)
    first = next(pieces, "")  # what is wrong with a prompt is told before anything is written
    print(prompt + first, end="", flush=True)
    for piece in pieces:
        print(piece, end="", flush=True)
    print()
    return 0
