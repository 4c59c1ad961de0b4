"""Rules from the entries of celery-redbeat and django-celery-beat, which the real ones stored."""

import json
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest

from celery_delayq.contrib.rules import importing
from celery_delayq.contrib.rules.step import Guard
from celery_delayq.core.clock import EPOCH
from celery_delayq.core.store import What
from tests.app.support import redis_ms
from tests.rules.frozen import REDBEAT, frozen, rows
from tests.rules.support import now, set_fields, write

pytestmark = pytest.mark.usefixtures("report")

LONG = "x" * 201
DAY = {"__type__": "crontab", "minute": 0, "hour": 9}
FIELDS = "*/15 8,9,10,11,12,13,14,15,16,17,18 1,15 * 1,2,3,4,5"
NAME = "its name is no text of 1 to 200 bytes"
SECOND = "expected an interval from 1 second to 366 days"
ROUNDED = "expected a crontab, or relative=True of a day, hour or minute"
BERLIN = "Europe/Berlin"

OF_REDBEAT = {
    "daily": ("new", "0 9 * * *", BERLIN),
    "dated": ("new", "0 9 * * *", BERLIN),
    "ends": ("refused", "its expires is a fixed time; set seconds, which count from each run"),
    "fast": ("refused", f"schedule is 0.5 seconds; {SECOND}"),
    "fields": ("new", FIELDS, BERLIN),
    "fixed": ("skipped", "it comes from beat_schedule or Celery; delayq_beat takes it over"),
    "later": ("refused", "its runs have a delay of their own, countdown"),
    "off": ("new", "0 9 * * *", BERLIN),
    "poll": ("new", "every 90.5 s", BERLIN),
    "relative": ("new", "0 * * * *", BERLIN),
    "rule": ("refused", "its schedule is rrule; expected interval or crontab"),
    LONG: ("refused", NAME),
}
OF_DJANGO = {
    "begins": ("refused", "it begins at 2100-01-01T00:00:00+00:00; import it then"),
    "begun": ("new", "0 9 * * *", "Asia/Tokyo"),
    "clocked": ("refused", "it runs once; schedule its task"),
    "daily": ("new", "0 9 * * *", "Asia/Tokyo"),
    "ends": ("refused", "it ends at a fixed time; remove its rule then"),
    "fields": ("new", FIELDS, "UTC"),
    "hourly": ("new", "every 3600 s", BERLIN),
    "no headers": ("refused", "its headers are no JSON object"),
    "no json": (
        "refused",
        "its arguments or headers are no JSON: Expecting ',' delimiter: line 1 column 3 (char 2)",
    ),
    "no list": ("refused", "its arguments are not a JSON list and a JSON object"),
    "no task": ("refused", "it has no task"),
    "off": ("new", "0 9 * * *", "Asia/Tokyo"),
    "once": ("refused", "it runs once; schedule its task"),
    "quick": ("refused", f"schedule is 0.000005 seconds; {SECOND}"),
    "routed": ("new", "every 3600 s", BERLIN),
    "sun": ("refused", "its schedule is solar; expected interval or crontab"),
    "ä" * 101: ("refused", NAME),
}
EXPECTED = {"redbeat": OF_REDBEAT, "django-celery-beat": OF_DJANGO}


@pytest.fixture
def app(delayq_app, url):
    fixed = {"fixed": {"task": "report", "schedule": 60}}
    return delayq_app(url, delayq_history=1000, timezone=BERLIN, beat_schedule=fixed)


@pytest.fixture
def report(app):
    """A task that takes the arguments of every entry."""

    @app.task(name="report", bind=True)
    def report(self, *args, **kwargs):
        pass

    return report


@pytest.fixture
def put(redis):
    """Store an entry as celery-redbeat does: text, or an object as JSON; and its last run."""

    def put(name, definition, prefix="redbeat:", ago=timedelta(0)):
        text = definition if isinstance(definition, (str, bytes)) else json.dumps(definition)
        redis.hset(prefix + name, "definition", text)
        last = datetime.fromtimestamp(redis_ms(redis) / 1000, timezone.utc) - ago
        redis.hset(prefix + name, "meta", json.dumps({"last_run_at": as_object(last)}))
        redis.zadd(f"{prefix}:schedule", {prefix + name: 1})

    return put


@pytest.fixture(params=EXPECTED)
def source(request, put, monkeypatch):
    """Each scheduler, with the entries that it stored."""
    for name, definition in frozen(REDBEAT).items():
        put(name, definition)
    monkeypatch.setattr(importing, "_rows", lambda: ((row, True) for row in rows()))
    return request.param


@pytest.fixture
def do(run, delayq):
    """Import, and write the runs; the result of each entry, and the exit status."""

    def do(source, *options):
        done = run("rules", "import", "--from", source, "--json", *options)
        assert done.exit_code in {0, 1}, done.output
        if "--dry-run" not in options:
            write(delayq)
        found = [json.loads(line) for line in done.stdout.splitlines()]
        return {one["name"]: becomes(one) for one in found}, done.exit_code

    return do


def becomes(one):
    if one["why"]:
        return one["becomes"], one["why"]
    return one["becomes"], one["schedule"], one["tz"]


def as_object(moment):
    """A time in UTC as celery-redbeat stores it."""
    parts = ("year", "month", "day", "hour", "minute", "second", "microsecond")
    found = {part: getattr(moment, part) for part in parts}
    return {"__type__": "datetime", **found, "timezone": "UTC"}


def read(redis, name):
    """When an entry was sent last."""
    found = json.loads(redis.hget(f"redbeat:{name}", "meta"))["last_run_at"]
    del found["__type__"], found["timezone"]
    return datetime(**found, tzinfo=timezone.utc)


def same(expected):
    """The results of the second time."""
    words = {"new": "same"}
    return {name: (words.get(word, word), *rest) for name, (word, *rest) in expected.items()}


def stored(redis):
    return {key: redis.dump(key) for key in redis.keys("*")}


def entry(**fields):
    return {"name": "a", "task": "report", "schedule": DAY, "args": [], **fields}


def test_each_kind_of_entry_becomes_a_rule_or_is_refused(do, delayq, source):
    assert do(source) == (EXPECTED[source], 1)
    made = {name for name, (word, *_) in EXPECTED[source].items() if word == "new"}
    assert {rule.name for rule in delayq.rules()} == made
    assert {rule.name for rule in delayq.rules() if rule.is_paused} == {"off"}
    assert {task.tags[0] for task in delayq.tasks()} == {f"every:{name}" for name in made - {"off"}}


def test_a_dry_run_says_the_same_and_writes_nothing(do, redis, source, delayq):
    delayq.counts()
    before = stored(redis)
    assert do(source, "--dry-run") == (EXPECTED[source], 1)
    assert stored(redis) == before


def test_a_dry_run_or_an_import_calls_no_apply_async(run, app, put):
    class Locking(app.Task):
        def apply_async(self, *_, **__):
            raise AssertionError("a lock is taken")

    @app.task(name="locking", base=Locking)
    def locking(*_):
        pass

    put("a", entry(task="locking"))
    for options in (["--dry-run"], []):
        done = run("rules", "import", "--from", "redbeat", "--json", *options)
        assert json.loads(done.stdout)["becomes"] == "new"


def test_to_import_again_changes_nothing(do, delayq, source):
    do(source)
    before = [*delayq.tasks()], [rule.revision for rule in delayq.rules()]
    assert do(source) == (same(EXPECTED[source]), 1)
    assert ([*delayq.tasks()], [rule.revision for rule in delayq.rules()]) == before


def test_the_calls_are_those_of_the_scheduler(do, delayq, source):
    do(source)
    found = {task.tags[0].removeprefix("every:"): task for task in delayq.tasks()}
    assert (found["daily"].args, found["daily"].kwargs) == ((1,), {"big": True})
    routed = found["poll" if source == "redbeat" else "hourly"]
    message = json.loads(delayq.services.entries.find(routed.id).message)
    assert message["properties"]["priority"] == 3
    assert message["properties"]["delivery_info"]["routing_key"] == "mail"
    expires = datetime.fromisoformat(message["headers"]["expires"])
    assert expires == routed.due + timedelta(seconds=60)


@pytest.mark.parametrize("source", ["django-celery-beat"], indirect=True)
def test_the_header_by_which_results_are_found_and_own_ones_stay(do, delayq, source):
    do(source)
    [task] = delayq.select(tag="every:routed")
    headers = json.loads(delayq.services.entries.find(task.id).message)["headers"]
    assert (headers["periodic_task_name"], headers["team"]) == ("routed", "a")


def test_a_time_in_the_arguments_is_a_time(do, delayq, report, put):
    year = {"__type__": "datetime", "year": 2100, "month": 1, "day": 1, "timezone": 3600.0}
    put("a", entry(args=[year, {**year, "timezone": "Asia/Tokyo"}]))
    assert do("redbeat")[1] == 0
    [task] = delayq.tasks()
    new_year = datetime(2100, 1, 1, tzinfo=timezone.utc)
    assert [*task.args] == [new_year - timedelta(hours=1), new_year - timedelta(hours=9)]


def test_no_run_of_a_disabled_entry_waits_even_for_a_moment(do, delayq, put, redis):
    put("a", entry(schedule={"__type__": "interval", "every": 1}, enabled=False))
    do("redbeat")
    due = [event.due for event in delayq.history() if event.what is What.SCHEDULED]
    soon = datetime.fromtimestamp(redis_ms(redis) / 1000, timezone.utc) + timedelta(days=100)
    assert [moment for moment in due if moment < soon] == []
    rule = delayq.rule("a")
    assert (rule.schedule, rule.is_paused) == ("every 1 s", True)
    assert rule.resume()


def test_a_rule_becomes_as_its_entry_is_now(do, delayq, put):
    put("a", entry())
    do("redbeat")
    for changed in ({"enabled": False}, {}, {"args": [2]}, {"enabled": False, "args": [3]}):
        put("a", entry(**changed))
        assert do("redbeat", "--dry-run")[0]["a"][0] == "changed"
        assert do("redbeat")[0]["a"][0] == "changed"
        assert do("redbeat")[0]["a"][0] == "same"
        assert delayq.rule("a").is_paused is ("enabled" in changed)
        dues = [task.args for task in delayq.tasks()]
        assert dues == ([] if "enabled" in changed else [tuple(changed.get("args", ()))])


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        ("{", "its definition cannot be read: Expecting property name"),
        (b"\xff\xfe", "its definition cannot be read: "),
        ("[" * 100_000, "its definition cannot be read: "),
        ("[]", "its definition cannot be read: it is no JSON object"),
        ("null", "its definition cannot be read: it is no JSON object"),
        ({}, "it has no name"),
        (entry(name=5), "it has no name"),
        (entry(name=""), NAME),
        (entry(name="a\0b"), "name is 'a\\x00b'; expected text of 1 to 200 bytes, without NUL"),
        (entry(name="\ud800"), "name is '\\ud800'; expected"),
        (entry(task=None), "it has no task"),
        (entry(task=["report"]), "it has no task"),
        (entry(args={"a": 1}), "its arguments are not a JSON list and a JSON object"),
        (entry(args="ab"), "its arguments are not a JSON list and a JSON object"),
        (entry(kwargs=[1]), "its arguments are not a JSON list and a JSON object"),
        (entry(options=[1]), "its options or headers are no JSON object"),
        (entry(options={"expires": "2100-01-01"}), "its expires is a fixed time"),
        (entry(options={"expires": True}), "its expires is a fixed time"),
        (entry(options={"eta": 5}), "its runs have a delay of their own, eta"),
        (entry(options={"delayq_tags": 5}), "tags is 5"),
        (entry(schedule=None), "its schedule is none; expected interval or crontab"),
        (entry(schedule=60), "its schedule is none; expected interval or crontab"),
        (entry(schedule={"__type__": ["interval"]}), "its schedule is ['interval']; expected"),
        (entry(schedule=None, args="ab"), "its schedule is none; expected interval or crontab"),
        (entry(schedule={"__type__": "datetime"}), "its definition cannot be read: "),
        (entry(schedule={"__type__": "interval"}), "its interval cannot be read: KeyError"),
        (entry(schedule={"__type__": "interval", "every": "1"}), "its interval cannot be read: "),
        (entry(schedule={"__type__": "interval", "every": 1e300}), "its interval cannot be read: "),
        ('{"name":"a","task":"t","schedule":{"__type__":"interval","every":NaN}}', "its interval"),
        (entry(schedule={"__type__": "interval", "every": -5}), "schedule is minus 5 seconds"),
        (entry(schedule={**DAY, "minute": "61"}), "its crontab cannot be read: "),
        (entry(schedule={**DAY, "minute": {"a": 1}}), "its crontab cannot be read: "),
        # Celery 5.7 says so itself.
        (entry(schedule={**DAY, "day_of_month": 31, "month_of_year": 2}), ""),
    ],
)
def test_bad_content_is_refused_and_stops_nothing_else(do, put, delayq, definition, said):
    put("bad", definition)
    put("good", entry(name="good"))
    found, status = do("redbeat")
    assert found.pop("good")[0] == "new"
    [(word, why)] = found.values()
    assert (word, status) == ("refused", 1)
    assert said in why
    assert [rule.name for rule in delayq.rules()] == ["good"]


def test_a_key_that_is_no_hash_or_is_gone_is_refused(do, put, redis):
    redis.set("redbeat:text", "x")
    redis.zadd("redbeat::schedule", {"redbeat:text": 1, "redbeat:gone": 1, b"\xff": 1})
    put("a", entry())
    found, status = do("redbeat")
    assert (found.pop("a")[0], status) == ("new", 1)
    assert "WRONGTYPE" in found.pop("text")[1]
    assert {why for _, why in found.values()} == {"its definition cannot be read: it has none"}


def test_two_entries_of_one_name_are_one_rule(do, put, delayq, run):
    put("1", entry(args=[1]))
    put("2", entry(args=[2]))
    said = run("rules", "import", "--from", "redbeat").stdout
    assert "refused: another entry has this name" in said
    write(delayq)
    assert [task.args for task in delayq.tasks()] == [(1,)]


def test_a_rule_of_another_source_keeps_its_name(do, put, delayq, redis):
    put("a", entry(args=[1]))
    delayq.every("a", delayq.app.tasks["report"].s(7), 60)
    set_fields(redis, "a", source=lambda _: "beat")
    assert do("redbeat") == (
        {"a": ("refused", "name is 'a'; expected a name that no rule of another source has")},
        1,
    )
    assert {task.args for task in delayq.tasks()} == {(7,)}


def test_a_call_that_its_task_does_not_take_is_refused(do, put, app, delayq):
    @app.task(name="narrow")
    def narrow(tenant):
        pass

    put("a", entry(task="narrow"))
    put("b", entry(name="b", task="narrow", args=[1]))
    put("c", entry(name="c", task="unknown"))
    tried, _ = do("redbeat", "--dry-run")
    found, _ = do("redbeat")
    assert tried == found
    assert [found[name][0] for name in "abc"] == ["refused", "new", "new"]
    assert "tenant" in found["a"][1]


def test_the_clean_up_of_the_result_backend_is_celery_s(do, put):
    put("1", entry(name="celery.backend_cleanup"))
    put("2", entry(name="celery.other"))
    found, status = do("redbeat")
    assert [word for word, *_ in found.values()] == ["skipped", "new"]
    assert status == 0


def test_entries_can_be_named(do, put, delayq, run):
    for name in ("a", "b", "c"):
        put(name, entry(name=name))
    assert {*do("redbeat", "a", "c")[0]} == {"a", "c"}
    assert [rule.name for rule in delayq.rules()] == ["a", "c"]
    done = run("rules", "import", "--from", "redbeat", "nobody")
    assert (done.exit_code, "redbeat has no entry nobody" in done.output) == (1, True)


def test_the_settings_of_redbeat_say_where_its_entries_are(do, app, redis_server, run, delayq):
    other = redis_server.client(db=2)
    other.hset("own:a", "definition", json.dumps(entry()))
    other.zadd("own::schedule", {"own:a": 1})
    app.conf.update(redbeat_redis_url=redis_server.url(2), REDBEAT_KEY_PREFIX="own:")
    assert do("redbeat") == ({"a": ("new", "0 9 * * *", BERLIN)}, 0)

    other.flushdb()
    done = run("rules", "import", "--from", "redbeat")
    where = f"the set own::schedule in {app.delayq.services.endpoint.url[:-1]}2"
    assert (done.exit_code, done.stderr) == (1, f"redbeat has no entries: {where} is empty\n")
    assert "gone: no entry has this name any more" in done.stdout
    delayq.rule("a").remove()
    done = run("rules", "import", "--from", "redbeat")
    assert (done.exit_code, done.stderr) == (0, f"redbeat has no entries: {where} is empty\n")


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("redis-cluster://localhost", "redbeat_redis_url is 'redis-cluster://localhost'; expected"),
        ("redis://127.0.0.1:1/0", "import failed: "),
    ],
)
def test_a_redis_that_cannot_be_read_is_one_sentence(run, app, place, said):
    app.conf.redbeat_redis_url = place
    app.conf.delayq_timeout = 1
    done = run("rules", "import", "--from", "redbeat")
    assert done.exit_code == 1
    [line] = done.output.splitlines()
    assert said in line


def test_a_project_without_django_is_one_sentence(run):
    done = run("rules", "import", "--from", "django-celery-beat")
    assert done.exit_code == 1
    assert "expected a project whose Django has django_celery_beat" in done.output


def test_without_use_tz_a_start_is_in_the_app_s_zone(delayq):
    [row] = [row for row in rows() if row.name == "begins"]
    row.start_time = datetime(2100, 1, 1, 12)  # noqa: DTZ001 - what Django has then
    found = importing._django_entry(
        delayq.services, row, datetime(2026, 1, 1, tzinfo=timezone.utc), is_zoned=False
    )
    assert "2100-01-01T12:00:00+01:00" in found.refused
    row.start_time = None
    found = importing._django_entry(
        delayq.services, row, datetime.now(timezone.utc), is_zoned=False
    )
    assert (found.refused, found.tz) == ("", None)


@pytest.mark.parametrize(
    "words", [("import",), ("list", "--dry-run"), ("pause", "a", "--from", "redbeat")]
)
def test_the_options_are_of_import(misused, words):
    assert misused("rules", *words).endswith("--from, --dry-run and --remove are of import.")


def test_the_table_has_what_becomes_of_each(run, put):
    put("a", entry(enabled=False))
    put("b", entry(name="b", schedule={"__type__": "rrule"}))
    put("c\n", entry(name="c\nd", args="x"))
    done = run("rules", "import", "--from", "redbeat", "--dry-run")
    assert [line.split("  ") for line in done.stdout.splitlines() if line.startswith("a")]
    assert [" ".join(line.split()) for line in done.stdout.splitlines()] == [
        "NAME TASK SCHEDULE ZONE BECOMES",
        "a report 0 9 * * * Europe/Berlin new, paused",
        "b report rrule refused: its schedule is rrule; expected interval or crontab",
        "c\\nd report crontab refused: its arguments are not a JSON list and a JSON object",
    ]


# A mirror.


def test_a_rule_whose_entry_is_gone_is_named_and_removed_if_one_asks_for_that(
    do, put, delayq, redis
):
    for name in ("old", "kept", "other"):
        put(name, entry(name=name))
    do("redbeat")
    delayq.every("mine", delayq.app.tasks["report"].s(), 60)
    for name in ("old", "other"):
        redis.zrem("redbeat::schedule", f"redbeat:{name}")
    put("new", entry(name="new"))  # one of them has another name
    gone = "no entry has this name any more"

    tried = do("redbeat", "--dry-run")
    assert tried == do("redbeat", "--dry-run")
    assert tried[0]["old"] == tried[0]["other"] == ("gone", gone)
    assert (tried[0]["new"][0], tried[1]) == ("new", 1)

    assert do("redbeat", "old", "--dry-run", "--remove") == ({"old": ("removed", gone)}, 0)
    assert do("redbeat", "old", "--remove") == ({"old": ("removed", gone)}, 0)
    assert {rule.name for rule in delayq.rules()} == {"kept", "other", "mine"}
    found, status = do("redbeat", "--remove")
    assert ([found[name][0] for name in ("kept", "new", "other")], status) == (
        ["same", "new", "removed"],
        0,
    )
    assert {rule.name for rule in delayq.rules()} == {"kept", "new", "mine"}


def test_of_an_empty_place_no_rule_is_removed_unless_it_is_named(do, put, delayq, redis, run):
    put("a", entry())
    do("redbeat")
    redis.delete("redbeat::schedule")
    done = run("rules", "import", "--from", "redbeat", "--remove")
    assert done.exit_code == 1
    assert "no rule is removed" in done.stderr
    assert delayq.rule("a")
    assert do("redbeat", "a", "--remove")[1] == 0
    assert delayq.rules() == []


def test_rules_of_another_app_are_not_gone(do, put, delayq, redis):
    put("a", entry())
    do("redbeat")
    set_fields(redis, "a", app=lambda _: "other")
    redis.zrem("redbeat::schedule", "redbeat:a")
    put("b", entry(name="b"))
    assert do("redbeat", "--remove")[0].keys() == {"b"}


@pytest.fixture
def is_sent(delayq):
    """Whether a beat process sends the entry `a` tomorrow."""
    tomorrow = SimpleNamespace(name="a", schedule=timedelta(days=1))
    return lambda: not Guard(delayq.services).is_rule(tomorrow)


def test_an_entry_of_which_no_rule_can_be_made_any_more_is_sent_by_beat_alone(
    do, put, delayq, is_sent, monkeypatch
):
    put("a", entry())
    do("redbeat")
    later = datetime.now(timezone.utc) + timedelta(days=2)
    monkeypatch.setattr("celery_delayq.core.clock.utc_now", lambda: later)
    assert not is_sent()

    put("a", entry(schedule={"__type__": "interval", "every": 0.5}))
    why = f"schedule is 0.5 seconds; {SECOND}; its rule is paused, and beat sends it"
    assert do("redbeat", "--dry-run") == ({"a": ("refused", why)}, 1)
    assert not is_sent()
    for _ in range(2):
        assert do("redbeat") == ({"a": ("refused", why)}, 1)
        assert delayq.rule("a").is_paused
        assert is_sent()
        assert [*delayq.tasks()] == []

    put("a", entry())
    assert do("redbeat")[0]["a"][0] == "changed"
    assert not delayq.rule("a").is_paused
    assert not is_sent()


def test_a_rule_that_a_person_resumes_or_pauses_is_no_longer_beat_s(
    do, put, delayq, is_sent, redis
):
    put("a", entry())
    do("redbeat")
    set_fields(redis, "a", since=lambda _: "1")
    put("a", entry(options={"eta": 5}))
    do("redbeat")
    assert is_sent()
    delayq.rule("a").pause()
    assert not is_sent()
    do("redbeat")
    assert is_sent()
    delayq.rule("a").resume()
    assert not is_sent()
    delayq.rule("a").pause()
    assert not is_sent()


def test_a_second_entry_of_a_name_does_not_pause_the_rule_of_the_first(do, put, delayq):
    put("1", entry(args=[1]))
    do("redbeat")
    put("2", entry(args=[2]))
    do("redbeat")
    assert not delayq.rule("a").is_paused


def test_a_disabled_copy_from_beat_schedule_is_named(do, put):
    put("fixed", entry(name="fixed", enabled=False))
    [(word, why)] = do("redbeat")[0].values()
    assert word == "skipped"
    assert "disabled here, and delayq_beat does not see that" in why


# What an entry has beside its task and schedule.


def test_what_redbeat_may_say_one_day_is_refused_by_its_name(do, put):
    put("a", entry(jitter=5))
    put("b", entry(name="b", schedule={**DAY, "second": 5}))
    put("c", entry(name="c", schedule={"__type__": "interval", "every": 7200, "relative": True}))
    put("d", entry(name="d", options={"headers": ["x"]}))
    found, _ = do("redbeat")
    assert found == {
        "a": ("refused", "no rule has what it says as jitter"),
        "b": ("refused", "its crontab has second, which no rule has"),
        "c": (
            "refused",
            f"schedule is 'schedule(7200, relative=True)'; {ROUNDED}",
        ),
        "d": ("refused", "its options or headers are no JSON object"),
    }


def test_a_day_that_celery_rounds_is_one_of_the_app_s_zone(do, put, delayq, app):
    app.conf.timezone = "Asia/Tokyo"
    put("a", entry(schedule={"__type__": "interval", "every": 86400.0, "relative": True}))
    assert do("redbeat")[0] == {"a": ("new", "0 0 * * *", "Asia/Tokyo")}
    [task] = delayq.tasks()
    assert task.due.astimezone(timezone.utc).hour == 15


@pytest.mark.parametrize("options", [{"sentinels": [("s", 1)]}, {"password": "x", "db": 1}])
def test_options_that_say_which_redis_are_refused_by_their_names(run, app, options):
    app.conf.redbeat_redis_options = options
    done = run("rules", "import", "--from", "redbeat")
    assert done.exit_code == 1
    assert "redbeat_redis_options is" in done.output
    assert all(name in done.output for name in options)


def test_an_interval_goes_on_from_its_last_run(do, put, delayq, redis):
    seven = {"__type__": "interval", "every": 7 * 3600}
    put("a", entry(schedule=seven), ago=timedelta(hours=1))
    last = read(redis, "a")
    do("redbeat")
    [task] = delayq.tasks()
    assert timedelta(0) <= task.due - last - timedelta(hours=7) < timedelta(milliseconds=1)
    put("b", entry(name="b", schedule=seven), ago=timedelta(hours=8))
    put("c", entry(name="c", schedule=seven))
    redis.hdel("redbeat:c", "meta")  # it never ran
    do("redbeat")
    for name in "bc":
        [first, *_] = sorted(task.due for task in delayq.select(tag=f"every:{name}"))
        assert first <= now(delayq)


def test_an_interval_of_the_database_goes_on_from_its_start_though_the_last_run_may_be_newer(
    delayq, do, monkeypatch
):
    [row] = [row for row in rows() if row.name == "hourly"]
    monkeypatch.setattr(importing, "_rows", lambda: [(row, True)])
    start = now(delayq) - timedelta(hours=1, seconds=100)
    row.start_time, row.last_run_at = start, start
    do("django-celery-beat")
    [task] = delayq.tasks()
    assert task.due == start + timedelta(hours=2)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"date_changed": timedelta(days=2)}, timedelta(days=2)),
        ({"date_changed": timedelta(days=2), "start_time": timedelta(days=3)}, None),
        ({"date_changed": timedelta(seconds=9), "start_time": timedelta(days=3)}, timedelta(0, 9)),
        ({"last_run_at": timedelta(hours=5), "date_changed": timedelta(1)}, timedelta(hours=5)),
    ],
)
def test_the_last_run_is_the_one_that_django_celery_beat_takes(known, expected):
    [row] = [row for row in rows() if row.name == "hourly"]
    today = datetime(2026, 7, 1, tzinfo=timezone.utc)
    for name, ago in known.items():
        setattr(row, name, today - ago)
    found = importing._last_run(row, today, timezone.utc)
    assert found == (today - expected if expected else EPOCH)
