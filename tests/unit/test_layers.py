"""Which modules of other libraries a package may import; import-linter cannot check this."""

import re
from pathlib import Path

import celery_delayq

PACKAGE = Path(celery_delayq.__file__).parent
INSIDES = re.compile(
    r"^(?:from|import) kombu\.(?:transport|messaging|serialization|compression|json)"
)


def test_kombu_s_insides_are_known_where_messages_are_made_and_sent():
    packages = {
        "/".join(path.relative_to(PACKAGE).parts[:2])
        for path in PACKAGE.glob("**/*.py")
        if path.parent.name != "testing"  # empties a test's in-memory broker
        for line in path.read_text("utf-8").splitlines()
        if INSIDES.match(line)
    }

    assert packages == {
        "contrib/canvas",
        "core/handover",
        "core/message",
        "operations/edits.py",
        "operations/patches.py",
    }


def test_each_package_opens_with_its_picture():
    packages = [*PACKAGE.glob("core/*/__init__.py"), PACKAGE / "operations" / "__init__.py"]
    assert len(packages) >= 8
    assert [one.parent.name for one in packages if "\n    " not in one.read_text("utf-8")] == []
