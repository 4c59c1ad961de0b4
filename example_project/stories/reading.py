from datetime import timedelta

from scenes.reading import read
from story import Story

QUIET, CAP = 4, 7  # seconds


class Reading(Story):
    name, title = "reading", "Come back and read"
    scale = f"two hours are {QUIET} s, a day is {CAP} s"

    def play(self):
        self.quiet, self.cap = QUIET * self.longer, CAP * self.longer
        first = self.reads("cleo", 1, due_in=self.quiet)
        capped = first.due + timedelta(seconds=self.cap - self.quiet)
        yield 1.5
        two = self.reads("cleo", 2, before=first.due)
        yield 0.5
        dave = self.reads("dave", 1, due_in=self.quiet)
        yield 0.5
        three = self.reads("cleo", 3, before=two.due)
        self.must(
            first.due < two.due <= three.due <= capped,
            "a page that cleo read did not put her reminder off",
        )
        yield 1
        last = self.reads("cleo", 4, before=three.due)
        self.tell(f"that is {self.cap} s after page 1: the cap")
        self.must(
            last.due == capped,
            f"page 4 put it off to {self.second(last.due)}; the cap is at {self.second(capped)}",
        )
        self.will_run("the reminder of cleo", last.id, capped, "cleo, go on after page 4")
        self.will_run("the reminder of dave", dave.id, dave.due, "dave, go on after page 1")

    def reads(self, user, page, **due):
        what = f"{user} reads page {page}"
        return self.does(what, lambda: read(user, page, quiet=self.quiet, cap=self.cap), **due)

    def summary(self):
        return (
            "cleo read four pages and was reminded once, of the last one,"
            f" {self.late('the reminder of cleo')} after the cap; dave read one."
        )
