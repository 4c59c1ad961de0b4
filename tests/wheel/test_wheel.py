"""The wheel has all it needs, and works without the rest of this project."""

import subprocess
import sys
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

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
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, *PIP, "wheel", "--no-deps", "-w", folder, ROOT, cwd=folder)
    return next(folder.glob("celery_delayq-*.whl"))


@pytest.fixture
def empty_environment(tmp_path):
    folder = tmp_path / "empty"
    venv.create(folder, with_pip=False)
    return folder / "bin" / "python"


def metadata(wheel, name):
    with zipfile.ZipFile(wheel) as archive:
        found = next(
            member for member in archive.namelist() if member.endswith(f".dist-info/{name}")
        )
        return archive.read(found).decode()


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


def test_celery_with_redis_is_all_it_depends_on(wheel):
    required = Parser().parsestr(metadata(wheel, "METADATA")).get_all("Requires-Dist")
    assert [line for line in required if "extra ==" not in line] == ["celery[redis]>=5.4"]


def test_an_installed_wheel_schedules_and_cancels(wheel, empty_environment, redis_url, tmp_path):
    run(sys.executable, *PIP, "--python", empty_environment, "install", wheel, cwd=tmp_path)
    script = Path(__file__).with_name("use_it.py")
    said = run(empty_environment, "-I", script, redis_url, cwd=tmp_path)
    assert said.startswith(f"used {empty_environment.parents[1]}")
    assert "delayq" in run(empty_environment, "-I", "-m", "celery", "--help", cwd=tmp_path)
