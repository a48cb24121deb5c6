"""What holds for all tests: a busy machine is no failure, so hypothesis judges no speed."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
