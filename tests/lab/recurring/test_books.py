"""The judge of the books finds each kind of fault, and nothing in sound books."""

from tests.lab.recurring.books import Evidence, judge

SLOTS = [2000, 4000, 6000]


def books(**changed):
    facts = {
        "written": [("a", 2000, 100), ("b", 4000, 100), ("c", 6000, 100)],
        "delivered": ["a", "b", "c"],
        "copies": [("a", False), ("b", False), ("c", False)],
    }
    return judge(Evidence(SLOTS, **{**facts, **changed}))


def test_sound_books_have_each_slot_once():
    verdict = books()
    assert (verdict.slots, verdict.once, verdict.is_sound) == (3, 3, True)


def test_a_slot_without_an_entry_is_lost():
    verdict = books(written=[("a", 2000, 100), ("c", 6000, 100)], delivered=["a", "c"])
    assert (verdict.lost, verdict.once, verdict.is_sound) == ((4000,), 2, False)


def test_a_slot_with_two_entries_is_doubled():
    twice = [("a", 2000, 100), ("b", 4000, 100), ("d", 4000, 100), ("c", 6000, 100)]
    verdict = books(written=twice, delivered=["a", "b", "c", "d"])
    assert (verdict.doubled, verdict.is_sound) == ((4000,), False)


def test_an_entry_that_was_not_delivered_is_found():
    verdict = books(delivered=["a", "c"])
    assert (verdict.undelivered, verdict.once, verdict.is_sound) == (("b",), 2, False)


def test_a_second_copy_needs_the_mark():
    copies = [("a", False), ("b", False), ("c", False)]
    marked, unmarked = books(copies=[*copies, ("b", True)]), books(copies=[*copies, ("b", False)])
    assert (marked.marked, marked.is_sound) == (1, True)
    assert (unmarked.twice, unmarked.is_sound) == (("b",), False)
    assert books(delivered=["a", "b", "b", "c"]).twice == ("b",)


def test_an_entry_between_two_slots_is_strange():
    verdict = books(
        written=[("a", 2000, 1), ("b", 4000, 1), ("d", 4500, 1), ("c", 6000, 1)],
        delivered=["a", "b", "c", "d"],
    )
    assert (verdict.strange, verdict.is_sound) == ((4500,), False)


def test_a_keyed_slot_is_left_out_only_if_its_key_is_held():
    gone = {"written": [("a", 2000, 1), ("c", 6000, 1)], "delivered": ["a", "c"]}
    held, free = books(**gone, held=[3900]), books(**gone, held=[2000, 3000])
    assert (held.excused, held.is_sound) == (1, True)
    assert (free.lost, free.is_sound) == ((4000,), False)


def test_a_keyed_slot_is_left_out_if_an_earlier_one_was_written_after_it():
    late = [("a", 2000, 4800), ("c", 6000, 5000)]
    verdict = books(written=late, delivered=["a", "c"], held=[])
    assert (verdict.behind, verdict.is_sound) == (1, True)
