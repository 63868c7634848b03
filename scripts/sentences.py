"""Print how long the sentences of README, CONTRIBUTING and the documentation are, and where the longest ones are.

python scripts/sentences.py                  average per page, then the longest sentences
python scripts/sentences.py --worst 20       the twenty longest sentences
python scripts/sentences.py --over 35        every sentence above 35 words
python scripts/sentences.py docs/data.md     only these pages or folders

The aim is an average below 18 words and no sentence above 35. Nothing here fails: the exit code is 0.

It counts running prose and skips code, tables, headings, pictures, comments and lists of links. A piece of
`inline code`, a formula and a number each count as one word. A list item without a full stop is not a sentence:
it does not enter the average, but it is listed when it is too long.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GENERATED = ROOT / "docs" / "reference"
AIM, LIMIT = 18.0, 35

FENCE = re.compile(r"^\s*(```|~~~)")
ITEM = re.compile(r"^\s*(?:[-*+]|\d{1,3}[.)])\s+")
SKIPPED = re.compile(r"^\s*(#|\||!!!|\?\?\?|===|---|\[[^\]]+\]:\s|<)")  # heading, table, admonition, link target, HTML
ADMONITION = re.compile(r"^\s*(!!!|\?\?\?|===)")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
FORMULA = re.compile(r"\$\$.+?\$\$|\$[^$\n]+\$|\\\(.+?\\\)", re.DOTALL)
CODE = re.compile(r"(`+).+?\1", re.DOTALL)
PICTURE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
LINK = re.compile(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")
ABBREVIATION = re.compile(
    r"\b((?i:e\.g|i\.e|et al|etc|cf|vs|eqs?|figs?|tab|secs?|nos?|approx|alg|app|pp?|dr)|[A-Z])\.$"
)
END = re.compile(r"[.!?][\"')\]*_]*(?=\s+[\"'(\[*_]*[A-Z0-9§]|\s*$)")
WORD = re.compile(r"\S*[^\W_]\S*")


@dataclass(frozen=True)
class Sentence:
    page: Path
    line: int
    text: str
    whole: bool  # ends with a full stop, a colon or the like

    @property
    def words(self) -> int:
        return len(WORD.findall(self.text))


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """(first line, text) of each paragraph and each item of a list."""
    first, held = 0, list[str]()
    for number, line in enumerate(prose(_replaced(COMMENT, "", text)), 1):
        if held and (not line or ITEM.match(line)):
            yield first, "\n".join(held)
            held = []
        if line:
            first = first if held else number
            held.append(ITEM.sub("", line))
    if held:
        yield first, "\n".join(held)


def prose(text: str) -> Iterator[str]:
    """The lines of a page, empty where a line is no prose."""
    fenced, in_list, after_blank = False, False, True
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        item = bool(ITEM.match(line))
        if FENCE.match(line):
            fenced, after_blank = not fenced, True
            yield ""
        elif fenced or not line.strip():
            after_blank = True
            yield ""
        elif after_blank and not item and indent >= (6 if in_list else 4):  # indented code, line after line
            yield ""
        elif SKIPPED.match(line):
            after_blank = not ADMONITION.match(line)  # the text of an admonition follows it, indented
            yield ""
        else:
            in_list = item or (in_list and not (after_blank and indent == 0))
            after_blank = False
            yield line


def spoken(paragraph: str) -> str:
    """Markdown as it is read: one word for a piece of code or a formula, a link's text for the link."""
    for pattern, word in ((PICTURE, ""), (CODE, "Code"), (FORMULA, "Formula")):
        paragraph = _replaced(pattern, word, paragraph)
    return LINK.sub(r"\1", paragraph)


def _replaced(pattern: re.Pattern[str], word: str, text: str) -> str:
    """Put `word` for each match; line breaks inside a match stay, so that line numbers stay right."""
    return pattern.sub(lambda found: word + "\n" * found[0].count("\n"), text)


def only_links(paragraph: str) -> bool:
    """Whether it is a line of links, as in `[One](a.md) · [Two](b.md)`."""
    rest = LINK.sub("", PICTURE.sub("", paragraph))
    return bool(LINK.search(paragraph)) and len(WORD.findall(rest)) <= 1


def sentences(page: Path) -> Iterator[Sentence]:
    for line, paragraph in paragraphs(page.read_text(encoding="utf-8")):
        if only_links(paragraph):
            continue
        text, begin = spoken(paragraph), 0
        for found in END.finditer(text):
            if ABBREVIATION.search(text[begin : found.start() + 1]) and text[found.end() :].strip():
                continue
            yield Sentence(page, line + _lines_before(text, begin), text[begin : found.end()].strip(), True)
            begin = found.end()
        if rest := text[begin:].strip():
            yield Sentence(page, line + _lines_before(text, begin), rest, rest.endswith(":"))


def _lines_before(text: str, begin: int) -> int:
    """Lines above the first letter at or after `begin`."""
    return text[:begin].count("\n") + (len(text[begin:]) > 0 and text[begin:].startswith("\n"))


def average(found: list[Sentence]) -> float:
    counted = [sentence.words for sentence in found if sentence.whole]
    return sum(counted) / max(len(counted), 1)


def pages(named: list[Path]) -> list[Path]:
    """The pages asked for; without any, README, CONTRIBUTING and docs/ but what scripts/reference.py writes."""
    if named:
        return sorted({page for path in named for page in ([path] if path.is_file() else path.rglob("*.md"))})
    prose = [page for page in sorted((ROOT / "docs").rglob("*.md")) if GENERATED not in page.parents]
    return [page for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md") if page.exists()] + prose


def shown(page: Path) -> str:
    page = page.resolve()
    return str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else str(page)


def listed(found: list[Sentence]) -> None:
    for sentence in found:
        print(f"\n{shown(sentence.page)}:{sentence.line}: {sentence.words} words")
        print("  " + " ".join(sentence.text.split()))


def main() -> None:
    parser = argparse.ArgumentParser(description="Sentence lengths of README, CONTRIBUTING and docs/.")
    parser.add_argument("pages", nargs="*", type=Path, help="pages or folders (default: all but docs/reference)")
    parser.add_argument("--worst", type=int, metavar="N", help="print only the N longest sentences")
    parser.add_argument("--over", type=int, metavar="WORDS", help="print only the sentences above this many words")
    given = parser.parse_args()
    by_page = {page: list(sentences(page)) for page in pages(given.pages)}
    every = [sentence for found in by_page.values() for sentence in found]
    longest = sorted(every, key=lambda sentence: -sentence.words)
    if given.over is not None:
        listed([sentence for sentence in every if sentence.words > given.over])
    if given.worst is not None:
        listed(longest[: given.worst])
    if given.over is None and given.worst is None:
        print(f"{'average':>7} {'longest':>7} {'above ' + str(LIMIT):>8}  page")
        for page, found in sorted(by_page.items(), key=lambda one: -average(one[1])):
            above = sum(sentence.words > LIMIT for sentence in found)
            print(f"{average(found):7.1f} {max((s.words for s in found), default=0):7} {above:8}  {shown(page)}")
        listed(longest[:5])
    above = sum(sentence.words > LIMIT for sentence in every)
    print(
        f"\n{len(every)} sentences, {average(every):.1f} words on average (aim: below {AIM:g}), {above} above {LIMIT}."
    )


if __name__ == "__main__":
    main()
