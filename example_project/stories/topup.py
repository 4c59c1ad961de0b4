from scenes.topup import page_opened, paid
from story import Story

from celery_delayq import Outcome

PATIENCE = 5  # seconds


class TopUp(Story):
    name, title = "topup", "Top-up reminder"
    scale = f"30 minutes are {PATIENCE} s"

    def play(self):
        patience = PATIENCE * self.longer
        anna = self.opens("anna opens the page", "anna", due_in=patience)
        ben = self.opens("ben opens the page", "ben", due_in=patience)
        yield 1.5
        again = self.opens("anna opens it again", "anna", before=anna.due)
        self.must(
            again.existed and (again.id, again.due) == (anna.id, anna.due),
            "anna opened the page twice, and that changed her first reminder",
        )
        yield 1.5
        self.does("ben pays", lambda: paid("ben"), answers=Outcome.DONE, before=ben.due)
        self.does("ben pays twice", lambda: paid("ben"), answers=Outcome.NOT_FOUND)
        self.must(ben.state == "REVOKED", f"ben's reminder is {ben.state}, not REVOKED")
        self.will_run("the reminder of anna", anna.id, anna.due, "anna, your top-up is not paid")
        yield self.has_run(anna.id)
        self.does("anna pays too late", lambda: paid("anna"), answers=Outcome.HANDED_OVER)

    def opens(self, what, user, **due):
        patience = PATIENCE * self.longer
        return self.does(what, lambda: page_opened(user, patience=patience), **due)

    def summary(self):
        return (
            "anna opened the page twice and was reminded once,"
            f" {self.late('the reminder of anna')} after it was due; ben paid and got none."
        )
