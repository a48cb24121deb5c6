"""The validation of entity paths (SPEC.md section 12); a backlog message's path is untrusted.

The syphon attaches to a message's destination with its own key. So a path may name an entity only: no node such as
`orders/$management`, no other host, no second spelling of a paused entity. Segments may contain the characters that
Service Bus allows: letters, digits, dots, dashes and underscores.
"""

from __future__ import annotations

from typing import Final

from paired_servicebus.core.errors import ConfigurationError

MAX_PATH: Final = 260
"""Characters; the limit of Service Bus."""
_MARKS: Final = frozenset(".-_")
_DOTS: Final = frozenset({".", ".."})
_WIDEST_ASCII: Final = "\x7f"


def path_fault(path: str) -> str:
    """Return why a text is not a valid entity path, without repeating the text; empty if it is valid."""
    if not path.strip("/"):
        return "is empty"
    if len(path) > MAX_PATH:
        return f"has {len(path):,} characters; an entity's path has at most {MAX_PATH}"
    if "://" in path:
        return "has a scheme; an entity's path names no host"
    for segment in path.split("/"):
        if not segment or segment in _DOTS:
            return "has an empty segment; use single slashes between names"
        if segment.startswith("$"):
            return "has a segment that begins with '$'; that is a node of the namespace, not an entity"
        for character in segment:
            if not character.isalnum() and character not in _MARKS:
                return f"holds {_format(character)}; names contain letters, digits, dots, dashes and underscores"
    return ""


def entity_path(name: str) -> str:
    """Return the path for a caller's entity name: without surrounding slashes, as the namespace accepts it.

    Raises:
        ConfigurationError: the name is not a valid path.
    """
    path = name.strip("/")
    fault = path_fault(path)
    if fault:
        raise ConfigurationError(f"the entity's name {name[:MAX_PATH]!r} {fault}")
    return path


def _format(character: str) -> str:
    """Return a character for a sentence, as a code point if it is not plain ASCII."""
    is_plain = character.isprintable() and character <= _WIDEST_ASCII
    return repr(character) if is_plain else f"the character U+{ord(character):04X}"
