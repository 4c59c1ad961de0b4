"""The events of each scene, and the expected results."""

from stories.form import Form
from stories.latest import Latest
from stories.lock import Lock
from stories.reading import Reading
from stories.topup import TopUp
from stories.welcome import Welcome

STORIES = [TopUp, Reading, Welcome, Form, Lock, Latest]
