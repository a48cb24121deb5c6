"""The Textual app without our screens: its output to the terminal and its handling of errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from rich.console import RenderableType
from rich.segment import Segment, Segments
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.app import App
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.filter import LineFilter
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets import Input
from textual.worker import WorkerFailed

from paired_servicebus.ui.display.ascii_filter import AsciiFilter, NoColourFilter
from paired_servicebus.ui.display.escape_key import keep_escapes
from paired_servicebus.ui.display.frame_diff import ScreenBuffer
from paired_servicebus.ui.display.profile import Profile
from paired_servicebus.ui.display.theme import PairedTheme
from paired_servicebus.ui.display.window_text import KEEP_TITLE, RETURN_TITLE, notification_sequence, title_sequence

Report = Callable[[BaseException], None]

_WITHOUT_COLOURS: Final = NoColourFilter()
_IN_ASCII: Final = AsciiFilter()


class TerminalApp(App[int]):
    """Writes to its terminal only changed cells, and only signs that it can show.

    Args:
        profile: the terminal's abilities.
        report: called with an unexpected exception, which then ends the app.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+l", "repaint", show=False, system=True)]

    def __init__(self, *, profile: Profile, report: Report | None) -> None:
        super().__init__()
        self.profile = profile
        self._report: Report = report or (lambda _: None)
        self._painted = ScreenBuffer()
        self._pointer = "default"
        self._window_title = ""

    def get_driver_class(self) -> type[Driver]:
        """Return Textual's driver, which then loses no escape."""
        keep_escapes()
        return super().get_driver_class()

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        """Write the changed cells (frame_diff.py), not the ones that Textual repainted."""
        if isinstance(renderable, ChopsUpdate | LayoutUpdate) and self._running and not self._batch_count:
            if isinstance(renderable, LayoutUpdate):
                strips = [Strip.join(row) for row in renderable.strips]
            else:
                strips = screen._compositor.render_strips()
            changed = self._painted.difference(strips, self.console)
            renderable = changed
            if changed is not None and not isinstance(self.focused, Input):  # Textual would move the cursor each time
                renderable = Segments([Segment(changed.text)])
        super()._display(screen, renderable)

    def _set_pointer_shape(self, shape: str) -> None:
        """Write a changed shape: Textual writes it for every new screen."""
        if shape != self._pointer:
            self._pointer = shape
            super()._set_pointer_shape(shape)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return Textual's filters, and ours for terminals without colours or signs."""
        bare = isinstance(self.current_theme, PairedTheme) and self.current_theme.monochrome
        if self.profile.ascii:
            return [*super().get_line_filters(), _WITHOUT_COLOURS, _IN_ASCII]
        signs = [_IN_ASCII] if self.profile.few_signs else []
        return [*super().get_line_filters(), *([_WITHOUT_COLOURS] if bare else []), *signs]

    def name_window(self, title: str) -> None:
        """Make `title` the window's title, if it is another and the terminal takes one."""
        if self.profile.has_window and title != self._window_title:
            self._write_to_window(("" if self._window_title else KEEP_TITLE) + title_sequence(title))
            self._window_title = title

    def notify_window(self, title: str, text: str) -> None:
        """Ask the terminal's system for a notification."""
        if self.profile.has_window:
            self._write_to_window(notification_sequence(title, text, once=self.profile.notifies_once))

    def on_unmount(self) -> None:
        """Give the window its title back."""
        if self._window_title:
            self._write_to_window(RETURN_TITLE)

    def _write_to_window(self, sequence: str) -> None:
        if self._driver is not None and not self.is_headless:
            self._driver.write(sequence)

    def action_repaint(self) -> None:
        """Write everything again: the terminal may show something else."""
        self._painted.forget()
        self.refresh()

    async def press_escape(self) -> None:
        """Do what escape does on this screen, before the next key is read; Textual would queue it for the widget."""
        await self._check_bindings("escape")

    def _handle_exception(self, error: Exception) -> None:
        """Report the error; Textual would print the traceback with its locals, secrets included."""
        self._return_code = 1
        if self._exception is None:
            self._exception = error
            self._report(error.error if isinstance(error, WorkerFailed) else error)
            self._exception_event.set()
        self._close_messages_no_wait()
