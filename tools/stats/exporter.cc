// SPDX-License-Identifier: BSD-2-Clause
// weft-exporter: serves to Prometheus what plugins of processes count, and the hook profile, over
// HTTP on 127.0.0.1. It asks all processes and reads all segments again for each request.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "tools/stats/live.h"
#include "tools/stats/metrics_server.h"
#include "tools/stats/output.h"
#include "tools/weft/command_line.h"

namespace weft::stats {
namespace {

Result<std::string> metrics() {
  WEFT_TRY(const Live live, look(0));
  return prometheus(live.snapshots, live.counted);
}

Result<int> print_once() {
  WEFT_TRY(const Live live, look(0));
  std::fputs(prometheus(live.snapshots, live.counted).c_str(), stdout);
  if (!live.empty()) return cli::kExitOk;
  std::fputs("weft exporter: no process counts anything\n", stderr);
  return cli::kExitNo;
}

Result<int> serve(int wanted) {
  MetricsServer server(metrics);
  WEFT_TRY(const int port, server.listen(wanted));
  std::printf("http://127.0.0.1:%d/metrics\n", port);
  if (std::fflush(stdout) != 0)
    return fail(FI_EIO, "the address cannot be printed: %s", std::strerror(errno));
  WEFT_CHECK(server.serve());
  return cli::kExitOk;
}

int run(int argc, char **argv) {
  CLI::App app("Serves what processes on weft count to Prometheus, on 127.0.0.1.", "weft exporter");
  int port = 9798;
  bool once = false;
  app.add_option("--port", port, "of 127.0.0.1; 0: any free one [9798]")
      ->check(CLI::Range(0, 65535));
  app.add_flag("--once", once, "print the metrics, and end");
  return cli::run_command_line(
      app, [&] { return once ? print_once() : serve(port); }, argc, argv);
}

}  // namespace
}  // namespace weft::stats

int main(int argc, char **argv) {
  return weft::cli::run_program("weft exporter", weft::stats::run, argc, argv);
}
