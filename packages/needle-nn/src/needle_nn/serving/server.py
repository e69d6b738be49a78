"""The server: http.server with a thread for each client, and one generation at a time.

Clients wait in the order in which they came. A client that leaves ends its generation at the next token, and so does the time
limit. Only this machine is served, and only under its own name: a page from elsewhere that a browser shows cannot ask.
"""

import base64
import contextlib
import hashlib
import io
import itertools
import json
import re
import select
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

from needle_nn.serving.requests import Limits, Refused, Request, parse

_NAMES = {"127.0.0.1", "localhost"}
_PATHS = {"/": ("GET", "HEAD"), "/generate": ("POST",)}


class Gone(Exception):
    """The client has left, or the server stops."""


class Turns:
    """One at a time, in the order in which they came."""

    def __init__(self) -> None:
        self._line: deque[object] = deque()
        self._moved = threading.Condition()

    @contextlib.contextmanager
    def taken(self, check: Callable[[], None]) -> Generator[None, None, None]:
        """A turn; `check` is called now and then while others have theirs, and may raise."""
        place = object()
        try:
            with self._moved:
                self._line.append(place)
            while not self._first(place):
                check()
            yield
        finally:
            with self._moved:
                self._line.remove(place)
                self._moved.notify_all()

    def _first(self, place: object) -> bool:
        with self._moved:
            return self._moved.wait_for(lambda: self._line[0] is place, 0.2)

    def over(self, seconds: float) -> None:
        """Wait until nobody has one, for so long at most."""
        with self._moved:
            self._moved.wait_for(lambda: not self._line, seconds)


class Timed(io.RawIOBase):
    """What comes from a client, which has so many seconds for all of it."""

    def __init__(self, client: socket.socket, seconds: float) -> None:
        self.client, self.seconds, self.end = client, seconds, time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.client.settimeout(left)
        try:
            return self.client.recv_into(buffer)
        finally:
            self.client.settimeout(self.seconds)


class Server(ThreadingHTTPServer):
    """Serve what a writer writes, on a port of 127.0.0.1; port 0 takes a free one.

    Parameters
    ----------
    writer : with `stream(prompt, max_new_tokens, stop=, seed=, ...)`, as `needle_nn.generation.Writer` has it
    title : shown on the page
    quiet : write no line for each request to standard error
    """

    daemon_threads = True
    request_queue_size = 256
    allow_reuse_address = True

    def __init__(
        self, writer: Any, port: int = 8000, title: str = "", limits: Limits | None = None, quiet: bool = False
    ) -> None:
        self.writer, self.title, self.limits, self.quiet = writer, title, limits or Limits(), quiet
        self.turns, self.stopping = Turns(), threading.Event()
        self._places = threading.BoundedSemaphore(self.limits.requests)
        self.page, self.policy = _page(title, self.limits)
        super().__init__(("127.0.0.1", port), Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for a client, or 503 where there are too many."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with contextlib.suppress(OSError):
            body = json.dumps({"error": f"busy with {self.limits.requests} requests"}).encode()
            request.sendall(
                b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
            )
            read_rest(request, 0.1)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, (OSError, Gone)) and not self.quiet:
            print(f"needle serve: {type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)

    def server_close(self) -> None:
        """End what is being written at its next token."""
        self.stopping.set()
        super().server_close()
        self.turns.over(5)

    def pieces(self, asked: Request, client: socket.socket) -> Generator[str, None, None]:
        """What the writer writes, piece by piece, once it is this client's turn; Gone where nobody waits for it."""
        with self.turns.taken(lambda: self.check(client)):
            end = time.monotonic() + self.limits.seconds
            stream = self.writer.stream(
                asked.prompt, asked.max_new_tokens, stop=asked.stop, seed=asked.seed, **asked.sampling
            )
            with contextlib.closing(stream):
                for piece in stream:
                    self.check(client)
                    yield piece
                    if time.monotonic() > end:
                        return

    def check(self, client: socket.socket) -> None:
        """Raise Gone unless the client is there and the server goes on; what it sends beyond its request is dropped."""
        for _ in range(16):
            if not select.select([client], [], [], 0)[0]:
                break
            if not client.recv(65536):
                raise Gone
        if self.stopping.is_set():
            raise Gone


class Handler(BaseHTTPRequestHandler):
    """GET / for the page, POST /generate for text."""

    server: Server
    server_version, sys_version = "needle", ""
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        self.timeout = self.server.limits.silence  # type: ignore[misc]  # of the socket, as http.server has it
        super().setup()
        self.rfile = io.BufferedReader(Timed(self.connection, self.server.limits.silence))

    def do_GET(self) -> None:
        self._answer(self._page)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self._answer(lambda: self._write(self._asked()))

    def _answer(self, act: Callable[[], None]) -> None:
        try:
            self._check_sender()
            methods = _PATHS.get(self.path)
            if methods is None:
                raise Refused(f"{self.path[:80]}: not there; / is the page, POST /generate writes", 404)
            if self.command not in methods:
                raise Refused(f"{self.path}: {self.command} is not for it, expected {' or '.join(methods)}", 405)
            act()
        except Refused as refused:
            self._error(refused)

    def _page(self) -> None:
        self._head(200, "text/html; charset=utf-8", len(self.server.page))
        self._body(self.server.page)

    def _check_sender(self) -> None:
        """A name that leads here, but is not this machine's, is a page from elsewhere that tries to ask; so is another origin."""
        name, _, port = self.headers.get("Host", "").lower().partition(":")
        if name not in _NAMES:
            raise Refused("the Host header does not name this machine; use 127.0.0.1 or localhost", 403)
        origin = self.headers.get("Origin")
        if origin is not None and origin.lower() != f"http://{name}" + (f":{port}" if port else ""):
            raise Refused("the Origin header names another page than this server's", 403)

    def _asked(self) -> Request:
        if self.headers.get_content_type() != "application/json":
            raise Refused("expected Content-Type: application/json", 415)
        lengths = self.headers.get_all("Content-Length", [])
        length = lengths[0] if len(set(lengths)) == 1 and "Transfer-Encoding" not in self.headers else ""
        if not re.fullmatch(r"[0-9]{1,18}", length):
            raise Refused("expected a Content-Length", 411)
        if int(length) > self.server.limits.size:
            raise Refused(f"a body of {length} bytes, at most {self.server.limits.size} are read", 413)
        try:
            content = self.rfile.read(int(length))
        except TimeoutError:
            raise Refused(f"the body did not come within {self.server.limits.silence:g} s", 408) from None
        if len(content) < int(length):
            raise Refused(f"the body ends after {len(content)} bytes of {length}")
        return parse(content, self.server.limits)

    def _write(self, asked: Request) -> None:
        """The answer: {"text": all} once it is there, or lines of JSON {"text": piece} and {"done": true} as they come."""
        with contextlib.closing(self._pieces(asked)) as pieces:
            first = next(pieces, "")
            if not asked.stream:
                body = json.dumps({"text": first + "".join(pieces)}).encode()
                self._head(200, "application/json", len(body))
                self._body(body)
                return
            self._head(200, "application/x-ndjson")
            try:
                for piece in itertools.chain([first], pieces):
                    if piece:
                        self._line({"text": piece})
                self._line({"done": True})
            except Refused as refused:  # too late for a status
                self._line({"error": str(refused)})

    def _pieces(self, asked: Request) -> Generator[str, None, None]:
        """What is written; an error of the model, or of a prompt that the tokenizer does not know, as Refused."""
        with contextlib.closing(self.server.pieces(asked, self.connection)) as pieces:
            try:
                yield from pieces
            except ValueError as error:
                raise Refused(" ".join(str(error).split())) from None
            except (Gone, OSError):
                raise
            except Exception as error:
                told = f"{type(error).__name__}: {' '.join(str(error).split())}"
                raise Refused(f"the model has failed: {told}", 500) from error

    def _line(self, value: Any) -> None:
        self._body(json.dumps(value).encode() + b"\n")

    def _body(self, content: bytes) -> None:
        if self.command != "HEAD":
            self.wfile.write(content)

    def _error(self, refused: Refused) -> None:
        body = json.dumps({"error": str(refused)}).encode()
        allowed = _PATHS.get(getattr(self, "path", ""), ())
        self._head(refused.status, "application/json", len(body), allowed if refused.status == 405 else ())
        self._body(body)
        read_rest(self.connection, 1.0)

    def _head(self, status: int, kind: str, length: int | None = None, allowed: tuple[str, ...] = ()) -> None:
        """A status and headers; every answer ends its connection."""
        self.close_connection = True
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Connection": "close",
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": self.server.policy,
        }
        if length is not None:
            headers["Content-Length"] = str(length)
        if allowed:
            headers["Allow"] = ", ".join(allowed)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server itself refuses: a request line or headers that are none, or another method."""
        if code == 501:
            self._answer(lambda: None)  # which says what is allowed
            return
        self._error(Refused((message or self.responses.get(code, ("refused", ""))[0])[:200], code))

    def log_message(self, format: str, *args: Any) -> None:
        if not self.server.quiet:
            text = (format % args)[:200].encode("ascii", "backslashreplace").decode()
            sys.stderr.write("".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text) + "\n")


def read_rest(client: socket.socket, seconds: float) -> None:
    """Read what a client still sends, for a while: a connection closed before that may take the answer with it."""
    end = time.monotonic() + seconds
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_WR)
        while (left := end - time.monotonic()) > 0:
            client.settimeout(left)
            if not client.recv(65536):
                return


def _page(title: str, limits: Limits) -> tuple[bytes, str]:
    """The page, and the policy that lets it run its own script and nothing else."""
    text = (files(__package__) / "page.html").read_text()
    name = title.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    numbers = {"$TOKENS": limits.tokens, "$LENGTH": limits.usual}
    inline = {
        tag: base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
        for tag in ("script", "style")
        if (found := re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL))
    }
    policy = "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    policy += "; ".join(f"{tag}-src 'sha256-{digest}'" for tag, digest in inline.items())
    for mark, number in numbers.items():
        text = text.replace(mark, str(number))
    return text.replace("$TITLE", name).encode(), policy
