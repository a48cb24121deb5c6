"""Pings to the primary and probes of pulled backlog queues: what the machine's effects ask for.

A ping goes over a link of its own to the entity that failed over, so that it finds out what a sender would. A probe
is an attach: sending to a backlog queue would leave something in it.
"""

from __future__ import annotations

from azure.servicebus.aio import ServiceBusClient

from console.core.engine import ProbeQueue, SendPing
from console.core.events import PingAccepted, PingFailed, QueueProbed
from console.core.options import Policy
from console.core.verdict import Verdict
from console.pairing.links import SenderLink
from console.pairing.messages import ping
from console.pairing.steering import Steering


class Pinger:
    """The hands of one pairing.

    Args:
        primary, secondary: the namespaces' clients.
        queues: the backlog queues' paths by index.
    """

    def __init__(
        self, steering: Steering, primary: ServiceBusClient, secondary: ServiceBusClient, queues: tuple[str, ...]
    ) -> None:
        self._steering = steering
        self._primary = primary
        self._secondary = secondary
        self._queues = queues

    @property
    def _policy(self) -> Policy:
        return self._steering.policy

    async def ping(self, effect: SendPing) -> None:
        """One ping over a fresh link, within `ping_timeout`; a throttled one is not an accepted one."""
        steering = self._steering
        began = steering.clock()
        link = SenderLink(self._primary, effect.entity, steering.tasks)
        try:
            if self._policy.ping == "link":
                await link.open(self._policy.ping_timeout)
            else:
                await link.send([ping()], self._policy.ping_timeout)
        except Exception as error:  # noqa: BLE001 - whatever was raised, the ping was not accepted
            now = steering.clock()
            judgement = steering.judge(error)
            steering.tell(
                PingFailed(
                    at=now,
                    entity=effect.entity,
                    number=effect.number,
                    reason=judgement.reason,
                    took=now - began,
                    throttled=judgement.verdict is Verdict.THROTTLED,
                )
            )
        else:
            now = steering.clock()
            steering.tally(effect.entity).pings_accepted += 1
            steering.tell(PingAccepted(at=now, entity=effect.entity, number=effect.number, took=now - began))
        finally:
            link.put_away()

    async def probe(self, effect: ProbeQueue) -> None:
        """Attach to a pulled backlog queue, within `ping_timeout`."""
        steering = self._steering
        link = SenderLink(self._secondary, self._queues[effect.queue], steering.tasks)
        try:
            await link.open(self._policy.ping_timeout)
        except Exception as error:  # noqa: BLE001 - whatever was raised, the queue stays pulled
            reason = steering.judge(error).reason
            steering.tell(QueueProbed(at=steering.clock(), queue=effect.queue, accepted=False, reason=reason))
        else:
            steering.tell(QueueProbed(at=steering.clock(), queue=effect.queue, accepted=True))
        finally:
            link.put_away()
