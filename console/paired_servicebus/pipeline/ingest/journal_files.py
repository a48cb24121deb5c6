"""The journal files below some folders, for a pipeline, a report and a rehearsal.

A root is an engine's journal (`events/`), a folder of whole files, or a tree of either, such as a collector's copies of
many hosts. Whole files end in .jsonl. Names that begin with a dot or with `_` are ignored: `.open` is an engine's, and
copying programs call an unfinished file so. Only sizes and times are looked at; no file is opened.

A file or a folder that is reached twice, by a link or below two roots, is listed once. A root may be a path in a store,
whose files are whole.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from paired_servicebus.core.errors import PipelineError
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.engine.journal import spool
from paired_servicebus.engine.journal.spool import CLOSED, OPEN, SUFFIX
from paired_servicebus.pipeline.table_store.store_path import Place, StorePath, place_of, status_of

MAX_NAMED: Final = 5
"""Skipped places that are named; the rest is counted."""
_IGNORED: Final = (".", "_")


@dataclass(frozen=True, slots=True)
class JournalFile:
    """A file that is whole by its name."""

    path: Place
    """Absolute, below its root as it was named."""
    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFiles:
    """The listing of some roots."""

    roots: tuple[Place, ...]
    files: tuple[JournalFile, ...]
    """The least recently modified first."""
    journals: tuple[Path, ...]
    """Folders with an `events/`: an engine that runs there can be asked for its open file."""
    being_written: int
    """Files of engines that are not whole yet."""
    notes: tuple[str, ...]
    """Sentences about skipped places. Two listings of the same folders have the same ones."""

    def none_yet(self) -> str:
        """Why there is nothing to read, and nothing being written, as a sentence; otherwise empty."""
        return "" if self.files or self.being_written else f"there are no journal files in {_listed(self.roots)}"

    def require(self) -> None:
        """Raise PipelineError where there is nothing to read: tables of nothing would look like a success."""
        if text := self.none_yet():
            because = "".join(f"; {note}" for note in self.notes)
            raise PipelineError(f"{text}{because}: an engine writes them, or name its journal's folder with --journal")

    def require_whole(self) -> None:
        """Raise PipelineError where no file is whole, after the engines were asked for those that they write."""
        self.require()
        if not self.files:
            raise PipelineError(
                f"there are no whole journal files in {_listed(self.roots)}, and {self.being_written} in {OPEN} not "
                "ended: start their engine, which recovers them"
            )


def find_journal_files(roots: Sequence[Place]) -> JournalFiles:
    """List the journal files below each root, a folder or a URL.

    Raises PipelineError: a root is not there, no folder, or cannot be read; or there is no root.
    """
    if not roots:
        raise PipelineError("no journal is named: name a folder with --journal")
    tree = _Tree()
    places = [place_of(root) for root in roots]
    for root in places:
        if isinstance(root, StorePath):
            tree.take_store(root)
        else:
            tree.walk(_required(Path(os.path.abspath(root))))  # noqa: PTH100 - a link in it keeps its name
    files = sorted(tree.files.values(), key=lambda file: (file.modified_ns, str(file.path)))
    return JournalFiles(
        roots=tuple(places),
        files=tuple(files),
        journals=tuple(sorted(tree.journals)),
        being_written=tree.being_written,
        notes=tree.notes(),
    )


def _required(root: Path) -> Path:
    try:
        if root.is_dir():
            os.scandir(root).close()
            return root
        has_name = root.exists()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise PipelineError(f"the journal in {repeated(str(root))} cannot be read: {why}") from error
    if has_name:
        raise PipelineError(f"--journal is {repeated(str(root))}, which is no folder: name the folder that it is in")
    raise PipelineError(
        f"there is no journal in {repeated(str(root))}: an engine writes one, or name its folder with --journal"
    )


@dataclass(slots=True)
class _Tree:
    """The files and folders found so far. A file and a folder are known by their device and number."""

    files: dict[tuple[int, int] | str, JournalFile] = field(default_factory=dict)
    journals: list[Path] = field(default_factory=list)
    being_written: int = 0
    _entered: set[tuple[int, int]] = field(default_factory=set)
    _no_text: list[Path] = field(default_factory=list)
    _refused: dict[Path, str] = field(default_factory=dict)

    def walk(self, root: Path) -> None:
        """Take the files below a folder; without recursion, since a tree may be deep."""
        waiting = [root]
        while waiting:
            folder = waiting.pop()
            try:
                waiting += self._folder(folder)
            except OSError as error:
                self._refused[folder] = error.strerror or str(error)

    def take_store(self, root: StorePath) -> None:
        """Take the files below a path in a store. Raises PipelineError: it cannot be read, or has nothing in it."""
        try:
            listed = root.listed()
        except OSError as error:
            raise PipelineError(f"the journal in {root} cannot be read: {error.strerror or error}") from error
        if not listed:
            raise PipelineError(f"there is no journal in {root}: name the path of its files with --journal")
        for path, about in listed:
            below = str(path).removeprefix(str(root)).strip("/").split("/")
            if path.name.endswith(SUFFIX) and not any(part.startswith(_IGNORED) for part in below):
                status = status_of(about)
                self.files[str(path)] = JournalFile(path, status.st_size, round(status.st_mtime * 1e9))

    def notes(self) -> tuple[str, ...]:
        """Return the sentences about skipped places."""
        found = []
        if self._no_text:
            found.append(f"{_listed(sorted(self._no_text))} is not read: its name is no text; rename it")
        reasons: dict[str, list[Path]] = {}
        for place, why in sorted(self._refused.items()):
            reasons.setdefault(why, []).append(place)
        found += [f"{_listed(places)} cannot be read ({why})" for why, places in reasons.items()]
        return tuple(found)

    def _folder(self, folder: Path) -> list[Path]:
        """Take a folder's own files; return the folders in it. Raises OSError."""
        if not self._enters(folder.stat()):
            return []
        inner: list[Path] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name == OPEN and entry.is_dir():
                    self.being_written += sum(1 for _ in folder.joinpath(OPEN).glob(f"*{SUFFIX}"))
                elif not entry.name.startswith(_IGNORED):
                    inner += self._entry(folder / entry.name, entry)
        if any(place.name == CLOSED for place in inner):
            self.journals.append(folder)
        return inner

    def _entry(self, path: Path, entry: os.DirEntry[str]) -> list[Path]:
        """Take a file; return a folder that is to be entered."""
        try:
            status = entry.stat()
            is_folder = stat.S_ISDIR(status.st_mode)
            if not is_folder and not entry.name.endswith(SUFFIX):
                return []
            if not entry.name.isprintable():  # neither Spark nor a manifest can have it
                self._no_text.append(path)
            elif is_folder:
                return [path]
            elif stat.S_ISREG(status.st_mode):
                self.files.setdefault(
                    (status.st_dev, status.st_ino), JournalFile(path, status.st_size, status.st_mtime_ns)
                )
            else:
                self._refused[path] = "neither a file nor a folder"
        except FileNotFoundError:  # the journal had no room for it any more; or a link to nothing
            pass
        except OSError as error:
            self._refused[path] = error.strerror or str(error)
        return []

    def _enters(self, status: os.stat_result) -> bool:
        place = (status.st_dev, status.st_ino)
        is_new = place not in self._entered
        self._entered.add(place)
        return is_new


def _listed(places: Sequence[Place]) -> str:
    named = ", ".join(repeated(str(place)) for place in places[:MAX_NAMED])
    rest = len(places) - MAX_NAMED
    return f"{named} and {rest:,} more" if rest > 0 else named


# Copies in progress: files that were changed lately, which Spark's file source would read once and never again.
#
# A file that does not end with a whole line waits until nobody has changed it for SETTLED seconds. A file that has
# grown since it was read is read again; the numbers of its records decide what is new. On a store a file is whole.

SETTLED: Final = 600.0

log = logging.getLogger(__name__)


def young_files(files: Iterable[JournalFile], now: float) -> dict[str, int]:
    """Return the files that were changed lately, each with its size, or -1 if it does not end with a whole line.

    Raises PipelineError: a file cannot be read.
    """
    young = [file for file in files if isinstance(file.path, Path) and now - file.modified_ns / 1e9 < SETTLED]
    return {str(file.path): file.size if _is_whole(file) else -1 for file in young}


def _is_whole(file: JournalFile) -> bool:
    """Whether a file is gone, or ends with a whole line."""
    try:
        with file.path.open("rb") as content:
            content.seek(max(0, file.size - 1))
            return content.read(1) in (b"", b"\n")
    except FileNotFoundError:
        return True
    except OSError as error:
        raise PipelineError(f"the journal file {file.path} cannot be read: {error.strerror or error}") from error


ASK: Final = 1.8
"""Seconds before a look: an engine checks for a request once a second, and the disk needs time."""


class Countdown:
    """Signals once for each whole multiple of `period` seconds that it is due within `ahead` seconds."""

    def __init__(self, ahead: float, period: float, clock: Callable[[], float] = time.time) -> None:
        self._ahead = ahead
        self._period = period
        self._clock = clock
        self._signalled = -1

    def is_due(self) -> bool:
        """Whether this is the first time since the last look that so little is left."""
        coming = int((self._clock() + self._ahead) // self._period)
        before, self._signalled = self._signalled, coming
        return coming != before


class JournalFlusher:
    """Requests the open files from the engines of some journals; does nothing without write access to them."""

    def __init__(self) -> None:
        self._is_said = False

    def ask(self, journals: Iterable[Path]) -> None:
        """For their open files."""
        try:
            for journal in journals:
                spool.ask(journal)
        except OSError as error:  # for good, or while the disk is full
            if not self._is_said:
                log.warning("the tables are some seconds later: the engine cannot be asked for its journal: %s", error)
            self._is_said = True
        else:
            self._is_said = False
