"""Renders a report by its templates: for the boss, for customers or for engineers; as a page, or for a terminal.

A reader's template (boss, customers, engineers) has the words and the order, and names blocks such as `block.table`.
The blocks are macros of page.html or page.txt. All that a template prints is one harmless, masked line; only macros
and plots are markup.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from typing import Any, Final, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from paired_servicebus.core.accounting.billing import Price
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.number_format import plural, size
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.pipeline.report import sentences
from paired_servicebus.pipeline.report.plots import draw_twice
from paired_servicebus.pipeline.report.report_values import Report
from paired_servicebus.pipeline.report.sentences import Clock
from paired_servicebus.pipeline.report.verdict import LEADS, TONES, count_rows, verdict_grounds, verdict_headline
from paired_servicebus.pipeline.table_commands import aligned

Reader = Literal["boss", "customers", "engineers"]
Medium = Literal["html", "text"]
LONGEST: Final = 4000
"""Characters of one text."""
WIDTH: Final = 110
"""Columns of a terminal; a wider table has a line for each cell."""
FACT: Final = 22
"""Columns of a fact's name."""
_SKELETONS: Final[dict[Medium, str]] = {"html": "page.html", "text": "page.txt"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A report's reader, its medium, and the words of its times and prices."""

    reader: Reader
    medium: Medium
    clock: Clock
    price: Price | None = None
    """Of a million operations; None: unknown."""
    files: Mapping[str, str] | None = None
    """Names of the files beside the report, each with a description."""


def rendered(report: Report, version: Version) -> str:
    """Return the whole report as text."""
    template = _ENVIRONMENT.get_template(f"{version.reader}.jinja")
    text = template.render(
        report=report,
        clock=version.clock,
        price=version.price,
        files=tuple((version.files or {}).items()),
        lead=LEADS.get(report.judgement.verdict, ""),
        skeleton=_SKELETONS[version.medium],
        words=sentences,
        verdict=verdict_headline(report.judgement),
        grounds=" ".join(verdict_grounds(report.judgement)),
        tone=TONES.get(report.judgement.verdict, "doubt"),
        counts=count_rows(report.judgement),
        plots=_plots(report) if version.medium == "html" else {},
    )
    if version.medium == "html":
        return text
    return re.sub(r"\n{3,}", "\n\n", unescape(text)).strip() + "\n"  # each text was escaped once, and no more


def _plots(report: Report) -> dict[str, tuple[Markup, ...]]:
    """Return the plots by name, each for wide and for narrow screens. Their texts are escaped where they are drawn."""
    return {panel.name: tuple(map(Markup, draw_twice(report.curves, panel))) for panel in report.curves.panels}


def plain(value: object) -> object:
    """Return a printed value of a template: markup as it is, a number with thousands, a text as one masked line."""
    if isinstance(value, Markup):
        return value
    if value is None or value == "":
        return sentences.DASH
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return one_line(masked(str(value)), most=LONGEST)


# Blocks of a terminal: text tables and wrapped paragraphs.


def text_table(heads: Sequence[object], rows: Sequence[Sequence[object]]) -> Markup:
    """Return a table in aligned columns; one wider than WIDTH as a list of names and values for each row."""
    cells = [[str(plain(cell)) for cell in row] for row in (heads, *rows)]
    lines = aligned(cells, [all(isinstance(row[place], int | None) for row in rows) for place in range(len(heads))])
    if max(map(len, lines)) <= WIDTH:
        return Markup.escape("\n".join(lines))
    most = max(map(len, cells[0]))
    blocks = ([_named(*pair, most) for pair in zip(cells[0], row, strict=True)] for row in cells[1:])
    return Markup.escape("\n\n".join("\n".join(block) for block in blocks))


def _named(name: str, cell: str, most: int) -> str:
    return textwrap.fill(f"{name.ljust(most)}  {cell}", WIDTH, subsequent_indent=" " * (most + 2))


def fact(name: object, value: object) -> Markup:
    """Return a name and its value, in lines of at most WIDTH."""
    return Markup.escape(_named(str(plain(name)), str(plain(value)), FACT))


def wrapped(text: object, *, indent: str = "") -> Markup:
    """Return a paragraph in lines of at most WIDTH; all but the first are indented."""
    return Markup.escape(textwrap.fill(str(plain(text)), WIDTH, subsequent_indent=indent, break_on_hyphens=False))


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("paired_servicebus.pipeline.report"),
        extensions=["jinja2.ext.do"],
        autoescape=True,  # for a terminal, too: results of macros are markup, and all else is plain text
        finalize=plain,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {
        "few": sentences.few, "duration": sentences.duration,
        "percent": sentences.percent, "size": size, "plural": plural, "wrapped": wrapped,
        "finding": sentences.finding_sentence,
    }  # fmt: skip
    made.filters |= filters
    made.globals |= {"text_table": text_table, "fact": fact, "is_number": lambda cell: isinstance(cell, int)}
    return made


_ENVIRONMENT: Final = _environment()
