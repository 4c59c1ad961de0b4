"""`celery delayq scan` as a process, which dies or freezes at a named point.

claimed     after a claim, before anything is published
published   after the broker has it, before the ack
acked       after the ack

python -m tests.lab.faults.scan [POINT die|freeze]
"""

import os
import signal
import sys
import threading

from celery.bin.celery import main

from celery_delayq.core.store.delivery import ScannerSteps


def die():
    os._exit(9)


def freeze():
    sys.stdout.write("frozen\n")
    sys.stdout.flush()
    # Signal this very thread: a signal to the process could go to another one, and this one run on.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    sys.stdout.write("thawed\n")
    sys.stdout.flush()


def fail_at(point, act):
    """Let the engine's step of that name do *act*, once."""
    left = [act]

    def once():
        if left:
            left.pop()()

    claim, ack = ScannerSteps.claim, ScannerSteps.ack

    def claiming(self, limit):
        claimed = claim(self, limit)
        if claimed.entries and point == "claimed":
            once()
        return claimed

    def acking(self, claimed):
        claimed = list(claimed)
        if claimed and point == "published":
            once()
        acked = ack(self, claimed)
        if claimed and point == "acked":
            once()
        return acked

    ScannerSteps.claim, ScannerSteps.ack = claiming, acking


if __name__ == "__main__":
    if len(sys.argv) == 3:
        fail_at(sys.argv[1], {"die": die, "freeze": freeze}[sys.argv[2]])
    sys.argv = ["celery", "-A", "tests.lab.faults.scan_app", "delayq", "scan"]
    sys.exit(main())
