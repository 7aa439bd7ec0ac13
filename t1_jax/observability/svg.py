"""Charts as inline SVG text: lines with bands, bars with intervals, histograms, a token strip.

Colours are CSS custom properties of the page (so that one drawing serves light and dark), lengths are SVG
user units, about one pixel at natural size. Every mark has a <title>, which browsers show as a tooltip.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

Format = Callable[[float], str]
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a line chart; NaN breaks the line. `low` and `high` draw a band around it."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    color: str
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One horizontal bar, with an interval where one is known."""

    label: str
    value: float
    color: str
    low: float | None = None
    high: float | None = None


def number(value: float) -> str:
    """A number with three significant digits: 0.0123, 4.5k, 1.4×10⁻⁵."""
    if math.isnan(value):
        return "n/a"
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:.3g}M"
    if size >= 1e4:
        return f"{value / 1e3:.3g}k"
    if size >= 100 or value == 0:
        return f"{value:,.0f}"
    if size >= 1e-4:
        return f"{value:.3g}"
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits.removesuffix('.0')}×10" + str(int(exponent)).translate(_SUPERSCRIPT)


def percent(value: float) -> str:
    """A share as a percentage: 0.1234 -> "12.3 %", 0.5 -> "50 %"."""
    if math.isnan(value):
        return "n/a"
    points = round(100 * value, 9)
    if points == round(points) or abs(points) >= 99.95:
        return f"{points:.0f} %"
    return f"{points:.2g} %" if abs(points) < 1 else f"{points:.1f} %"


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round values inside [low, high], about `count` of them, spaced by 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if rough <= factor * power * 1.0001)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def smooth(values: Sequence[float], reach: int) -> list[float]:
    """Moving average with a window that falls off linearly to both sides, so that it does not lag behind.

    Args:
      values: the series; NaN stays NaN and is not counted.
      reach: steps to each side at which the weight becomes zero.
    """
    result = []
    for i, value in enumerate(values):
        # At the ends the window shrinks on both sides: a lopsided one would bend the curve.
        near = max(min(reach, i + 1, len(values) - i), min(reach, 3))
        window = [
            (k, reach_weight)
            for k in range(max(i - near + 1, 0), min(i + near, len(values)))
            if not math.isnan(values[k]) and (reach_weight := near - abs(k - i)) > 0
        ]
        total = sum(weight for _, weight in window)
        result.append(
            math.nan if math.isnan(value) else sum(values[k] * weight for k, weight in window) / total
        )
    return result


def text(x: float, y: float, content: str, *, anchor: str = "start", kind: str = "t", color: str = "") -> str:
    """A text element. `kind` is a CSS class of the page: t (axis), v (value), n (name)."""
    fill = f' style="fill:{color}"' if color else ""
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{fill}>{escape(content)}</text>'
    )


def svg(width: float, height: float, body: str, label: str) -> str:
    """The root element: scales down to its container; `label` is its accessible name."""
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" style="max-width:{width:g}px" role="img" '
        f'aria-label="{escape(label)}">{body}</svg>'
    )


def line_chart(
    series: Sequence[Series],
    *,
    label: str,
    width: float = 330,
    height: float = 170,
    low: float | None = None,
    high: float | None = None,
    form: Format = number,
    x_name: str = "step",
) -> str:
    """Lines over a common x axis. Long ones are drawn faintly under their moving average, which is labelled.

    Args:
      series: at least one, each with at least one point.
      label: the chart's accessible name.
      width, height: natural size.
      low, high: fixed ends of the y axis; from the data when None.
      form: how y values are written.
      x_name: what the x axis counts.
    """
    left, right, top, bottom = 44.0, 54.0, 10.0, 26.0
    values = [v for s in series for v in (*s.y, *(s.low or ()), *(s.high or ())) if not math.isnan(v)] or [
        0.0
    ]
    y0 = min(values) if low is None else low
    y1 = max(values) if high is None else high
    room = (y1 - y0) * 0.06 or abs(y1) * 0.1 or 1.0
    y0, y1 = (y0 if low is not None else y0 - room), (y1 if high is not None else y1 + room)
    if low is None and min(values) >= 0 > y0:
        y0 = 0.0
    x0, x1 = min(min(s.x) for s in series), max(max(s.x) for s in series)

    def px(x: float) -> float:
        return left + (x - x0) / ((x1 - x0) or 1) * (width - left - right)

    def py(y: float) -> float:
        return height - bottom - (min(max(y, y0), y1) - y0) / (y1 - y0) * (height - top - bottom)

    parts = []
    for y in ticks(y0, y1):
        parts.append(
            f'<line class="grid" x1="{left}" x2="{width - right}" y1="{py(y):.1f}" y2="{py(y):.1f}"/>'
        )
        parts.append(text(left - 7, py(y) + 3.5, form(y), anchor="end"))
    for x in ticks(x0, x1, 5):
        parts.append(text(px(x), height - bottom + 15, number(x), anchor="middle"))
    parts.append(text(left - 7, height - bottom + 15, x_name, anchor="end"))
    ends = []
    for s in series:
        shown: Sequence[float] = s.y
        if s.low is not None and s.high is not None:
            parts.append(_band(s, px, py))
        if len(s.y) >= 24:
            parts.append(_path(s.x, s.y, px, py, f'class="raw" style="stroke:{s.color}"'))
            shown = smooth(s.y, max(3, len(s.y) // 10))
        parts.append(_path(s.x, shown, px, py, f'class="line" style="stroke:{s.color}"'))
        known = [i for i, v in enumerate(shown) if not math.isnan(v)]
        if known:
            ends.append((s, s.x[known[-1]], shown[known[-1]]))
    parts.extend(_end_labels(ends, px, py, form, named=len(series) > 1))
    parts.append(_hits(series, px, top, height - bottom, form, x_name))
    return svg(width, height, "".join(parts), label)


def _path(
    x: Sequence[float], y: Sequence[float], px: Format | Callable, py: Callable, attributes: str
) -> str:
    commands, pen_down = [], False
    for xi, yi in zip(x, y, strict=True):
        if math.isnan(yi):
            pen_down = False
            continue
        commands.append(f"{'L' if pen_down else 'M'}{px(xi):.1f},{py(yi):.1f}")
        pen_down = True
    return f'<path {attributes} d="{"".join(commands)}"/>'


def _band(s: Series, px: Callable, py: Callable) -> str:
    rows = [
        (x, lo, hi)
        for x, lo, hi in zip(s.x, s.low or (), s.high or (), strict=True)
        if not math.isnan(lo + hi)
    ]
    outline = [f"{px(x):.1f},{py(hi):.1f}" for x, _, hi in rows] + [
        f"{px(x):.1f},{py(lo):.1f}" for x, lo, _ in reversed(rows)
    ]
    return f'<polygon class="band" style="fill:{s.color}" points="{" ".join(outline)}"/>'


def _end_labels(ends: list, px: Callable, py: Callable, form: Format, *, named: bool) -> list[str]:
    """A dot and the last value at the end of each line; labels that would overlap are pushed apart."""
    parts, previous = [], -math.inf
    for s, x, y in sorted(ends, key=lambda end: py(end[2])):
        at = max(py(y), previous + 22 if named else previous + 11)
        previous = at
        parts.append(f'<circle cx="{px(x):.1f}" cy="{py(y):.1f}" r="3" style="fill:{s.color}"/>')
        parts.append(text(px(x) + 8, at + 4, form(y), kind="v", color=s.color))
        if named:
            parts.append(text(px(x) + 8, at + 15, s.name, color=s.color))
    return parts


def _hits(
    series: Sequence[Series], px: Callable, top: float, bottom: float, form: Format, x_name: str
) -> str:
    """Invisible columns that carry the tooltips."""
    longest = max(series, key=lambda s: len(s.x))
    stride = max(1, len(longest.x) // 150)
    columns = list(longest.x)[::stride]
    found = [dict(zip(s.x, s.y, strict=True)) for s in series]
    reach = (px(columns[1]) - px(columns[0])) / 2 if len(columns) > 1 else 8.0
    parts = []
    for x in columns:
        lines = [f"{s.name}: {form(at[x])}" for s, at in zip(series, found, strict=True) if x in at]
        title = escape(f"{x_name} {x:g}\n" + "\n".join(lines))
        parts.append(
            f'<rect class="hit" x="{px(x) - reach:.1f}" y="{top}" width="{2 * reach:.1f}" '
            f'height="{bottom - top:.1f}">'
            f"<title>{title}</title></rect>"
        )
    return "".join(parts)


def bars(
    rows: Sequence[Bar],
    *,
    label: str,
    width: float = 330,
    names: float = 52,
    top: float | None = None,
    form: Format = number,
    thick: float = 14,
) -> str:
    """Horizontal bars from zero, one a row, name on the left, value on the right, interval over its end.

    Args:
      rows: from top to bottom.
      label: the chart's accessible name.
      width: natural width.
      names: room for the names.
      top: the value at the right end; from the rows when None.
      form: how values are written.
      thick: height of a bar.
    """
    step, room = thick + 12, 62.0
    known = [v for row in rows for v in (row.value, row.high or 0.0) if not math.isnan(v)]
    scale = (width - names - room) / (top or max([*known, 0.0]) or 1.0)
    parts = [f'<line class="axis" x1="{names}" x2="{names}" y1="2" y2="{len(rows) * step - 2}"/>']
    for i, row in enumerate(rows):
        middle = i * step + step / 2
        value = 0.0 if math.isnan(row.value) else row.value
        end = max(names + value * scale, names + (1.5 if value else 0))
        title = f"{row.label}: {form(row.value)}"
        far = end
        mark = ""
        if row.low is not None and row.high is not None:
            title += f" (95 % interval {form(row.low)} to {form(row.high)})"
            a, far = names + row.low * scale, max(end, names + row.high * scale)
            ends = f"M{a:.1f},{middle - 3.5}v7M{far:.1f},{middle - 3.5}v7"
            mark = f'<path class="whisker" d="M{a:.1f},{middle}H{far:.1f}{ends}"/>'
        parts.append(text(names - 8, middle + 4, row.label, anchor="end", kind="n"))
        parts.append(
            f'<g><title>{escape(title)}</title><path class="bar" style="fill:{row.color}" '
            f'd="{_bar(names, middle, end, thick)}"/>'
            f"{mark}</g>"
        )
        parts.append(text(far + 7, middle + 4, form(row.value), kind="v"))
    return svg(width, len(rows) * step, "".join(parts), label)


def _bar(start: float, middle: float, end: float, thick: float) -> str:
    """A bar whose far end is rounded."""
    r = min(3.0, max(end - start, 0.0))
    return (
        f"M{start:.1f},{middle - thick / 2:.1f}H{end - r:.1f}q{r:.1f},0 {r:.1f},{r:.1f}"
        f"v{thick - 2 * r:.1f}q0,{r:.1f} {-r:.1f},{r:.1f}H{start:.1f}Z"
    )


def histograms(
    rows: Sequence[tuple[str, str, Sequence[float]]],
    edges: Sequence[float],
    *,
    label: str,
    x_name: str,
    width: float = 500,
    x_form: Format = number,
) -> str:
    """Histograms of several samples, one under the other on a common axis, as shares of each sample.

    Args:
      rows: (name, colour, values) each.
      edges: bin edges, ascending; values outside are counted in the end bins.
      label: the chart's accessible name.
      x_name: what the values are.
      width: natural width.
      x_form: how edges are written.
    """
    names, right, each, bottom = 52.0, 14.0, 62.0, 34.0
    count = len(edges) - 1
    counts = []
    for _, _, values in rows:
        bins = [0] * count
        for value in values:
            bins[min(max(sum(value >= e for e in edges) - 1, 0), count - 1)] += 1
        counts.append(bins)
    tallest = max((n / max(sum(bins), 1) for bins in counts for n in bins), default=0) or 1.0
    slot = (width - names - right) / count
    parts = []
    for i, ((name, color, values), bins) in enumerate(zip(rows, counts, strict=True)):
        ground = (i + 1) * each - 2
        parts.append(text(names - 8, ground - 2, name, anchor="end", kind="n"))
        parts.append(f'<line class="axis" x1="{names}" x2="{width - right}" y1="{ground}" y2="{ground}"/>')
        for k, n in enumerate(bins):
            share = n / max(len(values), 1)
            tall = (each - 20) * share / tallest
            span = f"{x_form(edges[k])} to {x_form(edges[k + 1])}"
            title = f"{name}: {n} of {len(values)} ({percent(share)}), {x_name} {span}"
            parts.append(
                f"<g><title>{escape(title)}</title>"
                f'<rect class="bar" style="fill:{color}" x="{names + k * slot + 1:.1f}" '
                f'y="{ground - tall:.1f}" '
                f'width="{slot - 2:.1f}" height="{tall:.1f}" rx="1.5"/></g>'
            )
            if share >= 0.3 * tallest and slot > 26:
                parts.append(
                    text(
                        names + (k + 0.5) * slot, ground - tall - 4, percent(round(share, 2)), anchor="middle"
                    )
                )
    base = len(rows) * each
    for value in ticks(edges[0], edges[-1], 5):
        at = names + (value - edges[0]) / (edges[-1] - edges[0]) * (width - names - right)
        parts.append(text(at, base + 14, x_form(value), anchor="middle"))
    parts.append(text(width - right, base + 28, x_name, anchor="end"))
    return svg(width, base + bottom, "".join(parts), label)


def scatter(
    points: Sequence[tuple[float, float, str]],
    *,
    label: str,
    x_name: str,
    y_name: str,
    size: float = 330,
) -> str:
    """Points (x, y, tooltip) of two shares, 0 to 1, over the diagonal on which they are equal."""
    left, bottom, top = 44.0, 30.0, 18.0
    side = size - left - bottom
    base = top + side

    parts = [f'<path class="whisker" d="M{left},{base}L{left + side},{top}"/>']
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = left + tick * side, base - tick * side
        parts.append(f'<line class="grid" x1="{left}" x2="{left + side}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(text(left - 7, y + 3.5, f"{tick:g}", anchor="end"))
        parts.append(text(x, base + 15, f"{tick:g}", anchor="middle"))
    parts.append(text(left, top - 7, y_name))
    parts.append(text(left + side, base + 28, x_name, anchor="end"))
    for x, y, tip in points:
        color = "var(--good)" if y > x else "var(--bad)" if y < x else "var(--base)"
        parts.append(
            f'<circle cx="{left + x * side:.1f}" cy="{base - y * side:.1f}" r="3.5" '
            f'style="fill:{color};fill-opacity:.6">'
            f"<title>{escape(f'{tip}: {x:.3f}, {y:.3f}')}</title></circle>"
        )
    return svg(size, base + bottom, "".join(parts), label)


def strip(
    length: int,
    spans: Sequence[tuple[int, int, str, str]],
    *,
    label: str,
    width: float = 640,
    height: float = 10,
) -> str:
    """A bar of `length` tokens with coloured spans.

    Args:
      length: tokens in all.
      spans: (start, end, colour, tooltip) each, half open.
      label: the chart's accessible name.
      width, height: natural size.
    """
    scale = width / max(length, 1)
    parts = [f'<rect class="track" width="{width}" height="{height}" rx="3"/>']
    parts += [
        f'<rect style="fill:{color}" x="{a * scale:.2f}" width="{max((b - a) * scale, 1):.2f}" '
        f'height="{height}">'
        f"<title>{escape(tip)}</title></rect>"
        for a, b, color, tip in spans
    ]
    return svg(width, height, "".join(parts), label)
