"""The pairing of two namespaces: all checks before a paired client exists (SPEC.md section 4).

The clients stay the caller's until pairing has succeeded. A failure closes the links opened over them, and leaves them
usable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.errors import BacklogQueueError, NamespaceUnreachableError, PairingError, SameNamespaceError
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.namespace_info import first_label
from paired_servicebus.core.model.pairing_events import Event, Warned
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import Judge, judge
from paired_servicebus.pairing.arguments import check_arguments, claim_clients, release
from paired_servicebus.pairing.degraded import START_SECONDS, DegradedStart
from paired_servicebus.pairing.management import backlog_queues
from paired_servicebus.pairing.management.admin_selection import management_of
from paired_servicebus.pairing.management.management_port import Management
from paired_servicebus.pairing.management.primary_name import alias_remark, host_of, name_of, reported_name
from paired_servicebus.pairing.options import SendAvailabilityPairedNamespaceOptions
from paired_servicebus.pairing.paired_client import PairedServiceBusClient
from paired_servicebus.pairing.runtime import sdk_log
from paired_servicebus.pairing.runtime.deadlines import CLOSING, end_all
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.runtime.task_owner import TaskOwner
from paired_servicebus.pairing.sending.backlog_links import Standby
from paired_servicebus.pairing.sending.open_limiter import OpenLimiter

FIRST_LINK_SECONDS: Final = 4.0
"""Seconds that pairing waits for the first link to a backlog queue; a slow link does not fail it."""

log = logging.getLogger(__name__)


async def pair_namespaces(
    primary_client: ServiceBusClient,
    options: SendAvailabilityPairedNamespaceOptions,
    *,
    on_event: Callable[[Event], object] | None = None,
    judge: Judge = judge,
) -> PairedServiceBusClient:
    """Pair the primary with the secondary namespace; nothing can be sent before this has returned.

    If it raises, the clients are still the caller's, and usable.

    Args:
        primary_client: the application's namespace.
        options: the secondary namespace's clients, and the policy.
        on_event: called with every journalled event, in order and synchronously; must not block.
        judge: the verdict on failures, replaceable (SPEC.md section 5).

    Raises:
        ConfigurationError: an option out of range, or a client that cannot be paired.
        SameNamespaceError: both clients belong to one namespace.
        NamespaceUnreachableError: no answer of the secondary for 2 min; or, within seconds, an unusable credential,
            host or certificate.
        BacklogQueueError: no backlog queue exists or could be created.
    """
    check_arguments(primary_client, options)
    policy = options.policy()
    hosts = host_of(primary_client), host_of(options.secondary_client)
    if hosts[0].casefold() == hosts[1].casefold():
        raise SameNamespaceError(
            f"{hosts[0]} would be paired with itself: the secondary has to be another namespace, best in another region"
        )
    clients = {
        "primary_client": primary_client,
        "secondary_client": options.secondary_client,
        "secondary_admin": options.secondary_admin,
    }
    with claim_clients(clients):
        paired = await _Opening(primary_client, options, policy, hosts).pair(on_event, judge)

    async def free() -> None:
        release(clients)

    paired.when_closed(free)
    return paired


@dataclass(frozen=True, slots=True)
class _Opening:
    """One pairing in preparation. hosts: the primary's and the secondary's."""

    primary: ServiceBusClient
    options: SendAvailabilityPairedNamespaceOptions
    policy: Policy
    hosts: tuple[str, str]

    async def pair(self, on_event: Callable[[Event], object] | None, judge: Judge) -> PairedServiceBusClient:
        """Return the paired client, unless each link to a backlog queue is refused permanently."""
        admin = management_of(self.options.secondary_admin)
        name, info = await asyncio.gather(self._name(), backlog_queues.told(admin))
        found, missing = await self._find(admin, name)
        sdk_log.register_client(self.options.secondary_client)
        info = info if info.name else replace(info, name=first_label(self.hosts[1]))
        tasks = TaskOwner()
        await tasks.open()
        steering, gate = (
            PairingRuntime(PairingMachine(self.policy, queues=found.paths), tasks, judge, on_event),
            OpenLimiter(),
        )
        standby = Standby(steering, self.options.secondary_client, found.paths, gate, assumed=info.message_limit)
        degraded = None
        if missing is not None:
            degraded = DegradedStart(steering, admin, primary=name, host=self.hosts[1], reason=str(missing))
            degraded.take_out()
        await self._prove(standby, tasks, wait=degraded is None)
        paired = PairedServiceBusClient(
            self.primary,
            self.options,
            steering,
            admin,
            found,
            primary=name,
            secondary=info,
            gate=gate,
            standby=standby,
            degraded=degraded,
        )
        for about, text in [*(("backlog queues", text) for text in found.warnings), *await self._remarks(admin, name)]:
            steering.announce(Warned(at=steering.clock(), about=about, text=text))
        return paired

    async def _name(self) -> str:
        configured, host = self.options.primary_name, self.hosts[0]
        reported = "" if configured else await reported_name(self.primary)
        remark = alias_remark(host, reported)
        if remark:
            log.info("%s", remark)
        return name_of(host, configured=configured, reported=reported)

    async def _find(self, admin: Management, name: str) -> tuple[backlog_queues.BacklogQueues, PairingError | None]:
        """Return the backlog queues; for a degraded start the expected ones, and the failure to find them."""
        count, host = self.policy.backlog_queue_count, self.hosts[1]
        if not self.policy.start_degraded:
            try:
                return await backlog_queues.ensure(admin, name, count, host=host), None
            except NamespaceUnreachableError as error:
                if not error.is_outage:
                    raise
                text = f"{error}; start_degraded=True pairs without waiting for it"
                raise NamespaceUnreachableError(text, is_outage=True) from error
        try:
            return await backlog_queues.ensure(admin, name, count, patience=START_SECONDS, host=host), None
        except (NamespaceUnreachableError, BacklogQueueError) as error:
            if isinstance(error, NamespaceUnreachableError) and not error.is_outage:
                raise
            return backlog_queues.BacklogQueues(
                {index: backlog_queues.queue_path(name, index) for index in range(count)}, ()
            ), error

    async def _prove(self, standby: Standby, tasks: TaskOwner, *, wait: bool) -> None:
        """Raise NamespaceUnreachableError if every link to a backlog queue is refused permanently."""
        opening = tasks.start(standby.run(), name="the links to the backlog queues")
        if not wait:
            return
        try:
            refusals = await standby.refusals(FIRST_LINK_SECONDS)
            if refusals:
                first = refusals[0]
                raise NamespaceUnreachableError(
                    f"the secondary {self.hosts[1]} lets secondary_client open no link to its {len(refusals)} backlog "
                    f"queues: {first}"
                )
        except BaseException:
            if opening is not None:
                await end_all([opening], CLOSING)
            await standby.close()
            await tasks.finish(CLOSING)
            await tasks.close()
            raise

    async def _remarks(self, admin: Management, name: str) -> list[tuple[str, str]]:
        """Return remarks for the operator: a warning's subject, and its sentence."""
        remarks = [("options", text) for text in self.policy.remarks]
        label = first_label(self.hosts[0])
        others = await backlog_queues.count_strangers(admin, label) if label.casefold() != name.casefold() else 0
        if others:
            remarks.append(
                (
                    "backlog queues",
                    f"the secondary also has {others} backlog queues under {label}/{backlog_queues.SEGMENT}/: a "
                    "program that names the primary after its host parks there, and no syphon here moves its messages; "
                    f'set its primary_name="{name}"',
                )
            )
        return remarks
