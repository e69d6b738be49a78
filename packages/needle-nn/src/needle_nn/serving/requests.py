"""What a client may ask for: JSON with a prompt and settings, within limits.

>>> parse(b'{"prompt": "Once", "max_new_tokens": 20, "top_k": 5}', Limits()).sampling
{'temperature': 0.8, 'top_k': 5}
>>> parse(b'{"prompt": "Once", "max_tokens": 20}', Limits())
Traceback (most recent call last):
needle_nn.serving.requests.Refused: max_tokens: no such setting; known are prompt, max_new_tokens, temperature, top_k, top_p, \
repetition_penalty, stop, seed, stream
"""

import json
from dataclasses import dataclass, field
from typing import Any

from needle_nn.generation import Sampling, UpToStop


class Refused(ValueError):
    """A request that is not served; the message says why in one line, `status` as HTTP has it."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Limits:
    """Of a server: bytes of a request, tokens and seconds of an answer, requests at once, seconds a request may take to come."""

    size: int = 65536
    tokens: int = 1000
    seconds: float = 120.0
    requests: int = 128
    silence: float = 10.0

    @property
    def usual(self) -> int:
        """Tokens of an answer where a client does not say."""
        return min(200, self.tokens)


@dataclass(frozen=True)
class Request:
    """A prompt and how to write on from it."""

    prompt: str
    max_new_tokens: int
    sampling: dict[str, Any] = field(default_factory=dict)
    stop: tuple[str, ...] = ()
    seed: int | None = None
    stream: bool = False


_SAMPLING = "temperature", "top_k", "top_p", "repetition_penalty"
_KNOWN = "prompt", "max_new_tokens", *_SAMPLING, "stop", "seed", "stream"


def parse(content: bytes, limits: Limits) -> Request:
    """The request in a body of JSON; Refused where it is none or asks for too much."""
    try:
        given = json.loads(content)
    except (ValueError, RecursionError):
        raise Refused("the body is no JSON") from None
    if not isinstance(given, dict):
        raise Refused(f"the body is a {type(given).__name__}, expected an object with a prompt")
    if unknown := [name for name in given if name not in _KNOWN]:
        raise Refused(f"{unknown[0][:40]}: no such setting; known are {', '.join(_KNOWN)}")
    prompt, count, seed = given.get("prompt"), given.get("max_new_tokens", limits.usual), given.get("seed")
    if not isinstance(prompt, str):
        raise Refused("prompt: expected a text")
    if type(count) is not int or not 1 <= count <= limits.tokens:
        raise Refused(f"max_new_tokens {count!r:.20}: expected an int from 1 to {limits.tokens}")
    if seed is not None and (type(seed) is not int or not 0 <= seed < 2**63):
        raise Refused(f"seed {seed!r:.20}: expected an int of 0 or more, or null")
    if not isinstance(given.get("stream", False), bool):
        raise Refused("stream: expected true or false")
    stop = given.get("stop", [])
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or len(stop) > 16:
        raise Refused("stop: expected a text, or a list of 16 texts at most")
    sampling = {"temperature": 0.8} | {name: given[name] for name in _SAMPLING if given.get(name) is not None}
    try:
        UpToStop(stop)
        Sampling(**sampling)
    except ValueError as error:
        raise Refused(str(error).removeprefix("Sampling: ")) from None
    return Request(prompt, count, sampling, tuple(stop), seed, given.get("stream", False))
