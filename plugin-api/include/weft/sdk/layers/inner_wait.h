// SPDX-License-Identifier: BSD-2-Clause
// InnerWait: the descriptors of a queue or counter of the provider beneath a layer, for the layer's
// Poller.
//
// Example:
//    #include <rdma/fi_domain.h>
//    struct Queue {
//      int open(fid_domain *domain, fi_cq_attr attr) {
//        const int rc = open_inner_wait([&](enum fi_wait_obj wait) {
//          attr.wait_obj = wait;
//          return fi_cq_open(domain, &attr, &cq, nullptr);
//        });
//        if (rc == 0) wait = InnerWait(&cq->fid);
//        return rc;
//      }
//      int wait_fds(std::vector<int> &fds) { return wait.add_to(fds); }  // of a Poller
//      bool must_rewatch() const { return wait.changed(); }              // in may_wait()
//      fid_cq *cq = nullptr;
//      InnerWait wait;
//    };
//
// If the provider has FI_WAIT_POLLFD (fi_poll.3), its descriptors go into the layer's set one by
// one, and those that its queues share go in once: the kernel limits how often a descriptor may be
// in sets that are in other sets (relay.h).
#ifndef WEFT_SDK_LAYERS_INNER_WAIT_H
#define WEFT_SDK_LAYERS_INNER_WAIT_H

#include <poll.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace weft::sdk {

template <class Open>
int open_inner_wait(Open open) {
  const int rc = open(FI_WAIT_POLLFD);
  return rc == 0 ? 0 : open(FI_WAIT_FD);
}

class InnerWait {
 public:
  InnerWait() = default;
  explicit InnerWait(struct fid *fid) : fid_(fid) {
    enum fi_wait_obj type = FI_WAIT_FD;
    many_ = fi_control(fid, FI_GETWAITOBJ, &type) == 0 && type == FI_WAIT_POLLFD;
  }

  // 0 or -FI_E...
  int add_to(std::vector<int> &fds) {
    if (!many_) {
      int fd = -1;
      const int rc = fi_control(fid_, FI_GETWAIT, &fd);
      if (rc == 0) fds.push_back(fd);
      return rc;
    }
    std::vector<pollfd> found(4);
    struct fi_wait_pollfd all {};
    for (;;) {
      all.nfds = found.size();
      all.fd = found.data();
      const int rc = fi_control(fid_, FI_GETWAIT, &all);
      if (rc == 0) break;
      if (rc != -FI_ETOOSMALL) return rc;
      found.resize(std::max(all.nfds, found.size() + 1));
    }
    for (size_t i = 0; i < all.nfds; ++i) fds.push_back(found[i].fd);
    change_index_ = all.change_index;
    return 0;
  }
  // Whether the descriptors differ from those that add_to() found.
  bool changed() const {
    if (!many_) return false;
    struct fi_wait_pollfd none {};
    fi_control(fid_, FI_GETWAIT, &none);  // -FI_ETOOSMALL: the index is what is asked for
    return none.change_index != change_index_;
  }

 private:
  struct fid *fid_ = nullptr;
  bool many_ = false;
  uint64_t change_index_ = 0;
};

}  // namespace weft::sdk

#endif
