"""The stage: a clock, what the worker did, and the stories that are played at the same time.

each story --yields until when--> step() --its time has come--> it goes on
                                    |
the worker's notes (witness.py) ----+--> events, one line each, for the screen
"""

import time

import witness
from scenes.app import app, delayq
from stories import STORIES
from story import LATEST, span

AFTERWARDS = 0.7  # seconds to stay on, in case something runs that should not
PATIENCE = 20.0  # seconds for what a story waits for


class Stage:
    redis_now = staticmethod(witness.redis_now)

    def __init__(self):
        # Nobody waits for a result here. One that has subscribed cannot be dropped without a Redis.
        app.backend.on_task_call = lambda *_: None
        self.events = []  # (seconds since the start, scene, text)
        self.runs = []
        self.lag = 0.0  # seconds that a story went on late, at most
        self._start = self.redis_now().timestamp()
        self._clock = time.monotonic()
        self.stories = [story(self) for story in STORIES]
        self._playing = {story: (story.play(), 0.0, 0.0) for story in self.stories}

    @property
    def now(self):
        """Seconds since the start."""
        return time.monotonic() - self._clock

    def since_start(self, timestamp):
        return timestamp - self._start

    def runs_of(self, task_id):
        return [run for run in self.runs if run.id == task_id]

    def tell(self, scene, text):
        self.events.append((self.now, scene, text))

    def step(self):
        """See what ran, and let each story go on whose time has come."""
        self._look()
        for story in list(self._playing):
            self._play_on(story)

    def _look(self):
        for run in witness.runs(len(self.runs)):
            self.runs.append(run)
            self.tell(run.task.split(".")[1], _said(run))

    def _play_on(self, story):
        script, until, since = self._playing[story]
        if callable(until):
            if not until():
                if self.now < since + PATIENCE:
                    return
                story.wrong.append(f"what it waited for did not happen in {PATIENCE:g} s")
        elif self.now < until:
            return
        else:
            self.lag = max(self.lag, self.now - until)
        try:
            self._playing[story] = script, next(script), self.now
        except StopIteration:
            del self._playing[story]
        except Exception as error:  # whatever a broken package may raise
            story.wrong.append(f"it could not go on: {error!r}")
            del self._playing[story]

    @property
    def over(self):
        """Whether all was played and ran, or will not any more, and nothing happened since."""
        if self._playing or self.now < self.events[-1][0] + AFTERWARDS:
            return False
        expected = [one for story in self.stories for one in story.expected.items()]
        if all(self.runs_of(task_id) for task_id, _ in expected):
            return True
        return self.now > max(self.since_start(one.due) for _, one in expected) + LATEST

    def problems(self):
        for story in self.stories:
            for sentence in story.problems():
                yield f"{story.name}: {sentence}"
        for task in delayq.tasks():
            yield f"{task.task} waits, and nothing should any more"
        for finding in delayq.check():
            yield finding.sentence


def _said(run):
    if run.state == "IGNORED":
        return "ran, and put itself off"
    late = f", {span(run.began - run.due)} late" if run.due else ""
    return f"ran{late}: {run.answer}"
