// SPDX-License-Identifier: BSD-2-Clause
//
// weft-bench: latency, bandwidth, message rate, RMA, start-up time and memory of a libfabric, or of
// a plain TCP or UDP socket that does the same work. It uses the public C API only, so the library
// under test is the libfabric.so.1 that the loader finds (LD_LIBRARY_PATH); its path is printed.
// bench/README.md explains the measurements, `weft-bench --help` the options.

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench.h"
#include "bench_options.h"
#include "client.h"
#include "control.h"
#include "cpus.h"
#include "distance.h"
#include "local_peer.h"
#include "server.h"
#include "startup.h"

namespace weft::bench {
namespace {

using nlohmann::json;

const char *g_name = "weft-bench";  // Before error messages: with --local both sides print.

void run_startup(const Options &options, json *report) {
  // With --raw it is the same program without libfabric.
  const std::string probe =
      beside_this_program(options.raw ? "weft-bench-floor" : "weft-bench-startup");
  StartupResult result =
      measure_startup(probe, options.fabric.provider, options.repeat, options.timeout);
  const auto us = [&](double f) { return static_cast<double>(result.ns.percentile(f)) / 1e3; };
  std::error_code error;
  std::string library = std::filesystem::canonical(result.library, error);
  if (error) library = result.library;
  (*report)["results"].push_back(
      {{"test", "startup"},
       {"iterations", options.repeat},
       {"value", us(0.5)},
       {"unit", "us"},
       {"better", "lower"},
       {"library", library},
       {"us", {{"min", us(0)}, {"p50", us(0.5)}, {"p99", us(0.99)}, {"max", us(1)}}}});
  if (!options.raw) expect_library(options.expect_library, library);
  if (!options.raw && !report->contains("library")) (*report)["library"] = {{"path", library}};
  absl::PrintF("\nstartup: from exec to the first fi_getinfo result, FI_PROVIDER=%s\nlibrary: %s\n",
               options.fabric.provider, library);
  absl::PrintF("%9s %10s %10s %10s\n", "runs", "min us", "p50 us", "p99 us");
  absl::PrintF("%9u %10.1f %10.1f %10.1f\n", options.repeat, us(0), us(0.5), us(0.99));
  fflush(stdout);
}

int run_server_mode(const Options &options) {
  pin_to(options.cpu);
  std::optional<SharedLine> line;
  if (options.line_fd >= 0) line.emplace(Fd(options.line_fd));
  Fd listener = options.listen_fd >= 0 ? Fd(options.listen_fd) : listen("", options.port);
  if (options.listen_fd < 0) {
    fcntl(listener.get(), F_SETFD, FD_CLOEXEC);
    absl::PrintF("weft-bench: waiting for a client on port %u\n", local_port(listener.get()));
    fflush(stdout);
  }
  for (;;) {
    // A server that a user started waits without a limit.
    const double patience = options.listen_fd >= 0 ? options.timeout : 1e8;
    Fd connection = accept_one(listener.get(), patience);
    try {
      Server(std::move(connection), options.timeout, line ? &*line : nullptr).serve();
    } catch (const std::exception &failure) {
      if (!options.keep) throw;
      absl::FPrintF(stderr, "%s: %s\n", g_name, failure.what());
    }
    if (!options.keep) return 0;
  }
}

void run_client_mode(const Options &options, const Selection &selection, json *report) {
  std::vector<int> cpus = options.cpus.empty() ? choose_cpus() : parse_cpus(options.cpus);
  if (!options.local) {
    cpus.assign(2, options.cpu);
  } else if (cpus.empty()) {
    absl::FPrintF(stderr,
                  "weft-bench: warning: only one CPU is available; both sides spin on it and every "
                  "latency is the scheduler's\n");
    cpus.assign(2, -1);
  }
  (*report)["cpus"] = cpus;
  if (selection.startup) {
    pin_to(cpus[0]);
    run_startup(options, report);
  }
  if (selection.tests.empty() && !selection.memory) return;

  // Not for two sides that share a CPU: they would wait for each other's time slices.
  std::optional<SharedLine> line;
  if (options.local && cpus[0] != cpus[1]) line.emplace();
  SharedLine *const shared = line ? &*line : nullptr;
  std::optional<LocalPeer> peer;
  if (options.local) peer.emplace(options, cpus[1], shared);
  std::optional<Client> client;
  try {
    client.emplace(dial(options.local ? "127.0.0.1" : options.host,
                        options.local ? peer->port() : options.port, options.timeout),
                   options, shared);
    pin_to(cpus[0]);
    client->run_tests(selection.tests, report);
    if (selection.memory) client->run_memory(report);
    client->quit();
  } catch (const std::exception &failure) {
    if (client) client->tell_peer(failure.what());
    const std::string fate = peer ? peer->fate(1.0) : "";
    throw Error(absl::StrCat(failure.what(), fate.empty() ? "" : "; ", fate));
  }
  if (peer) {
    const std::string fate = peer->fate(10.0);
    if (!fate.empty()) fail("%s after the last measurement", fate);
  }
}

// The file of --json, opened before the first measurement. With "-" the report goes to stdout, and
// all other output to stderr.
class ReportFile {
 public:
  explicit ReportFile(const std::string &name) : name_(name) {
    if (name == "-") {
      out_ = dup(STDOUT_FILENO);
      dup2(STDERR_FILENO, STDOUT_FILENO);
    } else if (!name.empty()) {
      file_.open(name);
      if (!file_) fail("cannot write to %s: %s", name, strerror(errno));
    }
  }

  void write(const std::string &text) {
    if (out_ >= 0) {
      fflush(stdout);
      dup2(out_, STDOUT_FILENO);
      fputs(text.c_str(), stdout);
      if (fflush(stdout) != 0) fail("cannot write the results: %s", strerror(errno));
    } else if (!name_.empty()) {
      file_ << text;
      file_.close();
      if (!file_) fail("cannot write the results to %s", name_);
    }
  }

 private:
  const std::string &name_;
  int out_ = -1;
  std::ofstream file_;
};

int run_main(int argc, char **argv) {
  Options options;
  CLI::App app(
      "Measures a libfabric (the one that the loader finds: set LD_LIBRARY_PATH), or a raw TCP\n"
      "or UDP socket doing the same work.\n\n"
      "  weft-bench --local                      both sides on this host, each pinned to a core\n"
      "  weft-bench --server; weft-bench HOST    two hosts\n");
  add_options(app, options);
  CLI11_PARSE(app, argc, argv);

  options.fabric.rdm = options.endpoint == "rdm";
  if (options.raw_udp) options.raw = true;
  if (options.server + options.local + !options.host.empty() != 1) {
    fail("say exactly one of --server, --local and a HOST (--help shows the options)");
  }
  signal(SIGPIPE, SIG_IGN);
  if (options.server) {
    g_name = "weft-bench (server)";
    return run_server_mode(options);
  }

  if (options.tests == "all") {
    options.tests = "lat,bw,rate,write_lat,write_bw,read_lat,read_bw,startup";
    if (!options.raw && !options.fabric.rdm) options.tests += ",memory";
  }
  const Selection selection = select_tests(options);
  json report = {{"program", "weft-bench"},
                 {"format", 1},
                 {"transport", options.raw_udp ? "raw-udp"
                               : options.raw   ? "raw"
                                               : "fabric"},
                 {"endpoint", options.endpoint},
                 {"tagged", options.fabric.tagged},
                 {"check", options.check},
                 {"results", json::array()}};
  ReportFile file(options.json_file);
  if (options.raw) absl::PrintF("raw %s socket\n", options.raw_udp ? "UDP" : "TCP");
  run_client_mode(options, selection, &report);
  file.write(report.dump(2) + "\n");
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char **argv) {
  try {
    return weft::bench::run_main(argc, argv);
  } catch (const std::exception &failure) {
    absl::FPrintF(stderr, "%s: %s\n", weft::bench::g_name, failure.what());
    return 1;
  }
}
