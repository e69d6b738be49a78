"""Fine-tuning by small matrices beside large ones that stay: low-rank adaptation.

>>> import needle as ndl
>>> from needle_nn.models import GPT2
>>> model = GPT2(vocab_size=65, context=16, embedding_size=32, num_layers=2, num_head=4)
>>> before = model([[1, 2, 3]]).numpy()
>>> trained = add_lora(model, ["c_attn"], rank=4)
>>> sum(p.size for p in trained), bool((model([[1, 2, 3]]).numpy() == before).all())
(1024, True)
>>> optimizer = ndl.optim.AdamW(trained, lr=1e-3)
>>> [name for name in lora_state(model)][:2]
['transformer.h.0.attn.c_attn.lora_A.weight', 'transformer.h.0.attn.c_attn.lora_B.weight']
>>> merge_lora(model) is model and type(model.transformer.h[0].attn.c_attn).__name__
'Conv1D'
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from needle import Tensor, init, no_grad
from needle_nn import nn
from needle_nn.checks import check_count
from needle_nn.nn.module import Named


class LoRA(nn.Module):
    """y = linear(x) + dropout(x) A B alpha / rank: (..., in) -> (..., out); the linear map stays, B begins as zeros.

    Parameters
    ----------
    linear : whose weights are not trained from now on
    rank : rows between A and B
    alpha : how much they weigh
    """

    def __init__(self, linear: Any, rank: int = 8, alpha: float = 16.0, dropout: float = 0.0) -> None:
        super().__init__()
        if not isinstance(linear, nn.Linear):
            raise TypeError(f"LoRA: expected a Linear, got {type(linear).__name__}")
        self.rank, self.scale = check_count("LoRA", "rank", rank, 1), float(alpha) / rank
        made: dict[str, Any] = {"bias": False, "device": linear.weight.device, "dtype": str(linear.weight.dtype)}
        self.linear = linear
        self.lora_A = nn.Linear(linear.in_features, rank, **made)
        with init.without_draws():
            self.lora_B = nn.Linear(rank, linear.out_features, **made)
        self.dropout = nn.Dropout(dropout)
        for p in linear.parameters():
            p.requires_grad = False

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.lora_B(self.lora_A(self.dropout(x))) * self.scale

    def merged(self) -> Any:
        """The linear map with A B alpha / rank added to its weight."""
        with no_grad():
            change = (self.lora_A.matrix() @ self.lora_B.matrix()) * self.scale
            change = change.T if self.linear.as_torch else change
            self.linear.weight.realize_cached_data()[...] = (self.linear.weight + change).realize_cached_data()
        return self.linear


def add_lora(
    model: nn.Module, names: Iterable[str], rank: int = 8, alpha: float = 16.0, dropout: float = 0.0
) -> list[Any]:
    """Put a `LoRA` in the place of linear maps, and let nothing else of the model be trained; returns what is.

    Parameters
    ----------
    names : of the linear maps, or how these end: "c_attn" for all in GPT-2, "q_proj" and "v_proj" for Llama's queries and values
    rank, alpha, dropout : see `LoRA`
    """
    wanted = [names] if isinstance(names, str) else list(names)

    def replace(name: str, module: Any) -> Any:
        fits = isinstance(module, nn.Linear) and any(_ends(name, end) for end in wanted)
        return LoRA(module, rank, alpha, dropout) if fits else module

    if any(isinstance(module, LoRA) for _, module in model.named_modules()):
        raise ValueError(f"add_lora: {type(model).__name__} has LoRA already; merge_lora takes it away")
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    absent = [end for end in wanted if not any(_ends(name, end) for name in linear)]
    if absent or not wanted:
        told = f"is called {', '.join(absent)}" if wanted else "is named"
        raise ValueError(f"add_lora: no Linear of {type(model).__name__} {told}")
    _replace_all(model, replace)
    trained = {id(p) for module in _loras(model) for part in (module.lora_A, module.lora_B) for p in part.parameters()}
    for p in model.parameters():
        p.requires_grad = id(p) in trained
    return [p for p in model.parameters() if p.requires_grad]


def _ends(name: str, end: str) -> bool:
    return name == end or name.endswith(f".{end}")


def merge_lora(model: nn.Module) -> nn.Module:
    """Add what was learnt to the weights and put the linear maps back; all of the model can be trained again."""
    _replace_all(model, lambda name, module: module.merged() if isinstance(module, LoRA) else module)
    for p in model.parameters():
        p.requires_grad = True
    return model


def lora_state(model: nn.Module) -> dict[str, Tensor]:
    """The part of the `state_dict` that was learnt: a small file. Nothing else is copied."""
    learnt = {name: value for name, value in model._state().items() if ".lora_" in f".{name}"}
    return {name: Tensor.make_const(value.realize_cached_data().copy()) for name, value in learnt.items()}


def load_lora_state(model: nn.Module, state: Mapping[str, Any]) -> None:
    """Load what `lora_state` gave into a model to which the same was added."""
    own = lora_state(model)
    if own.keys() != state.keys():
        differing = sorted(own.keys() ^ state.keys())
        raise ValueError(f"load_lora_state: {len(own)} tensors here, {len(state)} given; {differing[0]} is in one only")
    model.load_state_dict(state, strict=False)


def _loras(model: nn.Module) -> list[Any]:
    return [module for _, module in model.named_modules() if isinstance(module, LoRA)]


def _replace_all(model: nn.Module, replace: Callable[[str, Any], Any]) -> None:
    """Put replace(name, module) in the place of every module below, in attributes and in containers there."""
    for name, module in list(model.named_modules()):
        for attribute, value in list(module.__dict__.items()):
            inside = name if attribute == module._inline else f"{name}.{attribute}" if name else attribute
            new = _replaced(inside, value, replace)
            if new is not value:
                module.__dict__[attribute] = new


def _replaced(name: str, value: Any, replace: Callable[[str, Any], Any]) -> Any:
    """A module or a container with modules replaced; the same object where none is."""
    if isinstance(value, nn.Module):
        return replace(name, value)
    if not isinstance(value, (dict, list, tuple)):
        return value
    keys: Any = value if isinstance(value, dict) else value.names if isinstance(value, Named) else range(len(value))
    entries = list(value.values()) if isinstance(value, dict) else list(value)
    new = [
        _replaced(f"{name}.{key}" if name else str(key), entry, replace)
        for key, entry in zip(keys, entries, strict=True)
    ]
    if all(a is b for a, b in zip(new, entries, strict=True)):
        return value
    if isinstance(value, dict):
        return dict(zip(value, new, strict=True))
    return Named(value.names, new) if isinstance(value, Named) else type(value)(new)
