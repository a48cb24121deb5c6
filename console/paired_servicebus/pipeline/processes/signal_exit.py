"""A command that clears away its files on SIGTERM and SIGHUP, as it does after Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def exit_on_signal() -> Iterator[None]:
    """Raise SystemExit in the block on SIGTERM or SIGHUP. Main thread only.

    An ignored signal (nohup) or an existing handler is kept.
    """
    usual = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_DFL]

    def end(number: int, _: FrameType | None) -> None:
        for one in usual:
            signal.signal(one, signal.SIG_IGN)  # clearing away takes seconds, and is done once
        raise SystemExit(128 + number)

    for number in usual:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in usual:
            signal.signal(number, signal.SIG_DFL)
