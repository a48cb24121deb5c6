"""The environment and settings of Spark's JVM and its children.

The parent has a pairing's keys or AZURE_CLIENT_SECRET in its environment, which the JVM does not need. So it gets only
the variables of Spark, Hadoop and its object stores. AZURE_* is not among them, since hadoop-azure reads only its
settings. The exception is a drain on this machine: its tasks, children of the JVM, need the keys of pairing.toml.

A setting may hold a secret, such as an object store's key. It is in a file for its user only, since all users can read
a process's arguments.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PASSED_ON: Final = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "JAVA_HOME",
        "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "KRB5CCNAME", "KRB5_CONFIG",
        "GOOGLE_APPLICATION_CREDENTIALS",
    }
)  # fmt: skip
FAMILIES: Final = ("LC_", "SPARK_", "PYSPARK_", "PYTHON", "HADOOP_", "YARN_", "AWS_")
DEFAULTS: Final = "spark-defaults.conf"
_KEY: Final = "sharedaccess"
"""Part of every connection string: such a variable is withheld under any name."""


def spark_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's part of an environment."""
    return {
        name: value
        for name, value in environ.items()
        if (name in PASSED_ON or name.startswith(FAMILIES)) and _KEY not in value.casefold()
    }


@contextmanager
def withheld() -> Iterator[None]:
    """Remove the variables that are not Spark's from this process's environment, inside the block."""
    allowed = spark_variables(os.environ)
    kept = {name: value for name, value in os.environ.items() if name not in allowed}
    for name in kept:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(kept)


def write_defaults(conf: Path, settings: Mapping[str, object]) -> None:
    """Write settings where Spark looks for them in its configuration folder, for this user alone."""
    path = conf / DEFAULTS
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.writelines(f"{_property(name)}={_property(str(value))}\n" for name, value in settings.items())


def _property(text: str) -> str:
    """As Java's properties are written: every character that means something there is escaped."""
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    return "".join(named.get(one, f"\\{one}" if one in "\\=:#! " else one) for one in text)
