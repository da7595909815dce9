// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/trial_pair.h"

#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <chrono>
#include <cstring>

namespace weft::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kLimit{20};  // of a transfer: a hundred times what it takes
constexpr size_t kAddressSize = 512;        // bytes
constexpr size_t kMemory = 1 << 18;         // bytes of a side
constexpr uint64_t kTag = 0x1234;

bool has_connections(const fi_info &info) {
  return info.ep_attr->type == FI_EP_MSG;
}

// Bytes that tell where they belong: parts that are swapped or left out are seen.
void mark_bytes(std::vector<uint8_t> &bytes, size_t size) {
  static uint8_t mark = 0;
  if (++mark == 0) ++mark;  // what was there before is 0
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(mark + i * 31 + (i >> 8));
}

// Whether the last completion of a side is that of its operation.
Result<void> check_completion(const TrialSide &side, const char *call) {
  if (side.last.op_context == &side.context) return {};
  return fail(FI_EIO, "the completion of %s has another context", call);
}

// The same of a receive.
Result<void> check_received(const TrialSide &side, size_t size, bool tagged) {
  WEFT_CHECK(check_completion(side, tagged ? "fi_trecv" : "fi_recv"));
  if (side.last.len != size)
    return fail(FI_EIO, "the completion of a message of %zu bytes has the length %zu", size,
                side.last.len);
  if (tagged && side.last.tag != kTag)
    return fail(FI_EIO, "the completion of a message with the tag 0x%llx has the tag 0x%llx",
                static_cast<unsigned long long>(kTag),
                static_cast<unsigned long long>(side.last.tag));
  return {};
}

// Closes one object; the first error stays.
template <class Object>
void close_one(Object *&object, const char *what, Result<void> &result) {
  if (object == nullptr) return;
  const int rc = fi_close(&object->fid);
  object = nullptr;
  if (rc != 0 && result) result = checked(what, rc);
}

}  // namespace

Result<void> checked(const char *call, long rc) {
  if (rc >= 0) return {};
  return fail(int(-rc), "%s: %s", call, fi_strerror(int(-rc)));
}

Result<void> TrialSide::open_domain(fi_info &info) {
  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_TAGGED;
  WEFT_CHECK(checked("fi_fabric", fi_fabric(info.fabric_attr, &fabric, nullptr)));
  if (has_connections(info)) {
    fi_eq_attr eq_attr{};
    WEFT_CHECK(checked("fi_eq_open", fi_eq_open(fabric, &eq_attr, &eq, nullptr)));
  }
  WEFT_CHECK(checked("fi_domain", fi_domain(fabric, &info, &domain, nullptr)));
  WEFT_CHECK(checked("fi_cq_open", fi_cq_open(domain, &cq_attr, &cq, nullptr)));
  if (has_connections(info)) return {};
  fi_av_attr av_attr{};
  return checked("fi_av_open", fi_av_open(domain, &av_attr, &av, nullptr));
}

Result<void> TrialSide::open_endpoint(fi_info &info) {
  WEFT_CHECK(checked("fi_endpoint", fi_endpoint(domain, &info, &ep, nullptr)));
  return bind();
}

Result<void> TrialSide::bind() {
  WEFT_CHECK(checked("fi_ep_bind of the completion queue",
                     fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV)));
  if (eq != nullptr) return checked("fi_ep_bind of the event queue", fi_ep_bind(ep, &eq->fid, 0));
  return checked("fi_ep_bind of the address vector", fi_ep_bind(ep, &av->fid, 0));
}

Result<void> TrialSide::close() {
  Result<void> result;
  requested.reset();
  close_one(mr, "fi_close of a memory region", result);
  close_one(ep, "fi_close of an endpoint", result);
  close_one(pep, "fi_close of a passive endpoint", result);
  close_one(av, "fi_close of an address vector", result);
  close_one(cq, "fi_close of a completion queue", result);
  close_one(domain, "fi_close of a domain", result);
  close_one(eq, "fi_close of an event queue", result);
  close_one(fabric, "fi_close of a fabric", result);
  return result;
}

Result<void> TrialSide::progress() {
  if (cq != nullptr) {
    const ssize_t n = fi_cq_read(cq, &last, 1);
    if (n == 1) ++done;
    if (n == -FI_EAVAIL) {
      fi_cq_err_entry error{};
      WEFT_CHECK(checked("fi_cq_readerr", fi_cq_readerr(cq, &error, 0)));
      return fail(error.err, "an operation failed: %s", fi_strerror(error.err));
    }
    if (n < 0 && n != -FI_EAGAIN) WEFT_CHECK(checked("fi_cq_read", n));
  }
  if (eq == nullptr) return {};
  uint32_t event = 0;
  alignas(fi_eq_cm_entry) char room[1024];
  const ssize_t n = fi_eq_read(eq, &event, room, sizeof room, 0);
  if (n == -FI_EAGAIN) return {};
  if (n == -FI_EAVAIL) {
    fi_eq_err_entry error{};
    WEFT_CHECK(checked("fi_eq_readerr", fi_eq_readerr(eq, &error, 0)));
    return fail(error.err, "a connection failed: %s", fi_strerror(error.err));
  }
  WEFT_CHECK(checked("fi_eq_read", n));
  if (event == FI_CONNREQ) requested.reset(reinterpret_cast<fi_eq_cm_entry *>(room)->info);
  if (event == FI_CONNECTED) connected = true;
  return {};
}

Result<void> prepare_memory(TrialSide &side, const fi_info &info, size_t size, uint64_t access) {
  if (side.bytes.empty()) side.bytes.resize(kMemory);
  if (size > side.bytes.size())
    return fail(FI_EMSGSIZE, "%zu bytes are more than a trial has", size);
  const int mode = info.domain_attr->mr_mode;
  const uint64_t remote = FI_REMOTE_READ | FI_REMOTE_WRITE;
  const bool wanted = (mode & FI_MR_LOCAL) != 0 || (access & remote) != 0;
  if (!wanted || side.mr != nullptr) return {};
  const uint64_t key = (mode & FI_MR_PROV_KEY) != 0 ? 0 : 7;
  WEFT_CHECK(checked("fi_mr_reg", fi_mr_reg(side.domain, side.bytes.data(), side.bytes.size(),
                                            access, 0, key, 0, &side.mr, nullptr)));
  if ((mode & FI_MR_ENDPOINT) == 0) return {};
  WEFT_CHECK(checked("fi_mr_bind", fi_mr_bind(side.mr, &side.ep->fid, 0)));
  return checked("fi_mr_enable", fi_mr_enable(side.mr));
}

Result<void> insert_peer(TrialSide &side, const fi_info &info, const TrialSide &other) {
  char address[kAddressSize];
  size_t length = sizeof address;
  WEFT_CHECK(checked("fi_getname", fi_getname(&other.ep->fid, address, &length)));
  // An array of addresses in text is one of pointers (fi_av.3).
  const char *text = address;
  const bool is_text = info.addr_format == FI_ADDR_STR;
  const void *const one = is_text ? static_cast<const void *>(&text) : address;
  const int n = fi_av_insert(side.av, one, 1, &side.peer, 0, nullptr);
  return n == 1 ? Result<void>() : checked("fi_av_insert", n < 0 ? n : -FI_EADDRNOTAVAIL);
}

Result<void> TrialPair::open(fi_info &info) {
  info_ = &info;
  WEFT_CHECK(a.open_domain(info));
  WEFT_CHECK(b.open_domain(info));
  if (has_connections(info)) return connect(info);
  for (TrialSide *side : {&a, &b}) {
    WEFT_CHECK(side->open_endpoint(info));
    WEFT_CHECK(checked("fi_enable", fi_enable(side->ep)));
  }
  WEFT_CHECK(insert_peer(a, info, b));
  return insert_peer(b, info, a);
}

Result<void> TrialPair::connect(fi_info &info) {
  char address[kAddressSize];
  size_t length = sizeof address;
  WEFT_CHECK(checked("fi_passive_ep", fi_passive_ep(b.fabric, &info, &b.pep, nullptr)));
  WEFT_CHECK(checked("fi_pep_bind", fi_pep_bind(b.pep, &b.eq->fid, 0)));
  WEFT_CHECK(checked("fi_listen", fi_listen(b.pep)));
  WEFT_CHECK(checked("fi_getname", fi_getname(&b.pep->fid, address, &length)));
  WEFT_CHECK(a.open_endpoint(info));
  WEFT_CHECK(checked("fi_enable", fi_enable(a.ep)));
  WEFT_CHECK(checked("fi_connect", fi_connect(a.ep, address, nullptr, 0)));
  WEFT_CHECK(wait("a connection request", [this] { return b.requested != nullptr; }));
  WEFT_CHECK(b.open_endpoint(*b.requested));
  WEFT_CHECK(checked("fi_enable", fi_enable(b.ep)));
  WEFT_CHECK(checked("fi_accept", fi_accept(b.ep, nullptr, 0)));
  return wait("a connection", [this] { return a.connected && b.connected; });
}

Result<void> TrialPair::wait(const char *what, const std::function<bool()> &is_done) {
  const auto end = Clock::now() + kLimit;
  while (!is_done()) {
    WEFT_CHECK(a.progress());
    WEFT_CHECK(b.progress());
    if (Clock::now() > end)
      return fail(FI_ETIMEDOUT, "%s did not come within %d s", what, int(kLimit.count()));
  }
  return {};
}

Result<void> TrialPair::repeat(const std::function<ssize_t()> &function, ssize_t &rc) {
  return wait("another answer than -FI_EAGAIN", [&] {
    rc = function();
    return rc != -FI_EAGAIN;
  });
}

Result<void> TrialPair::start(const char *call, const std::function<ssize_t()> &function) {
  ssize_t rc = -FI_EAGAIN;
  WEFT_CHECK(repeat(function, rc));
  return checked(call, rc);
}

Result<void> TrialPair::transfer(TrialSide &from, TrialSide &to, size_t size, bool tagged) {
  WEFT_CHECK(prepare_memory(from, *info_, size, FI_SEND | FI_RECV));
  WEFT_CHECK(prepare_memory(to, *info_, size, FI_SEND | FI_RECV));
  mark_bytes(from.bytes, size);
  std::memset(to.bytes.data(), 0, size);
  from.done = to.done = 0;
  void *const to_desc = to.mr != nullptr ? fi_mr_desc(to.mr) : nullptr;
  void *const from_desc = from.mr != nullptr ? fi_mr_desc(from.mr) : nullptr;
  WEFT_CHECK(start(tagged ? "fi_trecv" : "fi_recv", [&] {
    return tagged ? fi_trecv(to.ep, to.bytes.data(), size, to_desc, FI_ADDR_UNSPEC, kTag, 0,
                             &to.context)
                  : fi_recv(to.ep, to.bytes.data(), size, to_desc, FI_ADDR_UNSPEC, &to.context);
  }));
  WEFT_CHECK(start(tagged ? "fi_tsend" : "fi_send", [&] {
    return tagged ? fi_tsend(from.ep, from.bytes.data(), size, from_desc, from.peer, kTag,
                             &from.context)
                  : fi_send(from.ep, from.bytes.data(), size, from_desc, from.peer, &from.context);
  }));
  WEFT_CHECK(wait("a completion", [&] { return from.done == 1 && to.done == 1; }));
  WEFT_CHECK(check_completion(from, tagged ? "fi_tsend" : "fi_send"));
  WEFT_CHECK(check_received(to, size, tagged));
  if (std::memcmp(from.bytes.data(), to.bytes.data(), size) != 0)
    return fail(FI_EIO, "a message of %zu bytes arrived with other bytes", size);
  return {};
}

Result<void> TrialPair::write_and_read(size_t size) {
  constexpr uint64_t kAll =
      FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  WEFT_CHECK(prepare_memory(a, *info_, 2 * size, kAll));
  WEFT_CHECK(prepare_memory(b, *info_, size, kAll));
  mark_bytes(a.bytes, size);
  std::memset(a.bytes.data() + size, 0, size);
  std::memset(b.bytes.data(), 0, size);
  void *const desc = a.mr != nullptr ? fi_mr_desc(a.mr) : nullptr;
  const uint64_t key = fi_mr_key(b.mr);
  const bool virtual_addresses = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  const uint64_t at = virtual_addresses ? reinterpret_cast<uint64_t>(b.bytes.data()) : 0;
  a.done = 0;
  WEFT_CHECK(start("fi_write", [&] {
    return fi_write(a.ep, a.bytes.data(), size, desc, a.peer, at, key, &a.context);
  }));
  WEFT_CHECK(wait("a completion", [this] { return a.done == 1; }));
  WEFT_CHECK(check_completion(a, "fi_write"));
  // Some providers complete a write before the peer has it.
  WEFT_CHECK(wait("what was written",
                  [&] { return std::memcmp(a.bytes.data(), b.bytes.data(), size) == 0; }));
  a.done = 0;
  WEFT_CHECK(start("fi_read", [&] {
    return fi_read(a.ep, a.bytes.data() + size, size, desc, a.peer, at, key, &a.context);
  }));
  WEFT_CHECK(wait("a completion", [this] { return a.done == 1; }));
  WEFT_CHECK(check_completion(a, "fi_read"));
  if (std::memcmp(a.bytes.data(), a.bytes.data() + size, size) != 0)
    return fail(FI_EIO, "%zu bytes that were written to the peer were read back as others", size);
  return {};
}

Result<void> TrialPair::close() {
  const Result<void> first = a.close(), second = b.close();
  return first ? second : first;
}

}  // namespace weft::cli
