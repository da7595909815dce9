// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/flights.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "plugins/rxm/protocol/operations.h"

namespace weft::rxm {
namespace {

constexpr size_t kChunk = 16;      // packets of staging memory that are made at a time
constexpr size_t kLong = 2 << 10;  // bytes from which a registered vector is not copied

size_t length_of(const iovec *iov, size_t count) {
  if (count == 1) return iov[0].iov_len;  // most often
  size_t length = 0;
  for (size_t i = 0; i < count; ++i) length += iov[i].iov_len;
  return length;
}

}  // namespace

void Flights::open(const sdk::InnerModes &modes, size_t packet_size, const fi_tx_attr &inner,
                   size_t queue) {
  modes_ = modes;
  packet_size_ = packet_size;
  inject_limit_ = inner.inject_size;
  queue_ = queue != 0 ? queue : SIZE_MAX;
  if (modes.keeps_vectors)
    scratch_ = std::make_unique_for_overwrite<uint8_t[]>(std::min(inject_limit_, packet_size));
}

void Flights::close() {
  flights_.visit([this](Flight &f) {
    if (f.calls != nullptr) give(f);
  });
  free_.clear();
  chunks_.clear();
}

Flights::Flight *Flights::take(Calls &calls, Token *token) {
  Flight *f = flights_.take();
  if (f == nullptr) return nullptr;
  f->calls = &calls;
  ++calls.count;
  f->token = token;
  f->staging = nullptr;
  f->region_count = 0;
  return f;
}

void Flights::give(Flight &f) {
  if (f.staging != nullptr) free_.push_back(f.staging);  // grow() made room for all
  while (f.region_count != 0) f.regions[--f.region_count].close();
  --std::exchange(f.calls, nullptr)->count;
  flights_.give(&f);
}

int Flights::grow() {
  const size_t stride = (packet_size_ + 63) / 64 * 64;
  try {
    Chunk chunk{std::make_unique_for_overwrite<uint8_t[]>(kChunk * stride),
                std::make_unique_for_overwrite<Staging[]>(kChunk),
                {}};
    free_.reserve((chunks_.size() + 1) * kChunk);
    chunks_.reserve(chunks_.size() + 1);
    const iovec all{chunk.memory.get(), kChunk * stride};
    if (modes_.local_memory)
      if (const int rc = domain_.register_inner(all, FI_SEND, chunk.region); rc != 0) return rc;
    for (size_t i = kChunk; i-- > 0;) {
      chunk.each[i] = {chunk.memory.get() + i * stride, chunk.region.desc()};
      free_.push_back(&chunk.each[i]);
    }
    chunks_.push_back(std::move(chunk));
  } catch (const std::bad_alloc &) {
    return -FI_ENOMEM;
  }
  return 0;
}

// Fills in the flight's vectors: those of the caller that are long and registered, and between them
// copies of the others, which lie in one piece of staging memory.
int Flights::stage(Flight &f, const iovec *iov, void *const *desc, size_t count, size_t &made) {
  if (free_.empty())
    if (const int rc = grow(); rc != 0) return rc;
  f.staging = free_.back();
  free_.pop_back();
  uint8_t *out = f.staging->bytes;
  size_t left = packet_size_;
  bool extends = false;  // the last vector ends at `out`
  made = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t n = iov[i].iov_len;
    if (n == 0) continue;
    if (desc != nullptr && desc[i] != nullptr && n >= kLong) {
      f.iov[made] = iov[i];
      f.desc[made++] = desc[i];
      extends = false;
      continue;
    }
    if (n > left) return -FI_EMSGSIZE;
    std::memcpy(out, iov[i].iov_base, n);
    if (extends) {
      f.iov[made - 1].iov_len += n;
    } else {
      f.iov[made] = {out, n};
      f.desc[made++] = f.staging->desc;
      extends = true;
    }
    out += n;
    left -= n;
  }
  return 0;
}

// Injected data needs no registration, and may be reused at once. Only an array of several vectors
// would have to stay.
iovec Flights::injected(const iovec *iov, size_t count) {
  const size_t length = length_of(iov, count);
  sdk::gather(scratch_.get(), iov, count, 0, length);
  return {scratch_.get(), length};
}

ssize_t Flights::send(Calls &calls, fid_ep *ep, fi_msg msg, void *const *desc, uint64_t flags,
                      Token *token) {
  const iovec *const iov = msg.msg_iov;
  const size_t count = msg.iov_count;
  bool injects = (flags & FI_INJECT) != 0;
  bool stages = modes_.local_memory && !injects;
  iovec one;
  if (injects && length_of(iov, count) > inject_limit_) {
    injects = false;
    stages = true;
    flags = (flags & ~FI_INJECT) | FI_COMPLETION;
  } else if (injects && modes_.keeps_vectors && count > 1) {
    one = injected(iov, count);
    msg.msg_iov = &one;
    msg.iov_count = 1;
  }
  if (token == nullptr && injects) return fi_sendmsg(ep, &msg, flags);
  Flight *f = take(calls, token);
  if (f == nullptr) return -FI_EAGAIN;
  msg.context = f;
  if (stages) {
    if (const int rc = stage(*f, iov, desc, count, msg.iov_count); rc != 0) {
      give(*f);
      return rc;
    }
    msg.desc = f->desc;
    msg.msg_iov = f->iov;
  } else if (modes_.keeps_vectors && msg.iov_count > 1) {
    std::copy_n(iov, count, f->iov);
    msg.msg_iov = f->iov;
  }
  const ssize_t rc = fi_sendmsg(ep, &msg, flags);
  if (rc != 0) give(*f);
  return rc;
}

ssize_t Flights::access(Calls &calls, fid_ep *ep, bool write, fi_msg_rma msg, void *const *desc,
                        uint64_t flags, Token *token) {
  const auto call = [&] {
    return write ? fi_writemsg(ep, &msg, flags) : fi_readmsg(ep, &msg, flags);
  };
  iovec one;
  if (token == nullptr) {
    if (modes_.keeps_vectors && msg.iov_count > 1) {
      one = injected(msg.msg_iov, msg.iov_count);
      msg.msg_iov = &one;
      msg.iov_count = 1;
    }
    return call();
  }
  if (calls.count >= queue_) return -FI_EAGAIN;
  Flight *f = take(calls, token);
  if (f == nullptr) return -FI_EAGAIN;
  size_t made = 0;
  for (size_t i = 0; i < msg.iov_count; ++i) {
    if (msg.msg_iov[i].iov_len == 0) continue;
    f->iov[made] = msg.msg_iov[i];
    f->desc[made] = desc != nullptr ? desc[i] : nullptr;
    if (modes_.local_memory && f->desc[made] == nullptr) {
      sdk::InnerRegion &region = f->regions[f->region_count];
      if (const int rc = domain_.register_inner(f->iov[made], write ? FI_WRITE : FI_READ, region);
          rc != 0) {
        give(*f);
        return rc;
      }
      ++f->region_count;
      f->desc[made] = region.desc();
    }
    ++made;
  }
  std::copy_n(msg.rma_iov, msg.rma_iov_count, f->rma);
  msg.msg_iov = f->iov;
  msg.desc = f->desc;
  msg.iov_count = made;
  msg.rma_iov = f->rma;
  msg.context = f;
  const ssize_t rc = call();
  if (rc != 0) give(*f);
  return rc;
}

Token *Flights::land(void *op_context) {
  if (op_context == nullptr) return nullptr;
  auto *f = static_cast<Flight *>(op_context);
  Token *token = f->token;
  give(*f);
  return token;
}

bool Flights::has_injected() {
  bool found = false;
  flights_.visit([&found](const Flight &f) {
    if (f.calls == nullptr) return;
    found = found || f.token == nullptr ||
            (f.token->kind == Token::Kind::kOp && static_cast<const TxOp &>(*f.token).owns_data());
  });
  return found;
}

std::vector<Token *> Flights::drop(const Calls &calls) {
  std::vector<Token *> tokens;
  if (calls.count == 0) return tokens;
  tokens.reserve(calls.count);
  flights_.visit([&](Flight &f) {
    if (f.calls != &calls) return;
    if (f.token != nullptr) tokens.push_back(f.token);
    give(f);
  });
  return tokens;
}

}  // namespace weft::rxm
