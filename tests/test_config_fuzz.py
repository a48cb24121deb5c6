"""Every setting of pairing.toml wrong in turn: one sentence, exit status 2, no traceback, no secret.

The settings are those that the loader has, so a new one is tried at once. Each file is judged by `paired config check`
and started by `paired up --foreground`; an engine that would serve is stopped before it contacts anything.
"""

from __future__ import annotations

import faulthandler
import io
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paired_servicebus import cli
from paired_servicebus.config import SECTIONS, find_config, load_config
from paired_servicebus.core.errors import ConfigurationError, EngineStartError
from paired_servicebus.core.text.untrusted_text import harmless
from paired_servicebus.engine.service import main as engine
from paired_servicebus.printing import report_error

SECRET: Final = "c4n4ry"
STRING: Final = f"Endpoint=sb://{{}}.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={SECRET}="
MOST_CHARS: Final = 1000
"""Of a sentence, the file's path included."""

WRONG: Final = {
    "a date": "1979-05-27",
    "a list of tables": "[{}]",
    "an empty text": '""',
    "spaces": '"   "',
    "nothing but a line break": '"""\n"""',
    "a control character": r'"a\u001b[2Jb"',
    "a character of no width": r'"a\u200bb"',
    "a zero byte": r'"a\u0000b"',
    "turned text": r'"\u202eabc"',
    "a huge text": f'"{"x" * 100_000}"',
    "a huge list": f"[{', '.join(['[1]'] * 1000)}]",
    "a huge number": "0x" + "f" * 5000,
    "a number beyond 64 bits": "9223372036854775808",
    "a negative number": "-9223372036854775808",
    "no number": "nan",
    "no environment variable": '{ env = "PAIRED_NO_SUCH_VARIABLE" }',
    "an environment variable of no name": '{ env = "" }',
    "an environment variable of a strange name": r'{ env = "A\u0000=\u001b" }',
    "no file": '{ file = "/nonexistent/secret" }',
    "a folder": '{ file = "/" }',
    "an endless file": '{ file = "/dev/zero" }',
    "a file of a strange name": r'{ file = "a\u0000b" }',
    "a file of a long name": f'{{ file = "{"x" * 5000}" }}',
    "a file of bytes": '{ file = "bytes" }',
    "a huge file": '{ file = "huge" }',
    "nested": "[" * 60 + "]" * 60,
}
"""Values that no setting has."""
DOUBTFUL: Final = {
    "true": "true",
    "a number": "7",
    "zero": "0",
    "a fraction": "0.5",
    "infinity": "inf",
    "a text": '"orders"',
    "a long text": f'"{"x" * 300}"',
    "a list of texts": '["orders", "payments"]',
    "a table": '{ a = "b" }',
    "a time": '"1000000h"',
    "a long path": f'"{"/x" * 1000}"',
    "a secret": f'"{STRING.format("x")}"',
    "a secret as a variable": f'{{ env = "{STRING.format("x")}" }}',
    "a secret as a file": f'{{ file = "{STRING.format("x")}" }}',
    "an address with a password": f'"sb://me:{SECRET}@host:5671"',
    "a proxy with a password": f'"http://me:{SECRET}@proxy:3128"',
    "a URL with a password": f'"https://me:{SECRET}@host"',
}
"""Values that are right for some settings."""
FILES: Final = {
    "empty": b"",
    "a comment": b"# nothing\n",
    "no text": b"[pairing]\nname = '\xff'\n",
    "UTF-16": "[pairing]\nname = 'orders'\n".encode("utf-16"),
    "zeros": bytes(1000),
    "an open quote": b"[pairing]\nname = 'orders",
    "deep": b"a = " + b"[" * 100_000,
    "huge": b"[pairing]\n" + b"# nothing\n" * 500_000,
    "a JSON document": b'{"pairing": {"name": "orders"}}',
    "a list of sections": b'[[pairing]]\nname = "orders"\n',
    "text in place of a section": b'pairing = "orders"\n',
    "an unknown section": b"[pairings]\n",
    "a section of a strange name": b'["a\\u001b[2J\\u0000"]\n',
    "a section of a huge name": b"[" + b"x" * 100_000 + b"]\n",
}


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    err: str


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the files are; logging and signals are put back as they were."""
    for side, name in (("primary", "contoso"), ("secondary", "backup")):
        monkeypatch.setenv(side.upper(), STRING.format(name))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    (tmp_path / "bytes").write_bytes(b"\xff" + SECRET.encode())
    (tmp_path / "huge").write_bytes(SECRET.encode() * 20_000)
    monkeypatch.setattr(cli, "become_engine", become_engine)
    monkeypatch.setattr(engine, "_serve", serve)
    monkeypatch.setattr(engine, "allow_open_files", lambda: None)
    monkeypatch.setattr(faulthandler, "enable", lambda: None)
    root, ours = logging.getLogger(), logging.getLogger("paired_servicebus")
    handlers, level, our_level, hangup = root.handlers[:], root.level, ours.level, signal.getsignal(signal.SIGHUP)
    yield tmp_path
    root.handlers[:] = handlers
    root.setLevel(level)
    ours.setLevel(our_level)
    logging.captureWarnings(False)
    signal.signal(signal.SIGHUP, hangup)


def become_engine(path: Path, *, read_only: bool = False) -> NoReturn:
    """Run the engine here, in place of this process."""
    sys.exit(engine.run_here(path, read_only=read_only))


async def serve(*_: Any, **__: Any) -> None:
    raise EngineStartError("it would serve")


def settings(section: str, *, without: str = "") -> dict[str, str]:
    """The least of a section."""
    least = {
        "pairing": {"name": '"orders"'},
        "primary": {"connection_string": '{ env = "PRIMARY" }'},
        "secondary": {"connection_string": '{ env = "SECONDARY" }'},
    }
    return {key: value for key, value in least.get(section, {}).items() if key != without}


def document(section: str, lines: str, *, without: str = "") -> bytes:
    """A whole file, in which a section has these lines too."""
    text = ""
    for each in dict.fromkeys(("pairing", "primary", "secondary", section)):
        own = settings(each, without=without if each == section else "")
        text += f"[{each}]\n" + "".join(f"{key} = {value}\n" for key, value in own.items())
        text += f"{lines}\n" if each == section else ""
    return text.encode()


Judge = Callable[[Path], Answer]
"""What a pairing.toml is answered with."""


@pytest.fixture(params=["by the loader", pytest.param("by both commands", marks=pytest.mark.slow)])
def judge(request: pytest.FixtureRequest, folder: Path, capsys: pytest.CaptureFixture[str]) -> Judge:
    """The commands print what the loader raises; each is asked among the slower proofs."""
    return loaded if request.param == "by the loader" else lambda path: commanded(path, capsys)


def loaded(path: Path) -> Answer:
    try:
        load_config(find_config(path))
    except ConfigurationError as error:
        with io.StringIO() as said, redirect_stderr(said):
            status = report_error(str(error))
            answer = Answer(status, "", said.getvalue())
        clean(answer.err)
        refused(answer)
        return answer
    return Answer(0, "", "")


def commanded(path: Path, capsys: pytest.CaptureFixture[str]) -> Answer:
    """What both commands answer, which is the same."""
    checked = run(capsys, "config", "check", str(path))
    started = run(capsys, "up", "--foreground", "--config", str(path))
    assert started.status == 2, "no engine serves here"
    if checked.status == 2:
        refused(checked)
        refused(started)
    else:
        assert checked.status == 0
        assert started.err.splitlines()[-1].startswith("paired: "), "it would serve, or needs more of this machine"
    return checked


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Answer:
    try:
        status = cli.main(arguments)
    except SystemExit as ended:
        status = int(str(ended.code))
    out, err = capsys.readouterr()
    for text in (out, err):
        clean(text)
    return Answer(status, out, err)


def clean(text: str) -> None:
    assert SECRET not in text
    assert "Traceback" not in text
    assert "internal error" not in text
    assert harmless(text.replace("\n", "")) == text.replace("\n", "")


def refused(answer: Answer) -> None:
    """One sentence on standard error."""
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith("paired: ")
    assert answer.err.count("\n") == 1
    assert len(answer.err) <= MOST_CHARS


EVERY: Final = [pytest.param(section, key, id=f"{section} {key}") for section, keys in SECTIONS.items() for key in keys]


@pytest.mark.parametrize(("section", "key"), EVERY)
def test_each_setting_is_refused_in_one_sentence(section: str, key: str, folder: Path, judge: Judge) -> None:
    """Refused at the start are only: a configuration that is wrong, a secret that cannot be read, …"""
    path = folder / "pairing.toml"
    for value in WRONG.values():
        path.write_bytes(document(section, f"{key} = {value}", without=key))
        answer = judge(path)
        assert answer.status == 2, f"{key} = {value[:80]} is accepted"
        assert str(path) in answer.err
    for value in DOUBTFUL.values():
        path.write_bytes(document(section, f"{key} = {value}", without=key))
        judge(path)
    for lines in (
        f'{key}x = "a"',
        f'"{key}\\u001b" = 1',
        f"{key} = 1\n{key} = 1",
        f"{key}.a = 1\n{key} = 1",
        f"{key} =",
    ):
        path.write_bytes(document(section, lines, without=key))
        assert judge(path).status == 2, lines


@pytest.mark.parametrize("section", ["pairing", "primary", "secondary"])
def test_a_section_that_is_missing_is_named(section: str, folder: Path, judge: Judge) -> None:
    path = folder / "pairing.toml"
    lines = document("pairing", "").decode().split("[")
    path.write_text("[".join(part for part in lines if not part.startswith(f"{section}]")))
    answer = judge(path)
    assert f"[{section}]" in answer.err
    assert answer.status == 2


@pytest.mark.parametrize("content", FILES.values(), ids=FILES.keys())
def test_a_file_that_is_no_pairing_toml(content: bytes, folder: Path, judge: Judge) -> None:
    path = folder / "pairing.toml"
    path.write_bytes(content)
    assert judge(path).status == 2


@pytest.mark.parametrize("name", ["x" * 300, "a\x1b[2J", "folder", "/dev/zero", "missing"])
def test_a_path_that_is_no_file(name: str, folder: Path, judge: Judge) -> None:
    (folder / "folder").mkdir()
    assert judge(folder / name).status == 2


def test_the_least_file_is_valid(folder: Path, judge: Judge) -> None:
    """What is refused above is refused for the setting that is wrong."""
    path = folder / "pairing.toml"
    for section in SECTIONS:
        path.write_bytes(document(section, ""))
        assert judge(path).status == 0


VALUES = st.recursive(
    st.one_of(
        st.booleans(), st.integers(), st.floats(), st.text(max_size=40), st.sampled_from(["1m", "orders", "0.0.0.0"])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=2)),
    max_leaves=5,
)


def toml(value: Any) -> str:
    """A value as TOML writes it."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return '"' + "".join(f"\\U{ord(one):08x}" for one in value if not 0xD800 <= ord(one) <= 0xDFFF) + '"'
        case list():
            return f"[{', '.join(map(toml, value))}]"
        case dict():
            return "{" + ", ".join(f"{toml(key)} = {toml(one)}" for key, one in value.items()) + "}"
    return str(value)


KEYS = [(section, key) for section, keys in SECTIONS.items() for key in keys]


@given(st.lists(st.tuples(st.sampled_from(KEYS), VALUES), max_size=6, unique_by=lambda one: one[0]))
def test_any_values_are_valid_or_refused_in_one_sentence(chosen: list[tuple[tuple[str, str], Any]]) -> None:
    """Several settings at once, of any value."""
    lines: dict[str, dict[str, str]] = {section: settings(section) for section in ("pairing", "primary", "secondary")}
    for (section, key), value in chosen:
        lines.setdefault(section, {})[key] = toml(value)
    text = "".join(
        f"[{section}]\n" + "".join(f"{key} = {value}\n" for key, value in own.items()) for section, own in lines.items()
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairing.toml"
        path.write_text(text)
        try:
            load_config(path, environ={side.upper(): STRING.format(side) for side in ("primary", "secondary")})
        except ConfigurationError as error:
            sentence = str(error)
            assert sentence.startswith(str(path))
            assert len(sentence) <= MOST_CHARS
            assert harmless(sentence) == sentence
            assert SECRET not in sentence


@pytest.mark.slow
@pytest.mark.parametrize("flags", [("--headless",), ("--foreground",)])
def test_a_process_of_its_own_answers_the_same(flags: tuple[str, ...], tmp_path: Path) -> None:
    """A setting that only the engine's process reads: its starter says its sentence."""
    path = tmp_path / "pairing.toml"
    path.write_bytes(document("primary", 'connection_string = { file = "/nonexistent" }', without="connection_string"))
    environ = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state"), "SECONDARY": STRING.format("backup")}
    command = [sys.executable, "-m", "paired_servicebus.cli", "up", *flags, "--config", str(path)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    refused(Answer(done.returncode, done.stdout, done.stderr))
