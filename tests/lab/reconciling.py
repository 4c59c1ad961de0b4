"""How long a reconcile of many rows takes, and how much memory, beside ``schedule_many`` of them.

    .venv/bin/python -m tests.lab.reconciling [--rows 100000] [--shards 1]

Each measure is a process of its own, as memory that was used once stays with its process. Redis is
one of its own as well, on this machine.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

from celery import Celery

from celery_delayq import DelayQ, Item
from tests.support.redis_server import RedisServer

FAR = 4_102_444_800
MEASURES = ("schedule_many", "all missing", "nothing to do", "nothing to do, remove", "all moved")


def rows(count, due=FAR):
    return (
        (f"order:{number}", due + number, (number,), {"kind": "mail"}) for number in range(count)
    )


def measure(name, url, count, shards):
    app = Celery("lab", broker=url)
    app.conf.update(delayq_shards=shards)
    delayq = DelayQ(app)

    @app.task(name="remind")
    def remind(order, kind):
        """Do nothing."""

    app.finalize()
    delayq.status()
    time_before = time.process_time()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    if name == "schedule_many":
        signature = remind.s().set(delayq_tags=["order"])
        done = delayq.schedule_many(
            signature,
            (Item(args, kwargs, due, key=key) for key, due, args, kwargs in rows(count)),
        ).scheduled
    else:
        options = {"tag": "order", "dry_run": False, "remove": name.endswith("remove")}
        if name == "all moved":
            options["most"] = count
        report = delayq.reconcile(remind, rows(count, FAR + 60 * (name == "all moved")), **options)
        done = dict(report.counts)
    seconds = time.monotonic() - began
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    used = time.process_time() - time_before
    print(json.dumps({"seconds": seconds, "used": used, "kib": grown, "done": done}))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--measure")
    parser.add_argument("--url")
    given = parser.parse_args()
    if given.measure:
        measure(given.measure, given.url, given.rows, given.shards)
        return
    with RedisServer() as server:
        first = None
        for name in MEASURES:
            if name == "all missing":
                server.empty()
            call = [sys.executable, "-m", "tests.lab.reconciling", "--measure", name]
            call += [
                "--url",
                server.url(),
                "--rows",
                str(given.rows),
                "--shards",
                str(given.shards),
            ]
            found = json.loads(subprocess.run(call, check=True, capture_output=True).stdout)
            first = first or found
            ratio, of_used = (found[what] / first[what] for what in ("seconds", "used"))
            print(
                f"{name:24} {found['seconds']:6.2f} s, {ratio:5.2f} times schedule_many; "
                f"{found['used']:6.2f} s of this process, {of_used:5.2f} times; "
                f"{found['kib'] / 1024:4.1f} MiB more; {found['done']}"
            )


if __name__ == "__main__":
    main()
