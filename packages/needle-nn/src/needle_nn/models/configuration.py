"""What Hugging Face's config.json says of a model: sizes, and settings that have to be as expected."""

from collections.abc import Mapping
from typing import Any


def number(what: str, config: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """A positive number of the configuration.

    >>> number("GPT2", {"n_layer": 12}, "n_layer")
    12
    >>> number("GPT2", {"n_layer": "12"}, "n_layer")
    Traceback (most recent call last):
    ValueError: GPT2: config.json has n_layer = '12', expected a positive number
    """
    value = config.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ValueError(f"{what}: config.json has {name} = {value!r:.40}, expected a positive number")
    return value


def expect_settings(what: str, config: Mapping[str, Any], **allowed: tuple[Any, ...]) -> None:
    """Raise unless settings that are there have a value that the model here knows.

    >>> expect_settings("Llama", {"hidden_act": "relu"}, hidden_act=("silu",))
    Traceback (most recent call last):
    ValueError: Llama: config.json has hidden_act = 'relu', expected 'silu'
    """
    for name, values in allowed.items():
        if name in config and config[name] not in values:
            expected = ", ".join(map(repr, values))
            raise ValueError(f"{what}: config.json has {name} = {config[name]!r:.60}, expected {expected}")
