"""Show celery_delayq beside plain Celery, then in six scenes, and check every promise."""

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
PARTS = ("side-by-side", "scenes")
# One process: a task that blocked it would delay all the others.
WORKER = ("-A", "scenes.app", "worker", "--concurrency", "1")
# For a worker that shares its broker with no other, and for a short log.
QUIETER = ("--pool", "prefork", "--loglevel", "INFO", "--without-gossip", "--without-mingle")
WITNESS = ("--include", "witness")


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
        # The reader is gone, so the interpreter's last flush must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def arguments():
    parser = argparse.ArgumentParser(prog="example_project/run", description=__doc__)
    parser.add_argument("--redis", choices=KINDS, help="by default the first available")
    parser.add_argument("--only", choices=PARTS, help="the part to run; both by default")
    parser.add_argument("--record", type=Path, help="write the first part to this file, as an SVG")
    return parser.parse_args()


def run(options):
    """Run the show; raise Problem if a result is wrong."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="delayq-example-")))
        kinds = [options.redis] if options.redis else KINDS
        redis = stack.enter_context(redis_for_show(folder, kinds))
        use_only(redis.url)
        print(f"redis   {redis.what}", flush=True)
        if options.only != "scenes":
            beside(folder, redis, options.record)
        if options.only != "side-by-side":
            log = folder / "worker.log"
            with a_worker(log) as worker:
                stage = play({f"redis, {redis.what},": redis, "the worker": worker})
            conclude(stage, log)
    print("\nAll was as promised.")


def beside(folder, redis, record):
    """Play the first part: four accidents, on a plain app and on one with celery_delayq."""
    from screen import SideBySide
    from side_by_side.play import Play

    screen = SideBySide()
    play = Play(folder, redis, screen.tell)
    play.play(screen.heading)
    if record:
        screen.save(record)
    raise_for(play.wrong)


def use_only(url):
    """Make Celery, here and in the worker, use this Redis and no setting of yours."""
    for name in [name for name in os.environ if name.startswith("CELERY_")]:
        del os.environ[name]
    os.environ["CELERY_BROKER_URL"] = os.environ["CELERY_RESULT_BACKEND"] = url


@contextlib.contextmanager
def a_worker(log):
    import celery

    print(f"worker  celery {' '.join(WORKER)}", end="", flush=True)
    begun = time.monotonic()
    with started(
        [sys.executable, "-m", "celery", *WORKER, *QUIETER, *WITNESS], log, cwd=HERE
    ) as worker:
        wait_until(lambda: " ready." in log.read_text(errors="replace"), worker, log, "the worker")
        versions = f"Celery {celery.__version__}, Python {platform.python_version()}"
        print(f", ready after {time.monotonic() - begun:.1f} s\n        {versions}", flush=True)
        yield worker


def play(processes):
    # Imported here, because the app reads the settings of use_only.
    from screen import screen
    from stage import Stage

    stage = Stage()
    with screen() as out:
        for story in stage.stories:
            out.heading(story)
            stage.begin(story)
            while not stage.over:
                all_alive(processes)
                try:
                    stage.step()
                    out.update(stage)
                except Exception:
                    pause(0.5)
                    all_alive(processes)  # if not, this raises the reason
                    raise
                pause()
            if not list(story.problems()):
                out.summary(story)
    return stage


def all_alive(processes):
    for name, process in processes.items():
        if process.poll() is not None:
            raise Problem(f"{name} ended with status {process.returncode}")


def conclude(stage, log):
    stage.step()  # the worker has ended, so all its runs are noted
    slow = [f"the show itself was {stage.lag:.1f} s late at times"] if stage.lag > 1 else []
    found = list(stage.problems())
    raise_for(found and [*found, *slow, f"the worker: {tail(log)}"])


def raise_for(sentences):
    if sentences:
        raise Problem("Not as promised:\n" + "".join(f"  {one}\n" for one in sentences))


if __name__ == "__main__":
    sys.exit(main())
