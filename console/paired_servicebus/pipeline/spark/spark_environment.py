"""What Spark's JVM, and whatever it starts, is given of the environment and of a person's settings.

A process that starts Spark has a pairing's keys in its environment, or AZURE_CLIENT_SECRET. The JVM needs none of
them: it reads journals and writes tables. So it gets what Spark, Hadoop and its object stores read by name. AZURE_* is
not among that: hadoop-azure reads its settings alone. A drain on this machine is the exception: its tasks, which the
JVM starts, get in as pairing.toml says.

A setting may hold a secret, a key of an object store say. It stands in a file for its user alone, since arguments of a
process are for everybody to see.
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
"""In every connection string: it is withheld whatever its variable is called."""


def spark_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Give what of an environment is Spark's."""
    return {
        name: value
        for name, value in environ.items()
        if (name in PASSED_ON or name.startswith(FAMILIES)) and _KEY not in value.casefold()
    }


@contextmanager
def withheld() -> Iterator[None]:
    """Take from this process's environment, for as long as this lasts, what is none of Spark's."""
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
