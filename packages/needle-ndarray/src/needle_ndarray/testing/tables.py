"""Tables of cases within one test, for cases that take less time than pytest needs for a test of its own."""

import functools
import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

#: NEEDLE_TEST_CASES=1 makes a test of every case: to choose some with `-k`, or to see which one ends the process.
TESTS_OF_THEIR_OWN = os.environ.get("NEEDLE_TEST_CASES") == "1"
FAILURES = (Exception, pytest.fail.Exception, pytest.skip.Exception)  # a skip would leave out the cases after it


def case_name(value: Any) -> str:
    """What a value is called in the name of a case: a row by its id, an op by its name, a layout as "a,b,out"."""
    if isinstance(value, tuple) and value and all(isinstance(part, str) for part in value):
        return ",".join(value)
    return str(getattr(value, "id", getattr(value, "name", value)))


def each(names: str, rows: Iterable) -> Callable:
    """`pytest.mark.parametrize`, with the cases one after another within one test.

    Several of them make a product, and `parametrize` may stand above or below. Every case runs; the test fails with a line
    for each that failed, and the traceback of the first.
    """
    rows = list(rows)
    if TESTS_OF_THEIR_OWN:
        return pytest.mark.parametrize(names, rows, ids=case_name)
    columns = names.replace(" ", "").split(",")
    added = [dict(zip(columns, row if len(columns) > 1 else (row,), strict=True)) for row in rows]

    def decorate(test: Any) -> Any:
        body = getattr(test, "body", test)
        cases = [{**case, **more} for case in added for more in getattr(test, "cases", [{}])]
        assert cases, f"{test.__name__}: no cases of {names}"

        @functools.wraps(test)
        def run(*args: Any, **given: Any) -> None:
            lines, errors = [], []
            for case in cases:
                try:
                    body(*args, **given, **case)
                except FAILURES as error:
                    name = ", ".join(f"{column}={case_name(value)}" for column, value in case.items())
                    lines.append(f"{name}: {next(iter(str(error).strip().splitlines()), repr(error))}")
                    errors.append(error)
            if errors:
                told = "\n".join(lines)
                raise AssertionError(f"{len(errors)} of {len(cases)} cases fail: {told}") from errors[0]

        left = [p for p in inspect.signature(test).parameters.values() if p.name not in columns]
        run.__signature__ = inspect.Signature(left)  # type: ignore[attr-defined]
        run.body, run.cases = body, cases  # type: ignore[attr-defined]
        return run

    return decorate
