"""One deliberate mistake, and how it gets into a run."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from paired_servicebus.simulation.world import AS_SHIPPED, WorldParts

PACKAGES: Final = ("paired_servicebus", "tests.simulation")
SHIPPED: Final = "paired_servicebus.core."
WITHIN: Final = 200
"""Seeds within which each mistake must be caught."""


class Patch(NamedTuple):
    """Another value for one attribute of a shipped module or class, or for one row of a shipped table.

    owner: the module or the class. row: a key of the table `owner.name`; None: the whole attribute is replaced.
    """

    owner: Any
    name: str
    value: Any
    row: Hashable = None

    @property
    def is_shipped(self) -> bool:
        """Whether it replaces a part of the shipped rules."""
        module: str = getattr(self.owner, "__module__", None) or self.owner.__name__
        return module.startswith(SHIPPED)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Replace it, also in every module that imported it by name."""
        shipped = getattr(self.owner, self.name)
        value = self.value if self.row is None else {**shipped, self.row: self.value}
        with ExitStack() as stack:
            for place in self._places(shipped):
                stack.enter_context(patch.object(place, self.name, value))
            yield

    def _places(self, shipped: object) -> list[Any]:
        if isinstance(self.owner, type):
            return [self.owner]
        modules = [module for name, module in list(sys.modules.items()) if name.startswith(PACKAGES)]
        return [module for module in modules if vars(module).get(self.name) is shipped]


@dataclass(frozen=True, slots=True)
class Bug:
    """A mistake in one sentence, with the parts of a World that contain it, or the patches that make it.

    rare: a seed that catches a mistake which few seeds meet; it is tried first.
    """

    what: str
    parts: WorldParts = AS_SHIPPED
    patches: tuple[Patch, ...] = ()
    rare: int = 1

    @property
    def is_shipped(self) -> bool:
        """Whether the mistake is in a shipped rule, and not in an adapter of the World."""
        rules = self.parts.pairing is not AS_SHIPPED.pairing or self.parts.pump is not AS_SHIPPED.pump
        return rules or any(patch.is_shipped for patch in self.patches)

    @contextmanager
    def planted(self) -> Iterator[WorldParts]:
        """Apply the patches, and yield the parts of a World with the mistake."""
        with ExitStack() as stack:
            for patch in self.patches:
                stack.enter_context(patch.applied())
            yield self.parts
