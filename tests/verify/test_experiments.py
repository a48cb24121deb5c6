"""On the sandbox every assumption holds; with a planted difference its experiment differs, and no other."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.mgmt.servicebus.aio import ServiceBusManagementClient

from paired_servicebus import cli
from paired_servicebus.config import load_config
from paired_servicebus.core.backlog.queue_settings import QueueWanted
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.pairing.management import management_port
from paired_servicebus.pairing.management.management_port import ArmAdmin
from paired_servicebus.trials import (
    access_experiments,
    delivery_experiments,
    entity_experiments,
    transaction_experiments,
    verify_command,
)
from paired_servicebus.trials.temporary_entities import RunRecord, Side, past_records
from paired_servicebus.trials.trial import Experiment, ExperimentResult, Observation, Trial
from paired_servicebus.trials.verify_command import (
    EXPERIMENTS,
    FOREIGN_SECONDS,
    RECORDS,
    WIDTH,
    Redactor,
    as_json,
    as_lines,
    clean,
    open_namespaces,
    run_of,
)
from servicebus_amqp.access import Flaw, TokenError
from servicebus_amqp.nodes import coordination
from servicebus_amqp.nodes.request_ends import AmqpRefusal
from servicebus_amqp.protocol import handshake
from servicebus_amqp.server import server_connection
from servicebus_sandbox import AsyncSandboxCredential, Behavior, NamespaceSpec, Sandbox
from servicebus_sandbox.access.authorization import Authorization
from servicebus_sandbox.amqp_server import broker_links, management_node, message_codec, namespace_server
from servicebus_sandbox.atom import entity_xml, management_api
from servicebus_sandbox.broker import broker_errors
from servicebus_sandbox.broker.entity_settings import EntityStatus, Pings, Right, Tier
from servicebus_sandbox.broker.queues import intake
from servicebus_sandbox.broker.queues.intake import DuplicateWindow, Intake
from servicebus_sandbox.broker.queues.message_queue import COMPLETE, MessageQueue, Settlement, Settling
from servicebus_sandbox.broker.queues.session_queue import SessionTable
from servicebus_sandbox.broker.topology import namespace as topology
from servicebus_sandbox.broker.transaction import Transaction
from servicebus_sandbox.serving import amqp_conditions
from tests.stage.plays.verbs import Verb, verb
from tests.stage.processes import ended

from .conftest import PRIMARY, SECONDARY, WORKER_KEY, Lab, differing, results

SLOW = {one.name for one in EXPERIMENTS if one.is_slow}
BY_ARM = {one.name for one in EXPERIMENTS if one.name.startswith("arm-")}
OFFERED = "batch-delete-messages" in management_node._OPERATIONS
MISSING = set() if OFFERED else {"batch-delete"}
"""What this sandbox does not offer."""
QUOTA = 4_000_000


async def test_on_the_sandbox_all_hold_and_nothing_is_left_and_the_file_has_no_secret(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No secret, host or namespace name in the file, so that it can be attached to an issue."""
    for name in ("LOCK", "SESSION_LOCK"):
        monkeypatch.setattr(delivery_experiments, name, timedelta(seconds=20))
    for name in ("LATE_SECONDS", "QUIET_SECONDS"):
        monkeypatch.setattr(delivery_experiments, name, 15.0)
    report = await lab.run()
    found = results(report)
    assert set(differing(report)) == MISSING
    assert {name for name, result in found.items() if result is ExperimentResult.SKIPPED} == SLOW | BY_ARM
    assert ExperimentResult.NOT_PERMITTED not in found.values()
    assert report.status == bool(MISSING)
    assert (lab.queues(), lab.records) == ([], [])
    text = as_json(report) + "\n".join(as_lines(report))
    for name in (PRIMARY, SECONDARY):
        one = lab.sandbox[name]
        for secret in (one.key, one.connection_string, one.host, str(one.amqp_port), name, WORKER_KEY):
            assert secret not in text, secret
    assert "contoso" not in text
    assert "paired-verify-" not in text
    document = json.loads(as_json(report))
    assert list(document) == ["date", "paired", "azure_servicebus", "python", "tiers", "results"]
    assert [list(one) for one in document["results"]] == [
        ["name", "assumption", "why", "result", "seen", "seconds"] for _ in EXPERIMENTS
    ]
    assert max(map(len, as_lines(report))) <= WIDTH


def test_every_experiment_is_named_once_and_gives_a_reason() -> None:
    assert len({one.name for one in EXPERIMENTS}) == len(EXPERIMENTS)
    assert all(one.assumption and one.why for one in EXPERIMENTS)


# -- planted differences ---------------------------------------------------------------------------------------------


def _condition(patch: pytest.MonkeyPatch, kind: type, condition: str) -> None:
    rows = amqp_conditions._BY_ERROR
    changed = tuple((error, condition if error is kind else old, status) for error, old, status in rows)
    patch.setattr(amqp_conditions, "_BY_ERROR", changed)


def _limit_of_half(patch: pytest.MonkeyPatch) -> None:
    send = Intake.send

    def halved(self: Any, messages: Any, **options: Any) -> list[int]:
        if sum(message.size for message in messages) > self.max_message_bytes // 2:
            raise broker_errors.MessageTooLarge(self.path, messages[0].size, self.max_message_bytes // 2)
        return send(self, messages, **options)

    patch.setattr(Intake, "send", halved)


def _drop_footers(patch: pytest.MonkeyPatch) -> None:
    write = message_codec.write_message

    def without(stored: Any) -> bytes:
        return message_codec.split(write(stored))._replace(footer=None).join()

    patch.setattr(broker_links, "write_message", without)


def _release_counts(patch: pytest.MonkeyPatch) -> None:
    settle, counted = MessageQueue.settle, {Settling.RELEASE: Settlement(Settling.ABANDON)}
    patch.setattr(MessageQueue, "settle", lambda self, token, by: settle(self, token, counted.get(by.kind, by)))


def _sessions_for_all(patch: pytest.MonkeyPatch) -> None:
    accept = SessionTable.accept

    def always(self: Any, consumer: Any, session_id: str, until: float) -> Any:
        self.get(session_id).holder = None
        return accept(self, consumer, session_id, until)

    patch.setattr(SessionTable, "accept", always)


def _deferred_for_all(patch: pytest.MonkeyPatch) -> None:
    def found(self: Any, number: int, session_id: str | None) -> Any:
        return self._store.get(number)

    patch.setattr(MessageQueue, "_deferred", found)


def _not_allowed_to_send(patch: pytest.MonkeyPatch) -> None:
    check, send = Intake.check_open, Intake.send

    def opened(self: Intake) -> None:
        if self._status is not EntityStatus.RECEIVE_DISABLED:
            check(self)

    def refused(self: Intake, messages: Any, **options: Any) -> list[int]:
        if self._status is EntityStatus.RECEIVE_DISABLED:
            raise broker_errors.InvalidOperation("no receivers, no messages")
        return send(self, messages, **options)

    patch.setattr(Intake, "check_open", opened)
    patch.setattr(Intake, "send", refused)


def _lose_dead(patch: pytest.MonkeyPatch) -> None:
    settle = MessageQueue.settle

    def lose(self: MessageQueue, token: bytes, settlement: Settlement) -> None:
        is_lost = settlement.kind is Settling.ABANDON and self.dead_letters is None
        settle(self, token, COMPLETE if is_lost else settlement)

    patch.setattr(MessageQueue, "settle", lose)


def _commit_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Transaction, "commit", Transaction.roll_back)


def _peek_once(patch: pytest.MonkeyPatch) -> None:
    peek, last = MessageQueue.peek, management_node.MOST_PEEKED
    patch.setattr(MessageQueue, "peek", lambda self, number, *rest: peek(self, number, *rest) if number < last else [])


def _close_badly(patch: pytest.MonkeyPatch) -> None:
    for module in (broker_links, namespace_server):
        patch.setattr(module, "closed", lambda _: AmqpRefusal("amqp:internal-error", "something failed", 500))


def _all_in_place(description: Any, order: Any) -> Any:
    return {child.tag.rpartition("}")[2]: child for child in description}, []


def _refuse_list(*_: Any) -> Any:
    raise management_api.AtomRefusal(400, "there is no such list")


def _refuse_token(self: Authorization, path: str) -> None:
    try:
        self._namespace.owner(path)
    except broker_errors.EntityNotFound as error:
        raise TokenError(Flaw.SIGNATURE, "There is no such key.") from error


PLANTED: dict[str, Callable[[pytest.MonkeyPatch], Any]] = {
    "sasl-mechanisms": lambda patch: patch.setattr(handshake, "OFFERED", ("EXTERNAL", "ANONYMOUS")),
    "deleted-entity-token": lambda patch: patch.setattr(Authorization, "check_entity", _refuse_token),
    "peek-needs-listen": lambda patch: patch.setattr(management_node, "rights_for", lambda *_: ()),
    "listen-peeks": lambda patch: patch.setattr(management_node, "rights_for", lambda *_: (Right.LISTEN, Right.SEND)),
    "closed-to-senders": lambda patch: patch.setattr(
        EntityStatus, "can_receive", property(lambda status: status is EntityStatus.ACTIVE)
    ),
    "closed-to-receivers": _not_allowed_to_send,
    "disabled-entity": lambda patch: _condition(patch, broker_errors.EntityDisabled, "amqp:not-allowed"),
    "deleted-entity": _close_badly,
    "disabled-links": _close_badly,
    "announced-limits": lambda patch: patch.setattr(server_connection, "MAX_SESSION_LINKS", 100),
    "transactions": _commit_nothing,
    "reply-link": lambda patch: patch.setattr(broker_links.RequestLink, "needs_reply", False),
    "peek-size": _peek_once,
    "element-order": lambda patch: patch.setattr(entity_xml, "in_places", _all_in_place),
    "missing-topic": lambda patch: patch.setitem(
        management_api.ManagementApi._ACTIONS, ("GET", management_api.ResourceKind.SUBSCRIPTIONS), _refuse_list
    ),
    "old-etag": lambda patch: patch.setattr(management_api.ManagementApi, "_check_match", lambda *_: None),
    "message-size": lambda patch: patch.delitem(topology._CHECKS, "max_message_size_kb"),
    "timespan-max": lambda patch: patch.setattr(entity_xml, "FOR_EVER", "P14D"),
    "size-limits": _limit_of_half,
    "release-and-count": _release_counts,
    "expired-messages": lambda patch: patch.setattr(message_codec, "_time_to_live", lambda _: None),
    "dead-letter-count": _lose_dead,
    "batch-delete": lambda patch: patch.delitem(management_node._OPERATIONS, "batch-delete-messages", raising=False),  # type: ignore[arg-type]
    "deferred-locks": _deferred_for_all,
    "duplicate-detection": lambda patch: patch.setattr(DuplicateWindow, "is_new", lambda *_: True),
    "pings": lambda patch: patch.setattr(intake, "PING_CONTENT_TYPE", "none"),
    "session-take-over": _sessions_for_all,
    "bit-for-bit": _drop_footers,
}


SEEN_TWICE = {
    "disabled-entity": {"closed-to-receivers"},
    "deleted-entity": {"disabled-links"},
    "disabled-links": {"deleted-entity"},
}
"""Differences that another experiment sees too: a queue closed to receivers may refuse messages, but as disabled."""


def test_every_experiment_has_a_planted_difference() -> None:
    assert set(PLANTED) == {one.name for one in EXPERIMENTS} - SLOW - BY_ARM


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
async def test_with_a_planted_difference_that_one_differs_and_no_other(
    name: str, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    PLANTED[name](monkeypatch)
    found = differing(await lab.run())
    assert set(found) == {name} | MISSING | SEEN_TWICE.get(name, set()), found
    assert "the experiment failed" not in found[name] or name == "session-take-over"
    assert (lab.queues(), lab.records) == ([], [])


@pytest.mark.parametrize(
    ("switch", "name", "result", "seen"),
    [
        ("peek_when_send_disabled", "closed-to-senders", "holds", "a peek found 1 of 1 messages"),
        ("peek_needs_send", "listen-peeks", "differs", "a key with Listen alone: "),
        ("send_when_receive_disabled", "closed-to-receivers", "holds", "a send: accepted"),
        ("exact_batch_delete", "batch-delete", "holds", "best effort: asked for 2 of 3"),
        ("count_dead_letter_deliveries", "dead-letter-count", "holds", "its delivery count rises: 0, 1, 2"),
    ],
)
async def test_the_other_answer_of_the_service(lab: Lab, switch: str, name: str, result: str, seen: str) -> None:
    behaves = Behavior(**{switch: not getattr(Behavior(), switch)})
    async with Sandbox.start([NamespaceSpec(PRIMARY), NamespaceSpec(SECONDARY, behaves=behaves)]) as sandbox:
        (one,) = (await Lab(sandbox, lab.folder).run(row(name))).results
    assert (one.result, seen in one.seen) == (result, True), one.seen


@pytest.mark.parametrize(
    ("name", "planted", "seen"),
    [
        ("arm-missing-namespace", None, "404 (ParentResourceNotFound)"),
        ("arm-missing-namespace", "code", "as a missing queue: "),
        ("arm-slash", None, "listed: 1; the name has a slash: True"),
        ("arm-slash", "~", "listed: 0; the name has a slash: False"),
    ],
)
async def test_resource_manager(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, name: str, planted: str | None, seen: str
) -> None:
    if planted == "~":
        monkeypatch.setattr(management_port, "_path", lambda queue: queue.name.replace("/", "~"))
    elif planted:
        monkeypatch.setattr(management_port, "_PARENT_IS_MISSING", frozenset())
    credential = AsyncSandboxCredential(lab.sandbox.control_url, "Data Owner")
    trust = str(lab.sandbox.ca_file)
    async with ServiceBusManagementClient(
        credential, "s", base_url=lab.sandbox.arm_url, connection_verify=trust
    ) as client:
        admin = ArmAdmin(client, resource_group="g", namespace=SECONDARY)

        async def queue(*, path: str) -> str:
            await admin.create_queue(path, QueueWanted())
            return path

        trial: Any = SimpleNamespace(home=SimpleNamespace(admin=admin), name=lambda: "paired-verify-a-0", queue=queue)
        observed = await row(name)[0].run(trial)
    assert (observed.holds, observed.seen[: len(seen)]) == (planted is None, seen)


# -- slow experiments ------------------------------------------------------------------------------------------------


def row(name: str) -> list[Experiment]:
    return [one for one in EXPERIMENTS if one.name == name]


async def _age(lab: Lab) -> None:
    """Make the sandbox ten minutes older, once a link has settled in."""
    await asyncio.sleep(1.0)
    node = lab.sandbox[SECONDARY].node
    node.clock.advance(namespace_server.IDLE_LINK_SECONDS + 1)
    node.clock_jumped()


@pytest.mark.parametrize("name", sorted(SLOW))
async def test_a_slow_experiment_waits_for_its_switch(name: str, lab: Lab) -> None:
    (one,) = (await lab.run(row(name))).results
    assert one.result is ExperimentResult.SKIPPED
    assert "--slow runs it" in one.seen


@pytest.mark.parametrize(("limit", "result"), [(600.0, "holds"), (1e9, "differs")])
async def test_an_idle_link_is_detached(lab: Lab, monkeypatch: pytest.MonkeyPatch, limit: float, result: str) -> None:
    monkeypatch.setattr(namespace_server, "IDLE_LINK_SECONDS", limit)
    monkeypatch.setattr(entity_experiments, "IDLE_SECONDS", 4.0)
    aging = asyncio.create_task(_age(lab)) if limit == 600.0 else None
    (one,) = (await lab.run(row("idle-detach"), slow=True)).results
    if aging is not None:
        await aging
    assert one.result == result, one.seen


@pytest.mark.parametrize("ends", [True, False])
async def test_a_transaction_ends_by_itself(lab: Lab, monkeypatch: pytest.MonkeyPatch, ends: bool) -> None:
    monkeypatch.setattr(coordination, "TIMEOUT_SECONDS", 1.0 if ends else 120.0)
    monkeypatch.setattr(transaction_experiments, "TIMEOUT_SECONDS", 2.0)
    (one,) = (await lab.run(row("transaction-end"), slow=True)).results
    assert one.result == ("holds" if ends else "differs"), one.seen


async def test_the_tier_basic_refuses_a_coordinator(lab: Lab) -> None:
    async with Sandbox.start([NamespaceSpec(PRIMARY), NamespaceSpec(SECONDARY, tier=Tier.BASIC)]) as sandbox:
        (one,) = (await Lab(sandbox, lab.folder).run(row("transactions"))).results
    assert (one.result, "tier Basic, which has no transactions" in one.seen) == ("holds", True), one.seen


@pytest.mark.parametrize("ends", [True, False])
async def test_a_link_whose_token_has_ended(lab: Lab, monkeypatch: pytest.MonkeyPatch, ends: bool) -> None:
    monkeypatch.setattr(access_experiments, "TOKEN_SECONDS", 2.0 if ends else 60.0)
    monkeypatch.setattr(access_experiments, "ENFORCED_SECONDS", 20.0 if ends else -59.0)
    (one,) = (await lab.run(row("token-end"), slow=True)).results
    assert one.result is ExperimentResult.HOLDS, one.seen
    assert ("RenewToken" if ends else "outlived") in one.seen


@pytest.mark.parametrize("closes", [False, True])
async def test_a_connection_without_links(lab: Lab, monkeypatch: pytest.MonkeyPatch, closes: bool) -> None:
    monkeypatch.setattr(entity_experiments, "UNLINKED_SECONDS", 4.0)
    secondary = NamespaceSpec(SECONDARY, behaves=Behavior(close_unlinked_connections=closes))
    async with Sandbox.start([NamespaceSpec(PRIMARY), secondary]) as sandbox:
        other = Lab(sandbox, lab.folder)
        aging = asyncio.create_task(_age(other))
        (one,) = (await other.run(row("unlinked-connection"), slow=True)).results
        await aging
    assert one.result is ExperimentResult.HOLDS, one.seen
    assert ("closed after" if closes else "still open") in one.seen


@pytest.mark.parametrize(("kind", "result"), [("resource-limit-exceeded", "holds"), ("internal-error", "differs")])
async def test_a_full_queue_refuses(lab: Lab, monkeypatch: pytest.MonkeyPatch, kind: str, result: str) -> None:
    apply = Intake.apply

    def small(self: Any, settings: Any) -> None:
        apply(self, settings)
        self._quota_bytes = QUOTA

    monkeypatch.setattr(Intake, "apply", small)
    _condition(monkeypatch, broker_errors.QuotaExceeded, f"amqp:{kind}")
    (one,) = (await lab.run(row("full-entity"), slow=True)).results
    assert one.result == result, one.seen
    assert "after 4 MB" in one.seen


# -- rights, tiers, failures -----------------------------------------------------------------------------------------


async def test_with_send_and_listen_alone_it_names_the_missing_right_and_asks_the_rest(lab: Lab) -> None:
    """With Send and Listen alone it says what it cannot ask and asks the rest."""
    report = await lab.run(rule=("worker", WORKER_KEY))
    found = results(report)
    asked = {"sasl-mechanisms", "deleted-entity-token"}
    assert {name for name, result in found.items() if result is ExperimentResult.HOLDS} == asked
    refused = {one.seen for one in report.results if one.result is ExperimentResult.NOT_PERMITTED}
    assert refused == {"the credential of the secondary namespace lacks Manage, which queues need"}
    assert {name for name, result in found.items() if result is ExperimentResult.SKIPPED} == SLOW | BY_ARM
    assert report.status == 0
    assert (lab.queues(), lab.records) == ([], [])


async def test_without_manage_an_idle_link_to_the_backlog_queue_is_enough(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entity_experiments, "IDLE_SECONDS", 4.0)
    path = f"{PRIMARY}/x-servicebus-transfer/0"
    lab.sandbox[SECONDARY].node.namespace.create_queue(path)
    aging = asyncio.create_task(_age(lab))
    report = await lab.run(row("idle-detach"), slow=True, rule=("worker", WORKER_KEY), more=_named(lab))
    await aging
    (one,) = report.results
    assert one.result is ExperimentResult.HOLDS, one.seen
    assert len(lab.sandbox[SECONDARY].node.namespace.queue(path).messages) == 0, "nothing was sent to it"
    assert PRIMARY not in one.seen


def _named(lab: Lab) -> str:
    """The primary's name, which a key without Manage does not learn; the secondary's is not needed."""
    return f'name = "{PRIMARY}"\n'


async def test_the_tier_basic_skips_its_missing_features(lab: Lab) -> None:
    async with Sandbox.start([NamespaceSpec(PRIMARY), NamespaceSpec(SECONDARY, tier=Tier.BASIC)]) as sandbox:
        report = await Lab(sandbox, lab.folder).run()
    skipped = {one.experiment.name for one in report.results if "the tier Basic lacks" in one.seen}
    assert skipped == {one.name for one in EXPERIMENTS if one.needs_standard}
    assert set(differing(report)) == MISSING


async def test_a_failing_experiment_stops_no_other_and_one_that_hangs_ends_at_its_deadline(lab: Lab) -> None:
    async def fail(trial: Trial) -> Observation:
        await trial.queue()
        raise KeyError(lab.sandbox[PRIMARY].key)

    async def hang(trial: Trial) -> Observation:
        await trial.queue()
        await asyncio.sleep(3600)
        raise AssertionError

    good = row("duplicate-detection")[0]
    rows = [replace(good, name="fails", run=fail), replace(good, name="hangs", run=hang, deadline=1.0), good]
    report = await lab.run(rows)
    found = differing(report)
    assert set(found) == {"fails", "hangs"}
    assert found["fails"].startswith("the experiment failed: KeyError")
    assert lab.sandbox[PRIMARY].key not in found["fails"]
    assert "did not end within 1 s" in found["hangs"]
    assert lab.queues() == []


async def test_pings_that_are_delivered_differ(lab: Lab) -> None:
    async with Sandbox.start([NamespaceSpec(PRIMARY), NamespaceSpec(SECONDARY, pings=Pings.DELIVERED)]) as sandbox:
        report = await Lab(sandbox, lab.folder).run(row("pings"))
    assert differing(report) == {"pings": "a ping was accepted and delivered"}


def test_the_page_lists_every_experiment() -> None:
    page = (Path(verify_command.__file__).parent / "EXPERIMENTS.md").read_text()
    for one in EXPERIMENTS:
        assert f"| `{one.name}` | {one.assumption} | {one.why} |" in page
    (count,) = re.findall(r"tests (\d+)\nassumptions", (Path(__file__).parents[2] / "README.md").read_text())
    assert int(count) == len(EXPERIMENTS)


# -- What a killed run leaves is recorded before it exists, and `--clean` deletes it, and nothing else.


FOREIGN = (
    "orders",
    "paired-verify-",
    "paired-verify-0123456789ab",
    "paired-verify-0123456789ab-x",
    "paired-verify-0123456789AB-1",
    "paired-verify-0123456789abc-1",
    "x-paired-verify-0123456789ab-1",
    "paired-verify-0123456789ab-1/x",
)
STRAY = "paired-verify-0123456789ab-3"


async def cleaned(lab: Lab, **options: str) -> tuple[int, list[str]]:
    async with open_namespaces(lab.config(**options)) as namespaces:
        return await clean(namespaces, lab.places.state)


async def abandon(lab: Lab) -> RunRecord:
    """Two queues of a run that ends without a word."""
    async with open_namespaces(lab.config()) as namespaces:
        record = RunRecord.begin(RECORDS, lab.places.state)
        trial = Trial(namespaces, record)
        await trial.queue()
        await trial.queue(side=Side.PRIMARY)
    return record


@pytest.mark.parametrize("path", FOREIGN)
def test_only_the_exact_pattern_is_ours(path: str) -> None:
    assert run_of(path) == ""
    assert run_of(STRAY) == "0123456789ab"


async def test_the_queues_of_a_killed_run_are_deleted(lab: Lab) -> None:
    record = await abandon(lab)
    assert len(lab.queues()) == 2
    record.end()  # as the system does for a dead process
    assert await cleaned(lab) == (2, [])
    assert (lab.queues(), lab.records) == ([], [])
    assert await cleaned(lab) == (0, [])


async def test_the_queues_of_a_living_run_stay(lab: Lab) -> None:
    record = await abandon(lab)
    assert await cleaned(lab) == (0, [])
    assert len(lab.queues()) == 2
    record.end()


async def test_other_queues_stay_whatever_they_are_called(lab: Lab) -> None:
    """Only names with the exact prefix pattern, never others."""
    space = lab.sandbox[SECONDARY].node.namespace
    for path in FOREIGN:
        if path != "paired-verify-0123456789AB-1":  # one queue with the stray in any case
            space.create_queue(path)
    lab.sandbox[SECONDARY].node.clock.advance(2 * FOREIGN_SECONDS)
    before = lab.queues()
    record = await abandon(lab)
    record.end()
    assert (await cleaned(lab))[0] == 2
    assert lab.queues() == before


@pytest.mark.parametrize("age", [0.0, FOREIGN_SECONDS + 60])
async def test_a_queue_without_a_record_is_deleted_once_it_is_old(
    lab: Lab, age: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.sandbox[PRIMARY].node.namespace.create_queue(STRAY)
    monkeypatch.setattr("paired_servicebus.trials.verify_command.FOREIGN_SECONDS", FOREIGN_SECONDS - age)
    deleted, remains = await cleaned(lab)
    if age:
        assert (deleted, remains, lab.queues()) == (1, [], [])
    else:
        assert deleted == 0
        assert remains == [f"{STRAY} is less than an hour old and may belong to a run on another machine"]


async def test_a_record_of_another_namespace_is_kept_with_its_queues(lab: Lab) -> None:
    record = RunRecord.begin(RECORDS, lab.places.state)
    record.note("secondary", "other.servicebus.windows.net", f"{record.prefix}-0")
    record.end()
    deleted, remains = await cleaned(lab)
    assert (deleted, len(remains)) == (0, 1)
    assert "another namespace" in remains[0]
    assert len(lab.records) == 1


async def test_what_cannot_be_deleted_remains_in_the_record(lab: Lab) -> None:
    record = await abandon(lab)
    record.end()
    deleted, remains = await cleaned(lab, rule=("worker", WORKER_KEY))
    assert (deleted, len(remains)) == (0, 2)
    assert len(lab.records) == 1
    assert await cleaned(lab) == (2, [])


def test_a_queue_is_on_disk_before_it_is_made_and_torn_lines_are_none(tmp_path: Path) -> None:
    record = RunRecord.begin(RECORDS, tmp_path)
    path = f"{record.prefix}-0"
    record.note("secondary", "host", path)
    (file,) = (tmp_path / "verify").iterdir()
    assert json.loads(file.read_text())["queue"] == path
    record.end()
    with file.open("a") as more:
        more.write('[]\n{"queue": "orders", "side": "secondary", "host": "host"}\n{"queue": "paired-ver')
    (again,) = past_records(RECORDS, tmp_path)
    assert [queue.path for queue in again.entities] == [path]
    again.forget(path)
    again.end()
    assert not file.exists()


def test_a_state_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "verify").write_text("in the way")
    with pytest.raises(ConfigurationError, match="cannot be made"):
        RunRecord.begin(RECORDS, tmp_path)


async def test_an_interrupted_run_leaves_nothing(lab: Lab) -> None:
    """Deleted at the end and after Ctrl-C."""
    running = asyncio.create_task(lab.run())
    while len(lab.queues()) < 3:
        await asyncio.sleep(0.02)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (lab.queues(), lab.records) == ([], [])


# -- The verb in processes of its own: exit status, file, interrupts, kills.


VERIFY = ("verify", "paired-verify-")


def test_mistakes_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", "--clean", "--slow"]) == 2
    assert "--clean runs no experiments" in capsys.readouterr().err
    assert cli.main(["verify", "--config", str(tmp_path / "missing.toml")]) == 2
    assert "missing.toml is not a file" in capsys.readouterr().err


@pytest.mark.slow
async def test_the_file_is_written_and_the_status_tells_of_differences(tmp_path: Path) -> None:
    async with verb(tmp_path, *VERIFY) as found:
        file = tmp_path / "results.json"
        status, out = await ended(await found.start("--json", str(file)))
        results = {one["result"] for one in json.loads(file.read_text())["results"]}
        assert status == int("differs" in results), out
        for secret in found.secrets:
            assert secret not in file.read_text() + out
        assert found.left() == []


@pytest.mark.slow
async def test_an_unwritable_file_and_a_silent_namespace_are_one_sentence_each(tmp_path: Path) -> None:
    async with verb(tmp_path, *VERIFY) as found:
        status, out = await ended(await found.start("--json", str(tmp_path / "no" / "file")))
        assert (status, "cannot be written" in out) == (2, True), out
    status, out = await ended(await found.start())
    assert (status, "does not answer" in out) == (2, True), out
    assert out.count("\n") == 1, out


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_an_interrupted_run_deletes_its_queues(tmp_path: Path, number: signal.Signals, status: int) -> None:
    async with verb(tmp_path, *VERIFY) as found:
        process = await found.start()
        await _working(found)
        process.send_signal(number)
        assert (await ended(process))[0] == status
        assert found.left() == []
        assert found.records() == []


async def test_a_killed_run_is_reported_and_cleaned(tmp_path: Path) -> None:
    async with verb(tmp_path, *VERIFY) as found:
        process = await found.start()
        await _working(found)
        process.kill()
        await ended(process)
        assert found.left()
        assert await found.clean() == (0, [])
        assert found.left() == []


async def _working(found: Verb) -> None:
    while len(found.left()) < 3:
        await asyncio.sleep(0.02)


# -- Texts of the service without secrets, hosts and names of namespaces.


KEY = "c2VjcmV0LWtleS1vZi1jb250b3Nv"


@pytest.fixture
def redactor(tmp_path: Path) -> Redactor:
    path = tmp_path / "pairing.toml"
    path.write_text(
        """
[pairing]
name = "orders"
[primary]
connection_string = { env = "PRIMARY" }
[secondary]
namespace = "alias.servicebus.windows.net"
credential = "client-secret"
tenant = "11111111-2222-3333-4444-555555555555"
client_id = "app-0815"
client_secret = { env = "CLIENT" }
management = "arm"
subscription = "sub-4711"
resource_group = "rg-fabrikam"
"""
    )
    names = {Side.PRIMARY: ["contoso"], Side.SECONDARY: ["fabrikam-backup"]}
    string = f"Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=mine;SharedAccessKey={KEY}"
    config = load_config(path, environ={"PRIMARY": string, "CLIENT": "hush-hush"})
    return Redactor(config, names)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("sb://contoso.servicebus.windows.net/q is gone", "sb://primary/q is gone"),
        ("CONTOSO.ServiceBus.Windows.net:5671 closed", "primary:5671 closed"),
        ("of Contoso, contoso/x-servicebus-transfer/0", "of primary, primary/x-servicebus-transfer/0"),
        ("contosolike and my-contoso stay", "contosolike and my-contoso stay"),
        ("fabrikam-backup behind alias", "secondary behind secondary"),
        (f"key {KEY} of mine", "key *** of ***"),
        ("hush-hush app-0815 sub-4711 rg-fabrikam", "*** *** *** ***"),
        ("other.servicebus.chinacloudapi.cn at 10.1.2.3:5671", "HOST at HOST"),
        (
            "could not be found. TrackingId:8b1d_G12, SystemTracker:contoso:queue:q, Timestamp:2026-11-23",
            "could not be found",
        ),
        ("busy. Reference:1-2-3, TrackingId:4, SystemTracker:x", "busy"),
        ("paired-verify-0123456789ab-12 and paired-verify-x", "QUEUE and paired-verify-x"),
        ("two\nlines\x1b[31m", "two lines\\x1b[31m"),
        ("SharedAccessSignature sr=x&sig=abc%3d&se=1", None),
    ],
)  # fmt: skip
def test_a_text_can_be_shown_to_anyone(redactor: Redactor, text: str, clean: str | None) -> None:
    found = redactor.clean(text)
    if clean is None:
        assert "abc%3d" not in found
    else:
        assert found == clean


def test_a_long_text_is_cut(redactor: Redactor) -> None:
    assert len(redactor.clean("x " * 5000)) <= 600
