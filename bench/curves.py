#!/usr/bin/env python3
"""Draws learning curves of the run directories that `scripts/bench agents --keep DIR` leaves.

    bench/curves.py DIR FOLDER [CASE...]

FOLDER/CASE.svg has the mean returns of evaluations over environment steps: a thin line for each seed, which ends with a dot where
the target was reached, and the median of all, where a seed that has ended stays as it was."""
import csv
import json
import sys
from pathlib import Path
from statistics import median

WIDTH, HEIGHT = 520, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 34, 44
POINTS = 120  # of a line
SEED, MEDIAN, GRID, INK = "#8fb3d9", "#1f4e8c", "#e3e3e3", "#333333"


def read_curve(run_dir):
    """[(steps, mean return)] of whole evaluations: those that confirm one have more episodes."""
    with open(run_dir / "evaluator.csv", newline="") as rows:
        rows = list(csv.DictReader(rows))
    return [(float(row["actor_steps"]), float(row["mean"])) for row in rows if row["episodes"] == rows[0]["episodes"]]


def value_at(curve, steps):
    """Between two evaluations in proportion; outside of them the first or the last."""
    if steps <= curve[0][0]:
        return curve[0][1]
    for (x0, y0), (x1, y1) in zip(curve, curve[1:]):
        if steps < x1:
            return y0 + (y1 - y0) * (steps - x0) / (x1 - x0)
    return curve[-1][1]


def ticks(low, high):
    """Round numbers between both, about five."""
    unit = 10.0 ** (len(str(int(high - low))) - 1) if high - low >= 1 else 0.1
    step = min((unit * k / 10 for k in (1, 2, 5, 10, 20, 50)), key=lambda step: abs((high - low) / step - 5))
    first = -(-low // step)
    return [(first + i) * step for i in range(int(high / step - first + 1e-9) + 1)]


def words(number, most):
    return f"{number / 1000:g} k" if most >= 10000 and number else f"{number:g}"


class Drawing:
    def __init__(self, x_most, y_least, y_most):
        self.x_most, self.y_least, self.y_most = x_most, y_least, y_most
        self.parts = []

    def x(self, steps):
        return LEFT + (WIDTH - LEFT - RIGHT) * steps / self.x_most

    def y(self, value):
        return TOP + (HEIGHT - TOP - BOTTOM) * (self.y_most - value) / (self.y_most - self.y_least)

    def line(self, points, color, width, extra=""):
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" stroke="{color}" stroke-width="{width}"{extra}/>')

    def dot(self, point, color):
        self.parts.append(f'<circle cx="{self.x(point[0]):.1f}" cy="{self.y(point[1]):.1f}" r="3" fill="{color}"/>')

    def text(self, x, y, what, anchor="middle", extra=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{what}</text>')

    def axes(self):
        for value in ticks(self.y_least, self.y_most):
            self.line([(0, value), (self.x_most, value)], GRID, 1)
            self.text(LEFT - 6, self.y(value) + 4, words(value, self.y_most - self.y_least), "end")
        for steps in ticks(0, self.x_most):
            self.text(self.x(steps), HEIGHT - BOTTOM + 16, words(steps, self.x_most))
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "environment steps")
        middle = (TOP + HEIGHT - BOTTOM) / 2
        self.text(14, middle, "mean return", extra=f' transform="rotate(-90 14 {middle:.0f})"')

    def svg(self):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">\n'
                f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n'
                f'<g font-family="sans-serif" font-size="12" fill="{INK}">\n'
                + "\n".join(part for part in self.parts if part.startswith("<text")) + "\n</g>\n"
                '<g fill="none" stroke-linejoin="round">\n'
                + "\n".join(part for part in self.parts if not part.startswith("<text")) + "\n</g>\n</svg>\n")


def thinned(curve):
    every = -(-len(curve) // POINTS)
    return curve[:-1:every] + curve[-1:]


def draw(case, run_dirs):
    evaluator = json.loads((run_dirs[0] / "config.json").read_text())["options"]["evaluator"]
    target = evaluator["target_return"]
    curves = [read_curve(run_dir) for run_dir in run_dirs]
    values = [value for curve in curves for _, value in curve] + [target]
    margin = (max(values) - min(values)) * 0.04
    drawing = Drawing(max(curve[-1][0] for curve in curves), min(values) - margin, max(values) + margin)
    drawing.axes()
    for curve in curves:
        drawing.line(thinned(curve), SEED, 1.2)
        drawing.dot(curve[-1], SEED)
    grid = [drawing.x_most * i / POINTS for i in range(POINTS + 1)]
    drawing.line([(x, median(value_at(curve, x) for curve in curves)) for x in grid], MEDIAN, 2.5)
    drawing.line([(0, target), (drawing.x_most, target)], INK, 1, ' stroke-dasharray="5 4"')
    drawing.text(LEFT, 20, f"{case}: {evaluator['env']}", "start", ' font-weight="bold"')
    drawing.text(WIDTH - RIGHT, 20, f"median of {len(curves)} seeds, target {target:g}", "end", f' font-size="11" fill="{MEDIAN}"')
    return drawing.svg()


def main(source, folder, *cases):
    Path(folder).mkdir(parents=True, exist_ok=True)
    for case in cases or sorted(path.name for path in Path(source).iterdir() if path.is_dir()):
        run_dirs = sorted(path.parent for path in Path(source, case).glob("*/evaluator.csv"))
        if run_dirs:
            Path(folder, f"{case}.svg").write_text(draw(case, run_dirs))


main(*sys.argv[1:])
