// SPDX-License-Identifier: BSD-2-Clause
#include "tools/stats/commands.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>

#include "tools/stats/lines.h"
#include "tools/stats/live.h"
#include "tools/stats/output.h"
#include "tools/weft/text.h"

namespace weft::cli {
namespace {

using stats::Counted;
using stats::Line;
using stats::Live;
using stats::Snapshot;

void print_table(const std::vector<Line> &lines, bool rates) {
  if (lines.empty()) return;
  Table table({"PID", "PROGRAM", "ELEMENT", "OPERATION", "PEER", rates ? "CALLS/S" : "CALLS",
               rates ? "BYTES/S" : "BYTES", rates ? "AGAIN/S" : "AGAIN",
               rates ? "ERRORS/S" : "ERRORS", "P50", "P99"});
  for (const Line &line : lines) {
    table.add({std::to_string(line.pid), line.program, line.element, line.operation, line.peer,
               stats::short_number(line.calls), stats::short_number(line.bytes),
               stats::short_number(line.again), stats::short_number(line.errors),
               stats::duration_text(line.p50), stats::duration_text(line.p99)},
              line.errors > 0 ? Emphasis::kBad : Emphasis::kNone);
  }
  table.print();
}

// The counters of plugins; those that are 0 only if `zeros`.
void print_counted(const std::vector<Counted> &counted, bool zeros) {
  Table table({"PID", "PROGRAM", "STACK", "ELEMENT", "FABRIC", "COUNTER", "VALUE", "WHAT"});
  for (const Counted &one : counted) {
    if (one.value == 0 && !zeros) continue;
    table.add({std::to_string(one.pid), one.program, one.stack,
               one.hook.empty() ? one.element : "hook " + one.hook + " on " + one.element,
               std::to_string(one.fabric), one.name, std::to_string(one.value), one.what});
  }
  if (!table.empty()) table.print();
}

void print_rates(const std::vector<Counted> &counted, double seconds) {
  Table table({"PID", "PROGRAM", "STACK", "ELEMENT", "FABRIC", "COUNTER", "PER SECOND", "WHAT"});
  for (const Counted &one : counted) {
    table.add({std::to_string(one.pid), one.program, one.stack,
               one.hook.empty() ? one.element : "hook " + one.hook + " on " + one.element,
               std::to_string(one.fabric), one.name,
               stats::short_number(double(one.value) / seconds), one.what});
  }
  if (!table.empty()) table.print();
}

Json lines_json(const std::vector<Line> &lines) {
  Json json = Json::array();
  for (const Line &line : lines) {
    json.push_back({{"pid", line.pid},
                    {"program", line.program},
                    {"element", line.element},
                    {"operation", line.operation},
                    {"peer", line.peer},
                    {"calls", line.calls},
                    {"bytes", line.bytes},
                    {"again", line.again},
                    {"errors", line.errors},
                    {"p50_ns", line.p50 < 0 ? Json() : Json(line.p50)},
                    {"p99_ns", line.p99 < 0 ? Json() : Json(line.p99)}});
  }
  return json;
}

void print_totals(const Live &live, bool zeros) {
  const std::vector<Line> lines = stats::lines_of(live.snapshots, 1);
  print_table(lines, false);
  if (!lines.empty() && !live.counted.empty()) std::puts("");
  print_counted(live.counted, zeros);
  if (zeros || live.counted.empty()) return;
  if (std::all_of(live.counted.begin(), live.counted.end(),
                  [](const Counted &one) { return one.value == 0; }))
    std::puts("all counters of plugins are 0: --all shows them");
}

struct StatsOptions {
  uint64_t pid = 0;
  bool json = false;
  bool all = false;
};

// What there is to see of nothing.
void explain_nothing() {
  std::puts(
      "no process counts anything: none of yours has a fabric of weft open and tells others of it");
}

Result<int> stats_command(const StatsOptions &options) {
  WEFT_TRY(const Live live, stats::look(options.pid));
  if (options.json) {
    Json json = Json::array();
    for (const Snapshot &snapshot : live.snapshots) json.push_back(stats::to_json(snapshot));
    print_json({{"processes", std::move(json)}, {"counters", stats::to_json(live.counted)}});
  } else {
    if (live.empty()) explain_nothing();
    print_totals(live, options.all);
  }
  return live.empty() ? kExitNo : kExitOk;
}

struct TopOptions {
  uint64_t pid = 0;
  bool once = false;
  bool json = false;
  double interval = 1;
  uint64_t count = 0;
};

Result<int> top_command(const TopOptions &options) {
  if (options.once) {
    WEFT_TRY(const Live live, stats::look(options.pid));
    if (options.json) {
      print_json({{"lines", lines_json(stats::lines_of(live.snapshots, 1))},
                  {"counters", stats::to_json(live.counted)}});
    } else {
      if (live.empty()) explain_nothing();
      print_totals(live, false);
    }
    return live.empty() ? kExitNo : kExitOk;
  }
  const bool terminal = isatty(STDOUT_FILENO) != 0 && !options.json;
  using Clock = std::chrono::steady_clock;
  WEFT_TRY(Live before, stats::look(options.pid));
  auto at = Clock::now();
  for (uint64_t i = 0; options.count == 0 || i < options.count; ++i) {
    std::this_thread::sleep_for(std::chrono::duration<double>(options.interval));
    WEFT_TRY(Live now, stats::look(options.pid));
    const double seconds = std::chrono::duration<double>(Clock::now() - at).count();
    at = Clock::now();
    std::vector<Line> lines =
        stats::lines_of(stats::since(now.snapshots, before.snapshots), seconds);
    std::erase_if(lines, [](const Line &line) {
      return line.calls == 0 && line.again == 0 && line.errors == 0;
    });
    std::vector<Counted> counted = stats::since(now.counted, before.counted);
    std::erase_if(counted, [](const Counted &one) { return one.value == 0; });
    before = std::move(now);
    if (options.json) {
      print_json({{"seconds", seconds},
                  {"lines", lines_json(lines)},
                  {"counters", stats::to_json(counted)}});
    } else {
      if (terminal) std::fputs("\x1b[H\x1b[2J", stdout);
      if (before.empty()) explain_nothing();
      if (lines.empty() && counted.empty() && !before.empty()) std::puts("nothing happens");
      print_table(lines, true);
      if (!lines.empty() && !counted.empty()) std::puts("");
      print_rates(counted, seconds);
    }
    std::fflush(stdout);
    if (std::ferror(stdout) != 0) return kExitNo;  // the reader of the pipe is gone
  }
  return kExitOk;
}

}  // namespace

void add_stats(CLI::App &app, Action &action) {
  auto options = std::make_shared<StatsOptions>();
  CLI::App *command = app.add_subcommand(
      "stats", "Prints what plugins and the hook profile have counted in running processes.");
  command->add_option("PID", options->pid, "only this process")->check(CLI::Range(1, INT_MAX));
  command->add_flag("--all", options->all, "counters of plugins that are 0, too");
  command->add_flag("--json", options->json, "everything, with the histograms, as JSON");
  command->callback([&action, options] { action = [options] { return stats_command(*options); }; });
}

void add_top(CLI::App &app, Action &action) {
  auto options = std::make_shared<TopOptions>();
  CLI::App *command = app.add_subcommand("top", "Shows live what running processes count.");
  command->add_option("PID", options->pid, "only this process")->check(CLI::Range(1, INT_MAX));
  command->add_flag("--once", options->once, "print the totals once, and end");
  command->add_option("--interval", options->interval, "seconds between two looks [1]")
      ->check(CLI::Range(0.01, 3600.0));
  command->add_option("--count", options->count, "end after so many looks; 0: never [0]");
  command->add_flag("--json", options->json, "a JSON object for each look");
  command->callback([&action, options] { action = [options] { return top_command(*options); }; });
}

}  // namespace weft::cli
