"""What happens in each scene, and what must come of it."""

from stories.form import Form
from stories.latest import Latest
from stories.lock import Lock
from stories.reading import Reading
from stories.topup import TopUp
from stories.welcome import Welcome

STORIES = [TopUp, Reading, Welcome, Form, Lock, Latest]
