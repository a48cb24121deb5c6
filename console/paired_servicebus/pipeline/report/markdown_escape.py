"""Escapes foreign text in a Markdown report, so that it is no heading, link, picture, tag or table.

Text that reads the same without an escape is kept, for readers in a terminal: order_events has no backslash.
"""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.pipeline.report.incident import Report

LONGEST: Final = 1000
"""Characters of one text."""
_SIGNS: Final = re.compile(
    r"[\\`*\[\]#~$]"  # emphasis, code, links and pictures, headings, struck out, formulas
    r"|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"  # emphasis again, but not within a word
    r"|^[-+=>](?=\s|$)|(?<=^\d)[.)]|(?<=^\d\d)[.)]"  # lists and quotations, at the beginning alone
    r"|:(?=//)|(?<=\bwww)\."  # what is made a link without being asked
)
_TAGS: Final = re.compile(r"[<>]|&(?=#?\w+;)")
_NAMED: Final = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def plain(text: str) -> str:
    """Give a text as Markdown that shows it. The pipes of a table are escaped by the table."""
    line = _SIGNS.sub(r"\\\g<0>", one_line(masked(text), most=LONGEST))
    return _TAGS.sub(lambda sign: _NAMED[sign.group()], line)


def shown_plainly(report: Report) -> Report:
    """Give the report with every text in it as Markdown that shows it."""
    shown: Report = _plain(report)
    return shown


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, tuple):
        return tuple(_plain(one) for one in value)
    if isinstance(value, dict):
        return {_plain(name) if isinstance(name, str) else name: _plain(one) for name, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _plain(getattr(value, field.name)) for field in fields(value)})
    return value
