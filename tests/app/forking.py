"""A WSGI program whose module uses the store and the broker before its processes are forked.

It answers each request with the number of its process and of its link to the store.
"""

import json
import os

from celery import Celery

from celery_delayq import DelayQ
from celery_delayq.core.servers.connection import packed

app = Celery("forking", broker=os.environ["FORKING_STORE"])
app.conf.update(delayq_timeout=30)
delayq = DelayQ(app)


@app.task(name="job")
def job(number):
    pass


def link() -> int:
    """The number of the link that the next call takes."""
    return delayq.services.scripts[0].connection.execute("id", packed(["CLIENT", "ID"]))


def answer(number: int) -> list[int]:
    """Use the store and the broker; raise if an answer belongs to another call."""
    first, second = job.delay_for(3600, number), job.delay_for(3600, number + 1)
    assert delayq.get(first).args == (number,)
    assert delayq.get(second).args == (number + 1,)
    assert first.cancel()
    assert delayq.get(first.id) is None
    assert job.apply_async((number,)).id
    return [os.getpid(), link()]


def application(environ, start_response):
    try:
        told = json.dumps(answer(int(environ["QUERY_STRING"])))
    except BaseException as error:
        told = json.dumps(repr(error))
    start_response("200 OK", [("Content-Length", str(len(told)))])
    return [told.encode()]


job.delay_for(3600, 0)
job.apply_async((0,))
