"""A training run as a program, alone or on several ranks, with options as JSON; rank 0 prints what came of it."""

import hashlib
import json
import os
import resource
import signal
import sys
from pathlib import Path

import numpy as np

import needle.random
from needle_nn import distributed as dist
from needle_nn import nn, optim
from needle_nn.checkpoint import Checkpoints
from needle_nn.command.loaders import Chunks, Unrolled
from needle_nn.data import DataLoader, NDArrayDataset, random_source
from needle_nn.distributed import overlap as overlapping
from needle_nn.distributed import parallel
from needle_nn.models import GPT, LanguageModel
from needle_nn.packing import pack
from needle_nn.training import Average, Callback, EarlyStop, MetricsFile, SaveCheckpoints, Trainer, accuracy


def classes(n, *shape):
    rng = np.random.RandomState(1)
    x = rng.randn(n, *shape).astype("float32")
    return x, (x.reshape(n, -1)[:, 0] > 0).astype("int64") + (x.reshape(n, -1)[:, 1] > 0.5)


class Noisy(NDArrayDataset):
    """Items that a random transform has changed."""

    takes_arrays = False

    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        return x + random_source().randn(*x.shape).astype("float32") * 0.1, y


def mlp(parts):
    model = nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Dropout(0.3), nn.Linear(40, 3))
    loader = DataLoader(Noisy(*classes(101, 6)), 8, shuffle=True, seed=3)
    return model, loader, DataLoader(NDArrayDataset(*classes(50, 6)), 16), nn.SoftmaxLoss()


def cnn(parts):
    conv = [nn.Conv(2, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU()]
    model = nn.Sequential(*conv, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 9, 3))
    loader = DataLoader(NDArrayDataset(*classes(77, 2, 6, 6)), 6, shuffle=True)
    return model, loader, DataLoader(NDArrayDataset(*classes(20, 2, 6, 6)), 8), nn.SoftmaxLoss(ignore_index=2)


def gpt(parts):
    model = GPT(13, context=12, embedding_size=16, num_layers=2, num_head=2, dropout=0.2)
    ids = np.random.RandomState(2).randint(0, 13, (60, 13)).astype("int32")
    loader = DataLoader(NDArrayDataset(ids[:, :-1], ids[:, 1:]), 4, shuffle=True, seed=1)
    return model, loader, list(DataLoader(NDArrayDataset(ids[:9, :-1], ids[:9, 1:]), 4)), nn.SoftmaxLoss()


def lstm(parts):
    ids = np.random.RandomState(2).randint(0, 11, 700)
    model = Unrolled(LanguageModel(8, 11, 12, seq_model="lstm"))
    return model, Chunks(ids, 3, 5, steps_of=parts), Chunks(ids[:90], 3, 5), nn.SoftmaxLoss()


KINDS = {"mlp": mlp, "cnn": cnn, "gpt": gpt, "lstm": lstm}


class Killed(Callback):
    """SIGKILL after a step, or while its checkpoint is being written."""

    on_every_rank = True

    def __init__(self, step, rank, writing):
        self.step, self.rank, self.writing = step, rank, writing

    def on_step_end(self, trainer):
        if trainer.step == self.step and trainer.ranks.rank == self.rank:
            if self.writing:
                replace = os.replace
                os.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL) or replace(*paths)
                os.rename = os.replace
            else:
                os.kill(os.getpid(), signal.SIGKILL)


class FullDisk(Callback):
    """After a step no file of rank 0 grows any more, as on a disk that is full."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, trainer):
        if trainer.step == self.step:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


class Ends(Callback):
    """A callback of a user's, on rank 0 only, that ends the training."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, trainer):
        if trainer.step == self.step:
            trainer.stop("enough")


class Logs(Callback):
    def __init__(self):
        self.logs = []

    def on_epoch_end(self, trainer, logs):
        self.logs.append({name: value for name, value in logs.items() if name != "seconds"})


def sha(state):
    """Of everything in a checkpoint but its times."""
    state["trainer"].pop("seconds", None)
    arrays, text = pack(state)
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        digest.update(name.encode() + arrays[name].tobytes())
    return digest.hexdigest()


def main(
    kind,
    steps,
    folder,
    parts=4,
    zero=False,
    clip=0.5,
    capture=False,
    seeded=True,
    kill=None,
    stop=None,
    every=5,
    slices=False,
    full=None,
    overlap=False,
):
    world = dist.init()
    parallel.GATHERED_WHOLE = (
        0 if slices else parallel.GATHERED_WHOLE
    )  # gradients travel in slices, as those of large models
    overlapping.BUCKET = 2000  # several buckets, of models as small as these
    np.random.seed(world.rank)  # noqa: NPY002  ranks may begin with different weights
    model, loader, valid, loss = KINDS[kind](parts)
    dist.replicate(model, world)
    if seeded:
        needle.random.seed(5)
    else:
        np.random.seed(5)  # noqa: NPY002
    optimizer = optim.AdamW(model.parameters(), lr=0.01) if kind != "lstm" else optim.SGD(model.parameters(), 0.5, 0.9)
    optimizer = dist.sharded(optimizer, world) if zero else optimizer
    logs = Logs()
    callbacks = [logs, Average(optim.EMA(model.parameters(), 0.9)), EarlyStop(optim.EarlyStopping(50), "loss")]
    callbacks += [MetricsFile(f"{folder}/metrics.jsonl", 1)]
    callbacks += [Killed(*kill)] if kill else []
    callbacks += [Ends(stop)] if stop else []
    callbacks += [FullDisk(full)] if full else []
    checkpoints = Checkpoints(folder, keep=3)
    trainer = Trainer(
        model,
        optimizer,
        loss,
        metrics={"accuracy": accuracy} if kind in ("mlp", "cnn") else {},
        callbacks=[*callbacks, SaveCheckpoints(checkpoints, every)],
        schedule=optim.CosineLR(optimizer, 60),
        accumulate=parts,
        clip_norm=clip,
        keep={"carried": model.carried} if kind == "lstm" else {},
        capture=capture,
        world=world,
        overlap=overlap,
    )
    if checkpoints.files():
        trainer.load_state_dict(checkpoints.load())
    begun = trainer.step
    trainer.fit(loader, steps=steps, valid=valid)
    if trainer.ranks.rank == 0:
        rows = [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]
        told = [{name: value for name, value in row.items() if name != "seconds"} for row in rows]
        inner = getattr(optimizer, "optimizer", optimizer)
        kept = [sum(array.size for array in getattr(inner, name).values()) for name in inner.states]
        replays = sum(plan.replays for plan in trainer._run.plans) if capture else None
        result = {"sha": sha(checkpoints.load()), "step": trainer.step, "logs": logs.logs, "rows": told, "begun": begun}
        print(json.dumps(result | {"stopped": trainer.stopped, "kept": kept, "replays": replays}), flush=True)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
