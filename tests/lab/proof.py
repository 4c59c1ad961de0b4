"""``./tests/run proof``: three minutes of faults on this machine, and a page of what came of them.

    seed --> trial: a fault in real processes, or the simulator --> Outcome --> page

The page is for an engineer who sees this repository for the first time. The seed chooses the calls,
the histories and the safeguard. It does not control processes, so a kill may come at another time.
"""

import argparse
import logging
import os
import platform
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from importlib.metadata import version
from pathlib import Path

from tests.lab.faults.history import KINDS, MARKED
from tests.lab.faults.injected import (
    ALWAYS,
    Fault,
    kill_scanners,
    kill_store,
    lose_replies_to_callers,
    lose_replies_to_scanners,
)
from tests.lab.faults.site import BURST, DIRECT, TO_REDIS, Site
from tests.lab.faults.site import Outcome as Books
from tests.lab.simulator.books import RULES
from tests.lab.simulator.decisions import RATES
from tests.lab.simulator.sabotage import SABOTAGES, Sabotage
from tests.lab.simulator.server import Lab
from tests.lab.simulator.simulation import simulate
from tests.lab.thorough import commit
from tests.support.redis_programs import redis_binaries
from tests.support.redis_server import RedisServer

PAGE = Path(".pytest_cache", "proof.md")
TIMES = 4  # that a fault is put into the processes of a trial
REQUESTS = 10_000  # 2,000 had no finding while no script looked up an answer
MOST = 300  # histories until a safeguard is missed
SHOWN = 10  # lines of a broken promise that the page has

GONE = ("arrived once", "twice, marked", "twice, unmarked", "early", "lost")
HEADINGS = (
    *("trial", "tasks", "cancelled", "waiting", *GONE, "wrong answers", "left over"),
    *("seconds to recover", "verdict"),
)
LEGEND = """\
Each task was cancelled, still waits, arrived, is lost, or is left over: due, and not delivered.
*Marked* copies say that they may be the second one. Recovery begins when a process is killed, or
when another fault ends, and lasts until all tasks that were due by then have arrived."""

CALLERS = (
    "Two processes of callers scheduled, cancelled and moved tasks at random. "
    f"Again and again, {BURST} tasks fell due at once, and in the midst of that"
)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a trial.

    Attributes:
        tried: The steps that were taken, in sentences.
        broken: A line for each finding; none if each promise held.
        counts: The cells of its row, if tasks were counted.
    """

    tried: str
    broken: Sequence[str] = ()
    counts: Sequence[str] = ()

    @property
    def verdict(self) -> str:
        return "BROKEN" if self.broken else "as promised"


@dataclass(frozen=True)
class Trial:
    """A trial, by its title on the page; ``run`` gets the seed."""

    title: str
    promised: str
    run: Callable[[int], Outcome]


# Faults in real processes.


def in_processes(fault: Fault, path: str, seed: int) -> Outcome:
    """Put a fault into real processes, and compare each answer with the messages that arrived."""
    with Site(path, f"{seed} {fault.name}", config=fault.config, workers=fault.workers) as site:
        since = fault.repeated(site, TIMES)
        books = site.finish()
    struck = ", ".join(map(str, site.struck))
    tried = f"{CALLERS} {fault.name}. When the fault came, {struck} of the {BURST} had arrived."
    if lost := site.callers_link.cuts + site.scanners_link.cuts:
        tried += f" {lost} replies were lost."
    recovered = max(map(books.seconds_to_recover, since))
    return Outcome(tried, books.differences, counts(books, recovered))


def counts(books: Books, recovered: float) -> list[str]:
    """The cells of a row; all tasks are those cancelled, waiting, arrived, lost and left over."""
    verdict = books.verdict
    found = {kind: verdict.count(kind) for kind in KINDS}
    marked, unmarked = found[MARKED], found["twice unmarked"]
    left_over = found["left over"] + verdict.dead
    waiting = verdict.waiting - found["left over"]
    twice = marked + unmarked
    once = verdict.scheduled - verdict.cancelled - waiting - left_over - found["lost"] - twice
    cells = (verdict.scheduled, verdict.cancelled, waiting, once, marked, unmarked)
    cells += (found["early"], found["lost"], found["wrong answer"], left_over)
    return [*(f"{cell:,}" for cell in cells), f"{recovered:.1f}"]


def lose_replies(site: Site) -> int:
    lose_replies_to_callers(site)
    return lose_replies_to_scanners(site)


# Histories of the simulator.


@contextmanager
def laboratory() -> Iterator[Lab]:
    with RedisServer() as server:
        lab = Lab(server)
        try:
            yield lab
        finally:
            lab.close()


def in_simulator(seed: int) -> Outcome:
    """Run histories until so many requests were served, or one of them has a finding."""
    requests = faults = 0
    broken, last = [], seed - 1
    with laboratory() as lab:
        while requests < REQUESTS and not broken:
            last += 1
            result = simulate(lab, last)
            requests += result.requests
            faults += sum(name.endswith(tuple(RATES)) for name in result.taken)
            if result.finding:
                broken = [str(result.finding), f"its history: ./tests/run simulate --seed {last}"]
    return Outcome(
        f"The package's own code and scripts ran on a real Redis, with a clock and a network that "
        f"the seed owns: {requests:,} requests in the histories {seed} to {last}, with {faults:,} "
        "faults between any two steps. A judge compared each change with the answers.",
        broken,
    )


def without_a_safeguard(seed: int) -> Outcome:
    """Take a safeguard out of the scripts; the simulator has to miss it."""
    sabotage = random.Random(seed).choice(in_scripts())
    histories = range(sabotage.seed, sabotage.seed + MOST)
    with laboratory() as lab:
        results = (simulate(lab, number, sabotage=sabotage) for number in histories)
        found = next((result for result in results if result.finding), None)
    tried = (
        f"One of {len(in_scripts())} safeguards, drawn by the seed, was taken out of "
        f"{', '.join(f'{name}.lua' for name in sorted(sabotage.cut.scripts))}, so that "
        f"*{sabotage.name}*: `{shown(sabotage.cut.old)}` became `{shown(sabotage.cut.new)}`. "
    )
    if found is None or found.finding.rule not in sabotage.rules:
        said = found.finding if found else f"none of {MOST} histories has a finding"
        return Outcome(tried, [f"the simulator does not miss it: {said}"])
    rule, what = RULES[found.finding.rule], found.finding.what
    return Outcome(f'{tried}In history {found.seed}, the rule "{rule}" broke: {what}.')


def in_scripts() -> list[Sabotage]:
    """Those that can be drawn; to miss one of recurring rules may take minutes."""
    return [one for one in SABOTAGES if one.cut and not (one.cut.method or one.recurs)]


def shown(code: str) -> str:
    return " ".join(code.split()) or "nothing"


ONCE = "No task is lost or early, each arrives once, and each answer is true."
MARKED_COPIES = "No task is lost or early, a second copy is marked, and each answer is true."

KILLED = Fault(
    "both workers got `kill -9`, and two others were started", kill_scanners, workers=True
)
RESTARTED = Fault(
    "Redis (`appendonly yes`, `appendfsync always`) got `kill -9`, and was started again",
    kill_store,
    config=ALWAYS,
)
SWALLOWED = Fault(
    "a proxy swallowed every fourth reply of Redis, to callers and then to scanners", lose_replies
)

TRIALS: Mapping[str, Trial] = {
    "worker": Trial(
        "A worker is killed while it delivers", ONCE, partial(in_processes, KILLED, DIRECT)
    ),
    "relay": Trial(
        "A worker is killed, and the broker is another Redis",
        MARKED_COPIES,
        partial(in_processes, KILLED, TO_REDIS),
    ),
    "redis": Trial("Redis is killed", ONCE, partial(in_processes, RESTARTED, DIRECT)),
    "replies": Trial("Replies of Redis are lost", ONCE, partial(in_processes, SWALLOWED, DIRECT)),
    "simulator": Trial(
        "Faults between any two steps, in the simulator", "The judge finds nothing.", in_simulator
    ),
    "safeguard": Trial(
        "A safeguard is taken out",
        "The simulator notices, so the trial above is not blind.",
        without_a_safeguard,
    ),
}


# The page.


ABOUT = """\
celery_delayq keeps delayed Celery tasks in Redis. When one is due, a scanner in a worker delivers
it to its queue. If the queue is in the same Redis, that is one step; else a second copy may go,
marked as such. The first four trials have real processes: they compare all answers that callers got
with all messages at the queue. The others check the steps between, and that the check can fail."""


def page(outcomes: Mapping[str, Outcome], seed: int, seconds: float) -> str:
    broken = [TRIALS[name].title for name, one in outcomes.items() if one.broken]
    answer = f"No. A promise broke: {'; '.join(broken)}." if broken else "Yes, in each trial here."
    rows = [
        (TRIALS[name].title, *one.counts, one.verdict)
        for name, one in outcomes.items()
        if one.counts
    ]
    parts = [
        "# Does celery_delayq keep its promises on this machine?",
        answer,
        ABOUT,
        f"{machine()}. {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC, {seconds:.0f} seconds.",
        f"Again: `./tests/run proof --seed {seed}`; with other draws: `./tests/run proof`.",
        *([table(rows), LEGEND] if rows else []),
    ]
    return "\n\n".join([*parts, *(section(name, one, seed) for name, one in outcomes.items())])


def machine() -> str:
    return (
        f"celery_delayq {version('celery_delayq')} (commit {commit()}); "
        f"Python {platform.python_version()}, Celery {version('celery')}, "
        f"kombu {version('kombu')}, redis-py {version('redis')}, Redis {redis_binaries()[0][0]}; "
        f"{platform.system()}, {os.cpu_count()} cores"
    )


def table(rows: Sequence[Sequence[str]]) -> str:
    rules = ("---", *["--:"] * (len(HEADINGS) - 2), "---")
    return "\n".join(f"| {' | '.join(row)} |" for row in (HEADINGS, rules, *rows))


def section(name: str, outcome: Outcome, seed: int) -> str:
    trial, broken = TRIALS[name], outcome.broken
    lines = [
        f"## {trial.title}: {outcome.verdict}\n",
        f"- Tried: {outcome.tried}",
        f"- Promised: {trial.promised}",
        f"- Again: `./tests/run proof --only {name} --seed {seed}`",
    ]
    if broken:
        lines += [
            f"- Found, the first of {len(broken):,} lines:\n\n```text",
            *broken[:SHOWN],
            "```",
        ]
    return "\n".join(lines)


def outcome_of(name: str, seed: int) -> Outcome:
    """Run a trial; one that fails does not cost the page of the others."""
    try:
        return TRIALS[name].run(seed)
    except Exception as error:
        traceback.print_exc()
        return Outcome("It did not come to its end.", [repr(error)])


def prove(names: Iterable[str], seed: int) -> int:
    """Run the trials, and write and print the page; returns the exit status."""
    began, outcomes = time.monotonic(), {}
    for name in names:
        print(f"{TRIALS[name].title} …", file=sys.stderr, flush=True)
        outcomes[name] = outcome_of(name, seed)
        sys.stderr.writelines(f"{line}\n" for line in outcomes[name].broken)
    text = page(outcomes, seed, time.monotonic() - began)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text + "\n", encoding="utf-8")
    broken = sum(bool(one.broken) for one in outcomes.values())
    print(f"{text}\n\n{PAGE} has this page. {len(outcomes)} trials, {broken} broken; seed {seed}")
    return 1 if broken else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="./tests/run proof", description=__doc__)
    parser.add_argument("--seed", type=int, metavar="N", help="default: a fresh one")
    parser.add_argument("--only", choices=TRIALS, action="append", help="this trial; repeatable")
    options = parser.parse_args()
    logging.getLogger("celery_delayq").setLevel(logging.CRITICAL)  # it warns of each fault
    # By default SIGTERM skips every clean-up; so it becomes an orderly end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seed = int.from_bytes(os.urandom(4), "big") if options.seed is None else options.seed
    return prove(options.only or TRIALS, seed)


if __name__ == "__main__":
    sys.exit(main())
