"""The answers of engines to orders, and the orders as screens show them. Answers are unsigned, hence bounded."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from paired_servicebus.core.fleet.board.document_bounds import MAX_REASON, bound_author, bound_text
from paired_servicebus.core.fleet.fleet_documents import OrderAnswer, OrderText, Posted
from paired_servicebus.core.fleet.orders.order_answers import Tally, expected_engines, tally
from paired_servicebus.core.fleet.orders.order_rules import BoardOrder, Rule, act_end, order_end
from paired_servicebus.core.fleet.orders.standing_rules import replaced_by
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetOrder
from paired_servicebus.core.text.untrusted_text import repeated

MAX_ORDERS: Final = 200
"""Orders whose answers are kept; the oldest gives way."""
MAX_ANSWERS: Final = 2000
"""Answers kept of one order: the roster's limit of engines."""


class AnswerBook:
    """The answers read from the reports board, by order and engine.

    Args:
        expect: the number or the names of the engines that pairing.toml expects.
    """

    def __init__(self, expect: int | tuple[str, ...] | None) -> None:
        self._expect: int | tuple[str, ...] = () if expect is None else expect
        self._answers: dict[str, dict[tuple[str, str, int], OrderAnswer]] = {}
        self._changes = 0
        self._shown: tuple[object, ...] = ()
        self._views: tuple[FleetOrder, ...] = ()

    def read(self, post: Posted) -> None:
        """Take an answer in; of each engine and boot the newest counts."""
        if not isinstance(post.document, OrderAnswer):
            return
        answer = replace(
            post.document,
            author=bound_author(post.document.author),
            text=bound_text(post.document.text, MAX_REASON),
        )
        answers = self._answers.setdefault(answer.order_id, {})
        while len(self._answers) > MAX_ORDERS:
            self._answers.pop(next(iter(self._answers)))
        key = (answer.author.engine.casefold(), answer.author.boot, answer.number)
        known = answers.get(key)
        if (known is None and len(answers) < MAX_ANSWERS) or (known is not None and known.at <= answer.at):
            answers[key] = answer
            self._changes += 1

    def views(self, orders: tuple[BoardOrder, ...], engines: tuple[FleetEngine, ...]) -> tuple[FleetOrder, ...]:
        """Return the orders for screens. The result is kept until something of it changes."""
        key = (self._changes, tuple(one.number for one in orders), engines)
        if self._shown[:2] != key[:2] or self._shown[2] is not engines:
            self._shown = key
            counting = tuple(one for one in orders if one.void is None or is_unjudged(one))
            self._views = tuple(view for one in orders if (view := self._view(one, counting, engines)) is not None)
        return self._views

    def _view(
        self, order: BoardOrder, counting: tuple[BoardOrder, ...], engines: tuple[FleetEngine, ...]
    ) -> FleetOrder | None:
        text, verb = order.text, order.verb
        if text is None or verb is None:
            return None
        void, is_unverified = order.void, is_unjudged(order)
        newer = replaced_by(order, counting) if verb.stands else None
        until = order_end(text, verb, order.enqueued_at) if verb.stands else None
        if newer is not None and until is not None:
            until = min(until, newer.enqueued_at)
        counted = self._tally(text, order, until, engines)
        return FleetOrder(
            id=bound_text(text.id),
            number=order.number,
            verb=verb.id,
            scope=bound_text(text.scope),
            targets=tuple(bound_text(one) for one in text.targets),
            engines=None if text.engines is None else tuple(bound_text(one) for one in text.engines),
            by=repeated(order.by),
            at=order.enqueued_at,
            until=until,
            acts_until=None if verb.stands or verb.revokes else act_end(text, order.enqueued_at),
            done=counted.done,
            refused=counted.refused,
            silent=counted.silent,
            unnamed=counted.unnamed,
            why=repeated(text.why),
            void=repeated(void.text) if void is not None and not is_unverified else "",
            ended="" if newer is None else _how_ended(newer),
            is_unverified=is_unverified,
        )

    def _tally(
        self, text: OrderText, order: BoardOrder, until: float | None, engines: tuple[FleetEngine, ...]
    ) -> Tally:
        """Count the answers. An engine that started after an order, or after the end of what stood, is not asked."""
        asked = [one for one in engines if _began(one) <= (order.enqueued_at if until is None else until)]
        return tally(text, order.number, expected_engines(asked, self._expect), self._answers.get(text.id, {}).values())


def is_unjudged(order: BoardOrder) -> bool:
    """Return whether an order is void only because this engine verifies none."""
    return order.void is not None and order.void.rule is Rule.SIGNATURE and getattr(order.signer, "looks_only", False)


def _how_ended(newer: BoardOrder) -> str:
    how = "ended" if newer.verb is not None and newer.verb.revokes else "replaced"
    return f"{how} by {repeated(newer.by)}'s order {newer.number}" if newer.by else f"{how} by order {newer.number}"


def _began(engine: FleetEngine) -> float:
    """Return an engine's start by the namespace's clock."""
    return engine.started_at - (engine.clock_offset or 0.0)
