"""A document: sections of blocks, whose texts are escaped by their renderers only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import one_line


@dataclass(frozen=True, slots=True)
class Strong:
    """An emphasized text."""

    text: str


Text = str | Strong | tuple[str | Strong, ...]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A text."""

    text: Text


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of texts."""

    items: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table. The columns of `right` are aligned to the right."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Figures:
    """The plots of these panels, by their names."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Blank:
    """Room for a text that a person writes."""

    label: str
    lines: int = 3


Block = Paragraph | Bullets | Grid | Figures | Blank


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with its blocks."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report."""

    title: str
    sections: tuple[Section, ...]


def parts(text: Text) -> tuple[str | Strong, ...]:
    """Return the parts of a text."""
    return text if isinstance(text, tuple) else (text,)


# A document as Markdown that also reads well in a terminal.
#
# All text is escaped, so that a stranger's is no heading, link, picture, tag or table. Text that reads the same without
# an escape is kept: order_events has no backslash.

LONGEST: Final = 4000
"""Characters of one text."""


def as_markdown(document: Document, *, plots: Mapping[str, tuple[str, str]] | None = None) -> str:
    """Return the whole document.

    Args:
        plots: title and file of a plot, by its panel's name; figures without one are left out.
    """
    found = [f"# {plain(document.title)}"]
    for section in document.sections:
        blocks = [text for block in section.blocks if (text := "\n".join(_markdown_block(block, plots or {})))]
        if blocks:
            found += [f"## {plain(section.title)}", *blocks]
    return "\n\n".join(found) + "\n"


def _markdown_block(block: Block, plots: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    match block:
        case Paragraph(text):
            yield _markdown_text(text)
        case Bullets(items):
            yield from (f"- {_markdown_text(item)}" for item in items)
        case Grid(heads, rows, right):
            yield from table([plain(head) for head in heads], [[plain(cell) for cell in row] for row in rows], right)
        case Figures(names):
            yield "\n\n".join(f"![{plain(plots[name][0])}]({plots[name][1]})" for name in names if name in plots)
        case Blank(label):
            yield f"*{plain(label)}:* …"


def _markdown_text(text: Text) -> str:
    return "".join(
        f"**{plain(part.text)}**" if isinstance(part, Strong) else _markdown_part(part) for part in parts(text)
    )


def _markdown_part(text: str) -> str:
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


# A document as HTML in one file: readable printed and on a phone, without a script, a link or the network.

"""Characters of one text."""
SHORT: Final = 20
"""Rows of a table that is not parted by a page's end."""
NARROW: Final = 640
"""Pixels of a screen below which the narrow plots are shown."""


def as_html(document: Document, plots: Mapping[str, tuple[str, str]]) -> str:
    """Return the whole document as a page.

    Args:
        plots: a plot for wide screens and paper, and one for narrow screens, as SVG, by the panel's name.
    """
    body = [f"<h1>{shown(document.title)}</h1>"]
    for section in document.sections:
        body.append(f"<section><h2>{shown(section.title)}</h2>")
        body += [line for block in section.blocks for line in _html_block(block, plots)]
        body.append("</section>")
    return _PAGE.format(title=shown(document.title), style=_STYLE, body="\n".join(body))


def _html_block(block: Block, plots: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    match block:
        case Paragraph(text):
            yield f"<p>{_html_text(text)}</p>"
        case Bullets(items):
            yield "<ul>"
            yield from (f"<li>{_html_text(item)}</li>" for item in items)
            yield "</ul>"
        case Grid():
            yield from _grid(block)
        case Figures(names):
            for wide, narrow in (plots[name] for name in names if name in plots):
                yield f'<figure><div class="wide">{wide}</div><div class="narrow">{narrow}</div></figure>'
        case Blank(label, lines):
            yield f'<div class="blank" style="min-height:{lines * 2}em"><span>{shown(label)}</span></div>'


def _grid(grid: Grid) -> Iterator[str]:
    facts, blank = not any(grid.heads), not any(map(any, grid.rows))
    kinds = [name for name, holds in (("facts", facts), ("form", blank), ("short", len(grid.rows) <= SHORT)) if holds]
    yield f'<div class="scroll"><table class="{" ".join(kinds)}">'
    if not facts:
        heads = "".join(_cell("th", head, at in grid.right) for at, head in enumerate(grid.heads))
        yield f"<thead><tr>{heads}</tr></thead>"
    yield "<tbody>"
    for row in grid.rows:
        yield f"<tr>{''.join(_cell('td', cell, at in grid.right) for at, cell in enumerate(row))}</tr>"
    yield "</tbody></table></div>"


def _cell(tag: str, text: str, right: bool) -> str:
    return f"<{tag}{' class=right' if right else ''}>{shown(text) or '&nbsp;'}</{tag}>"


def _html_text(text: Text) -> str:
    return "".join(
        f"<strong>{shown(part.text)}</strong>" if isinstance(part, Strong) else _html_part(part) for part in parts(text)
    )


def _html_part(text: str) -> str:
    """Escape a part, and keep the spaces around it."""
    return f"{' ' if text[:1] == ' ' else ''}{shown(text)}{' ' if text[-1:] == ' ' and text.strip() else ''}"


def shown(text: str) -> str:
    """Return a text as HTML that shows it."""
    return escape(one_line(masked(text), most=LONGEST))


_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""
_STYLE: Final = f"""
:root {{ color-scheme: light; }}
body {{ font: 16px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; color: #1d2430; background: #fff;
  max-width: 62rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; overflow-wrap: anywhere; }}
h1 {{ font-size: 1.6rem; line-height: 1.25; margin: 0 0 1rem; }}
h2 {{ font-size: 1.15rem; margin: 2.2rem 0 .6rem; padding-bottom: .2rem; border-bottom: 2px solid #d5dbe3; }}
section:first-of-type h2 {{ margin-top: 0; }}
section:first-of-type > p {{ font-size: 1.08rem; background: #f3f6fa; border-left: 4px solid #2f6fb0;
  padding: .8rem 1rem; margin: .6rem 0 1rem; }}
.scroll {{ overflow-x: auto; margin: .8rem 0; }}
table {{ border-collapse: collapse; font-size: .86rem; line-height: 1.35; min-width: 60%; }}
th, td {{ text-align: left; vertical-align: top; padding: .35rem .7rem .35rem 0; border-bottom: 1px solid #e3e8ee;
  overflow-wrap: normal; }}
td {{ min-width: 3.5rem; max-width: 26rem; overflow-wrap: break-word; }}
th {{ color: #566072; font-weight: 600; border-bottom-color: #b9c2ce; }}
table.facts td:first-child {{ color: #566072; white-space: nowrap; padding-right: 1.2rem; }}
table.facts td {{ max-width: none; }}
table.form {{ min-width: 100%; }}
.right {{ text-align: right; font-variant-numeric: tabular-nums; }}
ul {{ padding-left: 1.2rem; }}
li {{ margin: .15rem 0; }}
figure {{ margin: 1rem 0; }}
figure svg {{ width: 100%; height: auto; display: block; }}
.narrow {{ display: none; }}
.blank {{ border: 1px dashed #9aa5b4; border-radius: 4px; padding: .4rem .7rem; color: #566072; }}
@media screen and (max-width: {NARROW}px) {{
  .wide {{ display: none; }}
  .narrow {{ display: block; }}
  h1 {{ font-size: 1.3rem; }}
  table.facts td:first-child {{ white-space: normal; }}
}}
@media print {{
  @page {{ size: A4; margin: 16mm 14mm; }}
  body {{ font-size: 10pt; max-width: none; padding: 0; }}
  h2 {{ break-after: avoid; }}
  figure, tr, .blank, table.short {{ break-inside: avoid; }}
  .scroll {{ overflow: visible; }}
  table {{ font-size: 7.5pt; min-width: 0; }}
  th, td {{ padding: .25rem .4rem .25rem 0; }}
  section:first-of-type > p {{ font-size: 11pt; }}
}}
"""
