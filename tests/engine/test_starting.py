"""Pieces of a start: the log, the report through the pipe, clients from settings, what a port says."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from azure.servicebus.exceptions import MessagingEntityNotFoundError, ServiceBusAuthorizationError

from paired_servicebus.config import NamespaceConfig, PairingConfig
from paired_servicebus.core.errors import EngineRunningError, EngineStartError
from paired_servicebus.core.model.namespace_info import UNKNOWN_NAMESPACE, NamespaceInfo, ServiceTier
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.operator.alarms import alarms
from paired_servicebus.engine.clients import client_factory, start_checks
from paired_servicebus.engine.clients.start_checks import read_primary_info
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.engine.instance.logs import log_as_json, log_to, new_log_file
from paired_servicebus.engine.service.launcher import Failed, Launch, Ready, report
from paired_servicebus.engine.service.main import _Starting
from paired_servicebus.secret import Secret
from servicebus_sandbox import Sandbox
from tests.alarm_views import condition

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


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


async def test_a_port_that_answers_is_fine(silent: int) -> None:
    assert await start_checks._try("127.0.0.1", silent, None) == ""


async def test_a_port_that_says_nothing_is_given_up(silent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_checks, "CONNECT_TIMEOUT", 0.05)
    why = await start_checks._try("127.0.0.1", silent, ssl.create_default_context())
    assert why == f"port {silent} did not answer within 0.05 s"


async def test_a_name_that_does_not_resolve_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio, "open_connection", unknown)
    assert await start_checks._try("nowhere.example", 5671, None) == "port 5671: Name or service not known"


async def test_a_ca_file_without_a_certificate_says_so(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing of the kind")
    why = await start_checks._try_management(by_string(ca_file=tmp_path / "ca.pem"))
    assert why == f"its ca_file {tmp_path / 'ca.pem'} holds no certificate"


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


async def test_an_entity_that_is_slow_to_answer_is_no_alarm_beside_one_that_does(tmp_path: Path) -> None:
    assert await look({"orders": None, "slow": TimeoutError()}, tmp_path) == ()


async def test_what_is_missing_or_refused_is_an_alarm_and_not_an_exit_status(tmp_path: Path) -> None:
    """What is away is an alarm, not an exit status."""
    gone, refused = MessagingEntityNotFoundError(message="no"), ServiceBusAuthorizationError(message="no Send")
    missing, denied = await look({"a": gone, "b": None, "c": gone, "d": refused}, tmp_path)
    assert "names 'a', 'c', and the primary namespace contoso.servicebus.windows.net has no queue" in missing
    assert "refused the credential for 'd': contoso.servicebus.windows.net: no Send" in denied
    assert denied.endswith("check [primary] in pairing.toml; its key or role needs Send")
    (many,) = await look(dict.fromkeys(map(str, range(12)), gone), tmp_path)
    assert "'0', '1', '2', '3', '4' and 7 more, and the primary" in many


async def test_a_credential_that_is_refused_for_all_is_an_alarm_about_the_credential(tmp_path: Path) -> None:
    """A credential that a namespace refuses is an alarm of the highest severity."""
    refused = ServiceBusAuthorizationError(message="no Send")
    (alarm,) = await look({"a": refused, "b": refused}, tmp_path)
    assert "the primary namespace refuses the credential: contoso.servicebus.windows.net: no Send" in alarm
    assert "needs Send -> replace it without a restart" in alarm
    assert "a clock that is wrong has the same effect" in alarm


async def test_a_primary_that_answers_for_none_is_an_alarm_with_the_setting_to_check(tmp_path: Path) -> None:
    (alarm,) = await look({"orders": TimeoutError("slow")}, tmp_path)
    assert "the primary namespace cannot be reached: contoso.servicebus.windows.net: slow" in alarm
    assert alarm.endswith(" -> check [primary] in pairing.toml, and the network")


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
