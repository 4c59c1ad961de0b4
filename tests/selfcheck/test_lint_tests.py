"""The linter of the tests finds each way into the package, and its list only shrinks."""

from collections import Counter

import pytest

from tests import lint_tests
from tests.lint_tests import Place, listed, problems, text_of

OUTSIDE = [
    "from celery_delayq.core import clock\nmonkeypatch.setattr(clock, 'monotonic', f)",
    "from celery_delayq.core import handover as h\nmonkeypatch.setattr(h.relay.clock, 'sleep', f)",
    "import socket\nmonkeypatch.setattr(socket.socket, 'connect', f)",
    "from kombu import Producer\nmonkeypatch.setattr(Producer, 'publish', f)",
    "monkeypatch.setattr('time.time', f)",
    "monkeypatch.setattr(app.backend, 'mark_as_revoked', f)",
    "limits(selection_chunk=2)",
    "setattr(app.conf, name, 1)",
    "app.conf.timezone = 'UTC'",
    "claimed._replace(entries=[])",
    "class A:\n def f(self): self._steps = self._x = 1",
]
INSIDE = [
    (
        "from celery_delayq.core.tasks import selection as s\nmonkeypatch.setattr(s, 'CHUNK', 2)",
        "limit core.tasks.selection.CHUNK",
    ),
    (
        "from celery_delayq.core.handover import publishers\npublishers.IDLE, other = 1, 2",
        "limit core.handover.publishers.IDLE",
    ),
    (
        "from celery_delayq.core.store import Entries\nmock.patch.object(Entries, 'find')",
        "patch core.store.Entries.find",
    ),
    (
        "monkeypatch.setattr('celery_delayq.core.servers.pool.Pool.take', f)",
        "patch core.servers.pool.Pool.take",
    ),
    (
        "from celery_delayq.core import threads\nmonkeypatch.setattr(threads, 'random', f)",
        "patch core.threads.random",
    ),
    ("monkeypatch.setattr(steps, 'hand_over', f)", "patch steps.hand_over"),
    ("entries.cancel = lambda: None", "patch entries.cancel"),
    ("def called(): ...\nstore.scripts.call = called", "patch store.scripts.call"),
    ("for owner, name in many: monkeypatch.setattr(owner, name, f)", "patch owner.name"),
    ("from celery_delayq.core.store.schedule import MAX_BYTES, _arguments", "private _arguments"),
    ("scanner._stopping.set()", "private _stopping"),
    ("scanner._stopping = stop", "private _stopping"),
    ("store.scripts.call('find', target='ia')", "reply find"),
]


@pytest.mark.parametrize("text", OUTSIDE)
def test_a_patch_of_a_clock_a_connection_or_a_library_is_outside(text):
    assert [*lint_tests.places_in("app/test_x.py", text)] == []


@pytest.mark.parametrize(("text", "found"), INSIDE)
def test_each_way_into_the_package_is_found(text, found):
    [place] = lint_tests.places_in("app/test_x.py", text)
    assert f"{place.kind} {place.what}" == found


@pytest.mark.parametrize("file", ["store/test_x.py", "format/test_x.py"])
def test_the_tests_of_scripts_read_their_replies(file):
    assert [*lint_tests.places_in(file, "scripts.call('find', target='ia')")] == []


def counted(**kinds):
    return Counter({Place(kind, "app/test_x.py", "x"): times for kind, times in kinds.items()})


@pytest.mark.parametrize(
    ("seen", "allowed", "found"),
    [
        ({"private": 2}, {"private": 2}, []),
        ({"private": 2}, {"private": 1}, ["private: x: 1 more than in outside.txt"]),
        ({"private": 1}, {"private": 3}, ["private: x: 2 less than in outside.txt: --write"]),
        ({"patch": 1}, {}, ["patch: x: 1 more than in outside.txt"]),
    ],
)
def test_a_place_more_than_the_list_has_is_a_problem_and_so_is_one_less(seen, allowed, found):
    found = [f"app/test_x.py: {each}" for each in found]
    assert [*problems(counted(**seen), counted(**allowed))] == found


@pytest.mark.parametrize("kind", lint_tests.KINDS)
@pytest.mark.parametrize("file", ["scanner/test_start.py", "scanner/conftest.py", "conftest.py"])
def test_the_list_has_no_line_for_a_test_of_the_core_or_what_it_uses(file, kind):
    place = Counter([Place(kind, file, "x")])
    assert [*problems(place, place)] == [f"{file}: {kind}: x: a test of the core stands outside"]


def test_writing_the_list_takes_out_what_is_gone_and_adds_nothing(tmp_path, monkeypatch, capsys):
    stored = tmp_path / "outside.txt"
    stored.write_text(text_of(counted(private=3, reply=1)))
    monkeypatch.setattr(lint_tests, "LIST", stored)
    monkeypatch.setattr(lint_tests, "places", lambda: counted(private=2, limit=1))
    assert lint_tests.main(["--write"]) == 1
    assert listed(stored.read_text()) == counted(private=2)
    assert "app/test_x.py: limit: x: 1 more than in outside.txt" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["def test_it_ends(): ...", "async def test_but_not_twice(): ..."])
def test_a_name_that_leans_on_the_test_before_it_is_a_problem(text):
    (found,) = lint_tests.names_alone("app/test_x.py", text)
    assert found.endswith("begins with a word that needs the test before it")


def test_a_name_with_its_subject_stands_alone():
    assert [*lint_tests.names_alone("app/test_x.py", "def test_items_end(): ...")] == []
