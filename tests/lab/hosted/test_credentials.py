"""Logins that change while callers and workers run, and providers that fail."""

import json
import traceback

import kombu
import pytest

from celery_delayq.core.handover.relay import Link
from celery_delayq.errors import BrokerDown, InvalidSetting, StoreUnavailable
from tests.lab.faults.conftest import make_delayq
from tests.lab.hosted.providers import FILE, FromFile, Told
from tests.lab.hosted.servers import all_but
from tests.support.sentinels import NAME, SentinelServer
from tests.support.waiting import PATIENCE, eventually
from tests.worker.project import TASKS

pytestmark = pytest.mark.libraries

__all__ = ["make_delayq"]

LONG_AGO = 1_000_000_000
FAR = 4_000_000_000
KOMBU_READS_IT = kombu.VERSION >= (5, 7)
FROM_FILE = "tests.lab.hosted.providers.FromFile"
OLD, NEW = ("rotated", "0ld-secret"), ("rotated", "n3w-secret")


@pytest.fixture
def server(start_redis):
    server = start_redis()
    server.root = server.client()
    rotate(server, OLD)
    return server


def rotate(server, login, *, kill=True):
    """Give a user another password; *kill* closes the connections that it has open."""
    user, password = login
    rules = ("on", "resetpass", f">{password}", *all_but())
    server.root.execute_command("ACL", "SETUSER", user, *rules)
    if kill:
        server.root.execute_command("CLIENT", "KILL", "USER", user, "SKIPME", "yes")


def logged_in(server) -> int:
    return sum(one["user"] == OLD[0] for one in server.root.client_list())


def nothing_secret_behind(error):
    """Check its traceback, and every error that it hides."""
    nothing_secret_in("".join(traceback.format_exception(error)))
    behind = {id(error): error}
    for one in (found := [error]):
        for other in (one.__cause__, one.__context__):
            if other is not None and id(other) not in behind:
                behind[id(other)] = other
                found.append(other)
        nothing_secret_in(repr(one))


def nothing_secret_in(text):
    assert not any(secret in str(text) for secret in (OLD[1], NEW[1], "s3cret"))


@pytest.fixture
def provider():
    return Told(*OLD)


@pytest.fixture
def delayq(make_delayq, server, provider):
    """Its store is reached with the provider's login; its broker, the same Redis, without one."""
    return make_delayq(
        server.url(),
        delayq_url=server.url(),
        delayq_transport_options={"credential_provider": provider},
        delayq_safety_interval=0.2,
        delayq_timeout=PATIENCE,
        task_publish_retry=False,
    )


@pytest.fixture
def scanner(delayq):
    scanner = delayq.scanner()
    scanner.start()
    yield scanner
    scanner.stop()


def test_open_connections_stay_open_and_new_ones_have_the_new_password(delayq, server, provider):
    delayq.note.apply_async(task_id="a", delayq_at=FAR)
    asked = provider.asked
    rotate(server, NEW, kill=False)

    assert delayq.get("a").id == "a"
    assert provider.asked == asked
    provider.login = NEW
    rotate(server, NEW)
    assert delayq.cancel("a")
    assert provider.asked > asked


@pytest.mark.usefixtures("scanner")
def test_a_scanner_tries_until_it_is_let_in_and_nothing_is_lost(delayq, server, provider, caplog):
    for number in range(20):
        delayq.note.apply_async(task_id=f"{number}", delayq_at=FAR)
    eventually(lambda: delayq.counts().scanners == 1)

    rotate(server, NEW)  # and the provider still returns the old one
    with pytest.raises(StoreUnavailable) as caught:
        delayq.get("1")
    eventually(lambda: any("retrying in" in one for one in caplog.messages))
    provider.login = NEW

    for number in range(20):
        delayq.reschedule(f"{number}", after=0)
    eventually(lambda: server.root.llen("celery") == 20)
    messages = [json.loads(one) for one in server.root.lrange("celery", 0, -1)]
    assert {one["headers"]["id"] for one in messages} == {f"{number}" for number in range(20)}
    assert not any("delayq_redelivered" in one["headers"] for one in messages)
    assert delayq.counts().dead == 0
    nothing_secret_in(caught.value)
    nothing_secret_in(caplog.text)
    nothing_secret_in(delayq.status())


def test_a_password_alone_is_a_login_as_well(delayq, server, provider):
    server.root.config_set("requirepass", NEW[1])
    provider.login = (NEW[1],)
    delayq.note.apply_async(task_id="a", delayq_at=FAR)
    assert delayq.get("a").id == "a"


def test_a_provider_that_fails_is_named_and_what_it_says_is_not(delayq, provider):
    provider.error = ValueError("s3cret")
    with pytest.raises(StoreUnavailable) as caught:
        delayq.get("a")
    assert str(caught.value) == (
        "read failed: the credential provider tests.lab.hosted.providers.Told failed: ValueError"
    )
    nothing_secret_behind(caught.value)
    with pytest.raises(StoreUnavailable) as caught:
        delayq.note.apply_async(delayq_at=FAR)
    nothing_secret_behind(caught.value)
    provider.error = None
    assert delayq.get("a") is None


def test_the_error_of_a_provider_is_not_behind_that_of_its_broker(server):
    if not KOMBU_READS_IT:
        pytest.skip("this kombu reads no provider")
    provider = Told(*OLD)
    provider.error = ValueError("s3cret")
    connection = kombu.Connection(server.url(), credential_provider=provider)
    with pytest.raises(BrokerDown, match="Told failed: ValueError") as caught:
        Link(connection.clone, timeout=PATIENCE).prepare()
    nothing_secret_behind(caught.value)


@pytest.mark.parametrize("told", [(), ("a", "b", "c"), (1, 2)])
def test_a_provider_that_tells_no_login_is_named(delayq, provider, told):
    provider.login = told
    with pytest.raises(StoreUnavailable, match=r"Told returned neither \(username, password\) nor"):
        delayq.get("a")


@pytest.mark.parametrize(
    ("provider", "shown", "why"),
    [
        ("s3cret", "of type Password", ""),
        ("no.such.module.Class", "no.such.module.Class", "; making it raised ModuleNotFoundError"),
        ("tests.lab.hosted.providers.Broken", None, "; making it raised KeyError"),
        ("tests.lab.hosted.providers.FILE", None, ""),
    ],
    ids=["no provider", "no module", "no instance", "no class"],
)
def test_a_value_that_is_no_provider_is_refused_in_a_sentence(
    make_delayq, server, provider, shown, why
):
    class Password:
        """No provider."""

    given = Password() if provider == "s3cret" else provider
    options = {"credential_provider": given}
    delayq = make_delayq("memory://", delayq_url=server.url(), delayq_transport_options=options)
    with pytest.raises(InvalidSetting) as caught:
        delayq.get("a")
    assert str(caught.value) == (
        f"delayq_transport_options['credential_provider'] is {shown or provider!r}; expected a "
        f"redis.CredentialProvider, its class, or the dotted name of that{why}"
    )
    nothing_secret_behind(caught.value)


@pytest.mark.usefixtures("place")
def test_a_class_and_its_name_are_made_one(make_delayq, server):
    for provider in (FromFile, FROM_FILE):
        options = {"credential_provider": provider}
        delayq = make_delayq("memory://", delayq_url=server.url(), delayq_transport_options=options)
        assert delayq.get("a") is None
        assert logged_in(server)
        delayq.close()
        eventually(lambda: not logged_in(server))


@pytest.fixture
def sentinel(server):
    """A sentinel that watches the server, and requires the new password."""
    sentinel = SentinelServer(server.binary, password=NEW[1])
    sentinel.write([f"sentinel monitor {NAME} 127.0.0.1 {server.port} 1"])
    with sentinel:
        yield sentinel


def sentinel_link(sentinel, provider):
    asked = {"credential_provider": provider, "socket_timeout": PATIENCE}
    options = {"master_name": NAME, "sentinel_kwargs": asked}
    url = f"sentinel://127.0.0.1:{sentinel.port}/0"
    return Link(lambda: kombu.Connection(url, transport_options=options), timeout=PATIENCE)


def test_the_error_of_a_provider_for_sentinels_is_not_behind_that_of_the_broker(sentinel):
    provider = Told("any")
    provider.error = ValueError("s3cret")
    with pytest.raises(BrokerDown) as caught:
        sentinel_link(sentinel, provider).prepare()
    assert provider.asked
    nothing_secret_behind(caught.value)


def test_sentinels_are_asked_with_what_their_provider_tells(sentinel, place):
    place.write_text(json.dumps(NEW[1:]), encoding="utf-8")
    for provider in (Told(NEW[1]), FromFile, FROM_FILE):
        link = sentinel_link(sentinel, provider)
        link.prepare()
        link.close()


def as_store(url):
    return {"delayq_url": url, "delayq_transport_options": {"credential_provider": FROM_FILE}}


def as_broker(url):
    if not KOMBU_READS_IT:
        pytest.skip("this kombu reads no provider")
    return {"broker_url": f"{url}?credential_provider={FROM_FILE}"}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The login, in a place where providers made by name find it."""
    place = tmp_path / "login.json"
    place.write_text(json.dumps(OLD), encoding="utf-8")
    monkeypatch.setenv(FILE, str(place))
    return place


@pytest.mark.parametrize("where", [as_store, as_broker])
def test_a_worker_lives_through_a_rotation(make_project, start_worker, server, place, where):
    project = make_project(result_backend=None, **where(server.url()))
    worker = start_worker(TASKS, "-P", "solo", env=project.env | {FILE: str(place)})
    note = project.tasks["note"]
    project.wait_runs(note.delay_for(0))

    before = len(worker.lines)
    rotate(server, NEW)
    worker.wait_log("retrying in", since=before)
    place.write_text(json.dumps(NEW), encoding="utf-8")

    results = [note.delay_for(0.1) for _ in range(5)]
    for result in results:
        [run] = project.wait_runs(result, timeout=40)
        assert run["at"] >= run["due"]
        assert run["attempt"] in (None, 1)
    eventually(lambda: project.delayq.health() == [])
    assert worker.stop() == 0
    nothing_secret_in("\n".join(worker.lines))


def test_a_master_and_its_sentinels_have_a_provider_each(make_delayq):
    asked = {"credential_provider": Told("sentinel", "a")}
    options = {"master_name": "mymaster", "credential_provider": Told("master", "b")}
    options["sentinel_kwargs"] = asked
    delayq = make_delayq(
        "memory://", delayq_url="sentinel://red:26379", delayq_transport_options=options
    )

    group = delayq.services.endpoint

    assert group.server.credentials.get_credentials() == ("master", "b")
    assert [one.credentials.get_credentials() for one in group.sentinels] == [("sentinel", "a")]


def test_a_socket_s_provider_is_read_from_its_url(make_delayq, server, place):
    if not KOMBU_READS_IT:
        pytest.skip("this kombu reads no provider")
    url = f"redis+socket://{server.socket}?virtual_host=0&credential_provider={FROM_FILE}"
    delayq = make_delayq(url)
    assert delayq.get("a") is None
    place.write_text('["rotated", "wrong"]', encoding="utf-8")
    delayq.close()
    with pytest.raises(StoreUnavailable):
        delayq.get("a")
