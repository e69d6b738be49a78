"""Published networks in PyTorch, with the names of their files. PyTorch must be there to import this."""

import torch
from torch import nn
from torch.nn import functional as F


class Module(nn.Module):
    """Children by keyword."""

    def __init__(self, **children):
        super().__init__()
        for name, child in children.items():
            setattr(self, name, child)


class Conv1D(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(n, m)), nn.Parameter(torch.empty(m))

    def forward(self, x):
        return torch.addmm(self.bias, x.flatten(0, -2), self.weight).view(*x.shape[:-1], -1)


def heads(x, count):
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


class GPT2(nn.Module):
    def __init__(self, vocab, context, c, layers, num_head):
        super().__init__()
        self.num_head = num_head
        blocks = [
            Module(
                ln_1=nn.LayerNorm(c),
                attn=Module(c_attn=Conv1D(c, 3 * c), c_proj=Conv1D(c, c)),
                ln_2=nn.LayerNorm(c),
                mlp=Module(c_fc=Conv1D(c, 4 * c), c_proj=Conv1D(4 * c, c)),
            )
            for _ in range(layers)
        ]
        tables = {"wte": nn.Embedding(vocab, c), "wpe": nn.Embedding(context, c)}
        self.transformer = Module(**tables, h=nn.ModuleList(blocks), ln_f=nn.LayerNorm(c))
        self.lm_head = nn.Linear(c, vocab, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, ids):
        body = self.transformer
        x = body.wte(ids) + body.wpe(torch.arange(ids.shape[1]))
        for h in body.h:
            q, k, v = (heads(part, self.num_head) for part in h.attn.c_attn(h.ln_1(x)).chunk(3, -1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + h.attn.c_proj(y.transpose(1, 2).flatten(2))
            x = x + h.mlp.c_proj(F.gelu(h.mlp.c_fc(h.ln_2(x)), approximate="tanh"))
        return self.lm_head(body.ln_f(x))


class Llama(nn.Module):
    def __init__(self, vocab, c, hidden, layers, num_head, num_groups, theta, eps):
        super().__init__()
        self.num_head, self.num_groups, self.theta = num_head, num_groups, theta
        kv = c // num_head * num_groups

        def linear(n, m):
            return nn.Linear(n, m, bias=False)

        blocks = [
            Module(
                input_layernorm=nn.RMSNorm(c, eps),
                self_attn=Module(q_proj=linear(c, c), k_proj=linear(c, kv), v_proj=linear(c, kv), o_proj=linear(c, c)),
                post_attention_layernorm=nn.RMSNorm(c, eps),
                mlp=Module(gate_proj=linear(c, hidden), up_proj=linear(c, hidden), down_proj=linear(hidden, c)),
            )
            for _ in range(layers)
        ]
        self.model = Module(embed_tokens=nn.Embedding(vocab, c), layers=nn.ModuleList(blocks), norm=nn.RMSNorm(c, eps))
        self.lm_head = linear(c, vocab)

    def forward(self, ids):
        x = self.model.embed_tokens(ids)
        width = x.shape[-1] // self.num_head
        frequency = 1.0 / (self.theta ** (torch.arange(0, width, 2).float() / width))
        angle = torch.outer(torch.arange(ids.shape[1]).float(), frequency).repeat(1, 2)
        cos, sin = angle.cos(), angle.sin()

        def rotated(y):
            a, b = y.chunk(2, -1)
            return y * cos + torch.cat([-b, a], -1) * sin

        for h in self.model.layers:
            y, attn = h.input_layernorm(x), h.self_attn
            q, k = rotated(heads(attn.q_proj(y), self.num_head)), rotated(heads(attn.k_proj(y), self.num_groups))
            v = heads(attn.v_proj(y), self.num_groups)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + attn.o_proj(y.transpose(1, 2).flatten(2))
            y = h.post_attention_layernorm(x)
            x = x + h.mlp.down_proj(F.silu(h.mlp.gate_proj(y)) * h.mlp.up_proj(y))
        return self.lm_head(self.model.norm(x))


class Block(nn.Module):
    """Of a ResNet: `sizes` are (channels, kernel) of its convolutions; the first of 3 x 3 has the stride."""

    def __init__(self, channels, sizes, stride):
        super().__init__()
        self.count, steps, n = len(sizes), stride, channels
        for i, (out, k) in enumerate(sizes, 1):
            setattr(self, f"conv{i}", nn.Conv2d(n, out, k, steps if k == 3 else 1, k // 2, bias=False))
            setattr(self, f"bn{i}", nn.BatchNorm2d(out))
            n, steps = out, 1 if k == 3 else steps
        if stride != 1 or channels != n:
            self.downsample = nn.Sequential(nn.Conv2d(channels, n, 1, stride, bias=False), nn.BatchNorm2d(n))

    def forward(self, x):
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            y = F.relu(y) if i < self.count else y
        return F.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))


class ResNet(nn.Module):
    def __init__(self, layers, bottleneck):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        n = 64
        for i, count in enumerate(layers):
            c = 64 * 2**i
            sizes = [(c, 1), (c, 3), (4 * c, 1)] if bottleneck else [(c, 3), (c, 3)]
            blocks = []
            for j in range(count):
                blocks.append(Block(n, sizes, 2 if i and not j else 1))
                n = sizes[-1][0]
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(n, 1000)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return self.fc(self.layer4(self.layer3(self.layer2(self.layer1(x)))).mean((2, 3)))


class ViT(nn.Module):
    def __init__(self, size, patch, layers, num_head, c, hidden):
        super().__init__()
        self.class_token = nn.Parameter(torch.empty(1, 1, c))
        self.conv_proj = nn.Conv2d(3, c, patch, patch)
        blocks = {}
        for i in range(layers):
            maps = [nn.Linear(c, hidden), nn.GELU(), nn.Identity(), nn.Linear(hidden, c)]
            attention = nn.MultiheadAttention(c, num_head, batch_first=True)
            norms = {"ln_1": nn.LayerNorm(c, 1e-6), "ln_2": nn.LayerNorm(c, 1e-6)}
            blocks[f"encoder_layer_{i}"] = Module(**norms, self_attention=attention, mlp=nn.Sequential(*maps))
        self.encoder = Module(layers=Module(**blocks), ln=nn.LayerNorm(c, 1e-6))
        self.encoder.pos_embedding = nn.Parameter(torch.empty(1, (size // patch) ** 2 + 1, c))
        self.heads = Module(head=nn.Linear(c, 1000))

    def forward(self, x):
        x = self.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1) + self.encoder.pos_embedding
        for h in self.encoder.layers.children():
            y = h.ln_1(x)
            x = x + h.self_attention(y, y, y, need_weights=False)[0]
            x = x + h.mlp(h.ln_2(x))
        return self.heads.head(self.encoder.ln(x)[:, 0])


def fill(model, seed=0):
    """Random weights that keep numbers near 1 in every layer."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.state_dict().items():
            if not p.dtype.is_floating_point:
                continue
            p.normal_(generator=generator)
            if p.ndim < 2 or p.shape[0] == 1:
                p.mul_(0.1).add_(float("weight" in name))
                p.abs_() if name.endswith("var") else None
            else:
                conv1d = any(part in name for part in ("c_attn", "c_proj", "c_fc"))
                p.mul_((p.shape[0] if conv1d else p[0].numel()) ** -0.5)
    return model.eval()
