"""The keys of a running engine: those of the keys file as it is now.

A token is judged by the file's present content, so a key that was printed counts immediately, and a removed one does
not count any more. A file that cannot be read changes nothing; the operator gets a warning.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from paired_servicebus.core.errors import PairedError
from paired_servicebus.engine.gateway.keys.gateway_keys import KeyRing, LocalKey, keys_of, read_keys
from servicebus_amqp.access.grants import ProvenAccess

LOOK_SECONDS: Final = 1.0
"""Between two looks at the file without a token to judge: the longest life of a removed key's links."""
_State = tuple[int, int, int, int]


class KeysInForce(KeyRing):
    """The key ring of a file, which another process may replace.

    Args:
        path: the file; it is made if it is missing. Raises as `keys_of`.
        revoked: called with the names of keys that changed or were removed.
        warn: called with a sentence for the operator.
    """

    def __init__(
        self, path: Path, *, revoked: Callable[[frozenset[str]], object], warn: Callable[[str], object]
    ) -> None:
        state = _state_of(path)  # before it is read: a change in between is read again
        super().__init__(keys_of(path).keys)
        self._path = path
        self._revoked = revoked
        self._warn = warn
        self._state = state
        self._trouble = ""

    def judge(self, token: str, audience: str, now: float) -> ProvenAccess:
        """Judge by the file's present content. Raises TokenError."""
        self.refresh()
        return super().judge(token, audience, now)

    def refresh(self) -> None:
        """Read the file again if it has changed."""
        state = _state_of(self._path)
        if state == self._state:
            return
        try:
            found = read_keys(self._path).keys
        except (OSError, PairedError) as error:
            self._complain(f"{error.strerror or error}" if isinstance(error, OSError) else str(error))
            return
        self._state, self._trouble = state, ""
        self._replace(found)

    def _replace(self, found: tuple[LocalKey, ...]) -> None:
        before, self._keys = self._keys, {key.name: key for key in found}
        changed = frozenset(name for name, key in before.items() if self._keys.get(name) != key)
        if changed:
            self._warn(
                f"keys of the gateway were changed or removed, and their links end: {', '.join(sorted(changed))}"
            )
            self._revoked(changed)

    def _complain(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            self._warn(f"the gateway's keys {self._path} cannot be read, the earlier ones stay in force: {trouble}")


def _state_of(path: Path) -> _State | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode
