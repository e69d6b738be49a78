"""Cases of language models that write: one token beside a cache, with weights of 32, 16 and 8 bits, and a prompt at once."""

from benchmarks.cases import TENSORS, Case
from benchmarks.workloads import GPT2_BEFORE, GPT2_PROMPT, GPT2_SIZE

DECODE = f"GPT-2 124M, a token after {GPT2_BEFORE[0]} to {GPT2_BEFORE[1]}"
PREFILL = f"GPT-2 124M, a prompt of {GPT2_PROMPT}"

#: Reads as much as all weights once, without which no token is: its time over a token's is the share of the bandwidth.
READING = f"the sum of {GPT2_SIZE} numbers"

CASES = [
    Case("generation", DECODE, "step = decode()", "step()", of=TENSORS),
    # PyTorch rounds what is between the layers as well, so that numbers differ.
    Case("generation", f"{DECODE}, bfloat16", "step = decode('bfloat16')", "step()", of=TENSORS, after="-"),
    Case("generation", f"{DECODE}, 8 bits", "step = decode('bytes')", "step()", of=TENSORS, after="-"),
    Case("generation", READING, f"a = C({GPT2_SIZE})", "a.sum()", of=TENSORS),
    Case("generation", PREFILL, "step = prefill()", "step()", of=TENSORS),
]
