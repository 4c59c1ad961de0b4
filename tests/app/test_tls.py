"""`rediss://`: certificates are checked as configured, with no fallback to plain connections."""

import ssl

import pytest

from celery_delayq.errors import StoreUnavailable
from tests.app.support import FAR, LONG_AGO, lists
from tests.support.certificates import program_with_tls
from tests.support.ports import free_port

pytestmark = pytest.mark.libraries


@pytest.fixture
def start_tls(start_redis, certificates):
    """The URL and the plain client of a Redis that also speaks TLS with that certificate."""

    def start(certificate):
        port = free_port()
        with program_with_tls() as binary:
            server = start_redis(
                *("--tls-port", str(port), "--tls-auth-clients", "no"),
                *("--tls-cert-file", str(certificates / f"{certificate}.crt")),
                *("--tls-key-file", str(certificates / "server.key")),
                *("--tls-ca-cert-file", str(certificates / "ca.crt")),
                binary=binary,
            )
        return f"rediss://127.0.0.1:{port}/0", server.client()

    return start


@pytest.fixture
def tls(start_tls):
    return start_tls("server")


@pytest.fixture
def refused(delayq_app):
    """Let a call of an app fail, without a write: ``refused(redis, why, **settings)``."""

    def refused(redis, why, **settings):
        app = delayq_app(**settings, task_publish_retry=False)
        with pytest.raises(StoreUnavailable, match=f"(?i){why}"):
            app.send_task("t", delayq_at=FAR)
        assert redis.keys() == []

    return refused


# The ways to a store: as the broker, or by a URL of its own.
TO = {
    "broker": lambda url: {"broker": url},
    "url": lambda url: {"broker": "memory://", "delayq_url": url},
    "valkeys": lambda url: TO["url"](url.replace("rediss://", "valkeys://")),
}


def by_use_ssl(url, authority):
    checks = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": authority}
    return {"broker": url, "broker_use_ssl": checks}


@pytest.mark.parametrize("how", ["broker", "broker_use_ssl"])
def test_a_broker_whose_authority_is_named_opens_the_store(delayq_app, tls, certificates, how):
    url, redis = tls
    authority = f"{certificates}/ca.crt"
    said = f"{url}?ssl_cert_reqs=CERT_REQUIRED&ssl_ca_certs={authority}"
    app = delayq_app(**(TO["broker"](said) if how == "broker" else by_use_ssl(url, authority)))
    app.send_task("t", task_id="a", delayq_at=LONG_AGO)

    assert app.delayq.services.store_is_broker
    assert app.delayq.get("a").id == "a"
    assert app.delayq.hand_over() == 1
    assert list(lists(redis)) == [b"celery"]


@pytest.mark.parametrize("how", ["url", "valkeys"])
@pytest.mark.parametrize("requirement", ["CERT_NONE", "none", "CERT_REQUIRED", "required"])
def test_the_words_for_checking_certificates_are_kombu_s_and_redis_py_s(
    delayq_app, tls, certificates, requirement, how
):
    said = f"{tls[0]}?ssl_cert_reqs={requirement}&ssl_ca_certs={certificates}/ca.crt"
    app = delayq_app(**TO[how](said))

    app.send_task("t", task_id="a", delayq_at=FAR)

    assert app.delayq.get("a").id == "a"


@pytest.mark.parametrize("how", TO)
@pytest.mark.parametrize("said", ["", "?ssl_cert_reqs=CERT_REQUIRED"])
def test_a_certificate_of_an_unknown_authority_is_refused_also_without_a_word_about_it(
    refused, tls, said, how
):
    url, redis = tls
    refused(redis, "certificate verify failed", **TO[how](url + said))


@pytest.mark.parametrize("how", [*TO, "broker_use_ssl"])
def test_a_certificate_for_another_name_is_refused(refused, start_tls, certificates, how):
    url, redis = start_tls("elsewhere")
    authority = f"{certificates}/ca.crt"
    said = f"{url}?ssl_cert_reqs=required&ssl_ca_certs={authority}"
    settings = TO[how](said) if how in TO else by_use_ssl(url, authority)
    refused(redis, "certificate verify failed", **settings)


def test_tls_to_a_port_that_is_plain_fails_and_does_not_fall_back(refused, redis_server, redis):
    url = f"rediss://127.0.0.1:{redis_server.port}/0?ssl_cert_reqs=CERT_NONE"
    refused(redis, "", broker=url, delayq_timeout=0.5)


def test_plain_to_a_port_that_is_tls_fails(refused, tls):
    url, redis = tls
    refused(redis, "", broker=url.replace("rediss", "redis"))


UNCHECKED = [
    "ssl_cert_reqs=none",
    "ssl_cert_reqs=required&ssl_check_hostname=false&ssl_ca_certs={}/ca.crt",
]


@pytest.mark.parametrize("how", TO)
@pytest.mark.parametrize("said", UNCHECKED)
def test_a_url_can_switch_the_check_off(delayq_app, start_tls, certificates, said, how):
    url, _ = start_tls("elsewhere")
    app = delayq_app(**TO[how](f"{url}?{said.format(certificates)}"))

    app.send_task("t", task_id="a", delayq_at=FAR)

    assert app.delayq.get("a").id == "a"
