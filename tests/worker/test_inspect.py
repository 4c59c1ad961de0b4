"""`celery inspect scheduled`, and whatever asks as it does, shows what waits in the store."""

from tests.support.waiting import eventually


def test_every_worker_that_is_asked_shows_what_waits(crew):
    result = crew.tasks["note"].s(1, "two").set(priority=3).delay_for(3600)
    inspect = crew.app.control.inspect([crew.worker.name], timeout=10)

    shown = eventually(inspect.scheduled)[crew.worker.name]

    [one] = [one for one in shown if one["request"]["id"] == result.id]
    assert one["eta"] == result.due.isoformat()
    assert one["request"]["name"] == "note"
    assert one["request"]["args"] == "(1, 'two')"
    assert one["request"]["delivery_info"]["routing_key"] == crew.queue
    result.cancel()
