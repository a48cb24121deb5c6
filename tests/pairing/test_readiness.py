"""Evidence of readiness, gathered from real namespaces: what is seen, and that nothing is left behind."""

from __future__ import annotations

from typing import Any

import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.model.snapshot import Finding, FindingVerdict, Readiness
from paired_servicebus.core.operator.failover_readiness import ROOM, SECONDARY, SEND, TOKENS, judge
from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.pairing.management.management_port import management_of
from paired_servicebus.pairing.monitoring.backlog_inspection import ReadinessProbes, expiry, read_counts, validity

from .conftest import World, until


def of(readiness: Readiness, what: str) -> Finding:
    return next(one for one in readiness.findings if one.what == what)


async def looked_at(paired: PairedServiceBusClient) -> Readiness:
    return judge(await paired.inspect())


async def test_a_pairing_that_would_work_says_so_and_leaves_nothing_in_the_queues(world: World) -> None:
    paired = await world.pair(enable_syphon=True)
    paired.watch("orders")
    readiness = await looked_at(paired)
    assert readiness.ready
    assert of(readiness, SEND).evidence == "links opened to 2 of 2 backlog queues, nothing sent"
    assert of(readiness, ROOM).evidence == "10.0 of 10 GB free in 2 backlog queues, 0 messages parked"
    assert "a key" in of(readiness, TOKENS).evidence
    assert world.parked() == 0


@pytest.mark.parametrize("fault", ["refused", "black-holed"])
async def test_a_secondary_that_does_not_answer_is_not_ready(
    world: World, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paired_servicebus.pairing.monitoring.backlog_inspection.ATTACH_SECONDS", 1.0)
    monkeypatch.setattr("paired_servicebus.pairing.monitoring.backlog_inspection.WAIT_SECONDS", 1.0)
    paired = await world.pair(enable_syphon=True)
    world.fault(fault, namespace="secondary")
    readiness = await looked_at(paired)
    assert of(readiness, SECONDARY).verdict is FindingVerdict.NO


async def test_a_queue_that_refuses_is_named(world: World) -> None:
    paired = await world.pair(enable_syphon=True)
    path = "primary/x-servicebus-transfer/1"
    world.fault("disabled", namespace="secondary", entity=path)
    finding = of(await looked_at(paired), SEND)
    assert finding.verdict is FindingVerdict.WARN
    assert path in finding.evidence


async def test_send_is_proven_and_not_taken_from_a_right_to_read(world: World) -> None:
    """Claims: Manage to pair, Send always."""
    paired = await world.pair(enable_syphon=True)
    world.fault("unauthorized", namespace="secondary")
    assert of(await looked_at(paired), SEND).verdict is FindingVerdict.NO


async def test_counts_that_cannot_be_read_are_unknown_and_not_zero(world: World) -> None:
    paired = await world.pair(enable_syphon=True)
    await until(lambda: paired.queue_views(looking=False)[0].depth is not None)
    world.fault("refused", namespace="secondary")
    paired._poller.found = dict.fromkeys(paired._poller.found)
    assert of(await looked_at(paired), ROOM).verdict is FindingVerdict.UNKNOWN


async def test_many_queues_are_tried_in_turns_the_oldest_proof_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paired_servicebus.pairing.monitoring.backlog_inspection.AT_MOST", 2)
    paths = [f"q{index}" for index in range(3)]
    async with world.client("secondary") as client:
        proofs = ReadinessProbes(client, paths)
        first = await proofs.look()
        assert [one.tried_at is not None for one in first] == [True, True, False]
        second = await proofs.look()
        assert all(one.tried_at is not None for one in second)
        assert all("not found" in one.refusal for one in second)


async def test_a_queue_that_is_not_there_has_no_counts(world: World) -> None:
    await world.pair(backlog_queue_count=1)
    admin = management_of(world.admin("secondary"))
    async with world.client("secondary") as client:
        proofs = ReadinessProbes(client, [f"primary/x-servicebus-transfer/{index}" for index in range(2)])
        counted = await read_counts(admin, await proofs.look())
    await admin.close()
    assert [(one.messages, one.limit_bytes is None) for one in counted] == [(0, False), (None, True)]


@pytest.mark.parametrize(
    ("path", "kept"),
    [("plain", None), ("keeping", "keeping"), ("news", "news/Subscriptions/all"), ("missing", None)],
)
async def test_an_entity_that_dead_letters_on_expiry_is_found_a_topic_by_its_subscriptions(
    world: World, path: str, kept: str | None
) -> None:
    """The console warns where an entity dead-letters on expiry (each ping would land there)."""
    async with world.admin("primary") as admin:
        await admin.create_queue("plain")
        await admin.create_queue("keeping", dead_lettering_on_message_expiration=True)
        await admin.create_topic("news")
        await admin.create_subscription("news", "all", dead_lettering_on_message_expiration=True)
        found, is_kept = await expiry(management_of(admin), path)
    assert (found, bool(is_kept)) == (kept or path, kept is not None)


SIGNATURE = "SharedAccessSignature sr=x&sig=y&se=1800000000&skn=k"


class Identity:
    """A credential in azure-identity's shape."""

    async def get_token(self, *_: str, **__: Any) -> AccessToken:
        return AccessToken("t", 1_800_000_000)

    async def close(self) -> None:
        pass


class NoIdentity(Identity):
    async def get_token(self, *_: str, **__: Any) -> AccessToken:
        raise RuntimeError("run az login\nand more")


@pytest.mark.parametrize(
    ("credential", "expires_at", "renewable", "trouble"),
    [
        (AzureNamedKeyCredential("name", "key"), None, True, ""),
        (AzureSasCredential(SIGNATURE), 1_800_000_000.0, False, ""),
        (Identity(), 1_800_000_000.0, True, ""),
        (NoIdentity(), None, True, "run az login"),
    ],
)
async def test_it_is_known_how_long_a_credential_is_good(
    credential: Any, expires_at: float | None, renewable: bool, trouble: str
) -> None:
    async with ServiceBusClient("contoso.servicebus.windows.net", credential) as client:
        token = await validity(client)
    assert (token.expires_at, token.renewable, token.trouble) == (expires_at, renewable, trouble)
