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
                self.ink = _after(self.ink, numbers)
            elif glyph and self._y < len(self.rows):
                width = cell_len(glyph)
                self.rows[self._y][self._x : self._x + width] = [(glyph, self.ink), ("", self.ink)][:width]
                self._x += width

    @property
    def text(self) -> str:
        return "\n".join("".join(glyph for glyph, _ in row) for row in self.rows)


def _after(ink: str, numbers: str) -> str:
    """The pen after codes: its parts by name, sorted; empty after a reset."""
    pen = dict(part.split("=") for part in ink.split()) if ink else {}
    codes = [int(number) if number else 0 for number in numbers.split(";")]
    while codes:
        code = codes.pop(0)
        if code == 0:
            pen = {}
        elif code in (38, 48):
            length = {5: 2, 2: 4}[codes[0]]
            pen["back" if code == 48 else "fore"] = ";".join(map(str, codes[:length]))
            del codes[:length]
        elif code in (39, 49):
            pen.pop("back" if code == 49 else "fore", None)
        elif 30 <= code < 38 or 90 <= code < 98:
            pen["fore"] = str(code)
        elif 40 <= code < 48 or 100 <= code < 108:
            pen["back"] = str(code)
        else:
            assert 1 <= code <= 9, "no style of ours has it"
            pen[f"a{code}"] = "on"
    return " ".join(f"{name}={value}" for name, value in sorted(pen.items()))
