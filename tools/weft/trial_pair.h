// SPDX-License-Identifier: BSD-2-Clause
// Two applications in this process with an endpoint each, of any type, that know each other: what
// `weft plugin test` tries a stack with.
//
// Example:
//     Result<void> try_messages(fi_info &info) {
//       TrialPair pair;
//       WEFT_CHECK(pair.open(info));
//       WEFT_CHECK(pair.transfer(pair.a, pair.b, 100, false));
//       return pair.close();
//     }
//
// A call that fails is an error that names the call. Not for measuring: each transfer is checked
// byte by byte, and both sides are polled.
#ifndef WEFT_TOOLS_WEFT_TRIAL_PAIR_H
#define WEFT_TOOLS_WEFT_TRIAL_PAIR_H

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <weft/result.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace weft::cli {

struct FreeInfo {
  void operator()(fi_info *info) const { fi_freeinfo(info); }
};
using InfoPointer = std::unique_ptr<fi_info, FreeInfo>;

// The errno of `rc` as an error that names the call; nothing if `rc` is no error.
Result<void> checked(const char *call, long rc);

// The objects of an application. Their names are those of the man pages. What is open is closed at
// the end, in silence.
class TrialSide {
 public:
  TrialSide() = default;
  TrialSide(const TrialSide &) = delete;
  TrialSide &operator=(const TrialSide &) = delete;
  ~TrialSide() { (void)close(); }

  // Fabric and domain, and a queue for completions; for connections one for events, otherwise an
  // address vector.
  Result<void> open_domain(fi_info &info);
  // The endpoint, with all of these bound to it, but not enabled.
  Result<void> open_endpoint(fi_info &info);
  Result<void> bind();
  // Closes what is open, the inner objects first; the first error.
  Result<void> close();
  // Reads the queues. An error completion is an error.
  Result<void> progress();

  fid_fabric *fabric = nullptr;
  fid_domain *domain = nullptr;
  fid_eq *eq = nullptr;
  fid_cq *cq = nullptr;
  fid_av *av = nullptr;
  fid_pep *pep = nullptr;
  fid_ep *ep = nullptr;
  fid_mr *mr = nullptr;
  fi_addr_t peer = FI_ADDR_UNSPEC;
  int done = 0;               // completions since the last transfer began
  fi_cq_tagged_entry last{};  // the last of them
  fi_context2 context{};      // of the operation in flight, for providers with FI_CONTEXT2
  bool connected = false;
  InfoPointer requested;       // of a connection request
  std::vector<uint8_t> bytes;  // the memory that `mr` has, if the domain wants it registered
};

class TrialPair {
 public:
  Result<void> open(fi_info &info);
  // A message of so many bytes, one way.
  Result<void> transfer(TrialSide &from, TrialSide &to, size_t size, bool tagged);
  // A remote write into the other's memory, which is read back by a remote read.
  Result<void> write_and_read(size_t size);
  // Calls until the answer is another one than -FI_EAGAIN, which `rc` gets. For ever is an error.
  Result<void> repeat(const std::function<ssize_t()> &function, ssize_t &rc);
  Result<void> close();

  TrialSide a, b;  // `a` is the one that connects

 private:
  Result<void> connect(fi_info &info);
  // Repeats the call; an error is one of the transfer.
  Result<void> start(const char *call, const std::function<ssize_t()> &function);
  // Reads the queues of both until `is_done`.
  Result<void> wait(const char *what, const std::function<bool()> &is_done);
  const fi_info *info_ = nullptr;
};

// Memory of a side with what the domain asks for: registered, if it wants descriptors or is to be
// written by the peer.
Result<void> prepare_memory(TrialSide &side, const fi_info &info, size_t size, uint64_t access);

// The side inserts the address of the other, whose endpoint is enabled.
Result<void> insert_peer(TrialSide &side, const fi_info &info, const TrialSide &other);

}  // namespace weft::cli

#endif
