// SPDX-License-Identifier: BSD-2-Clause
#include "client.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <stdio.h>

#include <algorithm>
#include <memory>
#include <type_traits>

#include "control_json.h"
#include "cpus.h"
#include "memory.h"
#include "patterns.h"
#include "results.h"

namespace weft::bench {

namespace {

constexpr uint32_t kOverlapWindow = 8;

}  // namespace

using nlohmann::json;

void Client::RunTests(const std::vector<Test> &tests, json *report) {
  for (const bool rma : {false, true}) {
    // FI_RMA is requested only for the tests that use it: a capability may cost something.
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

void Client::RunMemory(json *report) {
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
  absl::PrintF("\nmemory: resident bytes per idle connected endpoint, %u endpoints\n",
               options_.endpoints);
  absl::PrintF("%12s %12s %18s\n", "connecting", "accepting", "us per connection");
  absl::PrintF("%12.0f %12.0f %18.1f\n", mine, other, held.result.connect_us);
  fflush(stdout);
}

void Client::Quit() {
  engine_.Close();
  control_.Send({{"do", "quit"}});
  control_.Receive(options_.timeout);
}

void Client::TellPeer(const std::string &failure) {
  try {
    control_.Send({{"error", failure}});
  } catch (const Error &) {
  }
}

void Client::Open(bool rma, json *report) {
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
    (*report)["provider_version"] = absl::StrCat(FI_MAJOR(v), ".", FI_MINOR(v));
    absl::PrintF("provider: %s %u.%u, %s%s, domain %s\n", info->fabric_attr->prov_name, FI_MAJOR(v),
                 FI_MINOR(v), fabric.rdm ? "FI_EP_RDM" : "FI_EP_MSG",
                 fabric.tagged ? " tagged" : "", info->domain_attr->name);
  }
  control_.Receive(options_.timeout);
}

void Client::NoteLibrary(const json &opened, json *report) {
  if (report->contains("library")) return;
  const Library mine = LoadedLibrary();
  const json theirs = opened.value("library", json::object());
  ExpectLibrary(options_.expect_library, mine.path);
  ExpectLibrary(options_.server_library_path, theirs.value("path", ""));
  (*report)["library"] = ToJson(mine);
  (*report)["peer_library"] = theirs;
  absl::PrintF("library: %s (fi_version %s)\n", mine.path, mine.version);
  if (theirs != ToJson(mine)) {
    absl::PrintF("peer's library: %s (fi_version %s)\n", theirs.value("path", "?"),
                 theirs.value("version", "?"));
  }
}

json Client::Measure(Test test, size_t size) {
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
    spec.window = std::min<uint32_t>(options_.window,
                                     static_cast<uint32_t>(std::max<size_t>(2, in_flight / size)));
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

double Client::DistanceNs() {
  if (line_ == nullptr) return 0;
  control_.Send({{"do", "distance"}});
  return line_->Ask(options_.timeout);
}

void Client::Calibrate(Spec *spec) {
  Samples samples;
  if (options_.iterations != 0) {
    spec->iterations = std::min<uint64_t>(options_.iterations, 16);
    Execute(*spec, &samples, nullptr);
    spec->iterations = options_.iterations;
    return;
  }
  if (spec->test == Test::kOverlap) {  // its time is that of its computation
    spec->iterations = 16;
    Execute(*spec, &samples, nullptr);
    spec->iterations = static_cast<uint64_t>(std::max(16.0, options_.seconds * 1e9 / kComputeNs));
    return;
  }
  // The first round connects, and has page faults: it would let 8 rounds seem to be enough.
  spec->iterations = 1;
  Execute(*spec, &samples, nullptr);
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

void Client::Execute(const Spec &spec, Samples *samples, uint64_t *waited_ns) {
  watch_.Start(TestName(spec.test), options_.timeout);
  Arena &arena = engine_.ArenaFor(spec);
  samples->Reserve(spec.iterations + 1);
  json request = ToJson(spec);
  request["do"] = "run";
  const auto run = [&](auto &t) {
    const json ready = control_.Receive(options_.timeout);
    if constexpr (std::remove_reference_t<decltype(t)>::kHasRma) {
      t.SetPeerMemory(ready.value("rma_address", uint64_t{0}), ready.value("rma_key", uint64_t{0}));
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

}  // namespace weft::bench
