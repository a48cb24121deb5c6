"""The extras of the distribution: which one brings a package that is not installed.

The distribution itself depends on nothing, so that a test suite installs the sandbox without azure-servicebus, and an
application the library without Textual. pyproject.toml lists what each extra contains.
"""

from __future__ import annotations

from typing import Final

DISTRIBUTION: Final = "servicebus-paired-console"
EXTRA_OF: Final = {
    "aiohttp": "library",
    "yarl": "library",
    "azure.servicebus": "library",
    "certifi": "library",
    "isodate": "library",
    "msgspec": "library",
    "prometheus_client": "library",
    "azure.identity": "fleet",
    "azure.mgmt": "fleet",
    "cyclopts": "fleet",
    "cryptography": "sandbox",
    "deltalake": "publish",
    "duckdb": "console",
    "jinja2": "console",
    "markupsafe": "console",
    "rich": "console",
    "textual": "console",
    "pandas": "spark",
    "pyarrow": "spark",
    "pyspark": "spark",
}
"""The smallest extra that brings each package."""


def explain_missing(error: ModuleNotFoundError, *, what: str) -> str | None:
    """Return one sentence that names the extra to install; None for a module of no extra, which is a defect.

    Args:
        what: the command or object that needs the package.
    """
    missing = f"{error.name or ''}."
    found = [
        extra
        for package, extra in EXTRA_OF.items()
        if f"{package}.".startswith(missing) or missing.startswith(f"{package}.")
    ]
    if not found:
        return None
    return f"{what} needs {error.name}, which is not installed: pip install '{DISTRIBUTION}[{found[0]}]'"
