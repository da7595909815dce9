// SPDX-License-Identifier: BSD-2-Clause
#include <gtest/gtest.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/sdk/addresses/auth.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace weft::sdk {
namespace {

AuthKey key(std::string_view text) {
  return AuthKey(text.begin(), text.end());
}

TEST(Mac, IsTheHashOfAllPieces) {
  const auto mac = Mac::load();
  ASSERT_TRUE(mac) << mac.error().text;
  const AuthKey secret = key("a key");
  const std::string text = "one two three";
  uint8_t want[Mac::kSize];
  ASSERT_EQ(crypto_generichash(want, sizeof want, bytes_of(text).data(), text.size(), secret.data(),
                               secret.size()),
            0);
  const Mac::Code got =
      (*mac)->of(secret, {bytes_of("one "), bytes_of("two"), {}, bytes_of(" three")});
  EXPECT_TRUE(Mac::equal(got, want));
  EXPECT_FALSE(Mac::equal((*mac)->of(key("a kez"), {bytes_of(text)}), want));
  EXPECT_FALSE(Mac::equal((*mac)->of(secret, {bytes_of("one two thref")}), want));
}

TEST(Random, Differs) {
  std::set<std::array<uint8_t, 16>> seen;
  for (int i = 0; i < 100; ++i) {
    std::array<uint8_t, 16> bytes{};
    random_bytes(bytes);
    EXPECT_TRUE(seen.insert(bytes).second);
  }
}

class AuthKeyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/auth-key-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    info_.ep_attr = &ep_;
    info_.domain_attr = &domain_;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string file(std::string_view content, mode_t mode = 0600) {
    const std::string path = folder_ / "key";
    std::ofstream(path, std::ios::binary) << content;
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }
  std::filesystem::path folder_;
  fi_info info_{};
  fi_ep_attr ep_{};
  fi_domain_attr domain_{};
};

TEST_F(AuthKeyTest, IsTheEndpointsBeforeTheDomainsBeforeTheFiles) {
  uint8_t mine[] = {1, 2}, theirs[] = {3};
  const std::string path = file("from the file\n");
  EXPECT_EQ(*auth_key(info_, "", FI_VERSION(2, 6)), AuthKey());
  EXPECT_EQ(*auth_key(info_, path, FI_VERSION(2, 6)), key("from the file"));
  domain_.auth_key = theirs;
  domain_.auth_key_size = 1;
  EXPECT_EQ(*auth_key(info_, path, FI_VERSION(2, 6)), AuthKey({3}));
  ep_.auth_key = mine;
  ep_.auth_key_size = 2;
  EXPECT_EQ(*auth_key(info_, path, FI_VERSION(2, 6)), AuthKey({1, 2}));
}

// fi_endpoint.3, fi_domain.3: ignored unless the fabric was opened with API 1.5 or later.
TEST_F(AuthKeyTest, AttributesAreIgnoredBeforeApi15) {
  const std::string path = file("from the file\n");
  uint8_t mine[] = {1, 2};
  ep_.auth_key = mine;
  ep_.auth_key_size = 2;
  domain_.auth_key_size = 77;  // whatever was there
  EXPECT_EQ(*auth_key(info_, "", FI_VERSION(1, 4)), AuthKey());
  EXPECT_EQ(*auth_key(info_, path, FI_VERSION(1, 4)), key("from the file"));
  EXPECT_EQ(*auth_key(info_, path, FI_VERSION(1, 5)), AuthKey({1, 2}));
}

TEST_F(AuthKeyTest, RefusesInvalidKeys) {
  const auto error = [&](const std::string &path) {
    const auto got = auth_key(info_, path, FI_VERSION(2, 6));
    return got ? std::string() : std::to_string(got.error().code) + " " + got.error().text;
  };
  const std::string denied = std::to_string(FI_EACCES), invalid = std::to_string(FI_EINVAL);
  EXPECT_EQ(error(folder_ / "none").rfind(denied, 0), 0u);
  EXPECT_NE(error(file("abc", 0644)).find("chmod 600"), std::string::npos);
  EXPECT_EQ(error(file("")).rfind(invalid, 0), 0u);
  EXPECT_EQ(error(file("\n")).rfind(invalid, 0), 0u);
  EXPECT_EQ(error(file(std::string(kMaxAuthKey, 'k'))), "");
  EXPECT_EQ(error(file(std::string(kMaxAuthKey, 'k') + "\n")), "");
  EXPECT_EQ(error(file(std::string(kMaxAuthKey + 1, 'k'))).rfind(invalid, 0), 0u);
  EXPECT_EQ(error(folder_).rfind(denied, 0), 0u) << "a folder";
  const std::string fifo = folder_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(error(fifo).rfind(denied, 0), 0u) << "nobody writes to it";
  if (geteuid() == 0) {
    const std::string anothers = file("abc");
    ASSERT_EQ(chown(anothers.c_str(), 12345, 12345), 0);
    EXPECT_NE(error(anothers).find("is of user 12345"), std::string::npos);
  }
  ep_.auth_key_size = 3;
  EXPECT_EQ(error("").rfind(invalid, 0), 0u) << "no pointer";
  uint8_t long_key[kMaxAuthKey + 1] = {};
  ep_.auth_key = long_key;
  ep_.auth_key_size = sizeof long_key;
  EXPECT_EQ(error("").rfind(invalid, 0), 0u);
}

}  // namespace
}  // namespace weft::sdk
