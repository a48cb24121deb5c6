"""An engine's identity: one pairing in one process, and one boot of it."""

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
    """`engine` is the same after a restart, `boot` is not. Both are safe as file names."""

    engine: str
    boot: str
    pairing: str
    environment: str = ""
    read_only: bool = False
    """How it starts; an operator may switch it."""
    require_reason: bool = False
    """Whether an operator's act needs a reason."""
    hides_bodies: bool = False
    """Whether consoles get no message's body."""
    own_process: bool = True
    """Whether the process belongs to the engine and not to an application."""

    @classmethod
    def of(
        cls,
        pairing: str,
        *,
        environment: str = "",
        read_only: bool = False,
        require_reason: bool = False,
        hides_bodies: bool = False,
        own_process: bool = True,
    ) -> Self:
        """Return the identity of a new boot of this host's engine for `pairing`."""
        return cls(
            engine=_NOT_IN_NAMES.sub("-", f"{pairing}@{socket.gethostname()}"),
            boot=uuid.uuid4().hex[:12],
            pairing=pairing,
            environment=environment,
            read_only=read_only,
            require_reason=require_reason,
            hides_bodies=hides_bodies,
            own_process=own_process,
        )


def program_version() -> str:
    """Return the installed release; "source" if the program runs from its source tree."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "source"
