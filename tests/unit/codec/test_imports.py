"""The codec needs neither msgspec nor a configured Django."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

# Stands in for the package itself, whose own imports are no part of what is tested here.
ALONE = """
import importlib.util, sys, types
package = types.ModuleType("catbird_django")
package.__path__ = [{path!r}]
sys.modules["catbird_django"] = package
"""


def run_alone(program: str) -> None:
    program = ALONE.format(path=str(ROOT / "catbird_django")) + program
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr


def test_the_codec_works_where_msgspec_is_not_installed() -> None:
    run_alone(
        """
sys.modules["msgspec"] = None
from catbird_django.codec import codec_for
assert codec_for(list[int]).encode([1], name="input", max_bytes=99) == "[1]"
"""
    )


def test_the_codec_imports_neither_msgspec_nor_django() -> None:
    run_alone(
        """
from catbird_django.codec import codec_for, encode_any
from catbird_django.errors import PayloadError
try:
    encode_any(object(), name="input", max_bytes=99)
except PayloadError:
    pass
assert not {"msgspec", "django"} & set(sys.modules), "imported"
"""
    )
