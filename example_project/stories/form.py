from datetime import timedelta

from scenes.form import edit, look, put_off, submit, write
from story import Story, due_after

from celery_delayq import Outcome

WAIT = 60  # seconds, as no edit may come too late
SOONER = 55


class Form(Story):
    name, title = "form", "A form that submits itself"
    scale = "a minute is a minute"

    def play(self):
        one = self.writes(1, "helo")
        two = self.writes(2, "goodby")
        seen = look(1).revision
        yield 1
        self.edits("ida edits form 1", 1, "hello", seen)
        self.edits("jon edits the revision ida saw", 1, "hallo", seen, answers=Outcome.UNCHANGED)
        yield 1
        self.edits("ida edits form 2", 2, "goodbye", look(2).revision)
        self.does("form 1: 5 s later", lambda: put_off(1, by=5), answers=Outcome.DONE)
        moved = one.due + timedelta(seconds=5)
        due = look(1).due
        self.must(
            due == moved,
            f"form 1 is due at {self.second(due)}, and was moved to {self.second(moved)}",
        )
        self.does(
            f"form 2: {SOONER} s earlier", lambda: put_off(2, by=-SOONER), answers=Outcome.DONE
        )
        sooner = two.due - timedelta(seconds=SOONER)
        self.will_run("form 2", two.id, sooner, "form 2 says 'goodbye'")
        yield 1.5
        now = self.stage.redis_now()
        self.does("ida submits form 1", lambda: submit(1), answers=Outcome.DONE)
        by_hand = due_after(0, now), self.stage.redis_now()
        self.will_run("form 1", one.id, by_hand, "form 1 says 'hello'")

    def writes(self, form, text):
        return self.does(f"ida writes form {form}", lambda: write(form, text, WAIT), due_in=WAIT)

    def edits(self, what, form, text, revision, answers=Outcome.DONE):
        return self.does(f"{what}: {text}", lambda: edit(form, text, revision), answers=answers)

    def summary(self):
        return (
            f"form 1 ran {self.late('form 1')} after it was submitted by hand, and form 2"
            f" {self.late('form 2')} after it was due, both with what was edited."
        )
