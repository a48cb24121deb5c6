"""The service's limits on an entity beyond the ranges of its settings: tiers, sizes, targets.

Atom and ARM call it before they store settings. An entity may keep its present settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from servicebus_sandbox.broker.broker_errors import BrokerError, EntityNotFound, InvalidSettings
from servicebus_sandbox.broker.entity_settings import EntitySettings, QueueSettings, Tier, TopicSettings
from servicebus_sandbox.broker.topology.messaging_entities import Entity, Subscription
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace

PREMIUM_MESSAGE_KB = range(1024, 102400 + 1)
_SIZES_MB = tuple(1024 * size for size in (1, 2, 3, 4, 5))
_PREMIUM_SIZES_MB = (*_SIZES_MB, *(1024 * size for size in (10, 20, 40, 80)))
_TARGETS = ("forward_to", "forward_dead_lettered_to")
_NOT_BASIC = {
    "requires_duplicate_detection": False,
    "requires_session": False,
    "auto_delete_on_idle": None,
    "default_ttl": None,
    "duplicate_window": timedelta(minutes=10),
    "forward_to": None,
    "forward_dead_lettered_to": None,
    "enable_express": False,
}
"""Settings that are fixed on the Basic tier, from the page "Service Bus Resource Manager exceptions".

The fixed value itself is accepted here; the service's behaviour is undocumented.
"""


class TargetMissing(BrokerError):
    """A forwarding target that does not exist."""


def check_settings(namespace: BrokerNamespace, settings: EntitySettings, *, present: Entity | None = None) -> None:
    """Raise InvalidSettings or TargetMissing for settings that the service would refuse for this entity.

    `present` is the entity to change, None for a new one.
    """
    for name, wanted in _chosen(settings, present):
        check = _CHECKS.get(name)
        if check is not None:
            check(namespace.tier, wanted)
    check_tier(namespace, settings)
    if getattr(settings, "requires_duplicate_detection", False) and getattr(settings, "enable_express", False):
        raise InvalidSettings("an express entity cannot detect duplicates; choose one of the two")
    for name in _TARGETS:
        _check_target(namespace, getattr(settings, name, None))


def _chosen(settings: EntitySettings, present: Entity | None) -> Iterator[tuple[str, Any]]:
    """Yield the settings that differ from the entity's, or from the defaults."""
    before = type(settings)() if present is None else present.settings
    for name in _CHECKS:
        wanted = getattr(settings, name, None)
        if wanted is not None and wanted != getattr(before, name, None):
            yield name, wanted


def _check_size(tier: Tier, size: int) -> None:
    allowed = _PREMIUM_SIZES_MB if tier is Tier.PREMIUM else _SIZES_MB
    if size not in allowed:
        raise InvalidSettings(f"max_size_mb is {size}; on the tier {tier} it is one of {', '.join(map(str, allowed))}")


def _check_message_size(tier: Tier, size: int) -> None:
    if tier is not Tier.PREMIUM and size != tier.max_message_bytes // 1024:
        raise InvalidSettings(f"max_message_size_kb cannot be chosen on the tier {tier}; that takes Premium")
    if tier is Tier.PREMIUM and size not in PREMIUM_MESSAGE_KB:
        allowed = f"{PREMIUM_MESSAGE_KB.start} to {PREMIUM_MESSAGE_KB.stop - 1}"
        raise InvalidSettings(f"max_message_size_kb is {size}; allowed is {allowed}")


def _at_least(name: str, shortest: timedelta) -> Callable[[Tier, timedelta], None]:
    def check(_: Tier, value: timedelta) -> None:
        if value < shortest:
            raise InvalidSettings(f"{name} is {value}; allowed is {shortest} or more")

    return check


_CHECKS: Mapping[str, Callable[[Tier, Any], None]] = {
    "max_size_mb": _check_size,
    "max_message_size_kb": _check_message_size,
    "auto_delete_on_idle": _at_least("auto_delete_on_idle", timedelta(minutes=5)),
    "default_ttl": _at_least("default_ttl", timedelta(seconds=1)),
    "duplicate_window": _at_least("duplicate_window", timedelta(seconds=20)),
}


def check_tier(namespace: BrokerNamespace, settings: EntitySettings) -> None:
    """Raise InvalidSettings for features above the Basic tier: topics, sessions, duplicate detection, forwarding."""
    if namespace.tier is not Tier.BASIC:
        return
    if not isinstance(settings, QueueSettings):
        kind = "topics" if isinstance(settings, TopicSettings) else "subscriptions"
        raise InvalidSettings(f"'{namespace.name}' is of the tier Basic, which has no {kind}; use Standard or Premium")
    for name, only in _NOT_BASIC.items():
        if getattr(settings, name) != only:
            raise InvalidSettings(
                f"{name} cannot be set on the tier Basic of '{namespace.name}'; use Standard or Premium"
            )


def _check_target(namespace: BrokerNamespace, target: str | None) -> None:
    if target is None:
        return
    try:
        entity: Entity | None = namespace.entity(target)
    except EntityNotFound:
        entity = None
    if entity is None or isinstance(entity, Subscription):
        raise TargetMissing(f"messages are to be forwarded to '{target}', which is no queue or topic; create it first")
