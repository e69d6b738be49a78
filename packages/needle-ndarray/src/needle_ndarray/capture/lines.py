"""Whose code it is: the user's lines, and the library's."""

import os.path
import sys

#: Packages whose code is not the user's.
PACKAGES = ("needle_ndarray", "needle", "needle_nn", "needle_cuda")
#: Functions through which values that the user gives go to a device.
CONSTRUCTORS = {"array", "asarray", "astype", "from_numpy", "from_dlpack", "tensor", "to_array", "as_constant"}
_places: dict[str, tuple[str, ...]] = {}


def place_in_library(filename: str) -> tuple[str, ...]:
    """("needle_nn", "nn", "basic.py") for a file of ours; () for any other."""
    place = _places.get(filename)
    if place is None:
        folders = [
            (name, os.path.dirname(sys.modules[name].__file__ or "")) for name in PACKAGES if name in sys.modules
        ]
        inside = [(name, filename[len(folder) :]) for name, folder in folders if filename.startswith(folder + os.sep)]
        place = _places[filename] = (inside[0][0], *inside[0][1].split(os.sep)[1:]) if inside else ()
    return place


def made_by_user() -> bool:
    """Whether the values that go to a device come from the user's own line, through nothing but constructors."""
    frame = sys._getframe(1)
    folder = os.path.dirname(__file__)
    own = folder, os.path.join(os.path.dirname(folder), "listening.py")
    while frame.f_back is not None:
        name = frame.f_code.co_filename
        if not name.startswith(own) and frame.f_code.co_name not in CONSTRUCTORS:
            return not place_in_library(name)
        frame = frame.f_back
    return True
