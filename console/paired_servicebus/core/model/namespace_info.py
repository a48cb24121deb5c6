"""A namespace's description of itself, and remarks on a pair of them (SPEC.md sections 1 and 7.4).

Descriptions may be incomplete: Atom has no region and no status, and a key may lack the right to ask. Unknown values
are empty and get no remark.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

KIB: Final = 1024


class ServiceTier(StrEnum):
    """The pricing tier, which limits the size of a message."""

    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"
    UNKNOWN = ""

    @classmethod
    def called(cls, name: str | None) -> ServiceTier:
        """Return the tier of this name; UNKNOWN for other names."""
        return next((tier for tier in cls if name and tier.lower() == name.lower()), cls.UNKNOWN)


MESSAGE_LIMITS: Final[dict[ServiceTier, int]] = {
    ServiceTier.BASIC: 256 * KIB,
    ServiceTier.STANDARD: 256 * KIB,
    ServiceTier.PREMIUM: 1024 * KIB,
    ServiceTier.UNKNOWN: 256 * KIB,
}
"""Maximum bytes of a message if the entity has no limit of its own; entities of Premium allow up to 100 MB."""

ACTIVE: Final = "Active"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceInfo:
    """A namespace's description of itself."""

    name: str = ""
    tier: ServiceTier = ServiceTier.UNKNOWN
    region: str = ""
    status: str = ""

    @property
    def message_limit(self) -> int:
        """Return the maximum bytes of a message if the entity has no limit; unknown tiers count as the smallest."""
        return MESSAGE_LIMITS[self.tier]

    @property
    def has_topics(self) -> bool:
        """Return whether the namespace supports topics; True for an unknown tier."""
        return self.tier is not ServiceTier.BASIC


UNKNOWN_NAMESPACE: Final = NamespaceInfo()
"""The description of a namespace that was not asked, or did not answer."""


def remarks(primary: NamespaceInfo, secondary: NamespaceInfo) -> tuple[str, ...]:
    """Return remarks for the operator on a pair of namespaces, one sentence each."""
    found = [_status("primary", primary), _status("secondary", secondary), _region(primary, secondary)]
    if secondary.message_limit < primary.message_limit and secondary.tier is not ServiceTier.UNKNOWN:
        found.append(
            f"the secondary namespace {secondary.name} is {secondary.tier} and the primary {primary.tier}: messages "
            f"above {secondary.message_limit // KIB} KB would not survive a failover"
        )
    if secondary.tier is ServiceTier.BASIC:
        found.append(
            f"the secondary namespace {secondary.name} is Basic: its queues expire messages after 14 days, "
            "even with a longer time to live"
        )
    return tuple(text for text in found if text)


def _status(side: str, namespace: NamespaceInfo) -> str:
    if namespace.status in ("", ACTIVE):
        return ""
    return f"the {side} namespace {namespace.name} is {namespace.status}, not {ACTIVE}"


def _region(primary: NamespaceInfo, secondary: NamespaceInfo) -> str:
    """Return a region in ARM's spelling: `West Europe` becomes `westeurope`."""
    one, other = (info.region.replace(" ", "").lower() for info in (primary, secondary))
    if not one or one != other:
        return ""
    return (
        f"both namespaces are in {secondary.region}: one outage may affect both; pair with a namespace in "
        "another region"
    )


def first_label(host: str) -> str:
    """Return `contoso` for contoso.servicebus.windows.net; an IP address is returned whole."""
    bare = host.rsplit(":", 1)[0] if host.count(":") == 1 else host
    try:
        ipaddress.ip_address(bare.strip("[]"))
    except ValueError:
        return bare.split(".", 1)[0]
    return bare


def name_of(host: str, *, configured: str | None = None, reported: str = "") -> str:
    """Return the name of a namespace, which its backlog queues carry (SPEC.md section 4.1).

    Args:
        configured: by the operator; it comes first.
        reported: by the namespace; empty if it does not report. It comes before the host, which may be an alias.
    """
    return configured or reported or first_label(host)


def alias_remark(host: str, reported: str) -> str:
    """Return a sentence if the reported name differs from the host's first label; else ""."""
    label = first_label(host)
    if not reported or reported.casefold() == label.casefold():
        return ""
    return (
        f"the namespace behind {host} is called {reported}: its backlog queues are named after {reported}, and not "
        f"after {label}"
    )
