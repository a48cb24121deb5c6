"""Links that are cut for being idle, and settling several messages by one request."""

from datetime import timedelta
from uuid import UUID

from console.amqp.events import DeliveryReceived, Detached
from console.amqp.message import Sections, write_data
from console.amqp.outcomes import Accepted
from console.amqp.types import Array

MESSAGE = Sections(body=write_data(b"hello")).join()


async def test_a_link_is_cut_after_ten_quiet_minutes_and_a_used_one_stays(port, peer):
    await peer.authorize("")
    used, quiet = await peer.attached(peer.sender("orders")), await peer.attached(peer.receiver("orders"))
    port.jump(timedelta(minutes=6))
    assert isinstance(await peer.outcome(used, MESSAGE), Accepted)
    port.jump(timedelta(minutes=6))
    ended = await peer.next(Detached)
    assert (ended.link, ended.error.condition) == (quiet, "amqp:link:detach-forced")
    assert isinstance(await peer.outcome(used, MESSAGE), Accepted)


async def test_several_messages_are_settled_together_or_not_at_all(port, peer):
    await peer.authorize("")
    sender = await peer.attached(peer.sender("orders"))
    link = await peer.attached(peer.receiver("orders"))
    link.flow(3)
    for _ in range(3):
        await peer.outcome(sender, MESSAGE)
    tags = [event.tag for event in peer.history if isinstance(event, DeliveryReceived) and event.link is link]
    while len(tags) < 3:
        tags.append((await peer.next(DeliveryReceived)).tag)

    async def complete(*tokens):
        body = {"disposition-status": "completed", "lock-tokens": Array.of(UUID, list(tokens))}
        operation = {"operation": "com.microsoft:update-disposition"}
        answer, _ = await peer.request("orders/$management", operation, body)
        return answer["statusCode"], port.counts("orders").active

    held = [UUID(bytes_le=tag) for tag in tags]
    assert await complete(held[0], UUID(int=5)) == (410, 3)
    assert await complete(held[0], held[1]) == (200, 1)
