"""The command ``web``."""

from __future__ import annotations

import getpass
import socket
from contextlib import suppress
from typing import Any

import click

from ...operations.cli.common import (
    CeleryCommand,
    CeleryOption,
    ErrorSentences,
    delayq_of,
    examples,
)

HOST, PORT = "127.0.0.1", 5556
IDLE = 5  # seconds after which a connection without a request is closed
_MISSING = "{} is missing: pip install 'celery_delayq[web]'"
_HOSTS = ("localhost", "127.0.0.1", "::1")


@click.command(cls=CeleryCommand, epilog=examples("web", "web --port 8080 --read-only"))
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True,
    cls=CeleryOption, help_group="Page", help="The port; 0 picks a free one.",
)  # fmt: skip
@click.option(
    "--read-only", is_flag=True, cls=CeleryOption, help_group="Page", help="Change nothing."
)
@click.option(
    "--hide-arguments", is_flag=True, cls=CeleryOption, help_group="Page",
    help="Do not show the arguments of tasks.",
)  # fmt: skip
@click.option(
    "--trusted-origin", "trusted", multiple=True, cls=CeleryOption, help_group="Page",
    help="Another origin whose forms may change tasks, such as a proxy's.",
)  # fmt: skip
@click.pass_context
def web(
    ctx: click.Context,
    /,
    port: int,
    read_only: bool,
    hide_arguments: bool,
    trusted: tuple[str, ...],
    **_: Any,
) -> None:
    """Serve a page for scheduled tasks, to browsers on this machine only.

    It asks for no password. To use it from elsewhere, forward the port, or mount the page in a site
    that has a login.
    """
    delayq = delayq_of(ctx, heard=not read_only)
    with ErrorSentences():
        delayq.services.check()
    try:
        from waitress import create_server

        from .app import wsgi
    except ModuleNotFoundError as error:
        raise click.ClickException(_MISSING.format(error.name)) from None
    ctx.obj.app.log.setup(loglevel="INFO")
    name = "unknown"
    with suppress(OSError, KeyError):  # a container's user may have no name
        name = getpass.getuser()
    application = wsgi(
        delayq,
        allow=lambda _: "read" if read_only else "write",
        user=lambda _: name,
        hide_arguments=hide_arguments,
        trusted_origins=trusted,
        hosts=_HOSTS,
    )
    try:
        listening = socket.create_server((HOST, port))
    except OSError as error:
        raise click.ClickException(f"port {port} of {HOST}: {error.strerror}") from error
    server = create_server(
        application, sockets=[listening], channel_timeout=IDLE, cleanup_interval=1
    )
    ctx.obj.echo(f"the page is on http://localhost:{listening.getsockname()[1]}/; Ctrl-C ends it")
    server.run()
