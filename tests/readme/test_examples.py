"""Every Python example in every document runs unchanged and keeps its promises."""

import asyncio
import json
import re
from dataclasses import replace
from datetime import datetime

import pytest

from celery_delayq import DelayQTask, signals
from tests.readme.conftest import first_example
from tests.readme.document import README, page, written_in
from tests.readme.runner import run
from tests.readme.shape import shape
from tests.support.waiting import PATIENCE, eventually

EXAMPLES = written_in("python")
# Files of a project, or of a test run: tests/django, test_own_tests.py and others run these.
FILES = [
    block
    for block in EXAMPLES
    if re.match(r"# (?!shop\.py|sentinels\.py|cluster\.py)[\w/]+\.py", block.text)
]
OF_SHOP = [block for block in EXAMPLES if "from shop import" in block.text and block not in FILES]
OWN_APP = [block for block in EXAMPLES if block not in OF_SHOP + FILES]

REDIS, RABBITMQ = "redis://localhost:6379/0", "amqp://guest:guest@localhost:5672//"


def example(name, section=None):
    [block] = [
        block
        for block in OWN_APP
        if block.document == page(name).name and section in (None, block.section)
    ]
    return block


@pytest.fixture
def own_receivers():
    """Let no receiver of an example outlive it."""
    before = {name: list(getattr(signals, name).receivers) for name in signals.__all__}
    yield
    for name, receivers in before.items():
        getattr(signals, name).receivers[:] = receivers


@pytest.mark.usefixtures("own_receivers")
@pytest.mark.parametrize("block", OF_SHOP, ids=lambda block: f"{block.document}-{block.section}")
def test_an_example_runs_and_keeps_its_promises(shop, block):
    run(block, {"__name__": "example"})


def test_every_example_with_an_app_of_its_own_has_a_test_here():
    assert {block.document for block in OWN_APP} == {
        "README.md",
        *(
            page(name).name
            for name in ("get-started", "guide/schedule", "operate/cluster", "operate/redis")
        ),
    }
    assert {block.document for block in FILES} == {
        page(name).name
        for name in (
            *("guide/asyncio", "guide/django", "guide/reconcile", "guide/test"),
            "operate/running",
            "guide/workflows",
        )
    }


def test_the_app_of_the_tutorial_is_that_of_the_readme():
    assert example("get-started", "2. Add one line to your app").text == first_example().text


def test_the_example_of_types_gives_the_app_s_tasks_the_typed_class(module, places, monkeypatch):
    for name, url in places.items():
        monkeypatch.setenv(name, url)
    made = module("typed")
    run(example("guide/schedule"), vars(made))
    assert isinstance(made.remind, DelayQTask)
    assert made.delayq.counts().scheduled == 1


def test_the_example_of_a_group_has_its_store_in_the_broker(module):
    made = module("sentinels")
    run(example("operate/redis"), vars(made))
    services = made.delayq.services
    where = "sentinel://sentinel-1:26379;sentinel-2:26379;sentinel-3:26379/0 (mymaster)"
    assert (services.endpoint.url, services.store_is_broker) == (where, True)


def test_the_examples_of_a_cluster_have_the_broker_elsewhere_and_in_the_slot(module):
    made = module("cluster")
    name = page("operate/cluster").name
    elsewhere, in_the_slot = [block for block in OWN_APP if block.document == name]
    run(elsewhere, vars(made))
    services = made.delayq.services
    where = "redis+cluster://redis-1:6379;redis-2:6379/0"
    assert (services.endpoint.url, services.store_is_broker) == (where, False)
    run(in_the_slot, vars(made))
    services.start_anew()
    assert (services.endpoint.url, services.store_is_broker) == (
        "redis+cluster://redis-1:6379/0",
        True,
    )


def test_the_first_example_is_some_ten_lines():
    first, second = EXAMPLES[:2]
    lines = [line for line in (first.text + second.text).splitlines() if line.strip()]
    assert first == first_example()
    assert len(lines) <= 13


def test_the_example_with_rabbitmq_hands_its_task_over(module, redis_url, rabbitmq_server):
    block = example("get-started", "With RabbitMQ")
    assert REDIS in block.text
    assert RABBITMQ in block.text
    text = block.text.replace(REDIS, redis_url).replace(RABBITMQ, rabbitmq_server.url)
    queue = f'\napp.conf.task_default_queue = "readme-{rabbitmq_server.port}"\n'
    made = module("shop")

    run(replace(block, text=text.replace("\n\n@app", queue + "\n@app")), vars(made))

    [task] = made.delayq.tasks()
    scanner = made.delayq.scanner()
    scanner.start()
    try:
        eventually(lambda: made.delayq.handed_over(task.id))
    finally:
        scanner.stop()
    with made.app.connection_for_read() as connection:
        message = connection.SimpleQueue(made.app.conf.task_default_queue, no_ack=True).get(
            timeout=PATIENCE
        )
    assert message.headers["id"] == task.id
    assert message.payload[0] == [42]


def test_the_views_of_fastapi_schedule_read_and_cancel(shop, module):
    [block] = page("guide/asyncio").written_in("python")
    views = module("orders")
    run(block, vars(views))

    placed = asyncio.run(answer(views.api, "POST", "/orders/42"))
    read = asyncio.run(answer(views.api, "GET", "/orders/42/reminder"))
    paid = asyncio.run(answer(views.api, "POST", "/orders/42/paid"))

    assert (placed["id"], read["id"], read["args"]) == ("order-42", "order-42", [42])
    assert datetime.fromisoformat(placed["due"]) == datetime.fromisoformat(read["due"])
    assert paid == {"reminder": "done"}
    assert shop.delayq.get("order-42") is None


async def answer(app, method, path):
    """What an ASGI app answers, from JSON."""
    sent = []
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(),
        "query_string": b"", "headers": [], "scheme": "http", "http_version": "1.1",
    }  # fmt: skip

    async def receive():
        return {"type": "http.request", "body": b""}

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    assert sent[0]["status"] == 200
    return json.loads(b"".join(message.get("body", b"") for message in sent))


# With real workers.


def test_the_ten_lines_do_what_the_readme_shows(shop, environment, start_worker):
    _, second = README.written_in("python", "celery_delayq")
    [shown] = README.written_in("text", "celery_delayq")
    worker = start_worker("shop", "-P", "prefork", "-c", "1", env=environment)
    example = {"__name__": "example"}

    assert run(second, example) == 1

    worker.wait_log(rf"{example['forgotten'].id}\] succeeded")
    assert shop.delayq.counts().scheduled == 0
    logged = [line for line in worker.lines if re.search(r"shop\.remind\[|order \d+", line)]
    texts = [
        line.partition("] ")[2] for line in logged
    ]  # the README leaves out times and processes
    assert shape("\n".join(texts)) == shape(shown.text).rstrip("\n")
    assert "41" in logged[1]


def test_a_running_task_reads_when_it_was_due(shop, shop_file, environment, start_worker):
    [block] = page("guide/inside-tasks").written_in("python", "How late am I?")
    (shop_file / "reports.py").write_text(block.text, encoding="utf-8")
    worker = start_worker("reports", "-P", "solo", env=environment)

    shop.app.send_task("reports.report", delayq_after=0.2)

    late = worker.wait_log(r"(-?\d+\.\d+)s after it was due")
    assert 0 <= float(late[1]) < PATIENCE
