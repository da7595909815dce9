// SPDX-License-Identifier: BSD-2-Clause
// Address vectors with authorization keys (FI_AV_AUTH_KEY), with FI_ADDR_CXI as an example of
// addresses that keys are a part of.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <random>

#include "plugin-api/sdk/testing/test_av.h"
#include "weft/sdk/addresses/av_keys.h"

namespace weft::sdk {
namespace {

constexpr size_t kMaxKeys = 3;
constexpr uint8_t kPadding = 7;
using Key = std::array<uint8_t, 3>;  // the network's number, and a byte that means nothing

Address with_network(const Address &address, const uint8_t *network) {
  alignas(8) unsigned char bytes[8] = {};
  std::memcpy(bytes, address.data(), sizeof bytes);
  std::memcpy(bytes + 4, network, 2);
  return Address::of(FI_ADDR_CXI, bytes, sizeof bytes);
}

struct Networks final : AvKeys {
  size_t limit() const override { return kMaxKeys; }
  Result<AuthKey> read(Bytes key) override {
    if (key.size() != sizeof(Key)) return fail(FI_EINVAL, "a key of %zu bytes", key.size());
    return AuthKey{key[0], key[1], kPadding};
  }
  Result<Address> with_key(const Address &address, Bytes key) const override {
    return with_network(address, key.data());
  }
};

Address peer(uint32_t pid) {
  const uint32_t words[2] = {1u << 9 | pid, 0};
  return Address::of(FI_ADDR_CXI, words, sizeof words);
}
Address peer(uint32_t pid, const Key &key) {
  return with_network(peer(pid), key.data());
}

constexpr Key kRed = {10, 0, kPadding}, kBlue = {20, 0, kPadding}, kGreen = {30, 0, kPadding},
              kGrey = {40, 0, kPadding};

class AvKeysTest : public testing::Test {
 protected:
  explicit AvKeysTest(uint64_t flags = 0) {
    domain_.context.user_ids = true;
    domain_.context.av_keys = &networks_;
    fi_av_attr attr{};
    attr.flags = flags;
    EXPECT_EQ(open_av(domain_.context, FI_ADDR_CXI, &attr, &av_, nullptr), 0);
  }
  ~AvKeysTest() override { EXPECT_EQ(fi_close(&av_->fid), 0); }

  Av &av() { return *Av::from(av_); }
  fi_addr_t key(const Key &bytes) {
    fi_addr_t handle = FI_ADDR_NOTAVAIL;
    EXPECT_EQ(fi_av_insert_auth_key(av_, bytes.data(), bytes.size(), &handle, 0), 0);
    return handle;
  }
  fi_addr_t insert(const Address &address, fi_addr_t key) {
    fi_addr_t out = key;
    fi_av_insert(av_, address.data(), 1, &out, FI_AUTH_KEY, nullptr);
    return out;
  }
  uint32_t find(const Address &address) {
    const Guard guard(domain_.engine.lock());
    return av().find(address);
  }
  // Empty: there is none.
  std::vector<uint8_t> key_of(fi_addr_t address) {
    std::vector<uint8_t> bytes(16);
    size_t size = bytes.size();
    if (fi_av_lookup_auth_key(av_, address, bytes.data(), &size) != 0) return {};
    bytes.resize(size);
    return bytes;
  }
  static std::vector<uint8_t> bytes(const Key &key) { return {key.begin(), key.end()}; }

  Networks networks_;
  TestDomain domain_;
  fid_av *av_ = nullptr;
};

TEST_F(AvKeysTest, AnAddressWithAnotherKeyIsAnotherEntry) {
  const fi_addr_t red = key(kRed), blue = key(kBlue);
  EXPECT_NE(red, blue);
  EXPECT_EQ(insert(peer(5), red), 0u);
  EXPECT_EQ(insert(peer(5), blue), 1u);
  EXPECT_EQ(find(peer(5, kRed)), 0u);
  EXPECT_EQ(find(peer(5, kBlue)), 1u);
  EXPECT_EQ(find(peer(5, kGreen)), Av::kNone);
  EXPECT_EQ(find(peer(5)), Av::kNone);
  // Whatever key the address has come with.
  EXPECT_EQ(insert(peer(6, kRed), blue), 2u);
  EXPECT_EQ(find(peer(6, kBlue)), 2u);
}

TEST_F(AvKeysTest, SeveralAddressesHaveAKeyEach) {
  const fi_addr_t red = key(kRed), blue = key(kBlue);
  const Address addresses[3] = {peer(1), peer(1), peer(2)};
  unsigned char raw[3][8];
  for (size_t i = 0; i < 3; ++i) std::memcpy(raw[i], addresses[i].data(), 8);
  fi_addr_t out[3] = {red, blue, 4711};
  int errors[3] = {1, 1, 0};
  EXPECT_EQ(fi_av_insert(av_, raw, 3, out, FI_AUTH_KEY | FI_SYNC_ERR, errors), 2);
  EXPECT_EQ(out[0], 0u);
  EXPECT_EQ(out[1], 1u);
  EXPECT_EQ(out[2], kNotAvailable) << "4711 is no key";
  EXPECT_EQ(errors[0], 0);
  EXPECT_EQ(errors[1], 0);
  EXPECT_EQ(errors[2], FI_EINVAL);
}

TEST_F(AvKeysTest, TheKeyOfAnAddressIsLookedUp) {
  const fi_addr_t red = key(kRed), blue = key(kBlue);
  const fi_addr_t peer_in_red = insert(peer(5), red), peer_in_blue = insert(peer(5), blue);
  EXPECT_EQ(key_of(red), bytes(kRed));
  EXPECT_EQ(key_of(blue), bytes(kBlue));
  EXPECT_EQ(key_of(peer_in_red), bytes(kRed));
  EXPECT_EQ(key_of(peer_in_blue), bytes(kBlue));
  EXPECT_TRUE(key_of(17).empty());
  EXPECT_TRUE(key_of(Av::kKeyBase + 2).empty());
  // What does not fit is cut.
  uint8_t first = 0;
  size_t size = 1;
  EXPECT_EQ(fi_av_lookup_auth_key(av_, blue, &first, &size), 0);
  EXPECT_EQ(first, kBlue[0]);
  EXPECT_EQ(size, sizeof(Key));
  EXPECT_EQ(fi_av_lookup_auth_key(av_, blue, nullptr, &size), -FI_EINVAL);
  EXPECT_EQ(fi_av_lookup_auth_key(av_, blue, &first, nullptr), -FI_EINVAL);
}

TEST_F(AvKeysTest, WrongCallsAreRefused) {
  fi_addr_t out = 0;
  EXPECT_EQ(fi_av_insert_auth_key(av_, kRed.data(), 3, &out, FI_AUTH_KEY), -FI_EBADFLAGS);
  EXPECT_EQ(fi_av_insert_auth_key(av_, nullptr, 3, &out, 0), -FI_EINVAL);
  EXPECT_EQ(fi_av_insert_auth_key(av_, kRed.data(), 0, &out, 0), -FI_EINVAL);
  EXPECT_EQ(fi_av_insert_auth_key(av_, kRed.data(), 3, nullptr, 0), -FI_EINVAL);
  EXPECT_EQ(fi_av_insert_auth_key(av_, kRed.data(), 2, &out, 0), -FI_EINVAL);
  EXPECT_EQ(fi_av_insert_auth_key(av_, kRed.data(), SIZE_MAX, &out, 0), -FI_EINVAL);
  // An address without a key.
  EXPECT_EQ(fi_av_insert(av_, peer(5).data(), 1, &out, 0, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_av_insert(av_, peer(5).data(), 1, nullptr, FI_AUTH_KEY, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_av_insert(av_, peer(5).data(), 1, &out, FI_AUTH_KEY | FI_AV_USER_ID, nullptr),
            -FI_EINVAL)
      << "fi_av_set_user_id sets ids";
  EXPECT_EQ(insert(peer(5), 0), kNotAvailable);
  EXPECT_EQ(insert(peer(511), key(kRed)), kNotAvailable) << "it names no peer";
  EXPECT_EQ(fi_av_remove(av_, &out, 1, FI_AUTH_KEY), -FI_EINVAL);
  const Name name;
  const fi_av_attr shared = named(name.text);
  EXPECT_EQ(try_open(domain_, shared, FI_ADDR_CXI), -FI_ENOSYS);
}

TEST_F(AvKeysTest, AVectorHasAsManyKeysAsTheDomainSays) {
  key(kRed), key(kBlue);
  const fi_addr_t green = key(kGreen);
  fi_addr_t out = 0;
  EXPECT_EQ(fi_av_insert_auth_key(av_, kGrey.data(), 3, &out, 0), -FI_ENOSPC);
  EXPECT_EQ(key({30, 0, 99}), green) << "it is there already, whatever its last byte is";
  fi_addr_t gone = green;
  EXPECT_EQ(fi_av_remove(av_, &gone, 1, FI_AUTH_KEY), 0);
  EXPECT_EQ(key_of(green), bytes(kGreen)) << "it was inserted twice";
  EXPECT_EQ(fi_av_remove(av_, &gone, 1, FI_AUTH_KEY), 0);
  EXPECT_TRUE(key_of(green).empty());
  EXPECT_EQ(key(kGrey), green);
}

TEST_F(AvKeysTest, AnAddressOutlivesItsKey) {
  fi_addr_t red = key(kRed);
  const fi_addr_t address = insert(peer(5), red);
  EXPECT_EQ(fi_av_remove(av_, &red, 1, 0), -FI_EINVAL) << "without FI_AUTH_KEY it is an address";
  EXPECT_EQ(fi_av_remove(av_, &red, 1, FI_AUTH_KEY), 0);
  EXPECT_TRUE(key_of(address).empty());
  EXPECT_EQ(find(peer(5, kRed)), address);
  fi_addr_t gone = address;
  EXPECT_EQ(fi_av_remove(av_, &gone, 1, 0), 0);
}

TEST_F(AvKeysTest, AKeyThatAnEndpointHasIsBusy) {
  fi_addr_t red = key(kRed);
  {
    const Guard guard(domain_.engine.lock());
    av().hold_keys();
  }
  fi_addr_t blue = key(kBlue);  // too late for that endpoint
  EXPECT_EQ(fi_av_remove(av_, &red, 1, FI_AUTH_KEY), -FI_EBUSY);
  EXPECT_EQ(fi_av_remove(av_, &blue, 1, FI_AUTH_KEY), 0);
  {
    const Guard guard(domain_.engine.lock());
    for (const Key &one : {kRed, kBlue}) av().release_key(AuthKey(one.begin(), one.end()));
  }
  EXPECT_EQ(fi_av_remove(av_, &red, 1, FI_AUTH_KEY), 0);
}

TEST_F(AvKeysTest, ADomainWithoutKeysHasNone) {
  domain_.context.av_keys = nullptr;
  fi_addr_t out = 0;
  size_t size = 0;
  EXPECT_EQ(fi_av_insert_auth_key(av_, kRed.data(), 3, &out, 0), -FI_ENOSYS);
  EXPECT_EQ(fi_av_lookup_auth_key(av_, 0, nullptr, &size), -FI_ENOSYS);
  EXPECT_EQ(fi_av_insert(av_, peer(5).data(), 1, &out, FI_AUTH_KEY, nullptr), -FI_EBADFLAGS);
  EXPECT_EQ(fi_av_remove(av_, &out, 1, FI_AUTH_KEY), -FI_EBADFLAGS);
  EXPECT_EQ(fi_av_set_user_id(av_, 0, 1, FI_AUTH_KEY), -FI_EBADFLAGS);
}

class AvKeysWithIds : public AvKeysTest {
 protected:
  AvKeysWithIds() : AvKeysTest(FI_AV_USER_ID) {}
};

TEST_F(AvKeysWithIds, KeysHaveIdsToo) {
  const fi_addr_t red = key(kRed), address = insert(peer(5), red);
  const uint32_t number = av().key_of(red);
  EXPECT_EQ(av().reported_key(number), kNotAvailable);
  EXPECT_EQ(av().reported(uint32_t(address)), kNotAvailable);
  EXPECT_EQ(fi_av_set_user_id(av_, red, 71, FI_AUTH_KEY), 0);
  EXPECT_EQ(fi_av_set_user_id(av_, address, 72, 0), 0);
  EXPECT_EQ(av().reported_key(number), 71u);
  EXPECT_EQ(av().reported(uint32_t(address)), 72u);
  EXPECT_EQ(fi_av_set_user_id(av_, red, 1, 0), -FI_EINVAL);
  EXPECT_EQ(fi_av_set_user_id(av_, address, 1, FI_AUTH_KEY), -FI_EINVAL);
}

// ---- against a model ----

class AvKeysModel : public AvKeysTest, public testing::WithParamInterface<int> {};

TEST_P(AvKeysModel, DoesTheSameAsAMap) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const Key all[kMaxKeys] = {kRed, kBlue, kGreen};
  fi_addr_t handles[kMaxKeys];
  for (size_t i = 0; i < kMaxKeys; ++i) handles[i] = key(all[i]);
  std::map<fi_addr_t, std::pair<uint32_t, size_t>> model;  // PID and key
  for (int step = 0; step < 3000; ++step) {
    const uint32_t pid = random() % 40;
    const size_t which = random() % kMaxKeys;
    const auto there = std::ranges::find_if(
        model, [&](const auto &one) { return one.second == std::pair(pid, which); });
    ASSERT_EQ(find(peer(pid, all[which])), there != model.end() ? there->first : Av::kNone);
    if (there == model.end()) {
      const fi_addr_t index = insert(peer(pid), handles[which]);
      ASSERT_TRUE(model.try_emplace(index, pid, which).second);
      ASSERT_EQ(key_of(index), bytes(all[which]));
    } else if (random() % 3 == 0) {
      fi_addr_t gone = there->first;
      ASSERT_EQ(fi_av_remove(av_, &gone, 1, 0), 0);
      ASSERT_TRUE(key_of(gone).empty());
      model.erase(there);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, AvKeysModel, testing::Range(0, 4));

}  // namespace
}  // namespace weft::sdk
