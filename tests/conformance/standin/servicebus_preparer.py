"""Stands in for the tests' module of this name: decorators that make the entities a test needs, and remove them.

Microsoft's makes all of them through Azure's resource manager; here keys are, and entities are made through the
management API, with the same settings. A cached preparer makes an entity once for all tests that ask for the same; it
stays until the end.
"""

from __future__ import annotations

import functools
import inspect
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from azure.mgmt.servicebus.models import AccessRights, SBAuthorizationRule, SBAuthorizationRuleProperties
from devtools_testutils import NEEDS_ENDPOINT
from sandbox_endpoint import (
    ENDPOINT_SUFFIX,
    HOST,
    KEY,
    KEY_NAME,
    NAMESPACE,
    administration,
    connection_string,
    resource_manager,
)

SERVICEBUS_ENDPOINT_SUFFIX = ENDPOINT_SUFFIX
SERVICEBUS_DEFAULT_AUTH_RULE_NAME = KEY_NAME
_PLACE = ("sandbox", NAMESPACE)
"""Resource group and namespace."""

_FIXTURES = ("uamqp_transport", "socket_transport")


@dataclass(frozen=True)
class Resource:
    """What tests see of an entity that was made for them."""

    name: str


def _new_name(prefix: str) -> str:
    return (prefix or "conformance") + secrets.token_hex(4)


class Preparer:
    """A decorator that adds to a test's keyword arguments what `make` yields; `use_cache` keeps it for others."""

    parameter: ClassVar[str]
    settings: ClassVar[dict[str, Any]] = {}
    """Those that are passed on to the entity, with Microsoft's defaults."""

    _kept: ClassVar[dict[object, dict[str, Any]]] = {}

    def __init__(
        self, name_prefix: str = "", use_cache: bool = False, parameter_name: str | None = None, **chosen: Any
    ) -> None:
        self.prefix = name_prefix
        self.use_cache = use_cache
        self.name = parameter_name or self.parameter
        self.chosen = {name: chosen.get(name, default) for name, default in self.settings.items()}
        self.rights = chosen.get("access_rights", list(AccessRights))

    @contextmanager
    def make(self, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
        raise NotImplementedError

    def _cache_key(self, given: dict[str, Any]) -> object:
        topic = given.get("servicebus_topic")
        return type(self), self.prefix, self.name, repr(self.chosen), topic

    def _prepare(self, given: dict[str, Any], stack: ExitStack) -> dict[str, Any]:
        if not self.use_cache:
            return stack.enter_context(self.make(given))
        key = self._cache_key(given)
        if key not in self._kept:
            self._kept[key] = ExitStack().enter_context(self.make(given))
        return self._kept[key]

    def __call__(self, test: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(test):

            async def prepared(itself: object, **given: Any) -> None:
                with ExitStack() as stack:
                    await test(itself, **_accepted(test, given | self._prepare(given, stack)))

        else:

            def prepared(itself: object, **given: Any) -> None:
                with ExitStack() as stack:
                    test(itself, **_accepted(test, given | self._prepare(given, stack)))

        innermost = getattr(test, "innermost", test)
        prepared.__name__ = test.__name__
        prepared.__doc__ = test.__doc__
        prepared.pytestmark = list(getattr(test, "pytestmark", []))
        prepared.innermost = innermost
        prepared.__signature__ = _signature_for_pytest(innermost)
        setattr(prepared, NEEDS_ENDPOINT, True)
        return prepared


def _accepted(test: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """What the test takes: another preparer takes all, a test what it names unless it has `**kwargs`."""
    parameters = inspect.signature(test).parameters.values()
    if hasattr(test, "innermost") or any(each.kind is each.VAR_KEYWORD for each in parameters):
        return given
    names = {each.name for each in parameters}
    return {name: value for name, value in given.items() if name in names}


def _signature_for_pytest(test: Callable[..., Any]) -> inspect.Signature:
    """Only what pytest gives: the rest it would take for fixtures."""
    parameters = inspect.signature(test).parameters
    names = ["self", *(name for name in _FIXTURES if name in parameters)]
    return inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names])


class ServiceBusResourceGroupPreparer(Preparer):
    parameter = "resource_group"

    @contextmanager
    def make(self, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {self.name: Resource("sandbox")}


class ServiceBusNamespacePreparer(Preparer):
    """The sandbox's namespace, which is there already."""

    parameter = "servicebus_namespace"

    @contextmanager
    def make(self, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {
            self.name: Resource(HOST),
            f"{self.name}_connection_string": connection_string(),
            f"{self.name}_key_name": KEY_NAME,
            f"{self.name}_primary_key": KEY,
        }


class ServiceBusQueuePreparer(Preparer):
    parameter = "servicebus_queue"
    settings: ClassVar[dict[str, Any]] = {
        "requires_duplicate_detection": False,
        "dead_lettering_on_message_expiration": False,
        "requires_session": False,
        "enable_partitioning": False,
        "lock_duration": "PT30S",
    }

    @contextmanager
    def make(self, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
        with administration() as admin:
            queue = admin.create_queue(_new_name(self.prefix), **self.chosen)
        yield {self.name: Resource(queue.name)}
        with administration() as admin:
            admin.delete_queue(queue.name)


class ServiceBusTopicPreparer(Preparer):
    parameter = "servicebus_topic"

    @contextmanager
    def make(self, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
        with administration() as admin:
            topic = admin.create_topic(_new_name(self.prefix))
        yield {self.name: Resource(topic.name)}
        with administration() as admin:
            admin.delete_topic(topic.name)


class ServiceBusSubscriptionPreparer(Preparer):
    parameter = "servicebus_subscription"
    settings: ClassVar[dict[str, Any]] = {"requires_session": False, "lock_duration": "PT60S"}

    @contextmanager
    def make(self, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
        topic = given["servicebus_topic"].name
        with administration() as admin:
            subscription = admin.create_subscription(topic, _new_name(self.prefix), **self.chosen)
        yield {self.name: Resource(subscription.name)}
        with administration() as admin:
            admin.delete_subscription(topic, subscription.name)


class _RulePreparer(Preparer):
    """A key of its own, made and removed through the resource manager; `at` is whose, in its words."""

    @contextmanager
    def _rule(self, rules: Any, *at: str) -> Iterator[dict[str, Any]]:
        name = _new_name("rule")
        wanted = SBAuthorizationRule(properties=SBAuthorizationRuleProperties(rights=self.rights))
        rules.create_or_update_authorization_rule(*at, name, wanted)
        said = rules.list_keys(*at, name).primary_connection_string
        yield {self.name: Resource(name), f"{self.name}_connection_string": said}
        rules.delete_authorization_rule(*at, name)


class ServiceBusNamespaceAuthorizationRulePreparer(_RulePreparer):
    parameter = "servicebus_authorization_rule"

    @contextmanager
    def make(self, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
        with resource_manager() as manager, self._rule(manager.namespaces, *_PLACE) as made:
            yield made


class ServiceBusQueueAuthorizationRulePreparer(_RulePreparer):
    parameter = "servicebus_queue_authorization_rule"

    @contextmanager
    def make(self, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
        queue = given["servicebus_queue"].name
        with resource_manager() as manager, self._rule(manager.queues, *_PLACE, queue) as made:
            yield made


def _cached(preparer: type[Preparer]) -> Callable[..., Preparer]:
    return functools.partial(preparer, use_cache=True)


CachedServiceBusResourceGroupPreparer = _cached(ServiceBusResourceGroupPreparer)
CachedServiceBusNamespacePreparer = _cached(ServiceBusNamespacePreparer)
CachedServiceBusQueuePreparer = _cached(ServiceBusQueuePreparer)
CachedServiceBusTopicPreparer = _cached(ServiceBusTopicPreparer)
CachedServiceBusSubscriptionPreparer = _cached(ServiceBusSubscriptionPreparer)
