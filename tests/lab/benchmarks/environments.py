"""Environments of their own for peers and plots, made once for each cache folder."""

import subprocess
import sys
from pathlib import Path


def python_with(cache: Path, name: str, *requirements: str) -> str:
    """The interpreter of an environment that has *requirements*.

    Raises:
        subprocess.CalledProcessError: pip failed, perhaps without a network.
    """
    folder = cache.absolute() / name
    python, whole = folder / "bin" / "python", folder / "whole"
    if not whole.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*install, *requirements], check=True)
        whole.touch()
    return str(python)
