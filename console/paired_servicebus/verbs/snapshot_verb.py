"""`paired snapshot`: one page of the dashboard as a picture or as text, without a terminal."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from paired_servicebus.core.errors import PairedError
from paired_servicebus.engine.instance.engine_paths import EnginePaths, journals_here
from paired_servicebus.printing import print_lines
from paired_servicebus.verbs import engine_commands
from paired_servicebus.verbs.parameters import EngineSelection

if TYPE_CHECKING:
    from paired_servicebus.ui.state.incident_history import IncidentHistory
    from paired_servicebus.ui.state.view import Page

MOST_COLUMNS: Final = 500
MOST_ROWS: Final = 200
_SIZE: Final = re.compile(r"([0-9]{1,6})x([0-9]{1,6})")


def snapshot(
    *,
    svg: Annotated[Path | None, Parameter(help="The file to write, as a picture.")] = None,
    text: Annotated[bool, Parameter(help="Print it as text instead.")] = False,
    page: Annotated[str, Parameter(help="The page, by number or name.")] = "1",
    size: Annotated[str, Parameter(help="Columns and rows.")] = "140x40",
    theme: Annotated[str, Parameter(help="The picture's theme.")] = "dark",
    engines: EngineSelection = EngineSelection(),
) -> int:
    """Save a page of the current dashboard as a picture or text; needs no terminal."""
    if (svg is None) is not text:
        raise PairedError("paired snapshot needs either --svg FILE or --text")
    wanted, cells = parse_page(page), parse_size(size)
    places = engine_commands.select_engines(engines)
    if len(places) > 1:
        raise PairedError(f"paired snapshot shows one engine: choose one of {', '.join(one.name for one in places)}")
    drawn = _draw(places[0], wanted, cells, theme, as_text=text)
    if svg is None:
        print_lines(drawn.split("\n"))
        return 0
    try:
        svg.write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise PairedError(f"{svg} cannot be written: {error.strerror or error}") from error
    print_lines([f"{svg} shows the engine of {places[0].name}"])
    return 0


def parse_size(text: str) -> tuple[int, int]:
    """Return columns and rows of "140x40". Raises PairedError: it is no size, or too large."""
    match = _SIZE.fullmatch(text)
    columns, rows = map(int, match.groups()) if match else (0, 0)
    if not (1 <= columns <= MOST_COLUMNS and 1 <= rows <= MOST_ROWS):
        raise PairedError(f"--size {text!r} is no size: give columns x rows, 1x1 to {MOST_COLUMNS}x{MOST_ROWS}")
    return columns, rows


def parse_page(text: str) -> Page:
    """Return the page of a number or name. Raises PairedError: there is none."""
    from paired_servicebus.ui.state.view import Page

    pages = list(Page)
    name = text.strip().casefold()
    if name.isascii() and name.isdigit() and 1 <= int(name) <= len(pages):
        return pages[int(name) - 1]
    if name in (page.value for page in pages):
        return Page(name)
    known = ", ".join(f"{number} {page}" for number, page in enumerate(pages, start=1))
    raise PairedError(f"--page {text!r} is no page; pages are {known}")


def _draw(places: EnginePaths, page: Page, size: tuple[int, int], theme: str, *, as_text: bool) -> str:
    from paired_servicebus.ui.shell.screenshot import picture  # with Textual behind it
    from paired_servicebus.ui.state.view import Page

    socket = engine_commands.require_socket(places)
    past = partial(_past, places) if page is Page.HISTORY else None
    try:
        return asyncio.run(picture(socket, size=size, theme=theme, page=page, as_text=as_text, past=past))
    except ValueError as error:
        raise PairedError(f"--theme: {error}") from error


def _past(places: EnginePaths, _pairing: str, chosen: str) -> IncidentHistory:
    from paired_servicebus.ui.state.incident_history import read_history

    return read_history(places.tables, chosen, journals=journals_here(), pairing=places.name)
