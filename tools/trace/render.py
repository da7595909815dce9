#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""render: a stretch of a trace as a picture, from what `weft trace convert --to chrome` wrote.

    weft trace convert run.trace --to chrome -o run.json
    tools/trace/render.py run.json docs/trace-pingpong.png --from 1000 --length 40

Times are microseconds since the beginning of the trace; without --from, the middle. Needs Debian's python3-matplotlib.
"""

import argparse
import json
import os

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

COLOURS = {"send": "#4c78a8", "recv": "#59a14f", "cq": "#b8b0ac", "completion": "#e15759", "span": "#f2cf5b"}


def colour(name):
    if name.startswith("completion"):
        return COLOURS["completion"]
    if name.startswith("cq_"):
        return COLOURS["cq"]
    return COLOURS["recv" if "recv" in name.split()[0] else "send"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("picture")
    parser.add_argument("--from", dest="begin", type=float)
    parser.add_argument("--length", type=float, default=30)
    options = parser.parse_args()
    with open(options.trace) as file:
        events = json.load(file)["traceEvents"]
    times = [event["ts"] for event in events if "ts" in event]
    begin = options.begin if options.begin is not None else sorted(times)[len(times) // 2]
    for event in events:  # from here on, times are of the picture
        if "ts" in event:
            event["ts"] -= begin
    begin, end, since = 0.0, options.length, begin

    names = {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M" and event["name"] == "process_name"}
    rows = {}  # (pid, line) to height

    def row(pid, line):
        return rows.setdefault((pid, line), None)

    pids = sorted(names)
    slices = [e for e in events if e["ph"] == "X" and e["ts"] + e["dur"] >= begin and e["ts"] <= end]
    notes = [e for e in events if e["ph"] == "i" and begin <= e["ts"] <= end]
    spans = {}
    for event in events:
        if event["ph"] in "be" and event["cat"] == "span":
            spans.setdefault(event["id"], {})[event["ph"]] = event
    spans = [(s["b"], s["e"]) for s in spans.values() if "b" in s and "e" in s and s["e"]["ts"] >= begin and s["b"]["ts"] <= end]

    # The depth of a slice: how many others of its thread it lies within.
    slices.sort(key=lambda e: (e["pid"], e["tid"], e["ts"], -e["dur"]))
    stack, thread = [], None
    for event in slices:
        if (event["pid"], event["tid"]) != thread:
            stack, thread = [], (event["pid"], event["tid"])
        while stack and stack[-1] <= event["ts"] + 1e-9:
            stack.pop()
        event["depth"] = len(stack)
        stack.append(event["ts"] + event["dur"])
    for pid in pids:
        for name in sorted({b["name"] for b, _ in spans if b["pid"] == pid}):
            row(pid, name)
        for depth in range(1 + max((e["depth"] for e in slices if e["pid"] == pid), default=0)):
            row(pid, f"calls, depth {depth}")
    for height, key in enumerate(reversed(list(rows))):
        rows[key] = height

    figure, axes = pyplot.subplots(figsize=(14, 1.2 + 0.45 * len(rows)), dpi=110)
    for event in slices:
        y = rows[(event["pid"], f"calls, depth {event['depth']}")]
        width = max(event["dur"], options.length / 800)
        axes.barh(y, width, left=event["ts"], height=0.7, color=colour(event["name"]), edgecolor="white", linewidth=0.4)
        if width > options.length / 28:
            axes.text(event["ts"] + width / 2, y, event["name"].split()[0], ha="center", va="center", fontsize=6.5)
    for first, last in spans:
        y = rows[(first["pid"], first["name"])]
        axes.barh(y, last["ts"] - first["ts"], left=first["ts"], height=0.5, color=COLOURS["span"], edgecolor="#8a7a2a", linewidth=0.6)
    for event in notes:
        y = rows[(event["pid"], "calls, depth 0")]
        axes.plot(event["ts"], y, marker="v", markersize=4, color=COLOURS["completion"])
    starts = {e["id"]: e for e in events if e["ph"] == "s" and e["cat"] == "message"}
    for event in events:
        if event["ph"] != "f" or event["cat"] != "message" or event["id"] not in starts:
            continue
        start = starts[event["id"]]
        if start["ts"] < begin or event["ts"] > end:
            continue
        axes.annotate("", (event["ts"], rows[(event["pid"], "calls, depth 0")]),
                      (start["ts"], rows[(start["pid"], "calls, depth 0")]),
                      arrowprops={"arrowstyle": "->", "color": "#333333", "linewidth": 0.9})
    axes.set_xlim(begin, end)
    axes.set_yticks(list(rows.values()))
    axes.set_yticklabels([f"{os.path.basename(names[pid])} {pid}: {line}" for pid, line in rows], fontsize=7)
    axes.set_xlabel(f"microseconds, from {since:.0f} after the beginning of the trace on")
    axes.set_title("calls (blue: sends, green: receives, grey: reads), completions (red), post to completion (yellow), "
                   "messages (arrows)", fontsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(options.picture)


if __name__ == "__main__":
    main()
