"""The options of SPEC.md section 3 that are values: names, defaults, ranges. Durations are seconds.

`Policy` checks them when it is created, before any network contact. The two clients belong to
paired_servicebus.pairing, which builds a `Policy` from the caller's arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf
from typing import Final, Literal, NamedTuple, get_args

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.text.entity_paths import path_fault
from paired_servicebus.core.text.masking import shown

MINUTE: Final = 60.0
YEAR: Final = 366 * 24 * 60 * MINUTE
"""The longest time where no other is given: a calendar can show its end."""
MAX_QUEUES: Final = 10_000
"""Queues of a namespace: its quota."""

PingKind = Literal["message", "link"]
TtlPolicy = Literal["restart", "elapsed"]
JournalKind = Literal["diverted", "all"]
PumpKind = Literal["auto", "amqp", "sdk"]


class OptionRange(NamedTuple):
    """An option's minimum and maximum; None: unbounded."""

    least: float
    greatest: float | None = None

    def holds(self, value: float) -> bool:
        """Return whether `value` is in the range, both ends included; NaN and infinity never are."""
        return self.least <= value < inf and (self.greatest is None or value <= self.greatest)

    def __str__(self) -> str:
        return f"at least {self.least:g}" if self.greatest is None else f"{self.least:g} to {self.greatest:.15g}"


RANGES: Final[dict[str, OptionRange]] = {
    "backlog_queue_count": OptionRange(1, MAX_QUEUES),
    "failover_interval": OptionRange(0, 60 * MINUTE),
    "ping_primary_interval": OptionRange(1, 30 * MINUTE),
    "ping_timeout": OptionRange(1, 2 * MINUTE),
    "syphon_retry_interval": OptionRange(1, 2 * MINUTE),
    "syphon_receive_window": OptionRange(1, 60 * MINUTE),
    "close_grace": OptionRange(0, 60 * MINUTE),
    "send_timeout": OptionRange(1, 5 * MINUTE),
    "failback_pings": OptionRange(1, 1_000),
    "cool_down": OptionRange(0, YEAR),
    "undeliverable_after": OptionRange(0, YEAR),
    "throttle_wait": OptionRange(10, YEAR),
    "quiet_period": OptionRange(1, YEAR),
    "syphon_rate": OptionRange(0, 1_000_000),
    "syphon_live_share": OptionRange(0, 0.9),
}
WORDS: Final[dict[str, tuple[str, ...]]] = {
    "ping": get_args(PingKind),
    "ttl_policy": get_args(TtlPolicy),
    "journal": get_args(JournalKind),
    "pump": get_args(PumpKind),
}
PLAIN: Final = {"syphon_rate": "a number of messages a second", "syphon_live_share": "a part of 1"}
"""Options that are numbers but not seconds."""
WHOLE: Final = frozenset({"backlog_queue_count", "failback_pings"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The options of send availability. Times are seconds.

    Raises:
        ConfigurationError: names the option, the value and the range.
    """

    backlog_queue_count: int = 10
    failover_interval: float = MINUTE
    enable_syphon: bool = False
    ping_primary_interval: float = MINUTE
    ping_timeout: float = 2 * MINUTE
    ping: PingKind = "message"
    syphon_retry_interval: float = 1.0
    syphon_receive_window: float = 15 * MINUTE
    close_grace: float = 5.0
    send_timeout: float = 30.0
    hold_until_failover: bool = False
    failback_pings: int = 1
    cool_down: float = 0.0
    ttl_policy: TtlPolicy = "restart"
    undeliverable_after: float = 15 * MINUTE
    throttle_wait: float = 10.0
    quiet_period: float = 15 * MINUTE
    """Minimum age of an unused backlog queue's last activity before it may be deleted (SPEC.md section 4.3)."""
    journal: JournalKind = "diverted"
    pump: PumpKind = "auto"
    syphon_rate: float = 0.0
    """Maximum messages a second that this engine's syphon moves; 0: unlimited."""
    syphon_live_share: float = 0.5
    """Share of the syphon's rate limit, configured or from throttling, that is reserved for live senders to the
    primary."""
    destinations: tuple[str, ...] | None = None
    """Entities that this engine's syphon delivers to; messages for others are dead-lettered. None: all."""
    record_received: bool = False
    """Journal each message that a receiver of the pairing, or of its gateway, gets."""
    start_degraded: bool = False
    """Pair even if the secondary namespace does not answer, and complete the pairing later."""

    def __post_init__(self) -> None:
        for field in fields(self):
            _check(field.name, getattr(self, field.name))

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return remarks on options that are allowed but conflict, one sentence each."""
        send, failover = self.send_timeout, self.failover_interval
        if not self.hold_until_failover or send > failover:
            return ()
        return (
            f"hold_until_failover waits until send_timeout ({send:g} s) has passed, and failover_interval is "
            f"{failover:g} s: a send without a timeout of its own raises before the failover; set send_timeout above "
            "failover_interval",
        )


def _check(name: str, value: object) -> None:
    if name in WORDS:
        if value not in WORDS[name]:
            raise ConfigurationError(f"{name} is {shown(value)}; it is one of {', '.join(WORDS[name])}")
    elif name in RANGES:
        kind = int if name in WHOLE else (int, float)
        if isinstance(value, bool) or not isinstance(value, kind):
            what = "a whole number" if name in WHOLE else PLAIN.get(name, "a number of seconds")
            raise ConfigurationError(f"{name} is {shown(value)}; it is {what}, {RANGES[name]}")
        if not RANGES[name].holds(value):
            unit = "" if name in WHOLE or name in PLAIN else " seconds"
            unit += ", and finite" if value == inf and name not in WHOLE else ""
            raise ConfigurationError(f"{name} is {shown(value)}; it must be {RANGES[name]}{unit}")
    elif name == "destinations":
        _check_destinations(value)
    elif not isinstance(value, bool):
        raise ConfigurationError(f"{name} is {shown(value)}; it is true or false")


def _check_destinations(value: object) -> None:
    if value is None:
        return
    if not isinstance(value, tuple) or not value:
        raise ConfigurationError(f"destinations is {shown(value)}; it must be a tuple of entity paths, or None for any")
    for path in value:
        fault = path_fault(path) if isinstance(path, str) else "is no text"
        if fault:
            raise ConfigurationError(f"destinations has {shown(path)}, which {fault}")


def times_line(policy: Policy) -> str:
    """Return the times in force, as one line."""
    named = (
        ("send", policy.send_timeout),
        ("failover", policy.failover_interval),
        ("ping", policy.ping_primary_interval),
    )
    return " · ".join(f"{name} {seconds:g} s" for name, seconds in named)
