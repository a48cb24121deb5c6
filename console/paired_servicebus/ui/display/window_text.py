"""Control sequences for the terminal's window: its title, and a notification of its system (OSC 2; OSC 9, OSC 777).

A stranger's text cannot end a sequence or begin another: signs that do not print are left out.
"""

from __future__ import annotations

from typing import Final

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
