// SPDX-License-Identifier: BSD-2-Clause
#include "key_exchange.h"

#include <algorithm>
#include <cstring>

namespace weft::tcp {
namespace {

constexpr char kMagic[] = "weft-key";
constexpr const char *kActiveLabel = "weft tcp active 2";
constexpr const char *kPassiveLabel = "weft tcp passive 2";

}  // namespace

const char *KeyExchange::text(Refusal refusal) noexcept {
  switch (refusal) {
    case Refusal::kNoKey:
      return "the peer does not prove an auth_key, which this endpoint requires";
    case Refusal::kOtherKey:
      return "the peer has another auth_key, or is called at an address that is not its own";
  }
  return "unknown";
}

KeyExchange::KeyExchange(ConnectRole role, const sdk::AuthKey &key, const sdk::Mac &mac,
                         const sdk::Place &place)
    : role_(role), key_(key), mac_(mac), place_(place) {
  static_assert(kMagicSize == sizeof kMagic - 1);
  if (role_ == ConnectRole::kPassive) {
    sdk::random_bytes(passive_);
    await(kMagicSize + kNonceSize);
    return;
  }
  sdk::random_bytes(active_);
  std::memcpy(out_.data(), kMagic, kMagicSize);
  std::memcpy(out_.data() + kMagicSize, active_.data(), kNonceSize);
  out_size_ = kMagicSize + kNonceSize;
  await(kNonceSize + sdk::Mac::kSize);
}

void KeyExchange::await(size_t bytes) {
  have_ = 0;
  need_ = bytes;
}

void KeyExchange::refuse(Refusal refusal) {
  refusal_ = refusal;
  out_size_ = 0;
  await(0);
}

sdk::Mac::Code KeyExchange::code(const char *who) const {
  return mac_.of(key_, {sdk::bytes_of(who), active_, passive_, place_});
}

bool KeyExchange::peer_shows(const char *who, const uint8_t *at) const {
  return sdk::Mac::equal(code(who),
                         std::span<const uint8_t, sdk::Mac::kSize>(at, at + sdk::Mac::kSize));
}

void KeyExchange::on_read(size_t n) {
  have_ += n;
  if (role_ == ConnectRole::kPassive && !greeted_) {
    // A peer without a key is recognized by its first bytes.
    if (std::memcmp(in_.data(), kMagic, std::min(have_, kMagicSize)) != 0)
      return refuse(Refusal::kNoKey);
    if (have_ < need_) return;
    greeted_ = true;
    std::memcpy(active_.data(), in_.data() + kMagicSize, kNonceSize);
    const sdk::Mac::Code mine = code(kPassiveLabel);
    std::memcpy(out_.data(), passive_.data(), kNonceSize);
    std::memcpy(out_.data() + kNonceSize, mine.data(), mine.size());
    out_size_ = kNonceSize + mine.size();
    return await(sdk::Mac::kSize);
  }
  if (have_ < need_) return;
  if (role_ == ConnectRole::kActive) std::memcpy(passive_.data(), in_.data(), kNonceSize);
  const bool good = role_ == ConnectRole::kPassive
                        ? peer_shows(kActiveLabel, in_.data())
                        : peer_shows(kPassiveLabel, in_.data() + kNonceSize);
  if (!good) return refuse(Refusal::kOtherKey);
  if (role_ == ConnectRole::kActive) {
    const sdk::Mac::Code mine = code(kActiveLabel);
    std::memcpy(out_.data(), mine.data(), mine.size());
    out_size_ = mine.size();
  }
  done_ = true;
  await(0);
}

}  // namespace weft::tcp
