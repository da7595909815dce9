// SPDX-License-Identifier: BSD-2-Clause
//
// weft-mpi-collectives: the same operations as weft-collectives, by an MPI, which mpirun starts.
// The algorithms are the MPI's; `bench/compare` sees to it that its messages go over libfabric, and
// this program says which file that was. It fails if Open MPI has loaded another transport.

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench.h"
#include "collective_work.h"
#include "timed_sizes.h"

namespace weft::bench {
namespace {

using nlohmann::json;

// What rank 0 tells the others.
struct Order {
  enum What : uint64_t { kEnd, kCheck, kRun } what = kEnd;
  uint64_t size = 0, iterations = 0;
};

class Rank {
 public:
  Rank(Collective test, size_t largest) : test_(test), work_(me(), ranks(), largest) {}
  static uint32_t me() { return ask(MPI_Comm_rank); }
  static uint32_t ranks() { return ask(MPI_Comm_size); }

  // Seconds of the slowest rank; the same call at all of them.
  double obey(const Order &order) {
    if (order.what == Order::kCheck) {
      work_.prepare(test_, order.size);
      call(0);
      work_.check_call();
      return 0;
    }
    const uint64_t start = now_ns();
    for (uint64_t i = 0; i < order.iterations; ++i) call(i);
    double seconds = static_cast<double>(now_ns() - start) / 1e9, slowest = 0;
    MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
  }
  double command(Order order) {
    MPI_Bcast(&order, sizeof order, MPI_BYTE, 0, MPI_COMM_WORLD);
    return order.what == Order::kEnd ? 0 : obey(order);
  }
  void serve() {
    for (;;) {
      Order order;
      MPI_Bcast(&order, sizeof order, MPI_BYTE, 0, MPI_COMM_WORLD);
      if (order.what == Order::kEnd) return;
      obey(order);
    }
  }

 private:
  static uint32_t ask(int (*ask)(MPI_Comm, int *)) {
    int value = 0;
    ask(MPI_COMM_WORLD, &value);
    return static_cast<uint32_t>(value);
  }
  void call(uint64_t iteration) {
    const int count = static_cast<int>(work_.count());
    switch (test_) {
      case Collective::kBarrier:
        MPI_Barrier(MPI_COMM_WORLD);
        return;
      case Collective::kBroadcast:
      case Collective::kBroadcastOneRoot:
        MPI_Bcast(work_.result(), count, MPI_DOUBLE, static_cast<int>(work_.root(iteration)),
                  MPI_COMM_WORLD);
        return;
      case Collective::kAllreduce:
        MPI_Allreduce(work_.operand(), work_.result(), count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        return;
      default:
        MPI_Alltoall(work_.operand(), count, MPI_DOUBLE, work_.result(), count, MPI_DOUBLE,
                     MPI_COMM_WORLD);
    }
  }

  const Collective test_;
  CollectiveWork work_;
};

// The one libfabric that this process has mapped.
json mapped_library() {
  std::set<std::string> paths;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t at = line.find('/');
    if (at != std::string::npos) paths.insert(line.substr(at));
  }
  json library;
  for (const std::string &path : paths) {
    for (const char *other : {"/mca_btl_vader", "/mca_btl_tcp", "/mca_btl_sm", "/mca_pml_ob1",
                              "/mca_pml_ucx", "/mca_coll_sm", "/mca_coll_han", "/mca_coll_hcoll"})
      if (absl::StrContains(path, absl::StrCat(other, ".so")))
        fail("Open MPI has loaded %s, which is not to be measured", path);
    if (!absl::StrContains(path, "/libfabric.so")) continue;
    if (!library.is_null()) fail("%s and %s are loaded", library.at("path").dump(), path);
    uint32_t (*version)() = nullptr;
    if (void *const handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD))
      version = reinterpret_cast<uint32_t (*)()>(dlsym(handle, "fi_version"));
    if (version == nullptr) fail("%s is no libfabric", path);
    library = {{"path", path}, {"version", absl::StrCat(version() >> 16, ".", version() & 0xffff)}};
  }
  if (library.is_null()) fail("no libfabric is loaded: say mpirun --mca pml cm --mca mtl ofi");
  return library;
}

int run_main(int argc, char **argv) {
  std::string test = "allreduce", size_list = "8,1024,65536", json_file;
  double seconds = 0.2, timeout = 60;
  CLI::App app("The collective operations of an MPI; start it by mpirun, over libfabric.\n");
  app.option_defaults()->always_capture_default();
  app.add_option("-t,--test", test, "The operation")->check(CLI::IsMember(collective_names()));
  app.add_option("-S,--sizes", size_list,
                 "Comma list of bytes: of an operation, for alltoall of one slice");
  app.add_option("--seconds", seconds, "Time per size")->check(CLI::Range(0.001, 60.0));
  app.add_option("--timeout", timeout, "Seconds that any one size may take");
  app.add_option("--json", json_file, "Write the figures to this file as JSON");
  CLI11_PARSE(app, argc, argv);
  const std::vector<size_t> sizes = parse_sizes(size_list, 0);

  take_cpu(Rank::me());
  Rank rank(collective_named(test), *std::max_element(sizes.begin(), sizes.end()));
  const json library = mapped_library();
  // All ranks have the same one.
  char path[512] = {}, first[512] = {};
  strncpy(path, library.at("path").get<std::string>().c_str(), sizeof path - 1);
  memcpy(first, path, sizeof path);
  MPI_Bcast(first, sizeof first, MPI_BYTE, 0, MPI_COMM_WORLD);
  if (strcmp(path, first) != 0) fail("a rank has loaded %s, rank 0 %s", path, first);
  if (Rank::me() != 0) {
    rank.serve();
    return 0;
  }
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(version, &length);
  const std::string mpi = std::string(version).substr(0, std::string(version).find(','));
  absl::PrintF("library: %s\n%s, %u ranks, %s\n", path, mpi, Rank::ranks(), test);
  json report = {{"program", "weft-mpi-collectives"},
                 {"format", 1},
                 {"mpi", mpi},
                 {"ranks", Rank::ranks()},
                 {"library", library},
                 {"peer_library", library}};
  std::optional<size_t> checked;
  report["results"] = timed_sizes(
      {.test = test, .sizes = sizes, .seconds = seconds}, [&](size_t size, uint64_t iterations) {
        alarm(static_cast<unsigned>(timeout) + 1);  // a rank that waits in vain ends
        if (checked != size) rank.command({.what = Order::kCheck, .size = size});
        checked = size;
        return rank.command({.what = Order::kRun, .iterations = iterations});
      });
  rank.command({});
  if (json_file.empty()) return 0;
  std::ofstream file(json_file);
  file << report.dump(2) << "\n";
  file.close();
  if (!file) fail("cannot write the results to %s", json_file);
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char **argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // nothing is left of a run whose mpirun was killed
  MPI_Init(&argc, &argv);
  try {
    const int status = weft::bench::run_main(argc, argv);
    MPI_Finalize();
    return status;
  } catch (const std::exception &failure) {
    absl::FPrintF(stderr, "weft-mpi-collectives: %s\n", failure.what());
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return 1;
}
