"""What is left open ends with the program, in order and in silence."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from paired_servicebus.sync.portal import _close_all, close_at_exit, forget

ROOT = Path(__file__).parents[2]

BARE = """
    import sys, types
    package = sys.modules["paired_servicebus.sync"] = types.ModuleType("paired_servicebus.sync")
    package.__path__ = ["paired_servicebus/sync"]
"""
"""The room without its front door: its thread needs the standard library alone, and so runs in any Python."""
ON_ITS_THREAD = (
    BARE
    + """
    import asyncio, threading
    from paired_servicebus.sync.portal import close_at_exit
    from paired_servicebus.sync.portal import Portal

    portal = Portal("left open")
    portal.call(asyncio.to_thread, print, "a thread for the executor")

    def close():
        portal.call(asyncio.to_thread, print, "still given work")
        portal.close()

    close_at_exit(close)
"""
)

NO_NEW_THREADS = (
    BARE
    + """
    import asyncio, threading
    from paired_servicebus.sync.portal import Portal

    portal = Portal("left open")
    portal.call(asyncio.to_thread, print, "a thread for the executor")

    def refuse(*what):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    threading._start_new_thread = refuse
    portal.close()
    print(portal.is_open)
"""
)


def run(script: str, interpreter: str) -> tuple[int, str, str]:
    ended = subprocess.run(
        [interpreter, "-c", textwrap.dedent(script)],
        cwd=ROOT / "console",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


def starts_threads_to_the_end(interpreter: str) -> bool:
    """CPython 3.12.0 and 3.12.1 may refuse a thread at any moment of their end; the other script plays that."""
    return run("import sys; print(sys.version_info[:3] in ((3, 12, 0), (3, 12, 1)))", interpreter)[1] == "False\n"


def other_interpreters() -> list[str]:
    """Pythons of other versions on this machine that can run the portal, which needs nothing but the library."""
    folders = [Path(sys.base_prefix).parent, *map(Path, os.get_exec_path())]
    names = ("python3.12", "python3.13", "3.12*/bin/python", "3.13*/bin/python")
    found = {str(path.resolve()): path for folder in folders for name in names for path in folder.glob(name)}
    return [
        path for path in map(str, found.values()) if run("print(1)", path)[0] == 0
    ]  # a version manager's may not run


@pytest.mark.parametrize("script", [ON_ITS_THREAD, NO_NEW_THREADS], ids=["program ends", "no new threads"])
def test_the_thread_ends_while_it_can_still_be_given_work(script: str) -> None:
    """Also where the interpreter starts no threads any more, as CPython 3.12.0 and 3.12.1 do while they end."""
    expected = ("a thread for the executor\n" + ("still given work\n" if script is ON_ITS_THREAD else "False\n"), "")
    interpreters = [sys.executable, *other_interpreters()]
    if script is ON_ITS_THREAD:
        interpreters = [interpreter for interpreter in interpreters if starts_threads_to_the_end(interpreter)]
    found = {interpreter: run(script, interpreter) for interpreter in interpreters}
    assert found == dict.fromkeys(found, (0, *expected))


def test_each_is_closed_whatever_another_raises() -> None:
    closed: list[str] = []

    def fail() -> None:
        closed.append("fails")
        raise OSError("no answer")

    closes = [lambda: closed.append("first"), fail, lambda: closed.append("last")]
    for close in closes:
        close_at_exit(close)
    try:
        with pytest.raises(OSError, match="no answer"):
            _close_all()
    finally:
        for close in closes:
            forget(close)
    assert sorted(closed) == ["fails", "first", "last"]
