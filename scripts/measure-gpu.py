#!/usr/bin/env python3
"""Prints the tables of a page in docs/gpus from a folder that measure-gpu.sh wrote, as far as it got.

    python3 scripts/measure-gpu.py OUT
"""

import glob
import json
import math
import os
import statistics
import sys


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):  # not written, or not whole
        return None


def mean(values):
    """The geometric mean as text."""
    values = [value for value in values if value]
    return f"{math.exp(statistics.fmean(map(math.log, values))):.2f}" if values else ""


def times(shape):
    return shape.replace("x", "×")


def table(head, lines):
    """A column whose name begins with < holds words."""
    print("| " + " | ".join(name.lstrip("<") for name in head) + " |")
    print("|" + "|".join("---" if name.startswith("<") else "--:" for name in head) + "|")
    for line in lines:
        print("| " + " | ".join(line) + " |")
    print()


def at(row, count):
    """The fraction of the copy bandwidth at so many times n."""
    return next((model["fraction_of_copy"] for model in row["models"] if model["times"] == count), None)


def kinds(rows):
    """The rows of each operator and layout, by type."""
    found = {}
    for row in rows:
        of_kind = found.setdefault((row["op"], row["data_format"] or "-"), {})
        of_kind.setdefault(row["dtype"], []).append(row)
    return sorted(found.items())


def environment(report):
    stamps, pytorch = report.get("stamps") or {}, report.get("pytorch")
    facts = [
        ("adapter", report["adapter"]),
        ("driver", f"{report['backend']}, {report['driver']}"),
        ("measured", f"{report['date'][:10]} with wgpu-norm {report['version']}; {len(report['results'])} cases"),
        ("copy bandwidth", f"{report['copy_gb_per_s'] or 0:,.0f} GB/s, half read, half written, of the largest case"),
        ("empty dispatches", "{first_us:.1f} µs, then {further_us:.1f} each".format(**stamps) if stamps else ""),
        ("PyTorch", f"{pytorch['version']}, {pytorch['driver']}" if pytorch else "not timed"),
    ]
    table(["<", "<"], facts)


def operators(rows, types, ratio):
    head = ["<operator", "<layout", "<model"]
    for dtype in types:
        head += [f"{dtype}: of copy", "of limit", "<lowest", "PyTorch"]
    lines = []
    for (op, layout), of_types in kinds(rows):
        plain = next(iter(of_types.values()))[0]["models"][0]["times"]
        line = [op, layout, f"{plain}n"]
        for dtype in types:
            of_type = of_types.get(dtype, [])
            lowest = min(of_type, key=lambda row: at(row, row["models"][0]["times"]), default=None)
            line += [
                mean([at(row, row["models"][0]["times"]) for row in of_type]),
                mean([at(row, row.get("limit_times")) for row in of_type]),
                f"{at(lowest, lowest['models'][0]['times']):.2f}: {times(lowest['shape'])}" if lowest else "",
                mean([ratio(row) for row in of_type]),
            ]
        lines.append(line)
    table(head, lines)


def extremes(rows, types, ratio):
    head = ["<operator", "<layout"]
    for dtype in types:
        head += [f"<{dtype}: highest", "<lowest", "slower on"]
    lines = []
    for (op, layout), of_types in kinds(rows):
        line = [op, layout]
        for dtype in types:
            pairs = sorted((ratio(row), times(row["shape"])) for row in of_types.get(dtype, []) if ratio(row))
            ends = (pairs[-1], pairs[0]) if pairs else ()
            line += [f"{value:.2f}: {shape}" for value, shape in ends] or ["", ""]
            line.append(f"{sum(value < 1 for value, _ in pairs)} of {len(pairs)}" if pairs else "")
        lines.append(line)
    table(head, lines)


def small(rows, theirs):
    lines = []
    for row in rows:
        other = theirs(row)
        lines.append(
            [row["op"], times(row["shape"]), row["dtype"], row["data_format"] or "-", str(row["dispatches"])]
            + [f"{row['time_ms'] * 1e3:.1f}", str(row.get("repeats") or "")]
            + ([f"{other['time_ms'] * 1e3:.1f}", str(other.get("repeats") or "")] if other else ["", ""])
        )
    head = ["<operator", "<shape", "<type", "<layout", "dispatches", "µs", "repeats", "PyTorch, µs", "repeats"]
    table(head, lines)


def comparisons(folder):
    """For each case the median over the turns, and each side's speed relative to the first side's."""
    try:
        with open(os.path.join(folder, "sides.txt"), encoding="utf-8") as file:
            sides = [line.rstrip("\n").split("|") for line in file]
    except OSError:
        return
    print("## Comparisons\n\nMicroseconds, and in brackets how many times as fast as the first side.\n")
    for number in sorted({side[0] for side in sides}, key=int):
        of_number = [side for side in sides if side[0] == number]
        found, turns = {}, 0
        for _, side, *_ in of_number:
            files = glob.glob(os.path.join(folder, f"{number}-{side}-*.json"))
            results = [result for result in map(read, files) if result]
            turns = max(turns, len(results))
            for result in results:
                for row in result["results"]:
                    case = (row["op"], times(row["shape"]), row["dtype"], row["data_format"] or "-")
                    found.setdefault(case, {}).setdefault(side, []).append(row)
        names = [side[4].strip().removeprefix("@1 ") for side in of_number]
        print(f"### {of_number[0][2].strip()}\n\n`{of_number[0][3].strip()}`, turns: {turns}\n")
        lines = []
        for case, of_sides in found.items():
            line, first = list(case), None
            for _, side, *_ in of_number:
                rows = of_sides.get(side, [])
                if not rows:
                    line.append("")
                    continue
                time = statistics.median(row["time_ms"] for row in rows) * 1e3
                first = first or time
                line.append(f"{time:.1f}" if side == of_number[0][1] else f"{time:.1f} ({first / time:.2f})")
            lines.append(line)
        table(["<operator", "<shape", "<type", "<layout", *names], lines)


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    out = sys.argv[1]
    report = read(os.path.join(out, "report", "report.json"))
    if report:
        timed = {}
        for entry in (report.get("pytorch") or {}).get("results", []):
            timed[entry["op"], entry["shape"], entry["dtype"], entry["data_format"]] = entry

        def theirs(row):
            return timed.get((row["op"], row["shape"], row["dtype"], row["data_format"]))

        def ratio(row):
            return theirs(row)["time_ms"] / row["time_ms"] if theirs(row) else None

        rows = [row for row in report["results"] if row["set"] != "small"]
        types = [dtype for dtype in ("f32", "f16", "bf16") if any(row["dtype"] == dtype for row in rows)]
        environment(report)
        print("## All operators\n\nGeometric means over the shapes.\n")
        operators(rows, types, ratio)
        if timed:
            print("## Beside PyTorch\n\nPyTorch's time divided by this crate's.\n")
            extremes(rows, types, ratio)
        print("## Small shapes\n")
        small([row for row in report["results"] if row["set"] == "small"], theirs)
    comparisons(os.path.join(out, "compare"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
