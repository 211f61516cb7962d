"""The documentation as a site that can be searched, and a manual page: `make docs`.

The pages are those of docs/ and bench/, as they are read in the repository; what is made of the code is the reference
of commands, from their parsers, and that of Python, from the docstrings.
"""

import runpy
from pathlib import Path

from sphinx.application import Sphinx

from autocap import __version__

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
project, version, release = "autocap", __version__, __version__
author = "The autocap developers"
copyright = author
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
napoleon_numpy_docstring = False
root_doc = "docs/site/index"
include_patterns = ["docs/**", "bench/**.md", "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]
suppress_warnings = ["myst.header", "misc.highlighting_failure"]  # udev rules have no lexer
html_theme = "furo"
html_title = f"autocap {__version__}"
html_show_sourcelink = False
html_show_copyright = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
default_role = "code"
smartquotes = False
man_pages = [
    ("docs/site/commands", "autocap", "find the best power cap for a training job while the job runs", author, 1)
]


(HERE / "commands.rst").write_text(runpy.run_path(str(HERE / "reference.py"))["text"]())


def setup(app: Sphinx) -> None:
    """Sphinx calls it. Docstrings are plain text: a star stands for itself."""

    def plain(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
        lines[:] = [line.replace("*", r"\*") for line in lines]

    app.connect("autodoc-process-docstring", plain)
