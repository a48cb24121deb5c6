"""Parameters that several verbs have: one type, one sentence of help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

Config = Annotated[
    Path | None, Parameter(help="A pairing.toml; else ./pairing.toml, else ~/.config/paired/pairing.toml.")
]
JsonLine = Annotated[bool, Parameter(name="--json", help="The last line of standard output is one JSON object.")]
Why = Annotated[str, Parameter(help="The reason, for the audit.")]
Yes = Annotated[
    str | None, Parameter(help="What would be typed on the screen: the target's name; the number of several.")
]
