"""The command line of `paired rehearse` as values: history, policies, number of readings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.pipeline.rehearsal.histories.journal_history import read_history
from paired_servicebus.pipeline.rehearsal.histories.recorded_history import RecordedHistory
from paired_servicebus.pipeline.rehearsal.histories.synthetic_history import HOUR
from paired_servicebus.pipeline.rehearsal.policy_grid import Order, order_of, policies_of
from paired_servicebus.settings import seconds_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalRequest:
    """The arguments as written on the command line."""

    intervals: str
    pings: str
    ping_intervals: str
    seeds: int
    master: str | None = None


def history_for(journal: Path | None, policy: Policy) -> RecordedHistory:
    """Return the recorded history, or the synthetic hour if the journal has no failure.

    Raises:
        ConfigurationError: there is no journal at `journal`.
    """
    if journal is None:
        return HOUR
    history = read_history(journal, policy)
    return history if history.outages else HOUR


def rehearsal_order(asked: RehearsalRequest, history: RecordedHistory, policy: Policy) -> Order:
    """Return the order of the command line.

    Raises:
        ConfigurationError: an unreadable list, or a value out of range.
    """
    policies = policies_of(
        policy,
        intervals=_seconds("--failover-interval", asked.intervals),
        pings=_counts("--failback-pings", asked.pings),
        ping_intervals=_seconds("--ping-interval", asked.ping_intervals),
    )
    return order_of(history, policies, asked.seeds)


def _seconds(name: str, text: str) -> Sequence[float]:
    found = [seconds_of(part) for part in text.split(",")]
    if any(one is None for one in found):
        raise ConfigurationError(f'{name} is {text!r}; it lists times, as in "0s,5s,1m"')
    return [one for one in found if one is not None]


def _counts(name: str, text: str) -> Sequence[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ConfigurationError(f'{name} is {text!r}; it lists whole numbers, as in "1,3"')
    return [int(part) for part in parts]
