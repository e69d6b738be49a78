"""Models from folders as Hugging Face keeps them: config.json says which, safetensors files hold the weights."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from needle import init
from needle_nn.checkpoint import CheckpointError
from needle_nn.files import open_regular
from needle_nn.interop import from_torch
from needle_nn.models.gpt2 import GPT2
from needle_nn.models.llama import Llama
from needle_nn.weights import Weights

#: model_type of config.json
KINDS: dict[str, Callable[..., Any]] = {
    "gpt2": GPT2.from_config,
    "llama": Llama.from_config,
    "mistral": Llama.from_config,
}
_MAX_CONFIG = 1 << 20  # bytes


def read_config(folder: str | os.PathLike) -> dict[str, Any]:
    """The config.json of a folder.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "config.json").write_text('{"model_type": "gpt2", "n_layer": 2}')
    >>> read_config(folder)["n_layer"]
    2
    """
    path = Path(folder) / "config.json"
    try:
        with open_regular(path) as file:
            config = json.loads(file.read(_MAX_CONFIG))
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise CheckpointError(f"{path}: expected JSON") from None
    if not isinstance(config, dict) or config.get("model_type") not in KINDS:
        kind = config.get("model_type") if isinstance(config, dict) else None
        raise CheckpointError(f"{path}: model_type is {kind!r:.40}, known are {', '.join(KINDS)}")
    return config


def load_pretrained(folder: str | os.PathLike, device: Any = None, dtype: str = "float32", **settings: Any) -> Any:
    """The model in a folder, in evaluation mode.

    Parameters
    ----------
    folder : with config.json and model.safetensors, or several such files and their index
    device, dtype : of the weights; what files hold in half precision becomes `dtype`
    settings : arguments of the model's class that come before what config.json says, such as `context` or `dropout`
    """
    config = read_config(folder)
    with Weights(folder) as weights, init.without_draws():
        model = KINDS[config["model_type"]](config, device=device, dtype=dtype, **settings)
        return from_torch(model, weights).eval()
