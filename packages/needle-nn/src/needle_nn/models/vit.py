"""The vision transformer, in torchvision's names.

>>> import needle as ndl
>>> model = VisionTransformer(32, 8, num_layers=2, num_head=2, embedding_size=16, hidden_size=32, num_classes=5)
>>> model(ndl.ones(2, 3, 32, 32)).shape
(2, 5)
"""

from collections.abc import Iterator
from typing import Any

from needle import init, ops
from needle.autograd import Tensor
from needle.typing import DeviceLike, DTypeLike
from needle_nn import nn
from needle_nn.interop import Pair, register
from needle_nn.models.heads import merge_heads, split_heads
from needle_nn.nn.module import expect


class SelfAttention(nn.Module):
    """q, k, v = x W + b; y = attention(q, k, v) W' + b' over all places: (B, T, C) -> (B, T, C)"""

    def __init__(self, features: int, num_head: int, device: DeviceLike, dtype: DTypeLike) -> None:
        super().__init__()
        self.num_head = num_head
        self.in_proj = nn.Linear(features, 3 * features, device=device, dtype=dtype)
        self.out_proj = nn.Linear(features, features, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        c = x.shape[-1]
        both = self.in_proj(x)
        q, k, v = (split_heads(both[..., i * c : (i + 1) * c], self.num_head) for i in range(3))
        return self.out_proj(merge_heads(ops.scaled_dot_product_attention(q, k, v)))


@register(SelfAttention)
def _self_attention(module: SelfAttention) -> Iterator[Pair]:
    yield Pair("in_proj_weight", module.in_proj.weight, None if module.as_torch else (1, 0))
    yield Pair("in_proj_bias", module.in_proj.bias, flat=True)


class Block(nn.Module):
    """x = x + attention(norm(x));  y = x + W2 gelu(W1 norm(x)): (B, T, C)"""

    def __init__(
        self, features: int, num_head: int, hidden: int, dropout: float, device: DeviceLike, dtype: DTypeLike
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.ln_1 = nn.LayerNorm1d(features, 1e-6, **made)
        self.self_attention = SelfAttention(features, num_head, **made)
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = nn.LayerNorm1d(features, 1e-6, **made)
        first, second = nn.Linear(features, hidden, **made), nn.Linear(hidden, features, **made)
        self.mlp = nn.Sequential(first, nn.GELU(), nn.Dropout(dropout), second, nn.Dropout(dropout))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.self_attention(self.ln_1(x)))
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    """Learned positions, blocks and a norm: (B, T, C)"""

    def __init__(
        self,
        length: int,
        features: int,
        num_layers: int,
        block: Any,
        dropout: float,
        device: DeviceLike,
        dtype: DTypeLike,
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.pos_embedding = nn.Parameter(init.randn(1, length, features, std=0.02, **made))
        self.dropout = nn.Dropout(dropout)
        self.layers = {
            f"encoder_layer_{i}": Block(features, **block, dropout=dropout, **made) for i in range(num_layers)
        }
        self.ln = nn.LayerNorm1d(features, 1e-6, **made)

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(x + self.pos_embedding)
        for layer in self.layers.values():
            x = layer(x)
        return self.ln(x)


class VisionTransformer(nn.Module):
    """Images (N, 3, image_size, image_size) -> logits (N, num_classes).

    Parameters
    ----------
    patch_size : images are cut into squares of this size, which are the places of the transformer
    hidden_size : width inside the perceptrons

    The defaults are those of ViT-B/16.
    """

    def __init__(
        self,
        image_size: int = 224,
        patch_size: int = 16,
        num_layers: int = 12,
        num_head: int = 12,
        embedding_size: int = 768,
        hidden_size: int = 3072,
        num_classes: int = 1000,
        dropout: float = 0.0,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__()
        if image_size % patch_size or embedding_size % num_head:
            raise ValueError(
                f"VisionTransformer: image_size {image_size} in patches of {patch_size}, embedding_size {embedding_size}"
                f" in {num_head} heads: expected numbers that divide"
            )
        self.image_size, self.embedding_size = image_size, embedding_size
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.class_token = nn.Parameter(init.zeros(1, 1, embedding_size, **made))
        self.conv_proj = nn.Conv2d(3, embedding_size, patch_size, patch_size, **made)
        places, block = (image_size // patch_size) ** 2, {"num_head": num_head, "hidden": hidden_size}
        self.encoder = Encoder(places + 1, embedding_size, num_layers, block, dropout, **made)
        self.heads = nn.Sequential({"head": nn.Linear(embedding_size, num_classes, **made)})

    def forward(self, x: Tensor) -> Tensor:
        expect(self, x, "N", 3, self.image_size, self.image_size)
        n, c = x.shape[0], self.embedding_size
        x = self.conv_proj(x).permute((0, 2, 3, 1)).reshape((n, -1, c))  # (N, C, H, W) -> (N, H W, C)
        x = ops.concatenate([self.class_token.broadcast_to((n, 1, c)), x], 1)
        return self.heads(self.encoder(x)[:, 0])

    def torch_name(self, name: str) -> str | None:
        """The first files call the maps of a perceptron linear_1 and linear_2."""
        return name.replace(".mlp.linear_1.", ".mlp.0.").replace(".mlp.linear_2.", ".mlp.3.")


def vit_b_16(**settings: Any) -> Any:
    """ViT-B/16: 86,567,656 parameters."""
    return VisionTransformer(**settings)
