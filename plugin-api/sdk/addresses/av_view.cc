// SPDX-License-Identifier: BSD-2-Clause
// Views of an address vector, and the contexts of its entries.
#include "av_view.h"

#include <algorithm>
#include <new>

#include "av_file.h"  // ~Av destroys them
#include "av_reverse.h"

namespace weft::sdk {

std::unique_lock<std::mutex> Av::hold_views() {
  if (views_ == nullptr) return {};
  return std::unique_lock(views_->mutex);
}

Result<Av *> Av::open_view(DomainContext &lane, Av &of) {
  fi_av_attr attr{};
  attr.type = of.map_ ? FI_AV_MAP : FI_AV_TABLE;
  attr.flags = of.only_ids_ ? FI_AV_USER_ID : 0;
  if (of.index_mask_ != ~fi_addr_t(0)) attr.rx_ctx_bits = int(64 - of.rx_ctx_shift_);
  std::unique_ptr<Av, void (*)(Av *)> view(
      new Av(lane, of.addr_format_, of.native_, attr, nullptr, &of), [](Av *av) { delete av; });
  const Guard guard(of.engine().lock());
  if (of.file_ != nullptr) WEFT_CHECK(view->share_file(of));
  if (of.views_ == nullptr) of.views_ = std::make_unique<Views>();
  // Lanes look things up in the reverse index, and do not build it.
  if (of.reverse_ == nullptr) of.find(Address());
  const auto alone = of.hold_views();
  of.views_->list.push_back(view.get());
  of.users.fetch_add(1);
  view->found_once_ = view->file_ == nullptr && of.found_once_;
  return view.release();
}

// The view of a vector that processes share reads the file by itself.
Result<void> Av::share_file(Av &of) {
  WEFT_TRY(file_, AvFile::open({.path = of.file_->path(),
                                .addr_format = addr_format_,
                                .native = native_,
                                .read_only = true}));
  WEFT_CHECK(synchronize());
  if (!of.has_ids_) return {};
  for (uint32_t index = 0; index < std::min(end_, of.end_); ++index)
    if (tag_of(index) != kFree && of.tag_of(index) != kFree)
      ids(index / kChunk)[index % kChunk] = of.reported(index);
  return {};
}

void Av::close_view() {
  {
    const Guard guard(origin_->engine().lock());
    const auto alone = origin_->hold_views();
    std::erase(origin_->views_->list, this);
    origin_->users.fetch_sub(1);
  }
  delete this;
}

// ---- of a view, with the lane's lock held ----

// Whether the origin has the entry, which the view has now, too.
bool Av::fetch(fi_addr_t index) {
  if (file_ != nullptr) return false;
  std::optional<Address> address;
  const fi_addr_t *id = nullptr;
  fi_addr_t its_id = 0;
  {
    const auto alone = origin_->hold_views();
    if (index >= origin_->end_) return false;
    address = origin_->get(uint32_t(index));
    if (!address) return false;
    const Chunk &chunk = *origin_->chunks_[index / kChunk];
    if (chunk.ids != nullptr) {
      its_id = chunk.ids[index % kChunk];
      id = &its_id;
    }
    found_once_ = origin_->found_once_;
  }
  set(uint32_t(index), *address, id);
  return true;
}

uint32_t Av::find_in_origin(const Address &address) {
  uint32_t index;
  {
    const auto alone = origin_->hold_views();
    index = origin_->reverse_->find(address);
  }
  if (index == kNone || (index < end_ && tag_of(index) != kFree)) return index;
  return fetch(index) ? index : kNone;
}

// ---- of a view, with the lock of its origin's engine held ----

void Av::tell_inserted(uint32_t index, const Address &address, bool once) {
  const Guard guard(domain_.engine->lock());
  if (file_ != nullptr) return refresh();
  found_once_ = once;
  for (size_t i = 0; i < av_users_.size(); ++i)
    if (av_users_[i].second) av_users_[i].first->on_av_inserted(index, address);
}

void Av::drop(uint32_t index) {
  const Guard guard(domain_.engine->lock());
  if (file_ != nullptr) return;  // it sees that by itself
  if (index < end_ && tag_of(index) != kFree) clear(index);
}

void Av::rename(uint32_t index, fi_addr_t id) {
  const Guard guard(domain_.engine->lock());
  if (file_ != nullptr) refresh();
  if (index < end_ && tag_of(index) != kFree) ids(index / kChunk)[index % kChunk] = id;
}

// ---- contexts ----

uint32_t Av::find_context(const Address &address, unsigned number) {
  if (number == 0) return find(address);
  if (address.port() <= number) return kNone;
  const auto first = address.with_port(uint16_t(address.port() - number));
  const uint32_t entry = first ? find(*first) : kNone;
  return entry != kNone ? context_at(entry, number) : kNone;
}

std::optional<Address> Av::address_elsewhere(uint32_t index) {
  const uint32_t entry = entry_of(index);
  if (entry == index) return origin_ != nullptr && fetch(index) ? get(index) : std::nullopt;
  const auto first = address(entry);
  if (!first) return std::nullopt;
  const unsigned number = (index - kContext) % kContexts;
  if (first->port() == 0 || first->port() + number > UINT16_MAX) return std::nullopt;
  const auto its = first->with_port(uint16_t(first->port() + number));
  return its ? std::optional(*its) : std::nullopt;
}

void Av::tell_removed(AvUser &user, uint32_t index) {
  user.on_av_removed(index);
  if (!has_contexts_) return;
  for (uint32_t number = 1; number < kContexts; ++number) {
    const uint32_t context = context_at(index, number);
    if (context != kNone) user.on_av_removed(context);
  }
}

}  // namespace weft::sdk
