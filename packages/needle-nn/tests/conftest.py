"""Ctrl-C reaches the tests, and the processes they start, even where whoever started them had switched it off (`nohup`, `&`)."""

import signal

import pytest


@pytest.fixture(scope="session", autouse=True)
def interrupts():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
