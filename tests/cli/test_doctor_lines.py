"""Each line of the doctor: the finding, its severity, and the advice."""

import re
import time
from dataclasses import replace

import pytest
import time_machine
from kombu import Queue
from redis import UsernamePasswordCredentialProvider

from celery_delayq.contrib.care import doctor
from celery_delayq.contrib.care.access import CALLED
from celery_delayq.contrib.care.doctor import AT_THE_STORE, LEAST_WEIGHED, Patient
from celery_delayq.core.servers.risks import OK, WARNING, Line
from celery_delayq.core.store.scripts import load
from tests.app.support import FAR, LONG_AGO
from tests.operations.restricted import documented
from tests.support.places import at
from tests.support.ports import free_port
from tests.support.replicas import replicated
from tests.support.slow_link import SlowLink
from tests.support.waiting import eventually

SERVER = ("store", "replication", "eviction", "persistence", "memory", "wait for replicas")


def named(lines, name):
    [line] = [one for one in lines if one.name == name]
    return line


def ok(name, found):
    return Line(name, "ok", found)


def warning(name, found, advice):
    return Line(name, "warning", found, advice)


def error(name, found, advice):
    return Line(name, "error", found, advice)


# The store's Redis.


def test_the_first_line_is_what_it_is(app, look, redis_server):
    line = look(app, *SERVER)[0]
    version = ".".join(map(str, redis_server.version))
    assert line.level == "ok"
    assert re.fullmatch(
        rf"(Redis|Valkey) {version} at {redis_server.url()}, prefix delayq", line.found
    )


@pytest.mark.parametrize(("version", "level"), [("6.0.16", "error"), ("6.2.0", "ok")])
def test_a_redis_that_is_too_old_is_an_error(app, look, version, level):
    patient = Patient(app.delayq.services)
    patient.server = type(patient.server)({"server": "redis", "version": version}, {}, {})
    [line] = AT_THE_STORE[0].lines(patient)
    patient.close()
    assert line.level == level
    assert ("; 6.2 or later is needed" in line.found) == (level == "error")


def test_each_fact_that_redis_does_not_report_has_a_line(as_user, look):
    app = as_user("+@all", "-info", "-config")
    unknown = "is unknown: the store's Redis does not report it to this user"
    grant = "ask its administrator, or grant +info"

    assert look(app, *SERVER)[1:] == [
        warning("replication", f"whether it has replicas {unknown}", grant),
        warning("eviction", f"its maxmemory-policy {unknown}", grant),
        warning(
            "persistence",
            f"whether a restart loses waiting tasks {unknown}",
            f"{grant} and +config|get",
        ),
        warning("memory", f"how much memory is left {unknown}", grant),
    ]


def test_a_worker_s_start_and_the_doctor_say_the_same(start_redis, delayq_app, look):
    app = delayq_app(start_redis("--maxmemory-policy", "allkeys-lru").url())
    [shard_steps] = app.delayq.services.steps_by_shard()
    warned = shard_steps.risks()
    shard_steps.close()
    assert warned == [line for line in look(app, *SERVER) if line.level != "ok"]
    assert len(warned) == 2


def test_the_room_that_is_left_is_by_what_tasks_take_here(app, look, redis):
    assert named(look(app, *SERVER), "memory").found.endswith(", at 460 bytes each")
    for number in range(100):
        app.send_task("t", (f"{number:0100}",), delayq_at=FAR)
    found = named(look(app, *SERVER), "memory").found
    assert int(re.search(r", at a measured (\d+) bytes each$", found)[1]) > 460


@pytest.mark.parametrize(
    ("wanted", "rights", "said"),
    [
        ((1, 0.5), "+@all", " 1, and 0 are there: each call waits 0.5 s in vain"),
        ((2, 1), "-wait", " 2, and this Redis, or its user, knows no WAIT: no call waits"),
        ((1, 1), "-info", " 1, and 0 of them had a write in time: each call may wait 1 s"),
    ],
)
def test_replicas_that_are_waited_for_are_looked_for(as_user, look, wanted, rights, said):
    app = as_user("+@all", rights, delayq_wait_replicas=wanted)
    line = named(look(app, *SERVER), "wait for replicas")
    assert line.found == f"delayq_wait_replicas asks for{said}"
    assert line.level == "warning"
    assert line.advice


def test_replicas_whose_files_are_waited_for_are_looked_for_too(app, look, redis_server):
    app.conf.delayq_wait_replicas = (1, 0.5, "aof")
    knows = "valkey" in redis_server.binary or redis_server.version >= (7, 2)

    line = named(look(app, *SERVER), "wait for replicas")

    said = (
        "0 are there: each call waits 0.5 s" if knows else "this Redis, or its user, knows no WAI"
    )
    assert line.level == "warning"
    assert line.found.startswith(f"delayq_wait_replicas asks for 1, and {said}")
    assert line.advice.startswith("bring " if knows else "grant +waitaof, ")


def test_a_replica_that_keeps_up_is_counted_and_one_that_hangs_is_not(delayq_app, look):
    with replicated(1) as servers:
        app = delayq_app(servers.master.url(), delayq_wait_replicas=(1, 0.5))

        def line():
            return named(look(app, *SERVER), "wait for replicas")

        asks = "delayq_wait_replicas asks for 1, and"
        eventually(lambda: line() == ok("wait for replicas", f"{asks} 1 is there"))
        assert servers.client.keys("*") == []

        servers.replicas[0].pause()
        # For a minute, Redis regards it as a replica that keeps up.
        assert line() == warning(
            "wait for replicas",
            f"{asks} 0 of them had a write in time: each call may wait 0.5 s",
            "check the replicas' logs and their links to the master",
        )
        servers.replicas[0].resume()


# Rights.


@pytest.fixture
def as_documented(each_redis, delayq_app):
    """An app whose store's user has the documented rights, and those of the doctor."""

    def make(*, without="", redis=each_redis):
        both = [*documented(), *documented(doctor=True)]
        rule = [right for right in both if right != without]
        redis.client().execute_command("ACL", "SETUSER", "delayq", "reset", *rule, "~celery*")
        return delayq_app(redis.url().replace("//", "//delayq:secret@"))

    return make


@pytest.fixture
def tells(each_redis):
    """Whether the server knows ACL DRYRUN."""
    return each_redis.version >= (7,)


UNKNOWN = ok(
    "rights",
    "unknown: this needs Redis 7 or Valkey, and a user with +acl|whoami +acl|dryrun; a step "
    "that lacks a right names it",
)
ENOUGH = ok(
    "rights", "its user has all rights: every command of its scripts, every key, every queue's list"
)


def test_the_documented_rights_are_enough(as_documented, tells, look):
    assert look(as_documented(), "rights") == [ENOUGH if tells else UNKNOWN]


@pytest.mark.parametrize("right", [one for one in documented() if one.startswith("+")])
def test_each_right_is_named_if_it_is_missing(as_documented, tells, look, right):
    # A connection works without a name; without the other two, the doctor cannot check anything.
    lines = [] if right in ("+client|setname", "+ping", "+select") else [right]
    found = look(as_documented(without=right), "rights")
    advice = [f"ACL SETUSER delayq {one}" for one in lines] if tells else []
    assert [line.advice for line in found if line.advice] == advice


@pytest.mark.parametrize("right", ["", *documented(doctor=True)])
def test_the_doctor_s_rights_tell_it_all_and_each_is_needed(
    as_documented, redis_server, redis_url, look, right
):
    app = as_documented(without=right, redis=redis_server)
    app.delayq.schedule_many(app.signature("t"), [((), {})] * LEAST_WEIGHED, after=600)

    parts = ("replication", "eviction", "persistence", "memory", "rights", "other stores")
    found = look(app, *parts)

    known = {line.name for line in found if "unknown" not in line.found}
    is_weighed = "a measured" in named(found, "memory").found
    assert (len(known) == 6 and is_weighed) == (right == "")


def test_the_doctor_checks_the_commands_that_scripts_call():
    names = [name for names in CALLED.values() for name in names.split()]
    texts = [script.text for script in load().values()]
    called = {name for text in texts for name in re.findall(r"redis\.p?call\('(\w+)'", text)}
    assert sorted([*names, "PUBLISH", "TIME"]) == sorted(called)


def test_asking_runs_nothing(app, look, redis):
    look(app, "rights")
    assert redis.keys("*") == []
    assert redis.pubsub_channels() == []


def test_each_missing_right_is_named_with_the_rule_that_grants_it(as_user, look):
    no = "this Redis does not let its user run"

    assert look(as_user("+@all", "-zadd", "-hset", "-publish"), "rights") == [
        error(
            "rights",
            f"{no} hset, zadd: a step that needs it stops half-way",
            "ACL SETUSER u +hset +zadd",
        ),
        warning(
            "rights",
            f"{no} publish: scanners are not woken, so tasks may be late by 5 s",
            "ACL SETUSER u +publish",
        ),
    ]


def test_a_user_whom_a_provider_names_is_known_to_redis(as_user, redis_server, delayq_app, look):
    as_user("+@all", "-zadd")
    login = {"credential_provider": UsernamePasswordCredentialProvider("u", "p")}
    app = delayq_app(redis_server.url(), broker_transport_options=login)
    assert [line.advice for line in look(app, "rights")] == ["ACL SETUSER u +zadd"]


def test_lists_keys_and_channels_are_named_too(as_user, look):
    keys = ["resetkeys", "~{delayq:0}:[^dr]*", "~{delayq:0}:rules*", "~mail", "resetchannels"]
    app = as_user("+@all", *keys, task_queues=[Queue("mail"), Queue("post"), Queue("bills")])
    user, grant = "this Redis does not let its user", "ACL SETUSER u"

    assert look(app, "rights") == [
        warning(
            "rights",
            f"{user} use the channels of scanners: they are not woken, so tasks may be late by 5 s",
            f"{grant} &{{delayq:*}}:*",
        ),
        error(
            "rights",
            f"{user} use the store's keys: {{delayq:0}}:due, {{delayq:0}}:relay, "
            "{delayq:0}:refused and 3 more",
            f"{grant} ~{{delayq:*}}:*",
        ),
        error("rights", f"{user} push to post, bills: due tasks wait", f"{grant} ~post ~bills"),
        warning(
            "rights",
            f"{user} push to the lists of mail, post, bills for priorities: their due tasks wait",
            f"{grant} ~mail* ~post* ~bills*",
        ),
    ]


@pytest.mark.parametrize(
    ("rule", "options", "advice"),
    [
        (["~celery"], {}, ["~celery*"]),
        (["~celery*"], {}, []),
        (["~celery"], {"priority_steps": [0]}, []),
        (["~celery"], {"priority_steps": [0, 5], "sep": ":"}, ["~celery*"]),
        (["~celery", "~celery:5"], {"priority_steps": [0, 5], "sep": ":"}, []),
        (["~celery"], {"priority_steps": [5, 6]}, ["~celery*", "~celery*"]),
        (["~celery*"], {"global_keyprefix": "x."}, ["~x.celery", "~x.celery*"]),
    ],
)
def test_a_queue_is_named_if_the_list_of_one_priority_is_refused(
    as_user, look, rule, options, advice
):
    store = ["+@all", "resetkeys", "~{delayq:*}:*"]
    app = as_user(*store, *rule, broker_transport_options=options)
    found = look(app, "rights")
    levels = ["error", "warning"][-len(advice) :] if advice else ["ok"]
    told = [f"ACL SETUSER u {one}" for one in advice] or [""]
    assert [(one.level, one.advice) for one in found] == [*zip(levels, told, strict=True)]


def test_the_queues_of_another_broker_are_none_of_the_store_s(as_user, delayq_app, url, look):
    as_user("+@all", "resetkeys", "~{delayq:*}:*")
    app = delayq_app(url, delayq_url=url.replace("//", "//u:p@")[:-1] + "5")
    [line] = look(app, "rights")
    assert line.level == "ok"
    assert line.found.endswith("every command of its scripts, every key")


def test_a_user_without_any_right_is_no_crash(as_user, run):
    result = run("doctor", app=as_user("-@all"))
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert "ok       rights             unknown: this needs Redis 7 or Valkey, " in result.output
    assert "error    round trip         the store's Redis refused to answer: " in result.output


# Round trip, clocks.


def test_a_link_that_is_slow_is_warned_of(delayq_app, redis_server, redis, look):
    with SlowLink(redis_server.port, seconds=0.006) as link:
        [line] = look(delayq_app(f"redis://127.0.0.1:{link.port}/0"), "round trip")

    found = re.sub(r"[\d.]+ ms", "N ms", line.found)
    assert replace(line, found=found) == warning(
        "round trip",
        "N ms, and N ms at worst, of 20 calls: each call and each delivery waits that long",
        "run callers and workers nearer to the store's Redis; schedule many tasks in bulk",
    )


@pytest.mark.parametrize(("off", "which"), [(-3600, "ahead of"), (3600, "behind")])
def test_a_clock_that_is_wrong_is_warned_of(app, look, off, which):
    with time_machine.travel(time.time() + off, tick=True):
        [line] = look(app, "clock")

    seconds = re.search(r"is ([\d,.]+) s", line.found)[1]
    assert float(seconds.replace(",", "")) == pytest.approx(3600, abs=5)
    assert line == warning(
        "clock",
        f"Redis's clock is {seconds} s {which} this machine's: due times go by Redis's clock "
        "alone, but a caller's clock computes a captured eta, and a worker's checks expires",
        "synchronize both machines by NTP",
    )


def test_clocks_that_agree_are_ok(app, look):
    [line] = look(app, "clock")
    assert line.level == "ok"
    assert re.fullmatch(r"Redis's and this machine's agree within \d\.\d{3} s", line.found)


# Scanners, and agreement between them.


def test_scanners_are_counted_and_their_hosts_are_named(app, look, alive, monkeypatch):
    for number in range(3):
        monkeypatch.setattr("socket.gethostname", lambda n=number: f"web{n // 2}")
        alive(app)
    app.send_task("t", delayq_at=FAR)

    agreement, beginning, *others = look(app, "scanners")

    agreed = "all processes on this store agree on its layout, shards and broker"
    assert agreement == ok("agreement", agreed)
    assert re.fullmatch(r"the store began [\d a-z]+ ago", beginning.found)
    assert others == [
        ok("scanners", "3 alive, on web0, web1"),
        ok("overdue", "none by more than 60 s, of 1 waiting"),
        ok("refused", "none"),
        ok("dead", "none"),
        ok("pauses", "nothing is paused"),
    ]


def test_overdue_and_dead_tasks_are_reported_as_health_reports_them(app, look):
    at(app.delayq, "dead")
    app.send_task("t", delayq_at=LONG_AGO)

    found = look(app, "scanners")

    # A second may have passed meanwhile.
    wrong = [line for line in found if line.level != "ok"]
    said = [re.sub(r"by [\d, dhmins]+", "", line.found) for line in wrong]
    told = [re.sub(r"by [\d, dhmins]+", "", one) for one in app.delayq.health()]
    assert said == [told[0].partition("; ")[0], *told[1:]]
    levels = {line.name: line.level for line in wrong}
    assert levels == {"scanners": "error", "overdue": "error", "dead": "warning"}
    assert named(wrong, "dead").advice == (
        "celery -A proj delayq list --dead says why; retry or remove them"
    )


def pauses(look, app):
    """The lines on pauses, with each time as T."""
    times = r"since [\d-]+ [\d:]+ UTC|first for \d+ s"
    told = [line for line in look(app, "scanners") if line.name == "pauses"]
    return [replace(line, found=re.sub(times, "T", line.found)) for line in told]


def test_a_pause_is_a_warning_at_once(app, look):
    assert pauses(look, app) == [ok("pauses", "nothing is paused")]
    app.delayq.pause(queue="mail\x1b")
    none_due = r"queue mail\x1b is paused T: no paused task is due"
    resume = r"to resume: celery -A proj delayq resume --queue 'mail\x1b'"
    assert pauses(look, app) == [warning("pauses", none_due, resume)]

    app.delayq.pause(all=True)
    app.delayq.resume(queue="mail\x1b")
    app.send_task("t", delayq_at=LONG_AGO)

    one_due = "everything is paused T: 1 task is due and not delivered, the T"
    resume = "to resume: celery -A proj delayq resume --all"
    assert pauses(look, app) == [warning("pauses", one_due, resume)]


def test_a_task_that_comes_back_from_one_pause_is_not_due_in_another(app, look):
    for _ in range(4):  # the last one's turn is in 4000 s
        app.send_task("t", queue="mail", delayq_at=LONG_AGO)
    app.delayq.pause(queue="mail")
    app.delayq.hand_over()
    app.delayq.resume(queue="mail", rate=0.001)
    app.delayq.pause(queue="the reports")

    back, line = pauses(look, app)

    assert app.delayq.counts().paused == 4
    assert line.found == "queue the reports is paused T: no paused task is due"
    assert back == warning(
        "pauses",
        "queue mail comes back at 0.001 a second: 4 tasks left, the last one's turn is in "
        "1 h 6 min",
        "to resume at once: celery -A proj delayq resume --queue mail",
    )
    app.send_task("t", queue="the reports", delayq_at=LONG_AGO)
    _, line = pauses(look, app)
    assert ": 1 task is due and not delivered, the T" in line.found
    assert line.advice.endswith("resume --queue 'the reports'")


def test_processes_that_do_not_agree_are_an_error(app, delayq_app, redis, look, alive):
    alive(app)
    other = delayq_app("memory://", delayq_url=app.conf.broker_url)
    other = named(look(other, "scanners"), "agreement")
    redis.hset("{delayq:0}:meta", mapping={"schema": "999", "shards": "1"})
    [layout] = look(app, "scanners")
    assert [line.level for line in (other, layout)] == ["error", "error"]
    assert other.advice == "give each app a delayq_prefix of its own, or both the same broker_url"
    assert layout.advice == "give it a delayq_prefix of its own, or make all processes agree"


# The broker.


def test_the_store_s_own_redis_is_asked_nothing(app, look):
    said = "the store's own Redis: a script moves a task into its queue"
    assert look(app, "broker") == [ok("broker", said)]


def test_another_redis_is_reached(start_redis, delayq_app, url, look):
    server = start_redis()
    said = f"redis, database 0 on 127.0.0.1:{server.port} is up, and it answers each push"
    assert look(delayq_app(server.url(), delayq_url=url), "broker") == [ok("broker", said)]


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_a_broker_that_is_away_is_an_error(delayq_app, url, look, scheme):
    port = free_port()
    [line] = look(delayq_app(f"{scheme}://127.0.0.1:{port}/0", delayq_url=url), "broker")
    assert (line.name, line.level) == ("broker", "error")
    assert f" on 127.0.0.1:{port} accepts no messages, so due tasks wait: " in line.found
    assert line.advice == "check that it runs, and that broker_url is right"


def test_the_line_of_a_broker_whose_transport_confirms_nothing_says_so(delayq_app, url, look):
    [line] = look(delayq_app("memory://", delayq_url=url), "broker")
    assert line.level == "ok"
    assert line.found.endswith("is up, and celery_delayq cannot check whether it keeps messages")


# The doctor's line for unique keys whose tasks are lost.


RUNS = [(OK, "workers have the tasks of 1 held key", "")]


@pytest.fixture
def heard(monkeypatch):
    """The answers of workers; at first one that has no task."""
    told = {"w": {}}
    monkeypatch.setattr("celery.app.control.Inspect._request", lambda *_, **__: told)
    return told


@pytest.fixture
def held(app):
    """A delivered task that holds a key until it has finished, and its message in the queue."""
    result = app.delayq.schedule(app.signature("t"), after=0, key="k", unique_until="finished")
    app.delayq.hand_over()
    return result


def of_keys(app):
    return [(line.level, line.found, line.advice) for line in doctor.held_keys(app.delayq.services)]


def test_a_task_that_was_purged_is_named_with_the_way_out(app, held, heard, redis):
    until = app.delayq.holder(key="k").until
    redis.delete("celery")

    found = (
        f"task {held.id} holds the key k until {until:%Y-%m-%d %H:%M} UTC, and neither a worker "
        "nor the broker has that task"
    )
    assert of_keys(app) == [(WARNING, found, "if it does not run: celery -A proj delayq free k")]


def test_further_keys_are_counted_after_some(app, heard, redis, limits):
    limits(doctor_keys=1)
    for key in "abc":
        app.delayq.schedule(app.signature("t"), after=0, key=key, unique_until="finished")
    app.delayq.hand_over()
    redis.delete("celery")
    assert of_keys(app)[1:] == [(WARNING, "so do 2 more tasks", "the same")]


@pytest.mark.parametrize(
    ("is_purged", "arrange", "lines"),
    [
        (False, lambda **_: None, []),
        (True, lambda redis, **_: redis.hset("unacked", "tag", "a message of no worker"), []),
        (True, lambda heard, task_id, **_: heard["w"].update({task_id: ["active", {}]}), RUNS),
        (True, lambda heard, **_: heard.clear(), []),
    ],
    ids=["its message waits", "its message comes again", "a worker has it", "a worker is silent"],
)
def test_a_key_whose_task_still_comes_or_runs_is_not_named(  # noqa: PLR0917
    app, held, heard, redis, is_purged, arrange, lines
):
    if is_purged:
        redis.delete("celery")
    arrange(redis=redis, heard=heard, task_id=held.id)
    assert of_keys(app) == lines


@pytest.mark.usefixtures("held")
def test_a_key_whose_task_finishes_meanwhile_is_not_named(app, heard, redis, monkeypatch):
    redis.delete("celery")
    finishing = lambda *_, **__: app.delayq.free(key="k") and heard  # noqa: E731
    monkeypatch.setattr("celery.app.control.Inspect._request", finishing)
    assert of_keys(app) == RUNS


def test_a_key_that_is_held_for_a_time_is_held_without_a_run(app, heard, redis):
    app.delayq.schedule(app.signature("t"), after=0, key="k", unique_for=3600)
    app.delayq.hand_over()
    redis.delete("celery")
    app.delayq.schedule(app.signature("t"), at=FAR, key="waits", unique_until="finished")
    assert of_keys(app) == []


def test_on_rabbitmq_the_broker_tells_how_many_messages_it_has(
    delayq_app, url, rabbitmq_server, heard
):
    app = delayq_app(rabbitmq_server.url, delayq_url=url, task_default_queue="held-keys")
    app.delayq.schedule(app.signature("t"), after=0, key="k", unique_until="finished")
    app.delayq.hand_over()
    assert of_keys(app) == []
    app.control.purge()
    assert [level for level, *_ in of_keys(app)] == [WARNING]
