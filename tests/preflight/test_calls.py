"""Each kind of call that waits, beside new code that would not run it, and new code that would."""

import base64
import json
import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, ClassVar

import celery.app.base
import pydantic
import pytest
from celery import Task, chain, chord, group

from celery_delayq.contrib.preflight.judging import PLAIN
from tests.app.support import FAR, arrive_in_protocol_1
from tests.preflight.conftest import rows_of
from tests.support.shards import each, put_message

pytestmark = pytest.mark.libraries

TIMES = 3  # the first message of a kind is stored whole; others share a template
GONE = [("remind", "unregistered", "task")]
MISFIT = [("remind", "arguments", "task")]
ONE_MISFIT = [("remind", "arguments", "task", 1)]


def none():
    pass


def one(order):
    pass


def two(order, zone):
    pass


def three(request, error, traceback):
    pass


def any_number(*orders):
    pass


def with_default(order, zone="UTC", *, note=""):
    pass


def bound(self, order):
    pass


@dataclass
class Case:
    """A call of the old code, and what is said of it.

    Attributes:
        rows: With each task that the new code has.
        tasks: Those.
        options: Theirs.
        args, kwargs: Of the call, of ``remind``.
    """

    rows: list[Any]
    tasks: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    args: tuple[Any, ...] = (1,)
    kwargs: dict[str, Any] = field(default_factory=dict)


CASES = {
    "the same code": Case([], {"remind": one}),
    "renamed": Case(GONE, {"remember": one}),
    "one argument more": Case(MISFIT, {"remind": two}),
    "one argument more, with a default": Case([], {"remind": with_default}),
    "one argument less": Case(MISFIT, {"remind": none}),
    "a renamed keyword": Case(MISFIT, {"remind": one}, args=(), kwargs={"order_id": 1}),
    "a keyword that stays": Case([], {"remind": one}, args=(), kwargs={"order": 1}),
    "a keyword only": Case([], {"remind": with_default}, kwargs={"note": "x"}),
    "any number": Case([], {"remind": any_number}, args=(1, 2, 3)),
    "any number, but no keyword": Case(MISFIT, {"remind": any_number}, kwargs={"order": 1}),
    "bound": Case([], {"remind": bound}, {"bind": True}),
    "bound, one argument more": Case(MISFIT, {"remind": bound}, {"bind": True}, args=(1, 2)),
    "not typed": Case([], {"remind": two}, {"typing": False}),
    "not typed, renamed": Case(GONE, {"remember": two}, {"typing": False}),
    "an alias": Case([], {"remember": one, "remind": one}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_plain_task(old, look, case):
    for _ in range(TIMES):
        old.send_task("remind", case.args, case.kwargs, delayq_at=FAR)
    assert look(case.tasks, case.options) == [(*row, TIMES) for row in case.rows]


def test_a_task_that_is_a_class_is_called_by_its_run(old, new):
    class Remind(Task):
        name = "remind"

        def run(self, order, zone):
            pass

    class Any(Task):
        name = "any"

        def __call__(self, *args, **kwargs):
            pass

        def run(self):
            pass

    for count in (1, 2):
        for name in ("remind", "any"):
            old.send_task(name, (1,) * count, delayq_at=FAR)
    app = new()
    app.register_task(Remind())
    app.register_task(Any())

    assert rows_of(app.delayq.preflight()) == ONE_MISFIT


def test_a_task_with_models_takes_what_its_function_does(old, new):
    if not hasattr(celery.app.base, "pydantic_wrapper"):
        pytest.skip("this Celery knows no models")

    class Order(pydantic.BaseModel):
        number: int

    def remind(order: Order):
        pass

    def bound(self, order: Order):
        pass

    for name in ("remind", "bound"):
        old.send_task(name, ({"number": 1},), delayq_at=FAR)
        old.send_task(name, ({"number": 1}, 2), delayq_at=FAR + 1)
    app = new()
    app.task(name="remind", shared=False, pydantic=True)(remind)
    app.task(name="bound", shared=False, pydantic=True, bind=True)(bound)

    assert rows_of(app.delayq.preflight()) == [
        ("bound", "arguments", "task", 1),
        ("remind", "arguments", "task", 1),
    ]


def test_a_captured_call_is_a_task_like_any_other(delayq_app, url, look):
    app = delayq_app(url, delayq_capture_eta=True)
    app.send_task("remind", (1,), countdown=9_000)
    assert look({"remind": two}) == ONE_MISFIT


def test_a_message_of_protocol_1(old, look):
    arrive_in_protocol_1(old, "remind", (1,), delayq_at=FAR)
    arrive_in_protocol_1(old, "other", (1,), delayq_at=FAR + 1)
    assert look({"remind": two}) == [
        ("remind", "arguments", "task", 1),
        ("other", "unregistered", "task", 1),
    ]


@pytest.mark.parametrize(
    ("serializer", "kept"),
    [("pickle", "application/x-python-serialize"), ("msgpack", "application/x-msgpack")],
)
def test_a_content_type_that_is_no_longer_accepted(delayq_app, url, look, serializer, kept):
    app = delayq_app(url, accept_content=["json", serializer])
    args = (Mine(),) if serializer == "pickle" else (1,)
    for _ in range(TIMES):
        app.send_task("remind", args, delayq_at=FAR, serializer=serializer)
    Mine.seen.clear()

    assert look({"remind": one}) == [("remind", "content", "task", TIMES)]
    assert Mine.seen == []
    assert look({"remind": one}, accept_content=["json", kept]) == []
    assert look({"remind": two}, accept_content=["json", kept]) == [(*MISFIT[0], TIMES)]


class Mine:
    """Notes that it was made of a pickle."""

    seen: ClassVar[list[Any]] = []

    def __setstate__(self, state):
        self.seen.append(state)

    def __getstate__(self):
        return 1


def test_a_pickle_whose_module_is_gone_cannot_be_decoded(delayq_app, url, look, monkeypatch):
    module = ModuleType("shop_values")
    module.Order = type("Order", (), {"__module__": module.__name__})
    app = delayq_app(url, accept_content=["json", "pickle"])
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, module.__name__, module)
        for _ in range(TIMES):
            app.send_task("remind", (module.Order(),), delayq_at=FAR, serializer="pickle")
        assert look({"remind": one}, accept_content=["pickle"]) == []

    found = look({"remind": one}, accept_content=["pickle"])

    assert found == [("remind", "undecodable", "task", TIMES)]


BODIES = {
    "no JSON": '"W1s="',
    "no base64": '"W"',
    "no call": '"eyJ4IjogMX0="',
    "a number": "5",
    "arguments that are a number": json.dumps("WzEsIHt9LCB7fV0="),
    "a type that nobody knows": json.dumps(
        "W1t7Il9fdHlwZV9fIjogIk1vbmV5IiwgIl9fdmFsdWVfXyI6IDF9XSwge30sIHt9XQ=="
    ),
}


MESSAGE = (
    b'{"body": %s, "content-type": "application/json", "content-encoding": "utf-8", '
    b'"properties": {"body_encoding": "base64"}, "headers": {"task": "remind", "x": '
)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_that_cannot_be_decoded(old, redis, look, body):
    old.send_task("remind", (1,), task_id="a", delayq_at=FAR)
    put_message(redis, "a", MESSAGE % body.encode())

    assert look({"remind": one}) == [("remind", "undecodable", "task", 1)]
    gone = [("remind", "undecodable", "task", 1), ("remind", "unregistered", "task", 1)]
    assert look({}) == gone


@pytest.mark.parametrize("kwargs", [[{}], [[]], "ab"], ids=str)
def test_keyword_arguments_that_are_no_mapping_cannot_be_decoded(old, redis, look, kwargs):
    for _ in range(TIMES):
        old.send_task("remind", (1,), delayq_at=FAR)
    plain, odd = (
        base64.b64encode(json.dumps([[1], given, PLAIN]).encode()) for given in ({}, kwargs)
    )
    for key in each("records"):
        for task_id, record in redis.hgetall(key).items():
            redis.hset(key, task_id, record.replace(plain, odd))

    assert look({"remind": one}) == [("remind", "undecodable", "task", TIMES)]


@pytest.mark.parametrize("message", [b'{"headers": ', b'{"headers": 5, "properties": {"x": '])
def test_a_message_that_is_none(old, redis, look, message):
    old.send_task("remind", (1,), task_id="a", delayq_at=FAR)
    put_message(redis, "a", message)
    assert look({"remind": one}) == [("", "undecodable", "task", 1)]


def linked(task, link):
    return task.s(1).set(link=link)


LINKS = {
    "a callback": lambda task, other: linked(task, other.s(2)),
    "callbacks": lambda task, other: linked(task, [other.s(2), other.s(3)]),
    "a starmap": lambda task, other: linked(task, other.starmap([(1, 2)]).set(immutable=True)),
    "an errback": lambda task, other: task.s(1).set(link_error=other.s(2)),
    "its own": lambda task, other: linked(task, task.si(1).set(link=other.s(2))),
    "a chain": lambda task, other: linked(task, chain(task.si(1), other.s(2))),
    "a chord": lambda task, other: linked(task, chord([task.si(1)], other.s(2))),
}  # fmt: skip


@pytest.mark.parametrize("made", LINKS.values(), ids=LINKS)
def test_links_of_a_task(old, look, made):
    """They get a result before their own argument; an errback gets an id."""
    task = old.task(name="remind", shared=False)(one)
    other = old.task(name="other", shared=False)(two)
    for _ in range(TIMES):
        made(task, other).delay_until(FAR)

    assert look({"remind": one, "other": two}) == []
    assert look({"remind": one, "other": one}) == [("other", "arguments", "link", TIMES)]
    assert look({"remind": one}) == [("other", "unregistered", "link", TIMES)]


def test_an_errback_gets_an_id_or_three_arguments(old, look):
    task = old.task(name="remind", shared=False)(one)
    other = old.task(name="other", shared=False)(any_number)
    task.s(1).set(link_error=other.s()).delay_until(FAR)
    task.s(1).set(link_error=other.si(1)).delay_until(FAR)

    assert look({"remind": one, "other": three}) == [("other", "arguments", "link", 1)]
    assert look({"remind": one, "other": one}) == []


CANVASES = {
    "an errback of a part": lambda task, other: group(
        task.s(1).set(link_error=other.s(2)), task.s(2)
    ),
    "chain": lambda task, other: chain(task.s(1), other.s(2)),
    "chain of three": lambda task, other: chain(task.s(1), task.si(3), other.s(2)),
    "group": lambda task, other: group(task.s(1), other.s(2, 3)),
    "chord": lambda task, other: chord([task.s(1), task.s(2)], other.s(2)),
    "chord of chains": lambda task, other: chord(
        [task.s(1) | task.si(2), task.s(3) | task.si(4)], other.s(2)
    ),
    "chain with group": lambda task, other: chain(task.s(1), group(other.s(2), other.s(3))),
    "chain with chord": lambda task, other: task.s(1) | group(task.si(2), task.si(3)) | other.s(4),
    "starmap": lambda _, other: other.starmap([(1, 2), (3, 4)]),
    "chunks": lambda _, other: other.chunks([(1, 2), (3, 4)], 1),
}  # fmt: skip


@pytest.mark.parametrize("made", CANVASES.values(), ids=CANVASES)
def test_parts_of_a_canvas(old, look, made):
    task = old.task(name="remind", shared=False)(one)
    other = old.task(name="other", shared=False)(two)
    for _ in range(TIMES):
        made(task, other).delay_until(FAR)

    assert look({"remind": one, "other": two}) == []
    assert look({"remind": one, "other": one}) == [("other", "arguments", "canvas", TIMES)]
    assert look({"remind": one}) == [("other", "unregistered", "canvas", TIMES)]


def test_a_task_with_several_wrong_parts_counts_once(old, look):
    other = old.task(name="other", shared=False, typing=False)(one)
    group(other.s(), other.s(1, 2), other.s(1, 2, 3), other.s(1)).delay_until(FAR)
    assert look({"other": one}) == [("other", "arguments", "canvas", 1)]


def test_a_map_calls_its_task_with_one_argument(old, look):
    task = old.task(name="remind", shared=False)(one)
    task.map([1, 2]).delay_until(FAR)
    assert look({"remind": one}) == []
    assert look({"remind": two}) == [("remind", "arguments", "canvas", 1)]
