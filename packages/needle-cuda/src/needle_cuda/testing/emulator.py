"""The runtime of the emulation, as Python sees it: memory by address, kernels by name."""

import ctypes
import re
import struct
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from . import compiler
from .settings import CHOICES, settings

PINNED = 16  # the "device" of pinned host memory
INTEGER, FLOATING, POINTER, STRUCT = range(4)
SLOT = 16


class LaunchError(RuntimeError):
    """What a GPU would have done wrongly, or in silence."""


class _Parameter(ctypes.Structure):
    _fields_ = [("size", ctypes.c_int), ("kind", ctypes.c_int)]


class _Kernel(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("call", ctypes.c_void_p),
        ("parameters", ctypes.POINTER(_Parameter)),
        ("parameter_count", ctypes.c_int),
        ("parameter_names", ctypes.c_char_p),
        ("max_threads", ctypes.c_int),
        ("checked", ctypes.c_int),
    ]


@cache
def library() -> ctypes.PyDLL:
    """The runtime, compiled on first use. PyDLL keeps Python's lock: one launch or copy at a time."""
    loaded = ctypes.PyDLL(str(compiler.runtime_library()), mode=ctypes.RTLD_GLOBAL)
    address, size = ctypes.c_size_t, ctypes.c_size_t
    for name, result, arguments in [
        ("emulator_allocate", address, [ctypes.c_int, size]),
        ("emulator_release", ctypes.c_int, [address]),
        ("emulator_check_range", ctypes.c_char_p, [ctypes.c_int, address, size]),
        ("emulator_region_of", ctypes.c_int, [address]),
        ("emulator_configure", None, [ctypes.c_uint, ctypes.c_uint64]),
        ("emulator_poison", None, [address, size]),
        ("emulator_switches", ctypes.c_uint64, []),
        ("emulator_shared_size", size, []),
        (
            "emulator_launch",
            ctypes.c_char_p,
            [ctypes.c_void_p, *[ctypes.c_uint] * 6, size, ctypes.c_void_p, ctypes.c_int],
        ),
    ]:
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


_configured: tuple[str, int] | None = None


def _configure() -> None:
    global _configured
    library().emulator_configure(CHOICES["order"].index(settings.order), settings.seed)
    _configured = (settings.order, settings.seed)


class Parameter:
    """How one parameter of a kernel takes its argument."""

    def __init__(self, name: str, size: int, kind: int):
        self.name, self.size, self.kind = name, size, kind
        code = {INTEGER: {1: "b", 2: "h", 4: "i", 8: "q"}, FLOATING: {4: "f", 8: "d"}, POINTER: {8: "Q"}}.get(kind, {})
        self.format = code.get(size, f"{size}s") + f"{-size % SLOT}x"

    def describe(self) -> str:
        return f"{('an integer', 'a float', 'a pointer', 'a struct')[self.kind]} of {self.size} bytes"


class Launchable:
    """A compiled kernel: packs arguments, starts, and turns what went wrong into an error with its name."""

    def __init__(self, row: _Kernel, path: Path):
        self.name, self.path = row.name.decode(), path
        names = row.parameter_names.decode().split(",")
        self.address = ctypes.addressof(row)
        self.max_threads = row.max_threads
        self.parameters = [
            Parameter(names[i], row.parameters[i].size, row.parameters[i].kind) for i in range(row.parameter_count)
        ]
        self.layout = struct.Struct("=" + "".join(parameter.format for parameter in self.parameters))
        self.shared_size = 0
        self._takes: dict[tuple[int, type], Callable] = {}

    def pack(self, arguments: Sequence[object], pointer_of: Callable[[object], int | None]) -> bytes:
        """The arguments as the runtime wants them; refuses a number, kind or width that the kernel does not have."""
        if len(arguments) != len(self.parameters):
            names = ", ".join(parameter.name for parameter in self.parameters)
            raise TypeError(
                f"{self.name}: {len(arguments)} arguments given, the kernel takes {len(self.parameters)}: {names}"
            )
        takes, values = self._takes, []
        for position, argument in enumerate(arguments):
            take = takes.get((position, type(argument)))
            if take is None:
                take = self._choose(self.parameters[position], argument, pointer_of)
                takes[position, type(argument)] = take
            values.append(take(argument))
        return self.layout.pack(*values)

    def _choose(self, parameter: Parameter, argument: object, pointer_of: Callable) -> Callable[[object], object]:
        """How arguments of this type go into this parameter: a function that gives what `struct` packs."""

        def refuse(what: str) -> TypeError:
            return TypeError(f"{self.name}: parameter {parameter.name} is {parameter.describe()}, the argument {what}")

        if argument is None or pointer_of(argument) is not None:
            if parameter.kind != POINTER:
                raise refuse(f"is a pointer ({type(argument).__name__})")
            return pointer_of if argument is not None else lambda _: 0
        if isinstance(argument, np.ndarray):
            return lambda array: self._by_value(parameter, array, refuse)  # type: ignore[arg-type]
        kinds = {bool: (INTEGER, 1), int: (INTEGER, 8), float: (FLOATING, 8)}
        if type(argument) in kinds:
            kind, size = kinds[type(argument)]
        elif isinstance(argument, np.generic) and argument.dtype.kind in "biuf":
            kind, size = (FLOATING if argument.dtype.kind == "f" else INTEGER), argument.dtype.itemsize
        else:
            raise refuse(f"has a type that cupy does not pass to a kernel ({type(argument).__name__})")
        if size != parameter.size or (kind == FLOATING) != (parameter.kind == FLOATING) or parameter.kind == STRUCT:
            raise refuse(f"has {size} bytes ({type(argument).__name__})")
        if parameter.kind == FLOATING:
            return float  # type: ignore[return-value]
        if parameter.kind == POINTER:
            return lambda value: int(value) % 2**64  # type: ignore[call-overload]
        if not isinstance(argument, np.unsignedinteger):
            return int  # type: ignore[return-value]
        bits = 8 * size  # `struct` is told that all integers are signed
        return lambda value: (int(value) + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)  # type: ignore[call-overload]

    @staticmethod
    def _by_value(parameter: Parameter, array: np.ndarray, refuse: Callable[[str], TypeError]) -> object:
        if array.size != 1:
            raise refuse(f"is a NumPy array of shape {array.shape}: only one of size 1 is passed, by value")
        if array.nbytes != parameter.size or parameter.kind == POINTER:
            raise refuse(f"has {array.nbytes} bytes ({array.dtype})")
        data = array.tobytes()
        return (
            data if parameter.kind == STRUCT else struct.unpack("=" + parameter.format.rstrip("0123456789x"), data)[0]
        )

    def start(self, grid: Sequence[int], block: Sequence[int], packed: bytes, shared: int, device: int) -> None:
        runtime = library()
        if _configured != (settings.order, settings.seed):
            _configure()
        message = runtime.emulator_launch(self.address, *grid, *block, shared, packed, device)
        if message is not None:
            raise LaunchError(f"{self.name}: {self._named(message.decode())}")
        self.shared_size = max(self.shared_size, runtime.emulator_shared_size())

    def _named(self, message: str) -> str:
        """Numbers of parameters become their names, addresses of instructions lines of the text."""
        message = re.sub(
            r"\{parameter (\d+)\}", lambda match: f"parameter {self.parameters[int(match[1])].name}", message
        )
        return re.sub(r"\{at (\w+)\}", lambda match: compiler.line_of(self.path, match[1]), message)


def load(code: str, options: Sequence[str]) -> dict[str, Launchable]:
    """The kernels of a module by name."""
    library()
    path = compiler.kernel_library(code, options, settings.checks == "accesses")
    module = ctypes.CDLL(str(path))
    first = ctypes.addressof(_Kernel.in_dll(module, "needle_kernels"))
    kernels: dict[str, Launchable] = {}
    row = _Kernel.from_address(first)
    while row.name:
        kernels[row.name.decode()] = Launchable(row, path)
        row = _Kernel.from_address(first + len(kernels) * ctypes.sizeof(_Kernel))
    return kernels
