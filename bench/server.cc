// SPDX-License-Identifier: BSD-2-Clause
#include "server.h"

#include <memory>
#include <string>

#include "control_json.h"
#include "cpus.h"
#include "memory.h"
#include "patterns.h"

namespace weft::bench {

using nlohmann::json;

void Server::serve() {
  try {
    json request;
    // The client may be silent for up to a day between two measurements.
    while (control_.receive(24 * 3600, &request)) {
      if (!handle(request)) return;
    }
    fail("the peer is gone: it closed the control connection (did it crash?)");
  } catch (const std::exception &failure) {
    // The peer waits for an answer. If it is gone, sending fails too.
    try {
      control_.send({{"error", failure.what()}});
    } catch (const Error &) {
    }
    throw;
  }
}

bool Server::handle(const json &request) {
  const std::string what = request.value("do", "");
  if (what == "quit") {
    control_.send({{"ok", true}});
    return false;
  }
  if (request.value("protocol", kProtocol) != kProtocol) {
    fail("the peer is another version of weft-bench");
  }
  if (request.contains("timeout")) timeout_ = request.value("timeout", timeout_);
  if (what == "open") {
    open(request);
  } else if (what == "memory") {
    memory(request);
  } else if (what == "run") {
    run(spec_from_json(request), request);
  } else if (what == "distance" && line_ != nullptr) {
    line_->answer(timeout_);
  } else {
    fail("the peer asks for '%s', which this weft-bench does not know", what);
  }
  return true;
}

void Server::open(const json &request) {
  engine_.close();
  watch_.start("opening the connection", timeout_);
  if (request.value("raw_udp", false)) {
    const std::string host = local_host(control_.fd());
    engine_.raw_udp = std::make_unique<RawUdpTransport>(host, &watch_);
    control_.send({{"port", engine_.raw_udp->port()}, {"host", host}});
    const json theirs = control_.receive(timeout_);
    engine_.raw_udp->connect(theirs.value("host", ""), theirs.value("port", uint16_t{0}));
    control_.send({{"ok", true}});
    return;
  }
  if (request.value("raw", false)) {
    const std::string host = local_host(control_.fd());
    Fd listener = listen(host, 0);
    control_.send({{"port", local_port(listener.get())}, {"host", host}});
    engine_.raw = std::make_unique<RawTransport>(accept_one(listener.get(), timeout_), &watch_);
    control_.send({{"ok", true}});
    return;
  }
  const FabricOptions options = fabric_from_json(request.at("fabric"));
  engine_.fabric = std::make_unique<FabricTransport>(options, &watch_);
  const std::string address = engine_.fabric->listen(local_host(control_.fd()));
  control_.send({{"address", address}, {"library", to_json(loaded_library())}});
  if (options.rdm) {
    engine_.fabric->add_peer(control_.receive(timeout_).value("address", ""));
  } else {
    engine_.fabric->accept();
  }
  control_.send({{"ok", true}});
}

void Server::memory(const json &request) {
  engine_.close();
  const auto count = request.value("count", 0u);
  need_files(count);
  FabricNode node(fabric_from_json(request.at("fabric")), &watch_);
  watch_.start("opening idle connections", timeout_);
  const std::string address = node.listen(local_host(control_.fd()));
  control_.send({{"address", address}, {"library", to_json(loaded_library())}});
  const ConnectionHolder held = accept_connections(node, count);
  control_.send({{"memory", to_json(held.result)}});
  // Both sides keep their connections until both have measured their memory.
  control_.receive(timeout_);
}

template <class Transport>
void Server::run_over(Transport &t, Arena &arena, const Spec &spec) {
  t.begin(arena, spec);
  prepare(t, arena, spec, false);
  control_.send({{"ok", true}});
  run_server(t, arena, spec);
}

void Server::run(const Spec &spec, const json &request) {
  watch_.start(test_name(spec.test), timeout_);
  Arena &arena = engine_.arena_for(spec);
  const uint64_t before = cpu_wait_ns();
  if (engine_.fabric) {
    FabricTransport &t = *engine_.fabric;
    t.begin(arena, spec);
    t.set_peer_memory(request.value("rma_address", uint64_t{0}),
                      request.value("rma_key", uint64_t{0}));
    prepare(t, arena, spec, false);
    control_.send({{"ok", true}, {"rma_address", t.rma_address(arena)}, {"rma_key", t.rma_key()}});
    run_server(t, arena, spec);
  } else if (engine_.raw) {
    run_over(*engine_.raw, arena, spec);
  } else if (engine_.raw_udp) {
    run_over(*engine_.raw_udp, arena, spec);
  } else {
    fail("the peer asks for a measurement before it has opened a connection");
  }
  receive_in_progress(engine_, control_, watch_, timeout_);  // The client has all its messages.
  control_.send({{"waited_ns", cpu_wait_ns() - before}});
}

}  // namespace weft::bench
