"""``celery delayq reshard``: its output before and after, and its endings."""

import re

import pytest

from celery_delayq.contrib.care import migration
from celery_delayq.core.store.keys import Keys
from tests.app.support import FAR
from tests.support.shards import with_one_shard

pytestmark = with_one_shard

META = Keys("delayq")["meta"]
DONE = "the store's number of shards is 3; set delayq_shards to 3"
TAKES = (
    r"from 1 to 3 shards: 2 tasks; about \d+ s in which the store can only be read; "
    r"\d+\.\d MB more memory"
)


@pytest.fixture
def tasks(app, redis):
    for task_id in "ab":
        app.send_task("t", task_id=task_id, delayq_at=FAR)
    make_impatient(redis)


def make_impatient(redis):
    """Let no call last longer than a millisecond, so that `reshard` waits for none."""
    redis.hset(META, "timeout", 1)


@pytest.mark.usefixtures("tasks")
def test_reshard_tells_what_it_takes_does_it_and_says_what_follows(
    app, delayq_app, url, said, redis
):
    takes, done = said("reshard", "3", "--yes")
    assert re.fullmatch(TAKES, takes)
    assert done == DONE
    assert said("reshard", "3") == ["the store's number of shards is 3"]
    other = delayq_app(url, delayq_shards=3)
    assert {one.id for one in other.delayq.tasks()} == {"a", "b"}
    # Also when the app has the new number by then.
    other.delayq.cancel("a")
    make_impatient(redis)
    assert said("reshard", "1", "--yes", app=other)[-1] == DONE.replace("3", "1")
    assert [one.id for one in app.delayq.tasks()] == ["b"]


@pytest.mark.usefixtures("tasks")
def test_a_dry_run_changes_nothing_nor_does_it_without_a_terminal_and_yes(said, refused, redis):
    before = redis.hgetall(META)
    (takes,) = said("reshard", "3", "--dry-run")
    assert re.fullmatch(TAKES, takes)
    *_, asked = refused("reshard", "3")
    assert asked == "Error: continue? There is no terminal to confirm; pass --yes"
    assert redis.hgetall(META) == before


@pytest.mark.usefixtures("tasks", "sigint")
def test_reshard_goes_on_after_ctrl_c_without_a_question_or_is_given_up(
    app, run, said, redis, monkeypatch
):
    def interrupted(*_):
        raise KeyboardInterrupt

    for again, says in ((["--abort"], "aborted"), (["3"], DONE)):
        with monkeypatch.context() as patched:
            patched.setattr(migration.Copying, "rest", interrupted)
            result = run("reshard", "3", "--yes")
        assert result.exit_code == 130
        assert result.output.splitlines()[-1] == "interrupted: at least 2 tasks copied"
        assert app.delayq.counts().scheduled == 2
        assert said("reshard", *again)[-1] == says
    assert said("reshard", "--abort") == ["nothing to abort"]


def test_a_store_that_no_process_has_used_is_left_alone(said, redis):
    assert said("reshard", "3") == ["no process has used this store yet"]
    assert not redis.exists(META)


@pytest.mark.parametrize(
    "given", [[], ["3", "--abort"], ["--abort", "--dry-run"], ["0"], ["65"], ["three"]]
)
def test_reshard_with_wrong_words_is_misused(misused, given):
    assert misused("reshard", *given).startswith("Error: ")
