"""Property tests that draw the same in each run: on each machine, and whatever ran before them.

``./tests/run --hypothesis-profile fresh`` draws others.
"""

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# Checks that depend on the machine's speed; and fixtures that a test's examples share.
UNCHECKED = (
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.function_scoped_fixture,
)


def load_profile() -> None:
    """Draw the same, unless the command line names the other profile."""
    fresh = settings(
        deadline=None,
        max_examples=50,
        stateful_step_count=30,
        suppress_health_check=UNCHECKED,
        print_blob=True,
    )
    settings.register_profile("fresh", fresh)
    settings.register_profile("same", fresh, derandomize=True)
    settings.load_profile("same")
    _draw_no_constants_of_modules()


def _draw_no_constants_of_modules() -> None:
    # Constants of the imported modules: which ones are imported depends on the tests before.
    plain = getattr(providers, "_get_local_constants", None)
    if plain is not None:
        none = providers.Constants()
        providers._get_local_constants = lambda: none if settings().derandomize else plain()
