"""The guide to move a store, step by step, as written in the document."""

import shlex
import sys

import pytest
from celery.bin.celery import celery
from celery.bin.worker import worker
from click.testing import CliRunner

from tests.app.support import FAR
from tests.readme.conftest import first_example
from tests.readme.document import page
from tests.readme.runner import run

NEW = {
    "another prefix": {"delayq_prefix": "moved"},
    "another number of shards": {"delayq_prefix": "moved", "delayq_shards": 3},
    "another Redis": {},
}


@pytest.fixture
def follow(monkeypatch, tmp_path):
    """Run the commands of a block with some project, in order; each has to succeed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(worker, "params", list(worker.params))

    def follow(block, project):
        monkeypatch.setitem(sys.modules, "shop", project)
        return "".join(map(give, block.text.splitlines()))

    def give(line):
        words, files = shlex.split(line)[1:], {}
        while words[-2] in ("<", ">"):
            *words, sign, name = words
            files[sign] = tmp_path / name
        text = files["<"].read_bytes() if "<" in files else None
        done = CliRunner().invoke(celery, words, prog_name="celery", input=text)
        assert done.exit_code == 0, done.output
        if ">" in files:
            files[">"].write_bytes(done.stdout_bytes)
        return done.output

    return follow


@pytest.fixture
def made(module, start_redis, monkeypatch):
    """The project with its new settings."""

    def made(where):
        if where == "another Redis":
            # The other project has already read its own.
            monkeypatch.setenv("CELERY_BROKER_URL", start_redis().url())
        moved = module("shop")
        run(first_example(), vars(moved))
        moved.app.conf.update(NEW[where])
        return moved

    return made


@pytest.mark.parametrize("where", NEW)
def test_a_store_moves_by_the_guide(shop, made, follow, where):
    old, new, resume = page("operate/moving").written_in("bash")
    for number in range(5):
        shop.remind.s(number).set(task_id=f"order-{number}", delayq_tags=["x"]).delay_until(FAR)
    moved = made(where)

    follow(old, shop)
    said = follow(new, moved)
    again = follow(new, moved)
    assert moved.delayq.pauses()
    follow(resume, moved)

    assert "5 tasks can be read\n" in said
    assert "5 tasks loaded\nnothing found\n" in said
    assert "0 tasks loaded\n5 tasks here already\n" in again
    found = {one.id: one.args for one in moved.delayq.select(tag="x")}
    assert found == {f"order-{number}": (number,) for number in range(5)}
    assert moved.delayq.pauses() == []
    # The old store is unchanged.
    assert (shop.delayq.counts().scheduled, len(shop.delayq.pauses())) == (5, 1)
