"""Who an engine is: one pairing in one process, and one life of it."""

from __future__ import annotations

import re
import socket
import uuid
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final, Self

DISTRIBUTION: Final = "servicebus-paired-console"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._@-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineIdentity:
    """`engine` stays the same when the engine is started anew, `boot` does not. Both are safe as file names."""

    engine: str
    boot: str
    pairing: str
    environment: str = ""
    read_only: bool = False

    @classmethod
    def of(cls, pairing: str, *, environment: str = "", read_only: bool = False) -> Self:
        """A new boot of this host's engine for `pairing`."""
        return cls(
            engine=_NOT_IN_NAMES.sub("-", f"{pairing}@{socket.gethostname()}"),
            boot=uuid.uuid4().hex[:12],
            pairing=pairing,
            environment=environment,
            read_only=read_only,
        )


def program_version() -> str:
    """The installed release; "source" when the program runs from its source tree."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "source"
