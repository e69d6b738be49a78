"""Run as ranks: many collective calls, and rank 1 fails in the way that the first argument says."""

import os
import random
import signal
import sys
import threading
import time

how, seed = sys.argv[1], int(os.environ.get("NEEDLE_TEST_SEED", "0"))
me = next((int(os.environ[name]) for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK") if name in os.environ), 0)
again = os.environ.get("NEEDLE_RESTART", "0") != "0"
if how == "kill at start" and me == 1:
    os.kill(os.getpid(), signal.SIGKILL)

import needle.distributed as dist  # noqa: E402
import needle_ndarray as nd  # noqa: E402

world = dist.init()
late = 150 if how.startswith("late") else 20  # calls, of which the first 100 are compared
if how == "kill at random" and not again:
    chance = random.Random(seed)
    victim, moment = chance.randrange(world.size), 0.3 * chance.random()
    if world.rank == victim:
        timer = threading.Timer(moment, os.kill, (os.getpid(), signal.SIGKILL))
        timer.daemon = True
        timer.start()

endless = how == "kill at random" and not again
step = 0
while endless or step < late:
    world.step = step
    world.all_reduce(nd.ones((1000 if step % 2 else 100_000,)))
    step += 1

now = time.time()
if world.rank == 1:
    print(f"fails {now}", flush=True)
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "exception":
        raise ValueError("a mistake in the program")
    elif how == "memory":
        raise MemoryError
    elif how == "exit":
        sys.exit(3)
    elif how == "sleep":
        if len(sys.argv) > 2:
            open(sys.argv[2], "x").close()
        time.sleep(1000)
    elif how == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif how in ("leaves", "late leaves"):
        sys.exit(0)
    elif how in ("order", "late order"):
        world.barrier()
    elif how == "shape":
        world.all_reduce(nd.ones((4, 2)))
    elif how == "late shape":
        world.all_reduce(nd.ones((5,)))
    elif how == "dtype":
        world.all_reduce(nd.ones((4, 3), "float64"))
    elif how == "op":
        world.all_reduce(nd.ones((4, 3)), "max")
    elif how == "root":
        world.broadcast(nd.ones((4, 3)), 1)
    elif how == "message":
        world.send(nd.ones((3,)), 0)
    elif how == "not received":
        world.send(nd.ones((3_000_000,)), 0)
elif how == "root":
    world.broadcast(nd.ones((4, 3)), 0)
elif how in ("message", "no message") and world.rank == 0:
    world.recv((4,), "float32", 1)
if how in ("no message", "not received"):
    sys.exit(0)
if how == "stop at the end":
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    sys.exit(0)
if how not in ("nothing", "kill at random"):
    world.all_reduce(nd.ones((4, 3)))
world.barrier()
print("done", world.rank, os.environ.get("NEEDLE_RESTART"), os.environ["NEEDLE_NUM_THREADS"])
