"""The same seeds in each run; and that the simulator would find what is wrong."""

from functools import partial

import pytest

from celery_delayq.store.scripts import load
from tests.simulator.sabotage import SABOTAGES
from tests.simulator.server import Lab
from tests.simulator.shorten import shortened
from tests.simulator.simulation import report, simulate

HISTORIES = 150  # others are tried by ./tests/run simulate
SEEDS = 300  # at most, until a safeguard is missed; most need fewer than ten

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def lab(redis_server):
    lab = Lab(redis_server)
    yield lab
    lab.close()


def test_no_history_breaks_a_promise(lab):
    for seed in range(HISTORIES):
        result = simulate(lab, seed)
        if result.finding:
            pytest.fail(report(shortened(partial(simulate, lab, seed), result)), pytrace=False)


@pytest.mark.parametrize("seed", [3, 5, 11])
def test_a_seed_has_one_history_to_the_byte(lab, seed):
    assert simulate(lab, seed) == simulate(lab, seed)
    assert simulate(lab, seed).history != simulate(lab, seed + 1).history


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: sabotage.name)
def test_a_safeguard_that_is_taken_out_is_missed(lab, sabotage):
    assert any(sabotage.old in script.text for script in load().values())
    results = (simulate(lab, seed, sabotage=sabotage) for seed in range(SEEDS))
    found = next((result.finding.rule for result in results if result.finding), None)
    assert found in sabotage.rules
