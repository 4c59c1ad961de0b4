"""The wheel works alone; its README's links work on an index; what `.ci/release` refuses."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import celery_delayq

# The wheel has all it needs, and works without the rest of this project.


ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "celery_delayq"
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")


def run(*command, cwd):
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(built):
    return next(built.glob("celery_delayq-*.whl"))


@pytest.fixture
def empty_environment(tmp_path):
    folder = tmp_path / "empty"
    venv.create(folder, with_pip=False)
    return folder / "bin" / "python"


def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    kinds = ("*.py", "*.lua", "*.yml", "*.json", "*.html", "*.css", "*.js", "*.svg", "py.typed")
    found = {path for kind in kinds for path in PACKAGE.rglob(kind)}
    kept = {path for path in found if PACKAGE / "docs" not in path.parents}
    assert packed == {path.relative_to(ROOT).as_posix() for path in kept}
    assert any(name.endswith(".lua") for name in packed)
    monitoring = {"alerts.yml", "grafana.json"}
    assert {f"celery_delayq/contrib/metrics/{name}" for name in monitoring} <= packed


def test_celery_with_redis_is_all_it_depends_on(built):
    required = metadata_of(built).get_all("Requires-Dist")
    assert [line for line in required if "extra ==" not in line] == ["celery[redis]>=5.4"]


def test_an_installed_wheel_schedules_and_cancels(wheel, empty_environment, redis_url, tmp_path):
    run(sys.executable, *PIP, "--python", empty_environment, "install", wheel, cwd=tmp_path)
    script = Path(__file__).with_name("use_it.py")
    said = run(empty_environment, "-I", script, redis_url, cwd=tmp_path)
    assert said.startswith(f"used {empty_environment.parents[1]}")
    assert "delayq" in run(empty_environment, "-I", "-m", "celery", "--help", cwd=tmp_path)


# On a package index, the README's links lead to the repository whose address the build has.


ADDRESS = "https://example.org/shop/celery_delayq"
AT = re.compile(rf"{ADDRESS}/(blob|tree|raw)/v{re.escape(celery_delayq.__version__)}/(.+)")
README = (ROOT / "README.md").read_text("utf-8")


def build(folder, address, *kinds, source=ROOT):
    """Build wheel or sdist of *source* into *folder*; returns what was said."""
    options = [part for kind in kinds for part in ("-t", kind)]
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", folder, *options],
        cwd=source,
        env={**os.environ, "DELAYQ_REPOSITORY": address},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def metadata_of(folder):
    """The METADATA of the one wheel in a folder."""
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [name] = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        return message_from_string(archive.read(name).decode())


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with a wheel and an sdist for an index."""
    folder = tmp_path_factory.mktemp("dist")
    done = build(folder, ADDRESS, "wheel", "sdist")
    assert done.returncode == 0, done.stdout
    return folder


def targets(text):
    """Each link and picture of a Markdown text, as an index renders it: (is a picture, target)."""
    pending = MarkdownIt("commonmark").enable("table").parse(text)
    while pending:
        token = pending.pop(0)
        pending[:0] = token.children or []
        if token.type in ("link_open", "image"):
            is_picture = token.type == "image"
            yield is_picture, token.attrs["src" if is_picture else "href"]
        elif token.type.startswith("html"):
            for name, target in re.findall(r'\b(src|href)="([^"]*)"', token.content):
                yield name == "src", target


def in_tree(is_picture, target):
    """The file or folder of the project that a link of the index leads to."""
    found = AT.fullmatch(target)
    assert found, target
    kind, place = found.groups()
    path = ROOT / place.partition("#")[0]
    assert path.is_dir() if kind == "tree" else path.is_file(), target
    assert (kind == "raw") == is_picture, target
    return place


def test_each_link_and_picture_on_the_index_is_absolute_and_leads_to_a_file(built):
    shown = list(targets(metadata_of(built).get_payload()))
    own = [one for one in shown if not one[1].startswith("http") or one[1].startswith(ADDRESS)]
    there = [(is_picture, in_tree(is_picture, target)) for is_picture, target in own]
    written = [one for one in targets(README) if "://" not in one[1]]
    assert there == [(is_picture, target.removeprefix("./")) for is_picture, target in written]
    assert {is_picture for is_picture, _ in there} == {True, False}


@pytest.mark.parametrize(
    ("written", "there"),
    [
        ("[a](tests/run)", "blob/v1/tests/run"),
        ("[a](./tests/run)", "blob/v1/tests/run"),
        ("[a](tests)", "tree/v1/tests"),
        ("[a](tests/)", "tree/v1/tests/"),
        ("[a](tests/README.md#the-tests)", "blob/v1/tests/README.md#the-tests"),
        ("[a](#status)", "blob/v1/README.md#status"),
        ("![a](a.svg)", "raw/v1/a.svg"),
        ("[![a](https://b)](tests/run)", "blob/v1/tests/run"),
        ("[a]\n\n[a]: tests/run", "blob/v1/tests/run"),
    ],
)
def test_a_link_in_each_form_is_made_absolute(absolute, written, there):
    made = [target for _, target in targets(absolute(written, ADDRESS, "v1", ROOT))]
    assert f"{ADDRESS}/{there}" in made
    assert all(target.startswith("https://") for target in made)


@pytest.mark.parametrize(
    "text", ["[a](https://b/c)", "[a](mailto:b@c)", "```python\nx = [a](b)\n```", "[a]: https://b"]
)
def test_other_links_and_code_stay(absolute, text):
    assert absolute(text, ADDRESS, "v1", ROOT) == text


@pytest.fixture
def absolute():
    """The function of the build."""
    from runpy import run_path

    return run_path(str(ROOT / ".ci" / "metadata.py"))["absolute"]


def test_the_project_s_urls_lead_to_files_too(built):
    urls = dict(line.split(", ") for line in metadata_of(built).get_all("Project-URL"))
    assert (urls.pop("Repository"), urls.pop("Issues")) == (ADDRESS, f"{ADDRESS}/issues")
    there = {name: in_tree(False, url) for name, url in urls.items()}
    assert there == {
        "Documentation": "celery_delayq/docs/index.md",
        "Changelog": "CHANGELOG.md",
    }


def test_a_wheel_of_the_sdist_has_the_same_metadata_without_the_address(built, tmp_path):
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(
            tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {})
        )
    [source] = tmp_path.iterdir()
    done = build(tmp_path / "again", "", "wheel", source=source)
    assert done.returncode == 0, done.stdout
    assert metadata_of(tmp_path / "again").as_string() == metadata_of(built).as_string()


def test_without_an_address_a_build_has_the_readme_as_it_is(tmp_path):
    done = build(tmp_path, "", "wheel")
    assert done.returncode == 0, done.stdout
    made = metadata_of(tmp_path)
    assert made.get_payload().rstrip() == README.rstrip()
    assert made.get_all("Project-URL") is None


def test_an_address_that_is_none_ends_the_build(tmp_path):
    done = build(tmp_path, "git@example.org:shop/it", "wheel")
    assert done.returncode != 0
    assert "'git@example.org:shop/it'; expected https://HOST/OWNER/NAME" in done.stdout


def test_the_sdist_holds_the_committed_files_and_no_other(built):
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert packed == {*listed.stdout.splitlines(), "PKG-INFO"}


# ``./.ci/release`` builds nothing unless all is committed and the version is the same everywhere.


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
