"""A terminal for tests: moves, colours, clearing and wide characters; whatever else a program says goes unheard."""

from __future__ import annotations

import re

from rich.cells import cell_len

_TOKENS = re.compile(
    r"\x1b\[(?P<numbers>[0-9;]*)(?P<command>[HmJ])"
    r"|\x1b(?:\[[0-9;?<>=$]*[ -/]*[@-~]|\][^\x07]*\x07|[PX^_].*?\x1b\\|[()][A-Z0-9]|[=>78])"
    r"|(?P<glyph>[^\x00-\x1f])",
    re.DOTALL,
)


class Emulator:
    """What a terminal of that size shows."""

    def __init__(self, width: int, height: int) -> None:
        self.resize(width, height)
        self.ink = ""
        self._x = self._y = 0

    def resize(self, width: int, height: int) -> None:
        """Another size; a terminal keeps nothing that a program may count on."""
        self._size = width, height
        self.clear()

    def clear(self) -> None:
        width, height = self._size
        self.rows = [[("�", "")] * width for _ in range(height)]

    def write(self, text: str) -> None:
        for token in _TOKENS.finditer(text):
            numbers, command, glyph = token["numbers"], token["command"], token["glyph"]
            if command == "H":
                y, x = [int(number) for number in numbers.split(";")] if numbers else [1, 1]
                self._x, self._y = x - 1, y - 1
            elif command == "J":
                width, height = self._size
                self.rows = [[(" ", "")] * width for _ in range(height)]
            elif command == "m":
                self.ink = numbers.removeprefix("0;") if numbers != "0" else ""
            elif glyph and self._y < len(self.rows):
                width = cell_len(glyph)
                self.rows[self._y][self._x : self._x + width] = [(glyph, self.ink), ("", self.ink)][:width]
                self._x += width

    @property
    def text(self) -> str:
        return "\n".join("".join(glyph for glyph, _ in row) for row in self.rows)
