// SPDX-License-Identifier: BSD-2-Clause
// The part of Lower that opens, accepts and closes connections of the inner provider, and reads its
// event queue. Data and progress are in lower.cc.
#include <rdma/fi_eq.h>
#include <weft/sdk/memory/room.h>
#include <weft/sdk/transfers/levels.h>

#include <algorithm>
#include <new>

#include "plugins/rxm/lower.h"

namespace weft::rxm {
namespace {

constexpr size_t kPrivateData = 256;
constexpr uint64_t kBuryNs = 2'000'000'000;
constexpr unsigned kPollsToEnd = 64;  // then a link has ended, even if fi_getpeer answers

sdk::Address address_of(uint32_t format, const void *addr, size_t length) {
  if (addr == nullptr) return {};
  return sdk::read_address(format, addr, length).value_or(sdk::Address());
}

}  // namespace

// A connection request. It is answered within one call of Core::on_request().
struct Request {
  fi_info *info;
  bool answered;
};

Link *Lower::make_link(Connection &owner, fi_info *info, int &err) {
  std::unique_ptr<Link> link(new (std::nothrow) Link);
  if (link == nullptr) {
    err = FI_ENOMEM;
    return nullptr;
  }
  link->owner = &owner;
  info->tx_attr->op_flags &= ~sdk::kLevelFlags;  // of a request, too: see LayerDomain
  sdk::have_room(links_, links_.size() + 1);
  sdk::have_room(closing_, links_.size() + 1);
  int rc = fi_endpoint(domain_.inner(), info, &link->ep, link->mark(0));
  if (rc != 0) {
    err = -rc;
    return nullptr;
  }
  links_.push_back(link.get());
  Link *made = link.release();
  if (free_numbers_.empty()) {
    numbers_.emplace_back();
    free_numbers_.reserve(numbers_.size());
    free_numbers_.push_back(uint32_t(numbers_.size() - 1));
  }
  made->place = free_numbers_.back();
  free_numbers_.pop_back();
  Number &number = numbers_[made->place];
  number.link = made;
  ++number.uses;
  weft_carrier_ops *ops = nullptr;
  if (fi_open_ops(&made->ep->fid, WEFT_CARRIER_OPS, 0, reinterpret_cast<void **>(&ops), nullptr) ==
      0)
    ops->identify(made->ep, uint64_t(number.uses) << 32 | made->place);
  if (ops != nullptr && ops->size >= offsetof(weft_carrier_ops, flags)) made->ops = ops;
  if (ops != nullptr && ops->size >= sizeof *ops) made->flags |= ops->flags;
  if (domain_.endpoint_needed())
    domain_.region_ops()->join_group(made->ep, upper_.endpoint_number());
  rc = fi_ep_bind(made->ep, &eq_->fid, 0);
  if (rc == 0) rc = fi_ep_bind(made->ep, &queue_.cq->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION);
  if (rc == 0) rc = fi_ep_bind(made->ep, &queue_.cq->fid, FI_RECV);
  if (rc == 0 && srx_ != nullptr) rc = fi_ep_bind(made->ep, &srx_->fid, 0);
  if (rc == 0 && remote_write_ != nullptr)
    rc = fi_ep_bind(made->ep, &remote_write_->fid, FI_REMOTE_WRITE);
  if (rc == 0 && remote_read_ != nullptr)
    rc = fi_ep_bind(made->ep, &remote_read_->fid, FI_REMOTE_READ);
  if (rc == 0) rc = fi_enable(made->ep);
  if (rc == 0 && srx_ == nullptr) {
    made->memory = std::make_unique_for_overwrite<uint8_t[]>(own_receives_ * packet_size());
    made->buffers.resize(own_receives_);
    rc = make_places(made->buffers, made->places, made->memory.get(), made->region);
    for (size_t i = 0; i < made->buffers.size() && rc == 0; ++i) {
      made->buffers[i] = {made, made->memory.get() + i * packet_size()};
      rc = post(made->buffers[i]);
    }
  }
  if (rc == 0) return made;
  err = -rc;
  destroy(*made);
  return nullptr;
}

void Lower::destroy(Link &link) {
  fi_close(&link.ep->fid);
  const std::vector<Token *> lost = flights_.drop(link.calls);
  numbers_[link.place].link = nullptr;
  free_numbers_.push_back(link.place);
  std::erase(links_, &link);
  std::erase(closing_, &link);
  delete &link;
  if (shuts_) return;  // nobody waits for them
  for (Token *token : lost) core_->on_sent(*token, FI_ECANCELED);
}

Link *Lower::connect(Connection &owner, const sdk::Address &peer, std::span<const uint8_t> data,
                     int &err) {
  Link *link = make_link(owner, active_.front(), err);
  if (link == nullptr) return nullptr;
  char name[256];
  size_t length = sizeof name;
  int rc = sdk::write_address(peer, addr_format_, name, &length);
  if (rc == 0) rc = fi_connect(link->ep, name, data.data(), data.size());
  if (rc == 0) {
    ++connecting_;
    return link;
  }
  err = -rc;
  destroy(*link);
  return nullptr;
}

Link *Lower::accept(Connection &owner, Request &request, std::span<const uint8_t> data, int &err) {
  set_sizes(*request.info);
  Link *link = make_link(owner, request.info, err);
  if (link == nullptr) return nullptr;
  request.answered = true;
  if (const int rc = fi_accept(link->ep, data.data(), data.size()); rc != 0) {
    err = -rc;
    destroy(*link);
    return nullptr;
  }
  ++connecting_;
  return link;
}

void Lower::reject(Request &request, std::span<const uint8_t> data) {
  if (std::exchange(request.answered, true)) return;
  fi_reject(pep_, request.info->handle, data.data(), data.size());
}

void Lower::close(Link &link, bool idle) {
  if (std::exchange(link.owner, nullptr) == nullptr) return;
  if (link.ended != 0) --ended_;
  connecting_ = 0;  // other links' events may be seen a little later
  // Without shared receives the link owns the memory of the packet that is being handled: destroy
  // it later. The same if packets of ours (answers, credits) are still on their way.
  if (idle && shares_ && link.calls.count == 0) return destroy(link);
  // Outstanding operations come back as failures. Read these completions before closing the
  // endpoint.
  if (!idle) fi_shutdown(link.ep, 0);
  link.end_by = now_ns() + kBuryNs;
  closing_.push_back(&link);
}

// A device returns calls some time after the connection has ended.
bool Lower::may_go(const Link &link) {
  return link.calls.count == 0 || now_ns() >= link.end_by;
}

// The inner queue reads empty. Closes links whose last completions have been read.
void Lower::bury() {
  for (size_t i = closing_.size(); i-- > 0;)
    if (i < closing_.size() && may_go(*closing_[i])) destroy(*closing_[i]);
}

// ---- events ----

void Lower::read_events() {
  alignas(fi_eq_cm_entry) char bytes[sizeof(fi_eq_cm_entry) + kPrivateData];
  auto &entry = *reinterpret_cast<fi_eq_cm_entry *>(bytes);
  for (int i = 0; i < 64; ++i) {
    uint32_t event = 0;
    const ssize_t n = fi_eq_read(eq_, &event, bytes, sizeof bytes, 0);
    if (n == -FI_EAVAIL) {
      read_event_failure();
      continue;
    }
    if (n < ssize_t(sizeof entry)) return;
    const size_t more = size_t(n) - sizeof entry;
    const std::span<const uint8_t> data(reinterpret_cast<const uint8_t *>(entry.data), more);
    if (event == FI_CONNREQ) {
      on_connreq(entry, more);
      continue;
    }
    Link *const link = Link::of(*entry.fid);
    if (link->owner == nullptr) continue;
    if (event == FI_CONNECTED) {
      if (connecting_ != 0) --connecting_;
      core_->on_connected(*link->owner, data);
    } else if (event == FI_SHUTDOWN) {
      if (link->ended++ == 0) ++ended_;
    }
  }
}

void Lower::on_connreq(const fi_eq_cm_entry &entry, size_t size) {
  Request request{entry.info, false};
  const sdk::Address from =
      address_of(entry.info->addr_format, entry.info->dest_addr, entry.info->dest_addrlen);
  const sdk::Address to =
      address_of(entry.info->addr_format, entry.info->src_addr, entry.info->src_addrlen);
  if (from.size() != 0) {
    core_->on_request(request, from, to, {reinterpret_cast<const uint8_t *>(entry.data), size});
  }
  if (!request.answered) fi_reject(pep_, entry.info->handle, nullptr, 0);
  domain_.instance()->core->info_free(entry.info);
}

void Lower::read_event_failure() {
  char data[kPrivateData];
  fi_eq_err_entry entry{};
  entry.err_data = data;
  entry.err_data_size = sizeof data;
  if (fi_eq_readerr(eq_, &entry, 0) < 0 || entry.fid == nullptr) return;
  if (entry.fid == &pep_->fid) return;  // the inner provider has logged it, and still listens
  Link *const link = Link::of(*entry.fid);
  if (link->owner == nullptr) return;
  if (connecting_ != 0) --connecting_;
  const size_t size = std::min(entry.err_data_size, sizeof data);
  const int err = entry.err != 0 ? entry.err : FI_ECONNREFUSED;
  const bool hung_up = (err == FI_ECONNREFUSED || err == FI_ECONNRESET) && size == 0 &&
                       entry.prov_errno == FI_ECONNRESET;
  // Connections of software iWARP are TCP's, but their ports are chosen without a look at TCP's.
  const bool has_port_in_use = err == FI_EADDRINUSE;
  core_->on_refused(*link->owner, err, {static_cast<const uint8_t *>(entry.err_data), size},
                    hung_up || has_port_in_use);
}

// Ends links whose peer hung up, after their data: packets may still be in the stream, because
// there was no buffer for them.
void Lower::end_links() {
  if (shares_ && posted_ == 0) return;
  for (size_t i = 0; i < links_.size(); ++i) {
    Link &link = *links_[i];
    if (link.ended == 0 || link.owner == nullptr || link.held) continue;
    char name[256];
    size_t length = sizeof name;
    if (++link.ended < kPollsToEnd && fi_getpeer(link.ep, name, &length) == 0) continue;
    core_->on_closed(*link.owner, FI_ECONNRESET);
  }
}

}  // namespace weft::rxm
