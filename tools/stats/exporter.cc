// SPDX-License-Identifier: BSD-2-Clause
// weft-exporter: serves to Prometheus what plugins of processes count, and the hook profile, over
// HTTP on 127.0.0.1. It asks all processes and reads all segments again for each request.
#include <absl/time/time.h>
#include <httplib.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "tools/stats/live.h"
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

// A slow or silent client is given up after this.
const absl::Duration kClientPatience = absl::Seconds(5);

Result<int> serve(int wanted) {
  httplib::Server server;
  // Few threads and short timeouts: a slow or silent client cannot block it for long.
  server.new_task_queue = [] { return new httplib::ThreadPool(4); };
  // The library's default would share the port with other processes.
  server.set_socket_options([](int fd) {
    const int yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  server.set_payload_max_length(0);
  server.set_read_timeout(absl::ToChronoSeconds(kClientPatience));
  server.set_write_timeout(absl::ToChronoSeconds(kClientPatience));
  server.set_keep_alive_timeout(absl::ToInt64Seconds(kClientPatience));
  server.Get("/metrics", [](const httplib::Request &, httplib::Response &response) {
    const Result<std::string> text = metrics();
    if (text) {
      response.set_content(*text, "text/plain; version=0.0.4; charset=utf-8");
    } else {
      response.status = 500;
      response.set_content(text.error().text + "\n", "text/plain");
    }
  });
  server.Get("/", [](const httplib::Request &, httplib::Response &response) {
    response.set_content("weft-exporter: see /metrics\n", "text/plain");
  });
  int port = wanted;
  if (wanted == 0)
    port = server.bind_to_any_port("127.0.0.1");
  else if (!server.bind_to_port("127.0.0.1", wanted))
    port = -1;
  if (port < 0)
    return fail(FI_EADDRINUSE, "port %d of 127.0.0.1 is not to be had: choose another with --port",
                wanted);
  std::printf("http://127.0.0.1:%d/metrics\n", port);
  if (std::fflush(stdout) != 0)
    return fail(FI_EIO, "the address cannot be printed: %s", std::strerror(errno));
  if (!server.listen_after_bind())
    return fail(FI_EIO, "port %d of 127.0.0.1 takes no more requests", port);
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
