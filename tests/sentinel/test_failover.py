"""A master is found by its sentinels, with any login, and fails while clients are at work."""

import time

import pytest

from celery_delayq.errors import StoreUnavailable
from tests.sentinel.faults import demote, failover, kill, silence
from tests.sentinel.trial import tried
from tests.sentinel.work import FAR, arrived
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.libraries


# A group as store and broker: by which of them tasks are handed over, and with which login.


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


# Logins.


@pytest.fixture(scope="module")
def guarded(package_group):
    return package_group(password="the nodes' own", sentinel_password="the sentinels' own")


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
def tls(start_tls_group, make_delayq, limits):
    """A group that speaks only TLS, and a DelayQ that trusts its certificates, or not."""

    def tls(*, trusts=True):
        if trusts:
            # Allow as much time to connect as a busy machine needs for a handshake.
            limits(answer_s=PATIENCE)
        group = start_tls_group()
        asked = {"ssl_cert_reqs": "required"} | (
            {"ssl_ca_certs": f"{group.tls}/ca.crt"} if trusts else {}
        )
        timeout = PATIENCE if trusts else 2 * PATIENCE
        return group, make_delayq(group, broker_use_ssl=asked, delayq_timeout=timeout)

    return tls


def test_master_and_sentinels_over_tls_with_certificates_checked(tls):
    group, delayq = tls()

    through(delayq)

    assert arrived(group.master) == ["through"]
    assert delayq.services.store_is_broker


def test_a_master_whose_authority_is_unknown_is_refused_at_once(tls):
    _, delayq = tls(trusts=False)
    began = time.monotonic()

    with pytest.raises(StoreUnavailable, match=r"(?i)mymaster.*certificate verify failed"):
        delayq.note.apply_async(delayq_at=FAR)

    assert time.monotonic() - began < PATIENCE


# A master fails while a caller schedules and cancels, and a scanner delivers or sleeps.


SLEEPS = 60.0  # seconds: a scanner's safety interval, longer than these tests


@pytest.mark.parametrize("fault", [kill, silence, failover, demote])
def test_all_are_at_work_again_soon_and_each_task_is_in_one_place(
    start_group, make_delayq, start_scanner, fault
):
    group = start_group()

    trial = tried(group, lambda: make_delayq(group), start_scanner, fault)

    assert trial.problems == []


def test_a_sleeping_scanner_hears_of_it_although_its_link_is_silent(
    start_group, make_delayq, start_scanner
):
    """Its next PING would come half a minute later, and its next scan a minute later."""
    group = start_group()
    delayq = make_delayq(group, delayq_safety_interval=SLEEPS)
    start_scanner(delayq)
    delayq.note.apply_async(task_id="far", delayq_at=FAR)
    eventually(lambda: group.master.client().pubsub_channels("*wake*"))
    group.catch_up()

    course = silence(group)
    # The new master knows it as a subscriber.
    eventually(lambda: course.new.client().pubsub_channels("*wake*"))
    make_delayq(group).run_now("far")
    eventually(lambda: arrived(course.new))
