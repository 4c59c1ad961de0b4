"""``./tests/run wheel``: the README's commands and the proof, from the built wheel alone.

    this tree --> wheel --> environment --> the README's first screen --> the example --> the proof
              '-> tests, example_project and README.md, without the package

All of it runs in a temporary folder, as a user without rights if root started it, and finds no
server of the machine: Redis comes from a wheel. The proof and the example need no RabbitMQ; the
suite's tests with RabbitMQ or a browser are left out. What follows ``wheel`` goes to the proof.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from urllib.request import urlopen

from tests.readme.document import README, ROOT
from tests.support.ports import free_port
from tests.support.waiting import eventually

NOBODY = "nobody"
MADE = "tests/support/environment.sh"  # makes an environment, also where a Python lacks ensurepip
COPIED = ("tests", "example_project", "README.md")
# The example and its Redis, rules in the simulator's histories, and the page.
EXTRAS = "example,rules,web"
# The simulator's processes are greenlets; by pytest, the proof's servers say that one is missing.
BESIDE = ("greenlet", "pytest>=9")
PATIENCE = 60.0  # seconds


class Place:
    """A folder with an environment of its own, and a user who runs there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.user: dict[str, Any] = {}
        if os.getuid() == 0:
            found = pwd.getpwnam(NOBODY)
            self.user = {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
        self.bin = folder / "environment" / "bin"
        # `env` starts scripts; beside it, there is no program of the machine's.
        self.programs = folder / "programs"

    @property
    def env(self) -> dict[str, str]:
        kept = {
            name: text for name, text in os.environ.items() if name.startswith(("PIP_", "LANG"))
        }
        return {
            **kept,
            "PATH": f"{self.bin}:{self.programs}",
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "home"),
        }

    def make(self, wheel: Path) -> None:
        """Lay out the folder, and install the wheel."""
        for name in COPIED:
            copy(ROOT / name, self.folder / "checkout" / name)
        for name in ("home", "programs", "user"):
            (self.folder / name).mkdir()
        (self.programs / "env").symlink_to(shutil.which("env") or "/usr/bin/env")
        self.give()
        python = next(filter(self.can_run, pythons()), None)
        if python is None:
            sys.exit(f"the user {NOBODY} can start none of {', '.join(pythons())}")
        script = f'. {MADE}; empty_environment "$0" "$1"'
        environment = str(self.folder / "environment")
        self.run("/bin/bash", "-c", script, environment, python, PATH=os.environ["PATH"])
        needed = f"{wheel}[{EXTRAS}]"
        self.run("python", "-m", "pip", "install", "-qq", needed, *BESIDE)

    def give(self) -> None:
        """Give the folder to its user."""
        if self.user:
            for path in (self.folder, *self.folder.rglob("*")):
                os.chown(path, self.user["user"], self.user["group"], follow_symlinks=False)

    def can_run(self, python: str) -> bool:
        line = [python, "-c", "import ssl, venv"]
        try:
            done = subprocess.run(line, **self.user, cwd="/", capture_output=True, check=False)
        except OSError:
            return False
        return done.returncode == 0

    def run(self, *command: str, cwd: str = "checkout", **env: str) -> None:
        """Run a command to its end, and print what it prints.

        Raises:
            SystemExit: it failed.
        """
        with self.started(*command, cwd=cwd, **env) as process:
            if process.wait():
                sys.exit(f"{' '.join(command)} ended with {process.returncode}")

    @contextlib.contextmanager
    def started(
        self, *command: str, cwd: str = "checkout", out: IO[bytes] | None = None, **env: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        where = self.folder / cwd
        env = {**self.env, **env}
        process = subprocess.Popen(command, cwd=where, env=env, stdout=out, stderr=out, **self.user)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


def pythons() -> list[str]:
    """The interpreters to try: this one, and those on the PATH."""
    own = str(Path(sys.executable).resolve())
    names = ("python3", *(f"python3.{minor}" for minor in range(14, 9, -1)))
    places = f"{os.environ['PATH']}:/usr/local/bin:/usr/bin"
    found = {shutil.which(name, path=place) for place in places.split(":") for name in names}
    return [own, *sorted(filter(None, found), reverse=True)]


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.log"))
    else:
        shutil.copy(source, target)


def build(folder: Path) -> Path:
    line = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(line, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return next(folder.glob("*.whl"))


# What the README's first screen says, in the folder of a user who has nothing but the wheel.

WHERE = "import celery_delayq; print(celery_delayq.__file__)"
SERVER = "from tests.support.redis_programs import default_binary; print(default_binary())"


def first_screen(place: Place) -> None:
    """Run the README's ten lines, its calls, and the commands that it names."""
    shop, calls = (block.text for block in README.written_in("python", "celery_delayq"))
    (place.folder / "user" / "shop.py").write_text(shop, "utf-8")
    (place.folder / "user" / "calls.py").write_text(calls, "utf-8")
    place.give()
    port, page = free_port(), free_port()
    urls = {
        "CELERY_BROKER_URL": f"redis://127.0.0.1:{port}/0",
        "CELERY_RESULT_BACKEND": f"redis://127.0.0.1:{port}/1",
    }
    server = told(place, SERVER, cwd="checkout")
    log = place.folder / "worker.log"
    with (
        log.open("wb") as out,
        place.started(server, "--port", str(port), "--save", "", cwd="user", out=out),
        place.started(*command("worker"), cwd="user", out=out, **urls),
    ):
        wait(log, r"ready\.")
        place.run("python", "calls.py", cwd="user", **urls)
        wait(log, r"order 41 is not paid[\s\S]*succeeded")
        place.run("celery", "-A", "shop", "delayq", "status", cwd="user", **urls)
        with place.started(*command("web"), "--port", str(page), cwd="user", out=out, **urls):
            wait(log, rf"http://\S*:{page}")
            with urlopen(f"http://127.0.0.1:{page}/", timeout=PATIENCE) as answer:
                if b"delayq" not in answer.read():
                    sys.exit("the page says nothing")
    if "order 42" in text_of(log):
        sys.exit("a cancelled task ran")


def command(name: str) -> list[str]:
    """A command as the README has it."""
    [line] = re.findall(rf"`(celery -A shop (?:delayq )?{name}[^`]*)`", README.text)
    return str(line).split()


def told(place: Place, code: str, cwd: str) -> str:
    done = subprocess.run(
        [str(place.bin / "python"), "-c", code],
        cwd=place.folder / cwd,
        env=place.env,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        **place.user,
    )
    return done.stdout.strip()


def wait(log: Path, pattern: str) -> None:
    """Wait for a line.

    Raises:
        SystemExit: it did not come.
    """
    try:
        eventually(lambda: re.search(pattern, text_of(log)), PATIENCE)
    except AssertionError:
        sys.exit(f"no {pattern!r} in {PATIENCE:.0f} s:\n{text_of(log)}")


def text_of(log: Path) -> str:
    return log.read_text("utf-8", "replace")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="wheel-") as name:
        place = Place(Path(name))
        wheel = build(place.folder)
        print(f"installing {wheel.name}[{EXTRAS}] …", flush=True)
        place.make(wheel)
        installed = told(place, WHERE, cwd="checkout")
        if not installed.startswith(name):
            sys.exit(f"celery_delayq is at {installed}; expected it in {place.bin.parent}")
        print(f"installed by {NOBODY if place.user else 'this user'}", flush=True)
        first_screen(place)
        print("the README's first screen does what it says", flush=True)
        place.run("python", "example_project/show.py")
        place.run("python", "-m", "tests.lab.proof", *sys.argv[1:])


if __name__ == "__main__":
    main()
