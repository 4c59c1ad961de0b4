"""Run mypy and pyright on a module as its author would, outside this project."""

import json
import os
import subprocess
from collections import defaultdict
from pathlib import Path

Reports = dict[str, dict[tuple[int, str], str]]


class Checker:
    """One program; ``stubs``: whether the environment that it checks has Celery's stubs."""

    def __init__(self, python: Path, environment: Path, stubs: bool) -> None:
        self.program = environment / "bin" / self.name
        self.python = python
        self.stubs = stubs

    def reports(self, folder: Path) -> Reports:
        """The errors in each module of *folder*, a user's project: line and code to sentence."""
        modules = sorted(module.name for module in folder.glob("*.py"))
        ran = subprocess.run(
            [self.program, *self.options(folder), *modules],
            cwd=folder,
            # Keeps the wrapper of pyright from looking for a newer one in a registry.
            env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
            capture_output=True,
            text=True,
            timeout=220,
            check=False,
        )
        assert ran.returncode in (0, 1), ran.stdout + ran.stderr
        reports: Reports = defaultdict(dict)
        for file, line, code, message in self.read(ran.stdout):
            reports[Path(file).name][line, code] = message
        return reports


class Mypy(Checker):
    name = "mypy"

    def options(self, folder):
        python = ["--python-executable", str(self.python)]
        return ["--strict", "--config-file=", "--output=json", *python]

    def read(self, output):
        for error in map(json.loads, output.splitlines()):
            if error["severity"] == "error":
                yield error["file"], error["line"], error["code"], error["message"]


class Pyright(Checker):
    name = "pyright"

    def options(self, folder):
        # "strict" reports each type that Celery leaves unknown, so without stubs it is "standard".
        mode = {"typeCheckingMode": "strict" if self.stubs else "standard"}
        (folder / "pyrightconfig.json").write_text(json.dumps(mode))
        return ["--outputjson", "--pythonpath", str(self.python)]

    def read(self, output):
        for error in json.loads(output)["generalDiagnostics"]:
            if error["severity"] == "error":
                line = error["range"]["start"]["line"] + 1
                yield error["file"], line, error.get("rule", "syntax"), error["message"]


CHECKERS = {checker.name: checker for checker in (Mypy, Pyright)}
