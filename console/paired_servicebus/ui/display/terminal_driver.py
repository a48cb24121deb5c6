"""The terminal while the screen has it: one guard that restores it at every end, and the keys that it sends.

A signal, a terminal that is gone and a closed output end the app; if the app does not end in time, the process ends
here, with the terminal restored. What is undocumented of Textual's driver is used here alone.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from textual import events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

if TYPE_CHECKING:
    from textual.app import App

ENDING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)
ENDS_WITHIN_SECONDS: Final = 1.4
"""Seconds that the app has to end after a signal or without a terminal; then the process is ended."""
DRAIN_SECONDS: Final = 0.5
"""Seconds to wait for a terminal's answer to the last question."""
POLL_SECONDS: Final = 0.1
CHUNK_BYTES: Final = 1024
"""Bytes of one write: a terminal that takes nothing holds up one of them."""
MODES_OFF: Final = (
    "\x1b[?2026l\x1b[?2004l\x1b[?1016l\x1b[?1006l\x1b[?1015l\x1b[?1003l\x1b[?1000l\x1b[?1004l\x1b[?7h\x1b[<u\x1b[m"
)
"""Ends synchronized output, paste, mouse, focus reports, cut lines, kitty's keys (kept per screen) and colours."""
LEAVE: Final = "\x1b[H\x1b[2J\x1b[?1049l\x1b[?25h"
"""Clears the alternate screen, since GNU screen may have none, leaves it, and shows the cursor."""
QUESTION: Final = "\x1b[5n"
ANSWER: Final = b"\x1b[0n"
"""Every terminal answers the question; what it sent before is read by then."""
WIDE_SIGN: Final = "\x1b[H●\x1b[6n"
"""Draws one of our signs and asks for the cursor: some terminals give it two cells."""

# Escape and the next key, read in one piece: both are keys.
#
# A terminal sends escape as the first byte of other keys too, so a quick "escape, /" looks like one key. Textual drops
# the escape, or makes another character of both. Sequences of real keys, such as alt and an arrow, stay as they are.

ESCAPE: Final = "\x1b"


class EscapeParser(XTermParser):
    """Reads keys from a terminal's bytes."""

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        """Yield the keys of a sequence. alt: an escape came before it."""
        if isinstance(ANSI_SEQUENCES_KEYS.get(sequence), str) and sequence[0] == ESCAPE and len(sequence) == 2:
            alt, sequence = True, sequence[1]
        if alt:
            yield events.Key("escape", ESCAPE)
        yield from super()._sequence_to_key_events(sequence)


class TerminalOutput:
    """Writes to the terminal; to nowhere once it is gone or given up. on_gone: called once, by the writing thread."""

    def __init__(self, descriptor: int, on_gone: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_gone = on_gone
        self.is_closed = False

    def write(self, text: str) -> None:
        data = memoryview(text.encode("utf-8", "replace"))
        while data and not self.is_closed:
            try:
                data = data[os.write(self._descriptor, data[:CHUNK_BYTES]) :]
            except BlockingIOError:  # another program made the terminal non-blocking
                select.select((), (self._descriptor,), (), POLL_SECONDS)
            except OSError:
                self.is_closed = True
                self._on_gone()

    def flush(self) -> None:
        """Do nothing: each write is complete."""

    def fileno(self) -> int:
        return self._descriptor


class TerminalDriver(LinuxDriver):
    """Textual's driver, which restores the terminal at every end, and once."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        assert sys.__stdout__ is not None, "the screen needs a terminal"
        self._output = TerminalOutput(sys.__stdout__.fileno(), self.lose)
        self._file = self._output  # type: ignore[assignment]
        self._is_on = False
        self._is_ending = False
        self._is_mouse_free = False
        self._former: dict[int, Any] = {}
        self._on_wide_signs: Callable[[], None] = lambda: None
        self.last_words = ""
        """Written before the terminal is left: the end of what the app changed."""

    # -- begin and end ---------------------------------------------------------------------------------------------

    def start_application_mode(self) -> None:
        """Set the terminal for the screen, and end in order at a signal from now on."""
        self._is_on = True
        for number in ENDING_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                self._former[number] = signal.signal(number, self._end_by_signal)
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def stop_application_mode(self) -> None:
        """Restore the terminal, and read what it sends late, so that the shell gets none of it."""
        if not self._is_on:
            return
        self.write(MODES_OFF)
        self.disable_input()
        self._drain()
        self.write(self.last_words + LEAVE)
        self.last_words = ""
        self._set_former_attributes()
        self._is_on = False
        for number, former in self._former.items():
            signal.signal(number, former)
        self._former.clear()
        if self._output.is_closed:
            self._close_descriptors()

    def disable_input(self) -> None:
        """Stop reading keys, once."""
        if self._key_thread is not None:
            super().disable_input()
            self._key_thread = None

    def write(self, data: str) -> None:
        """Write to the terminal, unless it is gone."""
        if self._writer_thread is not None and not self._output.is_closed:
            super().write(data)

    def _drain(self) -> None:
        self.write(QUESTION)
        heard, until = b"", time.monotonic() + DRAIN_SECONDS
        while ANSWER not in heard and not self._output.is_closed and (left := until - time.monotonic()) > 0:
            if select.select((self.fileno,), (), (), left)[0]:
                try:
                    received = os.read(self.fileno, 4096)
                except OSError:
                    return
                if not received:
                    return
                heard = heard[-len(ANSWER) :] + received

    def _set_former_attributes(self) -> None:
        if self.attrs_before is not None:
            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcflush(self.fileno, termios.TCIFLUSH)
                termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)

    def _close_descriptors(self) -> None:
        """Redirect to nowhere what was the terminal: a last sentence must not fail."""
        gone, nowhere = os.fstat(self._output.fileno()).st_rdev, os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            with contextlib.suppress(OSError):  # it was closed before
                if os.fstat(descriptor).st_rdev == gone:
                    os.dup2(nowhere, descriptor)
        os.close(nowhere)

    # -- signals, and a terminal that is gone --------------------------------------------------------------------------

    def _end_by_signal(self, number: int, _frame: FrameType | None) -> None:
        self.end(128 + number)

    def lose(self) -> None:
        """End the app, since its terminal is gone. Called by any thread."""
        self._output.is_closed = True
        self.end(128 + signal.SIGHUP)

    def end(self, status: int) -> None:
        """End the app with that exit status, and the process if the app does not end in time. Called by any thread."""
        if self._is_ending:
            return
        self._is_ending = True
        threading.Thread(target=self._end_process, args=(status,), name="end of the screen", daemon=True).start()
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the app with it
            self._loop.call_soon_threadsafe(self._app.exit, status, status)

    def _end_process(self, status: int) -> None:
        time.sleep(ENDS_WITHIN_SECONDS)
        self.restore_at_once()
        os._exit(status)

    def restore_at_once(self) -> None:
        """Restore the terminal without the app, even if it takes no output; nothing if it is restored."""
        if not self._is_on:
            return
        self._is_on = False
        stopped, self._output.is_closed = self._output.is_closed, True  # the writing thread gives up what it has
        with contextlib.suppress(termios.error):
            termios.tcflush(self.fileno, termios.TCOFLUSH)
        if not stopped:
            last = TerminalOutput(self._output.fileno(), lambda: None)
            text = MODES_OFF + self.last_words + LEAVE
            writing = threading.Thread(target=last.write, args=(text,), daemon=True)
            writing.start()
            writing.join(POLL_SECONDS)
        self._set_former_attributes()

    # -- ctrl+z --------------------------------------------------------------------------------------------------------

    def _sigtstp_application(self, *_: object) -> None:
        """Restore the terminal, stop the process's whole group, and take the terminal again when it continues.

        The group: a shell waits for all of it. The signal's own effect: it stops nothing where no shell would continue.
        """
        self.suspend_application_mode()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.killpg(os.getpgrp(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._sigtstp_application)
        self._resume()

    def _sigcont_application(self, *_: object) -> None:
        """Set the terminal again after a stop that was not announced: the shell may have changed it."""
        if self._is_on:
            self.suspend_application_mode()
            self._resume()

    def _resume(self) -> None:
        self._must_signal_resume = True
        self.resume_application_mode()

    # -- keys ----------------------------------------------------------------------------------------------------------

    def _run_input_thread(self) -> None:
        try:
            self.run_input_thread()
        except OSError:
            self.lose()

    def run_input_thread(self) -> None:
        """Read keys until the input is disabled; end the app at the end of the input."""
        parser = EscapeParser(self._debug)
        decode = getincrementaldecoder("utf-8")(errors="replace").decode
        while not self.exit_event.is_set():
            if select.select((self.fileno,), (), (), POLL_SECONDS)[0]:
                received = os.read(self.fileno, 4096)
                if not received:
                    self.lose()
                    return
                text = decode(received)  # empty amid a character, which would be an end to the parser
                for message in parser.feed(text) if text else ():
                    self.process_message(message)
            for message in parser.tick():
                self.process_message(message)

    def free_mouse(self) -> None:
        """Report the mouse no more, so that the terminal selects text with it, until `take_mouse`."""
        self._disable_mouse_support()
        self._is_mouse_free = True

    def take_mouse(self) -> None:
        """Report the mouse again, if it was free."""
        if self._is_mouse_free:
            self._is_mouse_free = False
            self._enable_mouse_support()

    def _request_terminal_sync_mode_support(self) -> None:
        """Do nothing: the app asks, unless its link is slow."""

    def ask_for_sync(self) -> None:
        """Ask whether the terminal can show a whole update at once; a slow link then shows nothing for seconds."""
        super()._request_terminal_sync_mode_support()

    def ask_for_width(self, on_wide_signs: Callable[[], None]) -> None:
        """Ask whether the terminal draws our signs in two cells, and call `on_wide_signs` if it does."""
        self._on_wide_signs = on_wide_signs
        self.write(WIDE_SIGN)

    def process_message(self, message: Message) -> None:
        """Pass on a message; the answer to `ask_for_width` ends here."""
        if not isinstance(message, events.CursorPosition):
            super().process_message(message)
        elif message.x > 1:
            self._loop.call_soon_threadsafe(self._on_wide_signs)
