"""The server: what it answers, whom it refuses, clients that wait, leave or dawdle, and its end."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest

from needle_nn.checkpoint import save
from needle_nn.command.main import main
from needle_nn.generation import ByteTokenizer, Writer
from needle_nn.interop import to_torch
from needle_nn.models import GPT2
from needle_nn.serving import Limits, Server
from needle_nn.serving.server import Turns


class Counting:
    """Writes "0 1 2 ..." as slowly as it is told."""

    def __init__(self, delay=0.0):
        self.delay, self.running, self.most, self.written = delay, 0, 0, 0

    def stream(self, prompt, max_new_tokens, stop=(), seed=None, **sampling):
        if prompt == "unknown":
            raise ValueError("'Ж' is not\nin the vocabulary")
        if prompt == "broken":
            raise IndexError("no\nsuch row")
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            for i in range(max_new_tokens):
                if prompt == "ends badly" and i == 2:
                    raise MemoryError("no room")
                time.sleep(self.delay)
                self.written += 1
                yield f"{i} "
        finally:
            self.running -= 1


@contextlib.contextmanager
def serving(writer, **limits):
    server = Server(writer, 0, "a <title>", Limits(**limits), quiet=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def ask(server, body=None, path="generate", timeout=20, **headers):
    """(status, JSON or text) of an answer."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    request = urllib.request.Request(server.address + path, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            status, content, kind = answer.status, answer.read(), answer.headers.get_content_type()
    except urllib.error.HTTPError as error:
        status, content, kind = error.code, error.read(), error.headers.get_content_type()
    return status, json.loads(content) if kind == "application/json" else content.decode()


@pytest.fixture(scope="module")
def server():
    with serving(Counting(), tokens=50, size=2000, silence=0.5) as made:
        yield made


def test_text(server):
    assert ask(server, {"prompt": "x", "max_new_tokens": 3}) == (200, {"text": "0 1 2 "})
    status, lines = ask(server, {"prompt": "x", "max_new_tokens": 2, "stream": True})
    assert (status, [json.loads(line) for line in lines.splitlines()]) == (
        200,
        [{"text": "0 "}, {"text": "1 "}, {"done": True}],
    )


def test_a_model(tmp_path):
    np.random.seed(0)  # noqa: NPY002
    writer = Writer(GPT2(256, 16, 16, 1, 2), ByteTokenizer())
    with serving(writer) as server:
        asked = {
            "prompt": "Once",
            "max_new_tokens": 40,
            "seed": 3,
            "top_k": 20,
            "top_p": 0.9,
            "repetition_penalty": 1.1,
        }
        settings = {"seed": 3, "temperature": 0.8, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.1}
        assert ask(server, asked) == (200, {"text": writer.write(["Once"], 40, **settings)[0]})
        assert ask(server, {"prompt": ""})[0] == 400


def test_the_page(server):
    status, page = ask(server, path="")
    assert status == 200 and page.count("a &lt;title>") == 2 and "$" not in page.split("<script>")[0]
    with urllib.request.urlopen(server.address) as answer:
        policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and policy.count("sha256-") == 2


#: what is sent, and the answer
REFUSED = {
    "no JSON": (b"{", {}, 400, "no JSON"),
    "deep": (b"[" * 1900, {}, 400, "no JSON"),
    "no UTF-8": (b"\xff\xfe\xfd", {}, 400, "no JSON"),
    "a list": ([], {}, 400, "the body is a list"),
    "no prompt": ({}, {}, 400, "prompt: expected a text"),
    "a number": ({"prompt": 1}, {}, 400, "prompt: expected a text"),
    "another setting": ({"prompt": "x", "max_tokens": 1}, {}, 400, "max_tokens: no such setting; known are prompt"),
    "no tokens": ({"prompt": "x", "max_new_tokens": 0}, {}, 400, "max_new_tokens 0: expected an int from 1 to 50"),
    "too many tokens": ({"prompt": "x", "max_new_tokens": 51}, {}, 400, "max_new_tokens 51: expected an int from 1 to 50"),
    "true tokens": ({"prompt": "x", "max_new_tokens": True}, {}, 400, "max_new_tokens True"),
    "seed": ({"prompt": "x", "seed": -1}, {}, 400, "seed -1: expected an int of 0 or more"),
    "temperature": ({"prompt": "x", "temperature": "hot"}, {}, 400, "temperature 'hot': expected 0 or more"),
    "temperature, infinite": (b'{"prompt": "x", "temperature": Infinity}', {}, 400, "temperature inf: expected 0 or more"),
    "top_p": ({"prompt": "x", "top_p": 0}, {}, 400, "top_p 0: expected above 0"),
    "stop": ({"prompt": "x", "stop": [""]}, {}, 400, "stop strings: expected a list of texts"),
    "stops": ({"prompt": "x", "stop": ["x"] * 17}, {}, 400, "16 texts at most"),
    "stream": ({"prompt": "x", "stream": 1}, {}, 400, "stream: expected true or false"),
    "prompt of other characters": ({"prompt": "unknown"}, {}, 400, "'Ж' is not in the vocabulary"),
    "large": (b" " * 2001, {}, 413, "a body of 2001 bytes, at most 2000 are read"),
    "very large": (b" " * 5_000_000, {}, 413, "a body of 5000000 bytes, at most 2000 are read"),
    "a form": (b"prompt=x", {"Content_Type": "application/x-www-form-urlencoded"}, 415, "expected Content-Type"),
    "elsewhere": ({"prompt": "x"}, {"path": "other"}, 404, "/other: not there"),
    "a page elsewhere": (None, {"path": "etc/passwd"}, 404, "/etc/passwd: not there"),
    "another name": ({"prompt": "x"}, {"Host": "example.org"}, 403, "does not name this machine"),
    "a page under another name": (None, {"path": "", "Host": "example.org:80"}, 403, "does not name this machine"),
    "another origin": ({"prompt": "x"}, {"Origin": "http://example.org"}, 403, "the Origin header names another page"),
    "no origin": ({"prompt": "x"}, {"Origin": "null"}, 403, "the Origin header names another page"),
    "another port": ({"prompt": "x"}, {"Origin": "http://localhost:1"}, 403, "the Origin header names another page"),
    "the page's path": ({"prompt": "x"}, {"path": ""}, 405, "/: POST is not for it, expected GET or HEAD"),
    "text's path": (None, {"path": "generate"}, 405, "/generate: GET is not for it, expected POST"),
    "a temperature beyond floats": (b'{"prompt": "x", "temperature": 1' + b"0" * 400 + b"}", {}, 400, "expected 0 or more"),
    "a penalty beyond floats": (b'{"prompt": "x", "repetition_penalty": 1' + b"0" * 400 + b"}", {}, 400, "expected above 0"),
    "a number too long to read": (b'{"prompt": "x", "seed": 1' + b"0" * 1900 + b"}", {}, 400, "seed 1000"),
    "a model that fails": ({"prompt": "broken"}, {}, 500, "the model has failed: IndexError: no such row"),
    "a model that fails later": ({"prompt": "ends badly"}, {}, 500, "the model has failed: MemoryError: no room"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(server, case):
    body, how, status, message = REFUSED[case]
    found, answer = ask(server, body, **how)
    assert found == status and message in answer["error"] and "\n" not in answer["error"]


#: bytes as they are sent, and how the answer begins
RAW = {
    "no length": (
        b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\r\n",
        b"HTTP/1.1 411",
    ),
    "length of letters": (
        b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 411",
    ),
    "half a body": (
        b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{",
        b"HTTP/1.1 408",
    ),
    "another method": (b"DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 405"),
    "another method elsewhere": (b"DELETE /x HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 404"),
    "in chunks": (
        b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 3\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 411",
    ),
    "two lengths": (
        b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 3\r\n"
        b"Content-Length: 4\r\n\r\nabcd",
        b"HTTP/1.1 411",
    ),
    "a name in capitals": (b"GET / HTTP/1.1\r\nHost: LOCALHOST:80\r\n\r\n", b"HTTP/1.1 200"),
    "no HTTP": (b"hello there you all\r\n\r\n", b'{"error": "Bad request version'),
    "a long line": (b"GET /" + b"x" * 70000 + b" HTTP/1.1\r\n\r\n", b"HTTP/1.1 414"),
    "a thousand headers": (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 1000 + b"\r\n", b"HTTP/1.1 431"),
    "nothing": (b"", b""),
}


@pytest.mark.parametrize("case", RAW)
def test_raw_requests(server, case):
    sent, expected = RAW[case]
    with socket.create_connection(server.server_address, timeout=10) as client:
        client.sendall(sent)
        found = b""
        with contextlib.suppress(ConnectionResetError):  # what the server did not read is lost
            while part := client.recv(65536):
                found += part
    assert found.startswith(expected)
    assert ask(server, {"prompt": "x", "max_new_tokens": 1}) == (200, {"text": "0 "})


def test_what_is_allowed(server):
    for method, path, status, allowed in (
        ("HEAD", "/", 200, None),
        ("HEAD", "/generate", 405, "POST"),
        ("OPTIONS", "/generate", 405, "POST"),
        ("PUT", "/", 405, "GET, HEAD"),
    ):
        client = http.client.HTTPConnection(*server.server_address, timeout=20)
        client.request(method, path)
        answer = client.getresponse()
        assert (answer.status, answer.headers["Allow"]) == (status, allowed)
        body = answer.read()
        assert bool(body) == (method != "HEAD") and int(answer.headers["Content-Length"]) > 0
        client.close()


def test_the_page_itself_may_ask(server):
    port = server.server_address[1]
    for name in ("127.0.0.1", "localhost"):
        host = f"{name}:{port}"
        assert ask(server, {"prompt": "x", "max_new_tokens": 1}, Host=host, Origin=f"http://{host}")[0] == 200


def test_a_stream_that_fails(server):
    _, lines = ask(server, {"prompt": "ends badly", "stream": True})
    found = [json.loads(line) for line in lines.splitlines()]
    assert found == [{"text": "0 "}, {"text": "1 "}, {"error": "the model has failed: MemoryError: no room"}]


@pytest.mark.parametrize("start", [b"", b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                                        b"Content-Length: 1000\r\n\r\n"], ids=["headers", "body"])  # fmt: skip
def test_a_client_that_dawdles_is_left(server, start):
    """A byte now and then keeps no connection: the time is that of the whole request, 0.5 s here."""
    with socket.create_connection(server.server_address, timeout=10) as client:
        client.sendall(start)
        deadline = time.monotonic() + 8
        with contextlib.suppress(OSError):
            while time.monotonic() < deadline:
                client.sendall(b"a")
                time.sleep(0.1)
        assert time.monotonic() < deadline


def test_turns_are_in_order():
    turns, order = Turns(), []

    def wait(i):
        with turns.taken(lambda: None):
            order.append(i)

    with turns.taken(lambda: None):
        clients = []
        for i in range(20):
            clients.append(threading.Thread(target=wait, args=(i,)))
            clients[-1].start()
            while len(turns._line) < i + 2:
                time.sleep(0.001)
    for client in clients:
        client.join(10)
    assert order == list(range(20))


def test_a_hundred_at_once():
    writer, found = Counting(0.001), []
    with serving(writer) as server:
        clients = [
            threading.Thread(target=lambda: found.append(ask(server, {"prompt": "x", "max_new_tokens": 5}, timeout=60)))
            for _ in range(100)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
    assert found == [(200, {"text": "0 1 2 3 4 "})] * 100 and writer.most == 1


def test_too_many_are_told():
    with serving(Counting(0.02), requests=2) as server:
        clients = [opened(server, 40) for _ in range(2)]
        deadline = time.monotonic() + 5
        while (found := ask(server, {"prompt": "x", "max_new_tokens": 1}))[0] != 503 and time.monotonic() < deadline:
            pass
        assert found == (503, {"error": "busy with 2 requests"})
        for client in clients:
            client.close()
        while ask(server, {"prompt": "x", "max_new_tokens": 1})[0] != 200:
            assert time.monotonic() < deadline + 5


def opened(server, tokens, **more):
    """A connection that has asked and not read."""
    client = http.client.HTTPConnection(*server.server_address, timeout=20)
    body = json.dumps({"prompt": "x", "max_new_tokens": tokens, **more})
    client.request("POST", "/generate", body, {"Content-Type": "application/json"})
    return client


@pytest.mark.parametrize("more", [b"", b"what nobody asked for"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_generation(stream, more):
    writer = Counting(0.01)
    with serving(writer) as server:
        client = opened(server, 1000, stream=stream)
        client.sock.sendall(more)
        while writer.written < 3:
            time.sleep(0.005)
        client.close()
        assert ask(server, {"prompt": "y", "max_new_tokens": 1})[0] == 200
        assert writer.written < 500 and writer.running == 0


def test_a_client_that_leaves_while_it_waits():
    writer = Counting(0.01)
    with serving(writer) as server:
        first = opened(server, 60)
        while writer.written < 3:
            time.sleep(0.005)
        opened(server, 1000).close()
        assert first.getresponse().status == 200
        assert ask(server, {"prompt": "y", "max_new_tokens": 1})[0] == 200
        assert writer.written < 100


def test_the_time_of_an_answer_is_limited():
    with serving(Counting(0.01), seconds=0.1) as server:
        status, answer = ask(server, {"prompt": "x", "max_new_tokens": 1000})
        assert status == 200 and answer["text"].startswith("0 1 2 ") and len(answer["text"].split()) < 100


def test_closing_ends_what_is_written():
    writer = Counting(0.01)
    with serving(writer) as server:
        client = opened(server, 1000)
        while writer.written < 3:
            time.sleep(0.005)
    assert writer.running == 0 and writer.written < 500
    client.close()


# ---- The command ----------------------------------------------------------------------------------------------------

CONFIG = {"model_type": "gpt2", "vocab_size": 256, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("model")
    save(place / "model.safetensors", to_torch(GPT2(256, 16, 16, 1, 2)))
    (place / "config.json").write_text(json.dumps(CONFIG))
    return str(place)


def test_the_command(folder):
    command = [sys.executable, "-m", "needle_nn.command.main", "serve", folder, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        address = line.split()[0]
        request = urllib.request.Request(
            f"{address}generate", b'{"prompt": "a", "max_new_tokens": 5}', {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert set(json.loads(answer.read())) == {"text"}
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert line.endswith("Ctrl-C ends it\n") and out == "stopped\n" and process.returncode == 0
    assert err == '"POST /generate HTTP/1.1" 200 -\n'


WRONG = {
    "port": (["--port", "70000"], 2, "--port 70000: expected 0 to 65535"),
    "tokens": (["--tokens", "0"], 2, "--tokens 0: expected above 0"),
    "seconds": (["--seconds", "nan"], 2, "--seconds nan: expected above 0"),
    "a port in use": (["--port", "{used}"], 1, "of 127.0.0.1: Address already in use"),
}


@pytest.mark.parametrize("case", WRONG)
def test_the_command_is_told_wrong_things(folder, capsys, case):
    more, code, message = WRONG[case]
    with socket.create_server(("127.0.0.1", 0)) as used:
        more = [word.format(used=used.getsockname()[1]) for word in more]
        assert main(["serve", folder, *more]) == code
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1
