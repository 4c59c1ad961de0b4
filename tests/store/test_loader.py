"""Calls of scripts by name, with named arguments, on a server that may have lost the scripts."""

from pathlib import Path

import pytest

from celery_delayq.core.store import scripts
from celery_delayq.core.store.scripts import Scripts, arguments_of, load, reader_of
from celery_delayq.errors import StoreError, StoreUnavailable

pytestmark = pytest.mark.core

COUNTS = (0, 0, 0, 0)


def counted(store):
    counts = store.entries.counts()
    return (counts.scheduled, counts.in_flight, counts.dead, counts.scanners)


def test_a_call_reads_only_the_files_that_it_needs(store, monkeypatch):
    """In a process with fifty threads, fifty first calls come at once."""
    read, plain = [], Path.read_text
    load()  # with what scripts share
    scripts.loaded.cache_clear()

    def noting(path, *given):
        read.append(path.name)
        return plain(path, *given)

    monkeypatch.setattr(Path, "read_text", noting)
    Scripts(store.scripts.connection, store.keys, store.settings).call("find", target="ia")
    assert read == ["find.lua"]


def test_the_order_of_names_is_the_headers():
    script = load()["find"]
    assert script.keys[:2] == ("due", "relay")
    assert (script.arguments, script.rest) == (("target",), None)


def test_the_last_argument_may_take_many():
    script = load()["ack"]
    assert (script.arguments, script.rest) == (("token",), "members")
    assert script.argv({"members": [b"a", b"b"], "token": "t"}) == ["t", b"a", b"b"]


@pytest.mark.parametrize(
    ("script", "given"),
    [
        ("find", {}),
        ("find", {"target": "ia", "due": 1}),
        ("find", {"TARGET": "ia"}),
        ("ack", {"token": "t"}),
    ],
    ids=["missing", "extra", "misspelt", "missing rows"],
)
def test_arguments_that_the_header_does_not_name_are_a_type_error(store, script, given):
    takes = {"find": r"\['target'\]", "ack": r"\['members', 'token'\]"}[script]
    with pytest.raises(TypeError, match=rf"^{script} takes {takes}, got \["):
        store.scripts.call(script, **given)


def test_the_header_makes_the_scripts_locals_of_its_arguments():
    header = (
        "--[[ keep: keep some.\n\n"
        "text     name   theirs\nnumber   most   of them\nflag     loud   1: yes; or 0\n"
        "rows...    some   of each:\n         id    its id\n         when  its time\n\n"
        "Returns  nothing\n         at  all\n"
    )
    assert arguments_of(header) == (
        "local name = ARGV[1]\nlocal most = tonumber(ARGV[2])\nlocal loud = ARGV[3] == '1'\n"
        "local some = {}\n"
        "for at = 4, #ARGV, 2 do some[#some + 1] = {id = ARGV[at + 0], when = ARGV[at + 1]} end\n"
    )


def test_the_header_names_the_parts_of_the_reply_and_the_fields_of_its_rows():
    read = reader_of(
        "--[[ keep: keep some.\n\nreply    now, kept of id size,\n"
        "         known in words of tries state, last\n\nReturns  all\n"
    )
    reply = read([1, [b"a", 7, b"b", 8], b"0 S 2 P"])
    assert (reply.now, reply.last) == (1, None)
    assert [(one.id, one.size) for one in reply.kept] == [(b"a", 7), (b"b", 8)]
    assert [(one.tries, one.state) for one in reply.known] == [(b"0", b"S"), (b"2", b"P")]


def test_a_reply_may_be_rows_and_nothing_else():
    rows = reader_of("reply    of name seen\n")([b"a", 1, b"b", 2])
    assert [(one.name, one.seen) for one in rows] == [(b"a", 1), (b"b", 2)]


@pytest.mark.parametrize("given", [[1, [b"a"]], [1, [], 2]], ids=["half a row", "too much"])
def test_a_reply_that_is_not_what_the_header_says_is_an_error(given):
    with pytest.raises((TypeError, ValueError)):
        reader_of("reply    now, kept of id size\n")(given)


def test_a_script_is_sent_once_and_then_called_by_its_digest(store):
    store.entries.counts()
    sent = store.raw.info("commandstats")["cmdstat_eval"]["calls"]
    store.entries.counts()
    store.entries.counts()
    assert store.raw.info("commandstats")["cmdstat_eval"]["calls"] == sent


def test_after_script_flush_every_script_is_loaded_again(each_redis, store_on):
    store = store_on(each_redis)
    store.schedule("a")
    each_redis.client().script_flush()
    assert store.schedule("b")
    each_redis.client().script_flush()
    assert store.steps().hand_over().handed_over == 2
    each_redis.client().script_flush()
    assert counted(store) == (0, 0, 0, 1)


def test_after_a_restart_the_next_step_loads_its_script(start_redis, store_on):
    server = start_redis()
    store = store_on(server, clocked=False)
    assert counted(store) == COUNTS
    server.restart()
    assert counted(store) == COUNTS


def test_a_script_that_cannot_be_loaded_is_an_error_of_the_store(start_redis, store_on):
    server = start_redis()
    store = store_on(server, clocked=False)
    server.client().execute_command("ACL", "SETUSER", "default", "-eval")
    with pytest.raises(StoreError, match=r"^read failed: ") as caught:
        store.entries.counts()
    assert not isinstance(caught.value, StoreUnavailable)
