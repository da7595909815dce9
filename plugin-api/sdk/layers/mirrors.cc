// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/layers/inner_wait.h>
#include <weft/sdk/layers/mirrors.h>

#include <algorithm>

namespace weft::sdk {
namespace {

// The traffic that changes the counters also wakes threads that wait for completions. If no thread
// does, the first few counters are enough to wait on: all share the inner domain's descriptors.
constexpr size_t kStandIns = 4;

}  // namespace

Result<fid_cntr *> Mirrors::open(fid_domain *beneath) {
  fi_cntr_attr attr{};
  attr.events = FI_CNTR_EVENTS_COMP;
  fid_cntr *cntr = nullptr;
  const int rc = open_inner_wait([&](enum fi_wait_obj wait) {
    attr.wait_obj = wait;
    return fi_cntr_open(beneath, &attr, &cntr, nullptr);
  });
  if (rc != 0) return fail(-rc, "the inner provider has no counter");
  return cntr;
}

void Mirrors::add(Engine &engine, fid_cntr *inner, Cntr &outer) {
  const bool first = mirrors_.empty();
  mirrors_.push_back({inner, &outer, 0, 0});
  if (!first) engine.remove_poller(*this);  // its descriptors are about to change
  engine.add_poller(*this);
}

void Mirrors::remove(Engine &engine, fid_cntr *inner) {
  engine.remove_poller(*this);
  std::erase_if(mirrors_, [inner](const Mirror &m) { return m.inner == inner; });
  fi_close(&inner->fid);
  if (!mirrors_.empty()) engine.add_poller(*this);
}

void Mirrors::follow(Mirror &mirror) {
  const uint64_t value = fi_cntr_read(mirror.inner), errors = fi_cntr_readerr(mirror.inner);
  if (value != mirror.value) {
    // The inner counter counts in the unit of the outer one (events or bytes).
    const uint64_t n = value - mirror.value;
    mirror.outer->add_events(n, n);
  }
  for (; mirror.errors < errors; ++mirror.errors) mirror.outer->add_error();
  mirror.value = value;
}

void Mirrors::on_poll() {
  for (Mirror &mirror : mirrors_) follow(mirror);
}

int Mirrors::wait_fds(std::vector<int> &fds) {
  for (size_t i = 0; i < std::min(mirrors_.size(), kStandIns); ++i)
    if (const int rc = InnerWait(&mirrors_[i].inner->fid).add_to(fds); rc != 0) return rc;
  return 0;
}

bool Mirrors::may_wait() {
  struct fid *fids[kStandIns];
  int count = 0;
  for (size_t i = 0; i < std::min(mirrors_.size(), kStandIns); ++i)
    fids[count++] = &mirrors_[i].inner->fid;
  return fi_trywait(fabric_, fids, count) == 0;
}

}  // namespace weft::sdk
