"""Where an engine's files are, who may look into them, and that there is one engine a pairing."""

from __future__ import annotations

import asyncio
import faulthandler
import grp
import logging
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus import cli
from paired_servicebus.config import load_config
from paired_servicebus.core.errors import ConfigurationError, ControlError, EngineRunningError
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.pairing_condition import condition_of
from paired_servicebus.core.model.pairing_events import Commanded, Event
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.operator.alarms import alarms
from paired_servicebus.engine.control import control_client as client_module
from paired_servicebus.engine.control import control_server, discovery, protocol
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.discovery import (
    explain_closed_services,
    first_snapshot,
    local_engines,
    query_engine,
    query_engines,
)
from paired_servicebus.engine.gateway.gateway_keys import connection_string, read_keys
from paired_servicebus.engine.instance import group_access
from paired_servicebus.engine.instance.engine_paths import MAX_SOCKET_PATH_BYTES, EnginePaths, engine_paths
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.instance.lock import LockHolder, StateFolder, acquire, crashed_holder, running
from paired_servicebus.engine.service import main as engine
from paired_servicebus.engine.service.engine_host import EngineHost
from paired_servicebus.engine.service.launcher import Outcome, Ready
from servicebus_sandbox import Sandbox
from tests.approval import Approve
from tests.ports import free_port

from .conftest import WAIT

HOLDER = LockHolder(pid=4711, socket="/run/x.sock", log="/x.log")


@pytest.fixture
def home(short: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder, and no XDG variable but what a test sets."""
    for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(short))
    return short


def test_without_xdg_everything_is_in_the_state_folder(home: Path) -> None:
    places = engine_paths("orders")
    assert places.state == home / ".local/state/paired/orders"
    assert places.socket == places.state / "control.sock"


def test_xdg_folders_are_used_where_they_are_set(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "run").mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "st"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "run"))
    places = engine_paths("orders")
    assert places.state == home / "st/paired/orders"
    assert places.socket == home / "run/paired/orders.sock"


@pytest.mark.parametrize("value", ["relative/path", "/not/there"])
def test_a_runtime_folder_that_cannot_be_used_is_passed_over(
    home: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", value)
    assert engine_paths("orders").socket.name == "control.sock"
    (home / "run").mkdir()
    (home / "run").chmod(0o1777)  # another user can change it
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "run"))
    assert engine_paths("orders").socket == engine_paths("orders").state / "control.sock"


def test_a_path_too_long_for_a_socket_gets_a_short_one_of_its_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / ("long" * 30)))
    first, second = engine_paths("orders"), engine_paths("payments")
    assert len(os.fsencode(first.socket)) <= MAX_SOCKET_PATH_BYTES
    assert first.socket != second.socket
    assert first.socket == engine_paths("orders").socket
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(home / "s") + "x" * (MAX_SOCKET_PATH_BYTES + 1 - len(str(home / "s"))))


def test_no_short_path_at_all_is_a_sentence(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / ("long" * 30)))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(home / ("long" * 30)))
    with pytest.raises(ConfigurationError, match="set XDG_RUNTIME_DIR"):
        engine_paths("orders")


def test_folders_are_made_for_their_owner_alone(home: Path) -> None:
    places = engine_paths("orders")
    places.prepare()
    places.prepare()
    assert {folder.stat().st_mode & 0o777 for folder in (places.state, places.logs)} == {0o700}


@pytest.mark.parametrize("kind", ["open to others", "a link"])
def test_a_folder_that_others_can_write_to_or_a_link_in_its_place_is_refused(home: Path, kind: str) -> None:
    places = engine_paths("orders")
    places.state.parent.mkdir(parents=True)
    if kind == "a link":
        (home / "real").mkdir()
        places.state.symlink_to(home / "real")
    else:
        places.state.mkdir()
        places.state.chmod(0o777)
    with pytest.raises(ConfigurationError, match="open to other users: chmod 700"):
        places.prepare()


# -- the lock ------------------------------------------------------------------------------------------------------


def test_the_holder_says_who_it_is(tmp_path: Path) -> None:
    assert running(tmp_path / "lock") is None
    fd = acquire(tmp_path / "lock", HOLDER)
    assert running(tmp_path / "lock") == HOLDER
    os.close(fd)
    assert running(tmp_path / "lock") is None


def test_a_second_engine_is_refused_with_the_firsts_pid(tmp_path: Path) -> None:
    fd = acquire(tmp_path / "lock", HOLDER)
    with pytest.raises(EngineRunningError, match="pid 4711"):
        acquire(tmp_path / "lock", HOLDER)
    os.close(fd)
    os.close(acquire(tmp_path / "lock", HOLDER))


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path;"
        "from paired_servicebus.engine.instance.lock import LockHolder, acquire;"
        "acquire(Path(sys.argv[1]), LockHolder(pid=os.getpid(), socket='', log=''));"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path / "lock")], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert running(tmp_path / "lock") is None
    fell = crashed_holder(tmp_path / "lock")
    assert fell is not None
    assert fell.pid > 0


def test_one_that_ends_in_order_leaves_nothing(tmp_path: Path) -> None:
    fd = acquire(tmp_path / "lock", HOLDER)
    assert crashed_holder(tmp_path / "lock") is None, "it still runs"
    os.ftruncate(fd, 0)  # as a clean end does
    os.close(fd)
    assert crashed_holder(tmp_path / "lock") is None


def test_one_who_only_looks_keeps_no_engine_out(tmp_path: Path) -> None:
    import fcntl
    import threading

    path = tmp_path / "lock"
    path.touch()
    with path.open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        timer = threading.Timer(0.02, fcntl.flock, (looking, fcntl.LOCK_UN))
        timer.start()
        fd = acquire(path, HOLDER)
        timer.join()
    assert running(path) == HOLDER
    os.close(fd)


# -- A state folder of another user, of another format, or half written: an alarm or a sentence, and the engine serves
# What is damaged is what an engine really left: a new file is tried at once.

Start = Callable[[], Any]


@pytest.fixture
async def place(short: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """A pairing.toml with a gateway, for the namespaces of a sandbox."""
    async with Sandbox.start() as sandbox:
        monkeypatch.setenv("XDG_STATE_HOME", str(short / "state"))
        (short / "run").mkdir(mode=0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(short / "run"))
        text = (
            f'[pairing]\nname = "orders"\nentities = ["orders"]\nbacklog_queue_count = 1\n'
            f"[gateway]\nport = {free_port()}\n"
        )
        for side in ("primary", "secondary"):
            monkeypatch.setenv(side.upper(), sandbox[side].connection_string)
            text += f'[{side}]\nca_file = "{sandbox.ca_file}"\nconnection_string = {{ env = "{side.upper()}" }}\n'
        (short / "pairing.toml").write_text(text)
        yield short


@asynccontextmanager
async def serving(place: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EnginePaths]:
    """An engine in this process, as `paired up` runs it, until the block ends; it has to serve."""
    acts: list[Callable[[], object]] = []
    monkeypatch.setattr(engine, "_on_end", acts.append)
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda *_, **__: None)
    config = load_config(place / "pairing.toml")
    places, said = engine_paths(config.name), list[Outcome]()
    folder = StateFolder(places, log="log")
    try:
        folder.open()
    except OSError as error:
        logging.getLogger(__name__).info("as main does: %s", error)
    starting = engine._Starting(said.append)
    task = asyncio.create_task(
        engine._serve(config, places, folder, starting, "log", read_only=False, group=None)  # as `paired up` does
    )
    async with asyncio.timeout(WAIT):
        while not task.done() and not any(isinstance(one, Ready) for one in said):
            await asyncio.sleep(0.01)
    if task.done():
        task.result()
    yield places
    acts[-1]()
    await asyncio.wait_for(task, WAIT)
    folder.close()


async def send(place: Path, places: EnginePaths) -> None:
    """Have the gateway accept a message."""
    config = load_config(place / "pairing.toml")
    assert config.gateway is not None
    string = connection_string(read_keys(places.gateway_keys).keys[0], config.gateway.port)
    async with ServiceBusClient.from_connection_string(string) as client, client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x"))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)) + b"\n" + b"\xff" * 300)


def another_format(path: Path) -> None:
    path.write_bytes(b'{"format": 999, "version": 999}\n')


def folder_in_its_place(path: Path) -> None:
    path.unlink()
    path.mkdir()


def file_in_its_place(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
    if path.parent.is_dir():
        path.write_bytes(b"a file in its place")


OF_FILES: Final = (empty, half, garbage, another_format, folder_in_its_place)
OF_FOLDERS: Final = (file_in_its_place,)


async def left(place: Path, monkeypatch: pytest.MonkeyPatch) -> EnginePaths:
    """The state folder of an engine that was killed."""
    async with serving(place, monkeypatch) as places:
        await send(place, places)
    (places.spool / ".open" / "orders@host-0000000000001-000000000001.jsonl").write_bytes(b'{"torn')
    return places


def files_of(places: EnginePaths) -> list[Path]:
    return sorted(path for path in places.state.rglob("*") if path.is_file())


def folders_of(places: EnginePaths) -> list[Path]:
    return sorted(path for path in places.state.rglob("*") if path.is_dir())


async def check(place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> tuple[str, ...]:
    """Start on what is damaged now: it serves, no traceback. Return its alarms."""
    caplog.clear()
    async with serving(place, monkeypatch) as places:
        found = await first_snapshot(places.socket)
        said = tuple(one.text for one in alarms(condition_of(found)))
        if not any("the gateway's keys" in alarm for alarm in said):
            await send(place, places)
    assert [one.getMessage() for one in caplog.records if one.exc_info and one.name.startswith("paired")] == []
    return said


@pytest.mark.parametrize("damage", OF_FILES)
async def test_every_file_damaged_at_once(
    damage: Callable[[Path], None], place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a valid configuration an engine of `paired up` starts and serves, whatever is away."""
    places = await left(place, monkeypatch)
    names = {str(path.relative_to(places.state)) for path in files_of(places)}
    assert {"lock", "named", "gateway.keys", "gateway.entities"} <= names
    for path in files_of(places):
        damage(path)
    said = await check(place, monkeypatch, caplog)
    assert any("the gateway's keys" in alarm for alarm in said)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [*OF_FILES, *OF_FOLDERS])
async def test_each_one_damaged(
    damage: Callable[[Path], None], place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    places = await left(place, monkeypatch)
    whole = place / "whole"
    shutil.copytree(places.state, whole)
    for path in files_of(places) if damage in OF_FILES else folders_of(places):
        shutil.rmtree(places.state)
        shutil.copytree(whole, places.state)
        damage(path)
        await check(place, monkeypatch, caplog)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another user")
async def test_a_folder_of_another_user_is_not_used(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    places = await left(place, monkeypatch)
    before = {path: path.read_bytes() for path in files_of(places)}
    os.chown(places.state, 54321, 54321)
    said = await check(place, monkeypatch, caplog)
    assert any("the journal is not written (open to other users: chmod 700 it, or remove it" in one for one in said)
    assert {path: path.read_bytes() for path in files_of(places)} == before


# -- An engine that runs as a service lets a group in: by its socket alone, found by default, and trusted with care

GROUP = grp.getgrgid(os.getgid())
STRANGER = 54_321
ON_CALL = 43_210


@pytest.fixture
def folder(short: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The well-known folder, as a unit's RuntimeDirectory makes it; this user has no engine of its own."""
    found = short / "run" / "paired"
    found.mkdir(parents=True, mode=0o700)
    monkeypatch.setattr(group_access, "FOLDER", found)
    monkeypatch.setenv("XDG_STATE_HOME", str(short / "own"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.chdir(short)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(short))
    return found


@pytest.fixture
def heard() -> list[Event]:
    return []


@pytest.fixture
def service(folder: Path, short: Path, pairing: Any, heard: list[Event]) -> Callable[..., Any]:
    """An engine with its socket in that folder, and its journal where its own user alone gets."""

    @asynccontextmanager
    async def hosted(name: str = "orders", group: bool = True) -> AsyncIterator[Path]:
        places = EnginePaths(state=short / "var" / name, socket=folder / f"{name}.sock")
        places.prepare()
        gid = group_access.open_to_group(GROUP.gr_name, places) if group else None
        identity = EngineIdentity.of(name, environment="test")
        host = EngineHost(
            identity,
            spool=places.spool,
            socket=places.socket,
            policy=Policy(),
            group=gid,
            note=lambda record, _line: heard.append(record.event),
        )
        async with host:
            await host.adopt(pairing)
            yield places.state

    return hosted


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def seen_from(monkeypatch: pytest.MonkeyPatch, *, service: int, peer_is: int) -> None:
    """As if socket and folder were of the user `service`, and whoever is at the other end the user `peer_is`."""
    look = group_access._lstat

    def as_owned(path: Path) -> os.stat_result:
        found = list(look(path))
        found[stat.ST_UID] = service
        return os.stat_result(found)

    monkeypatch.setattr(group_access, "_lstat", as_owned)
    for module in (client_module, control_server):
        monkeypatch.setattr(module, "is_ours", lambda transport: transport.get_extra_info("socket") is None)
        monkeypatch.setattr(module, "peer_uid", lambda _transport: peer_is)


# -- what the group gets -----------------------------------------------------------------------------------------------


async def test_the_group_gets_the_socket_and_its_folder_and_nothing_of_the_journal(service: Any, folder: Path) -> None:
    async with service() as state:
        socket = folder / "orders.sock"
        assert (mode(folder), mode(socket)) == (0o750, 0o660)
        assert {folder.stat().st_gid, socket.stat().st_gid} == {GROUP.gr_gid}
        files = [path for path in state.rglob("*") if path.is_file()]
        assert files
        assert [path for path in files if mode(path) & 0o077] == []
        assert mode(state) == 0o700


async def test_without_a_group_the_socket_is_its_users_alone(service: Any, folder: Path) -> None:
    async with service(group=False):
        assert (mode(folder), mode(folder / "orders.sock")) == (0o700, 0o600)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no-such-group", "control_group = 'no-such-group': there is no such group on this machine"),
        (GROUP.gr_name, "beside the journal; set XDG_RUNTIME_DIR"),
    ],
)
def test_a_group_that_cannot_be_let_in_is_said(tmp_path: Path, name: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        group_access.open_to_group(name, EnginePaths(state=tmp_path, socket=tmp_path / "control.sock"))


def test_a_folder_that_is_open_to_another_group_is_not_taken_from_it(
    folder: Path, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.chmod(0o750)
    other = replace_gid(GROUP, GROUP.gr_gid + 1)
    monkeypatch.setattr(grp, "getgrnam", lambda _name: other)
    with pytest.raises(ConfigurationError, match=f"is open to the group {GROUP.gr_name} already"):
        group_access.open_to_group("oncall", EnginePaths(state=short, socket=folder / "s.sock"))


def replace_gid(group: grp.struct_group, gid: int) -> grp.struct_group:
    return grp.struct_group((group.gr_name, group.gr_passwd, gid, group.gr_mem))


# -- who is heard ------------------------------------------------------------------------------------------------------


async def test_a_member_orders_under_the_name_that_the_kernel_has(
    service: Any, folder: Path, heard: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit names the peer's user, not the engine's."""
    monkeypatch.setattr(control_server, "name_of", lambda uid: "ana" if uid == ON_CALL else "paired")
    async with service():
        seen_from(monkeypatch, service=ON_CALL, peer_is=ON_CALL)
        client = await ControlClient.connect(folder / "orders.sock")
        await client.order(Command(action_id="force", targets=("orders",), by="root"), typed="orders")
        await client.close()
    assert [event.by for event in heard if isinstance(event, Commanded)] == ["ana"]


async def test_without_a_group_another_user_is_refused_and_told_what_would_let_them_in(
    service: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with service(group=False):
        seen_from(monkeypatch, service=ON_CALL, peer_is=ON_CALL)
        with pytest.raises(ControlError, match="own user are heard; control_group lets a group in"):
            await ControlClient.connect(folder / "orders.sock")


# -- what is found, and trusted ----------------------------------------------------------------------------------------


async def test_a_services_engine_is_found_without_a_word_by_every_verb(
    service: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    async with service():
        assert [(places.name, places.is_service) for places in local_engines()] == [("orders", True)]
        assert await asyncio.to_thread(cli.main, ["status"]) in (0, 1)
        assert capsys.readouterr().out.startswith("orders@")
        assert await asyncio.to_thread(cli.main, ["syphon", "pause"]) == 0
        async with service("billing"):
            assert await asyncio.to_thread(cli.main, ["syphon", "pause"]) == 2
            assert "choose one by --engine (billing, orders)" in capsys.readouterr().err
            assert await asyncio.to_thread(cli.main, ["down", "--engine", "orders"]) == 0
            assert "orders: the engine ends cleanly" in capsys.readouterr().out


async def test_an_engine_that_answers_as_a_stranger_is_not_talked_to(
    service: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with service():
        seen_from(monkeypatch, service=ON_CALL, peer_is=STRANGER)
        with pytest.raises(ControlError, match="runs as another user"):
            await ControlClient.connect(folder / "orders.sock")


async def test_a_socket_of_a_stranger_is_never_trusted(
    service: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = group_access._lstat

    def strange(path: Path) -> os.stat_result:
        found = list(look(path))
        found[stat.ST_UID] = STRANGER if path.name == "orders.sock" else ON_CALL
        return os.stat_result(found)

    async with service(), service("billing"):
        monkeypatch.setattr(group_access, "_lstat", strange)
        assert group_access.trusted_users(folder / "orders.sock") == frozenset()
        assert [places.name for places in local_engines()] == ["billing"]


@pytest.mark.parametrize("loose", [0o770, 0o757])
async def test_a_folder_that_others_can_write_to_is_never_trusted(service: Any, folder: Path, loose: int) -> None:
    async with service():
        assert len(local_engines()) == 1
        folder.chmod(loose)
        assert local_engines() == ()
        assert group_access.trusted_users(folder / "orders.sock") == frozenset()
        folder.chmod(0o750)
        folder.parent.chmod(0o777)
        assert local_engines() == ()


async def test_links_are_not_followed(service: Any, folder: Path, short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with service():
        (folder / "link.sock").symlink_to(folder / "orders.sock")
        (folder / "file.sock").write_text("")
        assert [places.name for places in local_engines()] == ["orders"]
        (short / "elsewhere").symlink_to(folder)
        monkeypatch.setattr(group_access, "FOLDER", short / "elsewhere")
        assert local_engines() == ()


def test_who_is_not_in_the_group_is_told_which_group_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence that says which group would let them in."""
    folder.chmod(0o750)
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) != folder)
    sentence = f"{folder} is open to the group {GROUP.gr_name}: have root add you to it"
    assert explain_closed_services().startswith(sentence)
    assert cli.main(["status"]) == 3
    assert sentence in capsys.readouterr().err
    for arguments in (["attach"], ["attach", "--engine", "orders"], ["syphon", "pause"]):
        assert cli.main(arguments) == 2
        assert sentence in capsys.readouterr().err
    folder.chmod(0o700)
    assert ": control_group in the pairing.toml of that engine lets a group in" in explain_closed_services()


def test_where_there_is_no_service_nothing_is_said(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_access, "FOLDER", short / "none")
    assert (explain_closed_services(), group_access.sockets()) == ("", ())


# -- Which engines there are on this machine, and how each stands; whatever is wrong with one is a sentence ----------

Engine = Callable[..., Any]


@pytest.fixture
def engines_home(short: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(short))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return short


def hold(name: str, socket: Path | None = None) -> tuple[EnginePaths, int]:
    """The lock of a pairing's engine, as this process's."""
    places = engine_paths(name)
    places.prepare()
    return places, acquire(places.lock, LockHolder(pid=4711, socket=str(socket or places.socket), log="/x.log"))


@pytest.mark.usefixtures("engines_home")
def test_engines_that_run_or_were_killed_are_found_and_those_that_ended_are_not() -> None:
    _, running = hold("billing")
    _, killed = hold("audit")
    os.close(killed)
    _, ended = hold("orders")
    os.ftruncate(ended, 0)  # as a clean end does
    os.close(ended)
    assert [places.name for places in local_engines()] == ["audit", "billing"]
    os.close(running)


@pytest.mark.usefixtures("engines_home")
async def test_why_an_engine_does_not_answer_is_said(
    engine: Engine, short: Path, monkeypatch: pytest.MonkeyPatch, approve: Approve
) -> None:
    said = [(await query_engine(engine_paths("orders"))).trouble]
    places, killed = hold("audit")
    os.close(killed)
    said += [(await query_engine(places)).trouble]
    async with engine() as hosted:
        places, held = hold("orders", hosted.socket)
        monkeypatch.setattr(protocol, "VERSION", 99)
        spoken = SimpleNamespace(**vars(protocol) | {"Hello": lambda **_: protocol_hello})
        protocol_hello = protocol.Hello(version=98)
        with monkeypatch.context() as patched:
            patched.setattr(client_module, "protocol", spoken)
            said += [(await query_engine(places)).trouble]
        os.close(held)
    monkeypatch.setattr(discovery, "QUERY_TIMEOUT", 0.05)
    server = await asyncio.start_unix_server(lambda *_: asyncio.sleep(10), str(short / "mute"))
    places, held = hold("orders", short / "mute")
    said += [(await query_engine(places)).trouble]
    os.close(held)
    server.close()
    figures = ("pid 4711", "/x.log", "paired up", "format 98", "has 99", "within 0.05 s")
    approve.part(said, "errors of the engine", has=figures, hide={str(short): "FOLDER"})


@pytest.mark.usefixtures("engines_home")
async def test_several_are_looked_at_and_one_that_fails_hides_no_other(engine: Engine) -> None:
    async with engine() as hosted:
        _, first = hold("orders", hosted.socket)
        _, second = hold("payments")
        good, bad = await query_engines(local_engines())
        os.close(first)
        os.close(second)
    assert good.snapshot is not None
    assert good.snapshot.pairing == "orders"
    assert (bad.snapshot, "no engine answers at" in bad.trouble) == (None, True)
