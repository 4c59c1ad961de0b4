"""The faults that are put into a `Site`: each causes one, and ends it.

Each takes the site, and returns the time from which its recovery is counted, in Unix ms. If a
process is killed or stopped, that is the moment of the signal; else it is the end of the fault.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.lab.faults.callers import now_ms
from tests.lab.faults.proxy import Proxy
from tests.lab.faults.site import DIRECT, LEASE, PATHS, TIMEOUT, TO_RABBIT, TO_REDIS, Site
from tests.support.ports import free_port
from tests.support.server import Server
from tests.support.waiting import eventually

ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")
EVERYSEC = ("--appendonly", "yes", "--appendfsync", "everysec")
RELAYED = (TO_REDIS, TO_RABBIT)

SCRIPT = b"EVALSHA"
LOST = 4  # one reply is lost out of this many
FELT = 60  # seconds in which a fault has to show
LASTS = 2.0  # seconds that a lasting fault takes: longer than a call may take
WARM_UP, BETWEEN = 2.0, 1.0  # seconds of work before the first time, and after each
RECOVERS = 120  # seconds in which due tasks have to be on their way again


@dataclass(frozen=True)
class Fault:
    """One row of the table.

    Attributes:
        name: The fault, in words.
        inject: Causes it once, and ends it.
        paths: The paths on which it is tried.
        config: Of the store, and of another Redis that is the broker.
        workers: Whether the scanners run in workers.
    """

    name: str
    inject: Callable[[Site], int]
    paths: Sequence[str] = PATHS
    config: Sequence[str] = ()
    workers: bool = False

    def repeated(self, site: Site, times: int) -> list[int]:
        """Cause it several times at a site, and return from when each recovery is counted."""
        site.pause(WARM_UP)
        since = []
        for _ in range(times):
            since.append(self.inject(site))
            eventually(lambda: not site.overdue(), RECOVERS, "nothing is overdue")
            site.pause(BETWEEN)
        return since


def nothing(site: Site) -> int:
    with site.burst():
        return now_ms()


def kill_scanners(site: Site) -> int:
    with site.burst():
        killed = now_ms()
        # Both, as only one of them is handing over.
        for victim in site.scanners:
            victim.kill()
    site.scanners.clear()
    for _ in range(2):
        site.start_scanner()
    return killed


def end_scanner(site: Site) -> int:
    with site.burst():
        victim = site.scanners.pop(0)
        told = now_ms()
        victim.stop()
    site.start_scanner()
    return told


def stop_scanner(site: Site) -> int:
    with site.burst():
        victim = site.random.choice(site.scanners)
        victim.pause()
        stopped = now_ms()
    site.pause(LEASE * 1.5)
    victim.resume()
    return stopped


def kill_store(site: Site) -> int:
    return _kill(site, site.store)


def kill_broker(site: Site) -> int:
    return _kill(site, site.broker)


def _kill(site: Site, server: Server) -> int:
    with site.burst():
        server.kill()
    server.start()
    return now_ms()


def stop_store(site: Site) -> int:
    return _stop(site, site.store)


def stop_broker(site: Site) -> int:
    return _stop(site, site.broker)


def _stop(site: Site, server: Server) -> int:
    with site.burst():
        server.pause()
    site.pause(LASTS)
    server.resume()
    return now_ms()


def lose_replies_to_callers(site: Site) -> int:
    return _lose_replies(site, site.callers_link, SCRIPT)


def lose_replies_to_scanners(site: Site) -> int:
    return _lose_replies(site, site.scanners_link, SCRIPT)


def lose_replies_of_the_broker(site: Site) -> int:
    return _lose_replies(site, site.broker_link, b"delayq_due")


def _lose_replies(site: Site, link: Proxy, mark: bytes) -> int:
    before = link.cuts
    link.lose(mark, every=LOST)
    with site.burst():
        site.pause(LASTS)
    # After an earlier fault, perhaps no process has tried again yet.
    eventually(lambda: link.cuts > before, FELT, "a reply is lost")
    link.lose(mark, every=0)
    return now_ms()


def delay_requests(site: Site) -> int:
    before = site.callers_link.delayed
    site.callers_link.delay(SCRIPT, every=10, seconds=TIMEOUT * 1.5)
    with site.burst():
        site.pause(LASTS)
    eventually(lambda: site.callers_link.delayed > before, FELT, "a request is late")
    site.callers_link.delay(SCRIPT, every=0, seconds=0)
    site.pause(TIMEOUT * 1.5)
    return now_ms()


def pause_clients(site: Site) -> int:
    with site.burst():
        site.store.client().client_pause(int(LASTS * 1000))
    site.pause(LASTS)
    return now_ms()


def fill_store(site: Site) -> int:
    client = site.store.client()
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", 1)
    site.pause(LASTS)
    client.config_set("maxmemory", 0)
    return now_ms()


def make_replica(site: Site) -> int:
    client = site.store.client()
    with site.burst():
        # The master does not exist, so it keeps its data.
        client.replicaof("127.0.0.1", free_port())
    site.pause(LASTS)
    client.replicaof("NO", "ONE")
    return now_ms()


def let_the_broker_refuse(site: Site) -> int:
    begin, end = {
        DIRECT: (_spoil_list, _mend_list),
        TO_REDIS: (_fill_broker, _empty_broker),
        TO_RABBIT: (_close_queue, _open_queue),
    }[site.path]
    begin(site)
    with site.burst():
        site.pause(LASTS)
    end(site)
    return now_ms()


def _spoil_list(site: Site) -> None:
    client = site.store.client()
    eventually(lambda: client.exists(site.queue))
    with client.pipeline() as both:  # or messages pushed in between would be overwritten
        both.rename(site.queue, "aside")
        both.set(site.queue, "no list")
        both.execute()


def _mend_list(site: Site) -> None:
    site.store.client().rename("aside", site.queue)


def _fill_broker(site: Site) -> None:
    site.broker.client().config_set("maxmemory", 1)


def _empty_broker(site: Site) -> None:
    site.broker.client().config_set("maxmemory", 0)


def _close_queue(site: Site) -> None:
    definition = '{"max-length": 0, "overflow": "reject-publish"}'
    site.broker.control("set_policy", "refuse", f"^{site.queue}$", definition)


def _open_queue(site: Site) -> None:
    site.broker.control("clear_policy", "refuse")


FAULTS = (
    Fault("nothing (for comparison)", nothing),
    Fault("`kill -9` of all scanners", kill_scanners),
    Fault("`SIGTERM` to a scanner", end_scanner),
    Fault("`kill -9` of all workers", kill_scanners, workers=True),
    Fault("`kill -9` of Redis, `appendfsync always`", kill_store, config=ALWAYS),
    Fault("`kill -9` of Redis, `appendfsync everysec`", kill_store, config=EVERYSEC),
    Fault("`kill -9` of the broker", kill_broker, paths=RELAYED, config=ALWAYS),
    Fault("replies to callers are lost", lose_replies_to_callers),
    Fault("replies to scanners are lost", lose_replies_to_scanners),
    Fault("replies of the broker are lost", lose_replies_of_the_broker, paths=RELAYED),
    Fault("requests arrive after their callers gave up", delay_requests),
    Fault("`SIGSTOP` of a scanner, past its lease", stop_scanner),
    Fault("`SIGSTOP` of Redis", stop_store),
    Fault("`SIGSTOP` of the broker", stop_broker, paths=RELAYED),
    Fault("`CLIENT PAUSE`", pause_clients),
    Fault("the store is full", fill_store),
    Fault("`REPLICAOF`: the store is read-only", make_replica),
    Fault("the broker refuses", let_the_broker_refuse),
)
