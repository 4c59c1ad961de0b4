"""Some seeds, always the same; and sabotages that the simulator has to find."""

from functools import partial

import pytest

from tests.lab.simulator.sabotage import FOUND, FOUND_OVER_THREE, SABOTAGES
from tests.lab.simulator.server import Lab
from tests.lab.simulator.shorten import shortened
from tests.lab.simulator.simulation import report, simulate

SEEDS = [range(first, first + 50) for first in range(0, 150, 50)] + [[seed] for seed in FOUND]
MOST = 100  # seeds until a safeguard is missed; each `seed` is the first that misses it

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def lab(redis_server):
    lab = Lab(redis_server)
    yield lab
    lab.close()


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_no_history_breaks_a_promise(lab, seeds):
    for seed in seeds:
        result = simulate(lab, seed)
        if result.finding:
            pytest.fail(report(shortened(partial(simulate, lab, seed), result)), pytrace=False)


def test_no_history_of_three_shards_does(lab):
    for seed in (*range(20), *FOUND_OVER_THREE):
        result = simulate(lab, seed, shards=3)
        if result.finding:
            again = partial(simulate, lab, seed, shards=3)
            pytest.fail(report(shortened(again, result)), pytrace=False)


@pytest.mark.parametrize("seed", [3, 5, 11, 14])  # of which 14 has recurring rules
def test_a_seed_has_one_history_to_the_byte(lab, seed):
    assert simulate(lab, seed) == simulate(lab, seed)
    assert simulate(lab, seed).history != simulate(lab, seed + 1).history


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: sabotage.name)
def test_a_safeguard_that_is_taken_out_is_missed(lab, sabotage):
    assert sabotage.is_there
    seeds = range(sabotage.seed, sabotage.seed + MOST)
    results = (simulate(lab, seed, sabotage=sabotage) for seed in seeds)
    found = next((result.finding.rule for result in results if result.finding), None)
    assert found in sabotage.rules
