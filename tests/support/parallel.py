"""The suite in several processes (pytest-xdist): how many, and which tests have to share one.

    each process:  collect --> sort --> tell(groups) --> run what it is given
                                             |                   ^
    the first:                          a file (JSON) --> Grouping.schedule

Each process has servers of its own, so a test can run in any. But a fixture
that takes seconds should start only once: the tests that share one are a group, which stays in one
process.
(xdist's own --dist loadgroup hands the names of groups over in node ids, which pytest 9.2 keeps.)
"""

import json
import os
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

# More than the processors, as most tests wait for half of their time.
PROCESSES = 5

# A test belongs to the group of the first of these that it asks for.
SHARED = (
    "rabbitmq_server",
    *("ended", "broker", "pool", "pair", "watch", "capturing", "crew"),  # workers
    *("certificates", "wheel", "new_project", "versions"),
    *("guarded", "standing_group"),  # groups with three sentinels
    "chromium",
)
# The parameter by which a fixture asks for each of them.
CALLED = {"rabbit": "rabbitmq_server", "rabbitmq": "rabbitmq_server"}
# The longest tests start first, so that none of them runs alone at the end.
FIRST = (
    *("tests/worker", "tests/wheel", "tests/readme"),
    *("tests/example", "tests/lab/faults/test_soak.py"),
)


def processes(config: pytest.Config) -> int:
    """How many of them; none but pytest's own for one file, which is over before others are up."""
    return 0 if is_one_file(config) else PROCESSES


def is_one_file(config: pytest.Config) -> bool:
    return len(config.args) == 1 and ".py" in config.args[0]


def sort(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))


def tell(items: list[pytest.Item], path: str) -> None:
    """Write down the group of each test that has one; every process writes the same."""
    groups = {item.nodeid: group for item in items if (group := group_of(item))}
    own = Path(f"{path}.{os.getpid()}")
    own.write_text(json.dumps(groups), encoding="utf-8")
    own.replace(path)


def group_of(item: pytest.Item) -> str | None:
    chosen = getattr(getattr(item, "callspec", None), "params", {})
    # A test may choose its fixture by name.
    names = [each for each in chosen.values() if isinstance(each, str)]
    asked = [*item.fixturenames, *(CALLED.get(each, each) for each in names)]
    name = next((name for name in SHARED if name in asked), None)
    # A parametrised fixture is a different one for each parameter.
    return f"{name} {chosen[name]}" if name in chosen else name


class Grouping(LoadScopeScheduling):
    """Gives out groups, the largest first, then tests one by one."""

    def __init__(self, config, log, path: Path):
        super().__init__(config, log)
        self._path = path
        self._groups: dict[str, str] | None = None

    def _split_scope(self, nodeid: str) -> str:
        if self._groups is None:
            self._groups = json.loads(self._path.read_text(encoding="utf-8"))
        return self._groups.get(nodeid, nodeid)
