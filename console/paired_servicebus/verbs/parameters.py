"""Parameters that several verbs have: one type, one sentence of help; and those that go together, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

Config = Annotated[
    Path | None, Parameter(help="A pairing.toml; else ./pairing.toml, else ~/.config/paired/pairing.toml.")
]
JsonLine = Annotated[bool, Parameter(name="--json", help="The last line of standard output is one JSON object.")]
DEFAULT_KEY: Final = Path("~/.ssh/id_ed25519")
OrderKey = Annotated[
    Path,
    Parameter(name="--key", env_var="PAIRED_KEY", help="The SSH key that signs the fleet's orders; .pub: the agent."),
]
Why = Annotated[str, Parameter(help="The reason, for the audit.")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """The operator's consent to a dangerous command; without `yes` nothing is done."""

    yes: str | None = None
    """The text that the screen would require: the target's name; the number of several."""
    why: Why = ""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSelection:
    """The engines of this machine that a verb addresses."""

    engine: str | None = None
    """An engine of this machine by its name; "all": each; else the pairing.toml's."""
    config: Config = None
