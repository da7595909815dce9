// SPDX-License-Identifier: BSD-2-Clause
// weft-top: shows live what running processes count. Users write `weft top`. It reads segments and
// asks processes: it loads no libfabric.
#include <unistd.h>

#include <chrono>
#include <climits>
#include <cstdio>
#include <thread>
#include <utility>

#include "tools/stats/live.h"
#include "tools/stats/output.h"
#include "tools/stats/tables.h"
#include "tools/weft/command_line.h"
#include "tools/weft/text.h"

namespace weft::stats {
namespace {

struct Options {
  uint64_t pid = 0;
  bool once = false;
  bool json = false;
  double interval = 1;
  uint64_t count = 0;
};

Result<int> show(const Options &options) {
  if (options.once) {
    WEFT_TRY(const Live live, look(options.pid));
    if (options.json) {
      cli::print_json(
          {{"lines", to_json(lines_of(live.snapshots, 1))}, {"counters", to_json(live.counted)}});
    } else {
      if (live.empty()) explain_nothing();
      print_totals(live, false);
    }
    return live.empty() ? cli::kExitNo : cli::kExitOk;
  }
  const bool terminal = isatty(STDOUT_FILENO) != 0 && !options.json;
  using Clock = std::chrono::steady_clock;
  WEFT_TRY(Live before, look(options.pid));
  auto at = Clock::now();
  for (uint64_t i = 0; options.count == 0 || i < options.count; ++i) {
    std::this_thread::sleep_for(std::chrono::duration<double>(options.interval));
    WEFT_TRY(Live now, look(options.pid));
    const double seconds = std::chrono::duration<double>(Clock::now() - at).count();
    at = Clock::now();
    std::vector<Line> lines = lines_of(since(now.snapshots, before.snapshots), seconds);
    std::erase_if(lines, [](const Line &line) {
      return line.calls == 0 && line.again == 0 && line.errors == 0;
    });
    std::vector<Counted> counted = since(now.counted, before.counted);
    std::erase_if(counted, [](const Counted &one) { return one.value == 0; });
    before = std::move(now);
    if (options.json) {
      cli::print_json(
          {{"seconds", seconds}, {"lines", to_json(lines)}, {"counters", to_json(counted)}});
    } else {
      if (terminal) std::fputs("\x1b[H\x1b[2J", stdout);
      if (before.empty()) explain_nothing();
      if (lines.empty() && counted.empty() && !before.empty()) std::puts("nothing happens");
      print_table(lines, true);
      if (!lines.empty() && !counted.empty()) std::puts("");
      print_rates(counted, seconds);
    }
    std::fflush(stdout);
    if (std::ferror(stdout) != 0) return cli::kExitNo;  // the reader of the pipe is gone
  }
  return cli::kExitOk;
}

int run(int argc, char **argv) {
  CLI::App app("Shows live what running processes count.", "weft top");
  Options options;
  app.add_option("PID", options.pid, "only this process")->check(CLI::Range(1, INT_MAX));
  app.add_flag("--once", options.once, "print the totals once, and end");
  app.add_option("--interval", options.interval, "seconds between two looks [1]")
      ->check(CLI::Range(0.01, 3600.0));
  app.add_option("--count", options.count, "end after so many looks; 0: never [0]");
  app.add_flag("--json", options.json, "a JSON object for each look");
  return cli::run_command_line(
      app, [&] { return show(options); }, argc, argv);
}

}  // namespace
}  // namespace weft::stats

int main(int argc, char **argv) {
  return weft::cli::run_program("weft top", weft::stats::run, argc, argv);
}
