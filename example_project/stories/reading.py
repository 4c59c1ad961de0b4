from datetime import timedelta

from scenes.reading import read
from story import Story

QUIET, CAP = 4, 7  # seconds


class Reading(Story):
    name, title = "reading", "Come back and read"
    scale = f"two hours are {QUIET} s, a day is {CAP} s"

    def play(self):
        first = self.reads("cleo", 1)
        yield 1.5
        self.reads("cleo", 2)
        yield 0.5
        dave = self.reads("dave", 1)
        yield 0.5
        self.reads("cleo", 3, due_in=None)  # on a busy machine the cap may hold already
        yield 1
        last = self.reads("cleo", 4, due_in=None)
        capped = first.due + timedelta(seconds=CAP - QUIET)
        self.tell(f"that is {CAP} s after page 1: the cap")
        self.must(
            last.due == capped,
            f"page 4 put it off to {self.second(last.due)}; the cap is at {self.second(capped)}",
        )
        self.will_run("the reminder of cleo", last.id, capped, "cleo, go on after page 4")
        self.will_run("the reminder of dave", dave.id, dave.due, "dave, go on after page 1")

    def reads(self, user, page, due_in=QUIET):
        what = f"{user} reads page {page}"
        return self.does(what, lambda: read(user, page, quiet=QUIET, cap=CAP), due_in=due_in)

    def summary(self):
        return (
            "cleo read four pages and was reminded once, of the last one,"
            f" {self.late('the reminder of cleo')} after the cap; dave read one."
        )
