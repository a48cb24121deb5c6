"""The generator of plans: a seed draws everything before the run begins.

Most seeds have moderate faults. Some seeds have rare cases: everything down together, a flapping entity, repeated
crashes of engines.
"""

from __future__ import annotations

from random import Random
from typing import Final

from paired_servicebus.core.model.policy import Policy
from paired_servicebus.simulation.run_plan import (
    LOCK,
    MAX_HIDDEN,
    RESCAN,
    Crash,
    EntityPlan,
    InjectedCondition,
    InjectedFault,
    OperatorAct,
    Plan,
    PlannedCall,
    QueuePlan,
    Stranger,
    Verb,
)

CHAOS: Final = 1500.0
CALLS: Final = 420
LATE_CALLS: Final = 20
"""Calls after the end of all faults."""
BACKLOG: Final = tuple(
    one for one in InjectedCondition if one not in (InjectedCondition.DELETED, InjectedCondition.AWAY)
)
VERBS: Final[tuple[Verb, ...]] = ("force", "force", "pin", "release", "release", "pause", "resume")
WHOLE: Final = (
    InjectedCondition.REFUSED,
    InjectedCondition.RESET,
    InjectedCondition.BLACK_HOLE,
    InjectedCondition.BUSY,
    InjectedCondition.ACK_LOST,
)
"""Faults of a whole node or namespace."""


def draw_plan(random: Random) -> Plan:
    policy = _policy(random)
    entities = tuple(_entity(random, path) for path in ("orders", "payments", "audit")[: random.choice((2, 2, 3))])
    queues = tuple(_queue(random) for _ in range(policy.backlog_queue_count))
    syphons = random.choice(((True,), (True, True), (True, False), (True, True, False)))
    calls = _calls(random, entities, len(syphons))
    ends = CHAOS + _quiet(policy)
    faults, crashes = _faults(random, entities, len(queues)), _crashes(random, len(syphons))
    acts, strangers = _acts(random, entities, calls, len(syphons)), _strangers(random, len(queues))
    return Plan(
        policy=policy,
        entities=entities,
        queues=queues,
        syphons=syphons,
        calls=calls,
        faults=faults,
        crashes=crashes,
        acts=acts + _draw_early_release(random, entities, len(syphons)),
        strangers=strangers,
        heals_at=CHAOS,
        ends_at=ends,
    )


def _policy(random: Random) -> Policy:
    return Policy(
        backlog_queue_count=random.choice((1, 2, 3, 4)),
        failover_interval=random.choice((0.0, 2.0, 10.0, 30.0, 60.0)),
        ping_primary_interval=random.choice((5.0, 10.0, 30.0, 60.0)),
        ping_timeout=random.choice((2.0, 10.0, 30.0)),
        send_timeout=random.choice((2.0, 5.0, 30.0)),
        syphon_retry_interval=random.choice((1.0, 5.0)),
        hold_until_failover=random.random() < 0.3,
        failback_pings=random.choice((1, 1, 2, 3)),
        cool_down=random.choice((0.0, 0.0, 45.0)),
        ttl_policy=random.choice(("restart", "restart", "elapsed")),
        undeliverable_after=random.choice((60.0, 120.0, 300.0)),
        throttle_wait=random.choice((10.0, 10.0, 20.0)),
    )


def _quiet(policy: Policy) -> float:
    """Return the seconds for every slow process to end: hidden messages, distant probes, locks, back-off."""
    probes = 9 * policy.ping_primary_interval + policy.ping_timeout
    back = policy.failback_pings * (policy.ping_timeout + policy.ping_primary_interval) + policy.cool_down
    return (
        MAX_HIDDEN + 2 * LOCK + 3 * RESCAN + max(probes, policy.undeliverable_after) + back + policy.failover_interval
    )


def _entity(random: Random, path: str) -> EntityPlan:
    return EntityPlan(
        path=path,
        detects_duplicates=random.random() < 0.4,
        capacity=random.choice((10_000, 10_000, 25)),
        sessions=random.choice((0, 2, 3)),
    )


def _queue(random: Random) -> QueuePlan:
    return QueuePlan(
        capacity=random.choice((10_000, 10_000, 10_000, 30)),
        delivery_limit=random.choice((2**31 - 1, 2**31 - 1, 10)),
    )


def _calls(random: Random, entities: tuple[EntityPlan, ...], engines: int) -> tuple[PlannedCall, ...]:
    """Draw calls, with paths in arbitrary case."""
    spread = [random.uniform(0.0, CHAOS) for _ in range(CALLS)]
    spread += [random.uniform(CHAOS, CHAOS + MAX_HIDDEN) for _ in range(LATE_CALLS)]
    calls = []
    first = 1 if engines > 1 and random.random() < 0.4 else 0  # an engine without an application: the console's own
    for at in sorted(spread):
        path = random.choice(entities).path
        calls.append(
            PlannedCall(
                at=at,
                engine=random.randrange(first, engines),
                sender=int(random.random() * 2),
                path=path if random.random() < 0.9 else path.capitalize(),
                messages=random.choice((1, 1, 1, 1, 2, 3, 6)),
                timeout=random.choice((None, None, None, 4.0, 40.0)),
                retries=random.choice((0, 1, 3)),
            )
        )
    return tuple(calls)


def _span(random: Random, longest: float) -> tuple[float, float]:
    at = random.uniform(20.0, CHAOS - 20.0)
    return at, min(at + random.uniform(0.05, 1.0) ** 2 * longest, CHAOS)


def _faults(random: Random, entities: tuple[EntityPlan, ...], queues: int) -> tuple[InjectedFault, ...]:
    paths = tuple(entity.path for entity in entities)
    faults = []
    for _ in range(random.randint(3, 7)):
        at, ends = _span(random, 500.0)
        faults.append(
            InjectedFault(at, ends, (random.choice(paths),), random.choice(tuple(InjectedCondition)), _share(random))
        )
    for _ in range(random.randint(1, 4)):
        at, ends = _span(random, 300.0)
        faults.append(InjectedFault(at, ends, (random.randrange(queues),), random.choice(BACKLOG), _share(random)))
    if random.random() < 0.5:  # a node, or the whole primary
        at, ends = _span(random, 600.0)
        faults.append(InjectedFault(at, ends, paths[: random.randint(1, len(paths))], random.choice(WHOLE)))
    if random.random() < 0.25:
        at, ends = _span(random, 300.0)
        everything: tuple[str | int, ...] = (*paths, *range(queues))
        faults.append(InjectedFault(at, ends, everything, random.choice(WHOLE)))
    if random.random() < 0.3:
        faults += _flapping(random, random.choice(paths))
    if random.random() < 0.2:
        faults += _draw_recreation(random, random.choice(paths))
    return tuple(faults)


def _share(random: Random) -> float:
    return random.choice((1.0, 1.0, 1.0, 0.7, 0.3))


def _flapping(random: Random, path: str) -> list[InjectedFault]:
    at, period = random.uniform(20.0, CHAOS / 2), random.uniform(5.0, 90.0)
    condition = random.choice((InjectedCondition.REFUSED, InjectedCondition.BLACK_HOLE, InjectedCondition.DELETED))
    starts = [at + 2 * period * index for index in range(8)]
    return [InjectedFault(start, start + period, (path,), condition) for start in starts if start + period < CHAOS]


def _draw_recreation(random: Random, path: str) -> list[InjectedFault]:
    """Draw an entity that is deleted and created, twice."""
    at = random.uniform(20.0, CHAOS / 2)
    again = at + random.uniform(90.0, 500.0)
    return [
        InjectedFault(start, start + random.uniform(20.0, 50.0), (path,), InjectedCondition.DELETED)
        for start in (at, again)
    ]


def _crashes(random: Random, engines: int) -> tuple[Crash, ...]:
    count = random.choice((0, 0, 1, 2, 4))
    crashes = []
    for _ in range(count):
        at = random.uniform(20.0, CHAOS - 20.0)
        crashes.append(Crash(at, min(at + random.uniform(1.0, 120.0), CHAOS), random.randrange(engines)))
    return tuple(crashes)


def _acts(
    random: Random, entities: tuple[EntityPlan, ...], calls: tuple[PlannedCall, ...], engines: int
) -> tuple[OperatorAct, ...]:
    """Draw operators' acts, some during a send in flight."""
    acts = []
    for _ in range(random.choice((0, 0, 3, 8, 16))):
        verb = random.choice(VERBS)
        path = random.choice(entities).path
        act = OperatorAct(random.uniform(0.0, CHAOS), random.randrange(engines), verb, path)
        if random.random() < 0.4:
            call = random.choice(calls[:-LATE_CALLS])
            act = OperatorAct(call.at + 0.05, call.engine, verb, call.path)
        acts.append(act)
    return tuple(acts)


def _draw_early_release(random: Random, entities: tuple[EntityPlan, ...], engines: int) -> tuple[OperatorAct, ...]:
    """Draw a failover by hand that is released before any answer of the primary.

    Drawn last, so that other plans stay equal.
    """
    if random.random() >= 0.2:
        return ()
    at, engine, path = random.uniform(0.0, 10.0), random.randrange(engines), random.choice(entities).path
    return OperatorAct(at, engine, "force", path), OperatorAct(at + random.uniform(0.5, 4.0), engine, "release", path)


def _strangers(random: Random, queues: int) -> tuple[Stranger, ...]:
    """Draw messages put into backlog queues by a retired client or by mistake."""
    return tuple(
        Stranger(random.uniform(5.0, CHAOS - 60.0), random.randrange(queues), random.random() < 0.5)
        for _ in range(random.randint(0, 6))
    )
