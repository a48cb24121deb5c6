"""Atom envelopes of management answers, and the parser of clients' entries.

Documents with a DOCTYPE are refused, so entities are never expanded. Contents are in `entity_xml`, answers in
`management_api`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from servicebus_sandbox.atom.entity_xml import write_time

ATOM = "http://www.w3.org/2005/Atom"


class AtomError(Exception):
    """A body that is not an Atom entry with XML content; the message names the flaw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomEntry:
    """One entity in its envelope. Times are epoch seconds; `address` is the entity's URL."""

    address: str
    title: str
    author: str
    published: float
    updated: float
    content: ElementTree.Element


def content_of(body: bytes) -> ElementTree.Element:
    """Return the first element inside the entry's content. Raises AtomError."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AtomError(f"the body is not UTF-8: {error.reason} at byte {error.start}") from error
    if "<!doctype" in text.lower():
        raise AtomError("the body has a DOCTYPE; send an Atom entry without one")
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise AtomError(f"the body is not well-formed XML: {error}") from error
    content = root.find("{*}content") if root.tag.endswith("}entry") else None
    if content is None or not len(content):
        raise AtomError("the body is not an Atom entry with a description as its content")
    return content[0]


def entry_document(entry: AtomEntry) -> bytes:
    """Return one entity as a document."""
    return _document(_entry(entry))


def feed_document(
    address: str, title: str, entries: Sequence[AtomEntry], *, next_page: str | None, now: float
) -> bytes:
    """Return several entities; `next_page` is the URL of the next page, None at the end."""
    feed = ElementTree.Element("feed", {"xmlns": ATOM})
    _add(feed, "title", title, type="text")
    _add(feed, "id", address)
    _add(feed, "updated", write_time(now))
    _add(feed, "link", rel="self", href=address)
    if next_page is not None:  # clients take the second link for the next page
        _add(feed, "link", rel="next", href=next_page)
    feed.extend(_entry(entry) for entry in entries)
    return _document(feed)


def error_document(status: int, detail: str) -> bytes:
    """Return the body of a refusal: the HTTP status as code, and one sentence."""
    error = ElementTree.Element("Error")
    _add(error, "Code", str(status))
    _add(error, "Detail", "".join(character if character.isprintable() else "?" for character in detail))
    return _document(error)


def _entry(entry: AtomEntry) -> ElementTree.Element:
    element = ElementTree.Element("entry", {"xmlns": ATOM})
    _add(element, "id", entry.address)
    _add(element, "title", entry.title, type="text")
    _add(element, "published", write_time(entry.published))
    _add(element, "updated", write_time(entry.updated))
    _add(_add(element, "author"), "name", entry.author)
    _add(element, "link", rel="self", href=entry.address)
    _add(element, "content", type="application/xml").append(entry.content)
    return element


def _add(parent: ElementTree.Element, tag: str, text: str | None = None, **attributes: str) -> ElementTree.Element:
    child = ElementTree.SubElement(parent, tag, attributes)
    child.text = text
    return child


def _document(root: ElementTree.Element) -> bytes:
    text: str = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>{text}'.encode()
