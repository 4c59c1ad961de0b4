"""Options of a Redis connection: an invalid one is refused by name, its value is never shown."""

import pytest
from kombu import Connection

from celery_delayq.core.message.broker import Broker, store_endpoint
from celery_delayq.errors import InvalidSetting, UnknownSetting

OURS, KOMBU_S = "delayq_transport_options", "broker_transport_options"
URL = "sentinel://a:1"
NAMED = {"master_name": "mymaster"}


def store(url, options):
    memory = Broker.of(lambda: Connection("memory://"), "memory://")
    return store_endpoint(url, options, memory, ("delayq_url", OURS), [0])


def broker(url, options, **said):
    return Broker.of(lambda: Connection(url, transport_options=options, **said), url).endpoint


def of_sentinels(said, **options):
    """The options as a store's and as a broker's, each with the name of its setting."""
    options = {**NAMED, "sentinel_kwargs": said, **options}
    return [(store, OURS, options), (broker, KOMBU_S, options)]


def says(expected, made, *given):
    with pytest.raises(InvalidSetting) as caught:
        made(*given)
    assert str(caught.value) == expected


SSL, ASKING = "['ssl']", "['sentinel_kwargs']"


@pytest.mark.parametrize(
    ("options", "word", "nearest"),
    [
        ({"sentinel_kwarg": {"password": "s3cret"}}, "sentinel_kwarg", "sentinel_kwargs"),
        ({"credentials_provider": "s3cret"}, "credentials_provider", "credential_provider"),
    ],
)
@pytest.mark.parametrize("url", ["redis://h", URL])
def test_a_word_that_nothing_reads_is_refused_with_the_nearest(url, options, word, nearest):
    with pytest.raises(UnknownSetting) as caught:
        store(url, {**NAMED, **options})
    assert str(caught.value) == (
        f"there is no setting {OURS}[{word!r}]; did you mean {OURS}[{nearest!r}]?"
    )


def refused_by_redis(error, name, *words):
    """Whether the error names the setting and the keys, the last as redis-py does, and no value."""
    said = str(error)
    assert said.startswith(f"{name} is {sorted(words)}; expected redis-py's options; its error: ")
    assert repr(words[-1]) in said.partition("its error: ")[2]
    assert "s3cret" not in said


@pytest.mark.parametrize(
    ("options", "of", "words"),
    [
        ({"ssl": {"ssl_ca_cert": "s3cret"}}, SSL, ["ssl_ca_cert"]),
        ({"ssl": {"ca_certs": "s3cret"}}, SSL, ["ca_certs"]),
        ({"sentinel_kwargs": {"pasword": "s3cret"}}, ASKING, ["pasword"]),
        ({"sentinel_kwargs": {"ssl": True, "ssl_cert": "s3cret"}}, ASKING, ["ssl", "ssl_cert"]),
    ],
)
@pytest.mark.parametrize("url", ["redis://h", URL])
def test_a_word_that_redis_py_does_not_take_is_refused_as_it_says(url, options, of, words):
    with pytest.raises(InvalidSetting) as caught:
        store(url, {**NAMED, **options})
    refused_by_redis(caught.value, f"{OURS}{of}", *words)


def test_a_wrong_word_for_tls_in_a_url_is_refused():
    with pytest.raises(InvalidSetting) as caught:
        store("rediss://h/0?ssl_ca_cert=s3cret", None)
    refused_by_redis(caught.value, "delayq_url", "ssl_ca_cert")


def test_a_broker_s_wrong_words_for_tls_are_refused_and_other_options_are_kombu_s():
    with pytest.raises(InvalidSetting, match=r"broker_use_ssl is \['ssl_ca_cert'\]"):
        broker("redis://h", {}, ssl={"ssl_ca_cert": "/ca"})
    asked = {"ssl": True, "ssl_ca_cert": "/ca"}
    with pytest.raises(InvalidSetting, match=r"options\['sentinel_kwargs'\] is \['ssl_ca_cert'\]"):
        broker(URL, {**NAMED, "sentinel_kwargs": asked})

    broker(URL, {**NAMED, "sentinel_kwarg": 1, "sentinel_kwargs": {"lib_name": "x", "y": 1}})
    # kombu passes on an option that redis-py knows and that has nothing to do with TLS.
    assert "socket_timeout" not in broker("redis://h", {}, ssl={"socket_timeout": 1}).tls


@pytest.mark.parametrize("url", ["redis://h", URL])
def test_the_tls_options_are_a_mapping_or_a_boolean_or_none(url):
    assert store(url, {**NAMED, "ssl": {"ssl_ca_certs": "/ca", "ssl_cert_reqs": None}})
    assert store(url, {**NAMED, "ssl": True})
    assert store(url, {**NAMED, "ssl": None})
    expected = (
        "expected true or false, or a mapping of redis-py's words for TLS, such as ssl_ca_certs"
    )
    says(f"{OURS}['ssl'] is 'str'; {expected}", store, url, {**NAMED, "ssl": "s3cret"})


@pytest.mark.parametrize("value", ["maybe", [], {}, 7])
def test_an_invalid_requirement_of_certificates_is_named_with_its_setting(value):
    said = {"ssl_cert_reqs": value}
    kwargs = {**NAMED, "sentinel_kwargs": {"ssl": True, **said}}
    for name, made in {
        f"{OURS}['ssl']": lambda: store("redis://h", {"ssl": said}),
        f"{OURS}['sentinel_kwargs']": lambda: store(URL, kwargs),
        "broker_use_ssl": lambda: broker("redis://h", {}, ssl=said),
    }.items():
        expected = f"is {value!r}; expected none, optional or required"
        says(f"{name}['ssl_cert_reqs'] {expected}", made)


@pytest.mark.parametrize("value", [[1], {}, "abc", "", -1, 0, "0", float("nan"), "inf", True])
@pytest.mark.parametrize("word", ["socket_timeout", "socket_connect_timeout"])
def test_an_invalid_time_for_sentinels_is_named(word, value):
    expected = f"is {value!r}; expected a number of seconds above 0"
    for made, name, options in of_sentinels({word: value}):
        says(f"{name}['sentinel_kwargs'][{word!r}] {expected}", made, URL, options)


@pytest.mark.parametrize("value", [[1], {}, "x", -1, 1.5, "1.5", float("inf"), True])
def test_an_invalid_number_of_other_sentinels_is_named(value):
    expected = f"is {value!r}; expected a whole number of sentinels, 0 or more"
    for made, name, options in of_sentinels({}, min_other_sentinels=value):
        says(f"{name}['min_other_sentinels'] {expected}", made, URL, options)


def test_numbers_may_be_texts_or_not_be_said():
    for made, _, options in of_sentinels(
        {"socket_timeout": "0.25", "socket_connect_timeout": 3}, min_other_sentinels="2"
    ):
        found = made(URL, options)
        assert (found.ask, found.others) == (0.25, 2)
    for made, _, options in of_sentinels({"socket_timeout": None}, min_other_sentinels=None):
        found = made(URL, options)
        assert (found.ask, found.others) == (0.5, 0)
