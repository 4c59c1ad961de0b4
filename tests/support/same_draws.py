"""Property tests that draw the same in each run: on each machine, and whatever ran before them.

``./tests/run --hypothesis-profile fresh`` draws others.
"""

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# What hangs on how fast the machine is; and fixtures that the examples of a test share.
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
    # Of those that are imported by then: which ones, hangs on what ran before.
    plain = getattr(providers, "_get_local_constants", None)
    if plain is not None:
        none = providers.Constants()
        providers._get_local_constants = lambda: none if settings().derandomize else plain()
