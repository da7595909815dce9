// SPDX-License-Identifier: BSD-2-Clause
//
// The peer of --local: this program once more, as the server, in a process of its own with a
// library of its own.
//
// Example (statements):
//     Options options;
//     options.fabric.provider = "tcp";
//     LocalPeer peer(options, 1, nullptr);  // on CPU 1
//     Fd connection = dial("127.0.0.1", peer.port(), options.timeout);
#ifndef WEFT_BENCH_LOCAL_PEER_H
#define WEFT_BENCH_LOCAL_PEER_H

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "bench_options.h"
#include "distance.h"

namespace weft::bench {

// The path of a file that lies in the folder of this program.
std::string beside_this_program(const char *name);

// Killed when the object ends.
class LocalPeer {
 public:
  LocalPeer(const Options &options, int cpu, const SharedLine *line);
  ~LocalPeer();
  LocalPeer(const LocalPeer &) = delete;
  LocalPeer &operator=(const LocalPeer &) = delete;

  uint16_t port() const { return port_; }

  // Waits for the peer to end; how it ended in words, empty if well or not within `seconds`.
  std::string fate(double seconds);

 private:
  pid_t pid_ = -1;
  uint16_t port_ = 0;
  std::string fate_;
};

}  // namespace weft::bench

#endif  // WEFT_BENCH_LOCAL_PEER_H
