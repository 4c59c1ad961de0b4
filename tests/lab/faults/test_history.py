"""The judge of histories: a history in order passes, and each fault gets its name."""

import pytest

from tests.lab.faults.history import Call, Copy, Kept, judge

pytestmark = pytest.mark.thorough

END = 100_000
FAR = 4_000_000_000_000


def schedule(version, due, at=0, answer="done"):
    return Call("a", "schedule", at, at + 1, answer, version, (due, due))


def cancel(answer, at=100):
    return Call("a", "cancel", at, at + 1, answer)


def reschedule(answer, due, at=100, **more):
    return Call("a", "reschedule", at, at + 1, answer, due=(due, due), **more)


def copy(version, due, seen=None, **more):
    return Copy("a", version, due, due + 5 if seen is None else seen, **more)


def problems(calls, copies=(), kept=(), **options):
    verdict = judge(calls, copies, kept, END, **options)
    return [one.kind for one in verdict.problems], verdict.missing


IN_ORDER = {
    "handed over": ([schedule(1, 500)], [copy(1, 500)], []),
    "waits": ([schedule(1, FAR)], [], [Kept("a", 1, FAR)]),
    "is dead": ([schedule(1, 500)], [], [Kept("a", 1, 500, dead=True)]),
    "cancelled": ([schedule(1, 500), cancel("done"), cancel("not_found", 200)], [], []),
    "too late": ([schedule(1, 50), cancel("handed_over")], [copy(1, 50)], []),
    "moved": ([schedule(1, 500), reschedule("done", 900)], [copy(1, 900)], []),
    "put off": ([schedule(1, 500), reschedule("done", 300, by=True)], [copy(1, 800)], []),
    "was there": ([schedule(1, 500), schedule(2, 600, 10, "already")], [copy(1, 500)], []),
    "again": ([schedule(1, 50), schedule(2, 600, 100)], [copy(1, 50), copy(2, 600)], []),
    "refused": ([schedule(1, 50, answer="refused"), cancel("not_found")], [], []),
    "no answer, and done": ([schedule(1, 50, answer="unknown")], [copy(1, 50)], []),
    "no answer, not done": ([schedule(1, 50, answer="unknown")], [], []),
    "cancelled, no answer": ([schedule(1, 500), cancel("unknown")], [], []),
    "not cancelled, no answer": ([schedule(1, 500), cancel("unknown")], [copy(1, 500)], []),
    "moved, no answer": ([schedule(1, 500), reschedule("unknown", 900)], [copy(1, 900)], []),
    "not moved, no answer": ([schedule(1, 500), reschedule("unknown", 900)], [copy(1, 500)], []),
    "repeated by the caller": (
        [schedule(1, 500, answer="unknown"), schedule(1, 500, 10)],
        [copy(1, 500)],
        [],
    ),
    "gone, and repeated by the caller": (
        [schedule(1, 50, answer="unknown"), schedule(1, 50, 100)],
        [copy(1, 50), copy(1, 50, 105)],
        [],
    ),
}


@pytest.mark.parametrize("history", IN_ORDER.values(), ids=IN_ORDER)
def test_a_history_in_order_has_no_problem_and_balances(history):
    assert problems(*history) == ([], 0)


FAULTS = {
    "lost": ("lost", [schedule(1, 500)], [], []),
    "lost while it waited": ("lost", [schedule(1, FAR)], [], []),
    "early": ("early", [schedule(1, 500)], [copy(1, 500, 499)], []),
    "early, after a move": (
        "early",
        [schedule(1, 500), reschedule("done", 900)],
        [copy(1, 500)],
        [],
    ),
    "one copy too many": ("twice unmarked", [schedule(1, 500)], [copy(1, 500)] * 2, []),
    "a late request after the caller's own repetition": (
        "twice unmarked",
        [schedule(1, 500, answer="unknown"), schedule(1, 500, 10)],
        [copy(1, 500), copy(1, 500, 3000)],
        [],
    ),
    "cancelled, and it came": (
        "wrong answer",
        [schedule(1, 500), cancel("done")],
        [copy(1, 500)],
        [],
    ),
    "cancelled, and it waits": (
        "wrong answer",
        [schedule(1, FAR), cancel("done")],
        [],
        [Kept("a", 1, FAR)],
    ),
    "not found, and it came": (
        "wrong answer",
        [schedule(1, 500, answer="unknown"), cancel("not_found")],
        [copy(1, 500)],
        [],
    ),
    "not found, and it was there": (
        "wrong answer",
        [schedule(1, 500), cancel("not_found")],
        [copy(1, 500)],
        [],
    ),
    "handed over before its time": (
        "wrong answer",
        [schedule(1, 500), cancel("handed_over")],
        [copy(1, 500)],
        [],
    ),
    "accepted while another waits": (
        "wrong answer",
        [schedule(1, FAR), schedule(2, FAR, 10)],
        [],
        [Kept("a", 2, FAR)],
    ),
    "refused, and it came": (
        "wrong answer",
        [schedule(1, 50, answer="refused")],
        [copy(1, 50)],
        [],
    ),
    "uncertain, though the hand-over is exact": (
        "wrong answer",
        [schedule(1, 50), cancel("uncertain")],
        [copy(1, 50)],
        [],
    ),
    "an error that should not be": ("wrong answer", [schedule(1, 50, answer="raised X")], [], []),
    "nobody's": ("wrong answer", [], [copy(1, 50)], []),
    "left over": ("left over", [schedule(1, 500)], [], [Kept("a", 1, 500)]),
    "waits for another time": ("wrong answer", [schedule(1, FAR)], [], [Kept("a", 1, FAR + 1)]),
    "went for another time": ("wrong answer", [schedule(1, 500)], [copy(1, 400, 505)], []),
}


@pytest.mark.parametrize(("kind", "calls", "copies", "kept"), FAULTS.values(), ids=FAULTS)
def test_each_fault_is_called_by_its_name(kind, calls, copies, kept):
    assert kind in problems(calls, copies, kept)[0]


def test_a_second_copy_that_says_so_is_counted_and_no_fault():
    history = [schedule(1, 500)], [copy(1, 500), copy(1, 500, marked=True)], []
    verdict = judge(*history, END, relayed=True)
    assert [one.kind for one in verdict.problems] == ["twice marked"]
    assert (verdict.faults, verdict.missing) == ([], 0)


@pytest.mark.parametrize("copies", [[], [copy(1, 50)], [copy(1, 50, marked=True)]])
def test_a_relayed_task_that_was_cancelled_without_certainty_may_arrive(copies):
    history = [schedule(1, 50), cancel("in_flight", 90), cancel("uncertain")], copies, []
    assert problems(*history, relayed=True) == ([], 0)


def test_a_relayed_task_that_was_moved_without_certainty_may_have_arrived_and_still_wait():
    calls = [schedule(1, 50), reschedule("uncertain", FAR)]
    kept = [Kept("a", 1, FAR)]
    assert problems(calls, [copy(1, 50)], kept, relayed=True) == ([], 0)
    assert problems(calls, [], kept, relayed=True) == ([], 0)


def test_a_task_that_was_cancelled_without_certainty_arrives_unmarked_once_at_most():
    history = [schedule(1, 50), cancel("uncertain")], [copy(1, 50)] * 2, []
    assert problems(*history, relayed=True)[0] == ["twice unmarked"]


def test_the_books_say_how_many_are_missing_or_too_many():
    assert problems([schedule(1, 500)])[1] == 1
    assert problems([schedule(1, 500)], [copy(1, 500)] * 2)[1] == -1


def test_of_many_ids_the_one_with_the_fault_is_named():
    calls = [Call(f"{n}", "schedule", 0, 1, "done", n, (500, 500)) for n in range(100)]
    copies = [Copy(f"{n}", n, 500, 501) for n in range(100) if n != 57]
    verdict = judge(calls, copies, [], END)
    assert [(one.kind, one.task_id) for one in verdict.problems] == [("lost", "57")]
    assert (verdict.scheduled, verdict.handed_over, verdict.missing) == (100, 99, 1)
