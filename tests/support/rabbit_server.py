"""A RabbitMQ node of the suite's own, with its own epmd: on loopback, within its folder."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.support.missing import missing
from tests.support.ports import free_port
from tests.support.process import ChildProcess
from tests.support.server import Server

READY = r"Server startup complete|completed with \d+ plugins"
START_TIMEOUT = 150  # seconds; on a machine at load 20 its tools alone take more than 60
# The distributions' own scripts change to the user "rabbitmq"; these are what they call in the end.
PLACES = ("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin", "opt/rabbitmq*/sbin")

# No busy-waiting schedulers: on two cores they slow down the tested processes.
ERLANG = (
    "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}"
    " +S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none"
)

CONFIG = """\
listeners.tcp.1 = 127.0.0.1:{port}
log.console = true
log.console.level = info
log.file = false
disk_free_limit.absolute = 50MB
"""


def rabbit_binary() -> str | None:
    found = (
        str(folder / "rabbitmq-server") for place in PLACES for folder in Path("/").glob(place)
    )
    asked = os.environ.get("DELAYQ_RABBITMQ_SERVER")
    return next(filter(None, (asked, *found, shutil.which("rabbitmq-server"))), None)


class RabbitServer(Server):
    """One node; it keeps its ports, name and durable data over a restart."""

    def __init__(self):
        self.binary, self._epmd_binary = rabbit_binary(), shutil.which("epmd")
        if not self.binary or not self._epmd_binary:
            missing("RabbitMQ")
        super().__init__()
        self.port, self._distribution_port, self._epmd_port = free_port(), free_port(), free_port()
        self._epmd: ChildProcess | None = None

    def _begin(self) -> None:
        self._write_config()
        # A node would leave an orphaned epmd behind; it uses this one, which is started first.
        self._epmd = ChildProcess(
            [self._epmd_binary, "-d", "-d"], log=self.folder / "epmd.log", env=self.environment
        )
        self._epmd.wait_log("entering the main select")
        self.start()

    def start(self) -> None:
        self._process = ChildProcess(
            [self.binary], log=self.folder / "rabbit.log", env=self.environment
        )
        self._process.wait_log(READY, START_TIMEOUT)

    def close(self) -> None:
        if self._epmd:
            self._epmd.kill()
        super().close()

    def control(self, *command: str) -> str:
        """Run rabbitmqctl, for settings beyond AMQP: an alarm that blocks publishers, a policy."""
        program = str(Path(self.binary).with_name("rabbitmqctl"))
        environment = {**os.environ, **self.environment}
        return subprocess.run(
            [program, *command],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=START_TIMEOUT,
        ).stdout

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    @property
    def environment(self) -> dict[str, str]:
        folder = self.folder
        return {
            "HOME": str(folder),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RABBITMQ_NODENAME": f"delayq-{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "no-environment-file"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG,
        }

    def _write_config(self) -> None:
        (self.folder / "rabbitmq.conf").write_text(CONFIG.format(port=self.port), encoding="utf-8")
        (self.folder / "enabled_plugins").write_text("[].\n", encoding="utf-8")
