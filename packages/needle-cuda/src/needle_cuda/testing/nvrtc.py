"""Compiles kernels with NVRTC, which needs cupy and the library but no driver and no GPU."""

from collections.abc import Sequence

ARCHITECTURES = ("sm_75", "sm_80", "sm_90")  # Turing, Ampere, Hopper


class NVRTCError(Exception):
    """The compiler's message."""


def compile_cubin(code: str, options: Sequence[str], architecture: str, name: str = "needle.cu") -> bytes:
    """The machine code of a module for one architecture."""
    from cupy.cuda import nvrtc

    program = nvrtc.createProgram(code, name, (), ())
    try:
        try:
            nvrtc.compileProgram(program, (*options, f"-arch={architecture}"))
        except nvrtc.NVRTCError as error:
            raise NVRTCError(f"{error}\n{nvrtc.getProgramLog(program)}") from None
        return nvrtc.getCUBIN(program)
    finally:
        nvrtc.destroyProgram(program)
