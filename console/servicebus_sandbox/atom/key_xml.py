"""The XML of an entity's authorization rules, both ways. Missing keys are generated here."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from xml.etree import ElementTree

from servicebus_sandbox.atom.iso_durations import write_time
from servicebus_sandbox.broker.entity_settings import AuthorizationRule, Right

_KIND = "SharedAccessAuthorizationRule"


def new_key() -> str:
    """Return a new random key: 32 bytes in base64, as in the service."""
    return base64.b64encode(secrets.token_bytes(32)).decode("ascii")


def read_rules(element: ElementTree.Element) -> tuple[AuthorizationRule, ...]:
    """Return the rules in `AuthorizationRules`. Raises ValueError for an unknown right, else InvalidSettings."""
    return tuple(_read_rule(rule) for rule in element.findall("{*}AuthorizationRule"))


def write_rules(
    parent: ElementTree.Element, rules: Sequence[AuthorizationRule], *, created_at: float, updated_at: float
) -> None:
    """Add `AuthorizationRules` to `parent`; the times, in epoch seconds, are the entity's."""
    element = ElementTree.SubElement(parent, "AuthorizationRules")
    for rule in rules:
        described = ElementTree.SubElement(element, "AuthorizationRule", {"i:type": _KIND})
        _add(described, "ClaimType", "SharedAccessKey")
        _add(described, "ClaimValue", "None")
        rights = ElementTree.SubElement(described, "Rights")
        for right in sorted(rule.rights):
            _add(rights, "AccessRights", right.value)
        _add(described, "CreatedTime", write_time(created_at))
        _add(described, "ModifiedTime", write_time(updated_at))
        _add(described, "KeyName", rule.name)
        _add(described, "PrimaryKey", rule.primary_key)
        _add(described, "SecondaryKey", rule.secondary_key)


def _read_rule(element: ElementTree.Element) -> AuthorizationRule:
    return AuthorizationRule(
        name=_text(element, "KeyName"),
        rights=frozenset(_right((right.text or "").strip()) for right in element.findall("{*}Rights/{*}AccessRights")),
        primary_key=_text(element, "PrimaryKey") or new_key(),
        secondary_key=_text(element, "SecondaryKey") or new_key(),
    )


def _right(text: str) -> Right:
    try:
        return Right(text)
    except ValueError as error:
        raise ValueError(f"'{text}' is no right; there are {', '.join(Right)}") from error


def _text(element: ElementTree.Element, name: str) -> str:
    return (element.findtext(f"{{*}}{name}") or "").strip()


def _add(parent: ElementTree.Element, name: str, text: str) -> None:
    ElementTree.SubElement(parent, name).text = text
