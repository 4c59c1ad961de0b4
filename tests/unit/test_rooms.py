"""Which modules of other libraries a room may import; import-linter cannot check this."""

import re
from pathlib import Path

import celery_delayq

PACKAGE = Path(celery_delayq.__file__).parent
INSIDES = re.compile(
    r"^(?:from|import) kombu\.(?:transport|messaging|serialization|compression|json)"
)


def test_kombu_s_insides_are_known_where_messages_are_made_and_sent():
    rooms = {
        path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.glob("**/*.py")
        if path.parent.name != "testing"  # empties a test's in-memory broker
        for line in path.read_text("utf-8").splitlines()
        if INSIDES.match(line)
    }

    assert rooms == {"canvas", "handover", "message"}


def test_each_room_opens_with_its_picture():
    rooms = [path for path in PACKAGE.glob("*/__init__.py") if path.parent.name != "contrib"]

    assert len(rooms) >= 8
    assert [room.parent.name for room in rooms if "\n    " not in room.read_text("utf-8")] == []
