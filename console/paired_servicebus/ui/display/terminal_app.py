"""The Textual app without our pages: its output to the terminal and its handling of errors."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import COLOR_SYSTEMS, Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment, Segments
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.app import App
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets import Input
from textual.worker import WorkerFailed

from paired_servicebus.core.errors import ControlError
from paired_servicebus.ui.commands.action_table import MAX_CLIPBOARD_BYTES
from paired_servicebus.ui.display.profile import Profile
from paired_servicebus.ui.display.terminal_driver import TerminalDriver
from paired_servicebus.ui.display.theme import ROLES, PairedTheme, Themes
from paired_servicebus.ui.screens.questions import QUESTION_CSS, Prompt, Write
from paired_servicebus.ui.widgets.frame.lines_widget import ROLE_CLASSES, ROLE_CSS

# When the dashboard's process collects garbage: between keys, and never among widgets that stay.
#
# A full collection takes as long as a key is allowed to: it looks at every object, and ends what a closed dialog left.

EVERY_SECONDS: Final = 5.0
IDLE_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 10.0
"""Seconds between full collections; seconds without a key before one; seconds until one that does not wait for that."""
_THRESHOLDS: Final = (700, 10, 100_000)
"""Python collects young objects by itself, as ever; the rest is done here."""


class IdleCollector:
    """Collects in full while nobody types. Until `start`, Python's own collector is left alone."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._key_at = self._collected_at = monotonic()
        self._is_started = False
        self._before = gc.get_threshold()

    def start(self) -> None:
        """Collect from now on, but never look again at what exists already, such as modules."""
        gc.freeze()
        gc.set_threshold(*_THRESHOLDS)
        gc.enable()
        self._is_started = True

    def stop(self) -> None:
        """Leave it to Python again."""
        self._is_started = False
        gc.set_threshold(*self._before)
        gc.enable()

    def note_key(self) -> None:
        """Wait, since somebody types."""
        self._key_at = self._monotonic()

    def keep_page(self) -> None:
        """Never look at a page again that was just opened."""
        if self._is_started:
            gc.collect()
            gc.freeze()

    def tick(self) -> None:
        """Collect if it is time. Call it about once a second."""
        now = self._monotonic()
        waited, idle = now - self._collected_at, now - self._key_at
        if self._is_started and waited >= EVERY_SECONDS and (idle >= IDLE_SECONDS or waited >= LONGEST_SECONDS):
            gc.collect()
            self._collected_at = now


# The content of the terminal by cells, so that only changed cells are written.
#
# Textual repaints a widget's row from its left edge, and a whole screen when a dialog opens or closes; most of that
# is on the terminal already, and a slow link pays for it. `ScreenBuffer` keeps one copy of the screen and writes
# differences.

MAX_GAP_CELLS: Final = 6
"""Unchanged cells that are rewritten rather than skipped: a jump costs some eight bytes."""


class Ink(NamedTuple):
    """The style of a cell: `sgr` in full, and `ground`, its part that a space shows."""

    sgr: str
    ground: str


class Cell(NamedTuple):
    """One cell; the second half of a wide character has no glyph."""

    glyph: str
    ink: Ink


NO_INK: Final = Ink("", "")
_FOREGROUNDS: Final = frozenset(map(str, (*range(30, 38), 39, *range(90, 98))))
_GROUNDS: Final = frozenset(map(str, (*range(40, 48), 49, *range(100, 108))))
"""Codes of the sixteen colours, and of the terminal's own."""


class Difference(CompositorUpdate):
    """Text that turns the previous screen into the present one."""

    def __init__(self, text: str) -> None:
        self.text = text

    def render_segments(self, _console: Console) -> str:
        return self.text

    def __rich_console__(self, _console: Console, _options: ConsoleOptions) -> RenderResult:
        yield Segment(self.text)


class ScreenBuffer:
    """The screen as it was last written."""

    def __init__(self) -> None:
        self._strips: list[Strip] = []
        self._rows: list[list[Cell]] = []

    def forget(self) -> None:
        """Drop the copy: the next difference is the whole screen."""
        self._strips.clear()
        self._rows.clear()

    def difference(self, strips: Sequence[Strip], console: Console) -> Difference | None:
        """Return the text that makes the terminal show `strips`; None if it shows them already."""
        system = COLOR_SYSTEMS[console.color_system or "standard"]
        parts: list[str] = []
        if [strip.cell_length for strip in strips] != [strip.cell_length for strip in self._strips]:
            self._start(strips)
            parts.append("\x1b[m\x1b[2J")
        ink = NO_INK
        for y, strip in enumerate(strips):
            if strip == self._strips[y]:
                continue
            row = _cells(strip, system)
            for start, end in _changes(self._rows[y], row):
                text, ink = _to_text(row[start:end], ink)
                parts += (f"\x1b[{y + 1};{start + 1}H", text)
            self._strips[y], self._rows[y] = strip, row
        if ink.sgr:
            parts.append("\x1b[m")
        return Difference("".join(parts)) if parts else None

    def _start(self, strips: Sequence[Strip]) -> None:
        """Reset to a cleared terminal."""
        self._strips = [Strip([], strip.cell_length) for strip in strips]
        self._rows = [[Cell(" ", NO_INK)] * strip.cell_length for strip in strips]


@lru_cache(maxsize=1024)
def _ink(style: Style | None, system: ColorSystem) -> Ink:
    if style is None:
        return NO_INK
    sgr = Strip.render_ansi(style, system)
    seen_on_spaces = style.reverse or style.underline or style.strike or style.overline or style.underline2
    return Ink(sgr, sgr if seen_on_spaces else Strip.render_ansi(Style(bgcolor=style.bgcolor), system))


class Codes(NamedTuple):
    """The parts of a style's codes."""

    attributes: frozenset[str]
    foreground: str
    ground: str


@lru_cache(maxsize=1024)
def _codes(sgr: str) -> Codes:
    attributes: set[str] = set()
    colours = {"3": "", "4": ""}
    left = iter(sgr.split(";") if sgr else ())
    for code in left:
        if code in ("38", "48"):  # of a palette of 256, or of red, green and blue
            kind = next(left)
            colours[code[0]] = ";".join((code, kind, *(next(left) for _ in range(1 if kind == "5" else 3))))
        elif code in _GROUNDS:
            colours["4"] = code
        elif code in _FOREGROUNDS:
            colours["3"] = code
        else:
            attributes.add(code)
    return Codes(frozenset(attributes), colours["3"], colours["4"])


@lru_cache(maxsize=4096)
def _turn(before: str, after: str) -> str:
    """Return the shortest codes that turn one style into the other: the whole of it after a reset, or what differs."""
    whole = f"0;{after}" if before and after else after
    was, now = _codes(before), _codes(after)
    if not before or not after or not was.attributes <= now.attributes:
        return whole
    differing = sorted(now.attributes - was.attributes)
    differing += [now.foreground or "39"] if now.foreground != was.foreground else []
    differing += [now.ground or "49"] if now.ground != was.ground else []
    return min(";".join(differing), whole, key=len)


def _cells(strip: Strip, system: ColorSystem) -> list[Cell]:
    row: list[Cell] = []
    for text, style, control in strip:
        if control:
            continue
        ink = _ink(style, system)
        for glyph in text:
            width = 1 if glyph.isascii() else cell_len(glyph)
            if width == 0 and row:  # joins the character before it
                place = len(row) - 1 if row[-1].glyph or len(row) == 1 else len(row) - 2
                row[place] = Cell(row[place].glyph + glyph, row[place].ink)
            elif width:
                row.append(Cell(glyph, ink))
            if width == 2:
                row.append(Cell("", ink))
    return row


def _same(before: Cell, after: Cell) -> bool:
    if before.glyph != after.glyph:
        return False
    return before.ink == after.ink or (after.glyph == " " and before.ink.ground == after.ink.ground)


def _changes(before: Sequence[Cell], after: Sequence[Cell]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of `after` to write, as start and end; short gaps between them are included."""
    start = end = -1
    for x, cell in enumerate(after):
        if x < len(before) and _same(before[x], cell):
            continue
        if start >= 0 and x - end > MAX_GAP_CELLS:
            yield start, _past_wide(after, end)
            start = -1
        if start < 0:
            start = x if cell.glyph else max(0, x - 1)
        end = x + 1
    if start >= 0:
        yield start, _past_wide(after, end)


def _past_wide(row: Sequence[Cell], end: int) -> int:
    """Return the end of a range behind a wide character, never inside it."""
    return end + 1 if end < len(row) and not row[end].glyph else end


def _to_text(cells: Sequence[Cell], ink: Ink) -> tuple[str, Ink]:
    """Return the cells as text for a terminal that writes in `ink`, and the ink afterwards."""
    parts: list[str] = []
    for cell in cells:
        if cell.ink.sgr != ink.sgr and not (cell.glyph == " " and cell.ink.ground == ink.ground):
            parts.append(f"\x1b[{_turn(ink.sgr, cell.ink.sgr)}m")
            ink = cell.ink
        parts.append(cell.glyph)
    return "".join(parts), ink


# Filters between painting and writing: no colours, and ASCII only.
#
# Each of our signs has a distinct ASCII sign of one cell, so that nothing moves. Other letters become a question mark a
# cell, since such a terminal would show rubbish or lose count of its columns.

ASCII_SIGNS: Final[dict[str, str]] = {
    **dict(zip("●○◐▲■◆▸✓✗≈…–·×“”↑↓←→─━│", 'o-!X#@>+x~~-|x""^v<>-=|', strict=True)),
    **dict.fromkeys("╭╮╰╯┌┐└┘├┤┬┴┼", "+"),
    **dict(zip("▁▂▃▄▅▆▇█░▒▓▔▊▎", "_.,:-=+#.:%-||", strict=True)),
}
_TABLE: Final = str.maketrans(ASCII_SIGNS)
_LINE_ART: Final = str.maketrans({sign: ASCII_SIGNS[sign] for sign in "─━│└┘├┤▁▂▃▄▅▆▇█░▒▓▔"})


@lru_cache(maxsize=4096)
def to_ascii(text: str) -> str:
    """Return the text in ASCII, in the same width."""
    if text.isascii():
        return text
    known = text.translate(_TABLE)
    return "".join(glyph if glyph.isascii() else "?" * cell_len(glyph) for glyph in known)


class NoColourFilter(LineFilter):
    """Drops colours; bold and reversed text stay."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the text in the terminal's own colours."""
        return [Segment(text, style.without_color if style else None, control) for text, style, control in segments]


class AsciiFilter(LineFilter):
    """Replaces every sign by ASCII."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the same cells in ASCII."""
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]


class LineArtFilter(LineFilter):
    """Replaces lines and bars by ASCII: such a sign has three bytes, and a slow link has a page of them."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the same cells, with one byte for each part of a line or bar."""
        return [Segment(text.translate(_LINE_ART), style, control) for text, style, control in segments]


# Control sequences for the terminal's window: its title, and a notification of its system (OSC 2; OSC 9, OSC 777).
#
# A stranger's text cannot end a sequence or begin another: signs that do not print are left out.

LONGEST: Final = 120
"""Characters of a text; a window shows fewer."""
KEEP_TITLE: Final = "\x1b[22;2t"
"""The terminal keeps its title until RETURN_TITLE (xterm, tmux, VTE, kitty, iTerm2)."""
RETURN_TITLE: Final = "\x1b[23;2t"
_END: Final = "\x07"


def title_sequence(text: str) -> str:
    """Return the sequence that makes `text` the window's title."""
    return f"\x1b]2;{_printable(text)}{_END}"


def notification_sequence(title: str, text: str, *, once: bool) -> str:
    """Return the sequences for a notification; terminals ignore those that they do not know.

    OSC 9 is of iTerm2 and Windows' terminals, OSC 777 of VTE and urxvt. The title has a letter first: a digit would be
    another command to ConEmu.

    Args:
        title: it ends at a semicolon.
        once: OSC 9 alone, for a terminal that would show both.
    """
    whole = f"\x1b]9;{_printable(f'{title}: {text}')}{_END}"
    return whole if once else f"{whole}\x1b]777;notify;{_printable(title.replace(';', ','))};{_printable(text)}{_END}"


def _printable(text: str) -> str:
    return "".join(sign for sign in text if sign.isprintable())[:LONGEST]


Report = Callable[[BaseException], None]

_WITHOUT_COLOURS: Final = NoColourFilter()
_IN_ASCII: Final = AsciiFilter()
_SHORT_ART: Final = LineArtFilter()


class TerminalApp(App[int]):
    """Writes to its terminal only changed cells, and only signs that it can show.

    Args:
        profile: the terminal's abilities.
        report: called with an unexpected exception, which then ends the app.
    """

    ENABLE_COMMAND_PALETTE = False  # ours is an action
    COMPONENT_CLASSES: ClassVar[set[str]] = set(ROLE_CLASSES)
    DEFAULT_CSS = ROLE_CSS
    CSS = QUESTION_CSS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+l", "repaint", show=False, system=True),
        Binding("ctrl+z", "suspend_process", show=False, system=True, priority=True),
    ]

    def __init__(self, *, profile: Profile, report: Report | None) -> None:
        super().__init__()
        self.profile = profile
        self._report: Report = report or (lambda _: None)
        self._painted = ScreenBuffer()
        self._pointer = "default"
        self._window_title = ""

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Return our roles' colours, for themes without them."""
        return ROLES

    def use_theme(self, themes: Themes, name: str | None) -> str:
        """Register the themes and use the one of that name; return a sentence if it is unknown."""
        chosen, unknown = themes.chosen(name)
        for each in themes.themes:
            self.register_theme(each)
        self.theme = chosen.name
        return unknown

    def get_driver_class(self) -> type[Driver]:
        """Return the driver that restores the terminal at every end."""
        usual = super().get_driver_class()
        return TerminalDriver if usual is LinuxDriver else usual

    def on_mount(self) -> None:
        if isinstance(self._driver, TerminalDriver) and self.profile.has_window:
            self._driver.ask_for_width(self._use_narrow_signs)
        if isinstance(self._driver, TerminalDriver) and not self.profile.figures_every:
            self._driver.ask_for_sync()

    def _use_narrow_signs(self) -> None:
        """Draw in ASCII from now on: the terminal gives some of our signs two cells."""
        self.profile = replace(self.profile, few_signs=True)
        self.action_repaint()
        self.refresh_css(animate=False)

    def free_mouse(self) -> None:
        """Leave the mouse to the terminal, for selecting text, until `take_mouse`."""
        if isinstance(self._driver, TerminalDriver):
            self._driver.free_mouse()

    def take_mouse(self) -> None:
        """Handle the mouse again, if it was free."""
        if isinstance(self._driver, TerminalDriver):
            self._driver.take_mouse()

    def restore_terminal(self) -> None:
        """Restore the terminal, if the screen ended without doing so."""
        if isinstance(self._driver, TerminalDriver):
            self._driver.restore_at_once()

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        """Write the changed cells, not the ones that Textual repainted."""
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
        signs: list[LineFilter] = [_IN_ASCII] if self.profile.few_signs else []
        signs += [_SHORT_ART] if self.profile.figures_every else []
        return [*super().get_line_filters(), *([_WITHOUT_COLOURS] if bare else []), *signs]

    def name_window(self, title: str) -> None:
        """Make `title` the window's title, if it is another and the terminal takes one."""
        if self.profile.has_window and title != self._window_title:
            self._write_to_window(("" if self._window_title else KEEP_TITLE) + title_sequence(title))
            self._window_title = title
            if isinstance(self._driver, TerminalDriver):
                self._driver.last_words = RETURN_TITLE

    def notify_window(self, title: str, text: str) -> None:
        """Ask the terminal's system for a notification."""
        if self.profile.has_window:
            self._write_to_window(notification_sequence(title, text, once=self.profile.notifies_once))

    def _write_to_window(self, sequence: str) -> None:
        if self._driver is not None and not self.is_headless:
            self._driver.write(sequence)

    def action_repaint(self) -> None:
        """Write everything again: the terminal may show something else."""
        self._painted.forget()
        self.refresh()

    # -- copies, and new files ---------------------------------------------------------------------------------------

    def answer(self, text: str, *, good: bool) -> None:
        """Show an outcome."""
        raise NotImplementedError

    def copy_text(self, label: str, text: str) -> None:
        """Send a text to the terminal's clipboard, which does not confirm it."""
        size = len(text.encode())
        if size > MAX_CLIPBOARD_BYTES:
            self.answer(f"{label}: {size:,} bytes are too large for a clipboard; copy it to a file", good=False)
            return
        self.copy_to_clipboard(text)
        self.answer(f"{label}: {size:,} bytes sent to the terminal's clipboard", good=True)

    def ask_new_file(self, what: str, name: str, write: Write) -> None:
        """Ask for the name of a new file for `what`, and write it."""

        def typed(name: str | None) -> None:
            if name and name.strip():
                self.run_worker(self._write_file(Path(name.strip()), write), name="write", group="write")

        self.push_screen(Prompt(f"new file for {what}", name), typed)

    async def _write_file(self, path: Path, write: Write) -> None:
        try:
            self.answer(await write(path), good=True)
        except FileExistsError:
            self.answer(f"{path} exists; it was not changed", good=False)
        except (OSError, ValueError, RuntimeError, ControlError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            self.answer(f"{path} cannot be written: {reason or error}", good=False)

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
