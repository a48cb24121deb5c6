"""The answers to an order: done + refused + silent = addressed.

Expected are the engines whose presence has not ended, and those that `expect` names or counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paired_servicebus.core.fleet.fleet_documents import OrderAnswer, OrderText, Outcome
from paired_servicebus.core.fleet.orders.order_rules import is_meant
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetStatus
from paired_servicebus.core.text.untrusted_text import repeated

ALL_DONE, SOME_MISSING, NO_ANSWER = 0, 1, 3
"""Exit statuses of `--wait`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedEngine:
    """An engine that should answer. boot: empty if only its name is known; heard_at: None if it was never heard."""

    name: str
    boot: str = ""
    heard_at: float | None = None
    is_silent: bool = True
    """Whether it does not report, so that it will not answer soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The engines that should answer. unnamed: further ones, of which only the number is known."""

    engines: tuple[ExpectedEngine, ...]
    unnamed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Who answered an order. `refused` contains failures too, with their reason."""

    done: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]
    silent: tuple[tuple[str, float | None], ...]
    unnamed: int = 0
    """Silent engines without a name."""

    @property
    def silent_count(self) -> int:
        return len(self.silent) + self.unnamed


def expected_engines(known: Iterable[FleetEngine], expect: int | tuple[str, ...] = ()) -> Expected:
    """Return the engines that should answer. expect: their number or names from pairing.toml."""
    present = tuple(
        ExpectedEngine(
            name=one.engine,
            boot=one.boot,
            heard_at=one.heard_at,
            is_silent=one.status is not FleetStatus.REPORTING,
        )
        for one in known
        if one.status is not FleetStatus.ENDED
    )
    if isinstance(expect, int):
        return Expected(engines=present, unnamed=max(0, expect - len(present)))
    names = {one.name.casefold() for one in present}
    missing = {name.casefold(): name for name in expect if name.casefold() not in names}
    return Expected(engines=(*present, *(ExpectedEngine(name=name) for name in missing.values())))


def addressed_engines(text: OrderText, expected: Expected) -> Expected:
    """Return the engines that an order addresses; one that it names is addressed, known or not."""
    if text.engines is None:
        return expected
    known = tuple(one for one in expected.engines if is_meant(text, one.name))
    names = {one.name.casefold() for one in known}
    missing = {name.casefold(): name for name in text.engines if name.casefold() not in names}
    return Expected(engines=(*known, *(ExpectedEngine(name=name) for name in missing.values())))


def needs_partial(text: OrderText, expected: Expected) -> str:
    """Return why an order needs `--partial`; empty: nobody that it addresses is silent."""
    addressed = addressed_engines(text, expected)
    silent = [one.name for one in addressed.engines if one.is_silent]
    count = len(silent) + addressed.unnamed
    if not count:
        return ""
    names = f" ({repeated(', '.join(silent))})" if silent else ""
    return f"{count} {'engine is' if count == 1 else 'engines are'} silent{names}: --partial orders the others"


def tally(text: OrderText, number: int, expected: Expected, answers: Iterable[OrderAnswer]) -> Tally:
    """Return who answered: the latest answer of each addressed engine and boot to the order of this number.

    An engine that ended after its answer counts, unless another boot has its name now: that one has to answer itself.
    If none of a name has to answer, the latest answer of its boots counts: each engine counts once.
    """
    addressed = addressed_engines(text, expected)
    newest: dict[tuple[str, str], OrderAnswer] = {}
    for one in sorted(answers, key=lambda each: (each.at, each.id)):
        if one.order_id == text.id and one.number == number and is_meant(text, one.author.engine):
            newest[one.author.engine.casefold(), one.author.boot] = one
    rows: list[tuple[ExpectedEngine, OrderAnswer | None]] = []
    names = {one.name.casefold() for one in addressed.engines if one.boot}
    for engine in addressed.engines:
        if engine.boot:
            rows.append((engine, newest.pop((engine.name.casefold(), engine.boot), None)))
    others = [one for (name, _), one in newest.items() if name not in names]
    latest = {one.author.engine.casefold(): one for one in sorted(others, key=lambda each: (each.at, each.id))}
    rows += [(ExpectedEngine(name=one.author.engine), one) for one in latest.values()]
    answered = {engine.name.casefold() for engine, _ in rows}
    rows += [(one, None) for one in addressed.engines if not one.boot and one.name.casefold() not in answered]
    extra = len(rows) - len(addressed.engines)
    return _sort(rows, unnamed=max(0, addressed.unnamed - extra))


def _sort(rows: list[tuple[ExpectedEngine, OrderAnswer | None]], *, unnamed: int) -> Tally:
    rows = sorted(rows, key=lambda row: (row[0].name.casefold(), row[0].boot))
    return Tally(
        done=tuple(one.name for one, answer in rows if answer and answer.outcome is Outcome.DONE),
        refused=tuple((one.name, answer.text) for one, answer in rows if answer and answer.outcome is not Outcome.DONE),
        silent=tuple((one.name, one.heard_at) for one, answer in rows if answer is None),
        unnamed=unnamed,
    )


def exit_status(result: Tally) -> int:
    """Return the exit status of `--wait`."""
    if not result.done and not result.refused:
        return NO_ANSWER
    return SOME_MISSING if result.refused or result.silent_count else ALL_DONE
