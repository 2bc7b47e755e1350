"""The lineage page in a real browser: drawn, quiet, readable, and answering clicks and keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from lineage.graph.answer import Question, ask
from lineage.graph.page import page as page_of
from odi_audit.ids import JobName
from odi_audit.model.offsets import kafka, once
from tests.support.chromium import browser as started
from tests.unit.lineage.conftest import COLUMNS, LINES, ORDERS, work
from tests.unit.lineage.graph.many import fill, quiet_history

SMALL, LARGE = 5, 500
BOXES = """() => [...document.querySelectorAll('.node .name, .node .more, #labels text')]
  .filter(text => text.getClientRects().length)
  .map(text => { const box = text.getBoundingClientRect();
    return [box.left, box.top, box.right, box.bottom, text.textContent]; })
  .filter(box => box[2] > box[0])"""
VIEW = "() => document.getElementById('view').getAttribute('transform')"


@dataclass
class Opened:
    """A page and everything that it said or asked for."""

    page: Page
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def view(self) -> str:
        return str(self.page.evaluate(VIEW))

    def settled(self) -> None:
        self.page.evaluate(
            "() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 30)))"
        )

    def panel(self) -> str:
        self.settled()
        return self.page.inner_text("#panel")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with started() as launched:
        yield launched


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("pages")
    small = quiet_history(tmp_path_factory.mktemp("small"))
    opened = small.intend(work("append", LINES), job=JobName("sales/lines"), offsets=once("x"))
    small.land(opened, LINES)
    part = kafka({"orders": {0: (0, 9)}}, bootstrap="broker:9092")
    small.land(small.intend(work("append"), offsets=part, columns=COLUMNS))
    large = quiet_history(tmp_path_factory.mktemp("large"))
    last = fill(large, 400)[-1]
    made: dict[int, Path] = {}
    for size, told, name in ((SMALL, small, ORDERS.name), (LARGE, large, last.name)):
        found = ask(told.ledger, Question(text=name), moment=str)
        made[size] = folder / f"{size}.html"
        made[size].write_text(page_of(found), "utf-8")
        told.ledger.close()
    return made


@pytest.fixture
def opened(
    request: pytest.FixtureRequest, chromium: Browser, files: dict[int, Path]
) -> Iterator[Opened]:
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, offline=True)
    made = Opened(context.new_page())
    made.page.on("console", lambda message: made.said.append(message.text))
    made.page.on("pageerror", lambda error: made.said.append(str(error)))
    made.page.on("request", lambda asked: made.asked.append(asked.url))
    path = files[request.param]
    made.page.goto(path.as_uri())
    made.settled()
    yield made
    assert made.said == []
    assert made.asked == [path.as_uri()]
    context.close()


both = pytest.mark.parametrize("opened", [SMALL, LARGE], indirect=True)
small = pytest.mark.parametrize("opened", [SMALL], indirect=True)
large = pytest.mark.parametrize("opened", [LARGE], indirect=True)


def overlapping(boxes: list[list[Any]]) -> list[tuple[str, str]]:
    found = []
    for place, one in enumerate(boxes):
        for other in boxes[place + 1 :]:
            wide = min(one[2], other[2]) - max(one[0], other[0])
            high = min(one[3], other[3]) - max(one[1], other[1])
            if wide > 1 and high > 1 and one[4] != other[4]:
                found.append((one[4], other[4]))
    return found


@both
def test_the_page_draws_every_node_and_edge_and_asks_for_nothing(opened: Opened) -> None:
    data = opened.page.evaluate("() => JSON.parse(document.getElementById('data').textContent)")
    assert opened.page.locator(".node").count() == len(data["nodes"])
    assert opened.page.locator(".edge").count() == len(data["edges"])
    assert opened.page.title().startswith("Lineage of")


@large
def test_the_large_page_is_large(opened: Opened) -> None:
    assert opened.page.locator(".node").count() >= 500


@both
@pytest.mark.parametrize("scale", ["fit", "near"])
def test_texts_that_are_shown_never_overlap_and_are_readable(opened: Opened, scale: str) -> None:
    opened.page.keyboard.press("f" if scale == "fit" else "h")
    opened.settled()
    boxes = opened.page.evaluate(BOXES)
    inside = [box for box in boxes if box[0] >= 0 and box[2] <= 1440 and 0 <= box[1] <= 900]
    assert len(inside) >= 4
    assert overlapping(boxes) == []
    assert min(box[3] - box[1] for box in inside) >= 8


@both
def test_nodes_never_overlap(opened: Opened) -> None:
    data = opened.page.evaluate("() => JSON.parse(document.getElementById('data').textContent)")
    boxes = [
        [
            n["x"] - n["w"] / 2,
            n["y"] - n["h"] / 2,
            n["x"] + n["w"] / 2,
            n["y"] + n["h"] / 2,
            n["id"],
        ]
        for n in data["nodes"]
    ]
    assert overlapping(boxes) == []


@small
def test_a_click_on_a_node_shows_its_batches_and_facets(opened: Opened) -> None:
    opened.page.click(".node.asked")
    said = opened.panel()
    for told in ("sales.orders", "team:shop", "b-", "landed", "decimal(10,2)", "500000000000000"):
        assert told in said


@small
def test_a_click_lights_what_feeds_a_node_and_what_it_feeds(opened: Opened) -> None:
    assert opened.page.locator(".node").count() == SMALL
    opened.page.click(".node.table:not(.asked)")
    assert "sales.lines" in opened.panel()
    # All but the topic, which feeds the same job and not this table.
    assert opened.page.locator(".node.lit").count() == SMALL - 1
    assert opened.page.locator(".node.topic:not(.lit)").count() == 1
    assert opened.page.locator(".edge.up").count() == 1
    assert opened.page.locator(".edge.down").count() == 2


@small
def test_a_click_on_an_edge_shows_its_columns(opened: Opened) -> None:
    point = opened.page.evaluate(
        """() => { const edge = [...document.querySelectorAll('.edge')].find(
             item => item.getAttribute('aria-label').endsWith('→ sales.orders'));
           const line = edge.querySelector('.grip');
           const middle = line.getPointAtLength(line.getTotalLength() / 2);
           const at = middle.matrixTransform(line.getScreenCTM()); return [at.x, at.y]; }"""
    )
    opened.page.mouse.click(*point)
    said = opened.panel()
    for told in (
        "writes",
        "amount",
        "sales.lines.price",
        "direct aggregation",
        "prices",
        "unknown",
    ):
        assert told in said


@both
def test_search_finds_marks_and_goes_to_what_was_found(opened: Opened) -> None:
    before = opened.view()
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("orders")
    opened.settled()
    assert opened.page.locator(".node.hit").count() >= 2
    assert "found" in opened.page.input_value("#search") or opened.page.inner_text("#hits")
    opened.page.keyboard.press("Enter")
    opened.settled()
    assert opened.view() != before
    assert opened.page.locator(".node.chosen.hit").count() == 1
    opened.page.keyboard.press("Escape")
    assert opened.page.locator(".node.hit").count() == 0


@both
def test_dragging_wheel_and_keys_change_the_view(opened: Opened) -> None:
    seen = [opened.view()]

    def changed() -> None:
        opened.settled()
        assert opened.view() not in seen[-1:]
        seen.append(opened.view())

    opened.page.mouse.move(500, 820)
    opened.page.mouse.down()
    opened.page.mouse.move(560, 780, steps=4)
    opened.page.mouse.up()
    changed()
    opened.page.mouse.wheel(0, -300)
    changed()
    for key in ("+", "-", "ArrowLeft", "ArrowDown", "f"):
        opened.page.keyboard.press(key)
        changed()
    opened.page.click("#in")
    changed()


@both
def test_a_node_is_reached_and_opened_by_keys_alone(opened: Opened) -> None:
    opened.page.focus(".node.asked")
    opened.page.keyboard.press("Enter")
    assert "batches" in opened.panel().lower()
    assert opened.page.locator(".node.chosen.asked").count() == 1
    opened.page.keyboard.press("Escape")
    opened.settled()
    assert opened.page.locator(".chosen").count() == 0


@large
def test_the_little_map_moves_the_view(opened: Opened) -> None:
    before = opened.view()
    box = opened.page.locator("#map").bounding_box()
    assert box is not None
    opened.page.mouse.click(box["x"] + box["width"] / 3, box["y"] + box["height"] / 2)
    opened.settled()
    assert opened.view() != before


@small
def test_both_themes_have_contrast_between_text_and_ground(opened: Opened) -> None:
    opened.page.click(".node.asked")
    for _ in range(2):
        opened.page.click("#theme")
        opened.settled()
        colours = opened.page.evaluate(
            """() => ['.node .name', 'body'].map((at, place) => {
               const style = getComputedStyle(document.querySelector(at));
               const colour = place ? style.backgroundColor : style.fill;
               return colour.match(/[0-9.]+/g).map(Number); })"""
        )
        assert contrast(*colours) >= 7


@large
def test_it_prints_as_one_drawing(opened: Opened, tmp_path: Path) -> None:
    opened.page.pdf(path=str(tmp_path / "page.pdf"), format="A4", landscape=True)
    assert (tmp_path / "page.pdf").stat().st_size > 10_000


def contrast(one: list[float], other: list[float]) -> float:
    """The ratio of the Web Content Accessibility Guidelines."""

    def light(colour: list[float]) -> float:
        parts = [value / 255 for value in colour[:3]]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted((light(one), light(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)
