"""The figures of the scenario with senders of any language, and the sentences about what did not hold."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class SenderResult(msgspec.Struct, frozen=True, kw_only=True):
    """One sender by its own list."""

    language: str
    sdk: str
    attempted: int
    accepted: int
    during_outage: int
    """Accepted while the primary was away."""
    slowest_seconds: float
    errors: int
    first_error: str | None = None
    has_ended: bool = True
    """Whether every one of its calls returned."""


class LanguagesResult(msgspec.Struct, frozen=True, kw_only=True):
    """What each sender saw of the outage. missing: languages that are not on this machine, with the reason."""

    senders: dict[str, SenderResult]
    missing: dict[str, str]
    connections_lost: int
    """Connections of clients to the gateway that ended while they were sending."""
    broken: list[str] = []
    """Expectations that did not hold, a sentence each."""


def what_languages_broke(result: LanguagesResult) -> list[str]:
    """Return the failed expectations, a sentence each."""
    lost = result.connections_lost
    said = [f"{lost} connections of clients were lost"] if lost else []
    for name, sender in result.senders.items():
        said += _of_sender(name, sender)
    return said


def _of_sender(name: str, sender: SenderResult) -> Iterator[str]:
    if sender.errors:
        yield f"{name} got {sender.errors} errors from send, the first: {sender.first_error}"
    if not sender.has_ended:
        yield f"{name} has calls that did not return"
    if not sender.during_outage:
        yield f"no message of {name} was accepted while the primary was away"


def languages_lines(result: LanguagesResult) -> list[str]:
    """Return the senders' figures in a few lines."""
    return [
        *(
            f"  {name} ({sender.sdk}): {sender.accepted} of {sender.attempted} accepted, {sender.during_outage} while "
            f"the primary was away; {sender.errors} errors, slowest {sender.slowest_seconds:.1f} s"
            for name, sender in result.senders.items()
        ),
        *(f"  Python sent instead of {language}: {reason}" for language, reason in result.missing.items()),
        f"  {result.connections_lost} of the clients' connections lost",
    ]
