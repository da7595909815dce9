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

void Client::run_tests(const std::vector<Test> &tests, json *report) {
  for (const bool rma : {false, true}) {
    // FI_RMA is requested only for the tests that use it: a capability may cost something.
    std::vector<Test> group;
    for (Test test : tests) {
      if ((is_write(test) || is_read(test)) == rma) group.push_back(test);
    }
    if (group.empty()) continue;
    open(rma, report);
    for (Test test : group) {
      print_heading(test);
      for (size_t size : parse_sizes(options_.sizes, test)) {
        json result = measure(test, size);
        print_result(test, result);
        (*report)["results"].push_back(std::move(result));
      }
    }
  }
}

void Client::run_memory(json *report) {
  if (options_.raw) fail("the memory test has no raw form: a socket has no user-space memory");
  if (options_.fabric.rdm) fail("the memory test is about connections: use --endpoint msg");
  engine_.close();
  need_files(options_.endpoints);
  FabricNode node(options_.fabric, &watch_);
  watch_.start("opening idle connections", options_.timeout);
  control_.send({{"do", "memory"},
                 {"protocol", kProtocol},
                 {"timeout", options_.timeout},
                 {"count", options_.endpoints},
                 {"fabric", to_json(options_.fabric)}});
  const json opened = control_.receive(options_.timeout);
  note_library(opened, report);
  node.resolve(opened.value("address", ""));
  const ConnectionHolder held = open_connections(node, options_.endpoints);
  const json theirs = control_.receive(options_.timeout).at("memory");
  control_.send({{"ok", true}});
  const double mine = held.result.per_endpoint;
  const double other = theirs.value("per_endpoint_bytes", 0.0);
  (*report)["results"].push_back({{"test", "memory"},
                                  {"endpoints", options_.endpoints},
                                  {"value", std::max(mine, other)},
                                  {"unit", "B"},
                                  {"better", "lower"},
                                  {"client", to_json(held.result)},
                                  {"server", theirs}});
  absl::PrintF("\nmemory: resident bytes per idle connected endpoint, %u endpoints\n",
               options_.endpoints);
  absl::PrintF("%12s %12s %18s\n", "connecting", "accepting", "us per connection");
  absl::PrintF("%12.0f %12.0f %18.1f\n", mine, other, held.result.connect_us);
  fflush(stdout);
}

void Client::quit() {
  engine_.close();
  control_.send({{"do", "quit"}});
  control_.receive(options_.timeout);
}

void Client::tell_peer(const std::string &failure) {
  try {
    control_.send({{"error", failure}});
  } catch (const Error &) {
  }
}

void Client::open(bool rma, json *report) {
  engine_.close();
  watch_.start("opening the connection", options_.timeout);
  FabricOptions fabric = options_.fabric;
  fabric.rma = rma;
  control_.send({{"do", "open"},
                 {"protocol", kProtocol},
                 {"timeout", options_.timeout},
                 {"raw", options_.raw},
                 {"raw_udp", options_.raw_udp},
                 {"fabric", to_json(fabric)}});
  const json opened = control_.receive(options_.timeout);
  if (options_.raw_udp) {
    const std::string host = local_host(control_.fd());
    engine_.raw_udp = std::make_unique<RawUdpTransport>(host, &watch_);
    engine_.raw_udp->connect(opened.value("host", ""), opened.value("port", uint16_t{0}));
    control_.send({{"port", engine_.raw_udp->port()}, {"host", host}});
  } else if (options_.raw) {
    engine_.raw = std::make_unique<RawTransport>(
        dial(opened.value("host", ""), opened.value("port", uint16_t{0}), options_.timeout),
        &watch_);
  } else {
    engine_.fabric = std::make_unique<FabricTransport>(fabric, &watch_);
    note_library(opened, report);
    const std::string own = engine_.fabric->connect(opened.value("address", ""));
    if (fabric.rdm) control_.send({{"address", own}});
    const fi_info *info = engine_.fabric->info();
    const uint32_t v = info->fabric_attr->prov_version;
    (*report)["provider"] = info->fabric_attr->prov_name;
    (*report)["provider_version"] = absl::StrCat(FI_MAJOR(v), ".", FI_MINOR(v));
    absl::PrintF("provider: %s %u.%u, %s%s, domain %s\n", info->fabric_attr->prov_name, FI_MAJOR(v),
                 FI_MINOR(v), fabric.rdm ? "FI_EP_RDM" : "FI_EP_MSG",
                 fabric.tagged ? " tagged" : "", info->domain_attr->name);
  }
  control_.receive(options_.timeout);
}

void Client::note_library(const json &opened, json *report) {
  if (report->contains("library")) return;
  const Library mine = loaded_library();
  const json theirs = opened.value("library", json::object());
  expect_library(options_.expect_library, mine.path);
  expect_library(options_.server_library_path, theirs.value("path", ""));
  (*report)["library"] = to_json(mine);
  (*report)["peer_library"] = theirs;
  absl::PrintF("library: %s (fi_version %s)\n", mine.path, mine.version);
  if (theirs != to_json(mine)) {
    absl::PrintF("peer's library: %s (fi_version %s)\n", theirs.value("path", "?"),
                 theirs.value("version", "?"));
  }
}

json Client::measure(Test test, size_t size) {
  Spec spec;
  spec.test = test;
  spec.size = size;
  spec.check = options_.check;
  spec.more = options_.more;
  spec.inject = options_.inject;
  if (test == Test::kOverlap) {
    spec.window = kOverlapWindow;
  } else if (!is_latency(test)) {
    const size_t in_flight = static_cast<size_t>(options_.in_flight_mib) << 20;
    spec.window = std::min<uint32_t>(options_.window,
                                     static_cast<uint32_t>(std::max<size_t>(2, in_flight / size)));
    if (engine_.fabric) spec.window = std::min(spec.window, engine_.fabric->max_window());
  }
  spec.ack_every = spec.window;
  if (options_.ack_every != 0 && options_.ack_every < spec.window && !is_latency(test) &&
      test != Test::kOverlap) {
    spec.ack_every = options_.ack_every;
    spec.window -= spec.window % spec.ack_every;
  }
  calibrate(&spec);
  uint64_t waited_ns = 0;
  Samples samples;
  const double before = distance_ns();
  execute(spec, &samples, &waited_ns);
  const double after = distance_ns();
  json result = describe(spec, &samples, waited_ns);
  if (line_ != nullptr) result["distance_ns"] = std::max(before, after);
  return result;
}

double Client::distance_ns() {
  if (line_ == nullptr) return 0;
  control_.send({{"do", "distance"}});
  return line_->ask(options_.timeout);
}

void Client::calibrate(Spec *spec) {
  Samples samples;
  if (options_.iterations != 0) {
    spec->iterations = std::min<uint64_t>(options_.iterations, 16);
    execute(*spec, &samples, nullptr);
    spec->iterations = options_.iterations;
    return;
  }
  if (spec->test == Test::kOverlap) {  // its time is that of its computation
    spec->iterations = 16;
    execute(*spec, &samples, nullptr);
    spec->iterations = static_cast<uint64_t>(std::max(16.0, options_.seconds * 1e9 / kComputeNs));
    return;
  }
  // The first round connects, and has page faults: it would let 8 rounds seem to be enough.
  spec->iterations = 1;
  execute(*spec, &samples, nullptr);
  spec->iterations = 8;
  for (;;) {
    samples.clear();
    execute(*spec, &samples, nullptr);
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

void Client::execute(const Spec &spec, Samples *samples, uint64_t *waited_ns) {
  watch_.start(test_name(spec.test), options_.timeout);
  Arena &arena = engine_.arena_for(spec);
  samples->reserve(spec.iterations + 1);
  json request = to_json(spec);
  request["do"] = "run";
  const auto run = [&](auto &t) {
    const json ready = control_.receive(options_.timeout);
    if constexpr (std::remove_reference_t<decltype(t)>::kHasRma) {
      t.set_peer_memory(ready.value("rma_address", uint64_t{0}),
                        ready.value("rma_key", uint64_t{0}));
    }
    const uint64_t before = cpu_wait_ns();
    run_client(t, arena, spec, samples);
    if (waited_ns != nullptr) *waited_ns = cpu_wait_ns() - before;
  };
  if (engine_.fabric) {
    FabricTransport &t = *engine_.fabric;
    t.begin(arena, spec);
    prepare(t, arena, spec, true);
    request["rma_address"] = t.rma_address(arena);
    request["rma_key"] = t.rma_key();
    control_.send(request);
    run(t);
  } else {
    const auto run_raw = [&](auto &t) {
      t.begin(arena, spec);
      prepare(t, arena, spec, true);
      control_.send(request);
      run(t);
    };
    if (engine_.raw) run_raw(*engine_.raw);
    if (engine_.raw_udp) run_raw(*engine_.raw_udp);
  }
  control_.send({{"done", true}});
  const json theirs = receive_in_progress(engine_, control_, watch_, options_.timeout);
  if (waited_ns != nullptr) *waited_ns += theirs.value("waited_ns", uint64_t{0});
}

}  // namespace weft::bench
