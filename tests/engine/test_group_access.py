"""An engine that runs as a service lets a group in: by its socket alone, found by default, and trusted with care."""

from __future__ import annotations

import asyncio
import grp
import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus import cli
from paired_servicebus.core.errors import ConfigurationError, ControlError
from paired_servicebus.core.model.pairing_events import Commanded, Event
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.engine.control import control_client as client_module
from paired_servicebus.engine.control import control_server
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.discovery import explain_closed_services, local_engines
from paired_servicebus.engine.instance import group_access
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.service.engine_host import EngineHost

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
        await client.order("force", targets=("orders",), by="root", typed="orders")
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
