"""Run the top-up page against a real worker, show it, and say whether all was as it should be."""

import argparse
import contextlib
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

from process import Interrupted, Problem, note_signals, pause, started, tail, wait_until
from redis_for_show import KINDS, redis_for_show

HERE = Path(__file__).parent
WORKER = ("-A", "reminders", "worker", "--concurrency", "2")
# For a worker that has a broker to itself and a reader of its log.
QUIETER = ("--pool", "prefork", "--loglevel", "INFO", "--without-gossip", "--without-mingle")


def main():
    note_signals()
    sys.stdout.reconfigure(errors="replace")
    try:
        run(arguments())
    except Interrupted as interrupted:
        print(f"\n{interrupted}", file=sys.stderr)
        return interrupted.exit_status
    except Problem as problem:
        print(f"\n{problem}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Nobody reads any more, the interpreter's last flush included.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def arguments():
    parser = argparse.ArgumentParser(prog="example_project/run", description=__doc__)
    parser.add_argument("--redis", choices=KINDS, help="which Redis; the first that is there")
    return parser.parse_args()


def run(options):
    """Raises Problem if anything differs from what it should be."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="delayq-example-")))
        kinds = [options.redis] if options.redis else KINDS
        redis, url, what = stack.enter_context(redis_for_show(folder, kinds))
        use_only(url)
        print(f"redis   {what}")
        log = folder / "worker.log"
        with a_worker(log) as worker:
            show = play({f"redis, {what},": redis, "the worker": worker})
        conclude(show, log)


def use_only(url):
    """Let Celery, here and in the worker, know this Redis and nothing of the caller's own."""
    for name in [name for name in os.environ if name.startswith("CELERY_")]:
        del os.environ[name]
    os.environ["CELERY_BROKER_URL"] = os.environ["CELERY_RESULT_BACKEND"] = url


@contextlib.contextmanager
def a_worker(log):
    import celery

    print(f"worker  celery {' '.join(WORKER)}", end="", flush=True)
    begun = time.monotonic()
    with started([sys.executable, "-m", "celery", *WORKER, *QUIETER], log, cwd=HERE) as worker:
        wait_until(lambda: " ready." in log.read_text(errors="replace"), worker, log, "the worker")
        versions = f"Celery {celery.__version__}, Python {platform.python_version()}"
        print(f", ready after {time.monotonic() - begun:.1f} s\n        {versions}", flush=True)
        yield worker


def play(processes):
    # Late, as reminders.py reads its app's configuration from what use_only has set.
    from screen import screen
    from story import Show

    show = Show()
    try:
        with screen() as out:
            while not show.over:
                for name, process in processes.items():
                    if process.poll() is not None:
                        raise Problem(f"{name} ended with status {process.returncode}")
                show.step()
                out.update(show)
                pause()
    finally:
        show.close()
    return show


def conclude(show, log):
    from check import problems, runs_in, summary

    found = list(problems(show, runs_in(log)))
    print()
    if not found:
        print(summary(show))
        return
    sentences = "".join(f"  {one}\n" for one in found)
    raise Problem(f"Not as it should be:\n{sentences}The worker: {tail(log)}")


if __name__ == "__main__":
    sys.exit(main())
