"""A run in several processes: grouped tests stay together, and no server outlives the run."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.process import ChildProcess, alive
from tests.support.waiting import eventually

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
HELD = """
import signal
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(2))
def test_it(redis_server, number):
    pid = Path(__file__).with_name(f"{number}.pid")
    pid.with_suffix(".new").write_text(str(redis_server.pid))
    pid.with_suffix(".new").rename(pid)
    signal.pause()
"""
SHARED = """
import os
from pathlib import Path
import pytest

@pytest.fixture(scope="session")
def crew():
    with Path(__file__).with_name("started").open("a") as started:
        started.write(f"{os.getpid()}\\n")

@pytest.fixture(scope="session")
def rabbitmq_server():
    with Path(__file__).with_name("rabbits").open("a") as started:
        started.write(f"{os.getpid()}\\n")

@pytest.fixture(params=["redis", "rabbitmq"])
def place(request):
    if request.param == "rabbitmq":
        request.getfixturevalue("rabbitmq_server")

@pytest.mark.parametrize("number", range(12))
def test_in_a_place(place, number):
    pass

@pytest.mark.parametrize("number", range(12))
def test_with_a_crew(crew, number):
    pass

@pytest.mark.parametrize("number", range(12))
def test_without(number):
    pass
"""


def command(folder, code):
    (folder / "test_it.py").write_text(code, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    return [sys.executable, "-m", "pytest", "-n", "2", "-p", "tests.conftest", str(folder)]


# To all processes, as a terminal does at Ctrl-C; to the first alone; SIGKILL, without clean-up.
@pytest.mark.parametrize(
    ("kill", "number"),
    [(os.killpg, signal.SIGINT), (os.kill, signal.SIGTERM), (os.killpg, signal.SIGKILL)],
    ids=["Ctrl-C", "TERM", "KILL"],
)
def test_the_servers_of_a_run_end_with_it_however_it_ends(tmp_path, kill, number):
    # A shell lets what it starts with "&" ignore Ctrl-C, and so all that this starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run = ChildProcess(command(tmp_path, HELD), log=tmp_path / "log", cwd=ROOT)
    try:
        files = eventually(lambda: len(found := [*tmp_path.glob("*.pid")]) == 2 and found, 40)
        servers = [int(file.read_text()) for file in files]
        kill(run.pid, number)
        # Beside the rest of the suite this takes a while, but they have to end.
        eventually(lambda: not any(map(alive, servers)), 45)
    finally:
        run.kill()


def test_the_tests_that_share_a_crew_or_a_rabbitmq_run_in_one_process(tmp_path):
    done = subprocess.run(
        command(tmp_path, SHARED), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "48 passed" in done.stdout
    for started in ("started", "rabbits"):
        assert len((tmp_path / started).read_text().splitlines()) == 1
