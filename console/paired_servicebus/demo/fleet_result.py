"""The fleet scenario's figures, and the sentences about what did not hold.

An answer on the boards is what an engine reports. Each host's own account, from its own process, must agree with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from paired_servicebus.core.text.time_format import clock

HOSTS: Final = tuple(f"web-{number}" for number in range(1, 9))
CUT_OFF: Final = "web-7"
READ_ONLY: Final = "web-8"
REFUSAL: Final = "read-only"
"""The reason of a read-only engine contains it."""


class HostAccount(msgspec.Struct, frozen=True, kw_only=True):
    """One host by its own process: its messages, and the state of `orders` in its engine."""

    answers: dict[str, str]
    """Every message id that its application attempted, with the final answer."""
    accepted: int
    """Messages that the primary accepted."""
    diverted: int
    """Messages that backlog queues accepted."""
    forced_at: float | None = None
    """When its engine first diverted by an order; None: never."""
    is_forced: bool = False
    pings_sent: int = 0
    pings_accepted: int = 0
    failovers: int = 0
    failbacks: int = 0
    seconds_failed_over: float = 0.0
    moved: int = 0
    """Messages that its syphon moved."""
    billed: int = 0


class HostResult(msgspec.Struct, frozen=True, kw_only=True):
    """One host's figures."""

    sent: int
    diverted: int
    forced_at: float | None
    is_forced: bool


class FleetResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the order, by the answers on the boards and by the hosts' own accounts."""

    done: list[str]
    """Engines that did it while one was cut off."""
    refused: dict[str, str]
    """Engine and reason."""
    silent: list[str]
    """Addressed engines without an answer while one was cut off."""
    taken_up: dict[str, float]
    """Engines that did it after the network was back, with the time by their own account."""
    released: list[str]
    """Engines that did the release."""
    cut_at: float
    back_at: float
    hosts: dict[str, HostResult]
    broken: list[str] = []
    """Expectations that did not hold, a sentence each."""


def what_fleet_broke(result: FleetResult) -> list[str]:
    """Return the failed expectations, a sentence each."""
    return [*_answers(result), *_accounts(result)]


def _answers(result: FleetResult) -> Iterator[str]:
    """Compare the answers on the boards with the script."""
    meant = [name for name in HOSTS if name not in (CUT_OFF, READ_ONLY)]
    if sorted(result.done) != meant:
        yield f"the order was done by {_list(result.done)} and had to be by {_list(meant)}"
    if list(result.refused) != [READ_ONLY] or REFUSAL not in result.refused[READ_ONLY]:
        reasons = _list([f"{name} ({why})" for name, why in result.refused.items()])
        yield f"the order was refused by {reasons} and had to be by {READ_ONLY} ({REFUSAL})"
    if result.silent != [CUT_OFF]:
        yield f"no answer came from {_list(result.silent)} and had to be missing from {CUT_OFF}"
    if list(result.taken_up) != [CUT_OFF]:
        yield f"the order was taken up by {_list(list(result.taken_up))} and had to be by {CUT_OFF}"
    if sorted(result.released) != sorted(HOSTS):  # a read-only engine has nothing to release, so it is done there too
        yield f"the release was done by {_list(result.released)} and had to be by {_list(list(HOSTS))}"


def _accounts(result: FleetResult) -> Iterator[str]:
    """Compare the hosts' own accounts with the script."""
    for name in HOSTS:
        host = result.hosts[name]
        if not host.sent:
            yield f"{name} sent nothing"
        if host.is_forced:
            yield f"{name} is still forced"
        yield from _forced(result, name, host)


def _forced(result: FleetResult, name: str, host: HostResult) -> Iterator[str]:
    """Check when a host carried the order out, and that its messages took that way. An outage diverts messages too."""
    if name == READ_ONLY:
        if host.forced_at is not None:
            yield f"{name} is read-only, and carried the order out at {clock(host.forced_at)}"
        return
    begins, ends = (result.back_at, float("inf")) if name == CUT_OFF else (result.cut_at, result.back_at)
    if host.forced_at is None:
        yield f"{name} never carried the order out"
    elif not begins <= host.forced_at <= ends:
        back = clock(result.back_at)
        yield f"{name} carried the order out at {clock(host.forced_at)}; the network was back at {back}"
    if not host.diverted:
        yield f"{name} diverted no message"


def fleet_lines(result: FleetResult) -> list[str]:
    """Return the fleet's result in a few lines."""
    refused = [f"{name}: {why}" for name, why in result.refused.items()]
    taken_up = [f"{name} at {clock(at)}" for name, at in result.taken_up.items()]
    forced = [name for name, host in result.hosts.items() if host.is_forced]
    return [
        f"  the order: {len(result.done)} done, {_counted('refused', refused)}, "
        f"{_counted('taken up after it came back', taken_up)} (the network was back at {clock(result.back_at)})",
        f"  the release: {len(result.released)} done, "
        + (f"still forced: {_list(forced)}" if forced else f"all {len(result.hosts)} released"),
        "  diverted: " + ", ".join(f"{name} {host.diverted} of {host.sent}" for name, host in result.hosts.items()),
    ]


def _counted(word: str, items: list[str]) -> str:
    return f"{len(items)} {word}" + (f" ({', '.join(items)})" if items else "")


def _list(names: list[str]) -> str:
    return ", ".join(names) or "none"
