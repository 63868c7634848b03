"""Make the README's pictures anew from a demo's folder, after `make demo`: the curve over time, and the report's top.

python scripts/readme_pictures.py runs/demo

Needs the extra `dev` and Chromium.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from potluck import demo, open_run, report

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDE = 1200  # pixels


def main(folder: Path) -> None:
    runs = [open_run(path.parent) for path in sorted(folder.glob("*/experiment.toml"))]
    with tempfile.TemporaryDirectory() as place:
        page = report.write(runs, Path(place) / "report.html", demo.TITLE)
        keep(screenshot(page), IMAGES / "report.png")
        report.write_figures(runs, Path(place))
        keep((Path(place) / "accuracy_by_time.png").read_bytes(), IMAGES / "demo_time.png")


def screenshot(page: Path) -> bytes:
    """The top of the report: what was found, the comparison and the trade-offs."""
    browser_path = next(
        path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": WIDE, "height": 900})
        tab.goto(page.as_uri())
        end = tab.evaluate("document.getElementById('curves').getBoundingClientRect().top")
        taken = tab.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": WIDE, "height": end - 10})
        browser.close()
    return taken


def keep(picture: bytes, path: Path) -> None:
    """With as many colours as such a picture has, which takes a third of the bytes."""
    few = (
        Image.open(io.BytesIO(picture))
        .convert("RGB")
        .quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    )
    few.save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
