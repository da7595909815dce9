// SPDX-License-Identifier: BSD-2-Clause
// fi_collective.3 of an endpoint and of a domain: what of an application's arguments makes sense.
#include <weft/sdk/transfers/atomic.h>
#include <weft/sdk/transfers/reduce.h>

#include "plugins/coll/collectives.h"
#include "plugins/coll/domain.h"
#include "plugins/coll/endpoint.h"

namespace weft::coll {
namespace {

constexpr uint64_t kCollectiveFlags = FI_COMPLETION | FI_MORE | sdk::kLevelFlags;

bool does_reduce(fi_collective_op coll) {
  return coll == FI_REDUCE || coll == FI_ALLREDUCE || coll == FI_REDUCE_SCATTER;
}

}  // namespace

ssize_t Endpoint::start(const sdk::CollectiveRequest &request) {
  if (request.flags & ~kCollectiveFlags) return -FI_EBADFLAGS;
  if (does_reduce(request.coll) && !sdk::reduce_valid(request.op, request.datatype))
    return -FI_EOPNOTSUPP;
  const sdk::Guard guard(lock());
  if (!enabled()) return -FI_EOPBADSTATE;
  if (!(caps() & FI_COLLECTIVE)) return -FI_EOPNOTSUPP;
  return collectives_.start(request);
}

Result<void> Endpoint::may_join() const {
  if (!(caps() & FI_COLLECTIVE))
    return fail(FI_EOPNOTSUPP, "the endpoint was opened without FI_COLLECTIVE");
  return {};
}

Result<fid_mc *> Endpoint::join_collective(const fi_collective_addr &address, void *context) {
  return collectives_.join(*av(), address, context);
}

// ---- fi_query_collective ----

int query_collective(enum fi_collective_op coll, struct fi_collective_attr *attr, uint64_t flags,
                     uint64_t longest) {
  if (attr == nullptr) return -FI_EINVAL;
  if (flags & ~uint64_t(FI_SCATTER)) return -FI_EBADFLAGS;
  int number = sdk::raw(coll);
  if (number < FI_BARRIER || number > FI_GATHER) return -FI_EOPNOTSUPP;
  if (flags & FI_SCATTER) number = FI_REDUCE_SCATTER;
  const auto wanted = static_cast<fi_collective_op>(number);
  const int op = sdk::raw(attr->op), datatype = sdk::raw(attr->datatype);
  size_t size = 0;
  if (wanted == FI_BARRIER) {
    if (op != FI_NOOP || datatype != FI_VOID) return -FI_EOPNOTSUPP;
  } else {
    size = sdk::datatype_size(datatype);
    const bool moves = op == FI_NOOP || op == FI_ATOMIC_READ || op == FI_ATOMIC_WRITE;
    if (size == 0 || (does_reduce(wanted) ? !sdk::reduce_valid(op, datatype) : !moves))
      return -FI_EOPNOTSUPP;
  }
  attr->datatype_attr.count = size != 0 ? size_t(longest / size) : 0;
  attr->datatype_attr.size = size;
  attr->max_members = Schedule::kMaxMembers;
  attr->mode = 0;
  return 0;
}

}  // namespace weft::coll
