// SPDX-License-Identifier: BSD-2-Clause
// A peer of the stateful fuzz target that sends anything: well-formed frames in any order, damaged
// frames, or any bytes; whole, in pieces, or incomplete.
//
// Example:
//    inline void attack(const sockaddr_in &endpoint, Input &input, const Known &known) {
//      Stranger stranger(/*host=*/3);
//      stranger.connect(endpoint, /*from_host=*/3,
//                       Stranger::hello(/*version=*/1, /*features=*/0, Stranger::kPort, 42));
//      while (stranger.connected() && !input.over()) {
//        stranger.frame(input, EndpointKind::kRdm1, known);  // queued
//        stranger.flush(input.u8());                         // so many bytes leave
//        stranger.read_all();
//      }
//    }
#ifndef WEFT_PLUGINS_TCP_FUZZ_STRANGER_H
#define WEFT_PLUGINS_TCP_FUZZ_STRANGER_H

#include <netinet/in.h>

#include <cstdint>
#include <map>
#include <vector>

#include "plugins/tcp/fuzz/application.h"
#include "plugins/tcp/wire/connect_message.h"
#include "plugins/tcp/wire/rdm_message.h"

namespace weft::tcp::fuzz {

// The facts that a stranger may know of the endpoint.
struct Known {
  uint64_t address = 0, key = 0;  // of a region of 4 KiB
  size_t read_length = 0;         // of the last read of the application
};

class Stranger {
 public:
  static constexpr uint16_t kPort = 7000;

  explicit Stranger(uint8_t host) : host_(host) {}
  ~Stranger() {
    hang_up();
    stop_listening();
  }
  Stranger(const Stranger &) = delete;
  Stranger &operator=(const Stranger &) = delete;

  uint8_t host() const { return host_; }
  bool connected() const { return fd_ >= 0; }
  void connect(const sockaddr_in &to, uint8_t from_host, std::vector<uint8_t> first);
  void listen();
  void accept(Input &in);  // a connection of the endpoint, if there is one
  void frame(Input &in, EndpointKind kind, const Known &known);
  void raw(Input &in);
  void flush(size_t bytes);
  void read_all();
  void shut_down();
  void hang_up();
  void stop_listening();

  static std::vector<uint8_t> hello(uint8_t version, uint8_t features, uint16_t port,
                                    uint32_t process);

 private:
  const uint8_t host_;
  int fd_ = -1;
  int listener_ = -1;
  std::vector<uint8_t> out_;
  std::map<uint8_t, uint64_t> announced_;
};

}  // namespace weft::tcp::fuzz

#endif
