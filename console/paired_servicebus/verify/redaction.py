"""Results without secrets, hosts and names of namespaces, so that a file can be attached to a public issue.

Namespaces become "primary" and "secondary". Texts of the service lose their tracking ids, which name hosts too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from paired_servicebus.config import NamespaceConfig, PairingConfig
from paired_servicebus.connection_string import parts_of
from paired_servicebus.core.model.namespace_info import first_label
from paired_servicebus.core.text.masking import MASK, masked
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.temporary_entities.managed_namespace import Side
from paired_servicebus.verify.queue_names import without_queues

MAX_TEXT: Final = 600
"""Characters of one sentence."""
_TRACKING: Final = re.compile(
    r"[\s,;.]*\b(?:TrackingId|SystemTracker|Tracking|Reference|Timestamp)\s*[:=].*", re.IGNORECASE | re.DOTALL
)
"""The end of a text of the service, from its tracking id on."""
_DOMAIN: Final = re.compile(r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.servicebus\.[A-Za-z.]+[A-Za-z]", re.IGNORECASE)
_ADDRESS: Final = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?(?![\w.])|\[[0-9a-fA-F:]+\](?::\d+)?")
_HOST: Final = "HOST"
_QUEUE: Final = "QUEUE"
_SECRET_PARTS: Final = ("sharedaccesskey", "sharedaccesssignature")
_ROOT: Final = "RootManageSharedAccessKey"


class Redactor:
    """Removes the names and secrets of a pairing's namespaces from texts.

    Args:
        names: further names of each namespace, as it reports them.
    """

    def __init__(self, config: PairingConfig, names: Mapping[Side, Iterable[str]]) -> None:
        self._secrets: set[str] = set()
        self._hosts: dict[str, str] = {}
        self._names: dict[str, str] = {}
        for side, namespace in ((Side.PRIMARY, config.primary), (Side.SECONDARY, config.secondary)):
            self._secrets |= _secrets_of(namespace)
            for host in _hosts_of(namespace):
                self._hosts[host.casefold()] = str(side)
            for name in (namespace.name, first_label(namespace.host), *names[side]):
                if name and name.casefold() not in (Side.PRIMARY, Side.SECONDARY) and not name.isdigit():
                    self._names[name.casefold()] = str(side)

    def clean(self, text: str) -> str:
        """Return one line without secrets, hosts and names of namespaces."""
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, MASK)
        text = _TRACKING.sub("", masked(text))
        for table, bounds in ((self._hosts, r"[\w.-]"), (self._names, r"[A-Za-z0-9-]")):
            for name in sorted(table, key=len, reverse=True):
                pattern = rf"(?<!{bounds}){re.escape(name)}(?!{bounds})" if table is self._names else re.escape(name)
                text = re.sub(pattern, table[name], text, flags=re.IGNORECASE)
        text = _ADDRESS.sub(_HOST, _DOMAIN.sub(_HOST, text))
        return one_line(without_queues(text, _QUEUE), most=MAX_TEXT)


def _secrets_of(namespace: NamespaceConfig) -> set[str]:
    found = {namespace.tenant, namespace.client_id, namespace.subscription, namespace.resource_group}
    for secret in (namespace.connection_string, namespace.client_secret, namespace.proxy):
        if secret is not None:
            found.add(secret.reveal())
    if namespace.connection_string is not None:
        parts = parts_of(namespace.connection_string.reveal())
        found |= {parts.get(name) for name in _SECRET_PARTS}
        found.add(None if parts.get("sharedaccesskeyname") == _ROOT else parts.get("sharedaccesskeyname"))
    return {secret for secret in found if secret}


def _hosts_of(namespace: NamespaceConfig) -> set[str]:
    """Return the host as it may appear in texts: with and without its port, and as the SDK is given it."""
    given = {namespace.host, *_addresses((namespace.custom_endpoint, namespace.arm_url, namespace.authority))}
    return (
        given | {host.rpartition(":")[0] for host in given if ":" in host} | {host.replace(":", "-") for host in given}
    )


def _addresses(urls: Iterable[str | None]) -> set[str]:
    return {url.split("://")[-1].split("/")[0] for url in urls if url}
