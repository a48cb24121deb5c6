"""Descriptions over Atom: what the service was recorded to answer is read, and what is written has its order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import DecodeError, ResourceNotFoundError
from azure.core.pipeline.transport import AsyncHttpTransport
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from hypothesis import given
from hypothesis import strategies as st

from paired_servicebus.pairing.management import atom_admin as atom
from paired_servicebus.pairing.management import backlog_queues
from paired_servicebus.pairing.management.atom_admin import AtomAdmin
from paired_servicebus.pairing.management.management_port import BACKLOG_QUEUE, TIMESPAN_MAX, QueueStatus

ATOM = "http://www.w3.org/2005/Atom"
CONNECT = atom.CONNECT[1:-1]
PREFIX = "primary/x-servicebus-transfer/"
USUAL = {
    "LockDuration": "PT1M",
    "MaxSizeInMegabytes": "5120",
    "RequiresDuplicateDetection": "false",
    "RequiresSession": "false",
    "DefaultMessageTimeToLive": TIMESPAN_MAX,
    "DeadLetteringOnMessageExpiration": "true",
    "MaxDeliveryCount": "2147483647",
    "EnableBatchedOperations": "true",
    "SizeInBytes": "0",
    "MessageCount": "3",
    "IsAnonymousAccessible": "false",
    "Status": "Active",
    "CreatedAt": "2026-11-26T10:00:00.6Z",
    "UpdatedAt": "2026-11-26T10:00:00.6333333Z",
    "AccessedAt": "0001-01-01T00:00:00Z",
    "SupportOrdering": "true",
    "CountDetails": "<d2p1:DeadLetterMessageCount>1</d2p1:DeadLetterMessageCount>",
    "AutoDeleteOnIdle": TIMESPAN_MAX,
    "EnablePartitioning": "false",
    "EntityAvailabilityStatus": "Available",
    "EnableExpress": "false",
    "MaxMessageSizeInKilobytes": "256",
}
COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"


def described(settings: dict[str, str], *, behind: str = "", kind: str = "QueueDescription") -> str:
    inside = "".join(f"<{name}>{settings[name]}</{name}>" for name in atom.QUEUE_ORDER if name in settings)
    return f'<{kind} xmlns="{CONNECT}" xmlns:d2p1="{COUNTS}">{inside}{behind}</{kind}>'


def entry(name: str, description: str) -> str:
    return (
        f'<entry xmlns="{ATOM}"><title type="text">{name}</title>'
        f'<content type="application/xml">{description}</content></entry>'
    )


def feed(*entries: str) -> str:
    return f'<feed xmlns="{ATOM}"><title type="text">Queues</title>{"".join(entries)}</feed>'


def one(description: str, name: str = f"{PREFIX}0") -> atom.Description:
    return atom.read_entry(ElementTree.fromstring(entry(name, description)))


class Credential:
    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return AccessToken("token", 1 << 40)

    async def close(self) -> None:
        pass


class Answers(AsyncHttpTransport):  # type: ignore[type-arg] # the SDK's own classes leave its parameters open
    """The namespace's answers by the request's path, and what was put."""

    def __init__(self, **answers: str) -> None:
        self.answers = answers
        self.put: list[ElementTree.Element] = []
        self.headers: list[dict[str, str]] = []

    async def send(self, request: Any, **options: Any) -> Any:
        if request.method == "PUT":
            self.put.append(ElementTree.fromstring(request.body))
            self.headers.append(dict(request.headers))
        lists = "$Resources/queues" in request.url or "%24Resources/queues" in request.url
        return Answer(request, self.answers["listed" if lists else "found"])

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def __aenter__(self) -> Answers:
        return self

    async def __aexit__(self, *ended: object) -> None:
        pass


class Answer:
    """One answer, as a transport returns it."""

    def __init__(self, request: Any, text: str) -> None:
        self.request, self._text = request, text
        self.status_code, self.reason, self.content_type = 200, "OK", "application/atom+xml"
        self.headers = {"Content-Type": "application/atom+xml;charset=utf-8"}
        self.block_size = 4096

    def text(self, encoding: str | None = None) -> str:
        return self._text

    def body(self) -> bytes:
        return self._text.encode()

    async def load_body(self) -> None:
        pass

    async def read(self) -> bytes:
        return self.body()


@pytest.fixture
async def served() -> AsyncIterator[Any]:
    """A maker of the port over given answers."""
    made: list[AtomAdmin] = []

    def serve(answers: Answers) -> AtomAdmin:
        client = ServiceBusAdministrationClient("contoso.servicebus.windows.net", Credential(), transport=answers)  # type: ignore[arg-type]
        made.append(AtomAdmin(client))
        return made[-1]

    yield serve
    for admin in made:
        await admin.close()


DOUBLED = "<IsAnonymousAccessible>false</IsAnonymousAccessible><SupportOrdering>true</SupportOrdering>"


async def test_a_queue_with_doubled_elements_hides_no_other(served: Any) -> None:
    """An entity that the SDK cannot read (doubled elements of a PUT in another order) is one line about one name; the
    others count."""
    listed = feed(
        entry(f"{PREFIX}0", described(USUAL, behind=DOUBLED)),
        entry("strange", "<Foreign/>"),
        f'<entry xmlns="{ATOM}"><title type="text">empty</title></entry>',
        entry(f"{PREFIX}1", described({**USUAL, "LockDuration": "soon", "MaxDeliveryCount": "many"})),
    )
    admin = served(Answers(listed=listed))
    found = {queue.path: queue for queue in await admin.queues("")}
    assert list(found) == [f"{PREFIX}0", "strange", "empty", f"{PREFIX}1"]
    assert backlog_queues.differences(found[f"{PREFIX}0"]) == []
    assert (found["strange"].status, found["strange"].lock, found["empty"].duplicates) == ("", None, None)
    assert backlog_queues.differences(found[f"{PREFIX}1"]) == [
        "MaxDeliveryCount unknown instead of 2147483647",
        "LockDuration unknown instead of 0:01:00",
    ]
    assert {path: depth.messages for path, depth in (await admin.depths("", pages=1)).items()} == {
        f"{PREFIX}0": 2,
        f"{PREFIX}1": 2,
    }
    assert (await backlog_queues.ensure(admin, "primary", 2)).paths == {0: f"{PREFIX}0", 1: f"{PREFIX}1"}


async def test_counts_that_cannot_be_read_are_that_queues_failure(served: Any) -> None:
    admin = served(Answers(found=entry("q", described({**USUAL, "MessageCount": "none"}))))
    with pytest.raises(DecodeError, match="the description of q has no readable counts"):
        await admin.depth("q")
    with pytest.raises(ResourceNotFoundError, match="there is no queue q"):
        await served(Answers(found=feed())).depth("q")


def elements(put: ElementTree.Element) -> dict[str, str]:
    description = put[0][0]
    return {child.tag.rpartition("}")[2]: child.text or "" for child in description}


async def test_a_changed_status_keeps_forwarding_and_the_order_of_the_service(served: Any) -> None:
    """What is written over Atom is in the service's order of elements; a setting that would be lost by that is never
    written."""
    settings = {
        **USUAL,
        "ForwardTo": "https://contoso.servicebus.windows.net/other",
        "UserMetadata": "of Ada",
        "ForwardDeadLetteredMessagesTo": "https://contoso.servicebus.windows.net/dead",
    }
    answers = Answers(found=entry("q", described(settings, behind=DOUBLED)))
    await served(answers).set_status("q", QueueStatus.SEND_DISABLED)
    (put,) = answers.put
    written = elements(put)
    assert list(written) == [name for name in atom.QUEUE_ORDER if name in written]
    assert written == {
        **{name: text for name, text in settings.items() if name not in atom.NOT_SETTINGS},
        "Status": "SendDisabled",
    }
    assert answers.headers[0]["If-Match"] == "*"
    assert {"ServiceBusSupplementaryAuthorization", "ServiceBusDlqSupplementaryAuthorization"} <= set(
        answers.headers[0]
    )


async def test_an_element_behind_its_place_has_no_effect_and_is_not_written(served: Any) -> None:
    """An element behind its place has no effect, and comes back at the end in every later answer: written in its place,
    it would take effect."""
    behind = "<ForwardTo>https://contoso.servicebus.windows.net/other</ForwardTo><LockDuration>PT5S</LockDuration>"
    answers = Answers(found=entry("q", described(USUAL, behind=behind)))
    await served(answers).set_status("q", QueueStatus.ACTIVE)
    written = elements(answers.put[0])
    assert (written["LockDuration"], "ForwardTo" in written) == ("PT1M", False)


async def test_the_body_has_no_prefix_in_the_description(served: Any) -> None:
    """For the service the description's elements have to be in the default namespace."""
    answers = Answers(found=entry("q", described(USUAL)))
    sent: list[bytes] = []
    put = answers.send

    async def keep(request: Any, **options: Any) -> Any:
        if request.method == "PUT":
            sent.append(request.body)
        return await put(request, **options)

    answers.send = keep  # type: ignore[method-assign]
    await served(answers).create_queue("q", BACKLOG_QUEUE)
    assert b"<QueueDescription><LockDuration>PT1M</LockDuration>" in sent[0]
    assert elements(answers.put[0])["DefaultMessageTimeToLive"] == "P10675199DT2H48M5.4775807S"


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (entry("q", described(USUAL)), "q"),
        (entry("q", described({**USUAL, "DeadLetteringOnMessageExpiration": "false"})), ""),
        (entry("q", described({**USUAL, "DeadLetteringOnMessageExpiration": "perhaps"})), None),
        (feed(), None),
    ],
)
async def test_a_missing_or_unreadable_entity_is_unknown(served: Any, answer: str, kept: str | None) -> None:
    """What nobody here can know is "unknown"."""
    assert await served(Answers(found=answer)).keeps_expired("q") == kept


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("PT11M2S", timedelta(minutes=11, seconds=2)),
        ("P2D", timedelta(days=2)),
        ("P428DT3H11M2S", timedelta(days=428, hours=3, minutes=11, seconds=2)),
        ("P1Y2M3DT3H11M2S", timedelta(days=366 + 60 + 3, hours=3, minutes=11, seconds=2)),
        ("", None),
        ("tomorrow", None),
        ("P" + "9" * 40 + "D", None),
    ],
)
def test_durations(text: str, span: timedelta | None) -> None:
    found = one(described({"LockDuration": text})).span("LockDuration")
    assert found == span or (span is not None and found is not None and abs(found - span) < timedelta(days=2))


def test_the_longest_duration_is_not_finite() -> None:
    found = one(described(USUAL)).span("DefaultMessageTimeToLive")
    assert found is not None
    assert found >= backlog_queues.LONGEST


def test_times() -> None:
    found = one(described(USUAL))
    assert found.time("AccessedAt") is None
    assert found.time("CreatedAt") == pytest.approx(1795687200.6)
    assert one(described({"AccessedAt": "0001-01-01T00:00:00"})).time("AccessedAt") is None


@given(st.lists(st.sampled_from(atom.QUEUE_ORDER), max_size=40))
def test_any_order_of_elements_is_read_and_written_in_the_services(names: list[str]) -> None:
    """Entity lists with doubled, missing and misordered elements: no error, and the first in its place is in force."""
    inside = "".join(f"<{name}>{place}</{name}>" for place, name in enumerate(names))
    found = one(f'<QueueDescription xmlns="{CONNECT}">{inside}</QueueDescription>')
    atom.queue_facts(found)
    atom.queue_depth(found)
    force = atom.settings_in_force(found)
    places = [atom.QUEUE_ORDER.index(name) for name in force]
    assert places == sorted(places)
    assert all(force[name].text == str(names.index(name)) for name in force)
    body = atom.queue_body(force)
    assert [child.tag for child in body[0][0]] == [f"{atom.CONNECT}{name}" for name in force]


STRANGE = st.sampled_from(["LockDuration", "Status", "CountDetails", "MessageCount", "FutureSetting", "x", "Δ"])
XML = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff"))


@given(st.lists(st.tuples(STRANGE, st.sampled_from(["", CONNECT, ATOM, COUNTS, "urn:x"]), XML), max_size=30))
def test_unknown_elements_namespaces_and_texts_are_no_error(children: list[tuple[str, str, str]]) -> None:
    """Entity lists with unknown elements: what cannot be read is unknown, and the entity is listed."""
    description = ElementTree.Element(f"{atom.CONNECT}QueueDescription")
    for name, namespace, text in children:
        ElementTree.SubElement(description, f"{{{namespace}}}{name}" if namespace else name).text = text
    listed = ElementTree.fromstring(feed(entry("q", ElementTree.tostring(description, "unicode")), entry("r", "")))
    found, other = atom.read_feed(listed)
    facts = atom.queue_facts(found)
    assert (facts.path, other.name) == ("q", "r")
    assert backlog_queues.differences(facts)
    atom.queue_depth(found)
    force = atom.settings_in_force(found)
    written = [child.tag for child in atom.queue_body({**force, "Status": "Active"})[0][0]]
    assert [tag for tag in written if tag != f"{atom.CONNECT}Status"] == [
        force[name].tag for name in force if name != "Status"
    ]


async def test_an_update_keeps_a_setting_that_is_not_known_here(served: Any) -> None:
    """A setting that would be lost by that is never written; one of a later version is written back in its place."""
    text = described(USUAL).replace("<Status>", "<FutureSetting>PT7S</FutureSetting><Status>")
    text = text.replace("</QueueDescription>", "<LatestSetting>7</LatestSetting></QueueDescription>")
    answers = Answers(found=entry("q", text))
    await served(answers).set_status("q", QueueStatus.SEND_DISABLED)
    written = list(elements(answers.put[0]).items())
    place = written.index(("FutureSetting", "PT7S"))
    assert written[place + 1] == ("Status", "SendDisabled")
    assert written[-1] == ("LatestSetting", "7")


class Pages(Answers):
    """A list of many pages."""

    def __init__(self, entries: list[str]) -> None:
        super().__init__()
        self.entries = entries
        self.asked = 0

    async def send(self, request: Any, **options: Any) -> Any:
        skip, top = (int(parse_qs(urlsplit(request.url).query)[name][0]) for name in ("$skip", "$top"))
        self.asked += 1
        more = '<link rel="next" href="x"/>' if skip + top < len(self.entries) else ""
        return Answer(request, feed(*self.entries[skip : skip + top], more))


async def test_ten_thousand_entities_of_which_many_are_strange_are_each_listed_once(served: Any) -> None:
    """Entity lists with doubled, missing, unknown and misordered elements, 10,000 entities."""
    kinds = (
        described(USUAL),
        described(USUAL, behind=DOUBLED),
        described({name: text for name, text in USUAL.items() if name != "MessageCount"}),
        described(USUAL, behind="<FutureSetting>1</FutureSetting>"),
        described({}, behind="<Status>Active</Status><LockDuration>PT1M</LockDuration>"),
        "<Foreign/>",
    )
    names = [f"{PREFIX}{number}" if number < 10 else f"app/{number}" for number in range(10_000)]
    pages = Pages([entry(name, kinds[number % len(kinds)]) for number, name in enumerate(names)])
    admin = served(pages)
    assert [queue.path for queue in await admin.queues("")] == names
    assert pages.asked == 100
    found = await backlog_queues.ensure(admin, "primary", 10)
    assert found.paths == {number: f"{PREFIX}{number}" for number in range(10)}
    depths = await admin.depths("", pages=1000)
    assert set(depths) == {name for number, name in enumerate(names) if number % len(kinds) in (0, 1, 3)}
