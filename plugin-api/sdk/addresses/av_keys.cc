// SPDX-License-Identifier: BSD-2-Clause
// Authorization keys of an address vector: fi_av_insert_auth_key and what takes its result.
#include <weft/sdk/addresses/av.h>
#include <weft/sdk/addresses/av_keys.h>
#include <weft/sdk/objects/domain.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace weft::sdk {

uint32_t Av::key_of(fi_addr_t handle) const {
  if (handle < kKeyBase || handle - kKeyBase >= keys_.size()) return kNone;
  return keys_[handle - kKeyBase].bytes.empty() ? kNone : uint32_t(handle - kKeyBase);
}

// The key that the entry's address was inserted with. kNone: it is not in the vector any more.
uint32_t Av::key_at(uint32_t index) const {
  const std::optional<Address> address = get(index);
  for (uint32_t key = 0; key < keys_.size() && address; ++key) {
    if (keys_[key].bytes.empty()) continue;
    const auto with = domain_.av_keys->with_key(*address, keys_[key].bytes);
    if (with && *with == *address) return key;
  }
  return kNone;
}

void Av::hold_keys() {
  for (AvKey &key : keys_)
    if (!key.bytes.empty()) ++key.users;
}

void Av::release_key(const AuthKey &bytes) {
  const auto key = std::ranges::find(keys_, bytes, &AvKey::bytes);
  if (key != keys_.end() && key->users != 0) --key->users;
}

Result<Address> Av::with_key(const Result<Address> &address, fi_addr_t handle) const {
  if (!address) return address;
  const uint32_t key = key_of(handle);
  if (key == kNone)
    return fail(FI_EINVAL,
                "%s with the key 0x%llx: fi_addr must have what fi_av_insert_auth_key returned",
                address->to_string().c_str(), (unsigned long long)handle);
  return domain_.av_keys->with_key(*address, keys_[key].bytes);
}

Result<fi_addr_t> Av::add_key(AvKeys::Bytes given) {
  WEFT_TRY(const AuthKey bytes, domain_.av_keys->read(given));
  const auto there = std::ranges::find(keys_, bytes, &AvKey::bytes);
  if (there != keys_.end()) {
    ++there->insertions;
    return kKeyBase + fi_addr_t(there - keys_.begin());
  }
  auto free = std::ranges::find_if(keys_, [](const AvKey &one) { return one.bytes.empty(); });
  if (free == keys_.end() && keys_.size() == domain_.av_keys->limit())
    return fail(FI_ENOSPC,
                "fi_av_insert_auth_key: a vector has at most %zu keys "
                "(domain_attr.max_ep_auth_key): remove one, or ask fi_getinfo for more",
                domain_.av_keys->limit());
  if (free == keys_.end()) free = keys_.emplace(keys_.end());
  const fi_addr_t handle = kKeyBase + fi_addr_t(free - keys_.begin());
  *free = {
      .bytes = bytes, .id = only_ids_ ? FI_ADDR_NOTAVAIL : handle, .insertions = 1, .users = 0};
  return handle;
}

int Av::insert_auth_key(const void *auth_key, size_t auth_key_size, fi_addr_t *fi_addr,
                        uint64_t flags) {
  if (domain_.av_keys == nullptr) return -FI_ENOSYS;
  if (flags != 0) return -FI_EBADFLAGS;
  if (auth_key == nullptr || auth_key_size == 0 || fi_addr == nullptr) return -FI_EINVAL;
  if (auth_key_size > kMaxAuthKey) return -FI_EINVAL;
  const Guard guard(domain_.engine->lock());
  const auto handle = add_key({static_cast<const uint8_t *>(auth_key), auth_key_size});
  if (!handle) {
    WEFT_WARN(instance(), FI_LOG_AV, "%s", handle.error().text.c_str());
    return -handle.error().code;
  }
  *fi_addr = *handle;
  return 0;
}

int Av::lookup_auth_key(fi_addr_t addr, void *auth_key, size_t *auth_key_size) {
  if (domain_.av_keys == nullptr) return -FI_ENOSYS;
  if (auth_key_size == nullptr || (auth_key == nullptr && *auth_key_size != 0)) return -FI_EINVAL;
  const Guard guard(domain_.engine->lock());
  uint32_t key = key_of(addr);
  if (key == kNone)
    if (const uint32_t index = index_of(addr); index != kNone) key = key_at(index);
  if (key == kNone) return -FI_EINVAL;
  const AuthKey &bytes = keys_[key].bytes;
  const size_t room = std::min(*auth_key_size, bytes.size());  // what does not fit is cut
  if (room != 0) std::memcpy(auth_key, bytes.data(), room);
  *auth_key_size = bytes.size();
  return 0;
}

// fi_av_remove with FI_AUTH_KEY.
int Av::remove_keys(const fi_addr_t *fi_addr, size_t count) {
  const Guard guard(domain_.engine->lock());
  int rc = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t key = key_of(fi_addr[i]);
    if (key == kNone) {
      rc = -FI_EINVAL;  // the other keys are removed all the same
    } else if (keys_[key].insertions > 1) {
      --keys_[key].insertions;
    } else if (keys_[key].users != 0) {
      rc = -FI_EBUSY;
    } else {
      keys_[key] = {};
    }
  }
  return rc;
}

int Av::set_key_id(fi_addr_t handle, fi_addr_t id) {
  const Guard guard(domain_.engine->lock());
  const uint32_t key = key_of(handle);
  if (key == kNone) return -FI_EINVAL;
  keys_[key].id = id;
  return 0;
}

}  // namespace weft::sdk
