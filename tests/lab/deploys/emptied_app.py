"""The app of the shop whose store is emptied: its orders, its task, and its reconcile.

python -m tests.lab.deploys.emptied_app '{"remove": true, "late": true, "most": null}'
"""

import contextlib
import json
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from celery import Celery

from celery_delayq import DelayQ

TAG = "order"
SLOW, LASTS = 4, 2.0  # each fourth order's run takes seconds: it is delivered, and not yet marked
TABLES = """
PRAGMA journal_mode=WAL;
CREATE TABLE orders (id INTEGER PRIMARY KEY, due_ms INTEGER, amount INTEGER, state TEXT,
    changed REAL);
CREATE TABLE runs (number INTEGER, task TEXT, began REAL, due_ms INTEGER, amount INTEGER,
    wanted INTEGER, worked INTEGER);
CREATE TABLE calls (number INTEGER, what TEXT, outcome TEXT, committed REAL, ended REAL);
CREATE INDEX of_state ON orders (state);
"""
WAITING = "SELECT id, due_ms, amount FROM orders WHERE state = 'waits'"

app = Celery("emptied")
app.conf.update(json.loads(os.environ.get("EMPTIED_CONF", "{}")))
delayq = DelayQ(app)
_here = threading.local()


def database() -> sqlite3.Connection:
    """This thread's connection, which commits each statement."""
    if not hasattr(_here, "link"):
        _here.link = sqlite3.connect(os.environ["EMPTIED_DB"], timeout=60, isolation_level=None)
        _here.link.execute("PRAGMA synchronous=OFF")
    link: sqlite3.Connection = _here.link
    return link


@app.task(name="charge", bind=True, shared=False, ignore_result=True)
def charge(self: Any, number: int, amount: int) -> None:
    """Note that it runs; do the work, and mark it, unless the order is done or cancelled."""
    link, began = database(), time.time()
    # What the row says as the run begins. It does not look at its state yet: each run counts.
    due_ms, wanted = link.execute(
        "SELECT due_ms, amount FROM orders WHERE id = ?", (number,)
    ).fetchone()
    note = (number, self.request.id, began, due_ms, amount, wanted)
    run = link.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, NULL)", note).lastrowid
    if number % SLOW == 0:
        threading.Event().wait(LASTS)
    marked = link.execute(
        "UPDATE orders SET state = 'done', changed = ? WHERE id = ? AND state = 'waits'",
        (time.time(), number),
    ).rowcount
    link.execute("UPDATE runs SET worked = ? WHERE rowid = ?", (marked, run))


def key_of(number: int) -> str:
    return f"order:{number}"


def rows() -> Iterator[tuple[str, float, tuple[int], dict[str, int]]]:
    """The orders that wait, as the query gives them."""
    with contextlib.closing(sqlite3.connect(os.environ["EMPTIED_DB"], timeout=60)) as link:
        for number, due_ms, amount in link.execute(WAITING):
            yield key_of(number), due_ms / 1000, (number,), {"amount": amount}


def main() -> None:
    options = json.loads(sys.argv[1])
    most = float(options.pop("most")) if options.get("most") == "inf" else options.pop("most")
    began = time.time()
    report = delayq.reconcile(
        charge, rows(), tag=TAG, dry_run=False, most=most, **options,
        progress=lambda so_far: print(f"rows {so_far.rows}", flush=True),
    )  # fmt: skip
    found = {
        "counts": dict(report.counts), "is_stopped": report.is_stopped, "agrees": bool(report),
        "seconds": time.time() - began, "said": repr(report), "kept": report.kept,
        "in_flight": [case.key for case in report.first.get("in_flight", ())],
    }  # fmt: skip
    print("REPORT", json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
