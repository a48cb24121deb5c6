"""A whole log of the board, judged at once, as the order book judges it line by line."""

from __future__ import annotations

from collections.abc import Iterable

from paired_servicebus.core.fleet.orders.order_rules import BoardOrder, FleetVerbs, ReadOrder, ThisEngine, judge_board
from paired_servicebus.core.fleet.orders.standing_rules import StandingFleetOrder, newest_orders, standing_of


def judge_log(reads: Iterable[ReadOrder], *, engine: ThisEngine, verbs: FleetVerbs) -> tuple[BoardOrder, ...]:
    """Apply rules 1 to 5 to a log, in any sequence and with any duplicates; return it by number."""
    judged: list[BoardOrder] = []
    for _, read in sorted({read.post.number: read for read in reads}.items()):
        judged.append(judge_board(read, engine=engine, verbs=verbs, earlier=judged))
    return tuple(judged)


def standing_set(log: Iterable[BoardOrder], *, engine: ThisEngine, at: float) -> tuple[StandingFleetOrder, ...]:
    """Return what stands in the engine, by subject. log: the result of `judge_log`, in any sequence."""
    return standing_of(newest_orders(log, engine=engine), at=at)
