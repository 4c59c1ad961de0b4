"""A bench that ends early, however it does, leaves no key behind and says why in a sentence."""

import re
import signal

import pytest

from celery_delayq.bench import run as bench
from celery_delayq.errors import StoreError
from celery_delayq.store import Engine, Entries, ScratchKeys
from celery_delayq.store.scripts import load
from tests.cli.test_bench import FEW, nothing
from tests.faults.proxy import Proxy
from tests.support.worker import ROOT

pytestmark = pytest.mark.usefixtures("patient")

ARGUMENTS = ("bench", "--tasks", f"{FEW}")
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def heard():
    """Signals that end a process, also where the suite itself was started with them ignored."""
    defaults = {signal.SIGINT: signal.default_int_handler}
    before = {each: signal.signal(each, defaults.get(each, signal.SIG_DFL)) for each in SIGNALS}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


class Interruption(Exception):
    """What a test ends a run with."""


@pytest.fixture
def server(start_redis):
    return start_redis()


@pytest.fixture
def own(server, delayq_app, refused):
    """A command that is refused, on a Redis of the test's own; its last line."""

    def run(*arguments, **conf):
        return refused(*arguments, app=delayq_app(server.url(), **conf))[-1]

    return run


def in_the_middle(act, call=3):
    """What *act* does, at the third call only."""
    calls = []

    def acting(*_):
        calls.append(1)
        if len(calls) == call:
            act()

    return acting


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("step", [(Entries, "schedule"), (Entries, "cancel"), (Engine, "hand_over")],
                         ids=lambda step: step[1])  # fmt: skip
def test_a_signal_ends_it(redis, run, before, step, number):
    handler = signal.getsignal(number)
    before(*step, in_the_middle(lambda: signal.raise_signal(number)))

    result = run(*ARGUMENTS)

    assert result.exit_code == 128 + number
    assert result.output == f"Stopped by {number.name}; no key is left behind.\n"
    assert redis.keys("*") == []
    assert signal.getsignal(number) is handler


def test_a_signal_that_comes_as_it_clears_up_does_not_keep_it_from_that(redis, run, before):
    before(Engine, "hand_over", in_the_middle(lambda: signal.raise_signal(signal.SIGINT)))
    before(ScratchKeys, "__exit__", lambda *_: signal.raise_signal(signal.SIGTERM))

    assert run(*ARGUMENTS).exit_code == 128 + signal.SIGINT
    assert redis.keys("*") == []


def test_a_signal_that_was_ignored_is_still_ignored(redis, run, before, monkeypatch):
    kept = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    before(Engine, "hand_over", lambda _: signal.raise_signal(signal.SIGHUP))
    try:
        assert run(*ARGUMENTS).exit_code == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, kept)


@pytest.mark.parametrize("at", [1, 200, 231, 400, 531, 831, 1000, 1900])
def test_wherever_it_ends_no_key_is_left(app, redis, at):
    told = [0]

    def tick(done):
        told[0] += done
        if told[0] >= at:
            raise Interruption

    with pytest.raises(Interruption):
        bench.run(app.delayq, FEW, tick)

    assert redis.keys("*") == []


@pytest.fixture
def proxy(server):
    with Proxy(server.port) as one:
        yield one


def through(proxy):
    return f"redis://127.0.0.1:{proxy.port}/0"


@pytest.mark.parametrize("step", ["schedule", "cancel", "hand_over"])
def test_a_link_that_breaks_is_a_sentence(server, proxy, delayq_app, refused, step):
    # By then the script is known: Redis has run it once when this cuts its answer off.
    proxy.cut_after = load()[step].sha.encode()

    *_, said = refused(*ARGUMENTS, app=delayq_app(through(proxy)))

    assert said.startswith(f"Error: {step} failed: ")
    assert proxy.cuts == 1
    assert server.client().keys("*") == []


@pytest.mark.parametrize("cuts", [1, 2])
def test_clearing_up_is_tried_again(server, proxy, delayq_app, before, cuts):
    left = [cuts]

    def cut(_, step, *__):
        if step == "unlink" and left[0]:
            left[0] -= 1
            proxy.cut_after = b"UNLINK"

    before(ScratchKeys, "_send", cut)

    bench.run(delayq_app(through(proxy)).delayq, FEW, nothing)

    assert proxy.cuts == cuts
    assert server.client().keys("*") == []


def test_a_redis_that_goes_away_for_good_is_a_sentence_that_names_what_is_left(own, server, before):
    before(Engine, "hand_over", in_the_middle(server.kill))

    said = own(*ARGUMENTS, delayq_prefix="shop")

    assert re.search(r"^Error: unlink failed: .*refused", said)
    assert re.search(r"keys that begin with {shop:bench-[0-9a-f]{8}:0}: may be left in", said)


def test_clearing_up_has_a_connection_of_its_own(app, before):
    """One that was interrupted may still be about to bring the answer to something else."""
    pools = []
    before(ScratchKeys, "_send", lambda room, step, *_: pools.append((step, room._client._pool)))

    bench.run(app.delayq, FEW, nothing)

    assert pools[-1] == ("unlink", None)


@pytest.mark.parametrize("tasks", [FEW, 2000])
def test_a_redis_without_enough_memory_is_left_alone(server, own, before, tasks):
    root = server.client()
    spare = tasks * bench.ROOM_FOR_ONE - 500_000
    root.config_set("maxmemory", root.info("memory")["used_memory"] + spare)
    wrote = []
    before(Entries, "schedule", lambda *_: wrote.append(1))

    said = own("bench", "--tasks", f"{tasks}")

    assert re.fullmatch(
        rf"Error: bench failed: {tasks} waiting tasks may take {tasks * 600} bytes, and Redis has "
        r"\d+ left of its maxmemory", said,
    )  # fmt: skip
    assert (wrote, root.keys("*")) == ([], [])


def test_a_redis_that_fills_up_meanwhile_is_a_sentence(server, own, before):
    root = server.client()
    before(Entries, "schedule", in_the_middle(lambda: root.config_set("maxmemory", 1), 301))

    assert re.match(r"Error: schedule failed: .*maxmemory", own(*ARGUMENTS))
    assert root.keys("*") == []


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("due", "Error: bench failed: not all entries came out; Redis evicted some, or somebody "),
        ("records", "Error: hand-over failed: no record$"),
        ("templates", "Error: hand-over failed: template is gone$"),
    ],
)
def test_entries_that_vanish_are_not_counted_as_handed_over(redis, refused, before, key, said):
    before(Engine, "hand_over", in_the_middle(lambda: redis.delete(*redis.keys(f"*:{key}"))))

    assert re.match(said, refused(*ARGUMENTS)[-1])
    assert redis.keys("*") == []


def test_a_list_that_somebody_else_empties_is_noticed(redis, refused, before):
    before(Engine, "hand_over", in_the_middle(lambda: redis.delete(*redis.keys("*:list"))))

    assert "not all entries came out" in refused(*ARGUMENTS)[-1]


def test_an_entry_that_somebody_cancels_is_noticed(app, redis, before):
    before(Entries, "cancel", lambda *_: redis.flushall())

    with pytest.raises(StoreError, match="an entry cannot be cancelled: not_found"):
        bench.run(app.delayq, FEW, nothing)


@pytest.fixture
def as_user(server, delayq_app):
    """An app whose store's user has what the README says, and more or less than that."""

    def make(*more, broker=None):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        rule = re.search(r"^ACL SETUSER delayq on >secret (.*)$", text, re.MULTILINE)[1].split()
        root = server.client()
        root.execute_command("ACL", "SETUSER", "delayq", "reset", "on", ">secret", *rule, *more)
        return delayq_app(f"redis://delayq:secret@127.0.0.1:{server.port}/0")

    return make


def test_the_rights_that_the_readme_names_suffice(server, as_user, run):
    result = run(*ARGUMENTS, app=as_user())

    assert result.exit_code == 0, result.output
    assert "memory" not in result.output
    assert server.client().keys("*") == []


def test_what_redis_refuses_is_asked_for_once(as_user, before):
    asked = []
    before(ScratchKeys, "_allowed", lambda _, command, *__: asked.append(command))

    bench.run(as_user().delayq, FEW, nothing)

    assert asked.count("EVAL") == 1


def test_what_redis_does_not_tell_is_null(as_user):
    facts = bench.run(as_user().delayq, FEW, nothing).facts()

    assert facts["memory_bytes_per_task"] is None
    assert facts["hand_over"]["redis_busy"] is None


@pytest.mark.parametrize(
    ("right", "said"),
    [
        ("-eval", "Error: round trip failed: .*permissions to run the 'eval' command"),
        ("-unlink", "Error: bench failed: .*permissions to run the 'unlink' command.*; it takes"),
        ("-zadd", "Error: schedule failed: "),
        ("-zrem", "Error: cancel failed: "),
        ("-zremrangebyrank", "Error: hand over failed: "),
        ("-llen", "Error: (bench|schedule) failed: "),
        ("resetkeys", r"Error: bench failed: .*; it takes the rights to {delayq:bench-\w+:0}:\*$"),
    ],
)
def test_a_missing_right_is_a_sentence(server, as_user, refused, right, said):
    assert re.match(said, refused(*ARGUMENTS, app=as_user(right))[-1])
    assert server.client().keys("*") == []


def test_with_two_rights_more_redis_tells_all(as_user):
    facts = bench.run(as_user("+info", "+memory|usage").delayq, FEW, nothing).facts()

    assert facts["memory_bytes_per_task"] > 0
    assert facts["hand_over"]["redis_busy"] is not None
