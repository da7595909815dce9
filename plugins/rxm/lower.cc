// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/lower.h"

#include <poll.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>
#include <weft/sdk/unit/log.h>
#include <weft/sdk/unit/sparse_log.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace weft::rxm {
namespace {

constexpr size_t kBatch = 32;  // completions per call of fi_cq_readfrom
constexpr int kBatches = 8;    // per progress call
// Shared buffers that are posted, if the inner provider takes as many; the others are a reserve.
constexpr size_t kPosted = 64, kLeastPosted = 4;
// A stream waits for a receive, but a device asks its peer to repeat, which takes a timer.
constexpr size_t kPostedToDevice = 128;
// So many of them may be missing before they are posted again. A poll that finds nothing posts them
// earlier.
constexpr size_t kMostMissing = 16;
constexpr unsigned kEventEvery = 64;  // polls between reads of events, if none is expected

fid_mr *region_of(Registration &registration) {
  return reinterpret_cast<fid_mr *>(&registration);
}

}  // namespace

Lower::Lower(Domain &domain, Upper &upper)
    : domain_(domain),
      upper_(upper),
      options_(domain.fabric().layer().options()),
      modes_(domain.inner_modes()),
      flights_(domain),
      active_(domain.instance()->core) {}

Lower::~Lower() {
  shut();
}

Result<void> Lower::open(const sdk::Address &local, sdk::Cntr *remote_write,
                         sdk::Cntr *remote_read) {
  const fi_info &inner = domain_.inner_info();
  addr_format_ = inner.addr_format;
  inject_limit_ = inner.tx_attr->inject_size;
  iov_limit_ = std::max<size_t>(inner.tx_attr->iov_limit, 2);
  // Without resource management a message that finds no receive is lost, with its connection: each
  // connection has receives of its own then, and the peer is told how many (credits).
  shares_ =
      inner.domain_attr->max_ep_srx_ctx != 0 && inner.domain_attr->resource_mgmt == FI_RM_ENABLED;
  const size_t count = std::max<size_t>(options_.rx_pool / packet_size(), 4);
  own_receives_ = uint32_t(std::clamp<size_t>(inner.rx_attr->size, 2, kOwnReceives));
  receive_count_ = shares_ ? uint32_t(count) : own_receives_;
  // Entries of a device's queue take memory whether they are used or not.
  if (modes_.local_memory) tx_size_ = std::min(inner.tx_attr->size, kDeviceSends);
  void *ops = nullptr;
  carries_bare_ =
      inner.domain_attr->cq_data_size >= kBareDataSize &&
      (!shares_ || fi_open_ops(&domain_.inner()->fid, WEFT_CARRIER_OPS, 0, &ops, nullptr) == 0);
  flights_.open(modes_, packet_size(), *inner.tx_attr,
                tx_size_ != 0 ? tx_size_ : inner.tx_attr->size);
  WEFT_CHECK(open_objects());
  WEFT_CHECK(count_remote(remote_write, remote_read));
  if (shares_) {
    memory_ = sdk::make_lazy_array<uint8_t>(count * packet_size());
    if (memory_ == nullptr) throw std::bad_alloc();
    pool_.resize(count);
    free_.reserve(count);
    for (size_t i = count; i-- > 0;) {
      pool_[i].bytes = memory_.get() + i * packet_size();
      free_.push_back(&pool_[i]);
    }
    if (const int rc = make_places(pool_, places_, memory_.get(), region_); rc != 0)
      return fail(-rc, "the inner provider does not register %zu bytes of receive buffers",
                  count * packet_size());
    fill_below_ = most_posted_ - std::min(kMostMissing, most_posted_ / 4);
    fill();
  }
  return listen(local);
}

Result<void> Lower::count_remote(sdk::Cntr *remote_write, sdk::Cntr *remote_read) {
  const struct {
    sdk::Cntr *outer;
    fid_cntr *&inner;
    uint64_t access;
  } all[] = {{remote_write, remote_write_, FI_REMOTE_WRITE},
             {remote_read, remote_read_, FI_REMOTE_READ}};
  for (const auto &[outer, inner, access] : all) {
    if (outer == nullptr || inner != nullptr) continue;
    WEFT_TRY(inner, sdk::Mirrors::open(domain_.inner()));
    domain_.mirrors().add(domain_.engine(), inner, *outer);
    for (Link *link : links_)
      if (const int rc = fi_ep_bind(link->ep, &inner->fid, access); rc != 0)
        return fail(-rc, "the inner provider takes no counter after fi_enable");
  }
  return {};
}

Result<void> Lower::open_objects() {
  fi_eq_attr eq{};
  int rc = sdk::open_inner_wait([&](enum fi_wait_obj wait) {
    eq.wait_obj = wait;
    return fi_eq_open(domain_.fabric().inner(), &eq, &eq_, nullptr);
  });
  if (rc != 0) return fail(-rc, "the inner provider has no event queue");
  fi_control(&eq_->fid, WEFT_READ_BY_LAYER, nullptr);
  eq_wait_ = sdk::InnerWait(&eq_->fid);
  fi_cq_attr cq{};
  cq.format = FI_CQ_FORMAT_TAGGED;
  fid_cq *queue = nullptr;
  rc = sdk::open_inner_wait([&](enum fi_wait_obj wait) {
    cq.wait_obj = wait;
    return fi_cq_open(domain_.inner(), &cq, &queue, nullptr);
  });
  if (rc != 0) return fail(-rc, "the inner provider has no completion queue");
  queue_ = sdk::InnerQueue(queue);
  cq_wait_ = sdk::InnerWait(&queue->fid);
  WEFT_TRY(fi_info *const info, active_.add_copy(&domain_.inner_info()));
  info->handle = nullptr;
  info->tx_attr->tclass = tclass_;
  fi_rx_attr rx = *info->rx_attr;
  set_sizes(*info);
  if (!shares_) return {};
  // A device may take less for a shared queue than for others, and does not say how much.
  rx.op_flags = 0;
  rc = -FI_EINVAL;
  size_t size =
      std::min(modes_.local_memory ? kPostedToDevice : kPosted, std::max(rx.size, kLeastPosted));
  for (; rc == -FI_EINVAL && size >= kLeastPosted; size /= 2) {
    rx.size = most_posted_ = size;
    rc = fi_srx_context(domain_.inner(), &rx, &srx_, nullptr);
  }
  if (rc != 0) return fail(-rc, "the inner provider has no shared receive context");
  return {};
}

// Of the queues of one connection.
void Lower::set_sizes(fi_info &info) const {
  if (tx_size_ == 0) return;
  info.tx_attr->size = tx_size_;
  if (!shares_) info.rx_attr->size = own_receives_;
}

Result<void> Lower::listen(const sdk::Address &local) {
  sdk::InfoList passive(domain_.instance()->core);
  WEFT_TRY(fi_info *const info, passive.add_copy(&domain_.inner_info()));
  info->tx_attr->tclass = tclass_;
  WEFT_CHECK(sdk::set_info_address(info->src_addr, info->src_addrlen, addr_format_, local));
  WEFT_CHECK(sdk::set_address(info->dest_addr, info->dest_addrlen, nullptr, 0));
  if (const int rc = fi_passive_ep(domain_.fabric().inner(), info, &pep_, nullptr); rc != 0)
    return fail(-rc, "the inner provider has no passive endpoint at %s (its log says why)",
                local.to_string().c_str());
  if (const int rc = fi_pep_bind(pep_, &eq_->fid, 0); rc != 0)
    return fail(-rc, "the inner provider's passive endpoint takes no event queue");
  if (const int rc = fi_listen(pep_); rc != 0)
    return fail(-rc, "listening on %s failed (its log says why)", local.to_string().c_str());
  char name[256];
  size_t length = sizeof name;
  if (const int rc = fi_getname(&pep_->fid, name, &length); rc != 0)
    return fail(-rc, "the inner provider does not say where it listens");
  WEFT_TRY(local_, sdk::read_address(addr_format_, name, length));
  if (!local_.has_port())
    return fail(FI_EINVAL,
                "rxm cannot listen on %s: peers tell each other the port of their address, and "
                "addresses of this format have none",
                local_.to_string().c_str());
  // Outgoing connections use the same address, and any port.
  WEFT_TRY(const sdk::Address source, local_.with_port(0));
  fi_info *active = active_.front();
  WEFT_CHECK(sdk::set_info_address(active->src_addr, active->src_addrlen, addr_format_, source));
  WEFT_CHECK(sdk::set_address(active->dest_addr, active->dest_addrlen, nullptr, 0));
  return {};
}

void Lower::shut() {
  shuts_ = true;
  while (!links_.empty()) destroy(*links_.back());
  if (pep_ != nullptr) fi_close(&std::exchange(pep_, nullptr)->fid);
  if (srx_ != nullptr) fi_close(&std::exchange(srx_, nullptr)->fid);
  flights_.close();
  region_.close();
  for (fid_cntr **cntr : {&remote_write_, &remote_read_})
    if (*cntr != nullptr) domain_.mirrors().remove(domain_.engine(), std::exchange(*cntr, nullptr));
  if (queue_.cq != nullptr) fi_close(&std::exchange(queue_.cq, nullptr)->fid);
  if (eq_ != nullptr) fi_close(&std::exchange(eq_, nullptr)->fid);
  // It may be opened again.
  free_.clear();
  places_.clear();
  pool_.clear();
  posted_ = ended_ = connecting_ = 0;
  shuts_ = false;
}

void Lower::wait(uint64_t end_ns) {
  std::vector<int> fds;
  if (!may_wait() || wait_fds(fds) != 0) return;
  const uint64_t now = now_ns();
  if (now >= end_ns) return;
  std::vector<pollfd> polled;
  for (const int fd : fds) polled.push_back({fd, POLLIN, 0});
  domain_.engine().lock().unlock();
  ::poll(polled.data(), nfds_t(polled.size()), int((end_ns - now) / 1'000'000u + 1));
  domain_.engine().lock().lock();
}

// ---- data ----

ssize_t Lower::send(Link &link, const iovec *iov, void *const *desc, size_t count, uint32_t data,
                    uint64_t flags, Token *token) {
  void *const context = token != nullptr ? token : link.context_of(flags);
  flags &= link.flags;
  const fi_msg msg{.msg_iov = iov, .iov_count = count, .context = context, .data = data};
  if (modes_.of_calls()) return flights_.send(link.calls, link.ep, msg, desc, flags, token);
  return fi_sendmsg(link.ep, &msg, flags);
}

ssize_t Lower::read(Link &link, const iovec *iov, void *const *desc, size_t count,
                    const RmaVector *from, size_t from_count, uint64_t flags, Token *token) {
  fi_rma_iov rma[kMaxVectors];
  for (size_t i = 0; i < from_count; ++i) rma[i] = {from[i].address, from[i].length, from[i].key};
  const fi_msg_rma msg{.msg_iov = iov,
                       .iov_count = count,
                       .rma_iov = rma,
                       .rma_iov_count = from_count,
                       .context = token};
  if (modes_.of_calls())
    return flights_.access(link.calls, link.ep, false, msg, desc, flags, token);
  return fi_readmsg(link.ep, &msg, flags);
}

ssize_t Lower::write(Link &link, const iovec *iov, void *const *desc, size_t count,
                     const RmaVector *to, size_t to_count, uint64_t data, uint64_t flags,
                     Token *token) {
  fi_rma_iov rma[kMaxVectors];
  for (size_t i = 0; i < to_count; ++i) rma[i] = {to[i].address, to[i].length, to[i].key};
  const fi_msg_rma msg{.msg_iov = iov,
                       .iov_count = count,
                       .rma_iov = rma,
                       .rma_iov_count = to_count,
                       .context = token != nullptr ? token : link.context_of(flags),
                       .data = data};
  flags &= link.flags;
  if (modes_.of_calls()) return flights_.access(link.calls, link.ep, true, msg, desc, flags, token);
  return fi_writemsg(link.ep, &msg, flags);
}

// Registers the memory of the buffers, and makes their contexts, where the inner provider wants it.
int Lower::make_places(std::vector<Buffer> &buffers, std::vector<Place> &places,
                       const uint8_t *memory, sdk::InnerRegion &region) {
  if (modes_.contexts) {
    places.resize(buffers.size());
    for (size_t i = 0; i < buffers.size(); ++i) places[i].buffer = &buffers[i];
  }
  if (!modes_.local_memory) return 0;
  return domain_.register_inner({const_cast<uint8_t *>(memory), buffers.size() * packet_size()},
                                FI_RECV, region);
}

int Lower::post(Buffer &buffer) {
  Link *const link = buffer.link;
  void *context = &buffer;
  if (modes_.contexts)
    context = link != nullptr ? &link->places[size_t(&buffer - link->buffers.data())]
                              : &places_[size_t(&buffer - pool_.data())];
  return int(fi_recv(link != nullptr ? link->ep : srx_, buffer.bytes, packet_size(),
                     (link != nullptr ? link->region : region_).desc(), FI_ADDR_UNSPEC, context));
}

// From the context of a completion.
Buffer *Lower::buffer_at(void *op_context) const {
  if (!modes_.contexts || op_context == nullptr) return static_cast<Buffer *>(op_context);
  return static_cast<Place *>(op_context)->buffer;
}

void Lower::fill() {
  while (posted_ < most_posted_ && !free_.empty()) {
    if (post(*free_.back()) != 0) return;  // retried when the next buffer comes back
    free_.pop_back();
    ++posted_;
  }
}

void Lower::release(Buffer &buffer) {
  if (buffer.link == nullptr) {
    free_.push_back(&buffer);
    return fill_soon();
  }
  Connection *owner = buffer.link->owner;
  if (owner == nullptr || post(buffer) != 0) return;
  core_->on_reposted(*owner, 1);
}

bool Lower::hold(Link &link, bool held) {
  if (link.ops == nullptr || link.ops->hold(link.ep, held) != 0) return false;
  link.held = held;
  return true;
}

Registration *Lower::expose(Link &link, const iovec &iov, uint64_t access, RmaVector &vector,
                            int &err) {
  fid_mr *mr = nullptr;
  int rc = -FI_ENOKEY;
  if (link.ops != nullptr) {
    rc = link.ops->expose(link.ep, &iov, access, &mr);
  } else {
    sdk::InnerRegion region;
    rc = domain_.register_inner(iov, access, region);
    mr = region.release();
  }
  if (rc != 0) {
    err = -rc;
    return nullptr;
  }
  vector.address = domain_.virtual_addresses() ? reinterpret_cast<uintptr_t>(iov.iov_base) : 0;
  vector.length = iov.iov_len;
  vector.key = fi_mr_key(mr);
  return reinterpret_cast<Registration *>(mr);
}

Registration *Lower::enlist(const iovec &iov, void *&desc, int &err) {
  desc = nullptr;
  err = 0;
  if (!modes_.local_memory) return nullptr;
  sdk::InnerRegion region;
  err = -domain_.register_inner(iov, FI_WRITE, region);
  if (err != 0) return nullptr;
  desc = region.desc();
  return reinterpret_cast<Registration *>(region.release());
}

void Lower::conceal(Registration &registration) {
  fi_close(&region_of(registration)->fid);
}

bool Lower::reads() {
  return (!shares_ || posted_ != 0) && !is_full();
}

ssize_t Lower::resolve(const RmaVector &vector, uint64_t access, iovec *iov, size_t room) {
  return domain_.resolve(vector.key, vector.address, vector.length, access, iov, room,
                         upper_.endpoint_number());
}

uint64_t Lower::now_ns() {
  return sdk::now_ns();
}

void Lower::set_deadline(uint64_t at_ns) {
  domain_.engine().set_deadline(*this, at_ns);
}

void Lower::on_deadline() {
  core_->on_deadline();
}

// ---- progress ----

void Lower::on_poll() {
  core_->begin_pass();
  if (!is_full() && read_completions() && ended_ != 0) end_links();
  if (connecting_ != 0 || ++polls_ % kEventEvery == 0) read_events();
  core_->poll();
}

int Lower::wait_fds(std::vector<int> &fds) {
  const int rc = cq_wait_.add_to(fds);
  return rc == 0 ? eq_wait_.add_to(fds) : rc;
}

bool Lower::may_wait() {
  polls_ = kEventEvery - 1;  // after a wait, read the event queue as well
  fill();
  if (cq_wait_.changed() || eq_wait_.changed()) domain_.engine().rewatch(*this);
  if (is_full()) return true;
  if (!closing_.empty()) return false;  // until their calls have come back
  if (ended_ != 0 && (!shares_ || posted_ != 0)) {
    const auto ends = [](const Link *link) { return link->ended != 0 && !link->held; };
    if (std::any_of(links_.begin(), links_.end(), ends)) return false;  // poll a few times more
  }
  struct fid *fids[] = {&queue_.cq->fid, &eq_->fid};
  return fi_trywait(domain_.fabric().inner(), fids, 2) == 0;
}

bool Lower::read_completions() {
  fi_cq_tagged_entry entries[kBatch];
  fi_addr_t sources[kBatch];
  sdk::InnerProgress &progress = domain_.progress_beneath();
  for (int batch = 0; batch < kBatches; ++batch) {
    ssize_t n = -FI_EAGAIN;
    // A link is buried when the queue has been read to its end: what is told of its last operations
    // may need the progress of such a read.
    const bool to_the_end = !closing_.empty() || ended_ != 0;
    if (to_the_end || progress.may_find(queue_, domain_.engine())) {
      n = fi_cq_readfrom(queue_.cq, entries, kBatch, sources);
      if (n == -FI_EAGAIN) progress.note(domain_.engine());
    }
    if (n == -FI_EAVAIL) {
      read_failure();
      continue;
    }
    if (n <= 0) {
      if (posted_ < most_posted_) fill();
      if (!closing_.empty()) bury();
      return true;
    }
    for (ssize_t i = 0; i < n; ++i) {
      const fi_cq_tagged_entry &entry = entries[i];
      if ((entry.flags & (FI_RECV | FI_REMOTE_WRITE)) == FI_RECV) {
        received(*buffer_at(entry.op_context), entry, sources[i]);
      } else if (entry.flags & FI_REMOTE_WRITE) {
        on_remote_data(entry, sources[i]);
      } else if (Token *token = token_at(entry.op_context)) {
        core_->on_sent(*token, 0);
      }
    }
    if (size_t(n) < kBatch) {
      if (closing_.empty() && ended_ == 0) return true;
      continue;  // read to the end, so that ended links can be destroyed
    }
  }
  return false;
}

uint64_t Link::lost(const fi_cq_err_entry &entry) {
  const auto bits = reinterpret_cast<uintptr_t>(entry.op_context) % alignof(Link);
  if (bits == 1 && entry.flags & FI_WRITE) return FI_WRITE | FI_RMA;
  return FI_SEND | (bits == 5 || entry.flags & FI_TAGGED ? FI_TAGGED : FI_MSG);
}

void Lower::read_failure() {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(queue_.cq, &entry, 0) != 1) return;
  if (entry.flags & FI_RECV) {
    Buffer *buffer = buffer_at(entry.op_context);
    if (buffer == nullptr) return;
    if (buffer->link == nullptr) --posted_;
    if (entry.err == FI_ETRUNC)
      WEFT_WARN_SPARSE(
          domain_.instance(), FI_LOG_EP_DATA,
          "a packet longer than %zu bytes was dropped: the peer's FI_OFI_RXM_BUFFER_SIZE is "
          "not ours",
          packet_size());
    if (buffer->link == nullptr || entry.err == FI_ETRUNC) release(*buffer);
    return;
  }
  if (Link::is_mark(entry.op_context))
    return upper_.on_lost(Link::lost(entry), entry.err != 0 ? entry.err : FI_EIO);
  if (Token *token = token_at(entry.op_context))
    core_->on_sent(*token, entry.err != 0 ? entry.err : FI_EIO);
}

// A peer wrote with remote data. Where that uses a receive (FI_RX_CQ_DATA), the buffer is posted
// again.
void Lower::on_remote_data(const fi_cq_tagged_entry &entry, fi_addr_t source) {
  Buffer *const used = modes_.data_takes_receive ? buffer_at(entry.op_context) : nullptr;
  const Link *const link = used != nullptr && used->link != nullptr ? used->link : link_at(source);
  upper_.on_remote_write(link != nullptr ? link->owner : nullptr, entry.len, entry.data);
  if (used == nullptr) return;
  if (used->link == nullptr) --posted_;
  release(*used);
}

Link *Lower::link_at(fi_addr_t source) const {
  const auto place = uint32_t(source);
  if (place >= numbers_.size() || numbers_[place].uses != uint32_t(source >> 32)) return nullptr;
  return numbers_[place].link;
}

void Lower::received(Buffer &buffer, const fi_cq_tagged_entry &entry, fi_addr_t source) {
  if (buffer.link == nullptr) --posted_;
  const std::span<const uint8_t> bytes(buffer.bytes, std::min(entry.len, packet_size()));
  Core &core = *core_;
  Connection *connection = nullptr;
  if (buffer.link != nullptr) {
    connection = buffer.link->owner;
  } else if (source != FI_ADDR_NOTAVAIL) {
    const Link *link = link_at(source);
    if (link != nullptr) connection = link->owner;
  } else if (bytes.size() >= kHeaderSize && !(entry.flags & FI_REMOTE_CQ_DATA)) {
    // The sender repeats the slot that we sent while connecting.
    WireHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    connection = core.find(uint32_t(header.connection));
  }
  bool kept = false;
  if (connection != nullptr && entry.flags & FI_TAGGED) {
    kept = core.on_short_message(*connection, bytes, entry.flags & FI_REMOTE_CQ_DATA, entry.data,
                                 entry.tag, buffer);
  } else if (connection != nullptr && entry.flags & FI_REMOTE_CQ_DATA) {
    kept = core.on_bare_message(*connection, bytes, uint32_t(entry.data), buffer);
  } else if (connection != nullptr) {
    kept = core.on_packet(*connection, bytes, buffer);
  }
  if (!kept) return release(buffer);
  if (buffer.link == nullptr) fill_soon();  // post a buffer of the reserve instead
}

}  // namespace weft::rxm
