"""What a namespace tells about itself, and what a pairing has to say about that (SPEC.md sections 1 and 7.4).

A namespace need not tell everything: Atom knows no region and no status, and a key may not be allowed to ask at all.
What is not known is empty, and nothing is said about it.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

KIB: Final = 1024


class Tier(StrEnum):
    """What is paid for; decides how large a message may be."""

    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"
    UNKNOWN = ""

    @classmethod
    def called(cls, name: str | None) -> Tier:
        """The tier of this name; UNKNOWN for one that is not."""
        return next((tier for tier in cls if name and tier.lower() == name.lower()), cls.UNKNOWN)


MESSAGE_LIMITS: Final[dict[Tier, int]] = {
    Tier.BASIC: 256 * KIB,
    Tier.STANDARD: 256 * KIB,
    Tier.PREMIUM: 1024 * KIB,
    Tier.UNKNOWN: 256 * KIB,
}
"""Bytes of the largest message, where the entity itself does not say; Premium's entities may allow up to 100 MB."""

ACTIVE: Final = "Active"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceInfo:
    """A namespace in its own words."""

    name: str = ""
    tier: Tier = Tier.UNKNOWN
    region: str = ""
    status: str = ""

    @property
    def message_limit(self) -> int:
        """Bytes of the largest message where the entity does not say; unknown tiers count as the smallest."""
        return MESSAGE_LIMITS[self.tier]

    @property
    def has_topics(self) -> bool:
        """Whether topics can be made here; True where the tier is not known."""
        return self.tier is not Tier.BASIC


UNKNOWN_NAMESPACE: Final = NamespaceInfo()
"""Of a namespace that was not asked, or did not answer."""


def remarks(primary: NamespaceInfo, secondary: NamespaceInfo) -> tuple[str, ...]:
    """What a person should know about two namespaces that are paired; a sentence each."""
    said = [_status("primary", primary), _status("secondary", secondary), _region(primary, secondary)]
    if secondary.message_limit < primary.message_limit and secondary.tier is not Tier.UNKNOWN:
        said.append(
            f"the secondary namespace {secondary.name} is {secondary.tier} and the primary {primary.tier}: messages "
            f"above {secondary.message_limit // KIB} KB would not survive a failover"
        )
    if secondary.tier is Tier.BASIC:
        said.append(
            f"the secondary namespace {secondary.name} is Basic: messages lie in its queues for 14 days at most, "
            "whatever their time to live"
        )
    return tuple(text for text in said if text)


def _status(side: str, namespace: NamespaceInfo) -> str:
    if namespace.status in ("", ACTIVE):
        return ""
    return f"the {side} namespace {namespace.name} is {namespace.status}, not {ACTIVE}"


def _region(primary: NamespaceInfo, secondary: NamespaceInfo) -> str:
    """Regions compare as ARM writes them: `West Europe` is `westeurope`."""
    one, other = (info.region.replace(" ", "").lower() for info in (primary, secondary))
    if not one or one != other:
        return ""
    return (
        f"both namespaces are in {secondary.region}: a data centre's outage takes them both; pair with a namespace of "
        "another region"
    )


def first_label(host: str) -> str:
    """Return `contoso` of contoso.servicebus.windows.net; an address stays whole: its first number names nothing."""
    bare = host.rsplit(":", 1)[0] if host.count(":") == 1 else host
    try:
        ipaddress.ip_address(bare.strip("[]"))
    except ValueError:
        return bare.split(".", 1)[0]
    return bare
