"""``./.ci/release`` builds nothing unless all is committed and the version is the same everywhere.

The suite does not build a release, which takes minutes.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import celery_delayq

ROOT = Path(__file__).parents[2]
NEEDED = (
    ".ci/release",
    "CHANGELOG.md",
    "celery_delayq/__init__.py",
    "tests/support/debian.sh",
    "tests/support/environment.sh",
)
VERSION = celery_delayq.__version__


@pytest.fixture
def checkout(tmp_path):
    """A repository with the files that the script reads; its changelog has a day."""
    for name in NEEDED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    begin_changelog(tmp_path, f"## {VERSION} - 2026-11-27")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def begin_changelog(folder, head):
    changelog = folder / "CHANGELOG.md"
    changelog.write_text(re.sub("(?m)^## .*", head, changelog.read_text(), count=1))


def git(folder, *command):
    own = ("user.name=a", "user.email=a@localhost", "commit.gpgSign=false", "tag.gpgSign=false")
    options = [part for setting in own for part in ("-c", setting)]
    subprocess.run(["git", *options, *command], cwd=folder, check=True)


def commit(folder):
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "one")


def refusal(folder, *address, env=None):
    command = [folder / ".ci" / "release", *address]
    env = {**os.environ, "DELAYQ_REPOSITORY": env or ""}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=env)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr.strip()


def test_changes_that_are_not_committed_are_refused(checkout):
    (checkout / "new.py").touch()
    assert "not committed" in refusal(checkout)


@pytest.mark.parametrize(
    "head", ["## 0.9.9 - 2026-01-01", f"## {VERSION} - unpublished", "## Unreleased"]
)
def test_a_changelog_without_this_version_and_its_day_is_refused(checkout, head):
    begin_changelog(checkout, head)
    commit(checkout)
    assert refusal(checkout) == (
        f'the package is {VERSION}, and CHANGELOG.md begins with "{head}"; '
        f'expected "## {VERSION} - YYYY-MM-DD"'
    )


def test_a_version_that_is_released_already_is_refused(checkout):
    git(checkout, "tag", f"v{VERSION}")
    commit(checkout)
    assert refusal(checkout) == f"the tag v{VERSION} is another commit; raise __version__"


def test_a_tag_of_another_version_is_refused(checkout):
    git(checkout, "tag", "v0.9.9")
    assert refusal(checkout) == f"the package is {VERSION}, and this commit has the tag v0.9.9"


WANTED = (
    "expected ./.ci/release https://HOST/OWNER/NAME, or that in DELAYQ_REPOSITORY: the README's "
    "links lead there"
)


def test_a_release_without_the_repository_s_address_is_refused(checkout):
    assert refusal(checkout) == f"the repository's address is missing; {WANTED}"


@pytest.mark.parametrize(
    "address",
    ["example.org/shop/it", "http://example.org/shop/it", "https://example.org", "https://a/b/"],
)
def test_an_address_that_links_cannot_begin_with_is_refused(checkout, address):
    said = f'the repository\'s address is "{address}"; {WANTED}'
    assert refusal(checkout, address) == refusal(checkout, env=address) == said
