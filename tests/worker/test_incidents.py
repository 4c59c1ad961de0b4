"""Incidents at three in the morning: a tool or one line of the log names each cause.

Each test sets up a system that is broken in one common way, and does what an engineer on call
does: run `health`, `doctor`, `status` and `show`, and read the log.
"""

import socket
from contextlib import contextmanager
from uuid import uuid4

import pytest
from kombu import Queue

from celery_delayq import __version__
from celery_delayq.contrib.metrics import Collector
from celery_delayq.contrib.web import wsgi
from celery_delayq.errors import StoreFull
from celery_delayq.operations import queues
from celery_delayq.operations import queues as workers
from tests.app.conftest import alive, delayq_app, redis, redis_client, url
from tests.app.support import FAR, LONG_AGO
from tests.cli.conftest import project, run
from tests.support.ports import free_port
from tests.support.shards import each
from tests.support.waiting import eventually
from tests.web.conftest import Browser

__all__ = ["alive", "delayq_app", "project", "redis", "redis_client", "run", "url"]

pytestmark = pytest.mark.libraries


@pytest.fixture
def app(delayq_app, url):
    # A scanner that delivers once stays alive for three of these intervals.
    return delayq_app(url, delayq_safety_interval=300.0)


@pytest.fixture
def told(run, limits):
    """A command's exit status, and its output as one line."""
    limits(workers_answer_s=0.05)

    def told(app, *command):
        done = run(*command, app=app)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, " ".join(done.output.split())

    return told


@pytest.fixture
def says(told):
    """Check that a command ends with status 1, and prints each of these texts."""

    def says(app, command, *texts):
        status, said = told(app, *command.split())
        assert status == 1
        for text in texts:
            assert text in said
        return said

    return says


@pytest.fixture
def scanning(delayq_app, url):
    """Let a scanner run in this process."""

    @contextmanager
    def scanning():
        scanner = delayq_app(url, delayq_safety_interval=2).delayq.scanner()
        scanner.start()
        try:
            yield
        finally:
            scanner.stop()

    return scanning


@pytest.fixture(scope="module")
def shop(standing):
    """A worker and its project."""
    project = standing("-P", "threads", "-c", "1")
    eventually(lambda: project.delayq.counts().scanners)
    return project


@pytest.fixture
def patient(limits, told):
    """Give workers enough time to reply, and let callers warn as usual."""
    limits(silent_ms=60_000, workers_answer_s=1.0)


@pytest.fixture
def doctor_of(told, patient):
    """The doctor's findings, once workers have answered in time for this one."""

    def doctor_of(app, found):
        return eventually(lambda: said if found in (said := told(app, "doctor"))[1] else None)

    return doctor_of


def age_pauses(redis, seconds):
    """Let all pauses have begun so many seconds earlier."""
    for key in each("paused"):
        for lane, text in redis.hgetall(key).items():
            state, late, since, rest = text.split(b":", 3)
            earlier = b"%d" % (int(since) - seconds * 1_000_000)
            redis.hset(key, lane, b":".join([state, late, earlier, rest]))


def fill(app):
    for number in range(1000):
        app.send_task("t", ("x" * 50_000,), task_id=f"{number}", delayq_at=FAR)


def test_4_tasks_wait_for_a_queue_that_no_worker_listens_to(shop, told, patient):
    shop.tasks["note"].apply_async(task_id="a", queue="mails", delayq_at=FAR)

    said = "no worker listens to the queue mails, for which 1 task waits ("
    named_and_advised(told, shop.app, said, "start a worker with -Q mails, or correct the name")
    shop.delayq.cancel("a")
    # A worker without CPU time for its heartbeat may look dead for a moment.
    eventually(lambda: told(shop.app, "health") == (0, "healthy"))


def named_and_advised(told, app, said, advice):
    """Check what health and the doctor say, once the worker answers in time to be known."""
    [(status, health)] = eventually(
        lambda: [one for one in [told(app, "health")] if "no worker listens" in one[1]]
    )
    assert (status, said in health) == (1, True)
    eventually(lambda: advice in told(app, "doctor")[1])


def test_4_a_busy_worker_may_listen_although_workers_of_another_app_answer(app, alive):
    app.send_task("t", queue="mails", delayq_at=FAR)
    alive(app)
    theirs, ours = [{"name": "theirs"}], [{"name": app.conf.task_default_queue}]
    here = f"celery@{socket.gethostname()}"

    def unheard(heard):
        return workers.unheard_queues(app.delayq.services, heard)

    assert unheard({"celery@away": theirs}) == []
    assert len(unheard({"celery@away": theirs, "celery@own": ours})) == 1
    assert len(unheard({here: [{"name": "of this app, and with -Q"}]})) == 1


def test_4_many_queues_without_a_worker_are_counted(app, alive):
    for number in range(workers.MOST_NAMED + 2):
        app.send_task("t", queue=f"queue-{number}", delayq_at=FAR)
    alive(app)
    heard = {"celery@own": [{"name": app.conf.task_default_queue}]}

    *named, rest = workers.unheard_queues(app.delayq.services, heard)

    assert len(named) == workers.MOST_NAMED
    assert rest.sentence.startswith("no worker listens to 2 more queues for which tasks wait")


@pytest.mark.parametrize("command", ["show a", "cancel a"])
def test_5_a_task_was_skipped_as_too_late(app, alive, says, command):
    app.send_task("t", task_id="a", delayq_at=LONG_AGO, delayq_late="skip", delayq_grace=60)
    alive(app)

    skipped = "task a was skipped, as it was overdue by more than its grace period, "
    says(app, command, skipped, " ago (")


def test_6_the_store_is_at_its_maxmemory(start_redis, delayq_app, alive, says):
    server = start_redis("--maxmemory", "3mb")
    app = delayq_app(server.url())
    alive(app)
    with pytest.raises(StoreFull):
        fill(app)
    # How much is used goes up and down with the buffers of connections.
    with server.client() as client:
        client.config_set("maxmemory", "2mb")

    advice = "raise maxmemory, or delete data that you do not need"
    says(app, "health", "the store's Redis is full (", advice)
    says(app, "doctor", "error memory the store's Redis is full (")


def test_6_the_store_evicts_and_deleted_tasks(start_redis, delayq_app, alive, told, says):
    server = start_redis("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    app = delayq_app(server.url())
    alive(app)
    found = "the store's Redis deletes waiting tasks when its memory is full"
    why = "as its maxmemory-policy is allkeys-lru"

    says(app, "health", f"{found}, {why}; set noeviction")
    with server.client() as client:
        client.set("another's", "x" * 3_000_000)
        client.config_set("maxmemory", client.info("memory")["used_memory"] - 2_000_000)
        client.set("needs", "room")
        assert client.info("stats")["evicted_keys"]
        client.config_set("maxmemory", "100mb")
    says(app, "health", f"{found} (", f" deleted so far), {why}; set noeviction")
    says(app, "doctor", f"error eviction {found} (")

    with server.client() as client:
        client.config_set("maxmemory", 0)
    assert found not in told(app, "health")[1]


def test_16_the_store_was_emptied_while_a_scanner_was_at_work(  # noqa: PLR0917
    app, scanning, redis, told, says, caplog
):
    def healthy():
        eventually(lambda: told(app, "health") == (0, "healthy"))

    app.send_task("t", task_id="a", delayq_at=FAR)
    why = ": its Redis was emptied or lost its data, and tasks that waited before are gone; find"

    with scanning():
        healthy()
        redis.flushdb()
        eventually(lambda: why in told(app, "health")[1])
        says(app, "doctor", "error beginning this store began")
        assert why in told(app, "status")[1]
        page = Browser(wsgi(app.delayq, allow=lambda _: "read")).get()
        found, _, _ = why.partition(";")
        assert (found in page.text, page.title[:21]) == (True, "not delivered in time")
        assert len([one for one in caplog.messages if why in one]) == 1
    with scanning():
        healthy()


@pytest.fixture
def limited(redis_server, delayq_app, redis):
    """An app whose Redis user has no rights to keys but the store's and Celery's own."""
    keys = ["~{delayq:*}:*", "~celery*", "~_kombu*", "~*pidbox*"]
    redis.execute_command("ACL", "SETUSER", "u", "reset", "on", ">p", "&*", "+@all", *keys)
    return delayq_app(redis_server.url().replace("//", "//u:p@"))


def test_7_the_redis_user_has_no_right_to_a_queue(limited, app, says):
    # Only the app that sends there knows the queue.
    app.send_task("t", task_id="a", queue="sms", delayq_at=FAR)

    says(limited, "doctor", "push to sms: due tasks wait -> ACL SETUSER u ~sms")


def test_8_one_process_does_not_capture(app, says):
    says(
        app,
        "show a",
        "task a is not scheduled in redis",
        "sent with an eta may be held by a worker: celery -A proj inspect scheduled",
        "cancel ID --revoke drops it",
    )


def test_9_the_web_schedules_in_another_store_than_the_workers_have(
    shop, delayq_app, told, doctor_of, caplog
):
    there = shop.server.url(5)
    web = delayq_app(shop.server.url(), task_default_queue=shop.queue, delayq_url=there)

    web.send_task("note", delayq_at=FAR)
    # One that is late with its answer is named, too: as without DelayQ.
    found = f"worker {shop.worker.name} has the store {shop.server.url()}, prefix"
    status, doctor = doctor_of(web, found)

    assert f"no scanner is alive in the store {there}, prefix delayq" in caplog.text
    assert status == 1
    assert f"this app has {there}, prefix delayq" in doctor
    assert "give both the same delayq_url and delayq_prefix" in doctor
    assert f"is not scheduled in {there} (prefix delayq)" in told(web, "show", "a")[1]


def test_11_a_pause_was_forgotten(app, redis, alive, told, says):
    app.delayq.pause(queue="mail")
    for _ in range(50):
        app.send_task("t", (), queue="mail", delayq_at=LONG_AGO)
    alive(app)
    age_pauses(redis, 900)

    due = "50 tasks are due and not delivered, the first for 15 min"
    says(app, "health", f": {due}", ", and 600 s are allowed; to resume: celery -A ")
    says(app, "doctor", "error pauses queue mail is paused since", "delayq resume --queue mail")
    assert "the first for 15 min" in Browser(wsgi(app.delayq, allow=lambda _: "read")).get().text


def test_12_a_worker_of_the_app_was_started_without_the_package(shop, start_worker, doctor_of):
    plain = start_worker("tests.worker.plain", env=shop.env)

    # Celery's command loads the package's commands, so this worker answers; see the next test.
    said = f"worker {plain.name} listens to this app's queues, and cannot use a store: "
    doctor = doctor_of(shop.app, f"warning workers {said}")[1]

    assert "has no DelayQ" in doctor
    assert "ok workers" not in doctor
    assert "they use this store" not in doctor


def test_12_a_worker_of_another_release_or_without_an_answer_is_named(app):
    queues = [{"name": app.conf.task_default_queue}]
    heard = {"old": queues, "new": queues, "none": queues, "theirs": [{"name": "theirs"}]}
    told = {"old": {"version": "0.0.1"}, "new": {"version": __version__}}

    none, old = workers.strangers(app.delayq.services, told, heard)

    assert none.found.startswith("worker none listens to this app's queues, and does not answer ")
    assert old.found == f"worker old has celery_delayq 0.0.1, this process {__version__}"


def test_13_a_task_was_delivered_to_a_queue_that_no_worker_listens_to(shop, told, patient):
    result = shop.tasks["note"].apply_async(queue="letters", delayq_after=0)
    eventually(lambda: shop.delayq.handed_over(result.id))

    said = "the queue letters, which has 1 message, delivered tasks among them ("
    named_and_advised(told, shop.app, said, "start a worker with -Q letters, or correct the name")
    shop.client.delete("letters")
    eventually(lambda: told(shop.app, "health") == (0, "healthy"))


def test_13_messages_that_this_store_did_not_deliver_are_not_named(app, delayq_app, url):
    other = delayq_app(url, delayq_prefix="other")
    for one, queue in ((app, "ours"), (other, "theirs")):
        one.send_task("t", queue=queue, delayq_after=0)
        one.delayq.hand_over()
        one.send_task("t", queue=f"{queue}-plain")
    asking = delayq_app(url)  # Celery adds a queue to the app that sends to it

    assert queues.delivered(asking.delayq.services) == {"ours": 1}


def test_13_on_rabbitmq_a_task_was_delivered_to_a_queue_without_a_consumer(
    delayq_app, url, rabbitmq_server, says, alive
):
    queue = f"letters-{uuid4()}"
    app = delayq_app(rabbitmq_server.url, delayq_url=url, task_queues=[Queue(queue)])
    app.send_task("t", queue=queue, delayq_at=LONG_AGO)
    app.send_task("t", queue=f"nowhere-{uuid4()}", delayq_at=FAR)  # RabbitMQ does not know it
    alive(app)
    app.delayq.hand_over()

    heard = f"no worker listens to the queue {queue}, which has 1 message, by the"
    for command in ("health", "doctor"):
        said = says(app, command, heard, f"start a worker with -Q {queue}, or correct the name")
        assert "queue nowhere" not in said


def test_13_a_probe_is_cheap_beside_many_keys_and_finds_the_lists_that_it_knows(
    start_redis, delayq_app, alive, says, monkeypatch
):
    own = start_redis()  # threads of earlier tests may still ask the suite's Redis
    app, redis = delayq_app(own.url(), delayq_safety_interval=300.0), own.client()
    redis.mset({f"foreign-{number}": "" for number in range(20_000)})
    app.send_task("t", delayq_at=LONG_AGO)
    alive(app)
    listens_elsewhere(monkeypatch)
    redis.config_resetstat()

    says(app, "health", "no worker listens to the queue celery, which has 1 message")

    found = redis.info("commandstats")
    assert found["cmdstat_scan"]["calls"] <= 2 * (queues.FEW_KEYS // queues.SLICE) + 1
    assert sum(one["calls"] for one in found.values()) < 150


def test_13_the_page_and_a_metric_tell_of_it_too(app, alive, monkeypatch):
    app.send_task("t", delayq_at=LONG_AGO)
    alive(app)
    listens_elsewhere(monkeypatch)
    page, collector = Browser(wsgi(app.delayq, allow=lambda _: "read")), Collector(app.delayq)

    def counted():
        found = {one.name: one for one in collector.collect()}
        known = found.get("celery_delayq_unread_queues")
        return known and [one.value for one in known.samples]

    said = "No worker listens to the queue celery, which has 1 message"
    eventually(lambda: said in page.get().text)
    eventually(lambda: counted() == [1])


def test_13_what_is_unknown_is_no_number(delayq_app):
    away = delayq_app(f"redis://127.0.0.1:{free_port()}/0", delayq_timeout=0.5)
    look = queues.Look(away.delayq.services, 0.01)
    for _ in range(3):
        assert look() is None


def listens_elsewhere(monkeypatch):
    """The only worker listens to another queue."""
    heard = {f"w@{socket.gethostname()}": [{"name": "other"}]}
    monkeypatch.setattr("celery.app.control.Inspect._request", lambda *_, **__: heard)


def test_16_workers_tell_which_tasks_they_have_as_the_line_of_held_keys_asks(shop, patient):
    held = shop.tasks["end"].delay("succeed")
    shop.wait_runs(held)
    services = shop.delayq.services

    def told():
        heard = workers.answers(services, "query_task", ids=[held.id, "another"])
        return [task_id for one in heard.values() for task_id in one]

    eventually(lambda: told() == [held.id])
    shop.let_go(held)
    eventually(lambda: told() == [])


def test_14_the_web_schedules_with_another_prefix_than_the_workers_have(
    app, delayq_app, alive, told, says
):
    url = app.conf.broker_url
    web = delayq_app(url, delayq_prefix="wev")
    web.send_task("t", delayq_at=FAR)
    delayq_app(url, delayq_prefix="theirs").send_task("t", queue="theirs", delayq_at=FAR)
    alive(app)

    found = "1 task waits in another store in this Redis, with the prefix wev, in"
    advice = "give that process and the workers the same delayq_prefix"
    for command in ("health", "doctor"):
        assert "theirs" not in says(app, command, found, advice)
    alive(web)
    assert told(app, "health") == (0, "healthy")


@pytest.fixture
def restored(app, delayq_app, url, limits):
    """An app with a hundred due tasks of a dump; a count looks at thirty of them."""
    limits(overdue_seen=30)
    for _ in range(100):
        app.send_task("t", delayq_at=LONG_AGO)
    restored = delayq_app(url, delayq_prefix="restored")
    restored.delayq.load(app.delayq.dump(), paused=True)
    return restored


def test_15_more_tasks_of_a_backup_are_due_than_a_count_looks_at(restored, alive, told):
    page = Browser(wsgi(restored.delayq, allow=lambda _: "read"))

    # This one is exact; the others say that they are not.
    assert "70 more; --limit ends" in told(restored, "list", "--state", "paused", "-n", "30")[1]
    said = "at least 30 are paused, at most 70 overdue"
    assert said in told(restored, "status")[1]
    assert "at least 30 tasks are due and not delivered" in told(restored, "doctor")[1]
    assert said in page.get().text
    assert "at least 30" in page.get("/paused").text

    alive(restored)  # its scanner meets them all

    assert restored.delayq.counts().paused == 100
    assert "at least" not in told(restored, "status")[1] + page.get().text


def test_14_a_user_who_may_not_read_other_stores_is_told_so(limited, delayq_app, url, told):
    delayq_app(url, delayq_prefix="other").send_task("t", delayq_at=FAR)

    assert "ok other stores unknown: this needs +scan, and" in told(limited, "doctor")[1]
