"""Small plots as inline SVG: lines over time, horizontal bars. Colours are the page's variables."""

from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 12, 34
TICKS = 4
BAR_HEIGHT, BAR_GAP, BAR_LABEL, BAR_TEXT = 20, 8, 130, 260

Series = tuple[str, Sequence[float]]


def line_chart(xs: Sequence[float], series: Sequence[Series], unit_x: str) -> str:
    """Lines over one shared axis, with a legend; nothing at all without points."""
    if len(xs) < 2:
        return "<p>no times were recorded</p>"
    top = max((max(values) for _, values in series), default=0) or 1
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


def _svg(height: float, parts: Sequence[str]) -> str:
    box = f'viewBox="0 0 {WIDTH} {height:.0f}"'
    return f'<svg {box} role="img" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'


def _grid(low: float, high: float, top: float, unit_x: str) -> str:
    parts = []
    for tick in range(TICKS + 1):
        y = _y(top * tick / TICKS, top)
        x = _x(low + (high - low) * tick / TICKS, low, high)
        value = f"{top * tick / TICKS:,.{0 if top >= 100 else 2}f}"
        moment = f"{low + (high - low) * tick / TICKS:.3g} {unit_x}"
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value}</text>'
            f'<text x="{x:.1f}" y="{HEIGHT - 10}" text-anchor="{_anchor(tick)}">{moment}</text>'
        )
    return "".join(parts)


def _anchor(tick: int) -> str:
    return "start" if tick == 0 else "end" if tick == TICKS else "middle"


def _x(value: float, low: float, high: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (value - low) / ((high - low) or 1)


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top


def _legend(names: Sequence[str]) -> str:
    items = (
        f'<span><i class="s{number}"></i>{escape(name)}</span>' for number, name in enumerate(names)
    )
    return f'<p class="legend">{"".join(items)}</p>'
