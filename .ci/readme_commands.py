"""The two commands of README.md: to install the package and see it work, and to install and run its tests.

``python .ci/readme_commands.py`` prints them, one a line, as they stand there. CI runs what it prints.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"


def commands(text: str) -> list[str]:
    """The lines of the first fenced block with ``pip install``; a ValueError if they are not two such commands."""
    blocks = re.findall(r"^```[^\n`]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    block = next((block for block in blocks if "pip install" in block), "")
    lines = [line for line in block.splitlines() if line.strip()]
    if len(lines) != 2 or not all("pip install" in line for line in lines):
        raise ValueError(
            "README.md: the first fenced block with `pip install` must consist of two lines, each a command that "
            f"begins with an installation; found {len(lines)} lines: {lines}"
        )
    return lines


if __name__ == "__main__":
    try:
        print("\n".join(commands(README.read_text(encoding="utf-8"))))
    except ValueError as error:
        sys.exit(str(error))
