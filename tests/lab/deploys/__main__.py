"""``./tests/run deploys NAME``: run one of the trials."""

import signal
import sys
from importlib import import_module

NAMES = ("rollout", "emptied")


def main() -> int:
    # By default SIGTERM skips every clean-up; so it becomes an orderly end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in NAMES:
        print(f"./tests/run deploys {{{','.join(NAMES)}}} [--help]", file=sys.stderr)
        return 2
    sys.argv[:2] = [f"./tests/run deploys {name}"]
    status: int = import_module(f"tests.lab.deploys.{name}").main()
    return status


if __name__ == "__main__":
    sys.exit(main())
