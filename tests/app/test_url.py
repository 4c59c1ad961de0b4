"""The location of the store: `delayq_url`, or else the broker, in every form of Redis URL."""

from urllib.parse import quote

import pytest

from celery_delayq import DelayQ
from celery_delayq.errors import InvalidSetting
from tests.app.support import LONG_AGO, lists
from tests.support.ports import free_port
from tests.support.shards import total

pytestmark = pytest.mark.libraries

WANTED = (
    "a redis://, rediss://, redis+socket://, redis+cluster://, valkey://, valkeys:// or "
    "sentinel:// URL"
)
READABLE = "a URL whose port is a number, with the special characters of a password as %XX"
QUERY = "a URL whose query has only words that kombu reads, such as ssl_cert_reqs"
REQUIREMENT = "a URL whose ssl_cert_reqs is none, optional or required"
DATABASE = "a URL that names its database by a number, such as redis://host:6379/0"
TRANSPORT = "a URL of a transport that kombu has, such as redis://, redis+socket:// or amqp://"
PASSWORD, OTHER_PASSWORD = "p@ss:/w?rd#%ü &=+", "//@:%25?"


def store_of(app):
    """Schedule a task, so that the test can look for its store."""
    app.send_task("t", task_id="a", delayq_at=LONG_AGO)
    return app.delayq


@pytest.mark.parametrize("db", [0, 3, 15])
def test_without_a_url_the_store_is_the_broker_s_database(delayq_app, redis_server, redis, db):
    app = delayq_app(redis_server.url(db))

    store_of(app)

    assert total(redis_server.client(db=db).zcard, "due") == 1
    assert app.delayq.services.store_is_broker


def test_with_a_url_the_store_is_there_and_the_broker_gets_the_task(
    delayq_app, redis_server, redis
):
    app = delayq_app(redis_server.url(1), delayq_url=redis_server.url(2))

    store_of(app)

    assert total(redis_server.client(db=2).zcard, "relay") == 1
    assert redis_server.client(db=1).keys() == []
    assert not app.delayq.services.store_is_broker


@pytest.mark.parametrize("place", ["redis://127.0.0.1", "redis://localhost", "valkey://localhost"])
def test_the_same_place_written_otherwise_is_the_same_place(delayq_app, redis_server, redis, place):
    app = delayq_app(redis_server.url(), delayq_url=f"{place}:{redis_server.port}")

    assert app.delayq.services.store_is_broker
    assert store_of(app).hand_over() == 1


@pytest.mark.parametrize("how", ["broker", "url"])
@pytest.mark.parametrize("db", [0, 4])
def test_a_unix_socket_is_a_redis(delayq_app, redis_server, redis, how, db):
    url = f"redis+socket://{redis_server.socket}?virtual_host={db}"
    app = delayq_app(url) if how == "broker" else delayq_app("amqp://127.0.0.1:1//", delayq_url=url)

    store_of(app)

    there = redis_server.client(db=db)
    assert total(there.zcard, "due" if how == "broker" else "relay") == 1
    if how == "broker":
        assert app.delayq.hand_over() == 1
        assert list(lists(there)) == [b"celery"]


@pytest.mark.parametrize(
    "form", ["valkey://localhost:{port}/3", "valkey+socket://{socket}?virtual_host=3"]
)
def test_valkey_is_another_word_for_redis_and_is_shown_as_written(
    delayq_app, redis_server, redis, form
):
    url = form.format(port=redis_server.port, socket=redis_server.socket)
    app = delayq_app(redis_server.url(1), delayq_url=url)

    store_of(app)

    assert total(redis_server.client(db=3).zcard, "relay") == 1
    assert app.delayq.status().store == url


@pytest.fixture
def protected(start_redis):
    """A Redis with users; they are added after its start, as the start's ping has no password."""
    server = start_redis()
    client = server.client()
    client.execute_command(
        "ACL", "SETUSER", "shop", "on", f">{OTHER_PASSWORD}", "~*", "&*", "+@all"
    )
    client.config_set("requirepass", PASSWORD)
    return server


@pytest.mark.parametrize("user", ["", "default", "shop"])
@pytest.mark.parametrize("how", ["broker", "url"])
def test_a_password_with_odd_characters_opens_the_store(delayq_app, protected, user, how):
    password = quote(OTHER_PASSWORD if user == "shop" else PASSWORD, safe="")
    url = f"redis://{user}:{password}@127.0.0.1:{protected.port}/1"
    app = delayq_app(url) if how == "broker" else delayq_app("amqp://127.0.0.1:1//", delayq_url=url)

    store_of(app)

    assert app.delayq.get("a").id == "a"


def test_a_password_opens_a_unix_socket_too(delayq_app, protected):
    app = delayq_app(f"redis+socket://:{quote(PASSWORD, safe='')}@{protected.socket}")

    assert store_of(app).get("a").id == "a"


def test_a_wrong_password_is_an_error_and_never_shown(delayq_app, protected):
    app = delayq_app(
        f"redis://:wrong-secret@127.0.0.1:{protected.port}/0",
        task_publish_retry=False,
    )

    with pytest.raises(Exception, match="schedule failed") as caught:
        app.send_task("t", delayq_after=60)
    assert "wrong-secret" not in str(caught.value)
    assert "wrong-secret" not in repr(app.delayq.services.endpoint)


# Wrong URLs are errors at start-up, which show nothing that is secret.

NAMED = {"master_name": "mymaster"}


def refusal(make_app, broker="memory://", **settings):
    with pytest.raises(InvalidSetting) as caught:
        DelayQ(make_app(broker, **settings)).services.check()
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert "secret" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("broker", ["amqp://127.0.0.1//", "memory://", "filesystem://"])
def test_without_any_redis_the_error_says_which_setting_is_missing(make_app, broker):
    assert refusal(make_app, broker) == (
        "delayq_url is None; expected a redis:// URL, because the broker is not a Redis"
    )


@pytest.mark.parametrize(
    ("url", "shown", "expected"),
    [
        ("redis://h:port/0", "redis://h:port/0", READABLE),
        ("redis://h:99999999/0", "redis://h:99999999/0", READABLE),
        ("redis://[::1/0", "redis://[::1/0", READABLE),
        ("redis://h/abc", "redis://h/abc", DATABASE),
        ("redis://h/-1", "redis://h/-1", DATABASE),
        ("redis://:sec/ret@h/0", "redis://h/0", READABLE),
        ("redis://sec/ret@h/0", "redis://h/0", DATABASE),
        ("redis+socket:///tmp/r?virtual_host=a", "redis+socket:///tmp/r?virtual_host=a", DATABASE),
        ("redis://h/0?protocol=3", "redis://h/0?protocol=***", QUERY),
        ("rediss://h/0?ssl_cert_reqs=bogus", "rediss://h/0?ssl_cert_reqs=bogus", REQUIREMENT),
        ("sentinel://h:port/0", "sentinel://h:port/0", READABLE),
        ("sentinel://h;sentinel://:secret@i:x", "sentinel://h;sentinel://i:x", READABLE),
        ("sentinel://:secret@h/x;sentinel://i", "sentinel://h/x;sentinel://i", DATABASE),
        ("sentinel://h/-1", "sentinel://h/-1", DATABASE),
    ],
)
def test_the_error_of_a_wrong_url_names_the_setting_of_broker_or_store(
    make_app, url, shown, expected
):
    named = NAMED if "sentinel" in url else {}
    said = f"is {shown!r}; expected {expected}"
    assert refusal(make_app, url, broker_transport_options=named) == f"broker_url {said}"
    store = {"delayq_url": url, "delayq_transport_options": named or None}
    assert refusal(make_app, **store) == f"delayq_url {said}"


@pytest.mark.parametrize(
    "url", ["unix:///tmp/redis.sock", "http://h", "nonsense://x", "valkey://h"]
)
@pytest.mark.parametrize("store", [None, "redis://h"])
def test_a_broker_of_a_transport_that_kombu_does_not_have_is_an_error(make_app, url, store):
    said = f"broker_url is {url!r}; expected {TRANSPORT}"
    assert refusal(make_app, url, delayq_url=store) == said


@pytest.mark.parametrize("options", [None, {}, {"sentinel_kwargs": {"password": "secret"}}])
@pytest.mark.parametrize("url", ["sentinel://h:26379", "sentinel://:secret@h:26379/1;sentinel://i"])
def test_sentinels_without_the_name_of_a_master_are_an_error(make_app, url, options):
    said = (
        "_transport_options['master_name'] is None; expected the name of a master that the "
        "sentinels know, such as 'mymaster'"
    )
    assert refusal(make_app, url, broker_transport_options=options or {}) == f"broker{said}"
    store = {"delayq_url": url, "delayq_transport_options": options}
    assert refusal(make_app, **store) == f"delayq{said}"


@pytest.mark.parametrize(
    ("url", "shown", "expected"),
    [
        ("valkey://:secret@h:port/0", "valkey://h:port/0", READABLE),
        ("valkeys://u:secret@h/x", "valkeys://h/x", DATABASE),
        ("valkey://h;valkey://i", "valkey://h;valkey://i", WANTED),
        ("valkeyss://h", "valkeyss://h", WANTED),
    ],
)
def test_a_wrong_url_of_a_valkey_is_shown_as_written_without_its_secrets(
    make_app, url, shown, expected
):
    assert refusal(make_app, delayq_url=url) == f"delayq_url is {shown!r}; expected {expected}"


def test_options_without_a_url_of_the_store_s_own_are_refused(make_app):
    options = {"sentinel_kwargs": {"password": "secret"}}

    assert refusal(make_app, "redis://h", delayq_transport_options=options) == (
        "delayq_transport_options is 'dict'; expected None, as delayq_url is None: how the broker "
        "is found is in broker_transport_options"
    )


NO_REDIS = ["http://localhost", "amqp://localhost//", "memory://", "nonsense://x", "://"]
NO_REDIS += ["unix:///tmp/redis.sock", "sentinel://h;redis://i"]
# A URL with secrets, and its text in the error.
SHOWN = {
    "amqp://me:secret@host//": "amqp://host//",
    "redis://:secret@h;redis://:secret@i": "redis://i",
    "redis://:secret@host/database": "redis://host/database",
    "x://a:secret@b@c": "x://c",
    "redis:/:secret@host:6379/0": "host:6379/0",
    "me:secret@host": "host",
    "redis://host/x?password=secret": "redis://host/x?password=***",
    "rediss://host/0?ssl_cert_reqs=CERT_SOME&ssl_password=secret": (
        "rediss://host/0?ssl_cert_reqs=CERT_SOME&ssl_password=***"
    ),
    "redis://host/x?secret": "redis://host/x?***",
    "redis://host/x?virtual_host=0;password=secret": "redis://host/x?virtual_host=***",
    "redis://:se?secret@host/0": "***",
    "redis://:se://secret@host/database": "redis://host/database",
    "redis://host/x#password=secret": "***",
    "me:secret@redis://host/0": "***",
    ("redis://:secret@host/0",): "***",
    "sentinel://u:secret@a:1/x;sentinel://:sec?ret@b;sentinel://c?password=secret": (
        "sentinel://a:1/x;***;sentinel://c?password=***"
    ),
    "sentinel://:secret;sentinel@a/x": "sentinel://a/x",
    b"redis://:secret@host/0": "***",
}


@pytest.mark.parametrize("url", [*NO_REDIS, *SHOWN])
def test_a_url_of_no_redis_is_shown_without_what_is_secret(make_app, url):
    said = refusal(make_app, delayq_url=url, delayq_transport_options=NAMED)

    expected = WANTED if url in NO_REDIS else ""
    assert said.startswith(f"delayq_url is {SHOWN.get(url, url)!r}; expected {expected}")


# Several brokers.


def test_a_list_of_brokers_for_failover_is_no_store_and_the_error_names_the_setting(
    delayq_app, redis_server, redis
):
    app = delayq_app(f"redis://127.0.0.1:{free_port()}/0;{redis_server.url()}")

    app.send_task("plain")  # by the second, as the first is away
    with pytest.raises(InvalidSetting) as caught:
        app.send_task("t", delayq_after=60)

    assert str(caught.value) == (
        "delayq_url is None; expected a redis:// URL, because broker_url lists several brokers, "
        "and tasks wait in one Redis"
    )
    assert redis.llen("celery") == 1


def test_to_a_list_of_brokers_tasks_go_by_the_one_that_is_up(delayq_app, redis_server, redis):
    # Not the first URL of another test: kombu finds its pools by the first URL alone.
    url = f"redis://127.0.0.1:{free_port()}/0;{redis_server.url(1)}"
    app = delayq_app(url, delayq_url=redis_server.url())

    app.send_task("plain")
    store_of(app).hand_over()

    assert redis_server.client(db=1).llen("celery") == 2


def test_a_list_of_brokers_for_failover_is_relayed_to(delayq_app, redis_server, redis):
    app = delayq_app(f"{redis_server.url()};redis://127.0.0.1:1/0", delayq_url=redis_server.url())

    store_of(app)

    # kombu knows which of them is up when the task is due; a script in the first does not.
    assert total(redis.zcard, "relay") == 1


def test_a_read_url_of_its_own_does_not_matter(delayq_app, redis_server, redis):
    app = delayq_app(
        None,
        broker_read_url="amqp://127.0.0.1:1//",
        broker_write_url=redis_server.url(5),
    )

    store_of(app)

    assert total(redis_server.client(db=5).zcard, "due") == 1


@pytest.mark.parametrize(
    ("broker", "url", "longest"),
    [
        ("sentinel://h", None, (1, 1)),
        ("sentinel://h", "redis://h", (3, 1)),
        ("redis://h", "sentinel://h", (1, 3)),
        ("redis://h", None, (3, 3)),
    ],
)
def test_a_scanner_looks_every_second_if_another_master_may_take_over(
    make_app, broker, url, longest
):
    options = {"broker_transport_options": NAMED, "delayq_transport_options": url and NAMED}
    scanner = DelayQ(make_app(broker, delayq_url=url, **options)).scanner()

    pauses = [[one.backoff.next() for _ in range(9)] for one in (scanner._store, scanner._broker)]
    scanner._wakeup.close()

    for each, most in zip(pauses, longest, strict=True):
        assert most / 2 <= each[-1] <= max(each) <= most
