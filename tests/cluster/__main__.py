"""``./tests/run cluster``: nodes of a Redis Cluster fail and slots move under load; prints a table.

Each run has its own Cluster of three masters with a replica each, six shards, two callers and a
scanner. The seed chooses the order of the faults; each comes once before any comes again.
"""

import argparse
import logging
import random
import signal
import statistics
import sys
import time
from functools import partial
from threading import Event

from celery_delayq.core.store.keys import Keys
from tests.cluster.trial import SHARDS, Fault, Trial, Window, tried
from tests.support.apps import celery_state_kept
from tests.support.clusters import ClusterServers, Node
from tests.support.redis_programs import redis_binaries
from tests.support.waiting import eventually

MINUTES = 3.0


def _caught_up(node: Node) -> float:
    """Wait until the node's replica has all changes; return the time of the question."""
    now = time.monotonic()
    offset = node.info()["master_repl_offset"]
    eventually(lambda: node.info()["slave0"]["offset"] >= offset)
    return now


def _elected(cluster: ClusterServers, node: Node) -> None:
    asked = next(one for one in cluster.masters if one is not node)
    eventually(lambda: cluster.owner_by(asked) is not node, 30)


def kill(cluster: ClusterServers, node: Node) -> Window:
    caught_up = _caught_up(node)
    node.kill()
    window = Window(caught_up, time.monotonic())
    _elected(cluster, node)
    return window


def silence(cluster: ClusterServers, node: Node) -> Window:
    """Stop a node until its replica is elected.

    Then it goes on as a master, until it hears of the other one: its changes meanwhile are lost.
    """
    caught_up = _caught_up(node)
    node.pause()
    _elected(cluster, node)
    node.resume()
    eventually(lambda: node.info()["role"] == "slave", 30)
    return Window(caught_up, time.monotonic())


def hiccup(_cluster: ClusterServers, node: Node) -> Window:
    """Stop a node for less time than an election takes."""
    node.pause()
    Event().wait(0.3)
    node.resume()
    return Window()


def down(cluster: ClusterServers, _node: Node) -> Window:
    """Stop all masters, so that no replica can be elected."""
    for one in cluster.masters:
        one.pause()
    Event().wait(2.0)
    for one in cluster.masters:
        one.resume()
    eventually(cluster.is_whole, 30)
    return Window()


def add(cluster: ClusterServers, node: Node) -> Window:
    """Add a master, and move a shard's slot to it, key by key."""
    new = cluster.add()
    slots = [Keys("delayq", shard, SHARDS).slot for shard in range(SHARDS)]
    slot = next(one for one in slots if cluster.owner_of(one) is node)
    owner, to = cluster.begin_move(2, slot, new)
    Event().wait(0.5)
    cluster.end_move(owner, to, slot)
    assert cluster.owner_of(slot) is new
    return Window()


def migrate(cluster: ClusterServers, node: Node) -> Window:
    """Move all slots of the store's owner to another one, at once."""
    to = cluster.others()[0]
    ranges = [(low, high) for low, high, one, *_ in node.ask("SLOTS") if one[1] == node.port]
    for low, high in ranges:
        node.ask("MIGRATESLOTS", "SLOTSRANGE", low, high, "NODE", to.id)
    eventually(lambda: cluster.owner is to, 30)
    return Window()


FAULTS: dict[str, Fault] = {
    "a master is killed": kill,
    "the same, `delayq_wait_replicas` is `(1, 2)`": kill,
    "a master is silent until its replica takes over": silence,
    "a master is silent for 0.3 s": hiccup,
    "all masters are silent for 2 s": down,
    "a node is added, and a slot moved the old way": add,
    "all slots of a node moved at once (Valkey 9)": migrate,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="./tests/run cluster", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES, metavar="N", help="default: 3")
    parser.add_argument("--seed", default=str(time.time_ns()), metavar="S")
    parser.add_argument("--only", choices=FAULTS, metavar="FAULT", help=", ".join(FAULTS))
    options = parser.parse_args()
    # Clients rightly log each failure; hide these lines, so that the table stays readable.
    logging.disable(logging.WARNING)
    # A plain `kill` skips every clean-up, so turn it into an orderly end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"seed {options.seed}; Redis {redis_binaries()[0][0]}; {SHARDS} shards", flush=True)
    trials = _all(options)
    _print(trials)
    sound = not any(trial.problems for some in trials.values() for trial in some)
    print(f"\n{'nothing differs' if sound else 'THERE ARE DIFFERENCES'}; seed {options.seed}")
    return 0 if sound else 1


def _all(options: argparse.Namespace) -> dict[str, list[Trial]]:
    order = random.Random(options.seed)
    names = [options.only] if options.only else list(FAULTS)
    trials: dict[str, list[Trial]] = {name: [] for name in names}
    until = time.monotonic() + options.minutes * 60
    while True:
        for name in order.sample(names, len(names)):
            trials[name].append(trial := _one(name))
            for problem in trial.problems:
                print(f"{name}: {problem}", file=sys.stderr, flush=True)
        if time.monotonic() >= until:
            return trials


def _one(name: str) -> Trial:
    run = partial(tried, FAULTS[name])
    if FAULTS[name] is migrate:
        run = partial(run, binary=dict(redis_binaries()).get("valkey-9.1.2"))
    if "wait_replicas" in name:
        run = partial(run, delayq_wait_replicas=(1, 2))
    with celery_state_kept():
        return run()


def _print(trials: dict[str, list[Trial]]) -> None:
    heads = "fault", "runs", "calls", "failed", "longest gap there", "elsewhere", "lost", "twice"
    print(f"\n| {' | '.join(heads)} |\n| --- {'| ---: ' * 7}|")
    for name, some in trials.items():
        sums = (sum(getattr(one, what) for one in some) for what in ("calls", "failed"))
        gaps = (
            statistics.median(getattr(one, what) for one in some) for what in ("there", "others")
        )
        ends = (sum(getattr(one, what) for one in some) for what in ("lost", "twice"))
        cells = [len(some), *sums, *(f"{one:.2f} s" for one in gaps), *ends]
        print(f"| {name} | {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    sys.exit(main())
