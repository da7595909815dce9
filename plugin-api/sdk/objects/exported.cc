// SPDX-License-Identifier: BSD-2-Clause
#include "exported.h"

#include <rdma/fi_ext.h>
#include <rdma/providers/fi_peer.h>
#include <weft/sdk/addresses/av_set.h>
#include <weft/sdk/objects/cntr.h>
#include <weft/sdk/objects/cq.h>
#include <weft/sdk/objects/ops.h>

#include <algorithm>
#include <new>

#include "lent_receives.h"
#include "peer.h"

namespace weft::sdk {
namespace {

// An object that is lent: `Owned` is busy while it lives.
template <class Derived, class Fid, class Owned>
class Lent : public Object<Derived, Fid> {
 public:
  int close() {
    owned_.users.fetch_sub(1);
    delete static_cast<Derived *>(this);
    return 0;
  }

 protected:
  Lent(Owned &owned, size_t fclass, void *context)
      : Object<Derived, Fid>(owned.instance(), fclass, context), owned_(owned) {
    this->c()->fid.ops = const_cast<fi_ops *>(fid_ops<Derived>());
    owned_.users.fetch_add(1);
  }
  Owned &owned_;
};

template <class L, class Owned>
int lend(Owned &owned, void *request) {
  const auto *const asked = static_cast<const fi_fid_export *>(request);
  if (asked == nullptr || asked->fid == nullptr) return -FI_EINVAL;
  if (asked->flags != 0) return -FI_EBADFLAGS;
  L *const lent = new (std::nothrow) L(owned, asked->context);
  if (lent == nullptr) return -FI_ENOMEM;
  *asked->fid = lent->base();
  return 0;
}

class LentCq final : public Lent<LentCq, fid_peer_cq, Cq> {
 public:
  LentCq(Cq &cq, void *context) : Lent(cq, FI_CLASS_PEER_CQ, context) {
    static fi_ops_cq_owner ops{.size = sizeof ops, .write = write, .writeerr = writeerr};
    c()->owner_ops = &ops;
  }

 private:
  static ssize_t write(fid_peer_cq *peer, void *context, uint64_t flags, size_t len, void *buf,
                       uint64_t data, uint64_t tag, fi_addr_t src) {
    Cq &cq = from(peer)->owned_;
    const Guard guard(cq.engine().lock());
    if (cq.holds_back()) return -FI_EAGAIN;
    Completion told{.context = context, .flags = flags, .len = len, .buf = buf};
    told.data = data, told.tag = tag, told.src_addr = src;
    cq.push(told);
    return 0;
  }
  static ssize_t writeerr(fid_peer_cq *peer, const fi_cq_err_entry *entry) {
    if (entry == nullptr) return -FI_EINVAL;
    Cq &cq = from(peer)->owned_;
    const Guard guard(cq.engine().lock());
    if (cq.holds_back()) return -FI_EAGAIN;
    cq.push_error(error_of(*entry));
    return 0;
  }
};

class LentCntr final : public Lent<LentCntr, fid_peer_cntr, Cntr> {
 public:
  LentCntr(Cntr &cntr, void *context) : Lent(cntr, FI_CLASS_PEER_CNTR, context) {
    static fi_ops_cntr_owner ops{.size = sizeof ops, .inc = inc, .incerr = incerr};
    c()->owner_ops = &ops;
  }

 private:
  static void inc(fid_peer_cntr *peer) {
    Cntr &cntr = from(peer)->owned_;
    const Guard guard(cntr.engine().lock());
    cntr.add_events(1, 0);
  }
  static void incerr(fid_peer_cntr *peer) {
    Cntr &cntr = from(peer)->owned_;
    const Guard guard(cntr.engine().lock());
    cntr.add_error();
  }
};

class LentAv final : public Lent<LentAv, fid_peer_av, Av> {
 public:
  LentAv(Av &av, void *context) : Lent(av, FI_CLASS_PEER_AV, context) {
    static fi_ops_av_owner ops{.size = sizeof ops, .query = query, .ep_addr = ep_addr};
    c()->owner_ops = &ops;
  }

 private:
  static int query(fid_peer_av *peer, fi_av_attr *attr) {
    if (attr == nullptr) return -FI_EINVAL;
    from(peer)->owned_.query(*attr);
    return 0;
  }
  static fi_addr_t ep_addr(fid_peer_av *peer, fid_ep *ep) {
    return ep != nullptr ? from(peer)->owned_.address_of(*ep) : FI_ADDR_NOTAVAIL;
  }
};

class LentAvSet final : public Lent<LentAvSet, fid_peer_av_set, AvSet> {
 public:
  LentAvSet(AvSet &set, void *context) : Lent(set, FI_CLASS_PEER_AV_SET, context) {
    static fi_ops_av_set_owner ops{.size = sizeof ops, .members = members};
    c()->owner_ops = &ops;
  }

 private:
  static int members(fid_peer_av_set *peer, fi_addr_t *addr, size_t *count) {
    if (count == nullptr) return -FI_EINVAL;
    AvSet &set = from(peer)->owned_;
    const Guard guard(set.lock());
    const std::vector<fi_addr_t> &all = set.members();
    const bool fits = *count >= all.size() && (addr != nullptr || all.empty());
    *count = all.size();
    if (!fits) return -FI_ETOOSMALL;
    std::ranges::copy(all, addr);
    return 0;
  }
};

}  // namespace

int export_fid(Cq &cq, void *request) {
  return cq.source() == nullptr ? lend<LentCq>(cq, request) : -FI_ENOSYS;
}
int export_fid(Cntr &cntr, void *request) {
  return cntr.counts_bytes() ? -FI_ENOSYS : lend<LentCntr>(cntr, request);
}
int export_fid(Av &av, void *request) {
  return lend<LentAv>(av, request);
}
int export_fid(AvSet &set, void *request) {
  return lend<LentAvSet>(set, request);
}
int export_fid(SharedReceiveContext &context, void *request) {
  return lend<LentReceives>(context, request);
}

}  // namespace weft::sdk
