"""Stands in for Microsoft's unpublished `devtools_testutils`: the names that the tests of azure-servicebus import.

Nothing is recorded and nothing replayed: every test talks to the endpoint.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from sandbox_endpoint import credential, named_values

NEEDS_ENDPOINT = "needs_endpoint"
"""Attribute of tests that ask for values of a namespace."""


class AzureRecordedTestCase:
    is_live = True

    @staticmethod
    def await_prepared_test(test: Callable[..., Any]) -> Callable[..., Any]:
        return test

    def get_resource_name(self, name: str) -> str:
        return name


class AzureMgmtRecordedTestCase(AzureRecordedTestCase):
    pass


def get_credential(*, is_async: bool = False, **_: object) -> object:
    return credential(is_async=is_async)


def recorded_by_proxy(test: Callable[..., Any]) -> Callable[..., Any]:
    return test


def set_custom_default_matcher(**_: object) -> None:
    """There are no recordings to be matched."""


class RandomNameResourceGroupPreparer:
    """There are no resource groups."""

    def __init__(self, **_: object) -> None: ...

    def __call__(self, test: Callable[..., Any]) -> Callable[..., Any]:
        return test


CachedResourceGroupPreparer = RandomNameResourceGroupPreparer


def PowerShellPreparer(_folder: str, **fakes: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that gives a test those of the deployment's values that it names, or all if it takes any."""

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(test).parameters
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        known = named_values()
        values = {name: known[name] for name in fakes if name in parameters or (takes_any and name in known)}

        if inspect.iscoroutinefunction(test):

            @wraps(test)
            async def prepared(*args: Any, **given: Any) -> None:
                await test(*args, **values, **given)

        else:

            @wraps(test)
            def prepared(*args: Any, **given: Any) -> None:
                test(*args, **values, **given)

        others = [parameter for name, parameter in parameters.items() if name not in values]
        visible = [parameter for parameter in others if parameter.kind is not parameter.VAR_KEYWORD]
        prepared.__signature__ = inspect.Signature(visible)  # pytest takes parameters for fixtures
        setattr(prepared, NEEDS_ENDPOINT, True)
        return prepared

    return decorate
