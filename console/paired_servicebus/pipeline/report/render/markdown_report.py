"""A document as Markdown that also reads well in a terminal.

All text is escaped, so that a stranger's is no heading, link, picture, tag or table. Text that reads the same without
an escape is kept: order_events has no backslash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.pipeline.report.render.document import (
    Blank,
    Block,
    Bullets,
    Document,
    Figures,
    Grid,
    Paragraph,
    Strong,
    Text,
    parts,
)

LONGEST: Final = 4000
"""Characters of one text."""


def as_markdown(document: Document, *, plots: Mapping[str, tuple[str, str]] | None = None) -> str:
    """Return the whole document.

    Args:
        plots: title and file of a plot, by its panel's name; figures without one are left out.
    """
    found = [f"# {plain(document.title)}"]
    for section in document.sections:
        blocks = [text for block in section.blocks if (text := "\n".join(_block(block, plots or {})))]
        if blocks:
            found += [f"## {plain(section.title)}", *blocks]
    return "\n\n".join(found) + "\n"


def _block(block: Block, plots: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    match block:
        case Paragraph(text):
            yield _text(text)
        case Bullets(items):
            yield from (f"- {_text(item)}" for item in items)
        case Grid(heads, rows, right):
            yield from table([plain(head) for head in heads], [[plain(cell) for cell in row] for row in rows], right)
        case Figures(names):
            yield "\n\n".join(f"![{plain(plots[name][0])}]({plots[name][1]})" for name in names if name in plots)
        case Blank(label):
            yield f"*{plain(label)}:* …"


def _text(text: Text) -> str:
    return "".join(f"**{plain(part.text)}**" if isinstance(part, Strong) else _inner(part) for part in parts(text))


def _inner(text: str) -> str:
    """Escape a part, and keep the spaces around it."""
    before = " " if text[:1] == " " else ""
    after = " " if text[-1:] == " " and text.strip() else ""
    return f"{before}{plain(text)}{after}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> list[str]:
    """Return a Markdown table, its columns aligned for a terminal."""
    safe = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(3, *(len(row[index]) for row in [list(heads), *safe])) for index in range(len(heads))]
    rules = "|".join("-" * (width + 1) + (":" if index in right else "-") for index, width in enumerate(widths))
    return [_line(heads, widths, right), f"|{rules}|", *(_line(row, widths, right) for row in safe)]


def _line(cells: Sequence[str], widths: Sequence[int], right: frozenset[int]) -> str:
    padded = (
        cell.rjust(width) if index in right else cell.ljust(width)
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return f"| {' | '.join(padded)} |"


_SIGNS: Final = re.compile(
    r"[\\`*\[\]#~$]"  # emphasis, code, links and pictures, headings, struck out, formulas
    r"|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"  # emphasis again, but not within a word
    r"|^[-+=>](?=\s|$)|(?<=^\d)[.)](?=\s|$)|(?<=^\d\d)[.)](?=\s|$)"  # lists and quotations, at the beginning alone
    r"|:(?=//)|(?<=\bwww)\."  # what is made a link without being asked
)
_TAGS: Final = re.compile(r"[<>]|&(?=#?\w+;)")
_NAMED: Final = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def plain(text: str) -> str:
    """Give a text as Markdown that shows it. The pipes of a table are escaped by the table."""
    line = _SIGNS.sub(r"\\\g<0>", one_line(masked(text), most=LONGEST))
    return _TAGS.sub(lambda sign: _NAMED[sign.group()], line)
