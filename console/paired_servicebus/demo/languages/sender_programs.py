"""The senders that the scenario runs: programs in tests/examples of a clone, found by the script beside them.

An installation has no tests: there the scenario's error names what it needs.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.errors import ConfigurationError, PairedError
from paired_servicebus.interpreter import python_environment, python_script

EXAMPLES: Final = Path(__file__).parents[4] / "tests" / "examples"
"""Only a clone has it."""
FIND_WITHIN: Final = 600.0
"""Seconds; a first build in Go takes minutes."""


class SenderProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A sender in one language. `command` lacks the four arguments; `environment` comes on top of ours."""

    language: str
    sdk: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = {}


class FoundPrograms(msgspec.Struct, frozen=True, kw_only=True):
    """The senders that this machine can run. missing: by language, the reason and what installs it."""

    python: SenderProgram
    found: list[SenderProgram]
    missing: dict[str, str]


def finder_script(examples: Path = EXAMPLES) -> Path:
    """Return the script that finds the senders. Raises ConfigurationError: this is no clone."""
    script = examples / "sender_programs.py"
    if not script.is_file():
        raise ConfigurationError(
            "the scenario any-language needs the senders in tests/examples, which an installation does not have; "
            "clone the project, install the clone with pip install -e, and run the scenario there"
        )
    return script


def find_programs(folder: Path) -> FoundPrograms:
    """Find and build the senders. May take a minute.

    Args:
        folder: for what is built; it must exist, and outlive the programs.

    Raises:
        ConfigurationError: this is no clone.
        PairedError: the script failed.
    """
    script = finder_script()
    try:
        done = subprocess.run(
            python_script(script, str(folder)),
            env=python_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=FIND_WITHIN,
            check=True,
        )
        return msgspec.json.decode(done.stdout, type=FoundPrograms)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        raise PairedError(f"{script} did not find the senders ({error}); run it by hand to see why") from error
