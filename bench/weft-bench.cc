// SPDX-License-Identifier: BSD-2-Clause
//
// weft-bench: latency, bandwidth, message rate, RMA, start-up time and memory of a libfabric, or of
// a plain TCP socket doing the same work. It speaks only the public C API, so the library under
// test is whichever libfabric.so.1 the loader finds (LD_LIBRARY_PATH); it prints which one that
// was. See bench/README.md for what is measured and `weft-bench --help` for the options.

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench.h"
#include "control.h"
#include "distance.h"
#include "fabric.h"
#include "memory.h"
#include "patterns.h"
#include "raw.h"
#include "raw_udp.h"
#include "startup.h"

namespace weft::bench {
namespace {

using nlohmann::json;

constexpr int kProtocol = 1;  // Of the control connection: both sides must be the same program.
constexpr size_t kMaxSize = 1u << 30;
constexpr uint32_t kOverlapWindow = 8;

const char *g_name = "weft-bench";  // In front of error messages: with --local two sides print.

struct Options {
  std::string host;
  bool server = false;
  bool local = false;
  bool keep = false;
  bool raw = false;      // a socket, not a libfabric
  bool raw_udp = false;  // of UDP
  FabricOptions fabric;
  std::string endpoint = "msg";
  std::string tests = "lat,bw,rate";
  std::string sizes;
  uint64_t iterations = 0;
  double seconds = 0.3;
  uint32_t window = 64;
  uint32_t ack_every = 0;
  uint32_t in_flight_mib = 16;
  bool check = false;
  bool more = false;
  bool inject = false;
  uint16_t port = 47747;
  int listen_fd = -1, line_fd = -1;
  int cpu = -1;
  std::string cpus;
  double timeout = 60;
  std::string json_file;
  uint32_t endpoints = 1000;
  uint32_t repeat = 200;
  std::string server_library_path;
  std::string expect_library;
};

// --- Files ---------------------------------------------------------------------------------------

std::string BesideThisProgram(const char *name) {
  char *self = realpath("/proc/self/exe", nullptr);
  if (self == nullptr) Fail("cannot read /proc/self/exe: %s", strerror(errno));
  std::string path = self;
  free(self);
  path.erase(path.rfind('/') + 1);
  return path + name;
}

// --- Text ---------------------------------------------------------------------------------------

std::vector<std::string> Split(const std::string &text) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

size_t ParseSize(const std::string &text) {
  char *end = nullptr;
  errno = 0;
  const unsigned long long number = strtoull(text.c_str(), &end, 10);
  unsigned shift = 0;
  if (*end == 'K' || *end == 'k') shift = 10;
  if (*end == 'M' || *end == 'm') shift = 20;
  const bool suffix_ok = shift != 0 ? end[1] == '\0' : *end == '\0';
  if (text.empty() || text[0] < '0' || text[0] > '9' || !suffix_ok || errno != 0 || number == 0 ||
      number > (kMaxSize >> shift)) {
    Fail("size '%s' is not a number from 1 to 1024M (suffixes K and M mean 1024 and 1048576)",
         text.c_str());
  }
  return static_cast<size_t>(number) << shift;
}

std::vector<size_t> ParseSizes(const std::string &text, Test test) {
  std::vector<size_t> sizes;
  if (text.empty() && (test == Test::kRate || test == Test::kOverlap)) return {64};
  if (text.empty() || text == "all") {
    for (size_t size = 1; size <= (4u << 20); size *= 2) sizes.push_back(size);
    return sizes;
  }
  for (const std::string &part : Split(text)) sizes.push_back(ParseSize(part));
  if (test == Test::kOverlap && std::ranges::any_of(sizes, [](size_t size) { return size < 8; })) {
    Fail("overlap wants messages of at least 8 bytes, for the time in them");
  }
  if (sizes.empty()) Fail("--sizes names no size");
  return sizes;
}

std::vector<int> ParseCpus(const std::string &text) {
  std::vector<int> cpus;
  for (const std::string &part : Split(text)) {
    char *end = nullptr;
    const long cpu = strtol(part.c_str(), &end, 10);
    if (*end != '\0' || cpu < 0 || cpu >= CPU_SETSIZE) {
      Fail("--cpus: '%s' is not a CPU number", part.c_str());
    }
    cpus.push_back(static_cast<int>(cpu));
  }
  if (cpus.size() != 2) Fail("--cpus wants two CPU numbers, client and server, such as 0,1");
  return cpus;
}

// --- Processors ---------------------------------------------------------------------------------

void PinTo(int cpu) {
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) {
    Fail("cannot pin to CPU %d: %s (taskset -p $$ shows the allowed ones)", cpu, strerror(errno));
  }
}

// The first CPU of the core that `cpu` is a thread of.
int CoreOf(int cpu) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                     "/topology/thread_siblings_list");
  int first = cpu;
  file >> first;
  return first;
}

// Two CPUs of different cores if the process may use such; empty if it may use only one.
std::vector<int> ChooseCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {};
  std::vector<int> allowed;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) allowed.push_back(cpu);
  }
  for (int cpu : allowed) {
    if (CoreOf(cpu) != CoreOf(allowed[0])) return {allowed[0], cpu};
  }
  if (allowed.size() >= 2) return {allowed[0], allowed[1]};
  return {};
}

// How long this thread has stood in the queue for its CPU, in nanoseconds: a side that spins and is
// waited_ns measures the other load of the machine. 0 where the kernel does not say.
uint64_t WaitedNs() {
  std::ifstream file("/proc/thread-self/schedstat");
  uint64_t running = 0, waiting = 0;
  file >> running >> waiting;
  return file ? waiting : 0;
}

// --- What travels on the control connection -----------------------------------------------------

json ToJson(const Spec &spec) {
  return {{"test", TestName(spec.test)},
          {"size", spec.size},
          {"window", spec.window},
          {"ack_every", spec.ack_every},
          {"iterations", spec.iterations},
          {"check", spec.check},
          {"more", spec.more},
          {"inject", spec.inject}};
}

Spec SpecFromJson(const json &j) {
  Spec spec;
  if (!ParseTest(j.value("test", ""), &spec.test)) Fail("the peer asks for an unknown test");
  spec.size = j.value("size", size_t{0});
  spec.window = j.value("window", 0u);
  spec.ack_every = j.value("ack_every", 0u);
  spec.iterations = j.value("iterations", uint64_t{0});
  spec.check = j.value("check", false);
  spec.more = j.value("more", false);
  spec.inject = j.value("inject", false);
  if (spec.size == 0 || spec.size > kMaxSize || spec.window == 0 || spec.window > 1024 ||
      spec.ack_every == 0 || spec.window % spec.ack_every != 0 || spec.iterations == 0) {
    Fail("the peer asks for an impossible measurement: %s", j.dump().c_str());
  }
  return spec;
}

json ToJson(const FabricOptions &options) {
  return {{"provider", options.provider}, {"domain", options.domain},
          {"rdm", options.rdm},           {"tagged", options.tagged},
          {"rma", options.rma},           {"split_cq", options.split_cq}};
}

FabricOptions FabricFromJson(const json &j) {
  FabricOptions options;
  options.provider = j.value("provider", "");
  // A domain names an interface of one host; the server finds its own by address.
  options.rdm = j.value("rdm", false);
  options.tagged = j.value("tagged", false);
  options.rma = j.value("rma", false);
  options.split_cq = j.value("split_cq", false);
  return options;
}

json ToJson(const Library &library) {
  return {{"path", library.path}, {"version", library.version}};
}

json ToJson(const MemoryResult &r) {
  return {{"before_bytes", r.before_bytes},
          {"after_bytes", r.after_bytes},
          {"per_endpoint_bytes", r.per_endpoint},
          {"connect_us", r.connect_us}};
}

// --- One side of one measurement ----------------------------------------------------------------

// The transport in use, fabric or socket, and the buffers. Members are destroyed in reverse order:
// the registration of the buffers ends before the buffers do.
struct Engine {
  std::unique_ptr<Arena> arena;
  std::unique_ptr<FabricTransport> fabric;
  std::unique_ptr<RawTransport> raw;
  std::unique_ptr<RawUdpTransport> raw_udp;

  Arena &ArenaFor(const Spec &spec) {
    if (arena && arena->Fits(spec)) {
      arena->Reset();
      return *arena;
    }
    if (fabric) fabric->End();
    arena.reset();
    arena = std::make_unique<Arena>(spec);
    return *arena;
  }

  void Close() {
    fabric.reset();
    raw.reset();
    raw_udp.reset();
    arena.reset();
  }
};

// Drives progress until the peer's next line is there, and returns it: under manual progress, what
// the library still holds back (an injected message, an acknowledgement) moves only while somebody
// calls.
json ReceiveInProgress(Engine &engine, Control &control, Watch &watch, double timeout) {
  watch.Start("waiting for the peer to finish", timeout);
  while (!control.Readable()) {
    for (int i = 0; i < 64 && engine.fabric; ++i) engine.fabric->Progress();
    watch.CheckDeadline();
  }
  return control.Receive(timeout);
}

// --- Server -------------------------------------------------------------------------------------

class Server {
 public:
  Server(Fd connection, double timeout, SharedLine *line)
      : control_(std::move(connection)), watch_(&control_), timeout_(timeout), line_(line) {}

  void Serve() {
    try {
      json request;
      // The client decides how long it stays silent between two measurements.
      while (control_.Receive(24 * 3600, &request)) {
        if (!Handle(request)) return;
      }
      Fail("the peer is gone: it closed the control connection (did it crash?)");
    } catch (const std::exception &failure) {
      // The peer waits for an answer; if it is the peer that is gone, that fails too.
      try {
        control_.Send({{"error", failure.what()}});
      } catch (const Error &) {
      }
      throw;
    }
  }

 private:
  bool Handle(const json &request) {
    const std::string what = request.value("do", "");
    if (what == "quit") {
      control_.Send({{"ok", true}});
      return false;
    }
    if (request.value("protocol", kProtocol) != kProtocol) {
      Fail("the peer is another version of weft-bench");
    }
    if (request.contains("timeout")) timeout_ = request.value("timeout", timeout_);
    if (what == "open") {
      Open(request);
    } else if (what == "memory") {
      Memory(request);
    } else if (what == "run") {
      Run(SpecFromJson(request), request);
    } else if (what == "distance" && line_ != nullptr) {
      line_->Answer(timeout_);
    } else {
      Fail("the peer asks for '%s', which this weft-bench does not know", what.c_str());
    }
    return true;
  }

  void Open(const json &request) {
    engine_.Close();
    watch_.Start("opening the connection", timeout_);
    if (request.value("raw_udp", false)) {
      const std::string host = LocalHost(control_.fd());
      engine_.raw_udp = std::make_unique<RawUdpTransport>(host, &watch_);
      control_.Send({{"port", engine_.raw_udp->port()}, {"host", host}});
      const json theirs = control_.Receive(timeout_);
      engine_.raw_udp->Connect(theirs.value("host", ""), theirs.value("port", uint16_t{0}));
      control_.Send({{"ok", true}});
      return;
    }
    if (request.value("raw", false)) {
      const std::string host = LocalHost(control_.fd());
      Fd listener = Listen(host, 0);
      control_.Send({{"port", LocalPort(listener.get())}, {"host", host}});
      engine_.raw = std::make_unique<RawTransport>(AcceptOne(listener.get(), timeout_), &watch_);
      control_.Send({{"ok", true}});
      return;
    }
    const FabricOptions options = FabricFromJson(request.at("fabric"));
    engine_.fabric = std::make_unique<FabricTransport>(options, &watch_);
    const std::string address = engine_.fabric->Listen(LocalHost(control_.fd()));
    control_.Send({{"address", address}, {"library", ToJson(LoadedLibrary())}});
    if (options.rdm) {
      engine_.fabric->AddPeer(control_.Receive(timeout_).value("address", ""));
    } else {
      engine_.fabric->Accept();
    }
    control_.Send({{"ok", true}});
  }

  void Memory(const json &request) {
    engine_.Close();
    const auto count = request.value("count", 0u);
    NeedFiles(count);
    FabricNode node(FabricFromJson(request.at("fabric")), &watch_);
    watch_.Start("opening idle connections", timeout_);
    const std::string address = node.Listen(LocalHost(control_.fd()));
    control_.Send({{"address", address}, {"library", ToJson(LoadedLibrary())}});
    const ConnectionHolder held = AcceptConnections(node, count);
    control_.Send({{"memory", ToJson(held.result)}});
    // Both sides keep their connections until both have looked at their memory.
    control_.Receive(timeout_);
  }

  void Run(const Spec &spec, const json &request) {
    watch_.Start(TestName(spec.test), timeout_);
    Arena &arena = engine_.ArenaFor(spec);
    json ready = {{"ok", true}};
    const uint64_t before = WaitedNs();
    if (engine_.fabric) {
      FabricTransport &t = *engine_.fabric;
      t.Begin(arena, spec);
      t.SetPeerMemory(request.value("rma_address", uint64_t{0}),
                      request.value("rma_key", uint64_t{0}));
      Prepare(t, arena, spec, false);
      ready["rma_address"] = t.RmaAddress(arena);
      ready["rma_key"] = t.RmaKey();
      control_.Send(ready);
      RunServer(t, arena, spec);
    } else if (engine_.raw) {
      Serve(*engine_.raw, arena, spec, ready);
    } else if (engine_.raw_udp) {
      Serve(*engine_.raw_udp, arena, spec, ready);
    } else {
      Fail("the peer asks for a measurement before it has opened a connection");
    }
    ReceiveInProgress(engine_, control_, watch_, timeout_);  // The client has everything.
    control_.Send({{"waited_ns", WaitedNs() - before}});
  }

  template <class Transport>
  void Serve(Transport &t, Arena &arena, const Spec &spec, const json &ready) {
    t.Begin(arena, spec);
    Prepare(t, arena, spec, false);
    control_.Send(ready);
    RunServer(t, arena, spec);
  }

  Control control_;
  Watch watch_;
  double timeout_;
  SharedLine *line_;  // null: the client is on another host
  Engine engine_;
};

// Throws unless the library in use lies where the user said it must.
void ExpectLibrary(const std::string &directory, const std::string &path) {
  if (directory.empty()) return;
  char *real = realpath(directory.c_str(), nullptr);
  const std::string wanted = real != nullptr ? std::string(real) + "/" : "";
  free(real);
  if (wanted.empty() || path.rfind(wanted, 0) != 0) {
    Fail("measuring %s, which is not in %s (is there a libfabric.so.1, is LD_LIBRARY_PATH set?)",
         path.c_str(), directory.c_str());
  }
}

// --- Client -------------------------------------------------------------------------------------

class Client {
 public:
  Client(Fd connection, const Options &options, SharedLine *line)
      : options_(options), control_(std::move(connection)), watch_(&control_), line_(line) {}

  // Appends to report["results"] and prints a line for each.
  void RunTests(const std::vector<Test> &tests, json *report) {
    for (const bool rma : {false, true}) {
      // RMA is asked for only where it is used: a library may pay for a capability.
      std::vector<Test> group;
      for (Test test : tests) {
        if ((IsWrite(test) || IsRead(test)) == rma) group.push_back(test);
      }
      if (group.empty()) continue;
      Open(rma, report);
      for (Test test : group) {
        PrintHeading(test);
        for (size_t size : ParseSizes(options_.sizes, test)) {
          json result = Measure(test, size);
          PrintResult(test, result);
          (*report)["results"].push_back(std::move(result));
        }
      }
    }
  }

  void RunMemory(json *report) {
    if (options_.raw) Fail("the memory test has no raw form: a socket has no user-space memory");
    if (options_.fabric.rdm) Fail("the memory test is about connections: use --endpoint msg");
    engine_.Close();
    NeedFiles(options_.endpoints);
    FabricNode node(options_.fabric, &watch_);
    watch_.Start("opening idle connections", options_.timeout);
    control_.Send({{"do", "memory"},
                   {"protocol", kProtocol},
                   {"timeout", options_.timeout},
                   {"count", options_.endpoints},
                   {"fabric", ToJson(options_.fabric)}});
    const json opened = control_.Receive(options_.timeout);
    NoteLibrary(opened, report);
    node.Resolve(opened.value("address", ""));
    const ConnectionHolder held = OpenConnections(node, options_.endpoints);
    const json theirs = control_.Receive(options_.timeout).at("memory");
    control_.Send({{"ok", true}});
    const double mine = held.result.per_endpoint;
    const double other = theirs.value("per_endpoint_bytes", 0.0);
    (*report)["results"].push_back({{"test", "memory"},
                                    {"endpoints", options_.endpoints},
                                    {"value", std::max(mine, other)},
                                    {"unit", "B"},
                                    {"better", "lower"},
                                    {"client", ToJson(held.result)},
                                    {"server", theirs}});
    printf("\nmemory: resident bytes per idle connected endpoint, %u endpoints\n",
           options_.endpoints);
    printf("%12s %12s %18s\n", "connecting", "accepting", "us per connection");
    printf("%12.0f %12.0f %18.1f\n", mine, other, held.result.connect_us);
    fflush(stdout);
  }

  void Quit() {
    engine_.Close();
    control_.Send({{"do", "quit"}});
    control_.Receive(options_.timeout);
  }

  // Best effort: a peer that waits for us should learn why we go.
  void TellPeer(const std::string &failure) {
    try {
      control_.Send({{"error", failure}});
    } catch (const Error &) {
    }
  }

 private:
  void Open(bool rma, json *report) {
    engine_.Close();
    watch_.Start("opening the connection", options_.timeout);
    FabricOptions fabric = options_.fabric;
    fabric.rma = rma;
    control_.Send({{"do", "open"},
                   {"protocol", kProtocol},
                   {"timeout", options_.timeout},
                   {"raw", options_.raw},
                   {"raw_udp", options_.raw_udp},
                   {"fabric", ToJson(fabric)}});
    const json opened = control_.Receive(options_.timeout);
    if (options_.raw_udp) {
      const std::string host = LocalHost(control_.fd());
      engine_.raw_udp = std::make_unique<RawUdpTransport>(host, &watch_);
      engine_.raw_udp->Connect(opened.value("host", ""), opened.value("port", uint16_t{0}));
      control_.Send({{"port", engine_.raw_udp->port()}, {"host", host}});
    } else if (options_.raw) {
      engine_.raw = std::make_unique<RawTransport>(
          Dial(opened.value("host", ""), opened.value("port", uint16_t{0}), options_.timeout),
          &watch_);
    } else {
      engine_.fabric = std::make_unique<FabricTransport>(fabric, &watch_);
      NoteLibrary(opened, report);
      const std::string own = engine_.fabric->Connect(opened.value("address", ""));
      if (fabric.rdm) control_.Send({{"address", own}});
      const fi_info *info = engine_.fabric->info();
      const uint32_t v = info->fabric_attr->prov_version;
      (*report)["provider"] = info->fabric_attr->prov_name;
      (*report)["provider_version"] =
          std::to_string(FI_MAJOR(v)) + "." + std::to_string(FI_MINOR(v));
      printf("provider: %s %u.%u, %s%s, domain %s\n", info->fabric_attr->prov_name, FI_MAJOR(v),
             FI_MINOR(v), fabric.rdm ? "FI_EP_RDM" : "FI_EP_MSG", fabric.tagged ? " tagged" : "",
             info->domain_attr->name);
    }
    control_.Receive(options_.timeout);
  }

  void NoteLibrary(const json &opened, json *report) {
    if (report->contains("library")) return;
    const Library mine = LoadedLibrary();
    const json theirs = opened.value("library", json::object());
    ExpectLibrary(options_.expect_library, mine.path);
    ExpectLibrary(options_.server_library_path, theirs.value("path", ""));
    (*report)["library"] = ToJson(mine);
    (*report)["peer_library"] = theirs;
    printf("library: %s (fi_version %s)\n", mine.path.c_str(), mine.version.c_str());
    if (theirs != ToJson(mine)) {
      printf("peer's library: %s (fi_version %s)\n", theirs.value("path", "?").c_str(),
             theirs.value("version", "?").c_str());
    }
  }

  json Measure(Test test, size_t size) {
    Spec spec;
    spec.test = test;
    spec.size = size;
    spec.check = options_.check;
    spec.more = options_.more;
    spec.inject = options_.inject;
    if (test == Test::kOverlap) {
      spec.window = kOverlapWindow;
    } else if (!IsLatency(test)) {
      const size_t in_flight = static_cast<size_t>(options_.in_flight_mib) << 20;
      spec.window = std::min<uint32_t>(
          options_.window, static_cast<uint32_t>(std::max<size_t>(2, in_flight / size)));
      if (engine_.fabric) spec.window = std::min(spec.window, engine_.fabric->MaxWindow());
    }
    spec.ack_every = spec.window;
    if (options_.ack_every != 0 && options_.ack_every < spec.window && !IsLatency(test) &&
        test != Test::kOverlap) {
      spec.ack_every = options_.ack_every;
      spec.window -= spec.window % spec.ack_every;
    }
    Calibrate(&spec);
    uint64_t waited_ns = 0;
    Samples samples;
    const double before = DistanceNs();
    Execute(spec, &samples, &waited_ns);
    const double after = DistanceNs();
    json result = Describe(spec, &samples, waited_ns);
    if (line_ != nullptr) result["distance_ns"] = std::max(before, after);
    return result;
  }

  double DistanceNs() {
    if (line_ == nullptr) return 0;
    control_.Send({{"do", "distance"}});
    return line_->Ask(options_.timeout);
  }

  // Warms everything up and finds how many iterations fill the time that was asked for.
  void Calibrate(Spec *spec) {
    Samples samples;
    if (options_.iterations != 0) {
      spec->iterations = std::min<uint64_t>(options_.iterations, 16);
      Execute(*spec, &samples, nullptr);
      spec->iterations = options_.iterations;
      return;
    }
    if (spec->test == Test::kOverlap) {  // what it computes is the time that it takes
      spec->iterations = 16;
      Execute(*spec, &samples, nullptr);
      spec->iterations = static_cast<uint64_t>(std::max(16.0, options_.seconds * 1e9 / kComputeNs));
      return;
    }
    spec->iterations = 8;
    for (;;) {
      samples.Clear();
      Execute(*spec, &samples, nullptr);
      const double each = samples.total() / 1e9 / static_cast<double>(spec->iterations);
      const double spent = each * static_cast<double>(spec->iterations);
      const double want = options_.seconds / each;
      if (spent >= options_.seconds / 4 || want <= static_cast<double>(spec->iterations)) {
        spec->iterations = static_cast<uint64_t>(std::clamp(want, 8.0, 4e6));
        return;
      }
      spec->iterations =
          static_cast<uint64_t>(std::min(want / 3 + 1, static_cast<double>(spec->iterations) * 32));
    }
  }

  void Execute(const Spec &spec, Samples *samples, uint64_t *waited_ns) {
    watch_.Start(TestName(spec.test), options_.timeout);
    Arena &arena = engine_.ArenaFor(spec);
    samples->Reserve(spec.iterations + 1);
    json request = ToJson(spec);
    request["do"] = "run";
    const auto run = [&](auto &t) {
      const json ready = control_.Receive(options_.timeout);
      if constexpr (std::remove_reference_t<decltype(t)>::kHasRma) {
        t.SetPeerMemory(ready.value("rma_address", uint64_t{0}),
                        ready.value("rma_key", uint64_t{0}));
      }
      const uint64_t before = WaitedNs();
      RunClient(t, arena, spec, samples);
      if (waited_ns != nullptr) *waited_ns = WaitedNs() - before;
    };
    if (engine_.fabric) {
      FabricTransport &t = *engine_.fabric;
      t.Begin(arena, spec);
      Prepare(t, arena, spec, true);
      request["rma_address"] = t.RmaAddress(arena);
      request["rma_key"] = t.RmaKey();
      control_.Send(request);
      run(t);
    } else {
      const auto run_raw = [&](auto &t) {
        t.Begin(arena, spec);
        Prepare(t, arena, spec, true);
        control_.Send(request);
        run(t);
      };
      if (engine_.raw) run_raw(*engine_.raw);
      if (engine_.raw_udp) run_raw(*engine_.raw_udp);
    }
    control_.Send({{"done", true}});
    const json theirs = ReceiveInProgress(engine_, control_, watch_, options_.timeout);
    if (waited_ns != nullptr) *waited_ns += theirs.value("waited_ns", uint64_t{0});
  }

  static json Describe(const Spec &spec, Samples *samples, uint64_t waited_ns) {
    const double total_ns = spec.test == Test::kOverlap
                                ? static_cast<double>(spec.iterations) * kComputeNs
                                : samples->total();
    samples->Sort();
    // A round trip is two messages; a read is a round trip by nature.
    const bool timed = IsLatency(spec.test) || spec.test == Test::kOverlap;
    const double scale = IsLatency(spec.test) && spec.test != Test::kReadLat ? 2e3 : 1e3;
    const auto us = [&](double fraction) {
      return static_cast<double>(samples->Percentile(fraction)) / scale;
    };
    json result = {{"test", TestName(spec.test)},
                   {"size", spec.size},
                   {"iterations", spec.iterations},
                   {"window", spec.window},
                   {"ack_every", spec.ack_every},
                   {"waited", static_cast<double>(waited_ns) / total_ns},
                   {"us",
                    {{"min", us(0)},
                     {"p50", us(0.5)},
                     {"p99", us(0.99)},
                     {"max", us(1)},
                     {"mean", samples->total() / static_cast<double>(samples->count()) / scale}}}};
    if (timed) {
      result["value"] = us(0.5);
      result["unit"] = "us";
      result["better"] = "lower";
      return result;
    }
    // The headline is the median window, which a preempted one does not move; the whole run's
    // average stands beside it, so that a cost that comes only now and then cannot hide.
    const double window_s = static_cast<double>(samples->Percentile(0.5)) / 1e9;
    const double rate = spec.window / window_s;
    const double average_rate = static_cast<double>(spec.messages()) / (total_ns / 1e9);
    const auto megabytes = [&](double r) { return r * static_cast<double>(spec.size) / 1e6; };
    result["messages_per_s"] = rate;
    result["mb_per_s"] = megabytes(rate);
    result["average_messages_per_s"] = average_rate;
    result["average_mb_per_s"] = megabytes(average_rate);
    result["value"] = spec.test == Test::kRate ? rate : megabytes(rate);
    result["unit"] = spec.test == Test::kRate ? "msg/s" : "MB/s";
    result["better"] = "higher";
    return result;
  }

  static void PrintHeading(Test test) {
    static const char *const kTitles[] = {
        "lat: ping-pong, half a round trip",
        "bw: stream of messages, acknowledged per window",
        "rate: stream of small messages, acknowledged per window",
        "write_lat: RMA writes with remote completion data, there and back, half a round trip",
        "write_bw: stream of RMA writes, acknowledged per window",
        "read_lat: RMA read, from post to completion",
        "read_bw: stream of RMA reads",
        "overlap: 8 messages, then a millisecond without progress; until the last has arrived"};
    printf("\n%s\n", kTitles[static_cast<int>(test)]);
    if (IsLatency(test) || test == Test::kOverlap) {
      printf("%9s %9s %10s %10s %10s %10s %6s\n", "bytes", "rounds", "min us", "p50 us", "p99 us",
             "mean us", "wait%");
    } else {
      printf("%9s %9s %7s %10s %12s %10s %12s %6s\n", "bytes", "windows", "window", "MB/s", "msg/s",
             "avg MB/s", "avg msg/s", "wait%");
    }
  }

  static void PrintResult(Test test, const json &r) {
    if (IsLatency(test) || test == Test::kOverlap) {
      const json &us = r.at("us");
      printf("%9zu %9llu %10.2f %10.2f %10.2f %10.2f %6.1f\n", r.at("size").get<size_t>(),
             r.at("iterations").get<unsigned long long>(), us.at("min").get<double>(),
             us.at("p50").get<double>(), us.at("p99").get<double>(), us.at("mean").get<double>(),
             r.at("waited").get<double>() * 100);
    } else {
      printf("%9zu %9llu %7u %10.1f %12.0f %10.1f %12.0f %6.1f\n", r.at("size").get<size_t>(),
             r.at("iterations").get<unsigned long long>(), r.at("window").get<unsigned>(),
             r.at("mb_per_s").get<double>(), r.at("messages_per_s").get<double>(),
             r.at("average_mb_per_s").get<double>(), r.at("average_messages_per_s").get<double>(),
             r.at("waited").get<double>() * 100);
    }
    fflush(stdout);
  }

  const Options &options_;
  Control control_;
  Watch watch_;
  SharedLine *line_;  // null: no way to measure the distance
  Engine engine_;
};

// --- The peer of --local ------------------------------------------------------------------------

// This program once more, as the server, in a process of its own with a library of its own.
class LocalPeer {
 public:
  LocalPeer(const Options &options, int cpu, const SharedLine *line) {
    Fd listener = Listen("127.0.0.1", 0);
    port_ = LocalPort(listener.get());
    const pid_t parent = getpid();
    const std::string self = BesideThisProgram("weft-bench");
    pid_ = fork();
    if (pid_ < 0) Fail("fork: %s", strerror(errno));
    if (pid_ > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    if (!options.server_library_path.empty()) {
      setenv("LD_LIBRARY_PATH", options.server_library_path.c_str(), 1);
    }
    fcntl(listener.get(), F_SETFD, 0);
    if (line != nullptr) fcntl(line->fd(), F_SETFD, 0);
    const std::string fd = std::to_string(listener.get());
    const std::string line_fd = std::to_string(line != nullptr ? line->fd() : -1);
    const std::string cpu_text = std::to_string(cpu);
    const std::string timeout = std::to_string(options.timeout);
    execl(self.c_str(), "weft-bench", "--server", "--listen-fd", fd.c_str(), "--cpu",
          cpu_text.c_str(), "--timeout", timeout.c_str(), "--line-fd", line_fd.c_str(),
          static_cast<char *>(nullptr));
    dprintf(STDERR_FILENO, "weft-bench: cannot start the peer: %s\n", strerror(errno));
    _exit(127);
  }
  ~LocalPeer() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  LocalPeer(const LocalPeer &) = delete;
  LocalPeer &operator=(const LocalPeer &) = delete;

  uint16_t port() const { return port_; }

  // Waits for the peer to end; how it ended in words, empty if well or not within `seconds`.
  std::string Fate(double seconds) {
    if (pid_ <= 0) return fate_;
    const uint64_t deadline = NowNs() + static_cast<uint64_t>(seconds * 1e9);
    int status = 0;
    pid_t got;
    while ((got = waitpid(pid_, &status, WNOHANG)) == 0 && NowNs() < deadline) sched_yield();
    if (got != pid_) return "";
    pid_ = -1;
    if (WIFSIGNALED(status)) {
      fate_ = std::string("the peer was ended by signal ") + std::to_string(WTERMSIG(status)) +
              " (" + strsignal(WTERMSIG(status)) + ")";
    } else if (WEXITSTATUS(status) != 0) {
      fate_ = "the peer ended with status " + std::to_string(WEXITSTATUS(status));
    }
    return fate_;
  }

 private:
  pid_t pid_ = -1;
  uint16_t port_ = 0;
  std::string fate_;
};

// --- Start-up -----------------------------------------------------------------------------------

void RunStartup(const Options &options, json *report) {
  // The raw form is the floor: the same program without libfabric.
  const std::string probe =
      BesideThisProgram(options.raw ? "weft-bench-floor" : "weft-bench-startup");
  StartupResult result =
      MeasureStartup(probe, options.fabric.provider, options.repeat, options.timeout);
  const auto us = [&](double f) { return static_cast<double>(result.ns.Percentile(f)) / 1e3; };
  char *real = realpath(result.library.c_str(), nullptr);
  const std::string library = real != nullptr ? real : result.library;
  free(real);
  (*report)["results"].push_back(
      {{"test", "startup"},
       {"iterations", options.repeat},
       {"value", us(0.5)},
       {"unit", "us"},
       {"better", "lower"},
       {"library", library},
       {"us", {{"min", us(0)}, {"p50", us(0.5)}, {"p99", us(0.99)}, {"max", us(1)}}}});
  if (!options.raw) ExpectLibrary(options.expect_library, library);
  if (!options.raw && !report->contains("library")) (*report)["library"] = {{"path", library}};
  printf("\nstartup: from exec to the first fi_getinfo result, FI_PROVIDER=%s\nlibrary: %s\n",
         options.fabric.provider.c_str(), library.c_str());
  printf("%9s %10s %10s %10s\n", "runs", "min us", "p50 us", "p99 us");
  printf("%9u %10.1f %10.1f %10.1f\n", options.repeat, us(0), us(0.5), us(0.99));
  fflush(stdout);
}

// --- Main ---------------------------------------------------------------------------------------

int RunServerMode(const Options &options) {
  PinTo(options.cpu);
  std::optional<SharedLine> line;
  if (options.line_fd >= 0) line.emplace(Fd(options.line_fd));
  Fd listener = options.listen_fd >= 0 ? Fd(options.listen_fd) : Listen("", options.port);
  if (options.listen_fd < 0) {
    fcntl(listener.get(), F_SETFD, FD_CLOEXEC);
    printf("weft-bench: waiting for a client on port %u\n", LocalPort(listener.get()));
    fflush(stdout);
  }
  for (;;) {
    // A server that a person started waits as long as it takes.
    const double patience = options.listen_fd >= 0 ? options.timeout : 1e8;
    Fd connection = AcceptOne(listener.get(), patience);
    try {
      Server(std::move(connection), options.timeout, line ? &*line : nullptr).Serve();
    } catch (const std::exception &failure) {
      if (!options.keep) throw;
      fprintf(stderr, "%s: %s\n", g_name, failure.what());
    }
    if (!options.keep) return 0;
  }
}

void RunClientMode(const Options &options, const std::vector<Test> &tests, bool memory,
                   bool startup, json *report) {
  std::vector<int> cpus = options.cpus.empty() ? ChooseCpus() : ParseCpus(options.cpus);
  if (!options.local) {
    cpus.assign(2, options.cpu);
  } else if (cpus.empty()) {
    fprintf(stderr,
            "weft-bench: warning: only one CPU is available; both sides spin on it and every "
            "latency is the scheduler's\n");
    cpus.assign(2, -1);
  }
  (*report)["cpus"] = cpus;
  if (startup) {
    PinTo(cpus[0]);
    RunStartup(options, report);
  }
  if (tests.empty() && !memory) return;

  // Two that share a CPU would wait for each other's time slices.
  std::optional<SharedLine> line;
  if (options.local && cpus[0] != cpus[1]) line.emplace();
  SharedLine *const shared = line ? &*line : nullptr;
  std::optional<LocalPeer> peer;
  if (options.local) peer.emplace(options, cpus[1], shared);
  std::optional<Client> client;
  try {
    client.emplace(Dial(options.local ? "127.0.0.1" : options.host,
                        options.local ? peer->port() : options.port, options.timeout),
                   options, shared);
    PinTo(cpus[0]);
    client->RunTests(tests, report);
    if (memory) client->RunMemory(report);
    client->Quit();
  } catch (const std::exception &failure) {
    if (client) client->TellPeer(failure.what());
    const std::string fate = peer ? peer->Fate(1.0) : "";
    throw Error(failure.what() + (fate.empty() ? "" : "; " + fate));
  }
  if (peer) {
    const std::string fate = peer->Fate(10.0);
    if (!fate.empty()) throw Error(fate + " after the last measurement");
  }
}

int Main(int argc, char **argv) {
  Options options;
  CLI::App app(
      "Measures a libfabric (the one that the loader finds: set LD_LIBRARY_PATH), or a raw TCP\n"
      "or UDP socket doing the same work.\n\n"
      "  weft-bench --local                      both sides on this host, each pinned to a core\n"
      "  weft-bench --server; weft-bench HOST    two hosts\n");
  app.option_defaults()->always_capture_default();
  app.add_option("host", options.host, "Host on which `weft-bench --server` runs");
  app.add_flag("--server", options.server, "Be the server of one client, then end");
  app.add_flag("--keep", options.keep, "With --server: serve one client after the other");
  app.add_flag("--local", options.local, "Start the server as a process of this host");
  app.add_flag("--raw", options.raw, "Measure a raw non-blocking TCP socket instead");
  app.add_flag("--raw-udp", options.raw_udp,
               "Measure a raw non-blocking UDP socket instead, with segmentation offload");
  app.add_option(
      "-t,--test", options.tests,
      "Comma list of lat bw rate write_lat write_bw read_lat read_bw overlap memory startup, "
      "or all");
  app.add_option("-S,--sizes", options.sizes,
                 "Comma list of sizes such as 1,64,4K,1M, or all: powers of two to 4M "
                 "(default: all; 64 for rate)");
  app.add_option("-n,--iters", options.iterations,
                 "Round trips, or windows, per size (0: as many as fill --seconds)");
  app.add_option("--seconds", options.seconds, "Time per size")->check(CLI::Range(0.001, 3600.0));
  app.add_option("-W,--window", options.window, "Messages in flight in the streams")
      ->check(CLI::Range(1, 1024));
  app.add_option("--ack-every", options.ack_every,
                 "Messages per acknowledgement of a stream (0: the whole window, so the sender "
                 "stops and waits after each)");
  app.add_option("--in-flight", options.in_flight_mib,
                 "MiB in flight at most: makes the window of large messages smaller")
      ->check(CLI::Range(1, 4096));
  app.add_option("-p,--provider", options.fabric.provider, "Provider");
  app.add_option("-d,--domain", options.fabric.domain, "Domain of the client (default: any)");
  app.add_option("-e,--endpoint", options.endpoint, "Endpoint type")
      ->check(CLI::IsMember({"msg", "rdm"}));
  app.add_flag("--tagged", options.fabric.tagged, "Tagged messages");
  app.add_flag(
      "--more", options.more,
      "Announce that more messages of a window follow (FI_MORE; gathered writes in --raw)");
  app.add_flag("--inject", options.inject, "fi_inject for messages that are small enough");
  app.add_flag("--split-cq", options.fabric.split_cq, "One completion queue per direction");
  app.add_flag("-c,--check", options.check, "Check every byte received (slow: no fair timing)");
  app.add_option("--port", options.port, "TCP port of the control connection");
  app.add_option("--cpu", options.cpu, "CPU to pin this process to (-1: none; without --local)");
  app.add_option("--cpus", options.cpus,
                 "With --local: CPUs of client and server, such as 0,1 (default: two cores)");
  app.add_option("--timeout", options.timeout, "Seconds that any one step may take")
      ->check(CLI::Range(0.1, 86400.0));
  app.add_option("--endpoints", options.endpoints, "Connections of the memory test")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--repeat", options.repeat, "Processes of the startup test")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--server-library-path", options.server_library_path,
                 "With --local: LD_LIBRARY_PATH of the server, for mixed pairs");
  app.add_option("--expect-library", options.expect_library,
                 "Fail unless libfabric was loaded from this directory");
  app.add_option("--json", options.json_file,
                 "Write the results to this file as JSON (- : stdout)");
  app.add_option("--listen-fd", options.listen_fd)->group("");
  app.add_option("--line-fd", options.line_fd)->group("");
  CLI11_PARSE(app, argc, argv);

  options.fabric.rdm = options.endpoint == "rdm";
  if (options.raw_udp) options.raw = true;
  if (options.server + options.local + !options.host.empty() != 1) {
    Fail("say exactly one of --server, --local and a HOST (--help shows the options)");
  }
  signal(SIGPIPE, SIG_IGN);
  if (options.server) {
    g_name = "weft-bench (server)";
    return RunServerMode(options);
  }

  if (options.tests == "all") {
    options.tests = "lat,bw,rate,write_lat,write_bw,read_lat,read_bw,startup";
    if (!options.raw && !options.fabric.rdm) options.tests += ",memory";
  }
  std::vector<Test> tests;
  bool memory = false, startup = false;
  for (const std::string &name : Split(options.tests)) {
    Test test;
    if (name == "memory") {
      memory = true;
    } else if (name == "startup") {
      startup = true;
    } else if (ParseTest(name, &test)) {
      ParseSizes(options.sizes, test);  // Complain before anything is started.
      tests.push_back(test);
    } else {
      Fail(
          "unknown test '%s': know lat bw rate write_lat write_bw read_lat read_bw overlap memory "
          "startup",
          name.c_str());
    }
  }
  json report = {{"program", "weft-bench"},
                 {"format", 1},
                 {"transport", options.raw_udp ? "raw-udp"
                               : options.raw   ? "raw"
                                               : "fabric"},
                 {"endpoint", options.endpoint},
                 {"tagged", options.fabric.tagged},
                 {"check", options.check},
                 {"results", json::array()}};
  int out = -1;
  if (options.json_file == "-") {
    // The table goes to stderr, so that stdout is one JSON document.
    out = dup(STDOUT_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
  }
  std::ofstream file;
  if (out < 0 && !options.json_file.empty()) {
    file.open(options.json_file);
    if (!file) Fail("cannot write to %s: %s", options.json_file.c_str(), strerror(errno));
  }
  if (options.raw) printf("raw %s socket\n", options.raw_udp ? "UDP" : "TCP");
  RunClientMode(options, tests, memory, startup, &report);
  const std::string text = report.dump(2) + "\n";
  if (out >= 0) {
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    fputs(text.c_str(), stdout);
    if (fflush(stdout) != 0) Fail("cannot write the results: %s", strerror(errno));
  } else if (!options.json_file.empty()) {
    file << text;
    file.close();
    if (!file) Fail("cannot write the results to %s", options.json_file.c_str());
  }
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char **argv) {
  try {
    return weft::bench::Main(argc, argv);
  } catch (const std::exception &failure) {
    fprintf(stderr, "%s: %s\n", weft::bench::g_name, failure.what());
    return 1;
  }
}
