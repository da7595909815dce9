// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/libcxi/portal.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "plugins/cxi/libcxi/counter.h"
#include "plugins/cxi/libcxi/encode.h"

namespace weft::cxi {

// ---- the endpoint ----

Result<std::unique_ptr<LibcxiEndpoint>> LibcxiEndpoint::open(LibcxiLni &lni, Vni vni, Pid pid) {
  if (pid > kMaxPid && pid != kAnyPid)
    return fail(FI_EINVAL, "cxi: PID %u: it is 0 to %u, or %u for any that is free", pid, kMaxPid,
                kAnyPid);
  abi::Domain *domain = nullptr;
  const int rc = lni.library().alloc_domain(lni.handle(), vni, pid, &domain);
  if (rc == -EEXIST || rc == -EADDRINUSE)
    return fail(FI_EADDRINUSE, "cxi: PID %u of VNI %u is in use on %s: choose another one", pid,
                vni, lni.device().facts.name.c_str());
  if (rc != 0)
    return fail(-rc, "cxi: no PID in VNI %u on %s: %s: service %u may not allow it", vni,
                lni.device().facts.name.c_str(), strerror(-rc), lni.service().id);
  return std::unique_ptr<LibcxiEndpoint>(new LibcxiEndpoint(lni, domain));
}

// ---- the portal ----

Result<std::unique_ptr<LibcxiPortal>> LibcxiPortal::open(LibcxiLni &lni,
                                                         const PortalOptions &options,
                                                         LibcxiEventQueue &eq) {
  using O = abi::PortalOptions;
  O asked{.bits = O::kLongEvents};
  if (options.is_matching) asked.bits |= O::kMatching;
  if (!options.is_matching) asked.bits |= O::kTakesRestricted;
  if (options.flow_control) asked.bits |= O::kFlowControl;
  if (options.lossless) asked.bits |= O::kLossless;
  if (options.match_events) asked.bits |= O::kMatchEvents;
  abi::Portal *made = nullptr;
  const int rc = lni.library().alloc_pte(lni.handle(), eq.handle(), &asked, &made);
  if (rc == -EOPNOTSUPP)
    return fail(FI_EOPNOTSUPP, "cxi: %s has no such portals: use flow control",
                lni.device().facts.name.c_str());
  if (rc != 0) return fail(-rc, "cxi: no portal: %s: its service may have no more", strerror(-rc));
  std::unique_ptr<LibcxiPortal> portal(new LibcxiPortal(lni, made));
  lni.set_portal(made->number, portal.get());
  return portal;
}

LibcxiPortal::~LibcxiPortal() {
  lni_.set_portal(portal_->number, nullptr);
  for (const auto &[endpoint, map] : maps_) lni_.library().unmap_pte(map);
  lni_.library().destroy_pte(portal_);
}

Result<void> LibcxiPortal::map(Endpoint &endpoint, Index index) {
  const auto &own = static_cast<LibcxiEndpoint &>(endpoint);
  if (std::ranges::find(maps_, &own, [](const auto &one) { return one.first; }) != maps_.end())
    return fail(FI_EINVAL, "cxi: the portal is mapped already");
  abi::PortalMap *map = nullptr;
  const int rc = lni_.library().map_pte(portal_, own.handle(), index, false, &map);
  if (rc == 0) maps_.emplace_back(&own, map);
  if (rc == 0) return {};
  if (rc == -EEXIST)
    return fail(EEXIST, "cxi: portal index %u of PID %u is mapped already", index, own.pid());
  return fail(-rc, "cxi: portal index %u of PID %u: %s", index, own.pid(), strerror(-rc));
}

void LibcxiPortal::set_state(PortalState state, uint32_t drops) {
  lni_.command_target([&](uint8_t *command) {
    put(command, StateCommand::kind, uint64_t(CommandKind::kQueue));
    put(command, StateCommand::op, uint64_t(TargetOp::kSetState));
    put(command, StateCommand::state, uint64_t(state));
    put(command, StateCommand::portal, number());
    put(command, StateCommand::drops, drops);
  });
}

int LibcxiPortal::take_over(uint32_t drops) {
  lni_.drain_target();
  return lni_.library().pte_transition_sm(portal_, drops);
}

// How many headers there are is known when there was room for them.
PortalStatus LibcxiPortal::status() const {
  lni_.drain_target();
  PortalStatus status;
  std::vector<uint64_t> offsets(16);
  abi::PortalStatus told{};
  while (true) {
    told.offsets = offsets.data();
    told.offsets_length = uint16_t(offsets.size());
    if (lni_.library().pte_status(portal_, &told) != 0) return status;
    if (told.offsets_length <= offsets.size()) break;
    offsets.resize(told.offsets_length);
  }
  offsets.resize(told.offsets_length);
  status.state = PortalState(told.state);
  status.drops = told.drops;
  status.entries_used = told.entries_used;
  status.entries_max = told.entries_max;
  status.unexpected = std::move(offsets);
  return status;
}

void LibcxiPortal::append(List list, const Entry &entry) {
  EntryNames names{.portal = number(),
                   .ct = LibcxiCounter::number_of(entry.counter),
                   .lac = entry.memory.lac,
                   .start = entry.start,
                   .length = entry.length,
                   .min_free_shift = lni_.device().min_free_shift};
  // What is not mapped, or only in part, is the NIC's to refuse when somebody uses it.
  if (entry.memory.number != Memory::kWholeLac && entry.memory.number != Memory::kLent) {
    Mappings::Place place;
    if (lni_.mappings().find(entry.memory, entry.start, entry.length, place) != 0)
      lni_.mappings().find(entry.memory, entry.start, std::min<uint64_t>(entry.length, 1), place);
    names.lac = place.lac;
    names.start = place.address;
  }
  lni_.command_target([&](uint8_t *command) { write_append(command, list, entry, names); });
}

void LibcxiPortal::unlink(List list, uint16_t buffer_id) {
  lni_.command_target([&](uint8_t *command) {
    put(command, TargetCommand::kind, uint64_t(CommandKind::kQueue));
    put(command, TargetCommand::op, uint64_t(TargetOp::kUnlink));
    put(command, TargetCommand::list, uint64_t(list));
    put(command, TargetCommand::portal, number());
    put(command, TargetCommand::buffer_id, buffer_id);
  });
}

void LibcxiPortal::search(const Criteria &criteria, bool takes) {
  lni_.command_target([&](uint8_t *command) {
    put(command, TargetCommand::kind, uint64_t(CommandKind::kQueue));
    put(command, TargetCommand::op,
        uint64_t(takes ? TargetOp::kSearchAndDelete : TargetOp::kSearch));
    put(command, TargetCommand::list, uint64_t(List::kUnexpected));
    put(command, TargetCommand::portal, number());
    put(command, TargetCommand::buffer_id, criteria.buffer_id);
    put(command, TargetCommand::use_once, criteria.once);
    put(command, TargetCommand::length, TargetCommand::length.max());
    put(command, TargetCommand::match_id, criteria.match_id);
    put(command, TargetCommand::match_bits, criteria.match_bits);
    put(command, TargetCommand::ignore_bits, criteria.ignore_bits);
  });
}

void LibcxiPortal::invalidate(List list, uint16_t buffer_id) {
  lni_.drain_target();
  lni_.library().invalidate_pte_le(portal_, buffer_id, unsigned(list));
}

}  // namespace weft::cxi
