"""The pytest plugin, in a user's own runs of pytest."""

import os
import re
import socket
import sys
import textwrap
from contextlib import ExitStack
from functools import partial
from types import ModuleType

import pytest
from celery import chain, chord

from celery_delayq.contrib.testing import isolated
from celery_delayq.contrib.testing.apps import app_of_test, forbid_stores
from celery_delayq.errors import CannotIsolate, StoreForbidden, StoreUnavailable

pytest_plugins = ["pytester"]

SHOP = """
    from celery import Celery
    from celery_delayq import DelayQ

    app = Celery("shop", broker="redis://127.0.0.1:1/0", backend="redis://127.0.0.1:1/1")
    delayq = DelayQ(app)

    @app.task
    def remind(user):
        return f"reminded {user}"
"""


@pytest.fixture
def user(pytester, monkeypatch):
    """A folder with a user's ``shop.py``, and a function that runs pytest there as that user."""
    # Variables of the surrounding run.
    for name in [name for name in os.environ if name.startswith(("PYTEST_", "DELAYQ_TEST_"))]:
        monkeypatch.delenv(name)
    pytester.makepyfile(shop=SHOP)
    pytester.makeini("[pytest]\npythonpath = .\n")

    def run(*options, **outcomes):
        others = ("-p", "no:hypothesispytest", "-p", "no:valkey", "-p", "no:cacheprovider")
        done = pytester.runpytest_subprocess(*others, "-W", "error", *options, timeout=200)
        done.assert_outcomes(**outcomes)
        return done

    pytester.run_tests = run
    return pytester


def test_the_app_and_the_options_are_what_the_user_s_fixtures_say(user, redis_server, redis_url):
    user.makeini(f"[pytest]\npythonpath = .\ndelayq_redis = {redis_url}\n")
    user.makeconftest(
        """
        import pytest
        import shop
        from celery import Celery

        other = Celery("other", set_as_current=True)

        @pytest.fixture
        def delayq_app():
            return shop.app

        @pytest.fixture
        def delayq_options():
            return {"delayq_capture_eta": True}
        """
    )
    user.makepyfile(
        f"""
        from shop import remind

        def test_its_settings_are_the_given_ones(delayq):
            remind.apply_async((7,), countdown=60)
            [task] = delayq.scheduled()
            assert task.args == (7,)
            assert delayq.services.endpoint.port == {redis_server.port}
        """
    )
    user.run_tests(passed=1)


def test_an_app_without_a_delayq_is_reported_in_one_sentence(user):
    user.makepyfile(
        """
        from celery import Celery

        app = Celery('plain')

        def test_it(delayq): pass
        """
    )

    done = user.run_tests(errors=1)

    sentence = (
        "the current Celery app, 'plain', has no DelayQ; name the app under test: set "
        "delayq_app = shop:app in pytest's configuration, or override the fixture delayq_app"
    )
    assert sentence in done.outlines
    assert "contrib" not in done.stdout.str()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("plain:app", "the app plain:app has no DelayQ; make one with DelayQ(app)"),
        ("plain:none", "delayq_app is 'plain:none', which cannot be found: No module named"),
        ("nowhere", "delayq_app is 'nowhere', which cannot be found: No module named 'nowhere'"),
    ],
)
def test_an_app_whose_name_is_wrong_is_reported_in_one_sentence(
    make_app, monkeypatch, name, sentence
):
    plain = ModuleType("plain")
    plain.app = make_app()
    monkeypatch.setitem(sys.modules, "plain", plain)

    with pytest.raises(CannotIsolate, match=f"^{re.escape(sentence)}"):
        app_of_test(name)


def test_a_test_of_the_current_app_that_fails_spoils_no_other(user):
    user.makepyfile(
        """
        import pytest
        from shop import app, remind

        def test_it_fails(delayq):
            remind.s(1).set(task_id="a").delay_for(60)
            remind.delay(2)
            delayq.advance(minutes=1)
            assert len(delayq.run_due()) == 3

        @pytest.mark.parametrize("turn", [1, 2])
        def test_the_others_see_nothing_of_it(delayq, turn):
            assert delayq.scheduled() == delayq.run_due() == []
            assert app.AsyncResult("a").state == "PENDING"
            remind.s(1).set(task_id="a").delay_for(60)

        def test_outside_of_it_all_is_the_app_s_own():
            assert app.conf.broker_url == "redis://127.0.0.1:1/0"
            assert "delayq_url" not in app.conf
        """
    )
    user.run_tests(passed=3, failed=1)


def test_each_process_of_xdist_has_a_store_of_its_own_for_the_app_that_is_named(user):
    user.makeini("[pytest]\npythonpath = .\ndelayq_app = shop:app\n")
    user.makepyfile(
        """
        import pytest
        from celery import Celery
        from shop import remind

        other = Celery("other", set_as_current=True)

        @pytest.mark.parametrize("turn", range(8))
        def test_it_is_alone(delayq, turn):
            remind.s(turn).set(task_id="the same").delay_for(60)
            delayq.advance(minutes=1)
            assert [result.get() for result in delayq.run_due()] == [f"reminded {turn}"]
        """
    )
    user.run_tests("-n", "2", passed=8)


def test_a_real_server_can_be_named_on_the_command_line(user, redis_server, redis_url):
    user.makepyfile(
        f"""
        from shop import app, remind

        def test_it_is_that_one(delayq):
            remind.delay_for(60, 7)
            assert delayq.services.endpoint.port == {redis_server.port}
            delayq.advance(minutes=1)
            assert [result.get() for result in delayq.run_due()] == ["reminded 7"]
        """
    )
    with redis_server.client() as client:
        client.set("mine", 1)
        user.run_tests("--delayq-redis", redis_url, passed=1)
        assert client.keys() == [b"mine"]


def test_unittest_asyncio_and_django_have_an_isolated_store_as_a_context_manager(user):
    user.makepyfile(
        """
        import asyncio
        import unittest
        from contextlib import ExitStack

        import django
        from django.conf import settings
        from django.db import transaction

        settings.configure(
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
        )
        django.setup()

        from celery_delayq.contrib.testing import isolated
        from django.test import TestCase
        from shop import app, remind

        class Plain(unittest.TestCase):
            def setUp(self):
                stack = ExitStack()
                self.addCleanup(stack.close)
                self.delayq = stack.enter_context(isolated(app))

            def test_it_reminds(self):
                remind.delay_for(1800, 7)
                self.delayq.advance(minutes=30)
                [result] = self.delayq.run_due()
                self.assertEqual(result.get(), "reminded 7")

        class OfAsyncio(Plain, unittest.IsolatedAsyncioTestCase):
            async def test_it_reminds(self):
                await asyncio.to_thread(remind.delay_for, 1800, 7)
                self.delayq.advance(minutes=30)
                [result] = await asyncio.to_thread(self.delayq.run_due)
                self.assertEqual(result.get(), "reminded 7")

        class OfDjango(Plain, TestCase):
            def test_it_reminds(self):
                with self.captureOnCommitCallbacks(execute=True):
                    transaction.on_commit(lambda: remind.delay_for(1800, 7))
                    self.assertEqual(self.delayq.scheduled(), [])
                self.delayq.advance(minutes=30)
                [result] = self.delayq.run_due()
                self.assertEqual(result.get(), "reminded 7")

        def test_a_coroutine_can_use_the_fixture(delayq):
            async def reminds():
                await asyncio.to_thread(remind.delay_for, 1800, 7)
                delayq.advance(minutes=30)
                with delayq.worker():
                    result = delayq.app.AsyncResult(delayq.scheduled()[0].id)
                    return await asyncio.to_thread(result.get, timeout=30)

            asyncio.run(reminds())
        """
    )
    user.run_tests(passed=4)


UNUSED = """
    import sys

    def test_nothing_of_it_is_imported():
        assert "celery_delayq.contrib.pytest" in sys.modules
        loaded = {name.partition(".")[0] for name in sys.modules}
        assert not loaded & {"celery", "fakeredis", "kombu", "lupa", "redis"}
        own = {name for name in sys.modules if name.startswith("celery_delayq")}
        assert own == {"celery_delayq", "celery_delayq.contrib", "celery_delayq.contrib.pytest"}
"""


def test_a_run_without_the_fixture_imports_the_plugin_and_nothing_else(user):
    user.makepyfile(UNUSED)
    user.run_tests(passed=1)


FORGETFUL = """
    import pytest
    from celery import Celery
    from celery_delayq import DelayQ
    from celery_delayq.contrib.testing import isolated
    from celery_delayq.errors import DelayQError
    from shop import app, delayq as real, remind

    other = Celery("other", broker="redis://:s3cret@127.0.0.1:1/0", set_as_current=False)
    others = DelayQ(other)

    def forgets():
        remind.delay_for(60, 7)

    WAYS = {
        "scheduling": forgets,
        "a bulk": lambda: real.schedule_many(remind, [((1,), {})], after=60),
        "cancel": lambda: real.cancel("a"),
        "a list": lambda: list(real.tasks()),
        "a selection": lambda: real.select(tag="x"),
        "the hand-over": lambda: real.hand_over(),
        "another app's": lambda: others.counts(),
    }

    @pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
    def test_it_forgot_the_fixture(way):
        with pytest.raises(DelayQError) as raised:
            way()
        assert type(raised.value).__name__ == EXPECTED
        if EXPECTED == "StoreForbidden":
            assert "delayq_forbid_store" in str(raised.value)
            assert "the fixture delayq" in str(raised.value)
            assert "s3cret" not in str(raised.value)

    def test_it_did_not(delayq):
        forgets()
        assert len(delayq.scheduled()) == 1
        with isolated(other) as others_own:
            assert others_own.counts().scheduled == 0
        with pytest.raises(DelayQError) as raised:
            others.counts()
        assert type(raised.value).__name__ == EXPECTED

    def test_a_call_that_reaches_no_store_is_allowed():
        assert real.services.settings.prefix == "delayq"
        assert app.tasks["shop.remind"].run("me") == "reminded me"
"""


@pytest.mark.parametrize("option", ["true", "false", None])
def test_a_test_without_the_fixture_can_be_kept_from_the_store(user, option):
    said = "" if option is None else f"delayq_forbid_store = {option}\n"
    user.makeini(f"[pytest]\npythonpath = .\n{said}")
    # Celery would ask the result backend first, for twenty seconds.
    user.makepyfile(shop=SHOP.replace(', backend="redis://127.0.0.1:1/1"', ""))
    expected = "StoreForbidden" if option == "true" else "StoreUnavailable"
    user.makepyfile(f"EXPECTED = {expected!r}\n" + textwrap.dedent(FORGETFUL))

    user.run_tests(passed=9)


def test_a_forbidden_call_does_not_ask_the_result_backend_first(shop, monkeypatch):
    # Celery would ask it for twenty seconds.
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("it connects"))
    shop.app.conf.delayq_capture_eta = True
    parts = [shop.number.s(1), shop.number.s(2)]
    calls = [
        partial(shop.remind.delay_for, 60, 7),
        partial(shop.remind.apply_async, (7,), countdown=60),
        partial(chain(shop.number.s(1), shop.number.s()).delay_for, 60),
        partial(chord(parts, shop.total.s()).delay_for, 60),
        partial(shop.delayq.schedule_many, shop.remind, [((1,), {}), ((2,), {})], after=60),
    ]

    with ExitStack() as stack:
        stack.callback(forbid_stores())
        for call in calls:
            with pytest.raises(StoreForbidden):
                call()


def test_forbidden_stores_are_permitted_again_after_the_run(shop):
    permit = forbid_stores()
    try:
        with pytest.raises(StoreForbidden):
            shop.delayq.counts()
        with isolated(shop.app) as delayq:
            assert delayq.counts().scheduled == 0
        with pytest.raises(StoreForbidden):
            shop.delayq.services.connect()
    finally:
        permit()
    with pytest.raises(StoreUnavailable):
        shop.delayq.counts()
