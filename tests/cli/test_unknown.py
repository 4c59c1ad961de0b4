"""Tasks that no worker knew, for operators: listed, named by `health`, counted, and removed."""

import json
import re

import pytest

from celery_delayq.errors import InvalidOption
from tests.app.support import FAR
from tests.support.shards import keys_of, with_one_shard

TAG = "delayq:unknown"  # which a worker gives them


@pytest.fixture
def tasks(app):
    for task_id, name, tags in (
        ("a", "shop.old", [TAG]), ("b", "shop.old", [TAG]), ("c", "shop.new", [TAG]),
        ("d", "shop.old", ["x"]),
    ):  # fmt: skip
        app.send_task(name, task_id=task_id, delayq_at=FAR, delayq_tags=tags)


def ids(app, **picks):
    return sorted(task.id for task in app.delayq.select(**picks))


def test_a_selection_takes_them_by_this_state(app, tasks):
    assert ids(app, state="unknown") == ids(app, state=["UNKNOWN"]) == ["a", "b", "c"]
    assert ids(app, state="unknown", task="shop.old") == ["a", "b"]
    assert app.delayq.select(state="unknown", before_due=FAR).count() == 0
    assert app.delayq.counts().unknown == 3


@pytest.mark.parametrize("more", [{"tag": "x"}, {"state": ["unknown", "dead"]}])
def test_the_state_unknown_takes_no_tag_and_no_other_state(app, more):
    with pytest.raises(InvalidOption, match="UNKNOWN alone, without a tag or another state"):
        app.delayq.select(**{"state": "unknown", **more})


def test_a_name_is_listed_and_removed_by_one_command(app, tasks, said):
    assert said("list", "--state", "unknown", "--ids") == ["a", "b", "c"]
    assert said("list", "--state", "unknown", "--limit", "1")[-1].startswith("2 more; ")
    chosen = ("cancel", "--state", "unknown", "--task", "shop.old")
    assert said(*chosen, "--dry-run") == ["2 tasks would be cancelled"]
    assert said(*chosen, "--yes") == ["2 tasks cancelled"]
    assert ids(app, all=True) == ["c", "d"]


@with_one_shard
def test_health_and_the_doctor_name_them(app, alive, tasks, refused):
    alive(app)
    wrong = (
        r"workers did not know 3 tasks, which come again within the hour, "
        r"since [\d-]+ [\d:]+ UTC: shop\.old \(2\), shop\.new \(1\)"
    )
    [sentence] = [line for line in refused("health") if "did not know" in line]
    assert re.match(wrong, sentence)
    assert "delayq cancel --state unknown --task NAME" in sentence
    assert re.search(wrong, " ".join(" ".join(refused("doctor")).split()))


@pytest.mark.parametrize("since", [-(10**30), 10**30])
def test_health_bears_a_header_of_another_program(app, alive, redis, refused, since):
    alive(app)
    odd = {"since": since, "times": 1, "why": "x"}
    app.send_task("shop.old", task_id="a", headers={"odd": 0}, delayq_at=FAR, delayq_tags=[TAG])
    records = keys_of("a")["records"]
    record = redis.hget(records, "a")
    says = b'"delayq_unknown": %s' % json.dumps(odd).encode()
    redis.hset(records, "a", re.sub(rb'"odd": ?0', says, record))

    assert app.delayq.get("a").headers["delayq_unknown"] == odd
    assert any("did not know 1 task," in line for line in refused("health"))
