"""Charts: well-formed, inside their frame, honest about what is not known."""

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_jax.observability.svg import (
    Bar,
    Series,
    bars,
    histograms,
    line_chart,
    number,
    percent,
    smooth,
    strip,
    ticks,
)


def parse(drawing):
    return ElementTree.fromstring(drawing)


@pytest.mark.parametrize(
    "value, text",
    [
        (0, "0"),
        (0.5, "0.5"),
        (0.01234, "0.0123"),
        (1.4e-5, "1.4×10⁻⁵"),
        (5e-5, "5×10⁻⁵"),
        (1234, "1,234"),
        (52340, "52.3k"),
        (2.5e6, "2.5M"),
        (math.nan, "n/a"),
    ],
)
def test_number(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    "value, text", [(0.5, "50 %"), (0.29, "29 %"), (0.1234, "12.3 %"), (0.00087, "0.087 %"), (1, "100 %")]
)
def test_percent(value, text):
    assert percent(value) == text


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_inside_and_even(low, size):
    found = ticks(low, low + size)
    assert all(low - 1e-6 * size <= t <= low + size * (1 + 1e-6) for t in found)
    assert len(found) <= 9


def test_smoothing_keeps_a_line_and_does_not_lag():
    line = [float(i) for i in range(60)]
    assert smooth(line, 6) == pytest.approx(line, abs=1.0)
    assert smooth(line, 6)[10:50] == pytest.approx(line[10:50])
    assert math.isnan(smooth([1.0, math.nan, 3.0], 3)[1])


def test_line_chart_breaks_at_nan_and_escapes():
    series = Series(
        name="<a&b>",
        x=[1, 2, 3, 4],
        y=[0.1, math.nan, 0.3, 0.2],
        low=[0, math.nan, 0.2, 0.1],
        high=[0.2, math.nan, 0.4, 0.3],
        color="red",
    )
    drawing = line_chart([series, Series(name="c", x=[1], y=[1.0], color="blue")], label="x < y")
    root = parse(drawing)
    paths = [p.get("d") for p in root.iter("path")]
    assert paths[0].count("M") == 2 and paths[0].count("L") == 1
    assert "nan" not in drawing.lower().replace("n/a", "")
    assert root.get("aria-label") == "x < y"
    assert any("<a&b>: 0.3" in title.text for title in root.iter("title"))


@pytest.mark.parametrize("values", [[5.0], [3.0, 3.0, 3.0], [0.0, 0.0], [math.nan, math.nan]])
def test_line_chart_of_constant_or_missing_values(values):
    drawing = line_chart([Series(name="a", x=list(range(len(values))), y=values, color="red")], label="a")
    assert not re.search(r'="-?nan|inf', drawing)
    parse(drawing)


def test_bars_scale_and_stay_inside():
    rows = [
        Bar(label="a", value=0.0, color="red", low=0.0, high=0.0),
        Bar(label="b", value=0.9, color="blue", low=0.7, high=1.0),
    ]
    root = parse(bars(rows, label="rewards", top=1.0, width=300))
    right = [float(t.get("x")) for t in root.iter("text") if t.get("class") == "v"]
    assert len(right) == 2 and max(right) <= 300 - 50
    assert any("95 % interval 0.7 to 1" in t.text for t in root.iter("title"))
    parse(bars([Bar(label="n", value=math.nan, color="red")], label="none"))


def test_histogram_counts_every_value():
    root = parse(
        histograms(
            [("a", "red", [0.0, 0.05, 1.0, 0.5]), ("b", "blue", [])],
            [0, 0.5, 1.0],
            label="h",
            x_name="reward",
        )
    )
    titles = [t.text for t in root.iter("title")]
    assert titles[0].startswith("a: 2 of 4 (50 %)") and titles[1].startswith("a: 2 of 4 (50 %)")
    assert titles[2].startswith("b: 0 of 0")


def test_strip():
    root = parse(strip(10, [(0, 5, "red", "first"), (5, 10, "blue", "second")], label="s", width=100))
    rects = [(float(r.get("x", 0)), float(r.get("width"))) for r in root.iter("rect")]
    assert rects[1:] == [(0, 50), (50, 50)]
