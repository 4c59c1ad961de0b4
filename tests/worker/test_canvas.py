"""Canvases in real workers: results, parts beside those of plain Celery, and launches that fail."""

import itertools
import json

import celery
import pytest
from celery import chain, chord, group

from tests.support.redis_server import RedisServer
from tests.support.waiting import PATIENCE, eventually
from tests.worker import parts
from tests.worker.conftest import each_of, wait_told
from tests.worker.parts import SEEN, WAYS
from tests.worker.project import TASKS

pytestmark = pytest.mark.libraries


# A canvas with a due time, through a real worker and a real result backend.


TIMEOUT = PATIENCE

project = each_of("crew", "rabbit")


class Parts:
    """Signatures of the tasks of a project: ``parts.add(1, 2)``."""

    def __init__(self, project):
        self._tasks = project.tasks

    def __getattr__(self, name):
        return self._tasks[name].s


NESTED = pytest.mark.skipif(
    celery.VERSION < (5, 5), reason="Celery 5.4's own apply_async never ends it"
)


@pytest.mark.parametrize(
    ("make", "result"),
    [
        pytest.param(lambda p: chain(p.add(1, 2), p.add(3), p.add(4)), 10, id="chain"),
        pytest.param(lambda p: group(p.add(n, n) for n in range(4)), [0, 2, 4, 6], id="group"),
        pytest.param(lambda p: chord([p.add(1, 1), p.add(2, 2)], p.total()), 6, id="chord"),
        pytest.param(
            lambda p: group(
                chain(p.add(1, 1), p.add(1)),
                chain(chord([p.add(1, 1), p.add(2, 2)], p.total()), p.add(10)),
            ),
            [3, 16],
            id="chord in a chain in a group",
            marks=NESTED,
        ),
        pytest.param(
            lambda p: chain(group(p.add(1, 1), p.add(2, 2)), p.total(), p.add(1)),
            7,
            id="chain of a group and a task",
        ),
        pytest.param(lambda p: p.double.__self__.map([1, 2]), [2, 4], id="map"),
        pytest.param(
            lambda p: p.double.__self__.chunks([(n,) for n in range(4)], 2).group(),
            [[0, 2], [4, 6]],
            id="chunks",
        ),
    ],
)
def test_a_canvas_has_its_result(project, make, result):
    assert make(Parts(project)).delay_for(0.1).get(timeout=TIMEOUT) == result


# Each part of a canvas is sent as plain Celery sends it, from a web process and from a task.


_runs = itertools.count(1)


@pytest.fixture(scope="module")
def shop(broker_conf, standing):
    """A worker that does not consume the app's default queue."""
    default = "parts-rabbitmq" if broker_conf else "parts"
    own = {"queue": f"{default}-own"}
    other = {"queue": f"{default}-routed", "priority": 4}
    conf = {
        "task_default_queue": default,
        "task_routes": {"part": own, "pickled": own, "applying": own, "routed": other},
        "accept_content": ["json", "pickle"],
        "task_queue_max_priority": 9,
        **broker_conf,
    }
    queues = ",".join(f"{default}-{one}" for one in ("own", "routed", "set"))
    project = standing(
        "-P", "threads", "-c", "4", "-Q", queues, module="tests.worker.parts", **conf
    )
    project.default = default
    project.parts = parts.define(project.app, project.default)
    wait_told(project)
    return project


class Canvas:
    """Makes the parts of one canvas."""

    def __init__(self, shop):
        self.run = str(next(_runs))
        self.other = f"{shop.default}-set"
        self._tasks = shop.parts
        self.names = []

    def __getattr__(self, task):
        def made(name, *args):
            self.names.append(name)
            return self._tasks[task].s(*args, run=self.run, name=name)

        return made


CANVASES = {
    "a chain": lambda c: chain(c.pickled("a", {1}), c.routed("b"), c.pickled("c")),
    "a chain that begins elsewhere": lambda c: c.routed("a") | c.part("b"),
    "a group": lambda c: group(c.routed("a"), c.pickled("b", {1, 2}), c.part("c")),
    "a chord": lambda c: chord([c.pickled("a", {1}), c.routed("b")], c.part("c")),
    "a chord that comes of a chain": lambda c: chain(
        group(c.part("a"), c.routed("b")), c.part("c"), c.part("d")
    ),
    "a group in a chain": lambda c: chain(c.part("a"), group(c.part("b"), c.routed("c"))),
    "chains and a chord in a group": lambda c: group(
        chain(c.part("a"), c.routed("b")), chord([c.part("c"), c.part("d")], c.part("e"))
    ),
    "a chord in a chord": lambda c: chord(
        [chord([c.part("a"), c.part("b")], c.part("c")), c.routed("d")], c.part("e")
    ),
    "options of parts": lambda c: group(
        c.part("a").set(queue=c.other, priority=7, time_limit=60),
        c.part("b", "secret").set(headers={"tenant": "blue"}, argsrepr="***", ignore_result=True),
        c.part("c").set(routing_key=c.other, exchange=""),
    ),
    "options of a chain": lambda c: chain(c.part("a"), c.part("b")).set(queue=c.other, priority=6),
    "options of a group": lambda c: group(c.part("a"), c.routed("b")).set(
        queue=c.other, headers={"tenant": "red"}
    ),
    "options of a chord": lambda c: chord([c.part("a"), c.part("b")], c.part("c")).set(
        queue=c.other, priority=2
    ),
    "stamps": lambda c: stamped(chain(c.part("a"), group(c.part("b"), c.routed("c")))),
    "links": lambda c: group(linked(c.part("a"), c.routed("b")), c.part("c")),
}


def stamped(canvas):
    canvas.stamp(day="monday")
    return canvas


def linked(sig, callback):
    sig.link(callback)
    return sig


def by_a_web_process(_shop, canvas, way):
    WAYS[way](canvas)


def by_a_running_task(shop, canvas, way):
    return shop.parts["applying"].delay(canvas, way).id


@pytest.mark.parametrize("applied", [by_a_web_process, by_a_running_task])
@pytest.mark.parametrize("what", CANVASES)
def test_each_part_of_a_canvas_is_sent_as_plain_celery_sends_it(shop, what, applied):
    assert sent(shop, what, "later", applied) == sent(shop, what, "plain", applied)


def sent(shop, what, way, applied):
    """The request that the run of each part saw, with names in place of ids."""
    canvas = Canvas(shop)
    made = CANVASES[what](canvas)
    caller = applied(shop, made, way)

    def all_seen():
        found = shop.evidence.lrange(SEEN.format(canvas.run), 0, -1)
        return found if len(found) >= len(canvas.names) else None

    seen = [json.loads(one) for one in eventually(all_seen)]
    return sorted((named(one, seen, caller) for one in seen), key=lambda one: one["name"])


def named(part, seen, caller):
    """A part, without what chance decides: ids, and which part of a chord's header ended last."""
    groups = {}
    for one in seen:
        groups.setdefault(one["group"], []).append(one)

    def who(task_id):
        if task_id in (caller, None, part["id"]):
            return {caller: "the caller", None: None, part["id"]: "itself"}[task_id]
        [one] = [one for one in seen if one["id"] == task_id]
        return one["name"] if one["group"] is None else all_of(one["group"])

    def all_of(group):
        return group and sorted(one["name"] for one in groups[group])

    told = {name: value for name, value in part.items() if name != "id"}
    told.update(root=who(part["root"]), parent=who(part["parent"]), group=all_of(part["group"]))
    if isinstance(told["parent"], list):
        before = [one for one in seen if one["name"] in told["parent"]]
        told["sender"] = part["sender"] in {one["task"] for one in before} or part["sender"]
        told["root"] = part["root"] in {one["root"] for one in before} or told["root"]
    return told


# A canvas whose launch fails waits until it can be launched, and operators see that it does.


QUICKLY = {"retry_policy": {"max_retries": 1, "interval_start": 0, "interval_step": 0}}


@pytest.fixture
def results():
    with RedisServer() as one:
        yield one


@pytest.fixture
def alone(make_project, results, broker_conf):
    conf = {"result_backend": results.url(), "result_backend_transport_options": QUICKLY}
    return make_project(**conf, **broker_conf)


@pytest.fixture
def launched(alone):
    """A chord that is due."""
    add, total = alone.tasks["add"], alone.tasks["total"]
    return chord([add.s(1, 1), add.s(2, 2)], total.s()).delay_for(0)


def test_a_chord_whose_result_backend_is_away_when_it_is_due_runs_when_that_is_back(
    alone, launched, results, start_worker
):
    results.kill()
    start_worker(TASKS, "-P", "threads", "-c", "2", env=alone.env)

    task = eventually(lambda: refused(alone, launched))
    assert task.error.startswith("cannot launch, result backend: ")
    assert any("refused" in one for one in alone.delayq.health())
    assert [alone.runs(one) for one in launched.parent.results] == [[], []]

    results.start()
    assert launched.get(timeout=PATIENCE) == 6
    assert [len(alone.runs(one)) for one in (*launched.parent.results, launched)] == [1, 1, 1]


@pytest.mark.parametrize("broker_conf", ["rabbitmq"], indirect=True)
def test_a_canvas_whose_worker_is_killed_while_it_launches_is_launched_by_another(
    alone, launched, results, start_worker
):
    results.pause()
    first = start_worker(TASKS, "-P", "prefork", "-c", "1", env=alone.env)
    first.wait_log(rf"Task celery_delayq.launch\[{launched.id}\] received")
    eventually(lambda: alone.delayq.get(launched.id) is None)  # the scanner has acknowledged it
    first.kill()
    results.resume()

    start_worker(TASKS, "-P", "threads", "-c", "2", env=alone.env)

    assert launched.get(timeout=PATIENCE) == 6


def refused(alone, result):
    task = alone.delayq.get(result.id)
    return task if task and task.next_try else None
