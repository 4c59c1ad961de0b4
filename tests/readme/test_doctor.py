"""The output of `delayq doctor` on its page is the real output, but for the figures."""

import re

import pytest

from tests.readme.document import page
from tests.readme.test_console import said_by

PAGE = page("operate/doctor")
DOCTOR = "celery -A shop delayq doctor"
SET_UP = ("--save", "3600", "1", "--maxmemory", "1gb")  # like the Redis of the example


@pytest.fixture
def on_its_redis(environment, start_redis, redis_server):
    """The environment of a process whose Redis is set up like the example's."""
    server = start_redis(*SET_UP, binary=redis_server.binary)
    return {**environment, "CELERY_BROKER_URL": server.url()}


def without_facts(text):
    """Each line without its figures, the server's name and its product."""
    text = re.sub(r"redis://[\w.:]+/", "redis://red/", text).replace("Valkey", "Redis")
    return [re.sub(r"\d[\d.,]*( [kMG]B)?", "0", line) for line in text.splitlines()]


def test_the_doctor_prints_the_text_on_its_page(on_its_redis, shop_file):
    shown = PAGE.written_in("text")[0]

    said, status = said_by(DOCTOR, on_its_redis, shop_file)

    assert without_facts(said) == without_facts(shown.text)
    assert status == 1


def test_each_line_of_the_doctor_is_explained(on_its_redis, shop_file):
    said, _ = said_by(DOCTOR, on_its_redis, shop_file)
    names = {line[9:28].strip() for line in said.splitlines()[:-1] if line[:1] != " "}

    explained = {name for row in PAGE.rows("Doctor") for name in row[0].split(", ")}

    assert names <= explained
    assert explained - names == {"wait for replicas", "disk", "queues", "rules", "keys"}
