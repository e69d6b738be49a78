"""needle generate: let a trained model write."""

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np

from needle import Tensor, no_grad
from needle_nn.command.arguments import UsageError
from needle_nn.command.runs import open_run, options, rebuild
from needle_nn.data import CharCorpus
from needle_nn.models.gpt import _draw


def add_to(commands: Any) -> None:
    told = "let a trained language model write"
    made = commands.add_parser("generate", help=told, description=told.capitalize() + ".")
    made.set_defaults(run=run)
    made.add_argument(
        "run_folder", metavar="RUN", help="a folder of `needle train text` or `ptb`, or one of its checkpoints"
    )
    made.add_argument("--prompt", metavar="TEXT", help="how it begins (default: as the text it was trained on)")
    made.add_argument(
        "--length", type=int, default=500, metavar="N", help="characters or words to add (default: %(default)s)"
    )
    made.add_argument(
        "--temperature",
        type=float,
        default=0.8,
        metavar="X",
        help="0: the likeliest; 1: as learned (default: %(default)s)",
    )
    made.add_argument("--top-k", type=int, metavar="N", help="draw among the N likeliest only")
    made.add_argument("--seed", type=int, default=0, metavar="N", help="of the draws (default: %(default)s)")
    made.add_argument(
        "--checkpoint", choices=["latest", "previous"], default="latest", help="which one (default: %(default)s)"
    )
    made.add_argument("--device", help="where to compute (default: as in training)")


def run(args: argparse.Namespace) -> int:
    given = {"length": args.length > 0, "top-k": args.top_k is None or args.top_k > 0}
    given |= {"temperature": args.temperature >= 0, "seed": args.seed >= 0}  # nan is not
    if wrong := [f"--{name} {getattr(args, name.replace('-', '_'))}" for name, right in given.items() if not right]:
        raise UsageError(
            f"{', '.join(wrong)}: --length and --top-k must be above 0, --temperature at least 0, --seed too"
        )
    found = open_run(args.run_folder, args.checkpoint)
    if "image" in found.facts:
        raise UsageError(f"{args.run_folder}: a run of {found.recipe}, which writes nothing; needle eval measures it")
    model = rebuild(found, options(found.settings, args.device))
    print("".join(continuation(model, found.facts, args.prompt, args.length, args.temperature, args.top_k, args.seed)))
    return 0


def continuation(
    model: Any, facts: Mapping[str, Any], prompt: str | None, n: int, temperature: float, top_k: int | None, seed: int
) -> tuple[str, str]:
    """A prompt (None: the beginning of the training text) and n characters or words after it."""
    if "characters" in facts:
        prompt = facts["begin"] if prompt is None else prompt
        corpus = CharCorpus(facts["characters"], validation=0)
        ids = corpus.encode(prompt or "\n")
        written = model.generate(ids, n, temperature, top_k, seed)
        return prompt, corpus.decode(written[len(ids) :])
    words = facts["words"]
    numbers = {word: i for i, word in enumerate(words)}
    given = (prompt or "<eos>").split()
    if absent := [word for word in given if word not in numbers]:
        raise ValueError(f"the model has never seen {', '.join(map(repr, absent[:5]))}")
    made = _words_after(model.model, [numbers[word] for word in given], n, temperature, top_k, seed)
    text = " ".join(words[i] for i in made).replace(" <eos> ", "\n").replace("<eos>", "")
    return prompt or "", (" " if prompt else "") + text


def _words_after(model: Any, ids: list[int], n: int, temperature: float, top_k: int | None, seed: int) -> list[int]:
    """Words drawn one by one; a recurrent model keeps its state, a transformer sees the last ones again."""
    rng, made, state = np.random.default_rng(seed), list(ids), None
    context = getattr(model.seq_model, "sequence_len", None)
    model.eval()
    with no_grad():
        for step in range(n):
            fresh = made[-context:] if context else made if step == 0 else made[-1:]
            logits, state = model(
                Tensor(np.array(fresh, "int32")[:, None], requires_grad=False), None if context else state
            )
            made.append(int(_draw(logits.numpy()[-1:].astype("float64"), temperature, top_k, rng)[0, 0]))
    return made[len(ids) :]
