// SPDX-License-Identifier: BSD-2-Clause
#include <unistd.h>
#include <weft/sdk/memory/hmem_pipe.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

namespace weft::sdk {
namespace {

// Whole pages, which belong to nobody else.
uint8_t *allocate_pages(size_t size) {
  const auto page = size_t(::sysconf(_SC_PAGESIZE));
  void *const bytes = std::aligned_alloc(page, (size + page - 1) / page * page);
  if (bytes == nullptr) throw std::bad_alloc();
  return static_cast<uint8_t *>(bytes);
}

}  // namespace

// ---- HmemStaging ----

HmemStaging::HmemStaging(std::shared_ptr<const Hmem> hmem, size_t size)
    : hmem_(std::move(hmem)), size_(size), bytes_(allocate_pages(size)) {}

HmemStaging::~HmemStaging() {
  if (known_ != nullptr) known_->unregister_host(bytes_.get());
}

void HmemStaging::Free::operator()(uint8_t *bytes) const {
  std::free(bytes);
}

void HmemStaging::become_known(const HmemPlace &place) {
  known_ = place.iface;
  known_->register_host_for(place, bytes_.get(), size_);
}

// ---- HmemOutput ----

bool HmemOutput::stage(const void *owner, std::span<iovec> iov, size_t &count) {
  // To ask whose memory it is costs as much as to copy some kilobytes. So no more is looked at than
  // what may be copied.
  wanted_.clear();
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) {
    const HmemPlace place = staging_.hmem().find(iov[i].iov_base, iov[i].iov_len);
    if (!place) continue;
    wanted_.push_back({static_cast<const uint8_t *>(iov[i].iov_base), iov[i].iov_len, place, i});
    bytes += iov[i].iov_len;
    if (bytes >= 2 * kPart) count = i + 1;
  }
  if (wanted_.empty()) return true;
  if (owner != owner_ || !continues()) {
    drop();
    owner_ = owner;
  }
  if (parts_[now_].empty() && !parts_[1 - now_].empty()) {
    parts_[now_].clear();
    now_ = 1 - now_;
  }
  Part &part = parts_[now_], &next = parts_[1 - now_];
  if (part.empty()) {
    part.clear();
    if (fill(part, kFirst, 0, 0) == 0) return false;
  }
  if (!finish(part)) {
    drop();
    return false;
  }
  // The part's pieces are the first ones of those that are wanted.
  size_t wanted = 0, used = 0, at = part.at;
  for (size_t i = part.first; i < part.pieces.size() && wanted < wanted_.size(); ++i) {
    const size_t length = part.pieces[i].length;
    iov[wanted_[wanted].vector] = {part.bytes + at, length};
    at += length;
    used = length;
    if (length < wanted_[wanted].length) break;
    ++wanted, used = 0;
  }
  if (wanted == wanted_.size()) return true;
  count = wanted_[wanted].vector + (used != 0 ? 1 : 0);
  if (next.empty()) {
    next.clear();
    (void)fill(next, kPart, wanted, used);  // what fails is told when its turn comes
  }
  return true;
}

// Whether what has been copied is what is wanted next.
bool HmemOutput::continues() const {
  size_t wanted = 0, used = 0;
  for (const Part *part : {&parts_[now_], &parts_[1 - now_]})
    for (size_t i = part->first; i < part->pieces.size(); ++i) {
      if (wanted == wanted_.size()) return true;
      const Piece &have = part->pieces[i], &want = wanted_[wanted];
      if (have.from != want.from + used || have.length > want.length - used) return false;
      used += have.length;
      if (used == want.length) ++wanted, used = 0;
    }
  return true;
}

// Starts copies of what is wanted, less the first `skipped` bytes of the first piece. Returns how
// many it has started.
size_t HmemOutput::fill(Part &part, size_t room, size_t piece, size_t skipped) {
  size_t at = 0;
  for (; piece < wanted_.size() && at < room; ++piece, skipped = 0) {
    Piece one = wanted_[piece];
    one.from += skipped;
    one.length = std::min(one.length - skipped, room - at);
    staging_.meet(one.place);
    if (!one.place.iface->start(one.place, part.bytes + at, one.from, one.length)) break;
    part.under_way = true;
    at += one.length;
    part.pieces.push_back(one);
  }
  return part.pieces.size();
}

bool HmemOutput::finish(Part &part) {
  if (!std::exchange(part.under_way, false)) return true;
  bool good = true;
  const Piece *last = nullptr;
  for (const Piece &piece : part.pieces) {
    if (last == nullptr || last->place.context != piece.place.context)
      good &= piece.place.iface->finish(piece.place);
    last = &piece;
  }
  return good;
}

void HmemOutput::on_sent(std::span<const iovec> iov, size_t sent) {
  for (size_t i = 0; i < iov.size() && sent != 0; ++i) {
    const size_t n = std::min(sent, iov[i].iov_len);
    sent -= n;
    if (!staging_.has(iov[i].iov_base)) continue;
    Part &part = parts_[now_];
    Piece &piece = part.pieces[part.first];
    piece.from += n;
    piece.length -= n;
    part.at += n;
    if (piece.length == 0) ++part.first;
  }
}

void HmemOutput::drop() {
  for (Part &part : parts_) {
    (void)finish(part);
    part.clear();
  }
  owner_ = nullptr;
}

// ---- HmemInput ----

bool HmemInput::start(void *to, const HmemPlace &place, const void *from, size_t length) {
  if (!finish()) return false;
  if (length <= kShort) return hmem_copy(to, &place, from, nullptr, length);
  staging_.meet(place);
  if (!place.iface->start(place, to, from, length)) return false;
  place_ = place;
  is_second_ = from < staging_.bytes() + kPart;  // further bytes go to the other part
  return true;
}

bool HmemInput::finish() {
  if (!place_) return true;
  const HmemPlace place = std::exchange(place_, HmemPlace{});
  return place.iface->finish(place);
}

}  // namespace weft::sdk
