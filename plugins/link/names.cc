// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/link/names.h"

#include <rdma/fi_errno.h>
#include <weft/sdk/addresses/address.h>
#include <weft/sdk/objects/cq.h>
#include <weft/sdk/unit/log.h>

#include <new>
#include <utility>

#include "plugins/link/domain.h"
#include "plugins/link/local_name.h"

namespace weft::link {

Result<std::shared_ptr<Names>> Names::open(Domain &domain, sdk::Av &av) {
  auto made = std::make_shared<Names>(domain, av);
  for (size_t i = 0; i < domain.branches(); ++i) {
    fi_av_attr attr{.type = FI_AV_TABLE};
    const int rc = fi_av_open(domain.branch(i).domain(), &attr, &made->beneath_[i], nullptr);
    if (rc != 0) return fail(-rc, "link: a provider beneath has no address vector for it");
  }
  const sdk::Guard guard(domain.engine().lock());
  av.add_user(*made, true);
  made->is_user_ = true;
  for (uint32_t i = 0; i < av.capacity(); ++i)
    if (av.address(i)) made->note(i);
  return made;
}

Names::~Names() {
  if (is_user_) {
    const sdk::Guard guard(domain_.engine().lock());
    av_.remove_user(*this);
  }
  for (fid_av *const av : beneath_)
    if (av != nullptr) fi_close(&av->fid);
}

// No memory: the peer is not known beneath, and operations toward it fail.
void Names::note(uint32_t index) {
  try {
    if (index >= is_changed_.size()) is_changed_.resize(index + 1);
    if (is_changed_[index]) return;
    changed_.push_back(index);
    is_changed_[index] = true;
  } catch (const std::bad_alloc &) {
    return;
  }
  has_changes_.store(true, std::memory_order_release);
  domain_.note_names();
}

Names::Name Names::of(uint32_t index) {
  follow();
  const std::lock_guard guard(mutex_);
  return index < names_.size() ? names_[index] : Name{};
}

void Names::follow() {
  if (!has_changes_.load(std::memory_order_acquire)) return;
  const std::lock_guard guard(mutex_);
  std::vector<std::pair<uint32_t, std::optional<sdk::Address>>> now;
  {
    const sdk::Guard held(domain_.engine().lock());
    has_changes_.store(false, std::memory_order_relaxed);
    now.reserve(changed_.size());
    for (const uint32_t index : changed_) {
      is_changed_[index] = false;
      now.emplace_back(index, av_.address(index));
    }
    changed_.clear();
  }
  for (const auto &[index, address] : now) apply(index, address);
}

void Names::apply(uint32_t index, const std::optional<sdk::Address> &address) {
  if (index >= names_.size()) names_.resize(index + 1);
  Name &name = names_[index];
  for (size_t i = 0; i < domain_.branches(); ++i)
    if (name.at[i] != FI_ADDR_NOTAVAIL) fi_av_remove(beneath_[i], &name.at[i], 1, 0);
  name = {};
  if (!address) return;
  name.error =
      insert(kNetwork, domain_.inner_info().addr_format, *address, index, name.at[kNetwork]);
  if (char text[128]; name.error != 0)
    WEFT_WARN(domain_.instance(), FI_LOG_AV, "%s is not taken by the provider of the network: %s",
              address->to_string().c_str(), sdk::strerror_into(name.error, text, sizeof text));
  if (!domain_.has_local() || !domain_.may_be_local(*address)) return;
  insert(kLocal, FI_ADDR_STR, local_name(*address), index, name.at[kLocal]);
}

// 0 or FI_E... Addresses as texts are passed by pointers.
int Names::insert(size_t branch, uint32_t format, const sdk::Address &address, uint32_t index,
                  fi_addr_t &at) {
  char bytes[160];
  size_t length = sizeof bytes;
  if (const int rc = sdk::write_address(address, format, bytes, &length); rc != 0) return -rc;
  const char *const text = bytes;
  const void *const element = format == FI_ADDR_STR ? static_cast<const void *>(&text) : bytes;
  fi_addr_t number = index;  // the id that it is to have
  int error = 0;
  const int rc =
      fi_av_insert(beneath_[branch], element, 1, &number, FI_AV_USER_ID | FI_SYNC_ERR, &error);
  if (rc < 0) return -rc;
  if (rc == 0) return error != 0 ? error : FI_EADDRNOTAVAIL;
  at = number;
  return 0;
}

}  // namespace weft::link
