"""Generation: the cache changes no logits, draws follow their distribution, texts stop where they should."""

import itertools
import math
from itertools import pairwise

import numpy as np
import pytest
from layer_references import softmax

import needle as ndl
from needle_nn.generation import Decoding, KVCache, Sampling, generate, stream
from needle_nn.models import GPT, GPT2, Llama

rng = np.random.default_rng
CONTEXT = 12


def sharp(model):
    """Weights far from where they begin, so that logits differ."""
    draws = rng(0)
    for p in model.parameters():
        if p.ndim == 2 and p.shape[0] > 1:
            p.data = ndl.Tensor(draws.normal(size=p.shape) * 2 / math.sqrt(p.shape[0]), dtype=str(p.dtype))
    return model.eval()


MODELS = {
    "GPT": lambda **d: GPT(31, CONTEXT, 16, 2, 4, **d),
    "GPT/untied": lambda **d: GPT(31, CONTEXT, 16, 2, 4, tied=False, **d),
    "GPT2": lambda **d: GPT2(31, CONTEXT, 16, 2, 4, **d),
    "Llama": lambda **d: Llama(31, CONTEXT, 16, 24, 2, 4, **d),
    "Llama/groups": lambda **d: Llama(31, CONTEXT, 16, 24, 3, 4, 2, **d),
    "Llama/one group": lambda **d: Llama(31, CONTEXT, 16, 24, 1, 4, 1, **d),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return sharp(MODELS[request.param](dtype="float64"))


def near(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


# ---- The cache ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 3])
def test_the_cache_changes_no_logits(model, batch):
    """Whatever was there at once, and whatever comes in which pieces after it."""
    ids = rng(1).integers(0, 31, (batch, CONTEXT))
    with ndl.no_grad():
        whole = model(ids).numpy()
        assert np.ptp(whole, axis=-1).min() > 0.1
        for first in range(1, CONTEXT + 1):
            for step in (1, 2, 5):
                cache = KVCache(model.num_layers, CONTEXT)
                cuts = [0, *range(first, CONTEXT, step), CONTEXT]
                parts = [model(ids[:, a:b], cache=cache) for a, b in pairwise(cuts)]
                near(np.concatenate([part.numpy() for part in parts], 1), whole)
                assert cache.length == CONTEXT


def test_only_the_last_logits(model):
    ids = rng(1).integers(0, 31, (2, 5))
    near(model(ids, last=True).numpy(), model(ids).numpy()[:, -1:])


LENGTHS = [[1], [7], [CONTEXT], [3, 3], [1, 5], [9, 2, 6], [CONTEXT, 1], [CONTEXT + 5, 4], [40, CONTEXT + 1, 1]]


@pytest.mark.parametrize("slide", [1, 3, CONTEXT])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_logits_are_those_of_each_sequence_alone(model, lengths, slide):
    """Batches of mixed lengths, from the first token to far beyond the context."""
    draws = rng(2)
    decoding = Decoding(model, [draws.integers(0, 31, n) for n in lengths], room=3, slide=slide)
    for _ in range(2 * CONTEXT):
        seen = decoding.cache.length - (decoding.cache.padding if decoding.cache.padding is not None else 0)
        seen = np.broadcast_to(seen, len(lengths))
        for row, count, logits in zip(decoding.rows, seen, decoding.logits, strict=True):
            assert count <= min(len(row), CONTEXT) and count > min(len(row), CONTEXT) - slide
            with ndl.no_grad():
                near(logits, model(np.array([row[-count:]])).numpy()[0, -1])
        decoding.append(draws.integers(0, 31, len(lengths)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("device", [ndl.cpu, ndl.cpu_numpy])
def test_devices_and_dtypes(device, dtype):
    for make in MODELS.values():
        model = sharp(make(dtype=dtype)).to(device())
        ids = rng(1).integers(0, 31, (2, 6))
        cache = KVCache(model.num_layers, CONTEXT, [0, 2])
        with ndl.no_grad():
            parts = [model(ids[:, :4], cache=cache), model(ids[:, 4:], cache=cache)]
            found = np.concatenate([part.numpy() for part in parts], 1)
            assert {(str(part.dtype), part.device) for part in parts} == {(dtype, device())}
            for row, padding in enumerate((0, 2)):
                alone = model(ids[row : row + 1, padding:]).numpy()[0]
                tolerance = 1e-11 if dtype == "float64" else 1e-4
                np.testing.assert_allclose(found[row, padding:], alone, rtol=tolerance, atol=tolerance)


def test_memory_is_taken_once():
    model = sharp(MODELS["GPT2"]())
    cache = KVCache(2, CONTEXT)
    with ndl.no_grad():
        model([[1, 2]], cache=cache)
        before = [held._handle.ptr() for pair in cache._held for held in pair]
        model([[3]], cache=cache)
    assert before == [held._handle.ptr() for pair in cache._held for held in pair] and len(before) == 4
    assert {held.shape for pair in cache._held for held in pair} == {(1, 4, CONTEXT, 4)}


REFUSED = {
    "no layers": (lambda: KVCache(0, 3), r"0 layers, capacity 3: expected 1 or more"),
    "no room": (lambda: KVCache(1, 0), r"1 layers, capacity 0"),
    "too many": (lambda: _extend(KVCache(1, 2), 3), r"0 \+ 3 tokens, but its capacity is 2"),
    "other heads": (lambda: _extend(_extend(KVCache(1, 9), 1), 1, heads=3), r"keys of 1 sequences and 3 heads.* \(1, 2\)"),
    "gradients": (lambda: _extend(KVCache(1, 2), 1, grad=True), "require gradients; compute under needle.no_grad"),
    "past the context": (lambda: sharp(MODELS["GPT2"]())(np.zeros((1, 9), int), cache=_filled()), r"after 5 others.*1 to 7"),
    "no prompt": (lambda: generate(MODELS["GPT"](), [], 1), "expected a prompt or more, got none"),
    "empty prompt": (lambda: generate(MODELS["GPT"](), [[1], []], 1), r"a prompt has shape \(0,\)"),
    "two axes": (lambda: generate(MODELS["GPT"](), [[[1]]], 1), r"a prompt has shape \(1, 1\)"),
    "half a token": (lambda: generate(MODELS["GPT"](), [[0.5]], 1), r"dtype float64: expected one id or more"),
    "no such token": (lambda: generate(MODELS["GPT"](), [[31]], 1), "ids from 31 to 31, expected 0 to 30"),
    "negative": (lambda: generate(MODELS["GPT"](), [[-1]], 1), "ids from -1 to -1, expected 0 to 30"),
    "no tokens": (lambda: generate(MODELS["GPT"](), [[1]], 0), "max_new_tokens must be an int of at least 1, got 0"),
    "slide": (lambda: Decoding(MODELS["GPT"](), [[1]], slide=13), "slide 13: expected at most the context, 12"),
    "temperature": (lambda: Sampling(temperature=-1), "temperature -1: expected 0 or more"),
    "temperature, nan": (lambda: Sampling(temperature=math.nan), "temperature nan: expected 0 or more"),
    "temperature, text": (lambda: Sampling(temperature="1"), "temperature '1': expected 0 or more"),
    "top_k": (lambda: Sampling(top_k=0), "top_k 0: expected an int of 1 or more"),
    "top_k, float": (lambda: Sampling(top_k=2.0), "top_k 2.0: expected an int"),
    "top_p": (lambda: Sampling(top_p=1.5), "top_p 1.5: expected above 0, at most 1"),
    "penalty": (lambda: Sampling(repetition_penalty=0), "repetition_penalty 0: expected above 0"),
}  # fmt: skip


def _extend(cache, t, heads=2, grad=False):
    k = ndl.Tensor(np.ones((1, heads, t, 4)), requires_grad=grad)
    cache.extend(0, k, k)
    return cache


def _filled():
    cache = KVCache(2, CONTEXT)
    cache.advance(5)
    return cache


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


# ---- Drawing --------------------------------------------------------------------------------------------------------

LOGITS = np.log([0.4, 0.3, 0.15, 0.1, 0.05])
#: settings, tokens there before, probabilities
DRAWS = {
    "plain": ({}, None, [0.4, 0.3, 0.15, 0.1, 0.05]),
    "warm": ({"temperature": 2.0}, None, softmax(LOGITS / 2)),
    "top 2": ({"top_k": 2}, None, [4 / 7, 3 / 7, 0, 0, 0]),
    "top of more than there are": ({"top_k": 9}, None, [0.4, 0.3, 0.15, 0.1, 0.05]),
    "p": ({"top_p": 0.8}, None, [0.4 / 0.85, 0.3 / 0.85, 0.15 / 0.85, 0, 0]),
    "p, all": ({"top_p": 1.0}, None, [0.4, 0.3, 0.15, 0.1, 0.05]),
    "p, one": ({"top_p": 0.01}, None, [1, 0, 0, 0, 0]),
    "p of the top 3": ({"top_k": 3, "top_p": 0.5}, None, [4 / 7, 3 / 7, 0, 0, 0]),
    "p, warm": ({"top_p": 0.5, "temperature": 100.0}, None, np.append(softmax(LOGITS[:3] / 100), [0, 0])),
    "penalty": ({"repetition_penalty": 1.5}, [0, 0, 3], softmax(LOGITS * [1.5, 1, 1, 1.5, 1])),
    "likeliest": ({"temperature": 0}, None, [1, 0, 0, 0, 0]),
    "likeliest, penalty": ({"temperature": 0, "repetition_penalty": 2}, [0], [0, 1, 0, 0, 0]),
}


@pytest.mark.parametrize("case", DRAWS)
def test_draws_follow_their_distribution(case):
    settings, before, expected = DRAWS[case]
    count = 20_000
    logits = np.tile(LOGITS, (count, 1))
    drawn = Sampling(**settings).draw(logits, rng(0), None if before is None else [before] * count)
    found = np.bincount(drawn, minlength=5) / count
    assert abs(found - expected).max() < 4 * math.sqrt(0.25 / count)
    assert not found[np.asarray(expected) == 0].any()
    assert (logits == LOGITS).all()  # what is drawn from stays as it is


def test_a_penalty_makes_positive_logits_smaller_and_negative_ones_more_so():
    how = Sampling(temperature=0, repetition_penalty=2.0)
    assert how.draw(np.array([[3.0, 2.0], [-1.0, -1.5]]), rng(0), [[0], [0]]).tolist() == [1, 1]


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.999, 0.999999])
def test_the_fewest_that_make_up_p_of_many(p):
    """More than are sorted at first, against a sort of all."""
    for scale in (0.01, 1.0, 5.0):
        logits = rng(3).normal(size=(4, 3000)) * scale
        allowed = np.isfinite(Sampling(top_p=p).allowed(logits))
        for row, kept in zip(softmax(logits), allowed, strict=True):
            order = np.sort(row)[::-1]
            wanted = 1 + np.searchsorted(np.cumsum(order), p * order.sum())
            assert abs(int(kept.sum()) - min(wanted, 3000)) <= 1 and row[kept].min() >= row[~kept].max(initial=0)


# ---- Streams --------------------------------------------------------------------------------------------------------


def test_greedy_streams_are_those_of_the_model_alone(model):
    prompts = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]]
    found = generate(model, prompts, 8, sampling=Sampling(temperature=0))
    for prompt, made in zip(prompts, found, strict=True):
        ids = list(prompt)
        for _ in range(8):
            longest = max(map(len, prompts)) + len(ids) - len(prompt)
            kept = CONTEXT if longest > CONTEXT else len(ids)
            ids.append(int(model(np.array([ids[-kept:]])).numpy()[0, -1].argmax()))
        assert made.tolist() == ids[len(prompt) :]


def test_streams_end(model):
    whole = generate(model, [[1], [2, 3]], 12, seed=4)
    ending = int(whole[0][5])
    steps = list(stream(model, [[1], [2, 3]], 12, stop_ids=[ending], seed=4))
    rows = np.stack(steps, 1)
    for row, full in zip(rows, whole, strict=True):
        at = full.tolist().index(ending) + 1 if ending in full else 12
        assert (row[:at] == full[:at]).all() and (row[at:] == -1).all()
    for row, cut in zip(rows, generate(model, [[1], [2, 3]], 12, stop_ids=[ending], seed=4), strict=True):
        assert cut.tolist() == row[row >= 0].tolist()


def test_a_stream_that_is_left_changes_no_modes():
    model = MODELS["GPT"](dropout=0.5).train()
    steps = stream(model, [[1]], 5, seed=0)
    next(steps)
    x = ndl.Tensor([1.0])
    assert (x * 2).requires_grad and not model.training  # what the caller does meanwhile has gradients
    steps.close()
    assert model.training


def test_seeds(model):
    first, again, other = (generate(model, [[1, 2]], 10, seed=seed)[0].tolist() for seed in (5, 5, 6))
    assert first == again != other


# ---- Against a reference that sorts ---------------------------------------------------------------------------------


def drawn_by_sorting(logits, share, before, temperature=1.0, top_k=None, top_p=None, repetition_penalty=1.0):
    """The token at a share of the chances that penalty, temperature, k and p leave, which are in a sorted list."""
    scores = [float(x) for x in logits]
    for token in set(map(int, before)):
        scores[token] = scores[token] / repetition_penalty if scores[token] > 0 else scores[token] * repetition_penalty
    if temperature == 0:
        return scores.index(max(scores))
    scores = [x / temperature for x in scores]
    kept = sorted(range(len(scores)), key=lambda i: -scores[i])[:top_k]
    if top_p is not None:
        weights = [math.exp(scores[i] - scores[kept[0]]) for i in kept]
        total, nucleus, held = sum(weights), [], 0.0
        for i, weight in zip(kept, weights, strict=True):
            if held >= top_p * total:
                break
            nucleus.append(i)
            held += weight
        kept = nucleus
    kept = sorted(kept)
    sums = list(itertools.accumulate(math.exp(scores[i] - max(scores)) for i in kept))
    return next(i for i, reached in zip(kept, sums, strict=True) if reached > share * sums[-1])


SETTINGS = [
    {"temperature": t, "top_k": k, "top_p": p, "repetition_penalty": r}
    for t in (0, 0.3, 1.0, 1.7)
    for k in (None, 1, 5, 1000)
    for p in (None, 0.05, 0.5, 0.9, 1.0)
    for r in (1.0, 1.3, 0.8)
]


def test_draws_are_those_of_a_reference():
    draws = rng(5)
    for settings in SETTINGS:
        logits = draws.normal(size=(4, 300)) * 3
        before = [draws.integers(0, 300, n) for n in (1, 7, 40, 300)]
        shares = rng(9).random(4)
        wanted = [drawn_by_sorting(*row, **settings) for row in zip(logits, shares, before, strict=True)]
        assert Sampling(**settings).draw(logits, rng(9), before).tolist() == wanted, settings


def test_draws_have_their_chances():
    chances = np.array([0.4, 0.0, 0.3, 0.2, 0.1])
    with np.errstate(divide="ignore"):
        logits = np.tile(np.log(chances), (20_000, 1))
    counts = np.bincount(Sampling().draw(logits, rng(0)), minlength=5) / 20_000
    np.testing.assert_allclose(counts, chances, atol=0.015)
    assert counts[1] == 0


@pytest.mark.parametrize("share", [0.0, 1 - 2**-53])
def test_the_ends_of_the_chances(share):
    """A token without a chance is never drawn, not even by a share of 0 or one that rounds to all."""

    class Fixed:
        def random(self, n):
            return np.full(n, share)

    logits = np.array([[-np.inf, 0.0, 0.0, 0.0, -np.inf], [-np.inf, 1e-9, -800.0, -np.inf, -np.inf]])
    assert Sampling().draw(logits, Fixed()).tolist() == [1 if share == 0 else 3, 1]


@pytest.mark.parametrize("penalty", [1e-300, 1.0, 1e300])
@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e300])
def test_extreme_settings_draw_what_they_should(temperature, penalty):
    """Without warnings: a cold draw is of the likeliest, a hot one of any, and tokens without a chance stay so."""
    logits = np.array([[1e30, 3.0, -np.inf, -2.0, 0.0]])
    how = Sampling(temperature=temperature, repetition_penalty=penalty, top_p=0.9 if temperature < 1 else None)
    drawn = {int(how.draw(logits, rng(i), [[1, 3, 4]])[0]) for i in range(60)}
    cold = {1 if penalty < 1 else 0}
    assert drawn == cold if temperature < 1 else 2 not in drawn and (len(drawn) > 1 or penalty != 1)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_to_draw_from_are_numbers(bad):
    with pytest.raises(ValueError, match=f"the largest logit of a row is {bad}, nothing to draw"):
        Sampling().draw(np.array([[0.0, 1.0], [bad, 0.0]]), rng(0))
