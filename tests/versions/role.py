"""A process of some version, run by its path: a caller, a scanner, or a taker of commands.

role.py FOLDER URL told [["cancel", "a"], ...]    prints what came of each, as JSON
role.py FOLDER URL caller NAME COUNT              schedules, moves, cancels; prints the last
role.py FOLDER URL scanner                        hands over, and writes the runs of rules, until
                                                  it is ended
role.py FOLDER URL stream NAME RATE SECONDS       schedules so many a second
role.py FOLDER URL bulk NAME COUNT FIRST LAST     schedules so many, due between two times
"""

import json
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event

from celery import Celery, group

import celery_delayq
from celery_delayq import DelayQ, DelayQError
from celery_delayq.contrib.care.migration import upgrade
from celery_delayq.contrib.rules import beside_scanner
from celery_delayq.errors import UnreadableRecord

LONGEST = 2.0  # seconds until a caller's tasks are due


def app_at(url: str) -> Celery:
    app = Celery("versions", broker=url)
    app.conf.update(delayq_safety_interval=0.5, delayq_shards=1)
    DelayQ(app)
    return app


def told(app: Celery, steps: str) -> None:
    for name, *words in json.loads(steps):
        try:
            if name == "schedule":
                names = ("task_id", "delayq_at", "delayq_key", "delayq_tags")
                came = app.send_task("t", **dict(zip(names, words, strict=False))).id
            elif name == "group":
                when, task_id, tags = words
                part = app.signature("t", task_id=task_id, delayq_after=3600, delayq_tags=tags)
                came = group([part]).delay_until(when).id
            elif name == "tags":
                came = app.delayq.get(*words).tags
            elif name == "every":
                rule, seconds, *key = words
                made = app.signature(rule, options=dict(zip(("delayq_key",), key, strict=False)))
                came = app.delayq.every(rule, made, seconds).schedule
            elif name == "write":
                writer = beside_scanner(app)
                while not (came := writer.write()):  # it has laid some aside
                    pass
            elif name == "upgrade":
                came = upgrade(app.delayq.services)
            elif name == "release":
                came = app.delayq.select(all=True).release()
            else:
                came = getattr(app.delayq, name)(*words)
                came = [*came] if isinstance(came, Iterator) else came
                came = getattr(came, "value", came)
        except DelayQError as error:
            came = {"error": type(error).__name__, "said": str(error)}
        print(json.dumps(came, default=str))


def caller(app: Celery, name: str, count: str) -> None:
    chance = random.Random(name)
    others = [one for one in ("old", "new", "late", "last") if one != name]
    cancelled = []
    for number in range(int(count)):
        delay = chance.uniform(0, LONGEST)
        app.signature("t", args=(number,), task_id=f"{name}-{number}").delay_for(delay)
        # Its own, or one that the other version wrote.
        which = f"{chance.choice([name, *others])}-{chance.randrange(number + 1)}"
        step = chance.random()
        if step < 0.2:
            if app.delayq.cancel(which):
                cancelled.append(which)
        elif step < 0.4:
            app.delayq.reschedule(which, after=chance.uniform(0, LONGEST))
        elif step < 0.6:
            with suppress(UnreadableRecord):  # of a later release
                app.delayq.get(which)
                app.delayq.edit(which, kwargs={"edited": True})
    print(json.dumps(cancelled))


def stream(app: Celery, name: str, rate: str, seconds: str) -> None:
    chance, began = random.Random(name), time.monotonic()
    count = int(rate) * int(seconds)
    for number in range(count):
        Event().wait(max(0.0, began + number / int(rate) - time.monotonic()))
        due = chance.uniform(0, LONGEST)
        app.signature("t", args=(number,), task_id=f"{name}-{number}").delay_for(due)
    print(json.dumps(count))


def bulk(app: Celery, name: str, count: str, first: str, last: str) -> None:
    tasks = [f"{name}-{number}" for number in range(int(count))]
    span = float(last) - float(first)
    times = (float(first) + span * number / len(tasks) for number in range(len(tasks)))
    items = [((), {}, when, task_id) for when, task_id in zip(times, tasks, strict=True)]
    print(json.dumps(app.delayq.schedule_many(app.signature("t"), items).scheduled))


def scanner(app: Celery) -> None:
    scanner, writer = app.delayq.scanner(), beside_scanner(app)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    scanner.start()
    writer.start()
    print("scanning", flush=True)
    signal.sigwait({signal.SIGTERM})
    writer.stop()
    scanner.stop()


def main() -> None:
    folder, url, role, *words = sys.argv[1:]
    assert Path(celery_delayq.__file__).parent.parent == Path(folder), celery_delayq.__file__
    app = app_at(url)
    {"told": told, "caller": caller, "stream": stream, "bulk": bulk, "scanner": scanner}[role](
        app, *words
    )
    app.delayq.close()


if __name__ == "__main__":
    main()
