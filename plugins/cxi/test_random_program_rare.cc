// SPDX-License-Identifier: BSD-2-Clause
// RandomProgram: work that a counter starts, and groups.
#include <vector>

#include "plugins/cxi/test_random_program.h"

namespace weft::conformance::rdm {

// ---- deferred work ----

void RandomProgram::start_deferred(Operation &operation, enum fi_op_type type, void *op) {
  Nic &nic = *operation.endpoint->nic;
  fi_deferred_work &work = operation.work;
  work.threshold = fi_cntr_read(nic.start) + below(6);
  work.triggering_cntr = nic.start;
  work.completion_cntr = coin() ? nic.done.get() : nullptr;
  work.op_type = type;
  work.op.msg = static_cast<fi_op_msg *>(op);
  operation.is_deferred = true;
  const int rc = fi_control(&nic.owner->domain->fid, FI_QUEUE_WORK, &work);
  if (rc == 0) return;
  if (rc != -FI_EAGAIN && rc != -FI_ENOSPC) must(rc);
  messages_.erase(operation.message);
  drop(operation);
}

void RandomProgram::cancel_work(Endpoint &endpoint) {
  for (auto &[context, operation] : endpoint.operations) {
    if (!operation->is_deferred || coin()) continue;
    const int rc = fi_control(&endpoint.nic->owner->domain->fid, FI_CANCEL_WORK, &operation->work);
    if (rc == -FI_ENOENT) continue;
    must(rc);
    messages_.erase(operation->message);
    return drop(*operation);
  }
}

// ---- groups ----

void RandomProgram::found_group() {
  std::vector<Endpoint *> members;
  for (const auto &one : endpoints_)
    if (one->is_alive() && one->members.size() < 3 && below(4) != 0) members.push_back(one.get());
  if (members.size() < 2) return;
  auto group = std::make_shared<Group>();
  group->members = members.size();
  for (size_t rank = 0; rank < members.size(); ++rank) {
    Endpoint &own = *members[rank];
    fi_av_set_attr attr{};
    attr.start_addr = attr.end_addr = FI_ADDR_NOTAVAIL;
    Member member{.group = group, .set = {}, .mc = {}, .rank = rank};
    must(fi_av_set(own.node->av, &attr, member.set.out(), nullptr));
    for (const Endpoint *const one : members)
      must(fi_av_set_insert(member.set, one->at[size_t(own.nic - nics_.data())]));
    const int rc =
        fi_join_collective(own.node->ep, FI_ADDR_NOTAVAIL, member.set, 0, member.mc.out(), nullptr);
    if (rc != 0) {
      group->broken = true;
      continue;
    }
    own.members.push_back(std::move(member));
  }
}

void RandomProgram::collective(Endpoint &endpoint) {
  if (endpoint.members.empty()) return;
  Member &member = endpoint.members[below(endpoint.members.size())];
  read_joined(*endpoint.nic);
  if (!member.joined) return;
  Operation &operation = *add(endpoint, Kind::kCollective, 16);
  operation.group = member.group;
  const size_t members = member.group->members;
  const fi_addr_t at = fi_mc_addr(member.mc);
  ssize_t rc;
  if (member.next % 3 == 0) {
    rc = fi_barrier(endpoint.node->ep, at, &operation);
  } else {
    operation.bytes[0] = uint8_t(member.rank + member.next % 8);
    operation.wanted = members * (members - 1) / 2 + members * (member.next % 8);
    rc = fi_allreduce(endpoint.node->ep, operation.bytes.data(), 1, nullptr,
                      operation.bytes.data() + 8, nullptr, at, FI_INT64, FI_SUM, 0, &operation);
  }
  if (rc == 0) {
    ++member.next;
    return;
  }
  if (rc != -FI_EAGAIN && !member.group->broken) must(rc);
  drop(operation);
}

void RandomProgram::leave(Endpoint &endpoint) {
  if (endpoint.members.empty()) return;
  endpoint.members.back().group->broken = true;
  endpoint.members.pop_back();
}

}  // namespace weft::conformance::rdm
