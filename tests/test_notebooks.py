"""What notebooks and plots show: well-formed, escaped, and with what matters in it."""

from __future__ import annotations

import builtins
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

import cql
from cql.engine import Engine
from planner.explain.drawing import to_svg
from planner.network import compile_definition
from planner.plan import Plan, combine

EVIL = "<script>alert('&')</script>"
SVG = "{http://www.w3.org/2000/svg}"


class Tags(HTMLParser):
    """The tags that are open, those that were there, and the texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, "every tag is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.add(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture
def engine() -> Engine:
    engine = Engine(local=True)
    engine.execute(f'CREATE STREAM s ("{EVIL}" STRING, v INT, t INT) TIMESTAMP BY t')
    engine.register("texts", f'SELECT "{EVIL}", v FROM s WHERE v > 0 OR v IS NULL')
    engine.register("sums", f'SELECT "{EVIL}", SUM(v) AS v FROM s [Range 10] GROUP BY "{EVIL}"')
    return engine


def plan_of(engine: Engine) -> Plan:
    return combine([compile_definition(query) for query in engine.catalog.queries.values()])


def test_everything_that_a_notebook_shows_is_well_formed_and_escaped(engine: Engine) -> None:
    query = engine.query("texts")
    (listing,) = engine.execute("DESCRIBE s")
    before = [query._repr_html_(), engine._repr_html_()]
    engine.push("s", [(EVIL, at or None, at) for at in range(50)])
    for text in (*before, query._repr_html_(), engine._repr_html_(), plan_of(engine)._repr_html_()):
        found = Tags(text)
        assert "script" not in found.seen and EVIL.casefold() in " ".join(found.texts).casefold()
    assert EVIL in Tags(listing._repr_html_()).texts  # type: ignore[union-attr]


def test_a_query_shows_its_first_rows_and_as_of_when_they_are(engine: Engine) -> None:
    query = engine.query("texts")
    assert "not started" in query._repr_html_()
    engine.push("s", [("x", at or None, at) for at in range(50)])
    texts = Tags(query._repr_html_()).texts
    assert {"texts", "stream, as of 48", "NULL", "19", "49 rows, the first 20 of them"} <= set(texts)
    assert "20" not in texts


def test_an_engine_shows_what_it_has_read_and_made(engine: Engine) -> None:
    assert repr(engine) == "Engine(2 queries, in this process, not started)"
    engine.push("s", [("x", 1, 1), ("y", 2, 2)])
    texts = Tags(engine._repr_html_()).texts
    assert texts[texts.index("s") : texts.index("s") + 3] == ["s", "stream", "2"]
    engine.stop()
    assert "stopped" in repr(engine)


def test_a_drawing_has_a_box_for_each_operator_and_an_arrow_for_each_input(engine: Engine) -> None:
    plan = plan_of(engine)
    root = ElementTree.fromstring(to_svg(plan))
    boxes = [
        (float(box.get("x", 0)), float(box.get("y", 0)), float(box.get("height", 0))) for box in root.iter(f"{SVG}rect")
    ]
    assert len(boxes) == len(plan.operators)
    arrows = [path for path in root.iter(f"{SVG}path") if path.get("fill") == "none"]
    assert len(arrows) == sum(len(operator.inputs) for operator in plan.operators)
    for x, y, height in boxes:
        others = [(y2, h2) for x2, y2, h2 in boxes if x2 == x and y2 > y]
        assert all(y + height < y2 for y2, _ in others), "boxes do not cover each other"
    strong = [box for box in root.iter(f"{SVG}rect") if box.get("stroke-width") == "2"]
    assert len(strong) == sum(len(users) > 1 for users in plan.users.values()) > 0
    assert Plan.from_json(plan.to_json())._repr_html_() == plan._repr_html_()


def test_an_empty_plan_can_be_drawn() -> None:
    ElementTree.fromstring(to_svg(combine([])))


def titles(figure: Any) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]


def test_a_run_is_plotted_with_one_call(engine: Engine) -> None:
    pytest.importorskip("matplotlib")
    assert titles(engine.plot()) == [""], "nothing has happened yet"
    for at in range(0, 60, 2):
        engine.push("s", [("x", 1, at), ("y", 2, at + 1), ("late", 3, at - 9)])
    assert titles(engine.plot()) == [
        "rows read per second",
        "results per second",
        "time of a micro-batch",
        "state",
        "rows left out, in all",
    ]
    made = engine.plot().axes[1]
    assert [line.get_label() for line in made.lines] == ["texts", "sums"]
    figure = engine.query("sums").plot()
    assert [line.get_label() for line in figure.axes[1].lines] == ["sums"]
    (late,) = figure.axes[-1].lines
    assert late.get_ydata()[-1] == 30
    rates = made.lines[0]
    seconds = 2 * rates.get_xdata()[0]
    results = sum(batch.queries.get("texts", 0) for batch in engine.history())
    assert sum(rates.get_ydata()) * seconds == pytest.approx(results)


def test_without_matplotlib_it_is_said_how_to_get_it(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(cql.CqlError) as caught:
        engine.plot()
    assert caught.value.diagnostics[0].hint == "pip install 'cql-on-spark[plots]'"
