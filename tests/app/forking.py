"""A program whose module uses the store and the broker before its processes are forked.

Served by a WSGI server, it answers each request with the number of its process and of its link to
the store. ``python -m tests.app.forking METHOD`` prints the same of the process and of three more,
which :mod:`multiprocessing` starts by that method, and then of the process again.
"""

import json
import multiprocessing
import os
import sys

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


BEFORE = [os.getpid(), link()]
job.delay_for(3600, 0)
job.apply_async((0,))


def put_answers(answers) -> None:
    answers.put([answer(number) for number in range(5)])


def main(method: str) -> None:
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    children = [context.Process(target=put_answers, args=(answers,)) for _ in range(3)]
    for child in children:
        child.start()
    told = [answers.get(timeout=60) for _ in children]
    for child in children:
        child.join()
    told = [BEFORE, *(one for some in told for one in some), answer(1)]
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
