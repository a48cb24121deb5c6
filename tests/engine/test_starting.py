"""A start in pieces: its log, its report, its clients, what it says of its namespaces, and readiness from then on."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest
from azure.servicebus.exceptions import MessagingEntityNotFoundError, ServiceBusAuthorizationError

from paired_servicebus.config import NamespaceConfig, PairingConfig
from paired_servicebus.core.errors import EngineRunningError, EngineStartError
from paired_servicebus.core.model.namespace_info import UNKNOWN_NAMESPACE, NamespaceInfo, ServiceTier
from paired_servicebus.core.model.pairing_events import Event, QueuePulled, SendsCounted, Warned
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.snapshot import SyphonStatus, Trouble
from paired_servicebus.core.operator.alarms import alarms
from paired_servicebus.core.operator.failover_readiness import Evidence
from paired_servicebus.engine.clients import client_factory, start_checks
from paired_servicebus.engine.clients.client_factory import CredentialReloader, open_clients
from paired_servicebus.engine.clients.start_checks import StartChecks, read_primary_info
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.engine.instance.logs import log_as_json, log_to, new_log_file
from paired_servicebus.engine.readiness import readiness_check as watch_module
from paired_servicebus.engine.readiness.readiness_check import ReadinessWatch, no_local_evidence
from paired_servicebus.engine.service import main
from paired_servicebus.engine.service.launcher import Failed, Launch, Ready, report
from paired_servicebus.engine.service.main import _Starting
from paired_servicebus.pairing import PairedServiceBusClient, opening
from paired_servicebus.secret import Secret
from servicebus_sandbox import Sandbox
from servicebus_sandbox.access.token_credentials import AsyncSandboxCredential
from servicebus_sandbox.broker.entity_settings import Tier
from servicebus_sandbox.specs import NamespaceSpec, QueueSpec
from tests.alarm_views import condition
from tests.approval import Approve

from .conftest import FakePairing, evidence

STRING = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=c4n4ry="


@pytest.fixture
def root_logger() -> Iterator[None]:
    """The process's logging, put back as it was."""
    root, ours = logging.getLogger(), logging.getLogger("paired_servicebus")
    handlers, level, our_level = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    ours.setLevel(our_level)
    logging.captureWarnings(False)


@pytest.mark.usefixtures("root_logger")
def test_the_log_has_no_secret_and_libraries_only_from_warning_on() -> None:
    stream = io.StringIO()
    log_to(stream)
    logging.getLogger("azure.servicebus").info("chatter")
    logging.getLogger("azure.servicebus").warning("token %s", "SharedAccessSignature sr=x&sig=c4n4ry&se=1")
    logging.getLogger("paired_servicebus.engine").info("serving")
    try:
        raise ValueError(STRING)
    except ValueError:
        logging.getLogger("paired_servicebus.engine").exception("failed")
    text = stream.getvalue()
    assert "chatter" not in text
    assert "serving" in text
    assert "Traceback" in text
    assert "sig=***" in text
    assert "c4n4ry" not in text


@pytest.mark.usefixtures("root_logger")
def test_a_log_in_json_has_one_object_a_line_and_no_secret() -> None:
    stream = io.StringIO()
    log_to(stream)
    log_as_json()
    try:
        raise ValueError(STRING)
    except ValueError:
        logging.getLogger("paired_servicebus.engine").exception("failed for %s\nno line of its own \x1b[2J", STRING)
    (line,) = stream.getvalue().splitlines()
    found = json.loads(line)
    assert list(found) == ["at", "level", "logger", "text", "traceback"]
    assert (found["level"], found["logger"]) == ("ERROR", "paired_servicebus.engine")
    assert found["text"].startswith("failed for Endpoint=sb://contoso.servicebus.windows.net/;")
    assert "ValueError" in found["traceback"]
    assert "c4n4ry" not in line
    assert "\x1b" not in line


def test_every_start_has_a_log_of_its_own(tmp_path: Path) -> None:
    assert new_log_file(tmp_path) != new_log_file(tmp_path)


# -- the report ----------------------------------------------------------------------------------------------------


def test_an_engine_nobody_waits_for_ends() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ready = Ready(pid=1, socket="s", log="l", backlog_queues=1)
    with pytest.raises(EngineStartError, match="the process that started the engine has gone"):
        _Starting(partial(report, writing)).ready(ready)


def test_only_the_first_report_is_made() -> None:
    reading, writing = os.pipe()
    starting = _Starting(partial(report, writing))
    starting.failed(Failed(text="first"))
    starting.failed(Failed(text="second"))
    with os.fdopen(reading) as told:
        assert told.read().count("\n") == 1


class Child:
    """A process that has said what it says."""

    def __init__(self) -> None:
        self.ended = False

    def terminate(self) -> None:
        self.ended = True

    def wait(self, timeout: float | None = None) -> int:
        return 0


@pytest.mark.parametrize(
    ("said", "error", "sentence"),
    [
        (Failed(text="no such entity"), EngineStartError, "no such entity"),
        (Failed(text="runs already", running=True), EngineRunningError, "runs already"),
        (None, EngineStartError, "ended before it was ready; its log"),
    ],
)
def test_what_a_child_says_is_raised_and_the_child_is_gone(
    tmp_path: Path, said: Failed | None, error: type[Exception], sentence: str
) -> None:
    reading, writing = os.pipe()
    if said is None:
        os.close(writing)
    else:
        report(writing, said)
    child = Child()
    with pytest.raises(error, match=sentence), Launch(child, reading, tmp_path / "log") as launch:  # type: ignore[arg-type]
        launch.wait()
    assert child.ended


def test_a_child_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    child = Child()
    with (
        pytest.raises(EngineStartError, match=r"was not ready within 0\.05 s; its log is"),
        Launch(child, reading, tmp_path / "log") as launch,  # type: ignore[arg-type]
    ):
        launch.wait(0.05)
    os.close(writing)
    assert child.ended


# -- clients -------------------------------------------------------------------------------------------------------


def pairing_of(primary: NamespaceConfig, secondary: NamespaceConfig | None = None) -> PairingConfig:
    return PairingConfig(
        path=Path("pairing.toml"), name="orders", environment="", read_only=False, policy=Policy(), entities=(),
        primary=primary, secondary=secondary or by_string(),
    )  # fmt: skip


def by_string(**more: object) -> NamespaceConfig:
    return NamespaceConfig(host="contoso.servicebus.windows.net", connection_string=Secret(STRING), **more)  # type: ignore[arg-type]


async def test_clients_leave_retrying_to_the_pairing() -> None:
    async with client_factory.open_clients(pairing_of(by_string())) as clients:
        assert clients.primary._config.retry_total == 0
        assert clients.secondary._config.retry_total == 0


# -- ports ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "parts"),
    [
        ("contoso.net", ("contoso.net", None)),
        ("127.0.0.1:99", ("127.0.0.1", 99)),
        ("[::1]:99", ("::1", 99)),
        ("[::1]", ("::1", None)),
    ],
)
def test_hosts_and_ports(host: str, parts: tuple[str, int | None]) -> None:
    assert start_checks._host_and_port(host) == parts


async def test_why_a_port_does_not_answer_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approve: Approve
) -> None:
    monkeypatch.setattr(start_checks, "CONNECT_TIMEOUT", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = server.getsockname()[1]
        assert await start_checks._try("127.0.0.1", silent, None) == "", "it answers where no TLS is spoken"
        said = [(await start_checks._try("127.0.0.1", silent, ssl.create_default_context())).replace(str(silent), "N")]
    (tmp_path / "ca.pem").write_text("nothing of the kind")
    said += [await start_checks._try_management(by_string(ca_file=tmp_path / "ca.pem"))]

    async def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio, "open_connection", unknown)
    said += [await start_checks._try("nowhere.example", 5671, None)]
    approve.part(said, "errors of the engine", has=("port N did not answer within 0.05 s", "ca.pem", "port 5671"))


class Namespace:
    """A namespace whose links open, or fail, as a test says."""

    def __init__(self, links: dict[str, Exception | None]) -> None:
        self.links = links
        self.tried: list[str] = []

    def get_queue_sender(self, path: str) -> Namespace._Sender:
        self.tried.append(path)
        return self._Sender(self.links.get(path))

    class _Sender:
        def __init__(self, error: Exception | None) -> None:
            self.error = error

        async def __aenter__(self) -> None:
            if self.error is not None:
                raise self.error

        async def close(self) -> None:
            raise OSError("closing fails, and that is nobody's business")


async def look(links: dict[str, Exception | None], tmp_path: Path) -> tuple[str, ...]:
    """The texts of the alarms of a start that finds these links of the primary."""
    config = replace(pairing_of(by_string()), entities=tuple(links))
    checks = start_checks.StartChecks(config, EnginePaths(state=tmp_path, socket=tmp_path / "s"), UNKNOWN_NAMESPACE)
    found = await checks._entities(Namespace(links))  # type: ignore[arg-type]
    return tuple(one.text for one in alarms(condition(troubles=found)))


GONE, REFUSED = MessagingEntityNotFoundError(message="no"), ServiceBusAuthorizationError(message="no Send")
LINKS: dict[str, tuple[dict[str, Exception | None], tuple[str, ...]]] = {
    "slow beside one that answers": ({"orders": None, "slow": TimeoutError()}, ()),
    "some missing, one refused": (
        {"a": GONE, "b": None, "c": GONE, "d": REFUSED}, ("'a', 'c'", "'d'", "check [primary]", "needs Send"),
    ),
    "many missing": (dict.fromkeys(map(str, range(12)), GONE), ("'4' and 7 more",)),
    "refused for all": (
        {"a": REFUSED, "b": REFUSED}, ("needs Send -> replace it without a restart", "a clock that is wrong"),
    ),
    "no answer for any": ({"orders": TimeoutError("slow")}, ("-> check [primary] in pairing.toml, and the network",)),
}  # fmt: skip
"""What the links to the primary's entities come to, and the figures and advice of the alarms about it."""


@pytest.mark.parametrize("case", LINKS)
async def test_an_entity_that_is_away_is_an_alarm(tmp_path: Path, approve: Approve, case: str) -> None:
    """What is away is an alarm, not an exit status. A credential that a namespace refuses is an alarm of the highest
    severity."""
    links, advice = LINKS[case]
    approve.part(await look(links, tmp_path) or "no alarm", "errors of the engine", has=advice)


async def test_looking_ends_in_time_though_entities_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_checks, "CHECK_TIMEOUT", 0.0)
    (alarm,) = await look(dict.fromkeys("abc"), tmp_path)
    assert "too many entities" in alarm


# -- What the primary is called, in good times and while it is away.


@pytest.fixture
def places(tmp_path: Path) -> EnginePaths:
    return EnginePaths(state=tmp_path, socket=tmp_path / "s")


def namespace_of(sandbox: Sandbox, name: str = "primary") -> NamespaceConfig:
    one = sandbox[name]
    return NamespaceConfig(
        host=f"127.0.0.1:{one.amqp_port}",
        connection_string=Secret(one.connection_string),
        ca_file=sandbox.ca_file,
    )


async def test_the_name_is_as_configured_else_as_the_namespace_tells_it(places: EnginePaths) -> None:
    """{primary} is the namespace's name: as configured, else as the namespace tells it."""
    async with Sandbox.start() as sandbox:
        told = namespace_of(sandbox)
        assert (await read_primary_info(replace(told, name="contoso"), places)).name == "contoso"
        assert await read_primary_info(told, places) == NamespaceInfo(name="primary", tier=ServiceTier.STANDARD)


async def test_a_name_that_was_told_once_is_remembered_through_an_outage(places: EnginePaths) -> None:
    async with Sandbox.start() as sandbox:
        namespace = namespace_of(sandbox)
        await read_primary_info(namespace, places)
    assert (await read_primary_info(namespace, places)).name == "primary"
    assert (await read_primary_info(replace(namespace, host="localhost:1"), places)).name == "localhost"


async def test_a_folder_that_cannot_be_written_costs_only_the_memory(tmp_path: Path) -> None:
    places = EnginePaths(state=tmp_path / "absent", socket=tmp_path / "s")
    async with Sandbox.start() as sandbox:
        assert (await read_primary_info(namespace_of(sandbox), places)).name == "primary"


async def test_without_any_knowledge_the_host_has_to_do(places: EnginePaths) -> None:
    """Else the first label of its host."""
    assert (await read_primary_info(NamespaceConfig(host="contoso.example"), places)).name == "contoso"


# -- What an engine says when it starts about the namespaces that it pairs -------------------------------------------


@dataclass
class Listener:
    """Stands for the engine's host: keeps what is recorded."""

    events: list[Event] = field(default_factory=list)
    troubles: tuple[Trouble, ...] = ()

    async def take_up(self, _paired: object) -> None:
        """Nothing stood before."""

    def record(self, event: Event) -> int:
        self.events.append(event)
        return len(self.events)

    def warn(self, about: str, text: str) -> None:
        self.record(Warned(at=0.0, about=about, text=text))

    def said(self, about: str) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Warned) and event.about == about]


@pytest.fixture
async def stack(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as found:
        yield found


def primary_spec(**more: object) -> NamespaceSpec:
    return NamespaceSpec("contoso", queues=[QueueSpec("orders")], **more)  # type: ignore[arg-type]


FITTING = NamespaceSpec("backup", region="northeurope")
PAIRS: dict[str, tuple[NamespaceSpec, NamespaceSpec, str, str]] = {
    "one region": (primary_spec(), NamespaceSpec("backup"), "arm", "both namespaces are in westeurope"),
    "two that fit": (primary_spec(), FITTING, "arm", ""),
    "a smaller tier behind a larger one": (
        primary_spec(tier=Tier.PREMIUM), NamespaceSpec("backup"), "atom", "would not survive a failover",
    ),
    "topics in the tier Basic": (primary_spec(tier=Tier.BASIC), FITTING, "arm", "has queues and no topics"),
}  # fmt: skip
"""Two namespaces, how they are managed, and the words of what is said of them."""


async def start(
    stack: AsyncExitStack,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    primary: NamespaceSpec,
    secondary: NamespaceSpec,
    *,
    management: str = "arm",
    entities: tuple[str, ...] = ("orders",),
    away: str = "",
    **options: bool,
) -> tuple[PairedServiceBusClient, Listener]:
    """Pairs two namespaces as an engine does. away: a namespace that refuses connections."""
    sandbox = await stack.enter_async_context(Sandbox.start([primary, secondary]))
    monkeypatch.setattr(client_factory, "_make", lambda _: AsyncSandboxCredential(sandbox.control_url, "Data Owner"))

    def config_of(name: str) -> NamespaceConfig:
        one = sandbox[name]
        by_key = NamespaceConfig(
            host=f"127.0.0.1:{one.amqp_port}",
            connection_string=Secret(one.connection_string),
            ca_file=sandbox.ca_file,
            name=name,
        )
        by_role = replace(by_key, management="arm", subscription="s", resource_group="g", arm_url=sandbox.arm_url)
        return by_role if management == "arm" else by_key

    config = PairingConfig(
        path=Path("pairing.toml"), name="orders", environment="", read_only=False,
        policy=Policy(backlog_queue_count=1, **options), entities=entities,
        primary=config_of(primary.name), secondary=config_of(secondary.name),
    )  # fmt: skip
    if away:
        sandbox[away].node.faults.add("refused")
    clients = await stack.enter_async_context(open_clients(config))
    host, places = Listener(), EnginePaths(state=folder, socket=folder / "s")
    renewal = CredentialReloader(config, clients.primary_credentials, clients.secondary_credentials, print)
    primary_info = await read_primary_info(config.primary, places)
    checks = StartChecks(config, places, primary_info)
    paired = await main._pair(config, clients, primary_info, host, renewal, main._Starting(lambda _: None))  # type: ignore[arg-type]
    host.troubles = await checks.look(clients.primary)
    return await stack.enter_async_context(paired), host


@pytest.mark.parametrize("case", PAIRS)
async def test_what_is_said_of_two_namespaces(
    stack: AsyncExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approve: Approve, case: str
) -> None:
    """Preferably in different data centres (a warning when ARM shows the same region)."""
    primary, secondary, management, words = PAIRS[case]
    entities = ("orders", "audit") if "topics" in case else ("orders",)
    paired, host = await start(
        stack, tmp_path, monkeypatch, primary, secondary, management=management, entities=entities
    )
    said = [*host.said("namespaces"), *(f"{one.kind}: {one.what} {one.reason}" for one in host.troubles)]
    approve.part(said or "nothing", "errors of the engine", has=(words,))
    assert (paired.primary_name, paired.secondary_name) == ("contoso", "backup")


async def test_an_engine_starts_without_its_secondary_whatever_the_option(
    stack: AsyncExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine of `paired up` starts and serves, whatever is away."""
    monkeypatch.setattr(opening, "FIRST_LINK_SECONDS", 0.1)
    specs = primary_spec(), NamespaceSpec("backup")
    paired, host = await start(
        stack, tmp_path, monkeypatch, *specs, management="atom", away="backup", start_degraded=False
    )
    assert paired.alarms()[0].startswith("the pairing started degraded: ")
    assert paired.alarms()[0].startswith(host.said("secondary")[0])


# -- The engine looks again and again whether a failover would work, and says so when the answer turns ---------------

Until = Callable[[Callable[[], bool]], Awaitable[None]]
PULLED = QueuePulled(at=1.0, queue=0, reason="timeout")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks as soon as something changes, and not by itself."""
    monkeypatch.setattr(watch_module, "MIN_CHECK_INTERVAL", 0.0)


async def running(watch: ReadinessWatch, pairing: FakePairing) -> asyncio.Task[None]:
    task = asyncio.create_task(watch.run(pairing))
    async with asyncio.timeout(60):
        while watch.latest is None:
            await asyncio.sleep(0)
    return task


async def test_the_first_look_comes_at_once_and_says_nothing_where_all_is_well(pairing: FakePairing) -> None:
    watch = ReadinessWatch(no_local_evidence)
    task = await running(watch, pairing)
    task.cancel()
    assert watch.latest is not None
    assert watch.latest.ready


@pytest.mark.usefixtures("quick")
async def test_an_event_that_may_change_the_answer_causes_a_look(pairing: FakePairing, until: Until) -> None:
    watch = ReadinessWatch(no_local_evidence)
    task = await running(watch, pairing)
    pairing.evidence = evidence("not authorized")
    watch.note(PULLED)
    await until(lambda: watch.latest is not None and not watch.latest.ready)
    pairing.evidence = evidence()
    watch.note(PULLED)
    await until(lambda: watch.latest is not None and watch.latest.ready)
    task.cancel()


@pytest.mark.usefixtures("quick")
async def test_what_changes_nothing_causes_no_look(pairing: FakePairing) -> None:
    watch = ReadinessWatch(no_local_evidence)
    task = await running(watch, pairing)
    first = watch.latest
    watch.note(SendsCounted(at=1.0, entity="orders", route="primary", accepted=1, failed=0, seconds=1.0))
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    assert watch.latest is first


async def test_syphons_of_other_engines_are_told_to_the_pairing(pairing: FakePairing) -> None:
    async def around(seen: Evidence) -> Evidence:
        return replace(seen, syphons_elsewhere=("orders@web-2",))

    pairing.evidence = evidence(syphon=SyphonStatus.OFF)
    task = await running(ReadinessWatch(around), pairing)
    task.cancel()
    assert pairing.syphons_elsewhere == ("orders@web-2",)


async def test_surroundings_that_fail_leave_what_the_pairing_saw(pairing: FakePairing) -> None:
    async def broken(_: Evidence) -> Evidence:
        raise RuntimeError("no")

    watch = ReadinessWatch(broken)
    task = await running(watch, pairing)
    task.cancel()
    assert watch.latest is not None
