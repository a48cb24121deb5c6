"""The Textual app as any dashboard needs it: what is written onto the terminal, and who is told of a failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from rich.console import RenderableType
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.app import App
from textual.binding import Binding, BindingType
from textual.filter import LineFilter
from textual.screen import Screen
from textual.worker import WorkerFailed

from paired_servicebus.ui.display.ascii_filter import AsciiFilter, NoColourFilter
from paired_servicebus.ui.display.frame_diff import ScreenBuffer
from paired_servicebus.ui.display.profile import Profile
from paired_servicebus.ui.display.theme import PairedTheme

Report = Callable[[BaseException], None]

_WITHOUT_COLOURS: Final = NoColourFilter()
_IN_ASCII: Final = AsciiFilter()


class TerminalApp(App[int]):
    """Writes to its terminal only what differs from what stands there, and only what it can show.

    Args:
        profile: how much the terminal is asked to show.
        report: told of an unexpected exception, which then ends the app.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+l", "repaint", show=False, system=True)]

    def __init__(self, *, profile: Profile, report: Report | None) -> None:
        super().__init__()
        self.profile = profile
        self._report: Report = report or (lambda _: None)
        self._painted = ScreenBuffer()
        self._pointer = "default"

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        """Writes what differs from what stands on the terminal (frame_diff.py), not what the library repainted."""
        if isinstance(renderable, ChopsUpdate | LayoutUpdate) and self._running and not self._batch_count:
            renderable = self._painted.difference(screen._compositor.render_strips(), self.console)
        super()._display(screen, renderable)

    def _set_pointer_shape(self, shape: str) -> None:
        """Writes it where it differs: the library does for every screen that is made."""
        if shape != self._pointer:
            self._pointer = shape
            super()._set_pointer_shape(shape)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """The library's, and ours for terminals without colours or without signs."""
        bare = isinstance(self.current_theme, PairedTheme) and self.current_theme.monochrome
        if self.profile.ascii:
            return [*super().get_line_filters(), _WITHOUT_COLOURS, _IN_ASCII]
        return [*super().get_line_filters(), _WITHOUT_COLOURS] if bare else super().get_line_filters()

    def action_repaint(self) -> None:
        """Writes everything again: the terminal may show something else than we wrote."""
        self._painted.forget()
        self.refresh()

    def _handle_exception(self, error: Exception) -> None:
        """Textual's own way prints the traceback with its locals, secrets included: ours goes to `report`."""
        self._return_code = 1
        if self._exception is None:
            self._exception = error
            self._report(error.error if isinstance(error, WorkerFailed) else error)
            self._exception_event.set()
        self._close_messages_no_wait()
