"""Sealed arguments, as the page about security has them: no bare argument is in the store."""

import base64
import os
import sys
from types import ModuleType

import pytest
from celery import chain
from kombu import serialization
from kombu.serialization import registry

from tests.app.support import envelope
from tests.readme.document import page
from tests.readme.runner import run

pytestmark = pytest.mark.libraries

TYPE = "application/x-sealed"
SECRET = 123_454_321
[BLOCK] = page("operate/security").written_in("text")


class Fernet:
    """Hides text as the real one does, and is no cipher."""

    def __init__(self, key):
        assert key == "the key"

    def encrypt(self, data):
        return base64.b64encode(bytes(byte ^ 0x5A for byte in data))

    def decrypt(self, token):
        return bytes(byte ^ 0x5A for byte in base64.b64decode(token))


@pytest.fixture
def sealed(shop, monkeypatch):
    """Run the example with another argument."""
    module = ModuleType("cryptography.fernet")
    module.Fernet = Fernet
    monkeypatch.setitem(sys.modules, "cryptography", ModuleType("cryptography"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(os.environ, "SHOP_KEY", "the key")
    assert "(42,)" in BLOCK.text
    text = BLOCK.text.replace("(42,)", f"({SECRET},)")
    run(type(BLOCK)(BLOCK.document, BLOCK.section, "python", BLOCK.line, text), {})
    yield shop
    serialization.unregister("sealed")
    registry._disabled_content_types.discard(TYPE)


def contents(redis):
    """Names and values of every hash of a Redis; no text of a message is anywhere else."""
    hashes = [key for key in redis.scan_iter() if redis.type(key) == b"hash"]
    return b"".join(part for key in hashes for pair in redis.hgetall(key).items() for part in pair)


def test_the_store_has_the_arguments_sealed_and_a_process_with_the_key_reads_them(
    sealed, redis_server
):
    [task] = sealed.delayq.tasks()

    assert (task.args, task.argsrepr) == ((SECRET,), "(sealed)")
    with redis_server.client() as redis:
        held = contents(redis)
        assert b"(sealed)" in held
        assert str(SECRET).encode() not in held


def test_without_texts_of_its_own_a_call_shows_them_in_a_header(sealed, redis_server):
    sealed.remind.delay_for(3600, SECRET)

    with redis_server.client() as redis:
        assert str(SECRET).encode() in contents(redis)


def test_a_rule_s_arguments_are_not_sealed(sealed, redis_server):
    sealed.delayq.every("daily", sealed.remind.s(SECRET), 86400)

    with redis_server.client() as redis:
        assert any(str(SECRET).encode() in row for row in redis.hvals("{delayq:0}:rules"))


def test_a_canvas_is_sealed_with_its_parts(sealed):
    result = chain(sealed.remind.si(1), sealed.remind.si(2)).delay_for(3600)

    assert envelope(sealed.delayq, result.id).raw["content-type"] == TYPE
