"""Which texts are paths of entities (SPEC.md section 12): a backlog message's path is a stranger's until judged here.

The syphon attaches to a message's destination with its own key. So a path may name an entity and nothing else: no node
of the namespace such as `orders/$management`, no other host, no second spelling of an entity that is paused. Segments
hold what Service Bus allows: letters, digits, dots, dashes and underscores.
"""

from __future__ import annotations

from typing import Final

from paired_servicebus.core.errors import ConfigurationError

MAX_PATH: Final = 260
"""Characters; Service Bus's own limit."""
_MARKS: Final = frozenset(".-_")
_DOTS: Final = frozenset({".", ".."})
_WIDEST_ASCII: Final = "\x7f"


def path_fault(path: str) -> str:
    """Why a text cannot be an entity's path, without repeating the text; empty if it can."""
    if not path.strip("/"):
        return "is empty"
    if len(path) > MAX_PATH:
        return f"has {len(path):,} characters; an entity's path has at most {MAX_PATH}"
    if "://" in path:
        return "has a scheme; an entity's path names no host"
    for segment in path.split("/"):
        if not segment or segment in _DOTS:
            return "has an empty segment; slashes stand between names only"
        if segment.startswith("$"):
            return "has a segment that begins with '$'; that is a node of the namespace and no entity"
        for character in segment:
            if not character.isalnum() and character not in _MARKS:
                return f"holds {_named(character)}; names hold letters, digits, dots, dashes and underscores"
    return ""


def entity_path(name: str) -> str:
    """The path that a caller's name for an entity means: without slashes around it, as the namespace takes it too.

    Raises:
        ConfigurationError: no entity can be called that.
    """
    path = name.strip("/")
    fault = path_fault(path)
    if fault:
        raise ConfigurationError(f"the entity's name {name[:MAX_PATH]!r} {fault}")
    return path


def _named(character: str) -> str:
    """A character for a sentence; by its number where a terminal might act on it."""
    is_plain = character.isprintable() and character <= _WIDEST_ASCII
    return repr(character) if is_plain else f"the character U+{ord(character):04X}"
