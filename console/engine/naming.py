"""What the primary namespace is called: its backlog queues carry the name, so it stays the same (SPEC.md section 4.1).

As configured, else as the namespace tells it, else None: the pairing then takes the first label of its host. What was
told once is remembered, since an engine may have to start during an outage and still find its queues.
"""

from __future__ import annotations

from console.config import NamespaceConfig
from console.core.errors import ConfigurationError
from console.engine.connecting import open_admin
from console.engine.places import Places
from console.pairing.backlog import told


async def primary_name(namespace: NamespaceConfig, places: Places, *, reachable: bool) -> str | None:
    """The name; `reachable` False: it is not asked, only remembered."""
    if namespace.name is not None:
        return namespace.name
    told = await _ask(namespace) if reachable else ""
    if told:
        places.named.write_text(f"{namespace.host}\n{told}\n")
        return told
    return _remembered(namespace, places)


async def _ask(namespace: NamespaceConfig) -> str:
    try:
        async with open_admin(namespace) as admin:
            return (await told(admin)).name
    except (ConfigurationError, ValueError):
        return ""  # no management on this side: a name is all that is missed


def _remembered(namespace: NamespaceConfig, places: Places) -> str | None:
    try:
        host, name = places.named.read_text().split()
    except (OSError, ValueError):
        return None
    return name if host == namespace.host else None
