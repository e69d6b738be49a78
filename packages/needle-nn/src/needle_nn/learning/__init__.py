"""The course: six chapters with exercises, and checks that a machine runs on the student's file; the command `needle learn`.

A chapter is a folder: `text.md` (also a page of the documentation), what the student starts from (`start.*`), a solution made of
Needle's own code (`solution.*`) and the checks (`checks.py`).
"""

from .catalogue import CHAPTERS, Chapter, chapter
from .checking import Result, check_file

__all__ = ["CHAPTERS", "Chapter", "Result", "chapter", "check_file"]
