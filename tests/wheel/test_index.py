"""On a package index, the README's links lead to the repository whose address the build has."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import celery_delayq

ROOT = Path(__file__).parents[2]
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
