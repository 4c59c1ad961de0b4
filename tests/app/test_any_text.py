"""Ids, names and queues may contain any text, and are shown as they are."""

import pytest
from kombu import Exchange, Queue

from celery_delayq.errors import DelayQError, InvalidOption
from tests.app.support import FAR, LONG_AGO
from tests.operations.test_cli import HOSTILE, printable
from tests.support.shards import SHARDS

pytestmark = pytest.mark.libraries


OWN = "{delayq:0}:"
TEXTS = [
    *("\x00", "{delayq:0}", "}:{", "delayq:0", "*", "?[a-z]\\"),
    *("' OR 1 --", "\r\n$4\r\nPING\r\n", "due\x00", "mail\x06\x163", "\x06\x163", " "),
]
# Characters that must not be in a line, and those that a format might interpret.
UNPRINTABLE = "".join(HOSTILE) + "\u2066 %s %(id)s {0} {}"
LONG = "\x1b[31m" + "n" * 10_000


def short(text):
    return ascii(text)[:40]


@pytest.fixture
def bystander(redis):
    """Keys of other programs in this Redis, with names that look like patterns or like ours."""
    for name in ("celery2", "delayq:0", "{delayq:1}:due", "*", "a\nb"):
        redis.rpush(f"other {name}", name)
    return lambda: {key: redis.dump(key) for key in redis.keys("other *")}


def keys(redis):
    """The keys that are neither the store's nor a bystander's."""
    return {key for key in redis.keys("*") if not key.startswith((OWN.encode(), b"other "))}


@pytest.mark.parametrize(
    ("field", "text"),
    [
        *(("queue", text) for text in (*TEXTS, UNPRINTABLE, LONG)),
        *(("name", text) for text in ("\x00", UNPRINTABLE, LONG)),
    ],
    ids=short,
)
def test_any_text_as_a_queue_or_a_name_is_no_more_than_that(app, redis, bystander, field, text):
    before, delayq = bystander(), app.delayq
    names = {"queue": "q", "name": "t", field: text}
    app.send_task(names["name"], queue=names["queue"], task_id="a", delayq_at=LONG_AGO)
    app.send_task(names["name"], queue=names["queue"], task_id="b", delayq_at=FAR)

    task = delayq.get("b")
    assert (task.task, task.queue) == (names["name"], names["queue"])
    assert [one.queue for one in delayq.status().queues] == [names["queue"]]
    assert delayq.hand_over() == 1

    queue = names["queue"].encode()
    assert {key for key in keys(redis) if redis.type(key) == b"list"} == {queue}
    assert delayq.cancel("b")
    assert bystander() == before


@pytest.mark.parametrize(
    ("key", "options"),
    [("wake", {}), ("records", {}), ("due", {"priority": 3}), ("new", {})],
    ids=repr,
)
def test_a_queue_is_none_of_the_store_s_own_keys(app, delayq, redis, key, options):
    app.send_task("t", delayq_at=FAR)
    before = {name: redis.dump(name) for name in redis.keys("*")}

    with pytest.raises(InvalidOption) as caught:
        app.send_task("t", queue=OWN + key, delayq_at=LONG_AGO, **options)

    assert str(caught.value) == (
        f"queue is {OWN + key!r}; expected a name that is none of this store's keys"
    )
    assert {name: redis.dump(name) for name in redis.keys("*")} == before


def test_in_another_redis_a_queue_may_have_the_name_of_a_store_s_key(
    delayq_app, redis_server, redis
):
    app = delayq_app(redis_server.url(4), delayq_url=redis_server.url())
    app.send_task("t", queue=OWN + "wake", delayq_at=LONG_AGO)

    assert app.delayq.hand_over() == 1
    assert redis_server.client(db=4).llen(OWN + "wake") == 1


def test_any_text_in_an_error_is_one_line_of_plain_text(app, add, delayq, redis):
    text = UNPRINTABLE
    add.s(1).set(task_id=text).delay_until(FAR)
    said = []
    for call in (
        lambda: add.s(1).set(task_id=text).delay_until(FAR),
        lambda: add.delay_until(text),
        lambda: app.send_task("t", delayq_after=1, **{f"delayq_{text}": 1}),
        lambda: delayq.reschedule(text, text),
        lambda: delayq.tasks(before_due=text),
        lambda: _spoilt(redis, delayq, text),
    ):
        with pytest.raises(DelayQError) as caught:
            call()
        said.append(str(caught.value))

    assert all(printable(sentence) for sentence in said), ascii(said)


def _spoilt(redis, delayq, text):
    redis.hset(OWN + "records", text, b"0" + text.encode())
    delayq.get(text)


@pytest.mark.parametrize("value", [LONG, [LONG], LONG.encode()], ids=["text", "list", "bytes"])
def test_an_error_shows_the_beginning_of_a_long_id(add, value):
    with pytest.raises(DelayQError) as caught:
        add.s(1).set(task_id=value).delay_until(FAR)

    said, characters = str(caught.value), len(repr(value))
    assert printable(said)
    assert len(said) < 700
    assert said.endswith(f"… ({characters} characters); expected text of 1 to 512 bytes")


def test_a_finding_of_check_is_one_line_of_plain_text(add, delayq, redis):
    text = UNPRINTABLE
    add.s(1).set(task_id=text).delay_until(FAR)
    redis.hdel(OWN + "records", text)

    [finding] = delayq.check()

    assert finding.id == text
    assert printable(str(finding))


# A task shows the same queue name as selections, pauses, `status` and a dump.


VIDEO = Queue("video", Exchange("media", type="topic"), routing_key="media.video.#")
WAYS = {
    "queue": ({"queue": "mail", "priority": 9}, "mail"),
    "queue of a topic exchange": ({"queue": "video"}, "video"),
    "and a key of the call": ({"queue": "video", "routing_key": "media.video.hd"}, "video"),
    "exchange and key": ({"exchange": "none of the app's", "routing_key": "x"}, "celery"),
    "queue, and another list": ({"queue": "video", "exchange": "", "routing_key": "x"}, "video"),
}


def queues(delayq):
    """The queue of the only task, by every way of reading it."""
    [listed] = delayq.tasks()
    [selected] = delayq.select(all=True)
    [counted] = delayq.status().queues
    [_, dumped, _] = delayq.dump()
    told = [listed.queue, selected.queue, delayq.get(listed.id).queue, counted.queue]
    return {*told, dumped.get("queue", "")}


@pytest.mark.parametrize(("sent", "queue"), WAYS.values(), ids=WAYS.keys())
def test_every_reader_names_the_same_queue(delayq_app, url, sent, queue):
    app = delayq_app(url, task_queues=[Queue("celery"), VIDEO])
    app.send_task("t", delayq_at=FAR, **sent)

    assert queues(app.delayq) == {queue}
    assert app.delayq.select(queue=queue).count() == 1


@pytest.mark.parametrize("name", ["mail", "video"])
def test_an_app_that_does_not_know_the_queue_is_told_by_where_the_task_goes(delayq_app, url, name):
    app = delayq_app(url, task_queues=[Queue("mail"), VIDEO])
    app.send_task("t", queue=name, delayq_at=FAR)

    assert queues(delayq_app(url).delayq) == {name}


def test_history_names_the_same_queue(delayq_app, url):
    app = delayq_app(url, task_queues=[VIDEO], delayq_history=10)
    app.send_task("t", queue="video", delayq_at=FAR)

    [event] = app.delayq.history()

    assert {event.queue} == queues(app.delayq)


def by_other_lists(delayq_app, url, times):
    """Schedule tasks for ``mail``, whose list has another app's separator of priorities."""
    app = delayq_app(url, broker_transport_options={"sep": ":"})
    for number in range(times):
        app.send_task("t", queue="mail", priority=9, delayq_at=FAR + number)
    return app


def test_the_name_of_an_undeclared_queue_is_that_of_the_list_as_in_status(delayq_app, url):
    by_other_lists(delayq_app, url, 1)
    [task] = (other := delayq_app(url).delayq).tasks()

    assert [one.queue for one in other.status().queues] == [task.queue] == ["mail:9"]


def test_the_name_of_a_paused_queue_is_known_and_read_once(delayq_app, url, between):
    by_other_lists(delayq_app, url, 50).delayq.pause(queue="mail")
    other = delayq_app(url).delayq
    between.asked.clear()

    assert {task.queue for task in other.tasks()} == {"mail"}
    assert between.asked["pauses"] == SHARDS


def test_a_name_that_the_app_knows_costs_no_look_at_the_store(app, delayq, between):
    task_id = app.send_task("t", queue="mail", delayq_at=FAR).id

    assert [task.queue for task in delayq.tasks()] == ["mail"]
    assert delayq.get(task_id).queue == "mail"
    assert not between.asked["pauses"]
