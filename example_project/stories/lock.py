from scenes.lock import bill, lock_of
from story import Story, span

AGAIN = 2  # seconds
TRIES = 2  # while the lock is taken


class Lock(Story):
    name, title = "lock", "The lock is taken"
    scale = f"five seconds are {AGAIN} s"

    def play(self):
        taken = lock_of(7)
        self.does("kim takes the lock of account 7", lambda: taken.acquire(blocking=False))
        self.seven = self.bills(7).id
        yield lambda: len(self.stage.runs_of(self.seven)) >= 1
        eight = self.bills(8)
        self.eight = eight.id
        self.will_run("the bill of account 8", eight.id, eight.due, "account 8 is billed")
        yield self.has_run(self.eight)
        yield lambda: len(self.stage.runs_of(self.seven)) >= TRIES
        self.tell("kim releases the lock")
        self.will_run("the bill of account 7", self.seven, None, "account 7 is billed")
        taken.release()
        yield self.has_run(self.seven)
        self.looks_back()

    def bills(self, account):
        what = f"account {account} is to be billed"
        return self.does(what, lambda: bill.delay_for(0, account, AGAIN), due_in=0)

    def looks_back(self):
        *tries, last = self.stage.runs_of(self.seven)
        for earlier, later in zip(tries, [*tries[1:], last], strict=True):
            again = later.began - earlier.began
            self.must(
                again >= AGAIN, f"account 7 was tried again after {span(again)}, not {AGAIN} s"
            )
        # The quickest, as a busy machine may hold up one of them.
        busy = min(one.ended - one.began for one in tries)
        self.must(busy < AGAIN, f"each try at account 7 kept the worker for {span(busy)} at least")
        self.must(
            last.retries == 0,
            f"of account 7 {last.retries} retries were counted, and there was none",
        )
        order = [run.id for run in self.stage.runs if run.id in (self.seven, self.eight)]
        self.must(
            order.index(self.eight) < len(order) - 1,
            "account 8 was not billed while account 7 waited for its lock",
        )

    def summary(self):
        *tries, _ = self.stage.runs_of(self.seven)
        return (
            f"account 7 put itself off {len(tries)} times, no retry was counted, and it was billed"
            " when the lock was free; the worker's one process billed account 8 meanwhile."
        )
