"""A scrape, parsed by prometheus-client's own parser."""

import urllib.request
from dataclasses import dataclass

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from celery_delayq.contrib.metrics.names import PREFIX
from tests.support.waiting import PATIENCE


@dataclass(frozen=True)
class Scrape:
    """Samples by (name without prefix, labels)."""

    samples: dict

    @classmethod
    def of(cls, registry):
        return cls.parse(generate_latest(registry).decode())

    @classmethod
    def from_port(cls, port, timeout=PATIENCE):
        url = f"http://127.0.0.1:{port}/metrics"
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            return cls.parse(answer.read().decode())

    @classmethod
    def parse(cls, text):
        families = text_string_to_metric_families(text)
        samples = [one for family in families for one in family.samples]
        ours = [one for one in samples if one.name.startswith(PREFIX)]
        found = {
            (one.name.removeprefix(PREFIX), tuple(one.labels.items())): one.value for one in ours
        }
        assert len(found) == len(ours), "a series occurs twice"
        return cls(found)

    def __getitem__(self, name):
        """The value of a metric without labels."""
        return self.samples[name, ()]

    def by_label(self, name):
        """Label -> value of a metric with one label, without the series that are 0."""
        return {
            labels[0][1]: value
            for (found, labels), value in self.samples.items()
            if found == name and value
        }

    @property
    def names(self):
        return {name for name, _ in self.samples}
