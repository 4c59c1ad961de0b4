"""A small app, weighed with and without a DelayQ: BENCHMARK_DELAYQ is set or not.

If BENCHMARK_COUNTED is set, the main thread counts the package's functions that it enters; so does
the child of a worker. ``tell`` writes down what was loaded and entered. A worker's main process
tells when it gets SIGUSR2.

python -m tests.lab.benchmarks.weighed FILE    makes a call, and tells; counted, of 100 more
"""

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from celery import Celery

app = Celery("bench", broker=os.environ.get("BENCHMARK_BROKER"))
app.conf.broker_connection_retry_on_startup = True
if "BENCHMARK_DELAYQ" in os.environ:
    from celery_delayq import DelayQ

    DelayQ(app)
    import celery_delayq

    OURS = f"{Path(celery_delayq.__file__).parent}/"

HUNDRED = 100
entered: Counter[CodeType] = Counter()


@app.task(name="bench.noop", ignore_result=True)
def noop() -> None:
    pass


@app.task(name="bench.tell", ignore_result=True)
def tell(path: str) -> None:
    """Write down the memory, the package's modules and their lines, and the functions entered."""
    memory = memory_mb("self")
    ours = [name for name in sys.modules if name.partition(".")[0] == "celery_delayq"]
    files = [Path(str(sys.modules[name].__file__)) for name in ours]
    told = {
        "memory_mb": memory,
        "modules": len(files),
        "lines": sum(map(lines_of, files)),
        "entered": {f"{code.co_filename}:{code.co_firstlineno}": n for code, n in entered.items()},
    }
    part = Path(f"{path}.part")
    part.write_text(json.dumps(told), encoding="utf-8")
    part.replace(path)


def lines_of(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def memory_mb(process: int | str) -> float:
    """Return the process's PSS: of a page that it shares with others, its part."""
    text = Path(f"/proc/{process}/smaps_rollup").read_text("ascii")
    [line] = [line for line in text.splitlines() if line.startswith("Pss:")]
    return int(line.split()[1]) * 1024 / 1e6


def note(frame: FrameType, event: str, _: Any) -> None:
    if event == "call" and frame.f_code.co_filename.startswith(OURS):
        entered[frame.f_code] += 1


if "BENCHMARK_COUNTED" in os.environ:
    sys.setprofile(note)
if "BENCHMARK_TOLD" in os.environ:  # a worker
    signal.signal(signal.SIGUSR2, lambda *_: tell.run(os.environ["BENCHMARK_TOLD"]))


def send(path: str) -> None:
    call: Callable[[], object] = getattr(noop, "delay_for", noop.apply_async)
    call(3600) if "BENCHMARK_DELAYQ" in os.environ else call()
    tell.run(path)
    if "BENCHMARK_COUNTED" in os.environ:
        noop.delay()
        entered.clear()
        for _ in range(HUNDRED):
            noop.delay()
        tell.run(os.environ["BENCHMARK_COUNTED"])


if __name__ == "__main__":
    send(sys.argv[1])
