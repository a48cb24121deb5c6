"""A document: sections of blocks, whose texts are escaped by their renderers only."""

from __future__ import annotations

from dataclasses import dataclass


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
