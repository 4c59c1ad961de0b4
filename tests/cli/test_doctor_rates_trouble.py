"""A measurement that ends early, however it does, leaves no key behind and says why."""

import os
import re
import signal
import sys

import pytest

from celery_delayq.doctor.measure import NEEDED, ONE_BY_ONE, measure
from celery_delayq.store import Engine, Entries, ScratchKeys
from celery_delayq.store.scripts import load
from tests.cli.test_doctor_rates import FEW, nothing
from tests.faults.proxy import Proxy
from tests.support.process import ChildProcess
from tests.support.waiting import eventually
from tests.support.worker import ROOT

ARGUMENTS = ("doctor", "--rates", "--tasks", f"{FEW}")
# A process that is started in the background of a shell has SIGINT ignored, and so its children.
CELERY = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from celery.__main__ import main
sys.exit(main())
"""


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


@pytest.fixture
def process(tmp_path, server):
    """``celery -A shop delayq doctor --rates`` in a process of its own; with much to do."""
    (tmp_path / "shop.py").write_text(
        f"from celery import Celery\nfrom celery_delayq import DelayQ\n"
        f"app = Celery('shop', broker={server.url()!r})\ndelayq = DelayQ(app)\n",
        encoding="utf-8",
    )
    command = ["-A", "shop", "delayq", "doctor", "--rates", "--tasks", "1000000"]
    one = ChildProcess(
        [sys.executable, "-c", CELERY, *command], cwd=tmp_path, log=tmp_path / "log",
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    yield one
    one.kill()


def test_ctrl_c_in_a_terminal_ends_it(server, process):
    root = server.client()
    eventually(lambda: any(root.zcard(key) > 1000 for key in root.keys("*:due")), timeout=60)

    assert process.stop(signal.SIGINT) == 1
    assert process.lines == ["", "Aborted!"]
    assert root.keys("*") == []


@pytest.mark.parametrize(
    "step",
    [(Entries, "schedule"), (Entries, "cancel"), (Engine, "hand_over")],
    ids=lambda step: step[1],
)
def test_ctrl_c_ends_each_step(redis, run, before, step):
    before(*step, in_the_middle(lambda: signal.raise_signal(signal.SIGINT)))
    kept = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = run(*ARGUMENTS)
    finally:
        signal.signal(signal.SIGINT, kept)

    assert (result.exit_code, result.output.split()) == (1, ["Aborted!"])
    assert redis.keys("*") == []


@pytest.mark.parametrize("done", [1, ONE_BY_ONE + 1, 3 * ONE_BY_ONE, 3 * ONE_BY_ONE + FEW])
def test_wherever_it_ends_no_key_is_left(app, redis, done):
    told = [0]

    def progress(more):
        told[0] += more
        if told[0] >= done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(app.delayq.services, FEW, progress)

    assert redis.keys("*") == []


@pytest.fixture
def proxy(server):
    with Proxy(server.port) as one:
        yield one


def test_a_link_that_breaks_is_a_sentence(server, proxy, delayq_app, refused):
    # By then the script is known: Redis has run it once when this cuts its answer off.
    proxy.cut_after = load()["hand_over"].sha.encode()

    *_, said = refused(*ARGUMENTS, app=delayq_app(f"redis://127.0.0.1:{proxy.port}/0"))

    assert said.startswith("Error: hand over failed: ")
    assert proxy.cuts == 1
    assert server.client().keys("*") == []


@pytest.mark.parametrize("step", ["schedule", "cancel"])
def test_a_call_whose_reply_is_lost_is_asked_again(server, proxy, delayq_app, run, step):
    proxy.cut_after = load()[step].sha.encode()

    result = run(*ARGUMENTS, app=delayq_app(f"redis://127.0.0.1:{proxy.port}/0"))

    assert result.exit_code == 0
    assert proxy.cuts == 1
    assert server.client().keys("*") == []


def test_clearing_up_has_a_connection_of_its_own(app, before):
    """One that was interrupted may still be about to bring the answer to something else."""
    pools = []

    def note(own, *command, **_):
        pools.append((command[0], own._connection._pool))

    before(ScratchKeys, "execute", note)

    measure(app.delayq.services, FEW, nothing)

    assert pools[-1] == ("UNLINK", None)


def test_a_redis_that_goes_away_for_good_is_a_sentence_that_names_what_is_left(own, server, before):
    before(Engine, "hand_over", in_the_middle(server.kill))

    said = own(*ARGUMENTS, delayq_prefix="shop")

    assert re.match(r"Error: removing {shop:doctor-[0-9a-f]{8}:0}:\* failed: .*refused", said)


@pytest.mark.parametrize("tasks", [FEW, 2000])
def test_a_redis_that_would_get_full_is_left_alone(server, own, before, tasks):
    root = server.client()
    spare = tasks * NEEDED - 300_000
    root.config_set("maxmemory", root.info("memory")["used_memory"] + spare)
    wrote = []
    before(Entries, "schedule", lambda *_: wrote.append(1))

    said = own("doctor", "--rates", "--tasks", f"{tasks}")

    assert re.fullmatch(
        rf"Error: doctor failed: {tasks} tasks may take {tasks * 600} bytes, "
        r"maxmemory leaves -?\d+",
        said,
    )
    assert (wrote, root.keys("*")) == ([], [])


def test_a_redis_with_room_enough_is_measured(server, delayq_app, before):
    root = server.client()
    root.config_set("maxmemory", root.info("memory")["used_memory"] + 50_000_000)

    assert measure(delayq_app(server.url()).delayq.services, FEW, nothing).hand_over.per_second > 0


def test_a_redis_that_fills_up_meanwhile_is_a_sentence(server, own, before):
    root = server.client()
    before(Entries, "schedule",
           in_the_middle(lambda: root.config_set("maxmemory", 1), ONE_BY_ONE + 1))  # fmt: skip

    assert re.match(r"Error: schedule failed: .*maxmemory", own(*ARGUMENTS))
    assert root.keys("*") == []


@pytest.mark.parametrize(
    ("step", "key"), [((Engine, "hand_over"), "due"), ((Engine, "hand_over"), "records"),
                      ((Engine, "hand_over"), "templates"), ((Entries, "cancel"), "records")]
)  # fmt: skip
def test_entries_that_vanish_do_not_count(redis, refused, before, step, key):
    before(*step, in_the_middle(lambda: redis.delete(*redis.keys(f"*:{key}"))))

    assert refused(*ARGUMENTS)[-1] == (
        "Error: doctor failed: entries are gone; Redis or somebody else removed them"
    )
    assert redis.keys("*") == []


@pytest.fixture
def as_user(server, delayq_app):
    """An app whose store's user has what OPERATIONS.md says, and more or less than that."""

    def make(*more):
        text = (ROOT / "celery_delayq" / "OPERATIONS.md").read_text(encoding="utf-8")
        rule = re.search(r"^ACL SETUSER delayq on >secret (.*)$", text, re.MULTILINE)[1].split()
        root = server.client()
        root.execute_command("ACL", "SETUSER", "delayq", "reset", "on", ">secret", *rule, *more)
        return delayq_app(f"redis://delayq:secret@127.0.0.1:{server.port}/0")

    return make


def test_the_rights_that_the_readme_names_suffice(server, as_user, run, before):
    lengths = []
    before(Engine, "hand_over", lambda engine: lengths.append(
        server.client().llen(engine._scripts.keys["due"].replace(":due", ":list"))))  # fmt: skip

    result = run(*ARGUMENTS, app=as_user())

    assert result.exit_code == 0, result.output
    assert re.search(r"^a waiting task +unknown", result.output, re.MULTILINE)
    assert max(lengths) == 1
    assert server.client().keys("*") == []


def test_with_one_right_more_redis_tells_of_memory(as_user):
    assert measure(as_user("+memory|usage").delayq.services, FEW, nothing).memory_bytes_per_task > 0


@pytest.mark.parametrize(
    ("right", "said"),
    [
        ("-eval", "Error: doctor failed: .*permissions to run the 'eval' command"),
        ("-unlink", r"Error: doctor on {delayq:doctor-\w+:0}:\* failed: .* the 'unlink' command"),
        ("-zadd", "Error: schedule failed: "),
        ("-zrem", "Error: cancel failed: "),
        ("-zremrangebyrank", "Error: hand over failed: "),
        ("resetkeys", r"Error: doctor on {delayq:doctor-\w+:0}:\* failed: .*permissions"),
    ],
)
def test_a_missing_right_is_a_sentence(server, as_user, refused, right, said):
    assert re.match(said, refused(*ARGUMENTS, app=as_user(right))[-1])
    assert server.client().keys("*") == []
