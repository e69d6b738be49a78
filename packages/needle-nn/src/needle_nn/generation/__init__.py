"""Text by a language model: token by token beside a cache of keys and values, drawn as one likes, as a stream."""

from needle_nn.generation.cache import KVCache
from needle_nn.generation.decoding import Decoding, generate, stream
from needle_nn.generation.sampling import Sampling
from needle_nn.generation.tokenizers import BPETokenizer, ByteTokenizer, Tokenizer, TokenText
from needle_nn.generation.writing import UpToStop, Writer

__all__ = [
    "BPETokenizer", "ByteTokenizer", "Decoding", "KVCache", "Sampling", "TokenText", "Tokenizer", "UpToStop", "Writer",
    "generate", "stream",
]  # fmt: skip
