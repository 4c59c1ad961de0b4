"""Pickles and copies: what comes back is the same, and public names are all that a pickle names."""

import base64
import copy
import dataclasses
import pickle
import pickletools
from datetime import datetime, timedelta, timezone

import pytest
from celery import chord, group
from celery.result import AsyncResult

from celery_delayq import Defer, Item, Outcome, ScheduledResult, State, errors
from tests.app.conftest import app_with_results as app
from tests.app.support import FAR
from tests.support.forked import run_forked
from tests.support.worker import ROOT

__all__ = ["app"]

pytestmark = pytest.mark.libraries

PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)


@dataclasses.dataclass
class Order:
    """A program's own value, with a result in it."""

    reminder: ScheduledResult


def modules_in(pickled):
    """The modules of this package that a pickle names."""
    words = [word for _, word, _ in pickletools.genops(pickled) if isinstance(word, str)]
    return {word.split()[0] for word in words if word.startswith("celery_delayq")}


CANVASES = {
    "task": lambda add: add.s(1),
    "chain": lambda add: add.s(1) | add.s(2),
    "chord": lambda add: chord([add.s(1)], add.si(2)),
    "group": lambda add: group(add.s(1), add.s(2)),
}
WAYS = {
    **{
        f"pickle protocol {number}": lambda one, number=number: pickle.loads(
            pickle.dumps(one, number)
        )
        for number in PROTOCOLS
    },
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}
OF_RESULTS = {**WAYS, "asdict": lambda one: dataclasses.asdict(Order(one))["reminder"]}


@pytest.mark.parametrize("way", OF_RESULTS.values(), ids=OF_RESULTS)
@pytest.mark.parametrize("canvas", CANVASES.values(), ids=CANVASES)
def test_a_result_that_comes_back_is_the_same(app, add, canvas, way):
    result = canvas(add).delay_until(FAR)

    again = way(result)

    assert type(again) is type(result)
    assert (again, again.parent, again.app) == (result, result.parent, app)
    assert (again.state, again.due, again.existed) == ("SCHEDULED", result.due, False)
    assert again.reschedule(at=FAR + 1)
    assert again.cancel() is Outcome.DONE
    assert again.state != "SCHEDULED"


def test_a_copy_in_another_app_s_turn_stays_with_its_own_app(app, add, delayq_app, url):
    result = add.delay_until(FAR, 1)
    delayq_app(url, delayq_prefix="other").set_current()

    for copied in (copy.copy(result), copy.deepcopy(result)):
        assert (copied.app, copied.backend, copied.state) == (app, result.backend, "SCHEDULED")


def test_without_a_delayq_a_result_comes_back_as_celery_s(make_app, add):
    pickled = pickle.dumps(add.delay_until(FAR, 1))
    make_app("memory://")

    assert type(pickle.loads(pickled)) is AsyncResult


VALUES = {
    "a task": lambda delayq, add: delayq.get(add.delay_until(FAR, 1)),
    "an outcome": lambda *_: Outcome.DONE,
    "a state": lambda *_: State.DEAD,
    "an item": lambda *_: Item((1,), {"y": 2}, timedelta(1), "id", tags=["a"], conflict=None),
    "an item of one field": lambda *_: Item((1,)),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_value_that_comes_back_is_the_same(delayq, add, value, way):
    given = value(delayq, add)

    again = way(given)

    assert type(again) is type(given)
    assert again == given


def test_an_exception_that_comes_back_is_the_same():
    for given in (Defer(after=5), errors.KeyHeld("id", "key"), errors.StoreUnavailable("a", "b")):
        again = pickle.loads(pickle.dumps(given))
        assert (type(again), again.args) == (type(given), given.args)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_pickle_names_public_modules_only(delayq, add, protocol):
    given = [value(delayq, add) for value in VALUES.values()]
    given += [canvas(add).delay_until(FAR) for canvas in CANVASES.values()]
    kinds = [one for one in vars(errors).values() if isinstance(one, type)]
    given += [one for one in kinds if issubclass(one, errors.DelayQError)]

    named = modules_in(pickle.dumps([given, Defer(after=5)], protocol))

    assert named == {"celery_delayq", "celery_delayq.errors"}


READER = """
import sys
from celery import Celery
from celery_delayq import DelayQ

app = Celery("reader", backend=sys.argv[1])
DelayQ(app)
error = app.AsyncResult("a").result
from celery_delayq.errors import KeyHeld
assert type(error) is KeyHeld, type(error)
print(error)
"""


def test_another_process_gets_a_task_s_error_from_a_json_backend(delayq_app, redis_server, url):
    app, error = delayq_app(url, redis_server.url(1)), errors.KeyHeld("id", "key")
    app.backend.mark_as_failure("a", error)

    told = run_forked("-c", READER, redis_server.url(1), cwd=ROOT)

    assert told.stdout.splitlines() == [str(error)], told.stderr


# Written by 1.0.0 with Celery 5.4: the results of a task and of a group, the task, and an item, an
# outcome, a state and an error.
FROZEN = """
gASVuAYAAAAAAABdlCiMCGJ1aWx0aW5zlIwHZ2V0YXR0cpSTlIwNY2VsZXJ5X2RlbGF5cZSMD1NjaGVkdWxlZFJlc3VsdJST
lIwIcmVzdG9yZWSUhpRSlIwNY2VsZXJ5LnJlc3VsdJSMC0FzeW5jUmVzdWx0lJOUKIwBYZSMFGNlbGVyeS5iYWNrZW5kcy5i
YXNllIwQdW5waWNrbGVfYmFja2VuZJSTlGgOjA9EaXNhYmxlZEJhY2tlbmSUk5QpfZSHlFKUTk5OdJR9lCiMBmR1ZV9tc5SK
BgDYwyy7A4wHZXhpc3RlZJSJjAhyZXBsaWNhc5ROjAdoYXNfcnVulIl1h5RSlGgDaAZoB4aUUpRoCowLR3JvdXBSZXN1bHSU
k5SMAWeUXZQojA9jZWxlcnkuYXBwLmJhc2WUjBFfdW5waWNrbGVfYXBwYXR0cpSTlGgLKIwBYpRoFU5OTnSUhpRSlGgmaAso
jAFjlGgVTk5OdJSGlFKUZYaUfZQoaBiKBgDYwyy7A2gZiWgaTmgbiXWHlFKUaASMDVNjaGVkdWxlZFRhc2uUk5QpgZR9lCiM
AmlklIwBYZSMBHRhc2uUjANhZGSUjAVxdWV1ZZSMBmNlbGVyeZSMA2R1ZZSMCGRhdGV0aW1llIwIZGF0ZXRpbWWUk5RDCgg0
AQEAAAAAAACUaD6MCHRpbWV6b25llJOUaD6MCXRpbWVkZWx0YZSTlEsASwBLAIeUUpSFlFKUhpRSlIwHY3JlYXRlZJRoQEMK
B+oLHBU1NQSzIJRoSYaUUpSMBXN0YXRllGgEjAVTdGF0ZZSTlIwJU0NIRURVTEVElIWUUpSMBnJlYXNvbpSMAJSMCGF0dGVt
cHRzlEsAjAVlcnJvcpRoV4wIbmV4dF90cnmUTowKZGVhZF9zaW5jZZROjAdjaGFuZ2VklGhAQwoH6gscFTU1BLMglGhJhpRS
lIwIcmV2aXNpb26UigdlMm42XWEGjANrZXmUaFeMBHRhZ3OUjAF4lIWUjAlwYXVzZWRfYnmUKYwGY3Vyc29ylGhXjAhwcmlv
cml0eZRLAIwIcHV0X29mZnOUSwCMBmJlaGluZJRoV4wMYmVoaW5kX3VudGlslE6MCV9lbnZlbG9wZZR9lCiMBGJvZHmUjGhX
MXN4WFN3Z2UzMHNJSHNpWTJGc2JHSmhZMnR6SWpvZ2JuVnNiQ3dnSW1WeWNtSmhZMnR6SWpvZ2JuVnNiQ3dnSW1Ob1lXbHVJ
am9nYm5Wc2JDd2dJbU5vYjNKa0lqb2diblZzYkgxZJSMEGNvbnRlbnQtZW5jb2RpbmeUjAV1dGYtOJSMDGNvbnRlbnQtdHlw
ZZSMEGFwcGxpY2F0aW9uL2pzb26UjApwcm9wZXJ0aWVzlH2UKIwOY29ycmVsYXRpb25faWSUaDiMCHJlcGx5X3RvlIwkMDhj
NzI4NjgtZjE0My0zMWRiLWFiODEtZDhhMDA5YTU2ZjAwlIwNZGVsaXZlcnlfbW9kZZRLAowNZGVsaXZlcnlfaW5mb5R9lCiM
CGV4Y2hhbmdllGhXjAtyb3V0aW5nX2tleZSMBmNlbGVyeZR1jAhwcmlvcml0eZRLAIwNYm9keV9lbmNvZGluZ5SMBmJhc2U2
NJSMDGRlbGl2ZXJ5X3RhZ5SMJDI2ZjkxOTg3LTg2YWQtNGI4Mi04ZjE1LTA2MjYwMjk2OThmYZR1jAdoZWFkZXJzlH2UKIwE
bGFuZ5SMAnB5lIwEdGFza5RoOowCaWSUaDiMBnNoYWRvd5ROjANldGGUTowHZXhwaXJlc5ROjAVncm91cJROjAtncm91cF9p
bmRleJROjAdyZXRyaWVzlEsAjAl0aW1lbGltaXSUXZQoTk5ljAdyb290X2lklGg4jAlwYXJlbnRfaWSUTowIYXJnc3JlcHKU
jAQoMSwplIwKa3dhcmdzcmVwcpSMAnt9lIwGb3JpZ2lulIwLZ2VuMTAxNDFAdm2UjA1pZ25vcmVfcmVzdWx0lImMFXJlcGxh
Y2VkX3Rhc2tfbmVzdGluZ5RLAIwPc3RhbXBlZF9oZWFkZXJzlE6MBnN0YW1wc5R9lIwKZGVsYXlxX2R1ZZSKBgDYwyy7A3V1
dWJoBIwESXRlbZSTlChLAYWUfZROTnSUgZRoBIwHT3V0Y29tZZSTlIwEZG9uZZSFlFKUaFKMBERFQUSUhZRSlIwUY2VsZXJ5
X2RlbGF5cS5lcnJvcnOUjAdLZXlIZWxklJOUaDdoYU6HlFKUfZQojAd0YXNrX2lklGg3jAZob2xkZXKUaGGMBXVudGlslE51
YmUu
"""


def test_a_pickle_of_the_first_release_can_be_read(app):
    one, many, task, *values = pickle.loads(base64.b64decode(FROZEN))

    for result in (one, many):
        assert isinstance(result, ScheduledResult)
        assert (result.due, result.app) == (datetime.fromtimestamp(FAR, timezone.utc), app)
        assert result.cancel() is Outcome.NOT_FOUND
    assert (one.id, many.id, [part.id for part in many.results]) == ("a", "g", ["b", "c"])
    assert (task.id, task.due, task.args, task.tags) == ("a", one.due, (1,), ("x",))
    held = errors.KeyHeld("id", "key")
    assert values[:3] == [Item((1,)), Outcome.DONE, State.DEAD]
    assert (type(values[3]), values[3].args) == (errors.KeyHeld, held.args)
