"""Places of journals and tables: a folder of this machine, or a path in a store, each used as pathlib's paths are.

A store is reached by pyarrow's file systems, as `s3a://BUCKET/PATH`, with the access that the environment gives: the
variables of the store's own tools (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, AZURE_STORAGE_KEY, …), or the machine's
identity. Spark reaches the same place by Hadoop's file systems, under the same URL.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

from paired_servicebus.core.errors import ConfigurationError, PipelineError
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import one_line, repeated
from paired_servicebus.durable_file import replace_file
from paired_servicebus.user_folders import user_folder

SCHEMES: Final = ("s3a", "s3", "abfss", "abfs", "gs", "hdfs")
_URL: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+):/{1,2}(?P<authority>[^/]*)/?(?P<key>.*)", re.IGNORECASE)


class StorePath:
    """A path in a store. It has the methods of pathlib.Path that this room uses; each raises OSError as those do.

    Folders need not be made: a store has none. A file appears at once with its whole content.
    """

    def __init__(self, root: str, key: str) -> None:
        self._root = root
        self._key = key.strip("/")

    def __str__(self) -> str:
        return f"{self._root}/{self._key}".rstrip("/")

    def __repr__(self) -> str:
        return f"StorePath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorePath) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __lt__(self, other: object) -> bool:
        return str(self) < str(other)

    def __truediv__(self, name: str) -> StorePath:
        return StorePath(self._root, f"{self._key}/{name}")

    @property
    def name(self) -> str:
        """The last part."""
        return self._key.rpartition("/")[2]

    @property
    def parent(self) -> StorePath:
        """The path without its last part."""
        return StorePath(self._root, self._key.rpartition("/")[0])

    def absolute(self) -> StorePath:
        """Return itself: a URL is absolute."""
        return self

    def exists(self) -> bool:
        """Return whether there is a file, or anything below it."""
        return bool(self._about().type.value > 1)

    def is_dir(self) -> bool:
        """Return whether there is anything below it."""
        return bool(self._about().type.value == _FOLDER)

    def is_file(self) -> bool:
        """Return whether there is a file."""
        return bool(self._about().type.value == _FILE)

    def stat(self) -> os.stat_result:
        """Return the size and the time of change of a file; all else is 0. Raises FileNotFoundError."""
        about = self._about()
        if about.type.value != _FILE:
            raise FileNotFoundError(2, "there is no such file", str(self))
        return status_of(about)

    def iterdir(self) -> Iterator[StorePath]:
        """Yield what is in it; nothing where it is not there."""
        return (path for path, _ in self.listed(recursive=False))

    def rglob(self, pattern: str) -> Iterator[StorePath]:
        """Yield the files below it whose names match."""
        return (path for path, about in self.listed() if about.type.value == _FILE and fnmatch(path.name, pattern))

    def listed(self, *, recursive: bool = True) -> list[tuple[StorePath, Any]]:
        """Return what is below it, each with what pyarrow knows about it."""
        from pyarrow.fs import FileSelector

        system, bucket = _opened(self._root)
        with _os_errors(self):
            found = system.get_file_info(FileSelector(f"{bucket}/{self._key}".rstrip("/"), True, recursive))
        return [(StorePath(self._root, about.path.removeprefix(bucket)), about) for about in found]

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Return a file of pyarrow's, for reading or for writing."""
        system, path = self._place()
        with _os_errors(self):
            opened: IO[bytes] = system.open_input_file(path) if mode == "rb" else system.open_output_stream(path)
        return opened

    def read_bytes(self) -> bytes:
        """Return the content of a file."""
        with _os_errors(self), self.open() as file:
            return file.read()

    def write_bytes(self, data: bytes) -> None:
        """Write a file; readers find it once it is whole."""
        with _os_errors(self), self.open("wb") as file:
            file.write(data)

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a store has no folders."""

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove a file."""
        system, path = self._place()
        try:
            with _os_errors(self):
                system.delete_file(path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove_below(self) -> None:
        """Remove everything below it."""
        system, path = self._place()
        with _os_errors(self):
            system.delete_dir_contents(path, missing_dir_ok=True)

    def move_to(self, target: StorePath) -> None:
        """Move a file within the store."""
        system, path = self._place()
        with _os_errors(self):
            system.move(path, target._place()[1])

    def rows(self, files: Sequence[Place], schema: Any) -> Any:
        """Return Parquet files of this store as a dataset of pyarrow's, which reads what a query needs of them."""
        import pyarrow as pa
        from pyarrow import dataset

        by_date = dataset.partitioning(pa.schema([("date", pa.date32())]), flavor="hive")
        paths = [file._place()[1] for file in files if isinstance(file, StorePath)]
        return dataset.dataset(
            paths, schema=schema, filesystem=_opened(self._root)[0], format="parquet", partitioning=by_date
        )

    def _place(self) -> tuple[Any, str]:
        """Return the file system, and the path in it."""
        system, bucket = _opened(self._root)
        return system, f"{bucket}/{self._key}".rstrip("/")

    def _about(self) -> Any:
        system, path = self._place()
        with _os_errors(self):
            return system.get_file_info(path)


Place: TypeAlias = Path | StorePath
_FILE: Final = 2
_FOLDER: Final = 3
"""Values of pyarrow's FileType."""


@contextmanager
def _os_errors(place: StorePath) -> Iterator[None]:
    """Raise pyarrow's other errors as OSError, too."""
    from pyarrow import ArrowException

    try:
        yield
    except ArrowException as error:
        raise OSError(errno.EIO, masked(one_line(str(error))), str(place)) from error


def status_of(about: Any) -> os.stat_result:
    """Return what pyarrow knows about a file as the operating system would say it."""
    changed = (about.mtime_ns or 0) / 1e9
    return os.stat_result((0, 0, 0, 0, 0, 0, about.size or 0, 0, changed, 0))


def place_of(written: str | Path | StorePath) -> Place:
    """Return a place by its path or URL; a Path that was made of a URL has lost one of its slashes.

    Raises ConfigurationError: the URL is of no store that is read, or has a key in it.
    """
    if isinstance(written, StorePath):
        return written
    found = _URL.fullmatch(str(written))
    if found is None:
        return Path(written)
    scheme = found["scheme"].lower()
    scheme = "s3a" if scheme == "s3" else scheme  # by its name in Hadoop
    if scheme == "file":
        return Path("/" + found["key"])
    if scheme not in SCHEMES or not found["authority"]:
        url = masked(str(written).replace(":/", "://", 1))
        raise ConfigurationError(
            f"{repeated(url)} is no place for journals or tables: name a folder, or a path in a store as in "
            f"s3a://BUCKET/PATH ({', '.join(SCHEMES)})"
        )
    if any(sign in str(written) for sign in "?#") or (":" in found["authority"] and scheme != "hdfs"):
        raise ConfigurationError(
            f"a URL of {scheme} has a key or a query in it: the access to a store belongs into the environment"
        )
    return StorePath(f"{scheme}://{found['authority']}", found["key"])


@lru_cache
def _opened(root: str) -> tuple[Any, str]:
    """Return pyarrow's file system of a bucket or container, and its path there.

    Raises PipelineError: pyarrow has no access to it.
    """
    from pyarrow import fs

    scheme, _, bucket = root.partition("://")
    try:
        if scheme != "s3a":
            system, path = fs.FileSystem.from_uri(root)
            return system, path.strip("/") if scheme != "hdfs" else ""
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        return fs.S3FileSystem(endpoint_override=endpoint, region=region), bucket
    except (OSError, ValueError) as error:
        raise PipelineError(f"the store of {root} cannot be opened: {masked(str(error))}") from error


def spark_settings_of_store() -> dict[str, str]:
    """Return Hadoop's settings for the S3 server that the environment names; empty: it names none."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if not endpoint:
        return {}
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    return {
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": region,
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }


def own_folder(tables: Place) -> Path:
    """Return the folder of this machine for the work, the log and the scratch files of a pipeline of these tables."""
    if isinstance(tables, Path):
        return tables
    name = hashlib.sha256(str(tables).encode()).hexdigest()[:12]
    return user_folder("XDG_STATE_HOME", ".local/state") / "paired" / "pipelines" / name


def write_whole(place: Place, data: bytes) -> None:
    """Write a file that readers find whole or not at all, and that survives a crash. Raises OSError."""
    if isinstance(place, StorePath):
        place.write_bytes(data)
    else:
        replace_file(place, data)
        sync(place.parent)


def move(source: Place, target: Place) -> None:
    """Move a file once it is on the disk, into a store too. Raises OSError."""
    if isinstance(source, StorePath) and isinstance(target, StorePath):
        source.move_to(target)
    elif isinstance(source, Path) and isinstance(target, Path):
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync(source)
        shutil.move(source, target)
    else:
        target.write_bytes(source.read_bytes())
        source.unlink()


def remove_below(place: Place) -> None:
    """Remove everything in a folder, and the folder; errors are left to the next time."""
    if isinstance(place, Path):
        shutil.rmtree(place, ignore_errors=True)
        return
    try:
        place.remove_below()
    except OSError:
        return


def sync(path: Place) -> None:
    """Sync a file, or the names in a folder, to disk; a store has done so. Raises OSError."""
    if isinstance(path, StorePath):
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
