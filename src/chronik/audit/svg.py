"""Small plots as inline SVG: lines over time, horizontal bars. Colours are the page's variables."""

import math
from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 12, 34
TICKS = 4
BAR_HEIGHT, BAR_GAP, BAR_LABEL, BAR_TEXT = 20, 8, 130, 260
LANE_HEIGHT, LANE_LABEL = 28, 90

Series = tuple[str, Sequence[float]]


def line_chart(xs: Sequence[float], series: Sequence[Series], unit_x: str) -> str:
    """Lines over one shared axis, with a legend; nothing at all without points."""
    if len(xs) < 2:
        return "<p>no times were recorded</p>"
    highest = max((max(values) for _, values in series), default=0) or 1
    top = math.ceil(highest / _step(highest)) * _step(highest)
    parts = [_grid(xs[0], xs[-1], top, unit_x)]
    for number, (_, values) in enumerate(series):
        points = " ".join(
            f"{_x(x, xs[0], xs[-1]):.1f},{_y(y, top):.1f}" for x, y in zip(xs, values, strict=True)
        )
        parts.append(f'<polyline class="line s{number}" points="{points}"/>')
    return _svg(HEIGHT, parts) + _legend([name for name, _ in series])


def bar_chart(bars: Sequence[tuple[str, float, str]], *, top: float | None = None) -> str:
    """One horizontal bar per (label, value, text); the text stands behind the bar."""
    if not bars:
        return "<p>nothing to show</p>"
    highest = top or max(value for _, value, _ in bars) or 1
    room = WIDTH - BAR_LABEL - BAR_TEXT
    parts = []
    for number, (label, value, text) in enumerate(bars):
        y = TOP + number * (BAR_HEIGHT + BAR_GAP)
        width = max(1.0, room * value / highest)
        middle = y + BAR_HEIGHT * 0.7
        parts.append(
            f'<text x="{BAR_LABEL - 8}" y="{middle:.1f}" text-anchor="end">{escape(label)}</text>'
            f'<rect class="bar" x="{BAR_LABEL}" y="{y}" width="{width:.1f}" height="{BAR_HEIGHT}"/>'
            f'<text x="{BAR_LABEL + width + 8:.1f}" y="{middle:.1f}">{escape(text)}</text>'
        )
    return _svg(2 * TOP + len(bars) * (BAR_HEIGHT + BAR_GAP), parts)


def timeline_chart(
    lanes: Sequence[tuple[str, Sequence[tuple[float, float, str]]]], low: float, high: float
) -> str:
    """One lane per kind; what happened as a mark from its begin to its end, named by a tooltip."""
    parts = []
    for number, (name, marks) in enumerate(lanes):
        y = TOP + number * LANE_HEIGHT
        middle = y + LANE_HEIGHT / 2
        parts.append(
            f'<text x="{LANE_LABEL - 8}" y="{middle + 4}" text-anchor="end">{escape(name)}</text>'
            f'<line class="grid" x1="{LANE_LABEL}" x2="{WIDTH - RIGHT}"'
            f' y1="{middle}" y2="{middle}"/>'
        )
        for begin, end, what in marks:
            x, until = (_lane_x(at, low, high) for at in (begin, end))
            parts.append(
                f'<rect class="mark s{number}" x="{x - 3:.1f}" y="{y + 5}" rx="3"'
                f' width="{max(6.0, until - x + 6):.1f}" height="{LANE_HEIGHT - 10}">'
                f"<title>{escape(what)}</title></rect>"
            )
    bottom = TOP + len(lanes) * LANE_HEIGHT
    for at in _ticks(low, high):
        x = _lane_x(at, low, high)
        said = f"{_text(at)} s"
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{said}</text>')
    return _svg(bottom + 26, parts)


def _lane_x(at: float, low: float, high: float) -> float:
    return LANE_LABEL + (WIDTH - LANE_LABEL - RIGHT) * (at - low) / ((high - low) or 1)


def _svg(height: float, parts: Sequence[str]) -> str:
    box = f'viewBox="0 0 {WIDTH} {height:.0f}"'
    return f'<svg {box} role="img" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'


def _grid(low: float, high: float, top: float, unit_x: str) -> str:
    parts = []
    for value in _ticks(0, top):
        y = _y(value, top)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_text(value)}</text>'
        )
    for moment in _ticks(low, high):
        x = _x(moment, low, high)
        said = f"{_text(moment)} {unit_x}"
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 10}" text-anchor="middle">{said}</text>')
    return "".join(parts)


def _step(span: float) -> float:
    """1, 2 or 5 times a power of ten: what people read without counting."""
    rough = span / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)


def _ticks(low: float, high: float) -> list[float]:
    step = _step((high - low) or 1)
    first = math.ceil(low / step)
    return [step * n for n in range(first, math.floor(high / step + 1e-9) + 1)]


def _text(value: float) -> str:
    return f"{round(value, 6):,.10g}"


def _x(value: float, low: float, high: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (value - low) / ((high - low) or 1)


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top


def _legend(names: Sequence[str]) -> str:
    items = (
        f'<span><i class="s{number}"></i>{escape(name)}</span>' for number, name in enumerate(names)
    )
    return f'<p class="legend">{"".join(items)}</p>'
