"""Calls from any thread into the event loop of a background thread.

Open clients are closed while threads can still start, before `atexit` handlers run: a client's event loop, aiohttp and
the journal need threads to end. `concurrent.futures` uses the same hook. Hooks run in reverse order, and its hook has
to run after ours.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401 # its hook is registered by this import
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from typing import Any, Final, TypeVar

from paired_servicebus.core.errors import PairingClosedError
from paired_servicebus.sync.log_writer import LogWriter

JOIN: Final = 10.0
"""Seconds the thread has to end; it is a daemon, so it holds up no program."""

LATE_SECONDS: Final = 5.0
"""Seconds after its timeout that a call waits for a busy thread."""

T = TypeVar("T")


class Portal:
    """A thread with an event loop. Coroutines are created and run there; the caller waits for the result."""

    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        self._entering = threading.Lock()
        self._is_closing = False
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._log_writer = LogWriter(name)
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), name=name, daemon=True)
        self._thread.start()
        ready.result()

    @property
    def is_open(self) -> bool:
        """Whether calls are possible: the thread runs, in this process."""
        return not self.is_foreign and not self._is_closing and self._thread.is_alive()

    @property
    def is_foreign(self) -> bool:
        """Whether this process is a fork of the one with the thread."""
        return os.getpid() != self._pid

    def call(self, work: Callable[..., Coroutine[Any, Any, T]], *args: Any, **options: Any) -> T:
        """Return the result of `work(*args, **options)`, or raise its error. An interrupted caller cancels its work.

        A call with a `timeout` among its options returns within it and LATE_SECONDS, whatever blocks the thread.

        Raises:
            PairingClosedError: the thread has ended.
            RuntimeError: in a fork of the process, or on the thread itself, where it would deadlock.
            TimeoutError: the thread does not answer in time; a message of the call may have arrived.
        """
        timeout = options.get("timeout")
        if self.is_foreign:  # before the lock, which another thread may have held when the process forked
            raise RuntimeError("a paired client does not survive a fork: pair the namespaces in the new process")
        with self._entering:  # the loop cancels every call that entered before it stops
            self._refuse()
            future = asyncio.run_coroutine_threadsafe(_create_and_await(work, args, options), self._loop)
        try:
            return future.result(None if timeout is None else timeout + LATE_SECONDS)
        except TimeoutError as error:
            if future.done():
                raise  # the work's own
            raise TimeoutError(
                f"the pairing's thread did not answer within {timeout:g} s and {LATE_SECONDS:g} s more: on_event or a "
                "log handler blocks it. A message of this call may have arrived"
            ) from error
        except CancelledError as error:
            if not self._is_closing:
                raise
            raise PairingClosedError("the pairing was closed during the call", in_doubt=True) from error
        finally:
            future.cancel()  # after KeyboardInterrupt the work has no caller

    def run(self, act: Callable[..., T], *args: Any, **options: Any) -> T:
        """Run a plain function on the thread and return its result. Raises as `call`."""

        async def acting() -> T:
            return act(*args, **options)

        return self.call(acting)

    def close(self) -> None:
        """End the thread."""
        if self.is_foreign or not self._thread.is_alive():
            return
        with self._entering:
            if not self._is_closing:
                self._is_closing = True
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(JOIN)

    def _run(self, ready: Future[None]) -> None:
        """Run the loop until the portal is closed.

        `asyncio.run` would start a thread at its end, to wait for the executor. CPython 3.12.0 and 3.12.1 refuse to
        start threads in a program that ends.
        """
        self._log_writer.serve_this_thread()
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self._live(ready))
        finally:
            loop.close()
            self._log_writer.close()

    async def _live(self, ready: Future[None]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        ready.set_result(None)
        await self._stop.wait()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=JOIN / 2)
        await self._loop.shutdown_asyncgens()

    def _refuse(self) -> None:
        if self._is_closing or not self._thread.is_alive():
            raise PairingClosedError("the pairing was closed: nothing can be sent through it any more")
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "this call would wait for itself: on_event runs on the pairing's thread and must not block"
            )


async def _create_and_await(work: Callable[..., Coroutine[Any, Any, T]], args: Any, options: Any) -> T:
    """Create the coroutine on the loop's thread, because an SDK client may need the running loop."""
    return await work(*args, **options)


_left_open: Final[dict[Callable[[], None], None]] = {}


def close_at_exit(close: Callable[[], None]) -> None:
    """Call `close` when the program ends, unless `forget` is called before."""
    _left_open[close] = None


def forget(close: Callable[[], None]) -> None:
    """Do not call `close` at exit."""
    _left_open.pop(close, None)


def _close_all() -> None:
    with ExitStack() as stack:  # each runs, even if another raises
        for close in [*_left_open]:
            stack.callback(close)


_register: Final[Callable[[Callable[[], None]], Any]] = getattr(threading, "_register_atexit", atexit.register)
"""CPython's own hook before its threads end; where there is none, the next best moment."""
_register(_close_all)
