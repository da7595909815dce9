// SPDX-License-Identifier: BSD-2-Clause
// weft-stats: prints what plugins and the hook profile have counted in running processes. Users
// write `weft stats`. It reads segments and asks processes: it loads no libfabric.
#include <climits>
#include <cstdio>
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
  bool json = false;
  bool all = false;
};

Result<int> show(const Options &options) {
  WEFT_TRY(const Live live, look(options.pid));
  if (options.json) {
    cli::Json json = cli::Json::array();
    for (const Snapshot &snapshot : live.snapshots) json.push_back(to_json(snapshot));
    cli::print_json({{"processes", std::move(json)}, {"counters", to_json(live.counted)}});
  } else {
    if (live.empty()) explain_nothing();
    print_totals(live, options.all);
  }
  return live.empty() ? cli::kExitNo : cli::kExitOk;
}

int run(int argc, char **argv) {
  CLI::App app("Prints what plugins and the hook profile have counted in running processes.",
               "weft stats");
  Options options;
  app.add_option("PID", options.pid, "only this process")->check(CLI::Range(1, INT_MAX));
  app.add_flag("--all", options.all, "counters of plugins that are 0, too");
  app.add_flag("--json", options.json, "everything, with the histograms, as JSON");
  return cli::run_command_line(
      app, [&] { return show(options); }, argc, argv);
}

}  // namespace
}  // namespace weft::stats

int main(int argc, char **argv) {
  return weft::cli::run_program("weft stats", weft::stats::run, argc, argv);
}
