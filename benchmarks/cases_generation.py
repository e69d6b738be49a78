"""Cases of language models that write: one token beside a cache, and a prompt at once."""

from benchmarks.cases import TENSORS, Case
from benchmarks.workloads import GPT2_BEFORE, GPT2_PROMPT

DECODE = f"GPT-2 124M, a token after {GPT2_BEFORE[0]} to {GPT2_BEFORE[1]}"
PREFILL = f"GPT-2 124M, a prompt of {GPT2_PROMPT}"

CASES = [
    Case("generation", DECODE, "step = decode()", "step()", of=TENSORS),
    Case("generation", PREFILL, "step = prefill()", "step()", of=TENSORS),
]
