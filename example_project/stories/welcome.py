from datetime import timedelta

from scenes.welcome import left, move_all, registered
from story import Story

WAITS = {"emil": 3, "fay": 4, "gus": 5}  # seconds
MORE = 3


class Welcome(Story):
    name, title = "welcome", "Welcome"
    scale = "20, 30 and 40 minutes are 3, 4 and 5 s"

    def play(self):
        new = {user: self.comes(user, wait * self.longer) for user, wait in WAITS.items()}
        wait = 4 * self.longer
        hal = self.does("hal leaves", lambda: left("hal", wait), due_in=wait)
        self.will_run("the news for hal", hal.id, hal.due, "hal, have a look at the news")
        yield 1.5
        more = timedelta(seconds=MORE)
        what = f"all who registered: {MORE} s later"
        first = new["emil"].due
        self.does(what, lambda: move_all("registered", by=more), answers=len(WAITS), before=first)
        for user, result in new.items():
            answer = f"{user}, have a look at the tour"
            self.will_run(f"the tour for {user}", result.id, result.due + more, answer)

    def comes(self, user, wait):
        return self.does(f"{user} registers", lambda: registered(user, wait), due_in=wait)

    def summary(self):
        return (
            "one call moved the tasks of emil, fay and gus, who had registered; they ran at their"
            f" new times; hal had left, and the task ran {self.late('the news for hal')} late."
        )
