// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/lower.h"

#include <poll.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_eq.h>
#include <sys/random.h>
#include <weft/sdk/ip/interfaces.h>
#include <weft/sdk/unit/log.h>
#include <weft/sdk/unit/sparse_log.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <random>
#include <utility>

#include "plugins/rxd/wire/stock.h"

namespace weft::rxd {
namespace {

constexpr size_t kBatch = 32;  // completions per call
constexpr size_t kMost = 256;  // completions per progress
// With fewer at once there are no more, it is assumed. The provider beneath may read no more than
// it expects, which grows while more come.
constexpr size_t kFew = 8;
constexpr size_t kPosted = 64;  // most posted buffers; the others are a reserve
// Bytes of posted buffers: large datagrams must still be in the cache when they are processed.
constexpr size_t kPostedBytes = 512 << 10;
constexpr size_t kMinimum = 16;  // fewest buffers, whatever their size
constexpr size_t kLargest = 65535;
// The receive window that is assumed if the provider does not tell one.
constexpr size_t kUnknownWindow = 128 << 10;
constexpr uint64_t kRetryNs = 100'000;

// A Path pointer holds an fi_addr_t; null is FI_ADDR_NOTAVAIL.
fi_addr_t address_of(const Path &path) {
  return reinterpret_cast<uintptr_t>(&path) - 1;
}
Path *path_of(fi_addr_t address) {
  return reinterpret_cast<Path *>(uintptr_t(address + 1));
}

}  // namespace

Result<void> Lower::open(const sdk::Address &local) {
  failed_ = told_ = false;
  pins_ = domain_.hmem() != nullptr ? 1 : 0;
  judge(domain_.inner_info());
  WEFT_CHECK(open_objects(local));
  WEFT_CHECK(look_around());
  return make_buffers();
}

Result<void> Lower::open_objects(const sdk::Address &local) {
  fi_cq_attr cq{};
  cq.format = FI_CQ_FORMAT_MSG;
  int rc = sdk::open_inner_wait([&](enum fi_wait_obj wait) {
    cq.wait_obj = wait;
    return fi_cq_open(domain_.inner(), &cq, &cq_, nullptr);
  });
  if (rc != 0) return fail(-rc, "the inner provider has no completion queue");
  cq_wait_ = sdk::InnerWait(&cq_->fid);
  fi_av_attr av{};
  av.type = domain_.inner_info().domain_attr->av_type;
  if (const int rc = fi_av_open(domain_.inner(), &av, &av_, nullptr); rc != 0)
    return fail(-rc, "the inner provider has no address vector");
  sdk::InfoList list(domain_.instance()->core);
  WEFT_TRY(fi_info *const info, list.add_copy(&domain_.inner_info()));
  info->handle = nullptr;
  info->tx_attr->tclass = tclass_;
  // Datagrams from unknown addresses must arrive like others, not as errors.
  const uint64_t unwanted = FI_SOURCE_ERR | (names_ ? 0 : FI_SOURCE);
  info->caps &= ~unwanted;
  info->rx_attr->caps &= ~unwanted;
  if (has(WEFT_DATAGRAM_FRAGMENTS))
    info->ep_attr->max_msg_size = std::max(info->ep_attr->max_msg_size, room_);
  WEFT_CHECK(sdk::set_info_address(info->src_addr, info->src_addrlen, addr_format_, local));
  WEFT_CHECK(sdk::set_address(info->dest_addr, info->dest_addrlen, nullptr, 0));
  if (const int rc = fi_endpoint(domain_.inner(), info, &ep_, nullptr); rc != 0)
    return fail(-rc, "the inner provider has no endpoint at %s", local.to_string().c_str());
  if (const int rc = fi_ep_bind(ep_, &av_->fid, 0); rc != 0)
    return fail(-rc, "the inner endpoint takes no address vector");
  rc = fi_ep_bind(ep_, &cq_->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION);
  if (rc == 0) rc = fi_ep_bind(ep_, &cq_->fid, FI_RECV);
  if (rc != 0) return fail(-rc, "the inner endpoint takes no completion queue");
  rc = fi_enable(ep_);
  if (rc != 0)
    return fail(-rc, "the inner endpoint at %s cannot be enabled (its log says why)",
                local.to_string().c_str());
  if (ops_ != nullptr) ops_->tell_unreachable(ep_);
  char name[256];
  size_t length = sizeof name;
  rc = fi_getname(&ep_->fid, name, &length);
  if (rc != 0) return fail(-rc, "the inner endpoint does not say where it is");
  WEFT_TRY(name_, sdk::read_address(addr_format_, name, length));
  return {};
}

// What the carrier is, and what follows for the sizes.
void Lower::judge(const fi_info &inner) {
  const Options &options = domain_.fabric().layer().options();
  addr_format_ = inner.addr_format;
  iov_limit_ = std::max<size_t>(inner.tx_attr->iov_limit, 1);
  inject_limit_ = inner.tx_attr->inject_size;
  modes_ = sdk::InnerModes::of(inner);
  if (fi_open_ops(&domain_.inner()->fid, WEFT_DATAGRAM_OPS, 0, reinterpret_cast<void **>(&ops_),
                  nullptr) != 0 ||
      ops_->size < offsetof(weft_datagram_ops, next_arrival))
    ops_ = nullptr;
  sent_at_once_ = has(WEFT_DATAGRAM_SENT_AT_ONCE) && !modes_.of_calls();
  stock_ = options.stock_peers && (ops_ == nullptr || ops_->stock_rxd_datagram == stock::kDatagram);
  // Only packets in stock's format need their source.
  names_ = stock_ && (inner.caps & FI_SOURCE) != 0;
  const size_t carried = std::min(inner.ep_attr->max_msg_size, kLargest);
  size_ = carried;
  if (options.datagram_size != 0) size_ = std::min(size_, options.datagram_size);
  // Stock's datagrams have one fixed size, whatever the interface carries: IP fragments them.
  room_ = stock_ ? std::max(size_, stock::kDatagram) : size_;
  depth_ = kPosted;
  window_ =
      options.receive_window != 0 ? options.receive_window : inner.rx_attr->total_buffered_recv;
  if (has(WEFT_DATAGRAM_ONLY_POSTED)) {
    // What is posted is all that holds datagrams until they are read. One that is longer than its
    // buffer would break a queue pair.
    room_ = std::max(room_, carried);
    depth_ = std::clamp<size_t>(options.rx_pool / 2 / (modes_.prefix + room_), kMinimum / 2,
                                std::max<size_t>(inner.rx_attr->size, 1));
    if (window_ == 0) window_ = depth_ * size_;
  }
  if (window_ == 0) window_ = kUnknownWindow;
}

// Collects the addresses of this host, and picks the one by which peers reach an endpoint that is
// bound to all addresses.
Result<void> Lower::look_around() {
  WEFT_TRY(const std::vector<sdk::Interface> facts, sdk::list_interfaces());
  for (const sdk::Interface &interface : facts) own_.push_back(interface.address);
  own_.push_back(name_);  // of a device that is no interface of IP; a wildcard matches no peer
  reachable_ = name_;
  if (!name_.is_any()) return {};
  for (const sdk::Address &own : own_) {
    if (own.format() != name_.format() || own.is_any()) continue;
    WEFT_TRY(sdk::Address name, own.with_port(name_.port()));
    other_names_.push_back(name);
  }
  for (const sdk::RankedInterface &i : sdk::rank_interfaces(facts, {}).used) {
    const sdk::Address own = i.interface.address;
    if (own.format() != name_.format()) continue;
    WEFT_TRY(reachable_, own.with_port(name_.port()));
    return {};
  }
  return fail(FI_EADDRNOTAVAIL,
              "bound to %s, but no interface has an address that peers could use: name one in "
              "info->src_addr",
              name_.to_string().c_str());
}

Result<void> Lower::make_buffers() {
  const size_t stride = (modes_.prefix + room_ + 63) / 64 * 64;
  const size_t count =
      std::max<size_t>(domain_.fabric().layer().options().rx_pool / stride, kMinimum);
  // One buffer is enough for datagrams with more pieces than the provider takes.
  const size_t leaving = sent_at_once_ ? 1 : kPosted;
  memory_ = sdk::make_lazy_array<uint8_t>((count + leaving) * stride);
  if (memory_ == nullptr) throw std::bad_alloc();
  pool_.resize(count);
  free_.reserve(count);
  for (size_t i = count; i-- > 0;) {
    pool_[i].bytes = memory_.get() + i * stride + modes_.prefix;
    free_.push_back(&pool_[i]);
  }
  leaving_.resize(leaving);
  for (size_t i = 0; i < leaving; ++i) {
    leaving_[i] = {memory_.get() + (count + i) * stride + modes_.prefix, true};
    free_leaving_.push_back(&leaving_[i]);
  }
  WEFT_CHECK(register_buffers((count + leaving) * stride));
  fill();
  return {};
}

Result<void> Lower::register_buffers(size_t bytes) {
  if (modes_.contexts) {
    places_.resize(pool_.size() + leaving_.size());
    for (size_t i = 0; i < places_.size(); ++i)
      places_[i].buffer = i < pool_.size() ? &pool_[i] : &leaving_[i - pool_.size()];
  }
  if (!modes_.local_memory) return {};
  const int rc = region_.open(domain_.inner(), {memory_.get(), bytes}, FI_SEND | FI_RECV,
                              [this](uint64_t &key) { return key = domain_.next_key(), true; });
  if (rc != 0) return fail(-rc, "the inner provider does not register %zu bytes of buffers", bytes);
  return {};
}

void *Lower::context_of(Buffer &buffer) {
  if (!modes_.contexts) return &buffer;
  const size_t place = buffer.leaves ? pool_.size() + size_t(&buffer - leaving_.data())
                                     : size_t(&buffer - pool_.data());
  return &places_[place];
}

// From the context of a completion.
Buffer *Lower::buffer_at(void *op_context) const {
  if (!modes_.contexts || op_context == nullptr) return static_cast<Buffer *>(op_context);
  return static_cast<Place *>(op_context)->buffer;
}

void Lower::shut() {
  if (ep_ != nullptr) fi_close(&std::exchange(ep_, nullptr)->fid);
  region_.close();
  if (av_ != nullptr) fi_close(&std::exchange(av_, nullptr)->fid);
  if (cq_ != nullptr) fi_close(&std::exchange(cq_, nullptr)->fid);
  // It may be opened again.
  free_.clear();
  free_leaving_.clear();
  places_.clear();
  pool_.clear();
  leaving_.clear();
  posted_ = 0;
}

void Lower::wait(uint64_t end_ns) {
  std::vector<int> fds;
  if (!may_wait() || wait_fds(fds) != 0) return;
  const uint64_t now = now_ns();
  uint64_t at = end_ns;
  if (wanted_ != 0) at = std::min(at, wanted_);
  if (retry_ != 0) at = std::min(at, retry_);
  if (at > now) {
    const timespec left{time_t((at - now) / 1'000'000'000u), long((at - now) % 1'000'000'000u)};
    std::vector<pollfd> polled;
    for (const int fd : fds) polled.push_back({fd, POLLIN, 0});
    domain_.engine().lock().unlock();
    ::ppoll(polled.data(), nfds_t(polled.size()), &left, nullptr);
    domain_.engine().lock().lock();
  }
}

// ---- paths ----

Path *Lower::open(const sdk::Address &peer, int &err) {
  char bytes[256];
  size_t length = sizeof bytes;
  int rc = sdk::write_address(peer, addr_format_, bytes, &length);
  fi_addr_t address = FI_ADDR_NOTAVAIL;
  if (rc == 0) {
    const int n = fi_av_insert(av_, bytes, 1, &address, 0, nullptr);
    rc = n < 0 ? n : n == 1 ? 0 : -FI_EINVAL;
  }
  err = -rc;
  return rc == 0 ? path_of(address) : nullptr;
}

void Lower::close(Path &path) {
  flush();
  fi_addr_t address = address_of(path);
  fi_av_remove(av_, &address, 1, 0);
}

// The host may have addresses that are none of its interfaces', such as all of 127.0.0.0/8, and
// others since they were listed.
bool Lower::learn_name() {
  if (!name_.is_any() || ops_ == nullptr ||
      ops_->size <= offsetof(weft_datagram_ops, next_arrival) || ops_->next_arrival == nullptr)
    return false;
  char bytes[256];
  for (;;) {
    size_t length = sizeof bytes;
    if (ops_->next_arrival(ep_, bytes, &length) != 0) return false;
    const auto name = sdk::read_address(addr_format_, bytes, length);
    if (!name || std::ranges::find(other_names_, *name) != other_names_.end()) continue;
    other_names_.push_back(*name);
    return true;
  }
}

bool Lower::is_local(const sdk::Address &peer) {
  if (peer.is_loopback()) return true;
  const auto bits = unsigned(8 * peer.host().size());
  return std::ranges::any_of(own_,
                             [&](const sdk::Address &own) { return own.same_prefix(peer, bits); });
}

// ---- datagrams ----

// A provider without this operation always reads sources; then they are ignored.
void Lower::name_sources(bool wanted) {
  if (!names_) return;
  reads_ = wanted;
  if (ops_ != nullptr) ops_->name_sources(ep_, wanted);
}

int Lower::send(Path &to, const iovec *iov, size_t count, bool more) {
  if (staged_.present) {
    const int rc = send_staged(FI_MORE);
    if (rc == -FI_EAGAIN) return rc;
  }
  const fi_msg msg{.msg_iov = iov, .iov_count = count, .addr = address_of(to)};
  if (!more || count > std::size(staged_.iov)) return emit(msg, more ? FI_MORE : 0);
  staged_.msg = msg;
  std::copy_n(iov, count, staged_.iov);
  staged_.msg.msg_iov = staged_.iov;
  staged_.present = true;
  return 0;
}

// A datagram that cannot be sent counts as lost.
int Lower::send_staged(uint64_t flags) {
  const int rc = emit(staged_.msg, flags);
  if (rc != -FI_EAGAIN) staged_.present = false;
  return rc;
}

void Lower::flush() {
  if (!staged_.present) {
    // Make progress: it sends the datagrams that waited for more.
    if (std::exchange(held_, false)) fi_cq_read(cq_, nullptr, 0);
    return;
  }
  if (send_staged(0) != -FI_EAGAIN) return;
  // The caller may reuse the memory now, so the provider must copy it; otherwise it is lost.
  staged_.present = false;
  if (sent_at_once_) fi_sendmsg(ep_, &staged_.msg, FI_MORE | FI_INJECT);
}

// Whether a hook is attached to the inner endpoint.
bool Lower::hooked() const {
  const weft_fid_header *header = sdk::header_of(&ep_->fid);
  return header->magic == WEFT_FID_MAGIC &&
         __atomic_load_n(&header->links_core, __ATOMIC_ACQUIRE) != nullptr;
}

int Lower::emit(const fi_msg &msg, uint64_t flags) {
  const int rc = sent_at_once_ && msg.iov_count <= iov_limit_ ? int(fi_sendmsg(ep_, &msg, flags))
                                                              : send_copy(msg, flags);
  // A hook may have dropped this datagram, and with it the end of the batch: progress sends the
  // rest.
  if (std::exchange(held_, (flags & FI_MORE) != 0) && !held_ && hooked())
    fi_cq_read(cq_, nullptr, 0);
  if (rc == -FI_EAGAIN && retry_ == 0) {
    retry_ = now_ns() + kRetryNs;
    arm();
  }
  return rc;
}

// Copies the datagram into one piece, which stays until the provider does not need it any more.
int Lower::send_copy(const fi_msg &msg, uint64_t flags) {
  size_t length = 0;
  for (size_t i = 0; i < msg.iov_count; ++i) length += msg.msg_iov[i].iov_len;
  if (length > room_) return -FI_EMSGSIZE;
  const bool inject = length <= inject_limit_;
  if (free_leaving_.empty()) return -FI_EAGAIN;
  Buffer *buffer = free_leaving_.back();
  uint8_t *out = buffer->bytes;
  for (size_t i = 0; i < msg.iov_count; ++i) {
    std::memcpy(out, msg.msg_iov[i].iov_base, msg.msg_iov[i].iov_len);
    out += msg.msg_iov[i].iov_len;
  }
  const iovec one = with_prefix(*buffer, length);
  void *desc = region_.desc();
  const fi_msg copy{.msg_iov = &one,
                    .desc = &desc,
                    .iov_count = 1,
                    .addr = msg.addr,
                    .context = inject ? nullptr : context_of(*buffer)};
  const auto rc = int(fi_sendmsg(ep_, &copy, flags | (inject ? FI_INJECT : FI_COMPLETION)));
  if (rc == 0 && !inject) free_leaving_.pop_back();
  return rc;
}

void Lower::release(Buffer &buffer) {
  free_.push_back(&buffer);
  fill();
}

void Lower::fill() {
  const size_t depth =
      has(WEFT_DATAGRAM_ONLY_POSTED) ? depth_ : std::min(depth_, kPostedBytes / recent_size_);
  while (posted_ < depth && !free_.empty() && !failed_) {
    Buffer *buffer = free_.back();
    const iovec room = with_prefix(*buffer, room_);
    const ssize_t rc = fi_recv(ep_, room.iov_base, room.iov_len, region_.desc(), FI_ADDR_UNSPEC,
                               context_of(*buffer));
    if (rc == -FI_EIO || rc == -FI_ENODEV) failed_ = true;
    if (rc != 0) return;  // retried when the next buffer comes back
    free_.pop_back();
    ++posted_;
  }
}

// ---- memory, time, random numbers ----

ssize_t Lower::resolve(const RmaVector &vector, uint64_t access, iovec *iov, size_t room) {
  const sdk::MrTable::Access found =
      domain_.regions().resolve(vector.key, vector.address, vector.length, access, iov, room,
                                {.endpoint = upper_.endpoint_number()});
  if (found.mr == nullptr) return -FI_EACCES;
  found.mr->pins = pins_;
  return ssize_t(found.count);
}

uint64_t Lower::now_ns() {
  return sdk::now_ns();
}

bool Lower::progress_is_near() {
  domain_.engine().posted();
  return domain_.engine().may_wait();
}

void Lower::sent_before_progress() {
  domain_.engine().sent();
}

// Each acknowledgement moves the deadline, nearly always to a later time. The engine's deadline
// stays at the earlier time, and is set again when that has passed.
void Lower::set_deadline(uint64_t at_ns) {
  wanted_ = at_ns;
  arm();
}

void Lower::arm() {
  uint64_t at = wanted_;
  if (retry_ != 0 && (at == 0 || retry_ < at)) at = retry_;
  if (at == 0 || (armed_ != 0 && armed_ <= at)) return;
  armed_ = at;
  domain_.engine().set_deadline(*this, at);
}

void Lower::on_deadline() {
  armed_ = 0;
  domain_.engine().set_deadline(*this, 0);
  const uint64_t now = now_ns();
  if (wanted_ != 0 && wanted_ <= now) {
    wanted_ = 0;
    upper_.core().on_deadline();
  }
  if (retry_ != 0 && retry_ <= now) {
    retry_ = 0;
    upper_.core().poll();
  }
  arm();
}

void Lower::random(std::span<uint8_t> out) {
  while (!out.empty()) {
    const ssize_t n = getrandom(out.data(), out.size(), 0);
    if (n > 0) {
      out = out.subspan(size_t(n));
    } else if (n < 0 && errno != EINTR) {
      // This kernel or sandbox has no getrandom().
      std::random_device device;
      for (uint8_t &byte : out) byte = uint8_t(device());
      return;
    }
  }
}

// ---- progress ----

void Lower::on_poll() {
  upper_.core().begin_pass();
  upper_.core().set_full(upper_.is_full());
  read_completions();
  if (failed_ && !std::exchange(told_, true)) {
    WEFT_WARN(domain_.instance(), FI_LOG_EP_DATA,
              "the inner endpoint at %s does not receive any more: its device is gone, or broke. "
              "All operations fail; open a new endpoint",
              name_.to_string().c_str());
    upper_.core().shut_down(FI_EIO);
  }
  poll_core();
}

// The completion queue has room again, or answers have waited for a reply in vain.
void Lower::on_flush() {
  upper_.core().begin_pass();
  poll_core();
}

void Lower::poll_core() {
  const bool full = upper_.is_full();
  upper_.core().set_full(full);
  upper_.core().poll();
  if (full) domain_.engine().mark_dirty(*this);
}

bool Lower::may_wait() {
  if (std::exchange(came_, false)) upper_.core().on_idle();
  if (cq_wait_.changed()) domain_.engine().rewatch(*this);
  struct fid *fids[] = {&cq_->fid};
  if (fi_trywait(domain_.fabric().inner(), fids, 1) != 0) return false;
  looked_ = 0;
  return true;
}

void Lower::read_completions() {
  fi_cq_msg_entry entries[kBatch];
  fi_addr_t sources[kBatch];
  for (size_t total = 0; total < kMost;) {
    const size_t few = std::min(kFew, posted_);
    const bool named = reads_;
    const uint64_t began = now_ns();
    const ssize_t n =
        named ? fi_cq_readfrom(cq_, entries, kBatch, sources) : fi_cq_read(cq_, entries, kBatch);
    if (n == -FI_EAVAIL) {
      read_failure();
      total += kBatch;
      continue;
    }
    if (n <= 0) {
      // Not after a batch with datagrams: the application's next packet may carry the
      // acknowledgement.
      if (total == 0 && std::exchange(came_, false)) upper_.core().on_idle();
      looked_ = began;
      return;
    }
    for (ssize_t i = 0; i < n; ++i) {
      Buffer &buffer = *buffer_at(entries[i].op_context);
      if (buffer.leaves) {
        free_leaving_.push_back(&buffer);
        continue;
      }
      --posted_;
      came_ = true;
      const size_t prefix = modes_.prefix;
      const size_t length = std::min(entries[i].len - std::min(entries[i].len, prefix), room_);
      recent_size_ = std::max(length, recent_size_ - recent_size_ / 16);
      const Path *from = named ? path_of(sources[i]) : nullptr;
      if (!upper_.core().on_datagram({buffer.bytes, length}, buffer, from))
        free_.push_back(&buffer);
    }
    fill();
    if (size_t(n) < few) {
      looked_ = began;
      return;
    }
    total += size_t(n);
  }
}

void Lower::report_unreachable(const fi_cq_err_entry &entry) {
  char bytes[256];
  size_t length = sizeof bytes;
  if (fi_av_lookup(av_, entry.src_addr, bytes, &length) != 0) return;
  const auto to = sdk::read_address(addr_format_, bytes, length);
  if (!to) return;
  upper_.core().on_unreachable(*to,
                               {static_cast<const uint8_t *>(entry.err_data), entry.err_data_size});
}

void Lower::read_failure() {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(cq_, &entry, 0) != 1) return;
  Buffer *const buffer = buffer_at(entry.op_context);
  if (buffer == nullptr) {
    // A send without a completion: its datagram counts as lost. Or the network reports that an
    // earlier datagram did not reach a process.
    if (entry.err == FI_ECONNREFUSED && entry.err_data_size != 0) report_unreachable(entry);
    return;
  }
  if (buffer->leaves) {
    free_leaving_.push_back(buffer);
    return;
  }
  --posted_;
  // Nobody cancels these receives but a queue pair that has failed.
  if (entry.err == FI_ECANCELED) failed_ = true;
  if (entry.err == FI_ETRUNC)
    WEFT_WARN_SPARSE(
        domain_.instance(), FI_LOG_EP_DATA,
        "a datagram longer than %zu bytes was dropped: larger than any that peers were told "
        "to send",
        room_);
  release(*buffer);
}

}  // namespace weft::rxd
