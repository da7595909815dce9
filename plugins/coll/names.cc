// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/coll/names.h"

#include <weft/sdk/addresses/address.h>

#include <algorithm>

#include "plugins/coll/domain.h"
#include "plugins/coll/endpoint.h"

namespace weft::coll {

Result<std::unique_ptr<Names>> Names::open(Domain &domain) {
  std::unique_ptr<Names> names(new Names(domain));
  fi_av_attr attr{.type = FI_AV_TABLE};
  if (const int rc = fi_av_open(domain.inner(), &attr, &names->peers_, nullptr); rc != 0)
    return fail(-rc, "coll: the provider beneath has no address vector for it");
  return names;
}

Names::~Names() {
  if (peers_ != nullptr) fi_close(&peers_->fid);
}

// Names of endpoints that have all gone are forgotten now: those had messages under way.
void Names::start(sdk::Av &av, bool tells_sources) {
  if (users_++ == 0) {
    forget_all();
    av_ = &av;
    av.add_user(*this);
  }
  if (tells_sources) name_all();
}

void Names::name_all() {
  if (names_all_) return;
  names_all_ = true;
  av_->remove_user(*this);
  av_->add_user(*this, true);
  for (uint32_t i = 0; i < names_.size(); ++i)
    if (names_[i].address != FI_ADDR_NOTAVAIL) indices_.try_emplace(names_[i].address, i);
  for (uint32_t i = 0; i < av_->capacity(); ++i) of(i);
}

void Names::stop() {
  if (--users_ == 0) av_->remove_user(*this);
}

void Names::forget_all() {
  for (Name &name : names_)
    if (name.address != FI_ADDR_NOTAVAIL) fi_av_remove(peers_, &name.address, 1, 0);
  for (auto &[address, name] : kept_) fi_av_remove(peers_, &name, 1, 0);
  names_.clear();
  kept_.clear();
  indices_.clear();
  names_all_ = false;
}

std::string Names::address_at(uint32_t index) const {
  const auto address = av_->address(index);
  char bytes[128];
  size_t length = sizeof bytes;
  const uint32_t format = domain_.inner_info().addr_format;
  if (!address || sdk::write_address(*address, format, bytes, &length) != 0) return {};
  return {bytes, length};
}

fi_addr_t Names::insert(uint32_t index) {
  const std::string address = address_at(index);
  if (address.empty()) return FI_ADDR_NOTAVAIL;
  if (index >= names_.size()) names_.resize(index + 1);
  Name &name = names_[index];
  if (const auto kept = kept_.extract(address); !kept.empty())
    name = {kept.mapped(), true};
  else if (fi_av_insert(peers_, address.data(), 1, &name.address, 0, nullptr) != 1)
    name.address = FI_ADDR_NOTAVAIL;
  if (name.address != FI_ADDR_NOTAVAIL && names_all_) indices_.try_emplace(name.address, index);
  return name.address;
}

fi_addr_t Names::keep(uint32_t index) {
  const fi_addr_t name = of(index);
  if (name != FI_ADDR_NOTAVAIL) names_[index].is_kept = true;
  return name;
}

// Inserted more than once, a peer is known by the first index.
fi_addr_t Names::reported(fi_addr_t source) const {
  const auto found = indices_.find(source);
  return found != indices_.end() ? av_->reported(found->second) : FI_ADDR_NOTAVAIL;
}

std::string Names::address_of(fi_addr_t name) const {
  char bytes[128];
  size_t length = sizeof bytes;
  if (name == FI_ADDR_NOTAVAIL || fi_av_lookup(peers_, name, bytes, &length) != 0) return {};
  return {bytes, std::min(length, sizeof bytes)};
}

void Names::on_av_removed(uint32_t index) {
  if (index >= names_.size() || names_[index].address == FI_ADDR_NOTAVAIL) return;
  indices_.erase(names_[index].address);
  if (names_[index].is_kept)
    kept_.emplace(address_at(index), names_[index].address);
  else
    fi_av_remove(peers_, &names_[index].address, 1, 0);
  names_[index] = {};
}

}  // namespace weft::coll
