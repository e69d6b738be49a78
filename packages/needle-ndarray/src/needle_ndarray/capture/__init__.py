"""Record the verbs that a function asks for, and run them again as a plan. `needle.capture` is what users call."""

from needle_ndarray.capture.verbs import ARGUMENTS  # first: the compiled replay needs it

from needle_ndarray.capture.calls import CaptureError  # isort: skip
from needle_ndarray.capture.lines import place_in_library  # isort: skip
from needle_ndarray.capture.passes import PASSES  # isort: skip
from needle_ndarray.capture.plan import Plan  # isort: skip
from needle_ndarray.capture.recorder import Recorder, Watched  # isort: skip
from needle_ndarray.capture.tape import active_recorder, again, depends, reading, repeat  # isort: skip

__all__ = [
    "ARGUMENTS",
    "PASSES",
    "CaptureError",
    "Plan",
    "Recorder",
    "Watched",
    "active_recorder",
    "again",
    "depends",
    "place_in_library",
    "reading",
    "repeat",
]
