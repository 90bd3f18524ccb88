"""Reports of all systems in a browser: on a desk, on a phone and on paper nothing is cut, broken or
drawn over.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import posse
from posse.results.record import Record
from tests.browser.studio import SIZES
from tests.kit.records import example_record

pytest.importorskip("matplotlib", reason="reports are not tested: matplotlib is not installed")

PAPER = (718, 1000)
"""An A4 page less the margins of a browser, in pixels of CSS."""

FAULTS = """() => {
  const faults = [], say = (what, where) => faults.push(`${what}: ${where.trim().slice(0, 60)}`);
  const over = document.documentElement.scrollWidth - innerWidth;
  if (over > 0) say(`the page is ${over} px too wide`, "");
  if (matchMedia("print").matches) for (const box of document.querySelectorAll(".scroll"))
    if (box.scrollWidth > box.clientWidth + 1) say("a table is cut on paper", box.innerText);

  // A word is on one line; addresses and digests are longer than any.
  for (const cell of document.querySelectorAll("td, th, .card b, .bar b")) {
    if (!cell.checkVisibility()) continue;
    const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode())
      for (const word of node.data.matchAll(/\\S+/g)) {
        const range = document.createRange();
        range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);
        const tops = new Set([...range.getClientRects()].map(one => Math.round(one.top)));
        const parts = word[0].split(/(?<=-)/);  // a line may end at a hyphen
        if (word[0].length <= 20 && tops.size > parts.length)
          say("a word on two lines", `${word[0]} in ${cell.innerText}`);
      }
    if (cell.matches("td.n, b")) {
      const range = document.createRange(); range.selectNodeContents(cell);
      const tops = new Set([...range.getClientRects()].map(one => Math.round(one.top)));
      if (tops.size > 1) say("a number on two lines", cell.innerText);
    }
  }

  // Corners of a text as it is drawn, turned or not; less what a line has above and below its letters.
  const corners = text => {
    const box = text.getBBox(), matrix = text.getScreenCTM(), spare = 0.2 * box.height;
    return [[box.x, box.y + spare], [box.x + box.width, box.y + spare], [box.x + box.width, box.y + box.height - spare],
      [box.x, box.y + box.height - spare]].map(([x, y]) => new DOMPoint(x, y).matrixTransform(matrix));
  };
  const apart = (a, b) => [a, b].some(shape => shape.some((p, i) => {
    const q = shape[(i + 1) % 4], normal = [p.y - q.y, q.x - p.x];
    const span = points => {
      const on = points.map(o => o.x * normal[0] + o.y * normal[1]);
      return [Math.min(...on), Math.max(...on)];
    };
    const [[low, high], [least, most]] = [span(a), span(b)];
    return high <= least || most <= low;
  }));
  for (const svg of document.querySelectorAll("figure svg")) {
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].filter(text => text.textContent.trim());
    const drawn = texts.map(text => [text.textContent, corners(text)]);
    const left = p => p.x < frame.left - 1 || p.x > frame.right + 1 || p.y < frame.top - 1 || p.y > frame.bottom + 1;
    for (const [words, shape] of drawn) if (shape.some(left)) say("outside its figure", words);
    drawn.forEach(([words, shape], i) => drawn.slice(i + 1).forEach(([others, other]) => {
      if (!apart(shape, other)) say("texts over each other", `${words} | ${others}`);
    }));
  }
  return faults;
}"""


def played() -> dict[str, list[Record]]:
    """A small run of each system, beside what it is compared with."""
    samba = posse.Samba(data="embedded:movielens", policy="ucb", horizon=60)
    shared = posse.MpcContextual(data="digits", horizon=8)
    market = posse.DpCombinatorial(rounds=300)
    devices = posse.FedContextual(data="digits", rounds=4)
    return {
        "samba": [posse.run(samba), posse.run(samba.plain())],
        "mpc-contextual": [posse.run(shared), posse.run(shared.plain())],
        "dp-combinatorial": [posse.run(market), posse.run(market.but(policy="alone"))],
        "fed-contextual": [posse.run(devices)],
        "thirteen arms": [crowded(13)],
        "forty arms": [crowded(40)],
    }


def crowded(arms: int) -> Record:
    """Arms with long names, which have room only when they stand upright."""
    problem = {"name": "many clinics", "names": [f"the clinic of town {i}" for i in range(arms)]}
    return example_record(problem=problem, pulls=[[200 // arms] * arms] * 4)


@pytest.fixture(scope="module")
def pages(chrome: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    return {
        name: posse.report(records, folder / f"{name}.html") for name, records in played().items()
    }


@pytest.mark.parametrize("place", [*SIZES, "paper"])
def test_nothing_in_a_report_is_cut_broken_or_drawn_over(
    pages: dict[str, Path], chrome: Any, place: str
) -> None:
    wide, high = {**SIZES, "paper": PAPER}[place]
    context = chrome.new_context(viewport={"width": wide, "height": high})
    page = context.new_page()
    page.set_default_timeout(180_000)  # a busy machine is slow
    page.emulate_media(media="print" if place == "paper" else "screen")
    faults = {}
    for name, path in pages.items():
        page.goto(path.as_uri())
        faults[name] = page.evaluate(FAULTS)
    context.close()
    assert faults == {name: [] for name in pages}


def test_text_on_paper_has_one_size(pages: dict[str, Path], chrome: Any) -> None:
    page = chrome.new_page()
    page.emulate_media(media="print")
    page.goto(pages["samba"].as_uri())
    size = "one => parseFloat(getComputedStyle(document.querySelector(one)).fontSize)"
    sizes = page.evaluate(f"['.lead', 'li', 'td'].map({size})")
    page.close()
    assert max(sizes) <= 1.25 * min(sizes)
