"""Pieces of the page that a run leaves behind: markup, charts, pictures."""
