"""The dashboard and the alert rules: Prometheus reads them, and every metric in them exists."""

import json
import re
import shutil
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import promql_parser
import pytest
from prometheus_client import CollectorRegistry

from celery_delayq.contrib.metrics import Collector, names, watch
from tests.app.support import FAR, LONG_AGO
from tests.metrics.support import Scrape
from tests.readme.document import DOCUMENTS
from tests.support.missing import missing

ROOM = Path(__file__).parents[2] / "celery_delayq" / "contrib" / "metrics"
RULES, DASHBOARD = ROOM / "alerts.yml", ROOM / "grafana.json"
PLAYED = Path(__file__).with_name("alerts_test.yml")
# Labels that Prometheus itself gives each series, and a histogram its buckets.
GIVEN = {"job", "instance", "le"}
# Values that Grafana puts into an expression before the query.
VARIABLES = {"$job": ".*", "$__rate_interval": "5m"}


def promtool(*arguments):
    own = Path(sys.prefix, ".delayq", "promtool")
    program = shutil.which("promtool") or (own if own.exists() else None)
    if program is None:
        missing("promtool")
    return subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def dashboard():
    return json.loads(DASHBOARD.read_text("utf-8"))


def shown():
    """(panel, expression as Prometheus receives it) of the dashboard."""
    found = []
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            asked = target["expr"]
            for name, value in VARIABLES.items():
                asked = asked.replace(name, value)
            found.append((panel["title"], asked))
    return found


def alerts():
    """(alert, expression) in the file."""
    return re.findall(r"- alert: (\w+)\n\s+expr: (.*)", RULES.read_text("utf-8"))


EXPRESSIONS = [*shown(), *alerts()]


def parts(expression):
    """An expression and all of its parts."""
    yield expression
    inner = [getattr(expression, name, None) for name in ("expr", "lhs", "rhs", "vector_selector")]
    for one in [*inner, *getattr(expression, "args", ())]:
        if one is not None:
            yield from parts(one)


@pytest.fixture
def found(app, delayq, registry):
    watch(delayq, registry)
    registry.register(Collector(delayq))
    app.send_task("t", delayq_at=FAR)
    app.send_task("t", delayq_at=LONG_AGO)
    delayq.pause(queue="mail")
    [*steps] = delayq.services.steps_by_shard()
    for shard_steps in steps:
        shard_steps.hand_over()
        shard_steps.close()
    series = Scrape.of(registry).samples
    labels = {}
    for name, pairs in series:
        labels.setdefault(f"celery_delayq_{name}", set()).update(key for key, _ in pairs)
    return labels


def test_promtool_reads_the_rules():
    done = promtool("check", "rules", "--lint-fatal", RULES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(alerts())} rules found" in done.stdout


def played():
    """The scenes for promtool, with the annotations that are the same in each."""
    said = {one.name: one for one in names.alerts()}
    alert = None
    for line in PLAYED.read_text("utf-8").splitlines():
        if named := re.search(r"alertname: (\w+)", line):
            alert = said[named[1]]
        yield line.replace("../../celery_delayq/contrib/metrics/alerts.yml", str(RULES))
        indent, is_summary, _ = line.partition("summary: ")
        if is_summary:
            yield f"{indent}description: {json.dumps(alert.description)}"
            yield f"{indent}runbook_url: celery_delayq/docs/runbook.md#{alert.section}"


def test_each_alert_fires_when_it_should_and_not_before(tmp_path):
    scenes = tmp_path / PLAYED.name
    scenes.write_text("\n".join(played()), encoding="utf-8")

    done = promtool("test", "rules", scenes)

    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_is_played():
    played = PLAYED.read_text("utf-8")
    for alert, _ in alerts():
        assert len(re.findall(rf"alertname: {alert}\b", played)) >= 2, alert


def test_each_alert_leads_to_its_section_of_the_runbook():
    named = re.findall(r"runbook_url: (.*)#(\w+)", RULES.read_text("utf-8"))
    sections = DOCUMENTS["celery_delayq/docs/runbook.md"].anchors
    assert [anchor for _, anchor in named] == [alert.lower() for alert, _ in alerts()]
    assert {path for path, _ in named} == {"celery_delayq/docs/runbook.md"}
    assert [anchor for _, anchor in named if anchor not in sections] == []


def test_prometheus_can_read_each_expression_and_all_that_it_names_is_told(found):
    for where, asked in EXPRESSIONS:
        nodes = list(parts(promql_parser.parse(asked)))
        selectors = [one for one in nodes if isinstance(one, promql_parser.VectorSelector)]
        assert selectors, (where, asked)
        assert {one.name for one in selectors} <= found.keys(), (where, asked)
        known = GIVEN.union(*(found[one.name] for one in selectors))
        matched = {one.name for each in selectors for one in each.matchers.matchers}
        grouped = {
            label
            for one in nodes
            if isinstance(one, promql_parser.AggregateExpr) and one.modifier
            for label in one.modifier.labels
        }
        assert matched | grouped <= known, (where, asked)


def test_every_metric_is_on_the_dashboard():
    asked = " ".join(one for _, one in shown())
    assert [one.name for one in names.metrics() if one.full_name not in asked] == ["build_info"]


def test_each_legend_names_labels_of_its_expression(found):
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            by = set(re.findall(r"\w+", " ".join(re.findall(r"by \((.*?)\)", target["expr"]))))
            assert named <= (by or GIVEN), panel["title"]


def test_the_dashboard_can_be_imported_as_it_is():
    made = dashboard()

    assert {one["name"] for one in made["templating"]["list"]} == {"datasource", "job"}
    ids = [one["id"] for one in made["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in made["panels"]:
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            refs = [one["refId"] for one in panel["targets"]]
            assert len(set(refs)) == len(refs)


def test_no_panel_covers_another():
    places = [one["gridPos"] for one in dashboard()["panels"]]
    for one in places:
        assert one["x"] + one["w"] <= 24
    for one, other in combinations(places, 2):
        apart_x = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart_y = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart_x or apart_y, (one, other)


def test_the_exposition_says_what_each_metric_is(delayq):
    registry = CollectorRegistry()
    watch(delayq, registry)
    registry.register(Collector(delayq))

    told = {one.name: (one.type, one.documentation) for one in registry.collect()}

    unknown = {"next_due_seconds", "store_age_seconds", "scanner_age_seconds"}
    assert told.keys() == {one.full_name for one in names.metrics() if one.name not in unknown}
    for one in names.metrics():
        assert told.get(one.full_name, (one.kind, one.says)) == (one.kind, one.says)
