"""The stage: a clock, what the worker did, and the stories, one after the other.

begin(story) --> the story --yields what it waits for--> step() --it has come--> the story goes on
                                                           |
the worker's notes (witness.py) ---------------------------+--> events, a line each, for the screen
"""

import time

import witness
from scenes.app import app, delayq
from stories import STORIES
from story import LATEST, span

AFTERWARDS = 0.7  # seconds to wait at the end for tasks that should not run
PATIENCE = 60.0  # seconds that a story waits for an event
MOST_TOLD = 4  # errors reported of one story


class Stage:
    redis_now = staticmethod(witness.redis_now)

    def __init__(self):
        # No result is awaited here. A subscribed result could not be dropped without a Redis.
        app.backend.on_task_call = lambda *_: None
        delayq.counts()  # the first call connects, which takes a while
        self.events = []  # (seconds since the start, scene, text)
        self.runs = []
        self.lag = 0.0  # the longest delay of a story's step, in seconds
        self._start = self.redis_now().timestamp()
        self._clock = time.monotonic()
        self.stories = [story(self) for story in STORIES]
        self._story = self._script = None

    @property
    def now(self):
        """Seconds since the start."""
        return time.monotonic() - self._clock

    def second(self, timestamp):
        """Return a Unix time in seconds since the start."""
        return timestamp - self._start

    def runs_of(self, task_id):
        return [run for run in self.runs if run.id == task_id]

    def tell(self, scene, text):
        self.events.append((self.now, scene, text))

    def cancel_all(self):
        delayq.select(all=True).cancel()

    def begin(self, story):
        self._story, self._script = story, story.tries()
        self._awaited, self._since = 0.0, self.now

    def step(self):
        """Read what ran, and continue the story if the event it waits for has come."""
        for run in witness.runs(len(self.runs)):
            self.runs.append(run)
            self.tell(run.task.split(".")[1], _said(run))
        if self._script and self._has_come(self._story, self._awaited, self._since):
            self._play_on()

    def _play_on(self):
        try:
            self._awaited, self._since = next(self._script), self.now
        except StopIteration:
            self._script = None
        except Exception as error:  # a broken package may raise anything
            self._story.stopped = f"it could not go on: {error!r}"
            self._script = None

    def _has_come(self, story, awaited, since):
        waited = self.now - since
        if not callable(awaited):
            awaited *= story.longer
            self.lag = max(self.lag, waited - awaited)
            return waited >= awaited
        if waited >= PATIENCE:
            story.wrong.append(f"the awaited event did not come within {PATIENCE:g} s")
            return True
        return awaited()

    @property
    def over(self):
        """Whether the story ended, its tasks ran or never will, and nothing happened since."""
        if self._script or self.now < self.events[-1][0] + AFTERWARDS:
            return False
        expected = self._story.expected
        if all(self.runs_of(task_id) for task_id in expected):
            return True
        last = max(self.second(one.due[0]) for one in expected.values() if one.due)
        return self.now > last + LATEST

    def problems(self):
        for story in self.stories:
            found = list(story.problems())
            yield from (f"{story.name}: {sentence}" for sentence in found[:MOST_TOLD])
            if len(found) > MOST_TOLD:
                yield f"{story.name}: and {len(found) - MOST_TOLD} more"
        for task in delayq.tasks():
            yield f"{task.task} still waits at the end"
        for finding in delayq.check():
            yield finding.sentence


def _said(run):
    if run.state == "IGNORED":
        return "ran, and put itself off"
    return f"ran, {span(run.began - run.due)} late: {run.answer}"
