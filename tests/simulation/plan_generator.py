"""The generator of plans: a seed draws everything before the run begins.

Most seeds have moderate faults. Some seeds have rare cases: everything down together, a flapping entity, repeated
crashes of engines.
"""

from __future__ import annotations

from dataclasses import replace
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
    PlannedCall,
    QueuePlan,
    Verb,
)
from tests.simulation.campaign_plan import CampaignPlan, PlannedPause, Stranger

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

SLOW: Final = (InjectedCondition.SLOW, InjectedCondition.SLOW, InjectedCondition.ACK_LOST, InjectedCondition.BLACK_HOLE)
UNANSWERED: Final = (InjectedCondition.ACK_LOST, InjectedCondition.BLACK_HOLE)
FAR: Final = {
    "lost": ((InjectedCondition.SLOW,), 1.0),
    "slow": ((InjectedCondition.INTERNAL,), 0.3),
    "paused": (SLOW, 0.6),
    "recreated": ((InjectedCondition.SLOW,), 1.0),
}
"""A flow's faults at its destination, with their share, by what happens to the queues meanwhile."""


def draw_plan(random: Random) -> CampaignPlan:
    policy = _policy(random)
    entities = tuple(_entity(random, path) for path in ("orders", "payments", "audit")[: random.choice((2, 2, 3))])
    queues = tuple(_queue(random) for _ in range(policy.backlog_queue_count))
    syphons = random.choice(((True,), (True, True), (True, False), (True, True, False)))
    calls = _calls(random, entities, len(syphons))
    ends = CHAOS + _quiet(policy)
    faults, crashes = _faults(random, entities, len(queues)), _crashes(random, len(syphons))
    acts, strangers = _acts(random, entities, calls, len(syphons)), _strangers(random, len(queues))
    plan = CampaignPlan(
        policy=policy,
        entities=entities,
        queues=queues,
        syphons=syphons,
        calls=calls,
        faults=faults,
        crashes=crashes,
        acts=acts + _draw_early_release(random, entities, len(syphons)),
        strangers=strangers,
        recreations=_draw_queue_recreations(random, len(queues)),
        heals_at=CHAOS,
        ends_at=ends,
    )
    return _add_rare_cases(random, plan)


def _add_rare_cases(random: Random, plan: CampaignPlan) -> CampaignPlan:
    """Add rare cases of pumps. Drawn last, so that the rest of a seed's plan stays equal."""
    policy = plan.policy
    if random.random() < 0.08:
        policy = replace(policy, syphon_rate=random.choice((1.0, 5.0)), syphon_live_share=0.0)
    if random.random() < 0.08:  # all of them, so that only strangers are excluded
        policy = replace(policy, destinations=tuple(entity.path for entity in plan.entities))
    plan = replace(plan, policy=policy, apart=random.random() < 0.25, pauses=_draw_pauses(random, plan))
    return _add_flow(random, plan) if len(plan.syphons) > 1 and random.random() < 0.35 else plan


def _add_flow(random: Random, plan: CampaignPlan) -> CampaignPlan:
    """Add a flow through the backlog: one engine parks bursts that another moves slowly, and long after.

    Meanwhile answers of the queues get lost, an operator pauses them, or their owner creates them again.
    """
    path, queues = random.choice(plan.entities).path, tuple(range(len(plan.queues)))
    at = random.uniform(20.0, CHAOS / 2)
    ends = at + random.uniform(400.0, 600.0)
    bursts = [at + 1.0 + (ends - at) * part / 4 for part in range(4)]
    meanwhile = random.choice(("lost", "slow", "paused", "recreated"))
    far, share = FAR[meanwhile]
    plan = replace(
        plan,
        policy=replace(plan.policy, send_timeout=30.0) if meanwhile == "lost" else plan.policy,
        acts=(*plan.acts, OperatorAct(at, 0, "pin", path), OperatorAct(at, 1, "force", path)),
        faults=(*plan.faults, InjectedFault(at, ends, (path,), random.choice(far), share)),
        crashes=(),
        syphons=plan.syphons if random.random() < 0.3 else tuple(index == 0 for index in range(len(plan.syphons))),
        apart=meanwhile == "lost" or random.random() < 0.5,
    )
    if meanwhile == "paused":
        begins = [burst + random.uniform(0.3, 6.0) for burst in bursts]
        pauses = [PlannedPause(one, one + random.uniform(2.0, 30.0), 0, queue) for one in begins for queue in queues]
        plan = replace(plan, pauses=(*plan.pauses, *pauses))
    if meanwhile == "recreated":
        again = [burst + random.uniform(2.5, 15.0) for burst in bursts]
        plan = replace(plan, recreations=tuple((one, queue) for one in again for queue in queues))
        bursts += again
    else:
        near = UNANSWERED if meanwhile == "lost" else (InjectedCondition.SLOW,)
        spans = [(random.uniform(at, ends), random.uniform(3.0, 15.0)) for _ in range(12)]
        faults = [InjectedFault(one, one + long, queues, random.choice(near)) for one, long in spans]
        plan = replace(plan, faults=(*plan.faults, *faults))
    return replace(plan, calls=(*plan.calls, *(call for burst in bursts for call in _draw_burst(random, burst, path))))


def _draw_burst(random: Random, at: float, path: str) -> tuple[PlannedCall, ...]:
    return tuple(PlannedCall(at + random.uniform(0.0, 2.0), 1, 0, path, 6, retries=1) for _ in range(8))


def _draw_pauses(random: Random, plan: CampaignPlan) -> tuple[PlannedPause, ...]:
    """Draw pauses of single backlog queues and destinations."""
    if random.random() >= 0.25:
        return ()
    pauses = []
    for _ in range(random.choice((1, 2, 4))):
        at, ends = _span(random, 300.0)
        engine = random.randrange(len(plan.syphons))
        if random.random() < 0.6:
            pauses.append(PlannedPause(at, ends, engine, queue=random.randrange(len(plan.queues))))
        else:
            pauses.append(PlannedPause(at, ends, engine, path=random.choice(plan.entities).path))
    return tuple(pauses)


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


def _draw_queue_recreations(random: Random, queues: int) -> tuple[tuple[float, int], ...]:
    """Draw backlog queues that their owner deletes and creates again."""
    if random.random() >= 0.1:
        return ()
    return tuple((random.uniform(60.0, CHAOS), random.randrange(queues)) for _ in range(random.choice((1, 1, 3))))


def _strangers(random: Random, queues: int) -> tuple[Stranger, ...]:
    """Draw messages put into backlog queues by a retired client or by mistake."""
    return tuple(
        Stranger(random.uniform(5.0, CHAOS - 60.0), random.randrange(queues), random.random() < 0.5)
        for _ in range(random.randint(0, 6))
    )
