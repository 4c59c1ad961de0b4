"""A reconcile over six shards of a Cluster: each key is looked up, and changed, at its own node."""

import pytest

from tests.cluster.conftest import FAR

pytestmark = pytest.mark.libraries


def test_rows_of_all_shards_agree_with_their_tasks(cluster, make_house):
    house = make_house(cluster.url(), delayq_shards=6, delayq_undo=(60, 1000))

    @house.app.task(name="remind")
    def remind(order):
        """Do nothing."""

    def reconcile(numbers, due=FAR):
        rows = [(f"order:{number}", due, (number,)) for number in numbers]
        options = {"tag": "order", "remove": True, "dry_run": False, "most": 1000}
        report = house.delayq.reconcile(remind, rows, **options)
        return dict(report.counts), report.bulk

    assert reconcile(range(300))[0] == {"scheduled": 300}
    counts, bulk = reconcile(range(100, 400), FAR + 60)
    assert counts == {"changed": 200, "cancelled": 100, "scheduled": 100}
    assert reconcile(range(400), FAR + 60)[0] == {"unchanged": 300, "was_cancelled": 100}
    assert house.delayq.undo_all(bulk).done == 300
    assert reconcile(range(400))[0] == {"unchanged": 300, "changed": 100}
    assert len({*house.delayq.select(tag="order")}) == 400
