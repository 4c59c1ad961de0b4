"""`--json`: lines for `jq`, with the arguments as JSON; nothing is unpickled, nothing crashes."""

import json
from datetime import datetime, timezone
from decimal import Decimal
from uuid import UUID

import pytest
from celery import chain

from tests.app.support import FAR, LONG_AGO
from tests.app.test_reading import Mark
from tests.support.shards import keys_of


@pytest.fixture
def told(printed):
    """The task a in ``show --json`` and ``list --json``, which agree."""

    def told(app):
        [one] = map(json.loads, printed("list", "--json", app=app))
        [shown] = map(json.loads, printed("show", "a", "--json", app=app))
        assert shown == {name: value for name, value in one.items() if name != "cursor"}
        return shown

    return told


SOME = ((1, -1.5, None, True, "ü\n\x1b"), {"deep": {"er": [[], {}]}, "ä": 2**60})
LONG = (("x" * 3000,), {"long": ["y" * 3000]})


@pytest.mark.parametrize(
    ("serializer", "args", "kwargs"),
    [("json", *SOME), ("json", *LONG), ("json", (), {}), ("msgpack", *SOME)],
    ids=["some", "long", "none", "some-msgpack"],
)
def test_arguments_are_an_array_and_an_object(  # noqa: PLR0917
    delayq_app, url, told, serializer, args, kwargs
):
    app = delayq_app(url, accept_content=[serializer])
    app.send_task("t", args, kwargs, task_id="a", serializer=serializer, delayq_at=FAR)
    facts = told(app)
    assert (facts["args"], facts["kwargs"], facts["task"]) == (list(args), kwargs, "t")
    assert {"argsrepr", "kwargsrepr"} & facts.keys() == set()


def test_dates_decimals_and_uuids_are_shown_as_text(app, told):
    args = (datetime(2030, 1, 1, tzinfo=timezone.utc), Decimal("1.10"), UUID(int=5))
    app.send_task("t", args, task_id="a", delayq_at=FAR)
    assert told(app)["args"] == ["2030-01-01T00:00:00+00:00", "1.10", str(UUID(int=5))]


NAN, RAW = (float("nan"), "(nan,)"), (b"\xff\x00", "(b'ff00',)")


@pytest.mark.parametrize(
    ("value", "text", "serializer"), [(*NAN, "json"), (*RAW, "json"), (*RAW, "msgpack")]
)
def test_arguments_that_cannot_be_json_are_null_beside_their_text(  # noqa: PLR0917
    delayq_app, url, told, value, text, serializer
):
    app = delayq_app(url, accept_content=["json", "msgpack"])
    app.send_task("t", (value,), {"k": 1}, task_id="a", serializer=serializer, delayq_at=FAR)
    facts = told(app)
    assert (facts["args"], facts["argsrepr"], facts["kwargs"]) == (None, text, {"k": 1})
    assert "kwargsrepr" not in facts


@pytest.mark.parametrize("accept", [["json", "pickle"], ["json"]], ids=str)
@pytest.mark.parametrize("line", ["list", "list --json", "show a", "show a --json"])
def test_nothing_is_unpickled_to_be_shown(  # noqa: PLR0917
    delayq_app, url, printed, tmp_path, accept, line
):
    mark = tmp_path / "mark"
    app = delayq_app(url, accept_content=accept)
    app.send_task("t", (Mark(mark),), task_id="a", delayq_at=FAR, serializer="pickle")

    lines = printed(*line.split(), app=app)

    assert not mark.exists()
    if "--json" in line:
        [facts] = map(json.loads, lines)
        assert (facts["args"], facts["kwargs"]) == (None, None)
        assert "Mark" in facts["argsrepr"]


@pytest.mark.parametrize("hidden", ["args", "kwargs"])
def test_hidden_arguments_are_null_and_the_others_are_not(app, told, hidden):
    own = {f"{hidden}repr": "***"}
    app.send_task("t", ("s3cret",), {"k": "s3cret"}, task_id="a", delayq_at=FAR, **own)
    facts = told(app)
    assert (facts[hidden], facts[f"{hidden}repr"]) == (None, "***")
    assert facts[{"args": "kwargs", "kwargs": "args"}[hidden]] in (["s3cret"], {"k": "s3cret"})
    assert json.dumps(facts).count("s3cret") == 1


def test_bodies_that_are_damaged_are_null(app, redis, told):
    app.send_task("t", ("x" * 40,), task_id="a", delayq_at=FAR)
    key = keys_of("a")["records"]
    record = redis.hget(key, "a")
    body = json.loads(app.delayq.services.entries.find("a").message)["body"].encode()
    assert body in record
    redis.hset(key, "a", record.replace(body, b"!" * len(body)))

    facts = told(app)
    assert (facts["args"], facts["kwargs"], facts["argsrepr"]) == (None, None, f"('{'x' * 40}',)")


def test_an_unreadable_task_has_no_times(app, redis, printed):
    app.send_task("t", task_id="a", delayq_at=LONG_AGO)
    redis.hset(keys_of("a")["records"], "a", "?")
    app.delayq.hand_over()

    [line] = printed("list", "--dead", "--json")
    facts = json.loads(line)
    assert (facts["id"], facts["state"], facts["due"]) == ("a", "DEAD", None)
    assert facts["reason"].startswith("record format")
    assert "cursor" not in facts


# Canvases.


def test_a_canvas_is_listed_as_what_it_is_and_its_arguments_are_not(app, printed):
    secret = app.signature("shop.add", args=("a secret",)).set(argsrepr="***")
    result = app.delayq.schedule(chain(secret, app.signature("shop.mail")), at=FAR)

    _, row = printed("list")
    [line] = printed("list", "--json")
    facts = json.loads(line)
    assert row.endswith("  chain(shop.add, ...)        celery  scheduled")
    assert (facts["args"], facts["kwargs"]) == (None, None)
    assert facts["argsrepr"].startswith("chain(shop.add")
    assert "secret" not in "\n".join([*printed("show", result.id), line, row])
