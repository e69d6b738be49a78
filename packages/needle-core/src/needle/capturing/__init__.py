"""Capture: record a function once, replay it as a plan."""

from needle.capturing.captured import Captured, CaptureWarning, capture
from needle.capturing.plans import CapturedPlan
from needle_ndarray.extension import CaptureError

__all__ = ["CaptureError", "CaptureWarning", "Captured", "CapturedPlan", "capture"]
