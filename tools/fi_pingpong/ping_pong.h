// SPDX-License-Identifier: BSD-2-Clause
// The test: the objects of this side, the meeting with the peer, and the messages.
//
// Example (statements):
//     Options options;
//     options.server = "first-host";
//     PingPong(options).run();         // prints a line for each size
//
// open.cc opens the objects, connect.cc meets the peer (a connection for FI_EP_MSG, an exchange of
// addresses otherwise), exchange.cc has the messages and their timed loop, report.cc prints.
// Errors are thrown as Failure.
#ifndef WEFT_TOOLS_FI_PINGPONG_PING_PONG_H
#define WEFT_TOOLS_FI_PINGPONG_PING_PONG_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tools/fi_pingpong/control.h"
#include "tools/fi_pingpong/failure.h"
#include "tools/fi_pingpong/options.h"
#include "tools/fi_pingpong/report.h"

namespace weft::pingpong {

inline constexpr char kFin[] = "fin";  // the last message of each side, sent with its zero byte

struct FidCloser {
  template <typename Fid>
  void operator()(Fid *object) const {
    if (const int ret = fi_close(&object->fid); ret != 0) debug("fi_close: %s", fi_strerror(-ret));
  }
};

template <typename Fid>
using Owned = std::unique_ptr<Fid, FidCloser>;
using Info = std::unique_ptr<fi_info, decltype(&fi_freeinfo)>;

class PingPong {
 public:
  explicit PingPong(const Options &options) : options_(options), control_(options) {}

  void run();

 private:
  // open.cc
  // The peer's address, if known, decides the interface.
  void get_info(const std::string &peer_name, uint32_t format);
  void choose_sizes();
  void open_fabric();
  void open_passive_endpoint();
  void open_endpoint(fi_info *info);
  Owned<fid_cq> open_cq(size_t size) const;
  void allocate_buffers(const fi_info &info);

  // connect.cc
  void meet_client();
  void meet_server();
  void accept_connection();
  void make_connection();
  void wait_event(uint32_t wanted, const char *name, fi_eq_cm_entry *entry);
  [[noreturn]] void throw_eq_error(const char *name);
  void exchange_names();

  // exchange.cc
  void post_receive();
  // Returns when the buffer can be used again.
  void send_message(uint64_t size);
  void receive_message(uint64_t size);
  void fill(uint64_t size);
  void verify(uint64_t size);
  // False if there was no completion.
  bool read_cq(fid_cq *cq, uint64_t *done);
  [[noreturn]] void throw_cq_error(fid_cq *cq, ssize_t ret);
  void progress(const char *what, bool receiving);
  void idle(const char *what, bool receiving);
  void run_size(uint64_t size);
  void say_goodbye();
  ssize_t send_last_message();
  void finish();

  const Options &options_;
  Control control_;
  Report report_;
  std::vector<uint64_t> sizes_;

  // In the order in which they are opened: destruction closes them in reverse order.
  struct Free {
    void operator()(char *memory) const { std::free(memory); }
  };
  std::unique_ptr<char, Free> memory_;
  Info info_{nullptr, &fi_freeinfo};
  Owned<fid_fabric> fabric_;
  Owned<fid_eq> eq_;
  Owned<fid_pep> pep_;
  Owned<fid_domain> domain_;
  Owned<fid_cq> tx_cq_;
  Owned<fid_cq> rx_cq_;
  Owned<fid_av> av_;
  Owned<fid_mr> mr_;
  Owned<fid_ep> ep_;

  std::string peer_name_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  size_t inject_limit_ = 0;
  size_t prefix_ = 0;
  size_t buffer_length_ = 0;
  char *tx_buffer_ = nullptr;
  char *rx_buffer_ = nullptr;
  void *mr_desc_ = nullptr;
  fi_context2 tx_context_ = {};
  fi_context2 rx_context_ = {};

  uint64_t sends_posted_ = 0;
  uint64_t sends_done_ = 0;
  uint64_t receives_posted_ = 0;
  uint64_t receives_done_ = 0;
  size_t received_length_ = 0;
  size_t tx_letter_ = 0;
  size_t rx_letter_ = 0;
  uint64_t idle_spins_ = 0;
  Clock::time_point idle_since_;
  bool counting_ = false;  // between the last message of a size and the count of the answers
};

}  // namespace weft::pingpong

#endif
