"""The primary namespace's information, first of all its name, which is part of its backlog queues' names.

paired_servicebus.pairing.management.primary_name has the rule for the name. This module remembers the name, so that an
engine can start during an outage and find its queues.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from paired_servicebus.config import NamespaceConfig
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.namespace_info import UNKNOWN_NAMESPACE, NamespaceInfo
from paired_servicebus.engine.clients.client_factory import open_admin
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.pairing.management.backlog_queues import told
from paired_servicebus.pairing.management.primary_name import alias_remark, name_of

log = logging.getLogger(__name__)


async def read_primary_info(namespace: NamespaceConfig, places: EnginePaths, *, reachable: bool) -> NamespaceInfo:
    """Return the namespace's information. `reachable` False: do not contact it; only a remembered name is available."""
    info = await _ask(namespace) if reachable else UNKNOWN_NAMESPACE
    if info.name:
        remark = "" if namespace.name else alias_remark(namespace.host, info.name)
        if remark:
            log.info("%s", remark)
        places.named.write_text(f"{namespace.host}\n{info.name}\n")
    return replace(info, name=namespace.name or info.name or _remembered(namespace, places))


async def look_up_name(namespace: NamespaceConfig, places: EnginePaths) -> str:
    """Return the name without remembering it."""
    reported = "" if namespace.name else (await _ask(namespace)).name or _remembered(namespace, places)
    return name_of(namespace.host, configured=namespace.name, reported=reported)


async def _ask(namespace: NamespaceConfig) -> NamespaceInfo:
    try:
        async with open_admin(namespace) as admin:
            return await told(admin)
    except (ConfigurationError, ValueError):
        return UNKNOWN_NAMESPACE  # no management on this side: a name and some warnings are all that is missed


def _remembered(namespace: NamespaceConfig, places: EnginePaths) -> str:
    try:
        host, name = places.named.read_text().split()
    except (OSError, ValueError):
        return ""
    return name if host == namespace.host else ""
