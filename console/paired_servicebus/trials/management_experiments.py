"""Experiments about management: answers of Atom and Resource Manager that no recording has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from xml.etree.ElementTree import Element

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.core.model.namespace_info import ServiceTier
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.management.management_port import (
    CONNECT,
    ONCE,
    ArmAdmin,
    AtomAdmin,
    queue_body,
    read_entry,
)
from paired_servicebus.trials.trial import Experiment, Observation, SkippedError, Trial

_NOT_FOUND, _BAD_REQUEST, _CHANGED = 404, 400, 412


def _atom(trial: Trial) -> ServiceBusAdministrationClient:
    admin = trial.home.admin
    if not isinstance(admin, AtomAdmin):
        raise SkippedError("the configuration names Resource Manager; the experiment is about Atom")
    return admin.client


def _arm(trial: Trial) -> ArmAdmin:
    admin = trial.home.admin
    if not isinstance(admin, ArmAdmin):
        raise SkippedError('the experiment is about Resource Manager; `management = "arm"` selects it')
    return admin


async def _put(trial: Trial, path: str, body: Element, **options: Any) -> tuple[int, str]:
    """Write a queue; return the status and the service's sentence."""
    try:
        await sdk_internals.write_entity(_atom(trial), path, body, **options, **ONCE)
    except HttpResponseError as error:
        return error.status_code or 0, error.message
    return 200, "accepted"


async def ignore_order(trial: Trial) -> Observation:
    """Update a queue with its lock behind another element."""
    client, path = _atom(trial), await trial.queue()
    body = queue_body({"EnableExpress": "false"})
    late = Element(f"{CONNECT}LockDuration")
    late.text = "PT9S"
    next(body.iter(f"{CONNECT}QueueDescription")).append(late)
    status, sentence = await _put(trial, path, body, update=True)
    found = read_entry(await sdk_internals.read_entity(client, path, **ONCE)).element
    locks = [] if found is None else [one.text for one in found.iter(f"{CONNECT}LockDuration")]
    seen = f"{status} {sentence}; locks of the queue then: {', '.join(map(str, locks))}"
    return Observation(locks == ["PT1M", "PT9S"], seen)


async def list_missing_topic(trial: Trial) -> Observation:
    """List the subscriptions of a missing topic."""
    client, _ = _atom(trial), await trial.queue()  # which needs the same right
    feeds = sdk_internals.list_entities(client, "subscriptions", 1, topic=trial.name(), **ONCE)
    try:
        count = len([one async for feed in feeds for one in feed.iter("{http://www.w3.org/2005/Atom}entry")])
    except HttpResponseError as error:
        return Observation(error.status_code == _NOT_FOUND, f"{error.status_code} {error.message}")
    return Observation(count == 0, f"a list with {count} subscriptions")


async def refuse_old_etag(trial: Trial) -> Observation:
    """Update a queue with the ETag of another state."""
    path = await trial.queue()
    options: dict[str, Any] = {"etag": "1", "match_condition": MatchConditions.IfNotModified}
    status, sentence = await _put(trial, path, queue_body({"LockDuration": "PT9S"}), **options)
    return Observation(status == _CHANGED, f"{status} {sentence}")


async def refuse_message_size(trial: Trial) -> Observation:
    """Create a queue for messages of 1 MB in a tier that has no choice."""
    if trial.home.tier is ServiceTier.PREMIUM:
        raise SkippedError("the tier Premium has a choice of the largest message")
    path = await trial.queue()
    status, sentence = await _put(trial, path, queue_body({"MaxMessageSizeInKilobytes": "1024"}), update=True)
    return Observation(status == _BAD_REQUEST and "SubCode=40000" in sentence, f"{status} {sentence}")


async def miss_namespace(trial: Trial) -> Observation:
    """Read a queue of a namespace that does not exist."""
    try:
        await _arm(trial).beside(trial.name()).depth("orders")
    except ResourceNotFoundError as error:
        return Observation(False, f"as a missing queue: {error.message}")
    except HttpResponseError as error:
        return Observation(error.status_code == _NOT_FOUND, f"{error.status_code} {error.message}")
    return Observation(False, "a depth")


async def find_slash(trial: Trial) -> Observation:
    """Create a queue with a slash in its name, and list it."""
    admin, path = _arm(trial), await trial.queue(path=f"{trial.name()}/0")
    listed = [one.path for one in await admin.queues(path)]
    return Observation(listed == [path], f"listed: {len(listed)}; the name has a slash: {listed == [path]}")


MANAGEMENT_EXPERIMENTS: Final[Sequence[Experiment]] = (
    Experiment(
        name="element-order",
        assumption="an element of a description behind its place has no effect, and comes back at the end",
        why="we write settings in the service's order, and read the first of two elements",
        run=ignore_order,
    ),
    Experiment(
        name="missing-topic",
        assumption="the list of subscriptions of a missing topic is empty, or refused with 404",
        why="a path without a description is unknown, not an entity without dead-lettering",
        run=list_missing_topic,
    ),
    Experiment(
        name="old-etag",
        assumption="an update with the ETag of another state is refused with 412",
        why="the sandbox has to answer as the service does; we update whatever the state is",
        run=refuse_old_etag,
    ),
    Experiment(
        name="message-size",
        assumption="another MaxMessageSizeInKilobytes than the tier's is refused with 400 and SubCode=40000",
        why="a status is written back with every other setting, the tier's own size among them",
        run=refuse_message_size,
        needs_standard=True,
    ),
    Experiment(
        name="arm-missing-namespace",
        assumption="Resource Manager answers for a missing namespace with another code than for a missing queue",
        why="a wrong resource group must not read as a deleted queue",
        run=miss_namespace,
    ),
    Experiment(
        name="arm-slash",
        assumption="Resource Manager lists a queue with a slash in its name, with ~ or the slash",
        why="backlog queues have slashes in their names",
        run=find_slash,
    ),
)
