"""The command line: mistakes are one sentence and exit status 2; nothing slow is imported before it is needed."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from paired_servicebus import cli
from paired_servicebus.core.errors import ConfigurationError

ROOT = Path(__file__).parents[1]


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place without any pairing.toml or engine."""
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--nonsense"], "Unknown option: --nonsense"),
        (["up", "--hedless"], "Did you mean --headless?"),
        (["frobnicate"], "'frobnicate' is an unknown argument"),
        (["up", "extra"], "'extra' is an unknown argument"),
        (["demo", "--duration", "long"], 'unable to convert "long" into float'),
        (["demo", "--seed", "x"], "--seed"),
        (["up", "--config"], "--config"),
        ([], "there is no pairing.toml"),
        (["up"], "there is no pairing.toml"),
        (["up", "--headless"], "or name it with --config"),
        (["attach"], "there is no pairing.toml"),
        (["down"], "there is no pairing.toml"),
        (["status", "--config", "missing.toml"], "missing.toml is not a file"),
        (["status", "--watch", "--json"], "choose one of them"),
        (["snapshot"], "either --svg FILE or --text"),
        (["snapshot", "--svg", "x.svg", "--text"], "either --svg FILE or --text"),
        (["snapshot", "--svg", "x.svg"], "there is no pairing.toml"),
        (["snapshot", "--text", "--engine", "orders"], "no engine of the pairing orders runs here"),
        (["snapshot", "--text", "--size", "0x0"], "--size '0x0' is no size"),
        (["snapshot", "--text", "--size", "big"], "--size 'big' is no size"),
        (["snapshot", "--text", "--size", "140x9999999999"], "1x1 to 500x200"),
        (["snapshot", "--text", "--page", "99"], "--page '99' is no page; pages are 1 overview, 2 entity"),
        (["snapshot", "--text", "--page", "nonsense"], "--page 'nonsense' is no page"),
        (["check", "--engine", "orders"], "no engine of the pairing orders runs here"),
        (["check", "--engine", "all"], "names several engines: choose one"),
        (["check", "--engine", "orders", "--config", "x.toml"], "choose one of them"),
        (["status", "--engine", "orders"], "no engine of the pairing orders runs here"),
        (["status", "--engine", "orders", "--config", "x.toml"], "choose one of them"),
        (["down", "--config", "missing.toml"], "missing.toml is not a file"),
    ],
)
@pytest.mark.usefixtures("nowhere")
def test_a_mistake_is_one_sentence_and_exit_status_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("paired: ")
    assert err.count("\n") == 1
    assert sentence in err


def test_a_configuration_is_checked_without_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pairing.toml"
    string = "Endpoint=sb://{}.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0"
    for side in ("primary", "secondary"):
        (tmp_path / side).write_text(string.format(side))
        (tmp_path / side).chmod(0o600)
    sections = "".join(
        f'[{side}]\nconnection_string = {{ file = "{tmp_path / side}" }}\n' for side in ("primary", "secondary")
    )
    file.write_text(f'[pairing]\nname = "orders"\nentities = ["a"]\n{sections}[gateway]\n')
    monkeypatch.setattr(socket, "socket", lambda *_: pytest.fail("it contacts nothing"))
    assert cli.main(["config", "check", str(file)]) == 0
    assert capsys.readouterr().out == (
        f"{file} is valid: orders, primary.servicebus.windows.net with secondary.servicebus.windows.net, 1 entity, "
        "a gateway on port 5672\n"
    )
    file.write_text(file.read_text().replace("entities", "entitys"))
    assert cli.main(["config", "check", str(file)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "entitys is no setting; did you mean entities?" in said.err
    (tmp_path / "primary").unlink()
    file.write_text(file.read_text().replace("entitys", "entities"))
    assert cli.main(["config", "check", str(file)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("verb", ["attach", "down"])
def test_without_an_engine_there_is_nothing_to_attach_to(
    verb: str, nowhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "SharedAccessKeyName=Root;SharedAccessKey=k;UseDevelopmentEmulator=true"
    tables = "".join(
        f'[{name}]\nconnection_string = "Endpoint=sb://127.0.0.1;{key}"\n' for name in ("primary", "secondary")
    )
    (nowhere / "pairing.toml").write_text(f'[pairing]\nname = "orders"\n{tables}')
    assert cli.main([verb]) == 2
    assert "no engine of the pairing orders" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (ConfigurationError("first line\n  second line"), 2, "paired: first line second line\n"),
        (ConfigurationError("SharedAccessKey=c4n4ry;x"), 2, "paired: SharedAccessKey=***;x\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_of_ours_are_said_in_one_line(
    error: BaseException,
    status: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: object) -> Path:
        raise error

    monkeypatch.setattr(cli, "find_config", fail)
    assert cli.main(["check"]) == status
    assert capsys.readouterr().err == sentence


def test_a_fault_of_ours_is_kept_in_a_file_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> Path:
        raise RuntimeError("a fault; SharedAccessKey=c4n4ry;")

    monkeypatch.setattr(cli, "find_config", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cli.main(["check"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("paired: internal error (RuntimeError); ")
    (kept,) = tmp_path.glob("paired-failure-*.log")
    assert str(kept) in said
    assert "Traceback" in kept.read_text()
    assert "c4n4ry" not in kept.read_text() + said


def test_the_version_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.strip()


def test_help_lists_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(verb in out for verb in ("up", "attach", "down", "demo", "sandbox"))


def test_help_has_every_command_in_one_group_the_most_used_first(capsys: pytest.CaptureFixture[str]) -> None:
    named = [name for names in cli.HELP_GROUPS.values() for name in names]
    others = [name for name in cli.app if not name.startswith("-") and name not in named]
    listed = [name for names in cli.HELP_GROUPS.values() for name in names or others]
    assert len(named) == len(set(named))
    assert {"failover", "release", "pin", "drain", "redrive", "syphon"} <= set(others)
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    places = [out.index(f"─ {title} ─") for title in ("Watch", "Steer", "Prove", "Data")]
    assert places == sorted(places)
    shown = [line.split()[1] for line in out.splitlines() if re.match(r"│ [a-z]", line)]
    assert shown == listed


@pytest.mark.parametrize("verb", [["demo", "--list"], ["status"]])
def test_a_verb_whose_reader_has_gone_ends_without_a_word(verb: list[str], tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "paired_servicebus.cli", *verb],
            cwd=ROOT, env=os.environ | {"XDG_STATE_HOME": str(tmp_path)},
            stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_nothing_slow_is_imported_to_parse_a_command() -> None:
    slow = ("azure", "textual", "aiohttp", "cryptography", "rich.console")
    program = f"import sys, paired_servicebus.cli; print([name for name in {slow} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
