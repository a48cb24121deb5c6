"""Rules at work between the real SDK's clients: what is managed over HTTPS decides what comes over AMQP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import CorrelationRuleFilter, FalseRuleFilter, SqlRuleAction, SqlRuleFilter

from servicebus_sandbox import Sandbox

TOPIC, NAME = "filtered", "taken"


class Bench:
    """A topic with one subscription whose rules a test sets."""

    def __init__(self, admin: ServiceBusAdministrationClient, client: ServiceBusClient) -> None:
        self.admin, self.client = admin, client

    async def rules(self, **rules: Any) -> None:
        """Put these in the place of `$Default`: a filter, or a filter and an action."""
        await self.admin.delete_rule(TOPIC, NAME, "$Default")
        for name, rule in rules.items():
            condition, action = rule if isinstance(rule, tuple) else (rule, None)
            await self.admin.create_rule(TOPIC, NAME, name, filter=condition, action=action)

    async def send(self, *messages: ServiceBusMessage) -> None:
        async with self.client.get_topic_sender(TOPIC) as sender:
            for message in messages:
                await sender.send_messages(message)

    async def held(self, **options: Any) -> list[ServiceBusReceivedMessage]:
        async with self.client.get_subscription_receiver(TOPIC, NAME, **options) as receiver:
            return await receiver.peek_messages(max_message_count=20)


@pytest.fixture
async def bench(sandbox: Sandbox) -> AsyncIterator[Bench]:
    primary = sandbox["primary"]
    admin = ServiceBusAdministrationClient.from_connection_string(
        primary.connection_string, connection_verify=str(sandbox.ca_file), retry_total=0
    )
    client = ServiceBusClient.from_connection_string(primary.connection_string, retry_total=0)
    async with admin, client, asyncio.timeout(60):
        await admin.create_topic(TOPIC)
        await admin.create_subscription(TOPIC, NAME)
        yield Bench(admin, client)


def message(body: str, user: dict[str, Any] | None = None, **fields: Any) -> ServiceBusMessage:
    return ServiceBusMessage(body, application_properties=user, **fields)


async def test_sql_decides(bench: Bench) -> None:
    await bench.rules(
        wanted=SqlRuleFilter(
            "color = @color AND quantity % 2 = 0 AND sys.Label LIKE 'a%' AND due < @noon",
            parameters={"@color": "red", "@noon": datetime(2026, 1, 2, 12)},
        )
    )
    user = {"color": "red", "quantity": 4, "due": datetime(2026, 1, 2, 11, tzinfo=UTC)}
    await bench.send(
        message("yes", user, subject="apple"),
        message("odd", user | {"quantity": 3}, subject="apple"),
        message("blue", user | {"color": "blue"}, subject="apple"),
        message("late", user | {"due": datetime(2026, 1, 2, 13, tzinfo=UTC)}, subject="apple"),
        message("pear", user, subject="pear"),
        message("nothing"),
    )
    assert [str(found) for found in await bench.held()] == ["yes"]


async def test_correlation_decides(bench: Bench) -> None:
    await bench.rules(
        wanted=CorrelationRuleFilter(correlation_id="c", label="l", properties={"vip": True, "level": 3}),
        never=FalseRuleFilter(),
    )
    user = {"vip": True, "level": 3}
    await bench.send(
        message("yes", user, correlation_id="c", subject="l"),
        message("low", user | {"level": 2}, correlation_id="c", subject="l"),
        message("other", user, correlation_id="C", subject="l"),
    )
    assert [str(found) for found in await bench.held()] == ["yes"]


async def test_actions_change_copies(bench: Bench) -> None:
    text = "SET quantity = quantity / 2; REMOVE secret; SET sys.Label = 'halved'; SET sys.To = @to"
    halve = SqlRuleAction(text, {"@to": "x"})
    await bench.rules(all=SqlRuleFilter("1=1"), halved=(SqlRuleFilter("quantity > 1"), halve))
    token = UUID(int=9)
    await bench.send(message("m", {"quantity": 9, "secret": "s", "id": token}, subject="whole", message_id="1"))
    whole, halved = await bench.held()
    assert (whole.subject, whole.application_properties) == ("whole", {b"quantity": 9, b"secret": b"s", b"id": token})
    assert (halved.subject, halved.to, halved.message_id, str(halved)) == ("halved", "x", "1", "m")
    assert halved.application_properties == {b"quantity": 4, b"id": token, b"RuleName": b"halved"}
    assert whole.sequence_number < halved.sequence_number
    assert whole.enqueued_sequence_number == halved.enqueued_sequence_number


async def test_what_a_rule_cannot_judge_is_a_dead_letter(bench: Bench) -> None:
    await bench.rules(big=SqlRuleFilter("quantity > 5"))
    await bench.send(message("many", {"quantity": "many"}), message("six", {"quantity": 6}))
    assert [str(found) for found in await bench.held()] == ["six"]
    (dead,) = await bench.held(sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    assert (str(dead), dead.dead_letter_reason) == ("many", "FilterException")
    assert "rule 'big': '>' does not compare str and int" in dead.dead_letter_error_description
    runtime = await bench.admin.get_subscription_runtime_properties(TOPIC, NAME)
    assert (runtime.active_message_count, runtime.dead_letter_message_count) == (1, 1)
