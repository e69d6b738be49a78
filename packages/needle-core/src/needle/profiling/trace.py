"""Traces for Perfetto and chrome://tracing: JSON in Chrome's trace event format."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from needle.profiling.listener import Event, Tracks


def trace_events(tracks: Tracks, start: int) -> Iterator[dict[str, Any]]:
    """Names of the threads, an event for each verb and each replay, and memory over time; microseconds since `start`."""
    pid = os.getpid()
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": "needle"}}
    for tid, track in enumerate(list(tracks.threads.values()), 1):
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": track.name}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}
        for replay in track.replays:
            times = {"ts": (replay.start - start) / 1e3, "dur": (replay.end - replay.start) / 1e3}
            arguments = {"calls": replay.calls}
            yield {"ph": "X", "name": replay.name, "cat": "replay", "pid": pid, "tid": tid, **times, "args": arguments}
        for event in map(Event._make, track.events):
            kind, ns = event.kind, event.end - event.start
            times = {"ts": (event.start - start) / 1e3, "dur": ns / 1e3}
            phase = "backward" if event.op.endswith(" backward") else "forward"
            line = f"{event.line[0]}:{event.line[1]}"
            told: dict[str, Any] = {"verb": kind.verb, "arrays": kind.shapes, "device": kind.device, "line": line}
            told |= {"bytes": kind.nbytes, "flops": kind.flops}
            yield {"ph": "X", "name": event.op, "cat": phase, "pid": pid, "tid": tid, **times, "args": told}
    for at, live in tracks.memory:
        counter = {"ts": (at - start) / 1e3, "args": {"bytes": live}}
        yield {"ph": "C", "name": "memory of arrays", "pid": pid, "tid": 0, **counter}


def save_trace(path: Any, tracks: Tracks, start: int) -> None:
    """Write a trace: the whole file, or none."""
    target = Path(path)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(unfinished, "w", encoding="utf-8") as file:
            file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
            for i, event in enumerate(trace_events(tracks, start)):
                file.write((",\n" if i else "") + json.dumps(event))
            file.write("\n]}\n")
        os.replace(unfinished, target)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:
            error.filename, error.filename2 = os.fspath(target), None  # not the name of the unfinished file
        raise
