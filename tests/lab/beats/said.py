"""The output of a process of the other environment."""

import json
import sys
from datetime import timezone

from celery.bin.celery import celery
from click.testing import CliRunner


def imported(app, source, *options):
    """The line of ``rules import`` about each entry, and its exit status."""
    sys.modules["proj"] = app
    words = ["-A", "proj", "delayq", "rules", "import", "--from", source, "--json", *options]
    done = CliRunner().invoke(celery, words, prog_name="celery")
    if done.exit_code not in (0, 1) or done.stderr:
        raise AssertionError(done.output) from done.exception
    return [json.loads(line) for line in done.stdout.splitlines()], done.exit_code


def times(rule, crontab):
    """The next times of a rule; and after each of them the next one, as its scheduler has it."""
    after = []
    for moment in rule.next[:-1]:
        last, ahead, _ = crontab.remaining_delta(moment)
        after.append((last + ahead).astimezone(timezone.utc))
    return [rule.next[1:], after]


def say(found):
    sys.stdout.write(json.dumps(found, default=str))
