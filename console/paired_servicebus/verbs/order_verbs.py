"""The verbs of the operator's orders, made from the table of actions (paired_servicebus.core.operator.actions).

A row's scopes give the arguments: names of the first scope, and an option for one name of each other scope. A dangerous
order has `--yes`, and one that an operator must confirm has an option for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter, Signature
from typing import Annotated, Any, Final

from cyclopts import App
from cyclopts import Parameter as Option

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.operator.action_row import Action
from paired_servicebus.core.operator.actions import ACTIONS, VERB_GROUPS
from paired_servicebus.core.operator.targets import Scope
from paired_servicebus.engine.control.control_client import user_name
from paired_servicebus.verbs.engine_commands import VerbRequest, list_unused, order, select_engines
from paired_servicebus.verbs.fleet_order import FleetReach, check_alone, order_over_fleet
from paired_servicebus.verbs.parameters import Consent, EngineSelection, Why

Verb = Callable[..., int]

NAMES: Final = {
    Scope.ENTITY: ("entities", "Entities, by path"),
    Scope.QUEUE: ("queues", "Backlog queues, by index"),
    Scope.UNUSED: ("queues", "Unused backlog queues, by path or index"),
    Scope.DESTINATION: ("destinations", "Destinations, by path"),
    Scope.DEAD_LETTERS: ("letters", "Dead letters, as 3/118,121: the queue's index and sequence numbers"),
}
"""The arguments of an action's first scope, and their help."""
OPTIONS: Final = {
    Scope.ENTITY: ("entity", "One entity, by its path."),
    Scope.QUEUE: ("queue", "One backlog queue, by its index."),
    Scope.UNUSED: ("unused", "One unused backlog queue, by path or index."),
    Scope.DESTINATION: ("destination", "One destination, by its path."),
}
"""The option of each other scope, and its help."""
MATCHING: Final = "All entities whose path has this in it, instead of names."


def make_verb(action: Action) -> Verb:
    """Return the verb of a row of the table."""
    signature = Signature(list(_parameters(action)))

    def verb(*names: str, **options: Any) -> int:
        bound = signature.bind(*names, **options)
        bound.apply_defaults()
        engines = bound.arguments["engines"]
        if action.lists_targets and not names:
            return list_unused(select_engines(engines))
        request = _request(action, names, bound.arguments)
        reach = bound.arguments.get("reach", FleetReach())
        check_alone(reach)
        return order_over_fleet(request, reach, engines) if reach.fleet else order(request, engines)

    verb.__signature__ = signature  # type: ignore[attr-defined]
    verb.__annotations__ = {}
    verb.__name__ = action.verb.split()[-1].replace("-", "_")
    verb.__doc__ = action.verb_help or _describe(action)
    return verb


def _describe(action: Action) -> str:
    reach = (
        " It reaches the asked engine's own senders; with --fleet, every engine's."
        if action.scope is Scope.ENTITY
        else ""
    )
    danger = "; dangerous" if action.dangerous else ""
    return f"{action.help[0].upper()}{action.help[1:]}{danger}.{reach}"


# -- the arguments ---------------------------------------------------------------------------------------------------


def _parameters(action: Action) -> Iterator[Parameter]:
    """Yield the verb's parameters, as its help lists them."""
    if action.scope in NAMES:
        name, about = NAMES[action.scope]
        about += "; none: they are listed." if action.lists_targets else "."
        yield Parameter(name, Parameter.VAR_POSITIONAL, annotation=Annotated[str, Option(help=about)])
    if action.scope is Scope.ENTITY:
        yield _keyword("matching", Annotated[str | None, Option(help=MATCHING)], None)
    for name, about in _options(action).values():
        yield _keyword(name, Annotated[str | None, Option(help=about)], None)
    if action.confirms:
        yield _keyword(_confirmation(action), Annotated[bool, Option(help=action.confirms_help)], False)
    yield _keyword("consent", Consent, Consent()) if action.dangerous else _keyword("why", Why, "")
    if action.over_fleet:
        yield _keyword("reach", FleetReach, FleetReach())
    yield _keyword("engines", EngineSelection, EngineSelection())


def _keyword(name: str, annotation: Any, default: object) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _options(action: Action) -> dict[Scope, tuple[str, str]]:
    return {scope: OPTIONS[scope] for scope in action.scopes[1:] if scope in OPTIONS}


def _confirmation(action: Action) -> str:
    return action.confirms.replace(" ", "_")


def _request(action: Action, names: tuple[str, ...], given: Mapping[str, Any]) -> VerbRequest:
    """Return the order that a command line asks for. Raises ConfigurationError: it names two, or nothing."""
    scope, targets = _aim(action, names, given)
    matching = given.get("matching")
    if scope is action.scope is Scope.ENTITY and bool(targets) == (matching is not None):
        raise ConfigurationError("name the entities, or --matching TEXT for all that have it in their path")
    consent = given["consent"] if action.dangerous else Consent(why=given["why"])
    return VerbRequest(
        command=Command(action_id=action.id, scope=scope, targets=targets, by=user_name(), why=consent.why),
        matching=matching,
        yes=consent.yes,
        confirmed=bool(action.confirms) and given[_confirmation(action)],
    )


def _aim(action: Action, names: tuple[str, ...], given: Mapping[str, Any]) -> tuple[Scope, tuple[str, ...]]:
    """Return the scope that was given, with its targets: by default the first scope, with the names."""
    options = {name: scope for scope, (name, _) in _options(action).items() if given[name] is not None}
    words = [*("the names" for _ in names[:1]), *(f"--{name}" for name in options)]
    if len(words) > 1:
        raise ConfigurationError(f"{' and '.join(words)} are two orders: give them one after the other")
    for name, scope in options.items():
        return scope, (given[name],)
    return action.scope, names


# -- the verbs -------------------------------------------------------------------------------------------------------


def _make_group(word: str) -> App:
    """Return the verbs of two words that begin with that word."""
    group = App(name=word, help=VERB_GROUPS[word])
    for action in ACTIONS:
        if action.verb.startswith(f"{word} "):
            group.command(make_verb(action))
    return group


VERBS: Final = tuple(make_verb(action) for action in ACTIONS if " " not in action.verb and not action.own_verb)
GROUPS: Final = tuple(map(_make_group, VERB_GROUPS))
