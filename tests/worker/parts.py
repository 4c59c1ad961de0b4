"""Tasks that write down what they were sent with, for the tests that compare canvases.

`celery -A tests.worker.parts`: the project of :mod:`.tasks`, with these beside them.
"""

import json
import os

from celery import Task, signature

from tests.worker.jobs import evidence

SEEN = "seen:{}"  # of each part of one canvas


class WithSender(Task):
    """As many projects do: each message says for whom, or from where, it was sent."""

    def apply_async(self, args=None, kwargs=None, **options):
        running = self.app.current_worker_task
        sender = running.name if running else "caller"
        headers = {**(options.get("headers") or {}), "sender": sender}
        return super().apply_async(args, kwargs, **{**options, "headers": headers})


def define(app, queue):
    """Add the tasks to *app*: none of them goes to its default queue."""

    def seen(task, run, name, args):
        request = task.request
        facts = {
            "name": name,
            "task": request.task,
            "args": repr(args),
            "id": request.id,
            "root": request.root_id,
            "parent": request.parent_id,
            "group": request.group,
            "index": request.group_index,
            "queue": request.delivery_info["routing_key"].removeprefix(queue),
            "priority": request.delivery_info["priority"],
            "sender": request.get("sender"),
            "tenant": request.get("tenant"),
            "stamps": request.stamps,
            "limits": request.timelimit,
            "ignores": request.ignore_result,
            "shown": request.argsrepr,
        }
        evidence().rpush(SEEN.format(run), json.dumps(facts))
        return name

    def task(name, **options):
        return app.task(name=name, bind=True, base=WithSender, shared=False, **options)

    @task("part", ignore_result=False)
    def part(self, *args, run, name):
        return seen(self, run, name, args)

    @task("routed", ignore_result=False)
    def routed(self, *args, run, name):
        return seen(self, run, name, args)

    @task("pickled", ignore_result=False, serializer="pickle")
    def pickled(self, *args, run, name):
        return seen(self, run, name, args)

    @task("applying", serializer="pickle")
    def applying(self, canvas, way):
        WAYS[way](signature(canvas, app=app))

    return {one.name: one for one in (part, routed, pickled, applying)}


WAYS = {"plain": lambda canvas: canvas.apply_async(), "later": lambda canvas: canvas.delay_for(0)}

if "DELAYQ_TEST_CONF" in os.environ:  # in a worker, which accepts pickle even if root runs it
    os.environ["C_FORCE_ROOT"] = "true"
    from tests.worker.tasks import app

    define(app, app.conf.task_default_queue)
