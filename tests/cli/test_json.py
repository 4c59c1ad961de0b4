"""`--json`: lines for `jq`; and text of others, which does nothing to a terminal."""

import json
from datetime import datetime, timezone
from decimal import Decimal
from uuid import UUID

import pytest
from celery import chain

from tests.app.support import FAR, LONG_AGO
from tests.app.test_reading import Mark
from tests.operations.test_cli import HOSTILE, printable
from tests.support.shards import keys_of

# `--json`: lines for `jq`, with the arguments as JSON; nothing is unpickled, nothing crashes.


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


@pytest.mark.parametrize("line", ["list", "list --json", "show a", "show a --json"])
def test_nothing_is_unpickled_to_be_shown(delayq_app, url, printed, tmp_path, line):
    mark = tmp_path / "mark"
    app = delayq_app(url, accept_content=["json", "pickle"])
    app.send_task("t", (Mark(mark),), task_id="a", delayq_at=FAR, serializer="pickle")

    lines = printed(*line.split(), app=app)

    assert not mark.exists()
    if "--json" in line:
        [facts] = map(json.loads, lines)
        assert (facts["args"], facts["kwargs"]) == (None, None)
        assert "Mark" in facts["argsrepr"]


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


# Control characters in task names, ids, queues and arguments do not reach a terminal.


def test_show_prints_plain_text_and_json_carries_the_text_as_it_is(app, run, said):
    text = "".join(HOSTILE)
    app.send_task(text, (text,), {text: text}, task_id=text, queue=text, delayq_at=FAR)

    output = run("show", text).output
    assert all(printable(line) for line in output.split("\n")), ascii(output)
    assert len(output.splitlines()) == 12
    [line] = said("list", "--json")
    assert (json.loads(line)["id"], json.loads(line)["task"]) == (text, text)
    assert printable(line)


def test_wide_characters_are_listed_as_they_are(app, said):
    app.send_task("日本.タスク", task_id="a", queue="süß", delayq_at=FAR)
    assert said("list")[1].endswith("日本.タスク        süß    scheduled")


def test_an_id_that_looks_like_an_option_can_follow_a_double_dash(app, said):
    app.send_task("t", task_id="--json", delayq_at=FAR)
    assert said("cancel", "--", "--json") == ["task --json cancelled"]
