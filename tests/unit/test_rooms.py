"""What import-linter cannot see: which modules of other libraries a room may import."""

import re
import subprocess
import sys
from pathlib import Path

import celery_delayq

PACKAGE = Path(celery_delayq.__file__).parent
INSIDES = re.compile(
    r"^(?:from|import) kombu\.(?:transport|messaging|serialization|compression|json)"
)


def test_kombu_s_insides_are_known_to_message_and_hand_over_alone():
    rooms = {
        path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.glob("**/*.py")
        if path.parent.name != "testing"  # empties the broker that a test has in memory
        for line in path.read_text("utf-8").splitlines()
        if INSIDES.match(line)
    }

    assert rooms == {"message", "handover"}


def test_each_room_opens_with_its_picture():
    rooms = [path for path in PACKAGE.glob("*/__init__.py") if path.parent.name != "contrib"]

    assert len(rooms) >= 8
    assert [room.parent.name for room in rooms if "\n    " not in room.read_text("utf-8")] == []


def test_care_is_imported_when_somebody_asks_for_it():
    asked = "import celery_delayq.care.checking"
    code = """
import sys, celery_delayq.integration.delayq, celery_delayq.integration.bootstep
print(sum(name.startswith("celery_delayq.care") for name in sys.modules))
"""
    ran = [
        subprocess.run([sys.executable, "-c", one], capture_output=True, text=True, check=True)
        for one in (code, asked + code)
    ]

    before, after = (int(one.stdout) for one in ran)
    assert (before, after > 0) == (0, True)
