"""An op that is in the table but has no kernel: the cpu backend does not load, instead of computing something else."""

import subprocess
import sys

import pytest

from needle_ndarray.backend import TABLES

NEW_OP = """
from needle_ndarray.backend import TABLES, Op
TABLES[{table!r}]["new"] = Op("new", {code}, {accepts!r}, {result!r})
import needle_ndarray.cpu_backend
"""


def after_the_last(table):
    return max(op.code for op in TABLES[table].values()) + 1


#: A row of the table that no loop of the CPU serves, and what is named as missing.
MISSING = {
    "unary": ("unary", after_the_last("unary"), "float", "same", "new of float32: no loop in kernels/ewise.pyx"),
    "unary of any dtype": (
        "unary",
        after_the_last("unary"),
        "any",
        "same",
        "new of bool: no loop in kernels/ewise.pyx",
    ),
    "unary to bool": ("unary", after_the_last("unary"), "any", "bool", "new of bool: no loop in kernels/ewise.pyx"),
    "binary": ("binary", after_the_last("binary"), "float", "same", "new of float32: no loop in kernels/ewise.pyx"),
    "binary of integers": ("binary", after_the_last("binary"), "integer", "same", "new of bool: no loop"),
    "binary to bool": ("binary", after_the_last("binary"), "any", "bool", "new of bool: no loop in kernels/ewise.pyx"),
    "a dtype too many": ("unary", TABLES["unary"]["sqrt"].code, "any", "same", "new of bool: no loop"),
    "a float too many": ("unary", TABLES["unary"]["invert"].code, "number", "same", "new of float32: no loop"),
    "an integer too many": ("binary", TABLES["binary"]["divide"].code, "number", "same", "new of uint8: no loop"),
    "another result": ("binary", TABLES["binary"]["less"].code, "any", "same", "new of bool: no loop"),
    "reduce": ("reduce", after_the_last("reduce"), "any", "sum", "new: no loop in kernels/reduce.pyx"),
    "arg_reduce": ("arg_reduce", after_the_last("arg_reduce"), "any", "index", "new: no loop in kernels/scan.pyx"),
    "scan": ("scan", after_the_last("scan"), "any", "sum", "new: no loop in kernels/scan.pyx"),
    "random": ("random", after_the_last("random"), "float", "same", "new: no loop in kernels/random.pyx"),
}


@pytest.mark.parametrize("row", MISSING.values(), ids=MISSING)
def test_the_cpu_backend_refuses_it(row):
    table, code, accepts, result, message = row
    program = NEW_OP.format(table=table, code=code, accepts=accepts, result=result)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert f"NotImplementedError: cpu backend: {message}" in done.stderr


def test_an_op_with_a_loop_is_taken():
    """The same row with the code of an op that has all of its loops: nothing else in the program fails."""
    program = NEW_OP.format(table="unary", code=TABLES["unary"]["floor"].code, accepts="any", result="same")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
