"""``./tests/run deploys emptied``: a store is lost four times, and reconciled with the database.

Orders wait. Callers pay, cancel, move and edit them, and place new ones; a worker runs those that
become due. A backup is taken; a while later the store is lost, and the calls go on:

1. emptied, with nothing put back, while all are at work;
2. emptied, and the dump is loaded;
3. Redis's own file of the time of the backup is put back;
4. emptied while all are at work, but paused then, and reconciled once the queues are empty.

Each time a reconcile is killed in the midst and repeated, and the whole store is compared with the
whole table; at the end the runs of each order are counted.
"""

import argparse
import base64
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.lab.deploys import emptied_app as app
from tests.lab.deploys.emptied_app import TABLES, TAG, WAITING, key_of
from tests.lab.recurring.shown import heading, rows
from tests.support.forked import PythonProcess
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker import ROOT, WorkerProcess

APP = "tests.lab.deploys.emptied_app"
FAR_MS = 4_102_444_800_000
WORKER = ("-P", "threads", "-c", "8", "-Q", "celery")
CALLERS = 4  # each has its own orders, so that two calls of one order never overtake each other
PACE = 0.1  # seconds between two calls of a caller, at least
PER_SECOND = 5  # orders that become due
SHARE_DUE = 0.1  # of all orders, at most, become due during the trial
CALLS = ("pay", "cancel", "move", "edit", "order", "now")
OFTEN = (4, 4, 6, 4, 4, 1)
BOUND = 20  # changes that the first reconcile after a load may make
SETTLED = 300.0  # seconds until all due orders ran, at most
SETTLING = 0.5  # seconds after the loss in which what scanners had read reaches the queue
HELD_UP = 0.8  # seconds that the broker does not answer, at most: no one takes it for lost
AIMED = "rows {}"


class Shop:
    """Its servers, its table, a worker, and callers."""

    def __init__(self, count: int, seed: str, stack: contextlib.ExitStack):
        self.count = count
        self.store = stack.enter_context(RedisServer())
        self.broker = stack.enter_context(RedisServer())
        self.database = self.store.folder / "orders.sqlite"
        conf = {
            "broker_url": self.broker.url(),
            "broker_connection_retry_on_startup": True,
            "delayq_url": self.store.url(),
            "worker_prefetch_multiplier": 2,
            "delayq_lease": 10.0,
        }
        self.env = {"EMPTIED_CONF": json.dumps(conf), "EMPTIED_DB": str(self.database)}
        os.environ.update(self.env)
        self.app, self.delayq = app, app.delayq
        app.app.conf.update(conf)
        stack.callback(self.delayq.close)
        self.link.executescript(TABLES)
        self._placed = [count * 10 + caller - count * 10 % CALLERS for caller in range(CALLERS)]
        self.lost: list[float] = []
        #: Orders that were delivered, and not yet marked, as the store was lost.
        self.unmarked: set[int] = set()
        #: Orders that were being published as Redis wrote its file.
        self.published: set[int] = set()
        self._random = random.Random(seed)
        self._started = 0
        self.worker: WorkerProcess | None = None
        stack.callback(self.end_worker)
        self._over = threading.Event()
        self._callers: list[threading.Thread] = []
        stack.callback(self.end_calls)
        self.may_run_now = True

    @property
    def link(self) -> Any:
        return self.app.database()

    def ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.link.execute(query, values).fetchall()
        return found

    # The table.

    def place_all(self) -> None:
        """Write the orders: some become due one by one, beginning soon; the others, in years."""
        soon = int(time.time() * 1000) + 10_000 + self.count // 3
        due = int(self.count * SHARE_DUE)
        self.link.execute("BEGIN")
        self.link.executemany(
            "INSERT INTO orders VALUES (?, ?, ?, 'waits', 0)",
            (
                (
                    number,
                    soon + number * 1000 // PER_SECOND if number < due else FAR_MS + number,
                    self._random.randrange(1000),
                )
                for number in range(self.count)
            ),
        )
        self.link.execute("COMMIT")

    # Processes.

    def start_worker(self) -> None:
        self._started += 1
        log = self.store.folder / f"worker-{self._started}.log"
        self.worker = WorkerProcess(APP, *WORKER, log=log, env=self.env).wait_ready(60)

    def end_worker(self) -> None:
        """End it as a deploy does: what runs ends, what it has fetched goes back."""
        if self.worker is not None:
            self.worker.stop(timeout=60)
            self.worker = None

    def command(self, *arguments: str, data: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run ``celery delayq ...``."""
        call = [sys.executable, "-m", "celery", "-A", APP, "delayq", *arguments]
        return subprocess.run(
            call, input=data, capture_output=True, text=True, env={**os.environ, **self.env},
            cwd=ROOT, check=False,
        )  # fmt: skip

    def reconcile(self, *, kill_at: int | None = None, **options: Any) -> dict[str, Any]:
        """Run a reconcile in a process of its own; kill it after so many rows, and run it again."""
        asked = json.dumps({"remove": True, "late": True, "most": None, **options})
        log = self.store.folder / "reconcile.log"
        if kill_at is not None:
            process = PythonProcess("-m", APP, asked, log=log, env=self.env, cwd=ROOT)
            process.wait_log(AIMED.format(kill_at), 600)
            process.kill()
            assert "REPORT" not in process.tail(), "it had ended before it was killed"
        process = PythonProcess("-m", APP, asked, log=log, env=self.env, cwd=ROOT)
        process.wait(1200)
        line = next((one for one in process.lines if one.startswith("REPORT ")), None)
        if line is None:
            raise RuntimeError(process.tail())
        found: dict[str, Any] = json.loads(line.removeprefix("REPORT "))
        return found

    # Callers.

    def begin_calls(self) -> None:
        self._over.clear()
        self._callers = [
            threading.Thread(target=self._call, args=(number, self._random.random()), daemon=True)
            for number in range(CALLERS)
        ]
        for caller in self._callers:
            caller.start()

    def end_calls(self) -> None:
        """End the callers; the table rests when they have."""
        self._over.set()
        for caller in self._callers:
            caller.join(60)

    def _call(self, caller: int, seed: float) -> None:
        choice = random.Random(seed)
        soon = int(self.count * SHARE_DUE)
        while not self._over.wait(PACE):
            what = choice.choices(CALLS, OFTEN)[0]
            # Half of the calls are of orders that become due soon.
            number = choice.randrange(soon if choice.random() < 0.5 else self.count)
            number += (caller - number) % CALLERS
            if what == "order":
                self._placed[caller] += CALLERS
                number = self._placed[caller]
            if what == "now" and not self.may_run_now:
                continue
            self._one(what, number, choice)

    def _one(self, what: str, number: int, choice: random.Random) -> None:
        """Change an order, and then its task: first the commit, then the call."""
        key, now_ms = key_of(number), int(time.time() * 1000)
        far = FAR_MS + choice.randrange(10**9)
        due_ms = now_ms + choice.randrange(5000, 60_000) if choice.random() < 0.3 else far
        amount = choice.randrange(1000)
        changes = {
            "pay": ("state = 'paid'", ()),
            "cancel": ("state = 'cancelled'", ()),
            "move": ("due_ms = ?", (due_ms,)),
            "edit": ("amount = ?", (amount,)),
            "now": ("state = state", ()),
        }
        if what == "order":
            self.link.execute(
                "INSERT INTO orders VALUES (?, ?, ?, 'waits', ?)",
                (number, due_ms, amount, time.time()),
            )
        else:
            change, values = changes[what]
            query = f"UPDATE orders SET {change}, changed = ? WHERE id = ? AND state = 'waits'"
            if not self.link.execute(query, (*values, time.time(), number)).rowcount:
                return
        committed = time.time()
        try:
            outcome = str(self._change(what, key, number, due_ms, amount))
        except Exception as error:
            outcome = type(error).__name__
        self.link.execute(
            "INSERT INTO calls VALUES (?, ?, ?, ?, ?)",
            (number, what, outcome, committed, time.time()),
        )

    def _change(self, what: str, key: str, number: int, due_ms: int, amount: int) -> str:
        delayq = self.delayq
        if what == "move":
            return str(delayq.reschedule(key=key, at=due_ms / 1000).value)
        if what == "edit":
            return str(delayq.edit(key=key, kwargs={"amount": amount}).value)
        if what == "now":
            return str(delayq.run_now(key=key).value)
        if what == "order":
            signature = self.app.charge.s(number, amount=amount)
            delayq.schedule(signature, at=due_ms / 1000, key=key, tags=[TAG], conflict="replace")
            return "done"
        return str(delayq.cancel(key=key).value)

    # The loss.

    def note_unmarked(self) -> None:
        """Note the orders that are in the queue, or are running, and are not marked."""
        threading.Event().wait(SETTLING)
        self.lost.append(time.time())
        found = {number for (number,) in self.ask("SELECT number FROM runs WHERE worked IS NULL")}
        found |= set(self.queued())
        waiting = {number for (number,) in self.ask("SELECT id FROM orders WHERE state = 'waits'")}
        self.unmarked |= found & waiting

    def queued(self) -> Iterator[int]:
        client = self.broker.client()
        messages = client.lrange("celery", 0, -1)
        messages += [json.loads(one)[0] for one in client.hvals("unacked")]
        for one in messages:
            message = one if isinstance(one, dict) else json.loads(one)
            args, *_ = json.loads(base64.b64decode(message["body"]))
            yield args[0]

    def save_amid_publishing(self) -> Path:
        """Let Redis write its file while a task is being published; return a copy of it."""
        client = self.store.client()
        for _ in range(20):
            self.broker.pause()
            try:
                with contextlib.suppress(AssertionError):
                    eventually(lambda: self.delayq.counts().in_flight, HELD_UP)
                client.bgsave()  # the fork has all of this moment
                is_amid = bool(self.delayq.counts().in_flight)
            finally:
                self.broker.resume()
            eventually(lambda: not client.info("persistence")["rdb_bgsave_in_progress"], 60)
            if is_amid:
                break
            threading.Event().wait(1)
        file = self.store.folder / "backup.rdb"
        shutil.copy(self.store.folder / "dump.rdb", file)
        return file

    # The comparison.

    def rest(self) -> None:
        """Pause the store, and wait until nothing is delivered or runs."""
        self.delayq.pause(all=True)

        def is_quiet() -> bool:
            running = self.ask("SELECT 1 FROM runs WHERE worked IS NULL LIMIT 1")
            if running or self.worker is None:
                return not running
            return not ([*self.queued()] or self.delayq.counts().in_flight)

        eventually(is_quiet, SETTLED)

    def compare(self) -> "Compared":
        """Compare the whole store with the whole table; neither may change meanwhile."""
        wanted = {number: (due, amount) for number, due, amount in self.ask(WAITING)}
        compared = Compared(len(wanted))
        seen = Counter[int]()
        for task in self.delayq.tasks(tag=TAG):
            number = int(task.args[0])
            seen[number] += 1
            row = wanted.get(number)
            if row is None:
                compared.extra.append(number)
                continue
            due_ms, amount = row
            stored_ms = round(task.due.timestamp() * 1000)
            # Two times in the past are one: at once.
            if stored_ms != due_ms and max(stored_ms, due_ms) > time.time() * 1000:
                compared.moved.append(number)
            if (task.args, task.kwargs) != ((number,), {"amount": amount}):
                compared.edited.append(number)
            if task.key != key_of(number):
                compared.extra.append(number)
        here = seen.keys() | (set() if self.worker else self.published)
        compared.missing = [number for number in wanted if number not in here]
        compared.extra += [number for number, times in seen.items() if times > 1]
        counts = self.delayq.counts()
        # What has lost its tag, or is dead, is under no tag that waits.
        compared.beside = counts.scheduled + counts.paused + counts.dead - sum(seen.values())
        return compared

    def unexplained(self, numbers: Sequence[int]) -> list[int]:
        """Leave out those of which there was a call since the loss, and those unmarked then.

        A reconcile leaves alone what a call changed after the rows were read, whatever differs.
        """
        met = {
            number
            for (number,) in self.ask(
                "SELECT number FROM calls WHERE ended > ?", self.lost[-1] - SETTLING - 5
            )
        }
        return [number for number in numbers if number not in met and number not in self.unmarked]


@dataclass
class Compared:
    """How the store differs from the table."""

    rows: int
    missing: list[int] = field(default_factory=list)
    extra: list[int] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)
    edited: list[int] = field(default_factory=list)
    beside: int = 0

    @property
    def differing(self) -> list[int]:
        return [*self.missing, *self.extra, *self.moved, *self.edited]

    def row(self, name: str) -> tuple[object, ...]:
        counts = (len(one) for one in (self.missing, self.extra, self.moved, self.edited))
        return (name, self.rows, *counts, self.beside)


class Trial:
    """The losses, and what came of them."""

    def __init__(self, shop: Shop, seconds: float):
        self.shop, self.seconds = shop, seconds
        self.compared: list[tuple[object, ...]] = []
        self.reconciled: list[tuple[object, ...]] = []
        self.wrong: list[str] = []
        self.began = time.monotonic()

    def expect(self, what: str, is_so: bool, seen: object = "") -> None:
        print(f"  {'yes' if is_so else 'NO '}  {what}  {seen}", flush=True)
        if not is_so:
            self.wrong.append(what)

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:6.0f} s  {text}", flush=True)

    def reconcile(self, name: str, **options: Any) -> dict[str, Any]:
        report = self.shop.reconcile(**options)
        counts = Counter(report["counts"])
        shown = ("scheduled", "changed", "cancelled", "unchanged", "beyond")
        left = {kind: count for kind, count in counts.items() if kind not in shown}
        others = ", ".join(f"{count} {kind}" for kind, count in sorted(left.items()))
        numbers = (counts[kind] for kind in shown)
        self.reconciled.append((name, *numbers, others or "-", f"{report['seconds']:.1f}"))
        self.say(f"{name}: {report['said']}, {report['seconds']:.1f} s")
        return report

    def health(self) -> subprocess.CompletedProcess[str]:
        return self.shop.command("health")

    def compare(self, name: str, *, is_last: bool) -> None:
        compared = self.shop.compare()
        self.compared.append(compared.row(name))
        self.say(f"{name}: {compared.row(name)[1:]}")
        if is_last:
            self.expect(
                "the whole store agrees with the whole table",
                not compared.differing and not compared.beside,
                compared.row(name)[1:],
            )
        else:
            bad = self.shop.unexplained(compared.differing)
            self.expect("what differs was called meanwhile, each", not bad, bad[:10])

    def settle(self, name: str) -> None:
        """End the calls; compare; reconcile once more, as an hourly rule does; compare again."""
        shop = self.shop
        shop.end_calls()
        shop.rest()
        self.compare(f"{name}, calls meanwhile", is_last=False)
        shop.end_worker()
        shop.start_worker()
        # It brings back, paused, what was being published as the file was written.
        eventually(lambda: not shop.delayq.counts().in_flight, SETTLED)
        shop.rest()
        # Nothing is at work, so it must mend all.
        self.expect(
            "the next reconcile agrees",
            self.reconcile(f"{name}, the next", most="inf")["agrees"],
        )
        self.compare(f"{name}, after the next", is_last=True)
        shop.delayq.resume(all=True)
        eventually(lambda: not shop.delayq.counts().overdue, SETTLED)
        health = self.health()
        self.expect("health is well", health.returncode == 0, _lines(health))
        self.expect("check finds nothing", shop.command("check").returncode == 0)
        shop.may_run_now = True
        shop.begin_calls()

    def between(self) -> None:
        """Let time pass, with calls and runs."""
        self.say(f"{self.seconds:.0f} s of calls and runs")
        threading.Event().wait(self.seconds)
        said = self.shop.ask("SELECT outcome, count(*) FROM calls GROUP BY 1 ORDER BY 2 DESC")
        self.say("calls so far: " + ", ".join(f"{count} {outcome}" for outcome, count in said))

    # The losses.

    def begin(self) -> tuple[str, Path]:
        """Fill the store, begin the calls and make both backups; return them."""
        shop = self.shop
        shop.place_all()
        self.reconcile("the first, of an empty store")
        shop.start_worker()
        shop.begin_calls()
        self.between()
        # A copy of Redis's files may have tasks that are being published.
        rdb = shop.save_amid_publishing()
        dump = shop.command("dump")
        self.expect("dump ends well", dump.returncode == 0, f"{dump.stdout.count(chr(10))} lines")
        self.between()
        return dump.stdout, rdb

    def emptied(self) -> None:
        print("\n1. FLUSHDB; callers and a worker are at work")
        shop = self.shop
        shop.store.client().flushdb()
        shop.note_unmarked()
        eventually(lambda: shop.delayq.counts().scanners, 60)
        health = self.health()
        self.expect("health says that the store is younger", health.returncode == 1, _lines(health))
        self.reconcile("emptied, after kill -9", kill_at=self.midst())
        self.settle("emptied")

    def loaded(self, dump: str) -> None:
        print("\n2. FLUSHDB, and the dump is loaded; callers are at work")
        shop = self.shop
        shop.may_run_now = False
        shop.end_worker()
        shop.store.client().flushdb()
        shop.note_unmarked()
        loaded = shop.command("load", "--paused", data=dump)
        self.say(_lines(loaded, "task"))
        self.expect("load ends well", loaded.returncode == 0)
        bounded = self.reconcile("loaded, at most 20 changes", most=BOUND)
        self.expect(
            "the bound stops it, and it says so",
            bounded["is_stopped"] and not bounded["agrees"],
            bounded["said"],
        )
        health = self.health()
        self.expect(
            "health says so",
            "last reconcile of tag order" in health.stdout and health.returncode == 1,
            _lines(health),
        )
        self.reconcile("loaded, after kill -9", most="inf", kill_at=self.midst())
        self.settle("loaded")

    def restored(self, rdb: Path) -> None:
        print("\n3. Redis's file of that time; callers are at work, and fail while it is away")
        shop = self.shop
        shop.may_run_now = False
        shop.end_worker()
        shop.store.kill()
        shutil.copy(rdb, shop.store.folder / "dump.rdb")
        shop.note_unmarked()
        shop.store.start()
        shop.delayq.pause(all=True)
        in_flight = shop.delayq.counts().in_flight
        self.say(f"{in_flight} were in flight as the file was written")
        report = self.reconcile("restored, after kill -9", most="inf", kill_at=self.midst())
        shop.published = {int(key.partition(":")[2]) for key in report["in_flight"]}
        self.expect("each of these is named", len(shop.published) == in_flight, shop.published)
        self.settle("restored")

    def drained(self) -> None:
        print("\n4. FLUSHDB; paused, and reconciled once the queues are empty")
        shop = self.shop
        shop.may_run_now = False
        shop.store.client().flushdb()
        shop.rest()
        # None is delivered and unmarked now, so none may run twice.
        shop.lost.append(time.time())
        self.reconcile("drained, after kill -9", most="inf", kill_at=self.midst())
        self.settle("drained")

    def midst(self) -> int:
        return max(1000, self.shop.count * 4 // 10 // 1000 * 1000)

    # The runs.

    def runs(self) -> None:
        """Wait until each due order has run; count the runs of each."""
        shop = self.shop
        shop.end_calls()
        eventually(self._are_run, SETTLED)
        shop.rest()
        times = Counter(number for (number,) in shop.ask("SELECT number FROM runs"))
        works = Counter(number for (number,) in shop.ask("SELECT number FROM runs WHERE worked"))
        (never,) = shop.ask("SELECT count(*) FROM orders WHERE state = 'done'")[0]
        twice = [number for number, count in times.items() if count > 1]
        named = [number for number in twice if number in shop.unmarked]
        # Only a task that run_now sent passes the pause.
        sent_now = {number for (number,) in shop.ask("SELECT number FROM calls WHERE what = 'now'")}
        excused = shop.unmarked | (shop.published & sent_now)
        again = [number for number in twice if number in shop.published - shop.unmarked]
        rest = [number for number in twice if number not in excused]
        odd = shop.ask(
            "SELECT number, task, began, due_ms, amount, wanted, worked FROM runs WHERE NOT worked"
            " OR due_ms > began * 1000 + 100 OR amount != wanted"
        )
        # A call reached only the second task of an order of which the first one was in the queue.
        bad = [run for run in odd if run[0] not in excused and not self._is_explained(*run)]
        overdue = shop.ask(
            "SELECT id FROM orders WHERE state = 'waits' AND due_ms < ?",
            int(min(time.time(), self.rested) * 1000) - 1000,
        )
        work_twice = [number for number, count in works.items() if count > 1]
        calls = Counter(what for (what,) in shop.ask("SELECT what FROM calls"))
        print()
        print(rows(
            ("orders that", "number"),
            [
                ("became due, and ran", len(times)),
                ("are done", never),
                ("were due, and never ran", len(overdue)),
                ("were delivered and unmarked as the store was lost", len(shop.unmarked)),
                ("ran twice, of these", len(named)),
                ("were being published as Redis's file was written", len(shop.published)),
                ("ran twice, of these", len(again)),
                ("ran twice, of all others", len(rest)),
                ("did their work twice", len(work_twice)),
                ("ran early by run_now, or against a call that was not DONE", len(odd) - len(bad)),
                ("ran against a call that was DONE", len(bad)),
            ],
        ))  # fmt: skip
        print("calls: " + ", ".join(f"{calls[what]} {what}" for what in CALLS))
        for number in twice[:10]:
            for run in shop.ask("SELECT task, began, worked FROM runs WHERE number = ?", number):
                since = ", ".join(f"{run[1] - lost:+.1f} s" for lost in shop.lost)
                print(f"  {number} ran as {run[0]}, worked: {run[2]}; to the losses: {since}")
        self.expect("each due order ran", not overdue, overdue[:5])
        self.expect("none twice that the docs do not name", not rest, rest[:10])
        self.expect("none did its work twice", not work_twice, work_twice[:5])
        self.expect("none ran against a call that was done", not bad, bad[:3])

    def _are_run(self) -> bool:
        self.rested = time.time()
        return not self.shop.ask(
            "SELECT 1 FROM orders WHERE state = 'waits' AND due_ms < ? LIMIT 1",
            int(self.rested * 1000) - 3000,
        )

    def _is_explained(self, number: int, _: str, began: float, *seen: Any) -> bool:
        """Whether a call told its caller that it had changed no waiting task."""
        due_ms, amount, wanted, worked = seen
        kinds = ["now"] if due_ms > began * 1000 else []
        kinds += ["move"] if due_ms > began * 1000 else []
        kinds += ["edit"] if amount != wanted else []
        kinds += ["pay", "cancel"] if not worked else []
        calls = self.shop.ask(
            "SELECT what, outcome FROM calls WHERE number = ? ORDER BY committed", number
        )
        return any(
            what in kinds and (outcome != "done" or what == "now") for what, outcome in calls
        )


def _lines(done: subprocess.CompletedProcess[str], word: str = "") -> str:
    """What a command said that is not well, or that has a word."""
    said = (done.stdout + done.stderr).splitlines()
    picked = [
        line.strip() for line in said
        if (word in line if word else line.lower().startswith(("error", "warning", "note")))
    ]  # fmt: skip
    return f"[{done.returncode}] " + "; ".join(picked or said[-3:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="orders; default: 20000")
    parser.add_argument("--seconds", type=float, default=20, help="between backup and loss")
    parser.add_argument("--seed", default=str(time.time_ns()), metavar="S")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(heading(f"{options.count} orders", f"seed {options.seed}"))
    with contextlib.ExitStack() as stack:
        shop = Shop(options.count, options.seed, stack)
        trial = Trial(shop, options.seconds)
        dump, rdb = trial.begin()
        trial.emptied()
        trial.between()
        trial.loaded(dump)
        trial.between()
        trial.restored(rdb)
        trial.between()
        trial.drained()
        trial.runs()
        head = ("the store after", "rows", "missing", "too many", "other time", "other arguments")
        print("\n" + rows((*head, "beside the tag"), trial.compared))
        head = ("reconcile", "scheduled", "changed", "cancelled", "unchanged", "beyond")
        print("\n" + rows((*head, "left alone", "seconds"), trial.reconciled))
    wrong = f"WRONG: {'; '.join(trial.wrong)}" if trial.wrong else ""
    print("\n" + (wrong or "none missing, none twice that the docs do not name"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
