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

void Server::Serve() {
  try {
    json request;
    // The client may be silent for up to a day between two measurements.
    while (control_.Receive(24 * 3600, &request)) {
      if (!Handle(request)) return;
    }
    Fail("the peer is gone: it closed the control connection (did it crash?)");
  } catch (const std::exception &failure) {
    // The peer waits for an answer. If it is gone, sending fails too.
    try {
      control_.Send({{"error", failure.what()}});
    } catch (const Error &) {
    }
    throw;
  }
}

bool Server::Handle(const json &request) {
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
    Fail("the peer asks for '%s', which this weft-bench does not know", what);
  }
  return true;
}

void Server::Open(const json &request) {
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

void Server::Memory(const json &request) {
  engine_.Close();
  const auto count = request.value("count", 0u);
  NeedFiles(count);
  FabricNode node(FabricFromJson(request.at("fabric")), &watch_);
  watch_.Start("opening idle connections", timeout_);
  const std::string address = node.Listen(LocalHost(control_.fd()));
  control_.Send({{"address", address}, {"library", ToJson(LoadedLibrary())}});
  const ConnectionHolder held = AcceptConnections(node, count);
  control_.Send({{"memory", ToJson(held.result)}});
  // Both sides keep their connections until both have measured their memory.
  control_.Receive(timeout_);
}

template <class Transport>
void Server::RunOver(Transport &t, Arena &arena, const Spec &spec) {
  t.Begin(arena, spec);
  Prepare(t, arena, spec, false);
  control_.Send({{"ok", true}});
  RunServer(t, arena, spec);
}

void Server::Run(const Spec &spec, const json &request) {
  watch_.Start(TestName(spec.test), timeout_);
  Arena &arena = engine_.ArenaFor(spec);
  const uint64_t before = WaitedNs();
  if (engine_.fabric) {
    FabricTransport &t = *engine_.fabric;
    t.Begin(arena, spec);
    t.SetPeerMemory(request.value("rma_address", uint64_t{0}),
                    request.value("rma_key", uint64_t{0}));
    Prepare(t, arena, spec, false);
    control_.Send({{"ok", true}, {"rma_address", t.RmaAddress(arena)}, {"rma_key", t.RmaKey()}});
    RunServer(t, arena, spec);
  } else if (engine_.raw) {
    RunOver(*engine_.raw, arena, spec);
  } else if (engine_.raw_udp) {
    RunOver(*engine_.raw_udp, arena, spec);
  } else {
    Fail("the peer asks for a measurement before it has opened a connection");
  }
  ReceiveInProgress(engine_, control_, watch_, timeout_);  // The client has all its messages.
  control_.Send({{"waited_ns", WaitedNs() - before}});
}

}  // namespace weft::bench
