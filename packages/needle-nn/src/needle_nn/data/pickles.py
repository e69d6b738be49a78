"""Read dicts, lists and integer arrays from a pickle, and nothing else.

A pickle is a program, and Python's unpickler runs it. CIFAR-10 needs little of that: this interpreter knows how to build dicts,
lists, tuples, strings, numbers and NumPy arrays of integers, refuses everything else by name, and calls nothing but the
functions below, which check every size against the bytes that are really there. Time and memory are bounded by the size
of the pickle: each opcode does work of a size that its own bytes pay for.
"""

import pickletools
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

_VALUES = set(
    """
    INT BININT BININT1 BININT2 LONG LONG1 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8
    BYTEARRAY8 UNICODE BINUNICODE SHORT_BINUNICODE
""".split()
)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
MAX_OPCODES = 300_000  # a file of CIFAR-10 has 30,000 to 120,000
_MAX_KEY = 2**32  # larger ints can be chosen so that all have one hash, and each looks at all before it
_MAX_AXES = 32
_DTYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")


class Refused(ValueError):
    """The pickle asks for more than it takes to hold arrays."""


def load_arrays(data: bytes, name: Any) -> Any:
    """What the pickle `data` holds; a ValueError that names `name` if it is damaged or asks for more than arrays.

    >>> import pickle, numpy as np
    >>> load_arrays(pickle.dumps({"a": np.arange(3)}), "example")
    {'a': array([0, 1, 2])}
    >>> load_arrays(pickle.dumps(print), "example")
    Traceback (most recent call last):
    ValueError: example: refused: the pickle asks for builtins.print; only arrays of integers are read
    """
    try:
        value = _run(data)
        return {k: _finished(v) for k, v in value.items()} if isinstance(value, dict) else _finished(value)
    except Refused as error:
        raise ValueError(f"{name}: refused: {error}; only arrays of integers are read") from None
    except (
        Exception
    ) as error:  # a damaged pickle may raise nearly anything: IndexError from an empty stack, KeyError, ...
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ValueError(f"{name}: damaged pickle: {reason}") from error


def _run(data: bytes) -> Any:
    """Execute the opcodes; the value on the stack at STOP. Long: it is the whole machine, a branch for each kind of opcode."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    budget = 2 * len(data)  # bytes that calls may make: the contents of an array, and before it those of its string

    def since_mark() -> list[Any]:
        at = marks.pop()
        values = stack[at:]
        del stack[at:]
        return values

    argument: Any
    for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        name = opcode.name
        if count == MAX_OPCODES:
            raise Refused(f"the pickle has more than {MAX_OPCODES} opcodes")
        if name in _VALUES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            memo[_small(argument)] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name == "MARK":
            marks.append(len(stack))
        elif name == "APPEND":
            value = stack.pop()
            _is(list, stack[-1]).append(value)
        elif name == "APPENDS":
            values = since_mark()
            _is(list, stack[-1]).extend(values)
        elif name in ("SETITEM", "SETITEMS", "DICT"):
            values = since_mark() if name != "SETITEM" else [stack.pop(-2), stack.pop()]
            if name == "DICT":
                stack.append({})
            _set_items(_is(dict, stack[-1]), values)
        elif name in ("EMPTY_LIST", "EMPTY_TUPLE", "EMPTY_DICT"):
            stack.append({"EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_DICT": dict}[name]())
        elif name in ("LIST", "TUPLE"):
            values = since_mark()
            stack.append(values if name == "LIST" else tuple(values))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            n = int(name[-1])
            stack[-n:] = [tuple(stack[-n:])]
        elif name == "GLOBAL":
            stack.append(_find(*argument.split(" ", 1)))
        elif name == "STACK_GLOBAL":
            attribute, module = _is(str, stack.pop()), _is(str, stack.pop())
            stack.append(_find(module, attribute))
        elif name == "REDUCE":
            arguments = _is(tuple, stack.pop())
            stack.append(_is(_Name, stack.pop()).function(*arguments))
            budget -= _made(stack[-1])
        elif name == "BUILD":
            state = _is(tuple, stack.pop())
            _is((_Array, _Dtype), stack[-1]).build(*state)
            budget -= _made(stack[-1])
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise Refused(f"the pickle uses the opcode {name}")
        if budget < 0:
            raise Refused(f"the arrays of a pickle of {len(data)} bytes have more of them")
    return stack.pop()


def _is(kind: Any, value: Any) -> Any:
    """`value`, if it is of this kind."""
    if not isinstance(value, kind):
        raise ValueError(f"found a {type(value).__name__} where it does not belong")
    return value


def _set_items(target: dict[Any, Any], values: list[Any]) -> None:
    for key, value in zip(values[::2], values[1::2], strict=True):
        key = _is((str, bytes, int), key)  # a nested tuple as key could take forever to hash
        target[_small(key) if isinstance(key, int) else key] = value


def _small(key: int) -> int:
    if not -_MAX_KEY < key < _MAX_KEY:
        raise Refused("the pickle has a key of more than 32 bits")
    return key


def _made(value: Any) -> int:
    """Bytes in what a call has made."""
    if isinstance(value, _Array):
        return 0 if value.value is None else value.value.nbytes
    return len(value) if isinstance(value, bytes) else 0


# ---- What stands for the names a pickle of arrays asks for ---------------------------------------------------


class _Dtype:
    """numpy.dtype: a code such as u1 or i8, and a byte order."""

    def __init__(self, code: Any, align: Any = False, copy: Any = False) -> None:
        code = _text(code)
        if code not in _DTYPES:
            raise Refused(f"the pickle holds an array of dtype {code[:20]!r}")
        self.code, self.order = code, "|"

    def build(self, version: Any, order: Any, *rest: Any) -> None:
        self.order = _text(order)
        if self.order not in ("<", ">", "|", "="):
            raise ValueError(f"a dtype of byte order {self.order[:20]!r}")


class _Array:
    """numpy.ndarray; holds nothing until it is built."""

    value: np.ndarray | None = None

    def build(self, version: Any, shape: Any, dtype: Any, fortran: Any, raw: Any) -> None:
        self.value = _from_buffer(raw, dtype, shape, "F" if fortran else "C").value


def _reconstruct(kind: Any, shape: Any, code: Any) -> _Array:
    return _Array()  # NumPy makes it empty, whatever the shape, and BUILD fills it


def _from_buffer(raw: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    raw = raw.encode("latin-1") if isinstance(raw, str) else _is((bytes, bytearray), raw)
    if len(_is(tuple, shape)) > _MAX_AXES:
        raise ValueError(f"an array of {len(shape)} axes")
    sizes = [_is(int, n) for n in shape]
    made = np.dtype(_is(_Dtype, dtype).order + dtype.code)
    if prod(sizes) * made.itemsize != len(raw):
        raise ValueError(f"an array of shape {tuple(sizes)} and dtype {made} with {len(raw)} bytes")
    array = _Array()
    array.value = np.frombuffer(raw, dtype=made).reshape(sizes, order="F" if order in ("F", b"F") else "C")
    return array


def _encode(text: Any, encoding: Any) -> bytes:
    """_codecs.encode: how Python 3 writes bytes in protocols that have none."""
    if _text(encoding) != "latin1":
        raise ValueError("bytes in an encoding other than latin1")
    return _is(str, text).encode("latin-1")


def _empty_bytes() -> bytes:
    """bytes(), which old protocols call for b""."""
    return b""


def _refuse(*arguments: Any) -> Any:
    """numpy.ndarray is only named, as an argument of _reconstruct."""
    raise Refused("the pickle calls numpy.ndarray")


class _Name:
    """A name the pickle may ask for, and what is called in its place."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


_NAMES = {
    "numpy.ndarray": _Name(_refuse),
    "numpy.dtype": _Name(_Dtype),
    "_codecs.encode": _Name(_encode),
    "builtins.bytes": _Name(_empty_bytes),
    "__builtin__.bytes": _Name(_empty_bytes),
    **{f"numpy.{core}.multiarray._reconstruct": _Name(_reconstruct) for core in ("core", "_core")},
    **{f"numpy.{core}.numeric._frombuffer": _Name(_from_buffer) for core in ("core", "_core")},
}


def _find(module: str, attribute: str) -> _Name:
    name = f"{module}.{attribute}"
    if name not in _NAMES:
        raise Refused(f"the pickle asks for {' '.join(name.split())[:100]}")
    return _NAMES[name]


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else _is(str, value)


def _finished(value: Any) -> Any:
    """An array for what stands for one."""
    if not isinstance(value, _Array):
        return value
    if value.value is None:
        raise ValueError("an array without contents")
    return value.value
