"""Where tables are published: a folder, or a container of Azure's storage, with the access to it.

Access comes from the environment or from azure-identity. It is in no argument, file, message or log of ours.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from paired_servicebus.core.errors import PipelineError
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import one_line, repeated

SCHEMES: Final = ("abfss", "abfs", "az")
WRITTEN: Final = "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH, or az://CONTAINER/PATH"
KEYS: Final = (
    "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_TOKEN", "AZURE_STORAGE_USE_EMULATOR",
)  # fmt: skip
"""Variables by which the library reaches the store itself; without any, azure-identity is asked for a token."""
PATIENCE: Final = {"connect_timeout": "5s", "timeout": "60s", "max_retries": "2", "retry_timeout": "20s"}
"""Of one request. The library's own are ten tries in three minutes."""
SCOPE: Final = "https://storage.azure.com/.default"
_MAX_REASON: Final = 300
_URL: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+):/", re.IGNORECASE)
_STEERING: Final = re.compile(r"\x1b\[[0-9;]*m")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_STATUS: Final = re.compile(r"\b([45]\d\d [A-Z][A-Za-z ]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishTarget:
    """A place for tables. `options`: the library's, with the access."""

    place: str
    folder: Path | None
    """None: a store."""
    options: dict[str, str] = field(default_factory=dict, repr=False)

    def of(self, table: str) -> str:
        """Return the place of one table."""
        return f"{self.place.rstrip('/')}/{table}"


def find_target(to: str, environ: Mapping[str, str], *, token: Callable[[], str] | None = None) -> PublishTarget:
    """Return the target of a written place.

    Args:
        to: a folder or a URL.
        environ: the variables that may have the access to a store.
        token: fetches a bearer token for Azure's storage; by default azure-identity.

    Raises PipelineError: the URL is of another kind or has a key in it, or there is no access.
    """
    found = _URL.match(to)
    if found is None:
        folder = Path(to).expanduser().absolute()
        return PublishTarget(place=str(folder), folder=folder)
    scheme = found["scheme"].lower()
    if scheme not in SCHEMES:
        raise PipelineError(
            f"--to is {repeated(masked(to))}, and paired tables publish writes to folders and to Azure's storage: "
            f"{WRITTEN}"
        )
    if any(sign in to for sign in "?#") or not re.fullmatch(r"\w+://[^/@:]+(@[^/@:]+)?(/.*)?", to):
        raise PipelineError(
            f"--to is no URL of a container ({WRITTEN}). A key or signature belongs into the environment, as in "
            f"{KEYS[0]} or {KEYS[3]}"
        )
    options = dict(PATIENCE)
    if not any(environ.get(name) for name in KEYS):
        options["bearer_token"] = (token or azure_token)()
    return PublishTarget(place=to, folder=None, options=options)


def azure_token() -> str:
    """Return a token for Azure's storage by azure-identity. Raises PipelineError: it finds no credential."""
    from azure.core.exceptions import ClientAuthenticationError
    from azure.identity import DefaultAzureCredential

    logging.getLogger("azure").addHandler(logging.NullHandler())  # its warnings are for programs that log
    try:
        with DefaultAzureCredential(process_timeout=10) as credential:
            return credential.get_token(SCOPE).token
    except ClientAuthenticationError as error:
        raise PipelineError(
            "there is no access to Azure's storage: set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, sign in "
            "with az login, or run where a managed identity is"
        ) from error


def store_reason(error: Exception) -> str:
    """Return the reason in an error of the library, without its URLs: those may have a signature."""
    text = _STEERING.sub("", str(error))
    code, status = _CODE.search(text), _STATUS.search(text)
    if code is not None:
        return f"{code[1]}{f', {status[1]}' if status is not None else ''}"
    lines = [line.strip(" ↳\t") for line in text.splitlines() if line.strip(" ↳\t")]
    last = lines[-1] if lines else type(error).__name__
    return one_line(masked(re.sub(r"https?://\S+", "its URL", last)), most=_MAX_REASON)
