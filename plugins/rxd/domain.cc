// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/domain.h"

#include <algorithm>
#include <utility>

#include "plugins/rxd/endpoint.h"
#include "plugins/rxd/protocol/device_copies.h"
#include "plugins/rxd/protocol/weft.h"
#include "plugins/rxd/wire/stock.h"

namespace weft::rxd {
namespace {

// Bytes of a packet that its atomic with the most vectors cannot use.
constexpr size_t kAtomicOverhead =
    OutPacket::kHead + wire::kMacSize + wire::atomic_size(wire::kVectorLimit);
static_assert(kLeastDatagram >= kMaxAtomicSize + kAtomicOverhead);
static_assert(kSmallestDatagram > kAtomicOverhead);

sdk::MrTable::Mode regions_of(int mr_mode) {
  sdk::MrTable::Mode mode = sdk::MrTable::Mode::of(mr_mode);
  mode.iov_limit = 1;
  return mode;
}

}  // namespace

Domain::Domain(Fabric &fabric, const fi_info &info, sdk::InfoList inner_info, sdk::AuthKey auth_key,
               void *context)
    : LayerDomain(fabric, regions_of(info.domain_attr->mr_mode), info, std::move(inner_info),
                  context),
      auth_key_(std::move(auth_key)) {
  // It is safe to expect the next progress call from the beginning: a message waits for it only
  // behind unacknowledged ones (Outbox::gathers). And a stream that begins with a
  // datagram per short message makes the peer's kernel join datagrams (udp's inlet.h), which makes
  // all later ones slower.
  engine().expect_progress();
  engine().lock().count_waits(fabric.stats()->locks_contended);
  // Peers have named the region: a copy from it or to it may be under way.
  regions().on_close = [this](sdk::Mr &mr) {
    for (DeviceCopies *copies : copies_) copies->settle();
    mr.pins = 0;
  };
}

Result<Domain *> Domain::open(Fabric &fabric, const fi_info &info, void *context) {
  WEFT_TRY(sdk::InfoList inner, fabric.layer().inner_info(info));
  WEFT_TRY(sdk::AuthKey key,
           sdk::auth_key(info, fabric.layer().options().auth_key_file, fabric.api_version()));
  std::shared_ptr<const sdk::Hmem> hmem;
  if ((info.caps | info.domain_attr->caps) & FI_HMEM) {
    WEFT_TRY(hmem, fabric.layer().hmem().open());
  }
  auto *const domain = new Domain(fabric, info, std::move(inner), std::move(key), context);
  domain->set_hmem(std::move(hmem));
  return start(domain, info);
}

size_t Domain::first_datagram() const {
  const size_t asked = fabric().layer().options().datagram_size;
  return std::min({stock::kDatagram, inner_info().ep_attr->max_msg_size,
                   asked != 0 ? asked : stock::kDatagram});
}

// An atomic goes in one packet, also to a peer that is not yet known to take larger ones.
sdk::AtomicLimits Domain::atomic_limits() const {
  const size_t most = std::min(kMaxAtomicSize, first_datagram() - kAtomicOverhead);
  return {.write = most, .fetch = most, .compare = most / 2};
}

}  // namespace weft::rxd
