"""Which sentinels give the master, with which login, and the resulting store and broker."""

import time

import pytest

from celery_delayq.errors import StoreUnavailable
from tests.sentinel.faults import await_election
from tests.sentinel.work import FAR, SILENT, arrived
from tests.support.sentinels import NAME
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.libraries

LONG_AGO = 1_000_000_000


def through(delayq) -> None:
    """Schedule a task and deliver it."""
    delayq.note.apply_async(task_id="through", delayq_at=LONG_AGO)
    assert delayq.hand_over() == 1
    assert delayq.get("through") is None


# Direct or relayed.


def test_the_same_group_as_broker_and_store_is_direct(group, make_delayq):
    delayq = make_delayq(group)

    assert delayq.services.store_is_broker
    through(delayq)
    assert arrived(group.master) == ["through"]


def test_the_same_group_by_both_urls_in_another_order_is_direct(group, make_delayq):
    delayq = make_delayq(
        group,
        delayq_url=group.url(sentinels=(2, 0, 1)),
        delayq_transport_options=group.options,
    )

    assert delayq.services.store_is_broker
    through(delayq)


@pytest.mark.parametrize("differs", ["database", "name", "sentinels", "scheme"])
def test_tasks_are_relayed_if_store_and_broker_differ(group, make_delayq, differs):
    url, options = group.url(), group.options
    if differs == "database":
        url = group.url(db=1)
    if differs == "name":
        options = {**options, "master_name": "another"}
    if differs == "sentinels":
        url = group.url(sentinels=(0, 1))
    if differs == "scheme":
        url = f"redis://127.0.0.1:{group.master.port}/0"

    delayq = make_delayq(group, delayq_url=url, delayq_transport_options=options)

    assert not delayq.services.store_is_broker


def test_a_relay_from_another_database_of_the_group_arrives(group, make_delayq):
    delayq = make_delayq(group, delayq_url=group.url(db=1), delayq_transport_options=group.options)

    through(delayq)

    assert arrived(group.master) == ["through"]


# Which sentinels it queries.


def test_the_third_sentinel_answers_when_two_are_dead(start_group, make_delayq):
    group = start_group()
    for one in group.sentinels[:2]:
        one.kill()

    through(make_delayq(group))


def test_the_third_sentinel_answers_when_two_are_silent(start_group, make_delayq):
    group = start_group()
    for one in group.sentinels[:2]:
        group.silence(one)

    through(make_delayq(group, broker_transport_options=group.asking_for(SILENT)))


def test_a_process_that_knows_the_master_works_on_without_any_sentinel(start_group, make_delayq):
    group = start_group()
    delayq = make_delayq(group)
    delayq.note.apply_async(delayq_at=FAR)
    for one in group.sentinels:
        one.kill()

    for number in range(10):
        delayq.note.apply_async(task_id=f"{number}", delayq_at=FAR)

    assert len(list(delayq.tasks())) == 11


def test_without_a_sentinel_a_call_fails_in_time_with_a_sentence(start_group, make_delayq):
    group = start_group()
    delayq = make_delayq(group)
    for one in group.sentinels:
        one.kill()
    began = time.monotonic()

    with pytest.raises(StoreUnavailable, match=f"(?i)sentinel.*{NAME}"):
        delayq.note.apply_async(delayq_at=FAR)

    assert time.monotonic() - began < PATIENCE


def test_a_name_that_no_sentinel_knows_is_said(group, make_delayq):
    options = {**group.options, "master_name": "nobody"}
    delayq = make_delayq(group, broker_transport_options=options)

    with pytest.raises(StoreUnavailable, match="know no master 'nobody'"):
        delayq.note.apply_async(delayq_at=FAR)


# Logins.


@pytest.fixture(scope="module")
def guarded(package_group):
    return package_group(password="the nodes' own", sentinel_password="the sentinels' own")


def test_sentinels_and_master_have_passwords_of_their_own(guarded, make_delayq):
    guarded.master.empty()
    delayq = make_delayq(guarded)

    through(delayq)

    assert arrived(guarded.master) == ["through"]


@pytest.mark.parametrize("whose", ["master's", "sentinels'"])
def test_a_wrong_password_is_refused_with_a_sentence(guarded, make_delayq, whose):
    conf = {}
    if whose == "master's":
        conf["broker_url"] = guarded.url(login=":wrong@")
    else:
        asked = {**guarded.options["sentinel_kwargs"], "password": "wrong"}
        conf["broker_transport_options"] = {**guarded.options, "sentinel_kwargs": asked}
    delayq = make_delayq(guarded, **conf)

    with pytest.raises(StoreUnavailable, match=r"(?i)WRONGPASS|invalid (username|password)"):
        delayq.note.apply_async(delayq_at=FAR)


def test_users_of_the_access_list_of_both(guarded, make_delayq):
    guarded.master.empty()
    for node in guarded.nodes:
        node.client().execute_command(
            "ACL", "SETUSER", "shop", "on", ">of shop", "~*", "&*", "+@all"
        )
    for one in guarded.sentinels:
        one.client().execute_command(
            *("ACL", "SETUSER", "asker", "on", ">of asker", "resetchannels", "&*", "-@all"),
            *("+sentinel|get-master-addr-by-name", "+subscribe", "+ping", "+client", "+hello"),
        )
    asked = {**guarded.options["sentinel_kwargs"], "username": "asker", "password": "of asker"}
    delayq = make_delayq(
        guarded,
        broker_url=guarded.url(login="shop:of shop@"),
        broker_transport_options={**guarded.options, "sentinel_kwargs": asked},
    )

    through(delayq)

    assert arrived(guarded.master) == ["through"]


@pytest.fixture
def unhurried(monkeypatch):
    """Allow as much time to connect as a busy machine needs for a handshake."""
    monkeypatch.setattr("celery_delayq.core.servers.endpoint.TIMEOUT", PATIENCE)


@pytest.mark.usefixtures("unhurried")
def test_master_and_sentinels_over_tls_with_certificates_checked(start_tls_group, make_delayq):
    group = start_tls_group()
    use_ssl = {"ssl_cert_reqs": "required", "ssl_ca_certs": f"{group.tls}/ca.crt"}
    delayq = make_delayq(group, broker_use_ssl=use_ssl, delayq_timeout=PATIENCE)

    through(delayq)

    assert arrived(group.master) == ["through"]
    assert delayq.services.store_is_broker


def test_a_master_whose_authority_is_unknown_is_refused_at_once(start_tls_group, make_delayq):
    group = start_tls_group()
    use_ssl = {"ssl_cert_reqs": "required"}
    delayq = make_delayq(group, broker_use_ssl=use_ssl, delayq_timeout=2 * PATIENCE)
    began = time.monotonic()

    with pytest.raises(StoreUnavailable, match=r"(?i)mymaster.*certificate verify failed"):
        delayq.note.apply_async(delayq_at=FAR)

    assert time.monotonic() - began < PATIENCE


@pytest.mark.usefixtures("unhurried")
def test_a_master_that_speaks_tls_is_found_anew(start_tls_group, make_delayq):
    group = start_tls_group()
    use_ssl = {"ssl_cert_reqs": "required", "ssl_ca_certs": f"{group.tls}/ca.crt"}
    delayq = make_delayq(group, broker_use_ssl=use_ssl, delayq_timeout=PATIENCE)
    delayq.note.apply_async(task_id="before", delayq_at=FAR)
    group.catch_up()

    await_election(group, group.kill_master())

    delayq.note.apply_async(task_id="after", delayq_at=FAR)
    assert {task.id for task in delayq.tasks()} == {"before", "after"}
