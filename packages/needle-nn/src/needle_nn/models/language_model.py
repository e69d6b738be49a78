"""Predict the next word: embedding, a sequence model, a linear map to the vocabulary."""

from typing import Any

from needle.autograd import Tensor
from needle.typing import DeviceLike, DTypeLike
from needle_nn import nn


class LanguageModel(nn.Module):
    """Word ids (T, B) and a state -> logits (T B, output_size) and the next state.

    Parameters
    ----------
    embedding_size, output_size : width of the embedding, number of words
    hidden_size, num_layers : of the sequence model
    seq_model : "rnn", "lstm", "gru" or "transformer"
    seq_len : the longest T of a transformer
    num_head, dim_head, dropout : of a transformer

    >>> import needle as ndl
    >>> logits, (h, c) = LanguageModel(8, 100, 16, seq_model="lstm")(ndl.zeros(5, 2))
    >>> logits.shape, h.shape
    ((10, 100), (1, 2, 16))
    """

    def __init__(
        self,
        embedding_size: int,
        output_size: Any,
        hidden_size: int,
        num_layers: int = 1,
        seq_model: str = "rnn",
        seq_len: int = 40,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
        *,
        num_head: int = 8,
        dim_head: int = 32,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        recurrent = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
        if seq_model not in (*recurrent, "transformer"):
            raise ValueError(f"LanguageModel: seq_model {seq_model!r}: expected rnn, lstm, gru or transformer")
        self.output_size = output_size
        self.embedding = nn.Embedding(output_size, embedding_size, **made)
        if seq_model == "transformer":
            heads = {"num_head": num_head, "dim_head": dim_head, "dropout": dropout}
            self.seq_model = nn.Transformer(
                embedding_size, hidden_size, num_layers, sequence_len=seq_len, **heads, **made
            )
            self.linear = nn.Linear(embedding_size, output_size, **made)
        else:
            self.seq_model = recurrent[seq_model](embedding_size, hidden_size, num_layers, **made)
            self.linear = nn.Linear(hidden_size, output_size, **made)

    def forward(self, x: Tensor, h: Any = None) -> Any:
        y, h = self.seq_model(self.embedding(x), h)  # (T, B, hidden)
        return self.linear(y.reshape((-1, y.shape[-1]))), h
