"""What came of the changes: those that nobody notices, and the test functions that notice none."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from tests.lab.mutants.chosen import Chosen, file_of, function_of

Row = dict[str, Any]


def line(row: Row) -> str:
    """A change, and the first test that fails, or how many passed."""
    if not row["by"]:
        passed = f"{row['ran']} of the {row['of']} tests that reach it"
        return f"SURVIVED  {row['told']}\n          {passed}"
    more = "" if row["by_own"] else "; no test of its own files fails"
    return f"noticed   {row['told']}\n          {row['by'][0]}{more}"


def survivors(rows: list[Row]) -> str:
    found = sorted(line(row) for row in rows if not row["by"])
    return "\n".join(["Changes that nobody notices:", *(found or ["none"])])


def noticing(rows: list[Row], tests: Chosen) -> Iterator[str]:
    """For each test file, how many of its functions its modules' changes need, and the others."""
    by_file: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        for file in row["own"]:
            by_file[file].append(row)
    for file, tried in sorted(by_file.items()):
        fail = [{function_of(test) for test in row["by"] if file_of(test) == file} for row in tried]
        noticed = [functions for functions in fail if functions]
        every, some = tests.functions(file), set().union(*noticed)
        modules = ", ".join(sorted({row["module"] for row in tried}))
        yield (
            f"{file}: fails for {len(noticed)} of {len(tried)} changes of {modules}; "
            f"{len(some)} of its {len(every)} functions notice one, {enough(noticed)} are enough"
        )
        yield from (f"    {each.partition('::')[2]}" for each in sorted(every - some))


def enough(noticed: list[set[str]]) -> int:
    """How few functions notice all of the changes, found one by one: the best first."""
    left, count = noticed, 0
    while left:
        functions = sorted(set().union(*left))
        best = max(functions, key=lambda function: sum(function in each for each in left))
        left, count = [each for each in left if best not in each], count + 1
    return count


def summary(rows: list[Row], size: int, places: int, seed: int) -> str:
    own = sum(bool(row["by_own"]) for row in rows)
    all_in_all = sum(bool(row["by"]) for row in rows)
    return (
        f"tried {len(rows)} of {size} changes, of {places} places (seed {seed}): {own} are noticed "
        f"by the module's own test files, {all_in_all - own} by others, "
        f"{len(rows) - all_in_all} by nobody"
    )
