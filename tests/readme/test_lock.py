"""The recipe of a lock that is taken, in a worker."""

from tests.readme.document import EXAMPLE
from tests.readme.runner import run
from tests.support.waiting import eventually


def test_a_task_whose_lock_is_taken_waits_in_the_store_and_runs_when_it_is_free(
    shop, shop_file, environment, start_worker
):
    [recipe] = EXAMPLE.written_in("python", "The lock is taken")
    text = f"from shop import *\n{recipe.text}"
    (shop_file / "billing.py").write_text(text, encoding="utf-8")
    run(recipe, names := {"__name__": "billing"})
    worker = start_worker("billing", "-P", "solo", env=environment)
    taken = shop.app.backend.client.lock("account-7", timeout=60)
    assert taken.acquire(blocking=False)

    result = names["bill"].delay(7)

    entry = eventually(lambda: shop.delayq.get(result.id))
    assert 0 < (entry.due - entry.created).total_seconds() <= 5.001
    assert result.state == "SCHEDULED"
    taken.release()
    assert shop.delayq.run_now(result.id)
    worker.wait_log("account 7 is billed")
    eventually(lambda: result.state == "SUCCESS")
