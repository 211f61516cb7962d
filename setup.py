"""What pyproject.toml cannot say: on the page of a package index, the README's links lead into the repository, as none
of its other files are there. The address is that of `project.urls`, and stands nowhere else."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

_LINK = re.compile(r"(!?)\[((?:[^][]|\[[^]]*\])*)\]\((?![a-z]+:|#)([^)\s]+)\)")  # to a file of the repository
_BRANCH = "main"


def description(readme: str, source: str) -> str:
    """The README with absolute links: pictures as they are, everything else as the page that shows it."""

    def absolute(found: re.Match[str]) -> str:
        mark, text, path = found.groups()
        return f"{mark}[{text}]({source}/{'raw' if mark else 'blob'}/{_BRANCH}/{path})"

    return _LINK.sub(absolute, readme)


here = Path(__file__).parent
source = tomllib.loads((here / "pyproject.toml").read_text())["project"]["urls"]["Source"]
setup(
    long_description=description((here / "README.md").read_text(), source),
    long_description_content_type="text/markdown",
)
