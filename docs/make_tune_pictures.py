"""Write the pictures of tune.md: its blocks run in a folder, and a browser photographs their report.

pip install playwright; apt-get install chromium; python docs/make_tune_pictures.py
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from neuronsim import cli

HERE = Path(__file__).parent / "tutorials"
WIDTH = 960
# Each picture, and the part of the page that it shows.
PICTURES = {"tune_answers.png": ".answers", "tune_cause.png": "#cause-1"}


def run_tutorial() -> None:
    """The blocks of tune.md, in the current folder."""
    text = (HERE / "tune.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for kind, block in re.findall(r"^```(\w+)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        if kind == "python":
            exec(block, names)
        for line in re.findall(r"^\$ neuronsim (.*)", block, flags=re.MULTILINE):
            cli.main(shlex.split(line))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        os.chdir(folder)
        sys.path.insert(0, folder)
        run_tutorial()
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        page.goto((Path(folder) / "report.html").as_uri())
        for name, part in PICTURES.items():
            page.locator(part).screenshot(path=HERE / name)
        browser.close()
        os.chdir(HERE)


if __name__ == "__main__":
    main()
