"""A file that another user can change is never obeyed: as pairing.toml of this folder, nor for the command it names."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from paired_servicebus import cli
from paired_servicebus.config import find_config, load_config, refuse_foreign_command
from paired_servicebus.core.errors import ConfigurationError, DrainError, PipelineError
from paired_servicebus.engine.service import main
from paired_servicebus.ownership import foreign_access
from paired_servicebus.pipeline.drain.drain_command import refuse_foreign
from paired_servicebus.pipeline.spark_processes import PipelineOrder, start_pipeline
from paired_servicebus.verbs import spark_commands
from tests.approval import Approve

KEY = "SharedAccessKeyName=Root;SharedAccessKey=k;UseDevelopmentEmulator=true"
TABLES = "".join(
    f'[{side}]\nconnection_string = "Endpoint=sb://127.0.0.1;{KEY}"\n' for side in ("primary", "secondary")
)
PLAIN = f'[pairing]\nname = "orders"\n{TABLES}'
WITH_COMMAND = f'[pairing]\nname = "orders"\non_change = "touch ran"\n{TABLES}'

Change = Callable[[Path], None]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of this user's, and no other place for settings or engines."""
    folder = tmp_path / "here"
    folder.mkdir(mode=0o755)
    monkeypatch.chdir(folder)
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return folder


@pytest.fixture
def given_away(monkeypatch: pytest.MonkeyPatch) -> Change:
    """Makes a file another user's: really, or by being another user."""

    def give(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, 54_321, -1)
        else:
            other = os.geteuid() + 1
            monkeypatch.setattr(os, "geteuid", lambda: other)

    return give


def write(folder: Path, text: str = PLAIN) -> Path:
    path = folder / "pairing.toml"
    path.write_text(text)
    path.chmod(0o644)
    return path


def shared(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o002)


def sticky(path: Path) -> None:
    path.chmod(0o1777)


def test_one_that_only_its_user_can_change_is_found(here: Path) -> None:
    path = write(here)
    assert find_config() == path
    path.chmod(0o640)  # a group that may read it
    assert find_config() == path


@pytest.mark.parametrize("how", [shared, sticky])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_one_that_every_user_can_change_is_refused(
    here: Path, what: str, how: Change, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(here, WITH_COMMAND)
    how(path if what == "file" else here)
    assert cli.main(["check"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "is writable by every user and a pairing.toml can run commands" in said
    assert f"or name it with --config {path}" in said


@pytest.mark.parametrize("what", ["file", "folder"])
def test_one_of_another_user_is_refused(here: Path, what: str, given_away: Change) -> None:
    path = write(here)
    given_away(path if what == "file" else here)
    with pytest.raises(ConfigurationError, match=r"is not used, since .* is owned by the user"):
        find_config()


def test_a_link_leads_to_no_file_that_others_can_change(here: Path, tmp_path: Path, approve: Approve) -> None:
    shared_folder = tmp_path / "shared"
    shared_folder.mkdir()
    (here / "pairing.toml").symlink_to(write(shared_folder))
    assert find_config() == here / "pairing.toml"
    shared(shared_folder)
    with pytest.raises(ConfigurationError) as refused:
        find_config()
    approve.part(refused.value, "errors of configuration")


def test_a_refused_one_is_not_passed_over_for_another(here: Path, tmp_path: Path, approve: Approve) -> None:
    own = tmp_path / "none" / "paired"
    own.mkdir(parents=True)
    write(own)
    assert find_config() == own / "pairing.toml"
    shared(write(here))
    with pytest.raises(ConfigurationError) as refused:
        find_config()
    approve.part(refused.value, "errors of configuration")


def test_a_rehearsal_does_not_go_on_without_one_that_is_refused(here: Path, approve: Approve) -> None:
    assert spark_commands._settings_if_any(None) is None
    shared(write(here))
    with pytest.raises(ConfigurationError) as refused:
        spark_commands._settings_if_any(None)
    approve.part(refused.value, "errors of configuration")


def test_one_that_is_named_may_lie_in_any_folder(here: Path) -> None:
    """Containers mount settings into folders that every user may write to."""
    path = write(here, WITH_COMMAND)
    sticky(here)
    found = load_config(find_config(path))
    refuse_foreign_command(found)
    assert found.on_change == ("touch", "ran")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o440])
def test_a_named_one_may_be_read_by_whomever(here: Path, mode: int) -> None:
    path = write(here, WITH_COMMAND)
    path.chmod(mode)
    refuse_foreign_command(load_config(find_config(path)))


def test_a_named_one_without_a_command_is_its_owners_choice(here: Path) -> None:
    path = write(here)
    shared(path)
    refuse_foreign_command(load_config(find_config(path)))


def test_no_engine_starts_with_a_command_that_others_can_change(here: Path, approve: Approve) -> None:
    path = write(here, WITH_COMMAND)
    shared(path)
    with pytest.raises(ConfigurationError) as refused:
        main._run(path, "nowhere", main._Starting(print), read_only=False)
    approve.part(refused.value, "errors of configuration", has=("on_change",))
    assert not (here / "none").exists(), "nothing was begun"


def test_no_drain_is_ordered_where_others_could_replace_the_order(tmp_path: Path, approve: Approve) -> None:
    run, spool = tmp_path / ".drain", tmp_path / "spool"
    for folder in (run, spool):
        folder.mkdir(mode=0o700)
    refuse_foreign(spool, run)
    sticky(run)
    with pytest.raises(DrainError) as refused:
        refuse_foreign(spool, run)
    approve.part(refused.value, "errors of configuration", has=("--journal",))


@pytest.mark.parametrize("what", ["tables", "tables/work", "tables/work/conf", "tables/logs"])
def test_no_spark_runs_where_others_could_write_its_configuration(tmp_path: Path, what: str) -> None:
    """Spark's launcher runs spark-env.sh of its configuration folder."""
    tables = tmp_path / "tables"
    for place in (tables / "work" / "conf", tables / "logs"):
        place.mkdir(parents=True)
    sticky(tmp_path / what)
    with pytest.raises(PipelineError, match=r"is writable by every user and Spark runs .* name another folder with"):
        start_pipeline(PipelineOrder(journals=(tmp_path,), tables=tables, once=True))
    assert not list(tables.rglob("*.log"))


@pytest.mark.parametrize(
    ("name", "members", "gid", "refused"),
    [("me", [], 4242, False), ("me", ["me"], 4242, False), ("me", ["eve"], 4242, True), ("staff", [], 4242, True)],
)
def test_a_group_of_the_users_own_is_no_other_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, members: list[str], gid: int, refused: bool
) -> None:
    """Distributions give each user a group and the umask 002: its files are writable by that group."""
    path = write(tmp_path)
    path.chmod(0o664)
    user = pwd.struct_passwd(("me", "x", os.geteuid(), gid, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: user)
    monkeypatch.setattr(grp, "getgrgid", lambda _: grp.struct_group((name, "x", gid, members)))
    found = os.stat_result((path.stat().st_mode, 0, 0, 1, os.geteuid(), gid, 0, 0, 0, 0))
    monkeypatch.setattr(Path, "stat", lambda _: found)
    assert bool(foreign_access(path)) is refused


def test_the_group_of_root_is_no_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approve: Approve) -> None:
    found = os.stat_result((0o100664, 0, 0, 1, 0, 0, 0, 0, 0, 0))
    monkeypatch.setattr(Path, "stat", lambda _: found)
    approve.part(foreign_access(tmp_path), "errors of configuration")
