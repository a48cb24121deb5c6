"""The SDK of a client, by the properties of its open frame.

Every official SDK sends a `user-agent` such as `azsdk-js-azureservicebus/7.9.5 ...`; an application's own text may come
before it. All of it is a stranger's text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import one_line

MAX_NAME: Final = 40
MAX_VERSION: Final = 20
MAX_CONTAINER: Final = 60
MAX_SENTENCE: Final = 160
_READ: Final = 400
"""Characters of a property that are read at all."""
_LANGUAGES: Final = {"python": "Python", "js": "JavaScript", "java": "Java", "go": "Go", "net": ".NET"}
_SDK: Final = re.compile(r"azsdk-(python|js|java|go|net)-[\w.-]+/v?([\w.+-]+)", re.ASCII)


class ClientName(NamedTuple):
    """sdk: its language, or another product's name; empty: it named none."""

    sdk: str
    version: str
    container: str


NAMELESS: Final = ClientName("", "", "")


def foreign(text: object, most: int) -> str:
    """Return a client's text as one short, harmless line without secrets; empty if it is no text."""
    return one_line(masked(text[:_READ]), most=most) if isinstance(text, str) else ""


def client_name(container_id: object, properties: Mapping[Any, Any] | None) -> ClientName:
    """Return the name of a client by its open frame."""
    known = {str(name): value for name, value in (properties or {}).items() if str(name) in _PROPERTIES}
    container, agent = foreign(container_id, MAX_CONTAINER), known.get("user-agent")
    found = _SDK.search(agent[:_READ]) if isinstance(agent, str) else None
    if found is not None:
        return ClientName(_LANGUAGES[found[1]], _version(found[2])[:MAX_VERSION], container)
    product = foreign(known.get("product"), MAX_NAME)
    return ClientName(product, foreign(known.get("version"), MAX_VERSION) if product else "", container)


def _version(text: str) -> str:
    """Return a version as its package has it: .NET sends its assembly's, 7.2100.26.47403 for 7.21.0."""
    found = _ASSEMBLY.fullmatch(text)
    return f"{found[1]}.{int(found[2])}.{int(found[3])}" if found is not None else text


_ASSEMBLY: Final = re.compile(r"(\d+)\.(\d{1,2})(\d\d)\.\d+\.\d+", re.ASCII)
"""Major, then minor and patch in one number, build and revision."""
_PROPERTIES: Final = frozenset({"user-agent", "product", "version"})
