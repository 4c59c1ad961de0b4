from itertools import pairwise

from scenes.app import delayq
from scenes.latest import page
from scenes.topup import page_opened, paid
from story import Story

LINES = 10
CROWDS, VISITORS = 3, 6  # each of them adds two lines


class Latest(Story):
    name, title = "latest", "The latest ten"
    scale = "of all events here"
    looks = longest = 0

    def play(self):
        for crowd in range(CROWDS):
            yield 1
            for number in range(VISITORS):
                user = f"guest-{crowd * VISITORS + number + 1}"
                page_opened(user)
                self.looks_at(page(), f"scheduled topup:{user}")
                paid(user)
                self.looks_at(page(), f"cancelled topup:{user}")
            self.tell(f"{VISITORS} guests came and paid; the page has {len(page())} lines")
        yield 1
        self.must(self.longest == LINES, f"the page never had {LINES} lines, but {self.longest}")
        times = [event.when for event in delayq.history()]
        self.must(times == sorted(times, reverse=True), "the page's newest line was not the first")
        self.tell("the page is now")
        for line in page():
            self.tell(f"  {line}")

    def looks_at(self, lines, newest):
        self.looks += 1
        self.longest = max(self.longest, len(lines))
        self.must(len(lines) <= LINES, f"the page had {len(lines)} lines")
        self.must(newest in lines, f"the page did not have {newest!r}, which had just happened")
        for one, two in pairwise(lines):
            self.must(one != two, f"the page had {one!r} twice in a row")

    def summary(self):
        return (
            f"the page was looked at {self.looks} times; it had {self.longest} lines at most, and"
            " none twice in a row."
        )
