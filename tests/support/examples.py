"""How many examples hypothesis tries: all of them in `make test-all` (its profile is `ci`), else a quarter (`dev`)."""

from typing import Any

from hypothesis import HealthCheck, settings

_ALL = 100

# Machines are shared, so the time of an example says nothing about the code. Derandomized: no change fails by chance.
_SHARED: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
    "derandomize": True,
    "database": None,
}
settings.register_profile("ci", max_examples=_ALL, **_SHARED)
settings.register_profile("dev", max_examples=_ALL // 4, **_SHARED)


def examples(count: int, **more: Any) -> settings:
    """Settings with so many examples in the profile `ci`, and a part of them in others."""
    return settings(max_examples=max(1, count * settings.default.max_examples // _ALL), **more)  # type: ignore[union-attr]
