"""As many seeds as fit the time; and that the simulator would find what is wrong."""

import time
from functools import partial

import pytest

from tests.simulator.sabotage import SABOTAGES
from tests.simulator.server import Lab
from tests.simulator.shorten import shortened
from tests.simulator.simulation import report, simulate

SECONDS = 40  # of wall time, for as many seeds as fit
FEWEST = 100  # seeds that are run however slow the machine is
SEEDS = 300  # at most, until a safeguard is missed; most need fewer than ten

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def lab(redis_server):
    lab = Lab(redis_server)
    yield lab
    lab.close()


def test_no_history_breaks_a_promise(lab):
    until, seed = time.monotonic() + SECONDS, 0
    while seed < FEWEST or time.monotonic() < until:
        result = simulate(lab, seed)
        if result.finding:
            pytest.fail(report(shortened(partial(simulate, lab, seed), result)), pytrace=False)
        seed += 1


@pytest.mark.parametrize("seed", [3, 5, 11])
def test_a_seed_has_one_history_to_the_byte(lab, seed):
    assert simulate(lab, seed) == simulate(lab, seed)
    assert simulate(lab, seed).history != simulate(lab, seed + 1).history


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: sabotage.name)
def test_a_safeguard_that_is_taken_out_is_missed(lab, sabotage):
    assert sabotage.is_there
    results = (simulate(lab, seed, sabotage=sabotage) for seed in range(SEEDS))
    found = next((result.finding.rule for result in results if result.finding), None)
    assert found in sabotage.rules
