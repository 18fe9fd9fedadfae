"""Lines over a logarithmic axis, as SVG that follows the reader's choice of a light or a dark page."""

import math
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 76, 24, 96, 56

# Colors on a light and on a dark page: blue, orange and green that remain distinct with color vision deficiency.
COLORS = [("#0072b2", "#4aa8e8"), ("#d55e00", "#ff9d57"), ("#00825a", "#3fcf9f"), ("#6b7280", "#9198a1")]
# The last color, dashed, is for the reference.
REFERENCE = len(COLORS) - 1
PAPER, INK, PENCIL, GRID = ("#ffffff", "#0d1117"), ("#1f2937", "#e6edf3"), ("#6b7280", "#9198a1"), ("#e5e7eb", "#2b323b")


@dataclass
class Axis:
    """From `low` to `high`, with a name at each of `ticks`, which are values and what is written there."""

    label: str
    low: float
    high: float
    ticks: list
    log: bool = True

    def part(self, value):
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


@dataclass
class Line:
    """Points in order; the color is a place in the table above."""

    name: str
    points: list
    color: int
    unit: str = ""

    @property
    def is_reference(self):
        return self.color == REFERENCE


def decades(label, values):
    """A logarithmic axis around these values, with 1, 2 and 5 of each power of ten."""
    least, most = min(values), max(values)
    marks = [digit * 10.0**power for power in range(-6, 10) for digit in (1, 2, 5)]
    low = max(mark for mark in marks if mark <= least)
    high = min(mark for mark in marks if mark >= most)
    ticks = [mark for mark in marks if low <= mark <= high]
    if len(ticks) > 9:
        ticks = [mark for mark in ticks if f"{mark:e}"[0] == "1"]
    return Axis(label, low, high, [(mark, f"{mark:,.6f}".rstrip("0").rstrip(".")) for mark in ticks])


def from_zero(label, values):
    """A linear axis from zero to a round number that none of these values passes."""
    most = max(values)
    decade = 10.0 ** math.floor(math.log10(most / 8))
    step = next(step * decade for step in (1, 2, 2.5, 5, 10) if most / (step * decade) <= 8)
    count = math.ceil(most / step)
    return Axis(label, 0, step * count, [(n * step, f"{n * step:g}") for n in range(count + 1)], False)


def draw(title, subtitle, x, y, lines):
    """The picture."""

    def place(point):
        return (LEFT + x.part(point[0]) * (WIDTH - LEFT - RIGHT),
                HEIGHT - BOTTOM - y.part(point[1]) * (HEIGHT - TOP - BOTTOM))

    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
           f'font-family="sans-serif" font-size="13">', style()]
    out.append(f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="6"/>')
    out.append(f'<text x="20" y="30" font-size="18" font-weight="bold">{escape(title)}</text>')
    out.append(f'<text x="20" y="50" class="pencil">{escape(subtitle)}</text>')
    for value, name in y.ticks:
        at = place((x.low, value))[1]
        out.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{right}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{at + 4.5:.1f}" text-anchor="end">{escape(name)}</text>')
    for value, name in x.ticks:
        at = place((value, y.low))[0]
        out.append(f'<path class="grid" d="M{at:.1f} {TOP}V{bottom}"/>')
        out.append(f'<text x="{at:.1f}" y="{bottom + 20}" text-anchor="middle">{escape(name)}</text>')
    out.append(f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 14}" text-anchor="middle" class="pencil">'
               f'{escape(x.label)}</text>')
    out.append(f'<text transform="translate(20 {(TOP + bottom) / 2}) rotate(-90)" text-anchor="middle" '
               f'class="pencil">{escape(y.label)}</text>')
    legend = LEFT
    for line in lines:
        dash = ' stroke-dasharray="7 5"' if line.is_reference else ""
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in map(place, line.points))
        out.append(f'<polyline class="line c{line.color}" points="{path}"{dash}/>')
        for point in line.points:
            a, b = place(point)
            said = escape(f"{line.name}: {point[1]:.3g} {line.unit}".strip())
            radius = 2 if line.is_reference else 3.5
            out.append(f'<circle class="dot c{line.color}" cx="{a:.1f}" cy="{b:.1f}" r="{radius}">'
                       f'<title>{said}</title></circle>')
        out.append(f'<path class="line c{line.color}" d="M{legend} 74h28"{dash}/>')
        out.append(f'<text x="{legend + 36}" y="78.5">{escape(line.name)}</text>')
        legend += 36 + 7.2 * len(line.name) + 26
    return "\n".join([*out, "</svg>", ""])


def style():
    def rules(shade):
        ink = [f".paper{{fill:{PAPER[shade]}}}text{{fill:{INK[shade]}}}.pencil{{fill:{PENCIL[shade]}}}"
               f".grid{{stroke:{GRID[shade]}}}"]
        for number, color in enumerate(COLORS):
            ink.append(f".line.c{number}{{stroke:{color[shade]}}}.dot.c{number}{{fill:{color[shade]}}}")
        return "".join(ink)

    return (f"<style>.line{{fill:none;stroke-width:2}}{rules(0)}"
            f"@media(prefers-color-scheme:dark){{{rules(1)}}}</style>")
