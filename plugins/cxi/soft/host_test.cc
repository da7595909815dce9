// SPDX-License-Identifier: BSD-2-Clause
// What tells hosts apart, and the addresses that NICs in software get.
#include "plugins/cxi/soft/host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/fi_errno.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <set>
#include <string>

#include "plugins/cxi/soft/devices.h"
#include "plugins/cxi/soft/test_process.h"

namespace weft::cxi {
namespace {

constexpr uint32_t kCxi0 = 0x7f000001, kCxi1 = 0x7f000002;

class SoftDevicesTest : public ::testing::Test {
 protected:
  SoftDevicesTest() { ::setenv("WEFT_RUNTIME_DIR", folder_.path.c_str(), 1); }
  ~SoftDevicesTest() override { ::unsetenv("WEFT_RUNTIME_DIR"); }

  const TestFolder folder_;
};
using SoftHostTest = SoftDevicesTest;

TEST(SoftHost, EverythingThatDiffersMakesAnotherHost) {
  const SoftHost::Facts facts{
      .boot = "b2f1", .pid_namespace = 4026531836, .folder_device = 26, .folder = 2};
  const SoftHost own(facts);
  EXPECT_EQ(SoftHost(facts), own);
  SoftHost::Facts other = facts;
  other.boot = "b2f2";
  EXPECT_NE(SoftHost(other), own);
  for (uint64_t SoftHost::Facts::*const fact :
       {&SoftHost::Facts::pid_namespace, &SoftHost::Facts::folder_device,
        &SoftHost::Facts::folder}) {
    other = facts;
    other.*fact += 1;
    EXPECT_NE(SoftHost(other), own);
    EXPECT_NE(SoftHost(other).mark(), own.mark());
    EXPECT_NE(SoftHost(other).nid_of(kCxi0), own.nid_of(kCxi0));
  }
}

// Of containers on one kernel, whose folders have numbers that follow each other.
TEST(SoftHost, AddressesOfManyHostsAreSpread) {
  std::set<std::pair<Nid, uint16_t>> both;
  std::set<Nid> nids;
  constexpr uint64_t kHosts = 2000;
  for (uint64_t i = 0; i < kHosts; ++i) {
    const SoftHost host({.boot = "b2f1", .pid_namespace = 4026532000 + i, .folder_device = 50 + i});
    for (const uint32_t local : {kCxi0, kCxi1, 0x7fffffffu, 0x7f000000u}) {
      const Nid nid = host.nid_of(local);
      EXPECT_GT(nid, 0u);
      EXPECT_LT(nid, kMaxNid) << "nobody's";
    }
    EXPECT_NE(host.nid_of(kCxi0), host.nid_of(kCxi1));
    EXPECT_NE(host.mark(), 0);
    nids.insert(host.nid_of(kCxi0));
    both.emplace(host.nid_of(kCxi0), host.mark());
  }
  EXPECT_EQ(both.size(), kHosts);
  EXPECT_GT(nids.size(), kHosts - 20) << "two of 2000 are the same by chance";
}

TEST_F(SoftHostTest, ProcessesOfOneFolderAndNamespaceAreOneHost) {
  const SoftHost own = SoftHost::own().value();
  EXPECT_EQ(SoftHost::own().value(), own);
  const TestFolder other;
  ::setenv("WEFT_RUNTIME_DIR", other.path.c_str(), 1);
  EXPECT_NE(SoftHost::own().value(), own);
}

// A container that shares the folder has process numbers of its own.
TEST_F(SoftHostTest, AnotherPidNamespaceIsAnotherHost) {
  const SoftHost own = SoftHost::own().value();
  const pid_t parent = ::fork();
  if (parent == 0) {
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(77);
    const pid_t child = ::fork();
    if (child == 0) {
      const auto there = SoftHost::own();
      ::_exit(there && !(*there == own) && there->folder() != own.folder() &&
                      there->make_folder() && ::access(there->folder().c_str(), W_OK) == 0
                  ? 0
                  : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ::_exit(WEXITSTATUS(status));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(parent, &status, 0), parent);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no PID namespace can be made here";
  EXPECT_EQ(status, 0);
}

TEST_F(SoftHostTest, WithoutAFolderThereIsNoNic) {
  ::setenv("WEFT_RUNTIME_DIR", "/nowhere/at/all", 1);
  const auto devices = SoftDevices::make({}).value();
  EXPECT_TRUE(devices->list().empty());
  EXPECT_THAT(devices->problem().error().text, ::testing::HasSubstr("WEFT_RUNTIME_DIR"));
}

// Whether a NIC is offered where nobody can write to its folder: 1, or 0; 77: nothing can be
// mounted.
int offers_read_only(const std::string &place, bool is_there) {
  const std::string folder = place + "/run";
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", place.c_str(), "tmpfs", 0, nullptr) != 0)
    return 77;
  if (is_there && ::mkdir(folder.c_str(), 0700) != 0) return 2;
  if (::mount(nullptr, place.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) return 3;
  ::setenv("WEFT_RUNTIME_DIR", folder.c_str(), 1);
  const auto devices = SoftDevices::make({}).value();
  const auto problem = devices->problem();
  if (!devices->list().empty() || problem) return 1;
  return problem.error().text.find("WEFT_RUNTIME_DIR") != std::string::npos ? 0 : 4;
}

// As /dev/shm is in some containers.
TEST_F(SoftHostTest, AFolderThatNobodyCanWriteToHasNoNic) {
  for (const bool is_there : {false, true}) {
    SCOPED_TRACE(is_there);
    const pid_t child = ::fork();
    if (child == 0) ::_exit(offers_read_only(folder_.path, is_there));
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "nothing can be mounted here";
    EXPECT_EQ(status, 0);
  }
}

TEST_F(SoftDevicesTest, ANicIsKnownByAnAddressAnInterfaceOrANetwork) {
  const auto devices = SoftDevices::make({"a=127.0.0.1", "b=10.1.2.3", "c=lo", "d=127.0.0.0/8"});
  ASSERT_TRUE(devices.has_value());
  // They are the same NIC: the loopback's.
  EXPECT_TRUE((*devices)->list().empty());
  EXPECT_THAT((*devices)->problem().error().text, ::testing::HasSubstr("c=lo"));
  const auto two = SoftDevices::make({"b=10.1.2.3", "c=lo"}).value();
  ASSERT_EQ(two->list().size(), 2u) << two->problem().error().text;
  EXPECT_EQ(two->list()[0].nid, 0x10203u);
  EXPECT_EQ(two->list()[0].network_address, 0x0a010203u);
  EXPECT_EQ(two->list()[1].ip, kCxi0);
  EXPECT_EQ(two->list()[1].network_address, 0u);
  for (const char *const wrong : {"cxi0", "cxi0=", "=127.0.0.1", "cxi0=!lo", "cxi0=10.0.0.0/99"})
    EXPECT_EQ(SoftDevices::make({wrong}).error().code, FI_EINVAL) << wrong;
  const auto none = SoftDevices::make({"cxi0=nosuch*"}).value();
  EXPECT_EQ(none->problem().error().code, FI_ENODEV);
  EXPECT_THAT(none->problem().error().text, ::testing::HasSubstr("cxi0=nosuch*"));
}

TEST_F(SoftDevicesTest, APeerThatCannotBeToldFromOursIsRefused) {
  const auto devices = SoftDevices::make({"far=10.1.2.3", "near=127.0.0.1"}).value();
  const auto far = devices->open("far").value(), near = devices->open("near").value();
  const uint16_t own = far->facts().host, other = uint16_t(own + 1);
  const Nid nid = far->facts().nid;
  EXPECT_TRUE(far->check_peer(nid, own)) << "a process of this host";
  EXPECT_TRUE(far->check_peer(nid, 0)) << "nobody says of which host";
  EXPECT_EQ(far->check_peer(nid, other).error().code, FI_EADDRINUSE);
  EXPECT_EQ(far->check_peer(near->facts().nid, other).error().code, FI_EADDRINUSE);
  EXPECT_TRUE(far->check_peer(nid + 1, other)) << "of another host, in the network";
  EXPECT_TRUE(near->check_peer(near->facts().nid, own));
  EXPECT_EQ(near->check_peer(nid + 1, other).error().code, FI_EHOSTUNREACH);
}

}  // namespace
}  // namespace weft::cxi
