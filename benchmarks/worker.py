"""One framework in one process: answers the driver's requests, one JSON line each.

{"case": 3} sets that case up and answers {"loops": 1000}, the calls that fill a turn; {"run": 1000} times as many calls
and answers {"seconds": 1.2e-7} per call; {"versions": true} says what is measured.
"""

import json
import sys
import timeit
from typing import Any

import models
import numpy as np
from cases import CASES

TURN = 0.03  # seconds a turn should take


def namespace(framework: str, threads: int) -> dict[str, Any]:
    """The names that a snippet can use."""
    names: dict[str, Any] = {"model": lambda name: models.build(framework, name)}
    if framework == "needle":
        import needle as ndl
        import needle_ndarray as nd

        nd.set_num_threads(threads)
        names["P"] = lambda *shape: ndl.Tensor(random.random(shape, dtype=np.float32))
        convert, module = (lambda values: nd.array(values, dtype=str(values.dtype))), {"nd": nd}
    elif framework == "torch":
        import torch

        torch.set_num_threads(threads)
        names["P"] = lambda *shape: torch.from_numpy(random.random(shape, dtype=np.float32)).requires_grad_()
        convert, module = torch.from_numpy, {"torch": torch}
    else:
        convert, module = (lambda values: values), {"np": np}
    random = np.random.default_rng(0)
    return (
        names
        | module
        | {
            "A": lambda *shape: convert(random.random(shape, dtype=np.float32)),
            "I": lambda n, high: convert(random.integers(0, high, n)),
        }
    )


def versions(framework: str) -> dict[str, str]:
    module = __import__(framework)
    return {"python": sys.version.split()[0], framework: module.__version__}


def main(framework: str, threads: int) -> None:
    timer = None
    for line in sys.stdin:
        request = json.loads(line)
        if "case" in request:
            timer = None  # frees the last case's arrays
            case, names = CASES[request["case"]], namespace(framework, threads)
            exec(case.setup, names)
            timer = timeit.Timer(case.snippet(framework), globals=names)
            timer.timeit(2)
            loops = 1
            while (seconds := timer.timeit(loops)) < TURN / 4:
                loops *= 4
            answer: dict[str, Any] = {"loops": max(1, round(loops * TURN / seconds))}
        elif "run" in request:
            assert timer is not None
            timer.timeit(1)  # the others ran since: warm the caches
            answer = {"seconds": timer.timeit(request["run"]) / request["run"]}
        else:
            answer = versions(framework)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
