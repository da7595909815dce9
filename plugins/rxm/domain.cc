// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/domain.h"

#include <weft/sdk/eq.h>

#include "plugins/rxm/endpoint.h"
#include "plugins/rxm/region.h"

namespace weft::rxm {

// ---- counters that follow others ----

void Mirrors::add(sdk::Engine &engine, fid_cntr *inner, sdk::Cntr &outer) {
  const bool first = mirrors_.empty();
  mirrors_.push_back({inner, &outer, 0, 0});
  if (!first) engine.remove_poller(*this);  // its descriptors change
  engine.add_poller(*this);
}

void Mirrors::remove(sdk::Engine &engine, fid_cntr *inner) {
  engine.remove_poller(*this);
  std::erase_if(mirrors_, [inner](const Mirror &m) { return m.inner == inner; });
  fi_close(&inner->fid);
  if (!mirrors_.empty()) engine.add_poller(*this);
}

void Mirrors::follow(Mirror &mirror) {
  const uint64_t value = fi_cntr_read(mirror.inner), errors = fi_cntr_readerr(mirror.inner);
  if (value != mirror.value) {
    // Counted in the unit of the outer counter already.
    const uint64_t n = value - mirror.value;
    mirror.outer->add_events(n, n);
  }
  for (; mirror.errors < errors; ++mirror.errors) mirror.outer->add_error();
  mirror.value = value;
}

void Mirrors::on_poll() {
  for (Mirror &mirror : mirrors_) follow(mirror);
}

int Mirrors::wait_fds(int (&fds)[kMaxFds]) {
  // What changes them is the traffic that wakes whoever waits for completions; where nobody does,
  // the first few stand for all: they share the inner domain's descriptors.
  int count = 0;
  for (const Mirror &mirror : mirrors_) {
    if (count == int(kMaxFds)) break;
    if (const int rc = fi_control(&mirror.inner->fid, FI_GETWAIT, &fds[count]); rc != 0) return rc;
    ++count;
  }
  return count;
}

bool Mirrors::may_wait() {
  struct fid *fids[kMaxFds];
  int count = 0;
  for (const Mirror &mirror : mirrors_) {
    if (count == int(kMaxFds)) break;
    fids[count++] = &mirror.inner->fid;
  }
  return fi_trywait(fabric_, fids, count) == 0;
}

// ---- the domain ----

// Regions are the inner domain's.
Domain::Domain(Fabric &fabric, const fi_info &info, sdk::InfoList inner_info, void *context)
    : LayerDomain(fabric, {}, info, std::move(inner_info), context),
      mr_bits_(registration_bits(info.domain_attr->mr_mode)),
      mirrors_(fabric.inner()) {}

Result<Domain *> Domain::open(Fabric &fabric, const fi_info &info, void *context) {
  WEFT_TRY(sdk::InfoList inner, fabric.layer().inner_info(info));
  inner.front()->domain_attr->mr_mode =
      registration_bits(info.domain_attr->mr_mode) & ~FI_MR_ENDPOINT;
  return start(new Domain(fabric, info, std::move(inner), context), info);
}

// Operands and what describes them are one packet.
sdk::AtomicLimits Domain::atomic_limits() const {
  const size_t room = fabric().layer().options().buffer_size - kAtomicVectorsSize;
  return {.write = room, .fetch = room, .compare = room / 2};
}

Result<fid_cntr *> Domain::open_inner_cntr() {
  fi_cntr_attr attr{};
  attr.events = FI_CNTR_EVENTS_COMP;
  attr.wait_obj = FI_WAIT_FD;
  fid_cntr *cntr = nullptr;
  if (const int rc = fi_cntr_open(inner(), &attr, &cntr, nullptr); rc != 0)
    return fail(-rc, "the inner provider has no counter");
  return cntr;
}

ssize_t Domain::resolve(uint64_t key, uint64_t address, uint64_t length, uint64_t access,
                        iovec *iov, size_t room) {
  const auto it = table_.find(key);
  if (it == table_.end() || room == 0) return -FI_EACCES;
  const Region &region = *it->second;
  if (!region.enabled() || (region.access() & access) != access) return -FI_EACCES;
  const uint64_t size = region.memory().iov_len;
  if (address < region.base_address()) return -FI_EACCES;
  const uint64_t offset = address - region.base_address();
  if (offset > size || length > size - offset) return -FI_EACCES;
  iov[0] = {static_cast<char *>(region.memory().iov_base) + offset, size_t(length)};
  return 1;
}

int Domain::reg(const void *buf, size_t len, uint64_t access, uint64_t offset,
                uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context) {
  const iovec iov{const_cast<void *>(buf), len};
  return regv(&iov, 1, access, offset, requested_key, flags, mr, context);
}

int Domain::regv(const struct iovec *iov, size_t count, uint64_t access, uint64_t offset,
                 uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context) {
  const fi_mr_attr attr{.mr_iov = iov,
                        .iov_count = count,
                        .access = access,
                        .offset = offset,
                        .requested_key = requested_key,
                        .context = context};
  return regattr(&attr, flags, mr);
}

int Domain::regattr(const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **mr) {
  if (attr == nullptr || mr == nullptr) return -FI_EINVAL;
  const int rc = sdk::finish(instance(), FI_LOG_MR, Region::open(*this, *attr, flags), mr);
  if (rc == 0 && eq() != nullptr) eq()->push(FI_MR_COMPLETE, &(*mr)->fid, (*mr)->key);
  return rc;
}

}  // namespace weft::rxm
