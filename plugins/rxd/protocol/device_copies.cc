// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/device_copies.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "plugins/rxd/protocol/core.h"
#include "plugins/rxd/protocol/weft/packets.h"

namespace weft::rxd {
namespace {

// Where [offset, offset + n) is: the number of vectors, or -FI_E...
ssize_t locate(Core &core, const Ahead &ahead, uint64_t offset, uint64_t n, iovec *iov) {
  if (ahead.op != nullptr) return ssize_t(slice(ahead.op->iov, ahead.op->count, offset, n, iov));
  const Answer &a = *ahead.answer;
  return core.resolve({a.vectors, a.count}, FI_REMOTE_READ, offset, n, iov, kMaxPieces);
}

ssize_t locate(Core &core, const Landing &landing, uint64_t offset, uint64_t n, iovec *iov) {
  if (landing.message != nullptr) {
    const sdk::Receive &r = *landing.message->receive;
    return ssize_t(slice(r.iov, r.count, offset, n, iov));
  }
  if (landing.read != nullptr)
    return ssize_t(slice(landing.read->iov, landing.read->count, offset, n, iov));
  const Remote &r = *landing.write;
  return core.resolve({r.vectors, r.count}, FI_REMOTE_WRITE, offset, n, iov, kMaxPieces);
}

}  // namespace

// The memory of `hmem` is the domain's.
DeviceCopies::DeviceCopies(Core &core, const sdk::Hmem &hmem)
    : core_(core),
      hmem_(hmem),
      staging_(std::shared_ptr<const sdk::Hmem>(std::shared_ptr<void>(), &hmem), kParts * kPart) {
  free_.reserve(kParts);
  sent_.reserve(kParts);
  for (size_t i = kParts; i-- > 0;) free_.push_back(staging_.bytes() + i * kPart);
}

bool DeviceCopies::finds(const iovec *iov, size_t count) const {
  return std::any_of(iov, iov + count, [this](const iovec &one) {
    return bool(hmem_.find(one.iov_base, one.iov_len));
  });
}

// ---- parts ----

// Null: all are in use.
uint8_t *DeviceCopies::take() {
  if (!sent_.empty() && (free_.empty() || !core_.has_unflushed())) {
    core_.flush();
    free_.insert(free_.end(), sent_.begin(), sent_.end());
    sent_.clear();
  }
  if (free_.empty()) settle();
  if (free_.empty()) return nullptr;
  uint8_t *const bytes = free_.back();
  free_.pop_back();
  return bytes;
}

bool DeviceCopies::start(Copies &of, const sdk::HmemPlace &place, void *to, const void *from,
                         size_t n) {
  staging_.meet(place);
  if (!place.iface->start(place, to, from, n)) return false;
  under_way_.push_back({&of, place});
  ++of.under_way;
  return true;
}

void DeviceCopies::settle() {
  for (size_t i = 0; i < under_way_.size(); ++i) {
    const sdk::HmemPlace place = under_way_[i].place;
    if (!place) continue;
    // It waits for all that was started in this context.
    const bool good = place.iface->finish(place);
    for (size_t k = i; k < under_way_.size(); ++k) {
      Copy &copy = under_way_[k];
      if (copy.place.iface != place.iface || copy.place.context != place.context) continue;
      if (!good) copy.of->failed = true;
      --copy.of->under_way;
      if (copy.part != nullptr) free_.push_back(copy.part);
      copy.place = {};
    }
  }
  under_way_.clear();
}

// ---- sends ----

Ahead *DeviceCopies::ahead_of(const TxOp &op) {
  return ahead_of(&op, nullptr, op.length);
}

Ahead *DeviceCopies::ahead_of(const Answer &answer) {
  return ahead_of(nullptr, &answer, answer.length);
}

Ahead *DeviceCopies::ahead_of(const TxOp *op, const Answer *answer, uint64_t length) {
  Ahead *const ahead = aheads_.take();
  if (ahead == nullptr) return nullptr;
  *ahead = {.op = op, .answer = answer};
  if (has_spare()) fill(*ahead, ahead->first(), 0, std::min<uint64_t>(length, kFirst));
  return ahead;
}

void DeviceCopies::fill(const Ahead &ahead, Ahead::Part &part, uint64_t begin, uint64_t n) {
  iovec iov[kMaxPieces];
  const ssize_t count = locate(core_, ahead, begin, n, iov);
  if (count < 0) return;  // who sends finds out the same
  uint8_t *to = take();
  if (to == nullptr) return;
  part = {.bytes = to, .begin = begin, .end = begin + n};
  for (ssize_t i = 0; i < count && !part.copies.failed; to += iov[i++].iov_len) {
    const sdk::HmemPlace place = hmem_.find(iov[i].iov_base, iov[i].iov_len);
    if (!place) {
      std::memcpy(to, iov[i].iov_base, iov[i].iov_len);
      continue;
    }
    part.copies.failed = !start(part.copies, place, to, iov[i].iov_base, iov[i].iov_len);
  }
}

ssize_t DeviceCopies::fetch(Ahead &ahead, uint64_t offset, uint64_t n, uint64_t limit, iovec *iov) {
  Ahead::Part &first = ahead.first(), &second = ahead.second();
  const uint64_t end = offset + n;
  const auto part_from = [limit](uint64_t begin) {
    return std::min<uint64_t>(limit - begin, kPart);
  };
  if (first.bytes == nullptr && offset == ahead.sent) fill(ahead, first, offset, part_from(offset));
  if (first.bytes == nullptr || offset < first.begin || offset >= first.end) return 0;
  if (end > first.end && second.bytes == nullptr)
    fill(ahead, second, first.end, part_from(first.end));
  if (end > first.end && (second.bytes == nullptr || end > second.end)) return 0;
  if (!is_ready(first)) return -FI_EIO;
  size_t count = 0;
  iov[count++] = {first.bytes + (offset - first.begin), std::min(end, first.end) - offset};
  if (end > first.end) {
    if (!is_ready(second)) return -FI_EIO;
    iov[count++] = {second.bytes, end - first.end};
  }
  go_on(ahead, limit);
  return ssize_t(count);
}

void DeviceCopies::go_on(Ahead &ahead, uint64_t limit) {
  if (!has_spare()) return;
  Ahead::Part &first = ahead.first();
  const uint64_t begin = first.bytes != nullptr ? first.end : ahead.sent;
  Ahead::Part &part = first.bytes != nullptr ? ahead.second() : first;
  if (part.bytes == nullptr && begin < limit)
    fill(ahead, part, begin, std::min<uint64_t>(limit - begin, kPart));
}

void DeviceCopies::pass(Ahead &ahead, uint64_t end) {
  ahead.sent = std::max(ahead.sent, end);
  while (ahead.first().bytes != nullptr && ahead.sent >= ahead.first().end) {
    release(ahead.first());
    ahead.now = 1 - ahead.now;
  }
}

void DeviceCopies::release(Ahead::Part &part) {
  if (part.bytes == nullptr) return;
  if (part.copies.under_way != 0) settle();
  sent_.push_back(part.bytes);
  part = {};
}

void DeviceCopies::end(Ahead *&ahead) {
  if (ahead == nullptr) return;
  for (Ahead::Part &part : ahead->parts) release(part);
  aheads_.give(std::exchange(ahead, nullptr));
}

ssize_t DeviceCopies::fetch_now(iovec *iov, size_t count, size_t n) {
  core_.flush();  // what was here before
  if (scratch_.size() < n) scratch_.resize(n);
  if (!sdk::hmem_gather(&hmem_, scratch_.data(), iov, count, 0, n)) return -FI_EIO;
  iov[0] = {scratch_.data(), n};
  return 1;
}

// ---- what arrives ----

Landing *DeviceCopies::make(Incoming *message, TxOp *read, Remote *write) {
  Landing *const landing = landings_.take();
  if (landing != nullptr) *landing = {.message = message, .read = read, .write = write};
  return landing;
}

Landing *DeviceCopies::landing_of(Incoming &m) {
  const sdk::Receive &r = *m.receive;
  if (std::min<uint64_t>(m.message.length, r.length) <= kShort || !finds(r.iov, r.count))
    return nullptr;
  return make(&m, nullptr, nullptr);
}

Landing *DeviceCopies::landing_of(TxOp &read) {
  if (read.length <= kShort || !finds(read.iov, read.count)) return nullptr;
  return make(nullptr, &read, nullptr);
}

Landing *DeviceCopies::landing_of(Remote &write) {
  iovec iov[kMaxPieces];
  if (write.length <= kShort) return nullptr;
  const ssize_t count = core_.resolve({write.vectors, write.count}, FI_REMOTE_WRITE, 0,
                                      write.length, iov, kMaxPieces);
  if (count < 0 || !finds(iov, size_t(count))) return nullptr;
  return make(nullptr, nullptr, &write);
}

// The run that goes on at `offset`, or a new one. Null: there is no part for one.
Landing::Run *DeviceCopies::run_at(Landing &landing, uint64_t offset) {
  for (Landing::Run &run : landing.runs)
    if (run.bytes != nullptr && run.begin + run.length == offset) return &run;
  const bool one_is_free = landing.runs[landing.last].bytes == nullptr;
  Landing::Run &run = landing.runs[one_is_free ? landing.last : 1 - landing.last];
  if (run.bytes != nullptr) launch(landing, run);
  run = {.bytes = take(), .begin = offset};
  return run.bytes != nullptr ? &run : nullptr;
}

uint16_t DeviceCopies::put(Landing &landing, uint64_t offset, std::span<const uint8_t> bytes) {
  while (!bytes.empty() && landing.status == 0) {
    Landing::Run *const run = run_at(landing, offset);
    if (run == nullptr) {
      iovec iov[kMaxPieces];
      const ssize_t count = locate(core_, landing, offset, bytes.size(), iov);
      if (count < 0) return landing.status = uint16_t(-count);
      if (!sdk::hmem_scatter(&hmem_, iov, size_t(count), 0, bytes.data(), bytes.size()))
        landing.status = FI_EIO;
      break;
    }
    landing.last = size_t(run - landing.runs.data());
    const size_t n = std::min(bytes.size(), kPart - run->length);
    std::memcpy(run->bytes + run->length, bytes.data(), n);
    run->length += n;
    if (run->length == kPart) launch(landing, *run);
    offset += n;
    bytes = bytes.subspan(n);
  }
  return landing.status;
}

void DeviceCopies::launch(Landing &landing, Landing::Run &run) {
  const Landing::Run all = std::exchange(run, {});
  iovec iov[kMaxPieces];
  const ssize_t count = locate(core_, landing, all.begin, all.length, iov);
  if (count < 0) landing.status = uint16_t(-count);
  const uint8_t *from = all.bytes;
  const size_t before = under_way_.size();
  for (ssize_t i = 0; i < count && landing.status == 0; from += iov[i++].iov_len) {
    const sdk::HmemPlace place = hmem_.find(iov[i].iov_base, iov[i].iov_len);
    if (!place) {
      std::memcpy(iov[i].iov_base, from, iov[i].iov_len);
      continue;
    }
    if (!start(landing.copies, place, iov[i].iov_base, from, iov[i].iov_len))
      landing.status = FI_EIO;
  }
  if (under_way_.size() == before) {
    free_.push_back(all.bytes);
  } else {
    under_way_.back().part = all.bytes;
  }
}

bool DeviceCopies::lands(Landing &landing) {
  for (Landing::Run &run : landing.runs)
    if (run.bytes != nullptr) launch(landing, run);
  return landing.copies.under_way != 0;
}

uint16_t DeviceCopies::end(Landing *&landing) {
  if (landing->copies.under_way != 0) settle();
  for (const Landing::Run &run : landing->runs)
    if (run.bytes != nullptr) free_.push_back(run.bytes);
  const uint16_t status =
      landing->status != 0 || !landing->copies.failed ? landing->status : FI_EIO;
  landings_.give(std::exchange(landing, nullptr));
  return status;
}

}  // namespace weft::rxd
