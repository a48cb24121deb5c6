"""The processes below a pipeline's, as Linux lists them."""

from __future__ import annotations

from pathlib import Path


def below(pid: int) -> list[int]:
    """A process's descendants."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            child = int(stat.parent.name)
            found += [child, *below(child)]
    return found


def jvm_of(pid: int) -> list[int]:
    """The JVMs below a process."""
    return [child for child in below(pid) if _name(child) == "java"]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
