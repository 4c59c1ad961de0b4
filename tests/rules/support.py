"""Rules in the store, as time, a killed process or another program leaves them."""

import json
from datetime import timedelta

from celery_delayq.contrib.rules import beside_scanner
from celery_delayq.core.clock import from_ms
from tests.app.support import redis_ms
from tests.support.shards import each

HOUR = timedelta(hours=1)
NEW_YEAR = "0 0 1 1 *"
DAILY = "0 9 * * *"


def now(delayq):
    return from_ms(delayq.counts().now_ms)


def runs(delayq, name="r"):
    return sorted(task.due for task in delayq.select(tag=f"every:{name}"))


def write(delayq):
    """Do the work of the writer in a scanner's process, for each shard; return its rest."""
    return beside_scanner(delayq.app).write()


def every(delayq, name, *plan, **options):
    """Set a rule, and let a writer write its next runs."""
    delayq.every(name, *plan, **options)
    write(delayq)
    return delayq.rule(name)


def set_fields(redis, name, **change):
    """Change fields of a rule's row: each by a function of its value."""
    for rules in each("rules"):
        if row := redis.hget(rules, name):
            known = json.loads(row)
            changed = {field: of(known[field]) for field, of in change.items()}
            assert changed.items() - known.items()
            redis.hset(rules, name, json.dumps(known | changed))


def wake(redis, *names):
    """Let the writer look at rules whose turn is later."""
    for ahead in each("rules_next"):
        for name in names or redis.zrange(ahead, 0, -1):
            redis.zadd(ahead, {name: 0}, xx=True)


def about_an_hour(redis):
    """An interval of 60 to 89 minutes whose last slot was 2 to 50 minutes ago.

    Slots of an interval are counted from 1970, so tests that go back to the last slot have time
    until the next one, whatever the minute is.
    """
    minute = redis_ms(redis) // 60_000
    return next(timedelta(minutes=long) for long in range(60, 90) if 2 <= minute % long <= 50)


def set_back(delayq, redis, name, **ago):
    """Let a rule's last slot be so long ago, as if no scanner had run since; its runs are gone."""
    delayq.select(tag=f"every:{name}").cancel()
    last = int((redis_ms(redis) - round(timedelta(**ago).total_seconds() * 1000)) // 1000 * 1000)
    unwritten = {"last": lambda _: str(last), "flags": lambda flags: flags.replace("n", "")}
    set_fields(redis, name, **unwritten)
    for rules, ahead in zip(each("rules"), each("rules_next"), strict=True):
        if redis.hexists(rules, name):
            redis.zadd(ahead, {name: 0})
    return from_ms(last)


def later(redis, *, is_alive=True, **ago):
    """Move the times of all that workers named so far back; of the last one, if none was alive."""
    ms = round(timedelta(**ago).total_seconds() * 1000)
    for key in each("rules_named"):
        for field, value in redis.hgetall(key).items():
            if field:
                named, rest = value.split(b" ", 1)
                redis.hset(key, field, b"%d %s" % (int(named) - ms, rest))
            else:
                since, last, swept = map(int, value.split())
                at = last if is_alive else last - ms
                redis.hset(key, field, b"%d %d %d" % (since - ms, at, swept - ms))
