"""A language model behind a small page and a JSON endpoint, for this machine alone."""

from needle_nn.serving.requests import Limits, Refused, Request, parse
from needle_nn.serving.server import Server

__all__ = ["Limits", "Refused", "Request", "Server", "parse"]
