"""Which releases of the SDK the contract is run with."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement

from tests.conformance.checking import Skipped
from tests.conformance.sdk_releases.__main__ import choose

RANGE = Requirement("azure-servicebus>=7.15,<8")


def test_both_ends_of_the_range_and_a_newer_prerelease() -> None:
    found, remark = choose(["8.0.0b1", "8.0.0a1", "7.17.0", "7.16.0b1", "7.15.0", "7.15.0b2", "7.14.3"], RANGE)
    assert found == ("7.15.0", "7.17.0", "8.0.0b1")
    assert remark.endswith("newest pre-release: 8.0.0b1")


def test_one_release_and_no_newer_prerelease() -> None:
    found, remark = choose(["7.15.0", "7.15.0b2", "7.14.3"], RANGE)
    assert found == ("7.15.0",)
    assert remark.endswith("no pre-release is newer than 7.15.0")


def test_nothing_in_the_range() -> None:
    with pytest.raises(Skipped):
        choose(["7.14.3"], RANGE)
