"""all-MiniLM-L6-v2 as a module of PyTorch's, by the names of its safetensors."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.minilm import CONFIG, weights

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional


class Attention(nn.Module):
    """Attention of several heads, in the module stack that BERT's has."""

    def __init__(self) -> None:
        super().__init__()
        width = CONFIG.width
        self.self = nn.ModuleDict({n: nn.Linear(width, width) for n in ("query", "key", "value")})
        self.output = Output(width)

    def forward(self, x: Any, mask: Any) -> Any:
        split = (CONFIG.heads, CONFIG.width // CONFIG.heads)
        q, k, v = (
            self.self[n](x).unflatten(-1, split).transpose(1, 2) for n in ("query", "key", "value")
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.output(y.transpose(1, 2).flatten(2), x)


class Output(nn.Module):
    """A product, the residual and a layer norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, CONFIG.width)
        self.LayerNorm = nn.LayerNorm(CONFIG.width, eps=CONFIG.epsilon)

    def forward(self, x: Any, residual: Any) -> Any:
        return self.LayerNorm(self.dense(x) + residual)


class Layer(nn.Module):
    """A layer of the encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(CONFIG.width, CONFIG.intermediate)})
        self.output = Output(CONFIG.intermediate)

    def forward(self, x: Any, mask: Any) -> Any:
        y = self.attention(x, mask)
        return self.output(F.gelu(self.intermediate["dense"](y)), y)


class MiniLM(nn.Module):
    """Sentence embeddings: the mean of the tokens that count, of length 1."""

    def __init__(self, layers: int = CONFIG.layers) -> None:
        super().__init__()
        width = CONFIG.width
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(CONFIG.vocabulary, width),
                "position_embeddings": nn.Embedding(CONFIG.positions, width),
                "token_type_embeddings": nn.Embedding(2, width),
                "LayerNorm": nn.LayerNorm(width, eps=CONFIG.epsilon),
            }
        )
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList([Layer() for _ in range(layers)])})

    def forward(self, tokens: Any, mask: Any) -> Any:
        e = self.embeddings
        places = torch.arange(tokens.shape[1])
        x = e["word_embeddings"](tokens) + e["position_embeddings"](places)
        x = e["LayerNorm"](x + e["token_type_embeddings"](torch.zeros_like(tokens)))
        added = torch.where(mask[:, None, None, :] != 0, 0.0, -10000.0)
        for layer in self.encoder["layer"]:
            x = layer(x, added)
        counts = mask[..., None].to(x.dtype)
        pooled = (x * counts).sum(1) / counts.sum(1)
        return F.normalize(pooled, dim=-1)


def minilm() -> Any:
    """The module with its weights, in inference."""
    module = MiniLM().eval()
    module.load_state_dict({n: torch.from_numpy(x.copy()) for n, x in weights().items()})
    return module
