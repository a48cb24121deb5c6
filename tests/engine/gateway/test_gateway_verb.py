"""`paired gateway`: whole connection strings, and changes of the keys."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from paired_servicebus import cli
from paired_servicebus.connection_string import complaint, is_emulated, parts_of
from paired_servicebus.engine.instance.engine_paths import EnginePaths, engine_paths
from paired_servicebus.engine.instance.lock import LockHolder, acquire
from paired_servicebus.verbs import gateway_verb

Run = Callable[..., tuple[int, str, str]]
NAMESPACE = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=Root;SharedAccessKey=c4n4ry=;UseDevelopmentEmulator=true"
FILE = f"""
[pairing]
name = "orders"
[primary]
connection_string = "{NAMESPACE}"
[secondary]
connection_string = "{NAMESPACE}"
"""


@pytest.fixture
def paired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line over a pairing.toml with a gateway: exit status, standard output and error."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    config = tmp_path / "pairing.toml"
    config.write_text(f"{FILE}[gateway]\nport = 5680\n")

    def run(*arguments: str) -> tuple[int, str, str]:
        status = cli.main(["gateway", "--config", str(config), *arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def strings(out: str) -> dict[str, str]:
    return {parts_of(line)["sharedaccesskeyname"]: line for line in out.splitlines()}


def test_it_prints_the_whole_string_so_that_nobody_assembles_it(paired: Run) -> None:
    status, out, err = paired()
    assert status == 0
    parts = parts_of(out.strip())
    assert not complaint(parts)
    assert is_emulated(parts)
    assert parts["endpoint"] == "sb://127.0.0.1:5680"
    assert err == "gateway: Listen, Send\nno engine of orders runs here: start one with paired up\n"
    assert paired()[1] == out, "the same string, however often it is asked for"


def test_a_running_engine_needs_no_remark(paired: Run) -> None:
    places = engine_paths("orders")
    places.prepare()
    fd = acquire(places.lock, LockHolder(pid=os.getpid(), socket="-", log="-"))
    assert "no engine" not in paired()[2]
    os.close(fd)


def test_rotating_changes_the_keys_and_nothing_else(paired: Run) -> None:
    (old,), (new,) = paired()[1].splitlines(), paired("--rotate")[1].splitlines()
    assert parts_of(old).pop("sharedaccesskey") != parts_of(new).pop("sharedaccesskey")
    assert {**parts_of(old), "sharedaccesskey": ""} == {**parts_of(new), "sharedaccesskey": ""}
    assert paired()[1].splitlines() == [new]


def test_keys_are_added_with_their_rights_and_removed(paired: Run) -> None:
    first = strings(paired()[1])
    both = strings(paired("--add", "web", "--rights", "send")[1])
    assert list(both) == ["gateway", "web"]
    assert both["gateway"] == first["gateway"]
    listed = json.loads(paired("--json")[1])
    assert [(key["name"], key["rights"]) for key in listed["keys"]] == [
        ("gateway", ["Listen", "Send"]),
        ("web", ["Send"]),
    ]
    assert listed["keys"][1]["connection_string"] == both["web"]
    assert (listed["address"], listed["port"], listed["running"]) == ("127.0.0.1", 5680, False)
    assert list(strings(paired("--remove", "gateway")[1])) == ["web"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rotate", "--remove", "gateway"), "choose one of them"),
        (("--rights", "Send"), "name it with --add"),
        (("--add", "web", "--rights", "Send,Own"), "Own is not a right; --rights lists Send, Listen, Manage"),
        (("--add", "a;b"), "1 to 64 letters"),
        (("--add", "GATEWAY"), "already"),
        (("--remove", "web"), "no key named web; there are gateway"),
        (("--remove", "gateway"), "the only key"),
    ],
)
def test_a_mistake_changes_nothing_and_gets_a_sentence(paired: Run, arguments: tuple[str, ...], words: str) -> None:
    before = paired()[1]
    status, out, err = paired(*arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert paired()[1] == before


def test_without_the_section_it_says_what_to_add(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    config = tmp_path / "pairing.toml"
    config.write_text(FILE)
    assert cli.main(["gateway", "--config", str(config)]) == 2
    assert "add the line [gateway]" in capsys.readouterr().err
    assert not (tmp_path / "paired").exists()


def test_it_makes_no_keys_that_a_service_would_never_read(
    paired: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = tmp_path / "orders.sock"
    socket.touch()
    service = EnginePaths(state=tmp_path / "orders", socket=socket, is_service=True)
    monkeypatch.setattr(gateway_verb, "local_engines", lambda: (service,))
    status, out, err = paired()
    assert (status, out) == (2, "")
    assert f'keys = "FILE" to [gateway], and run this as {socket.owner()}' in err
    assert not (tmp_path / "paired").exists()
    with (tmp_path / "pairing.toml").open("a") as file:
        file.write('keys = "keys"\n')
    status, out, err = paired()
    assert (status, "no engine" in err) == (0, False)
    assert len(out.splitlines()) == 1
