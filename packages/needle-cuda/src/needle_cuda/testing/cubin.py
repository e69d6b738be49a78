"""What a cubin says of its kernels: registers, stack, shared memory. A cubin is an ELF file, and this reads it without tools."""

import struct
from typing import NamedTuple

# Attributes of section .nv.info, by which ptxas tells the driver what a kernel needs
_REGISTERS, _FRAME = 0x2F, 0x11
_RESERVED = 1024  # bytes of shared memory that the system has of each block, where section .nv.shared.reserved.0 is
_VALUE_IN_FILE = 4  # format of an attribute: two bytes of size and that many of value


class Resources(NamedTuple):
    registers: int  # of a thread
    stack: (
        int  # bytes of local memory of a thread: spilled registers, or arrays with an index the compiler does not know
    )
    shared: int  # bytes of a block, without dynamic shared memory


class _Section(NamedTuple):
    name: str
    kind: int
    size: int
    link: int
    data: bytes


def _sections(cubin: bytes) -> list[_Section]:
    if cubin[:5] != b"\x7fELF\x02":
        raise ValueError(f"no cubin: it starts with {cubin[:5]!r}, not with a 64-bit ELF header")
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    rows = [struct.unpack_from("<IIQQQQII", cubin, table + i * size) for i in range(count)]
    strings = rows[names][4]
    found = []
    for name, kind, _, _, offset, length, link, _ in rows:
        start = strings + name
        text = cubin[start : cubin.index(b"\0", start)].decode()
        data = b"" if kind == 8 else cubin[offset : offset + length]  # 8: memory that the file does not hold
        found.append(_Section(text, kind, length, link, data))
    return found


def _symbols(sections: list[_Section]) -> list[str]:
    (table,) = (section for section in sections if section.kind == 2)
    strings = sections[table.link].data
    found = []
    for at in range(0, table.size, 24):
        (name,) = struct.unpack_from("<I", table.data, at)
        found.append(strings[name : strings.index(b"\0", name)].decode())
    return found


def _attributes(data: bytes) -> list[tuple[int, bytes]]:
    at, found = 0, []
    while at + 4 <= len(data):
        kind, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if kind == _VALUE_IN_FILE:
            found.append((attribute, data[at : at + size]))
            at += size
    return found


def resources(cubin: bytes) -> dict[str, Resources]:
    """What each kernel of a cubin needs."""
    sections = _sections(cubin)
    symbols = _symbols(sections)
    shared = {s.name.removeprefix(".nv.shared."): s.size for s in sections if s.name.startswith(".nv.shared.")}
    if "reserved.0" in shared:
        shared = {name: size - _RESERVED for name, size in shared.items()}
    registers: dict[str, int] = {}
    stack: dict[str, int] = {}
    for section in sections:
        if section.name == ".nv.info":
            for attribute, value in _attributes(section.data):
                if attribute in (_REGISTERS, _FRAME):
                    symbol, number = struct.unpack("<II", value)
                    (registers if attribute == _REGISTERS else stack)[symbols[symbol]] = number
    kernels = [section.name.removeprefix(".text.") for section in sections if section.name.startswith(".text.")]
    return {name: Resources(registers[name], stack.get(name, 0), shared.get(name, 0)) for name in kernels}
