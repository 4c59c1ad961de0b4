"""The commands in the container files exist, and print the text in the docs."""

import json
import re
import shlex

import pytest

from tests.readme.document import ROOT, page
from tests.support.forked import run_forked
from tests.support.process import ChildProcess
from tests.support.waiting import eventually

(FRAGMENT,) = page("operate/running").written_in("yaml")


def command_of(line):
    words = json.loads(line)
    return shlex.split(words[2]) if words[:2] == ["sh", "-c"] else words


COMMANDS = [*map(command_of, re.findall(r"command: (\[.*\])$", FRAGMENT.text, re.MULTILINE))]


def run(words, environment):
    assert words[0] == "celery"
    return run_forked("-m", *words, env=environment, cwd=ROOT)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_each_command_and_each_of_its_options_is_there(environment, words):
    ran = run([*words, "--help"], environment)

    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_worker_answers_its_own_ping_and_one_that_is_not_there_does_not(
    environment, start_worker, redis_url
):
    [ping] = [words for words in COMMANDS if "ping" in words]
    worker = start_worker("shop", "--no-delayq", "-P", "solo", env=environment)

    assert run([*ping[:-1], worker.name], environment).returncode == 0
    assert run([*ping[:-1], "nobody@localhost"], environment).returncode == 69


def test_a_host_is_ready_while_its_scanner_is_alive(environment, redis_url, tmp_path):
    [scan] = [words for words in COMMANDS if "scan" in words]
    [health] = [words for words in COMMANDS if "health" in words]

    assert run(health, environment).returncode == 1
    scanner = ChildProcess(scan, log=tmp_path / "scan.log", env=environment)
    try:
        scanner.wait_log("scanner .* started")
        # Its first heartbeat comes with its first scan, a moment later.
        eventually(lambda: run(health, environment).returncode == 0)
        assert scanner.stop() == 0
    finally:
        scanner.kill()
    assert run(health, environment).returncode == 1
