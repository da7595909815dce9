// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/registry.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "plugins/cxi/soft/registry_file.h"
#include "plugins/cxi/soft/test_nic.h"
#include "plugins/cxi/soft/test_process.h"

namespace weft::cxi {
namespace {

struct Folder : TestFolder {
  std::unique_ptr<Registry> open(const RegistryLimits &limits = {}, Nid nid = 1) const {
    return must(Registry::open(path, nid, limits));
  }
};

TEST(Registry, APidHasOneOwner) {
  const Folder folder;
  auto a = folder.open(), b = folder.open();
  EXPECT_EQ(must(a->claim(10, 7)), 7);
  EXPECT_EQ(b->claim(10, 7).error().code, FI_EADDRINUSE);
  EXPECT_EQ(a->claim(10, 7).error().code, FI_EADDRINUSE);
  EXPECT_EQ(must(b->claim(11, 7)), 7);
  b->release(10, 7);
  EXPECT_TRUE(a->find(10, 7).has_value()) << "only its owner gives it back";
  a->release(10, 7);
  EXPECT_FALSE(b->find(10, 7).has_value());
  EXPECT_EQ(must(b->claim(10, 7)), 7);
}

TEST(Registry, WhatANicCountsOutlivesItsProcesses) {
  const Folder folder;
  auto a = folder.open();
  {
    auto b = folder.open();
    a->count(Telemetry::kPuts);
    b->count(Telemetry::kPuts);
    b->count(Telemetry::kGets);
    EXPECT_EQ(b->counted(Telemetry::kPuts), 2u);
  }
  EXPECT_EQ(a->counted(Telemetry::kPuts), 2u);
  EXPECT_EQ(a->counted(Telemetry::kGets), 1u);
  EXPECT_EQ(folder.open({}, 2)->counted(Telemetry::kPuts), 0u);
}

TEST(Registry, OtherNicsHaveOtherOwners) {
  const Folder folder;
  auto one = folder.open({}, 1), two = folder.open({}, 2);
  EXPECT_EQ(must(one->claim(10, 7)), 7);
  EXPECT_EQ(must(two->claim(10, 7)), 7);
}

TEST(Registry, AnyPidIsOneThatIsFreeUntilAllAreTaken) {
  const Folder folder;
  auto a = folder.open(), b = folder.open();
  EXPECT_EQ(must(a->claim(10, 1)), 1);
  for (int i = 0; i < kMaxPid; ++i) must((i % 2 == 0 ? a : b)->claim(10, kAnyPid));
  EXPECT_EQ(a->claim(10, kAnyPid).error().code, FI_EADDRINUSE);
  EXPECT_EQ(must(a->claim(12, kAnyPid)), 0);
  a->release(10, 1);
  EXPECT_EQ(must(b->claim(10, kAnyPid)), 1);
}

TEST(Registry, SaysWhereAnOwnerIsAndWhetherAVniIsThere) {
  const Folder folder;
  auto a = folder.open(), b = folder.open();
  a->set_door(4711);
  must(a->claim(10, 7));
  const Registry::Owner owner = b->find(10, 7).value();
  EXPECT_EQ(owner.process, uint32_t(getpid()));
  EXPECT_EQ(owner.door, 4711u);
  EXPECT_TRUE(b->has_vni(10));
  EXPECT_FALSE(b->has_vni(11));
  a.reset();
  EXPECT_FALSE(b->find(10, 7).has_value());
  EXPECT_FALSE(b->has_vni(10));
}

TEST(Registry, AllProcessesDrawFromOnePool) {
  const Folder folder;
  auto a = folder.open({.list_entries = 3, .triggered = 1});
  auto b = folder.open({.list_entries = 999});
  EXPECT_EQ(b->limit(Resource::kListEntry), 3u) << "who comes first decides";
  EXPECT_TRUE(a->take(Resource::kListEntry));
  EXPECT_TRUE(b->take(Resource::kListEntry));
  EXPECT_TRUE(b->take(Resource::kListEntry));
  EXPECT_FALSE(a->take(Resource::kListEntry));
  EXPECT_TRUE(a->take(Resource::kTriggered));
  EXPECT_EQ(a->used(Resource::kListEntry), 3u);
  b->give(Resource::kListEntry);
  EXPECT_TRUE(a->take(Resource::kListEntry));
  b.reset();
  EXPECT_EQ(a->used(Resource::kListEntry), 2u);
}

TEST(Registry, AKilledProcessLosesWhatItHad) {
  const Folder folder;
  auto own = folder.open({.list_entries = 2});
  TestProcess other([&](const auto &ready) {
    const auto its = folder.open();
    if (its->claim(10, 7) && its->claim(10, 0) && its->take(Resource::kListEntry) &&
        its->take(Resource::kListEntry))
      ready();
    pause();
  });
  EXPECT_EQ(own->find(10, 7).value().process, uint32_t(other.pid()));
  EXPECT_EQ(own->claim(10, 7).error().code, FI_EADDRINUSE);
  other.kill_it();
  EXPECT_FALSE(own->find(10, 7).has_value());
  EXPECT_TRUE(own->take(Resource::kListEntry));
  EXPECT_EQ(own->used(Resource::kListEntry), 1u);
  EXPECT_EQ(must(own->claim(10, 7)), 7);
}

TEST(Registry, AForkedChildTakesNothingAlong) {
  const Folder folder;
  auto own = folder.open();
  must(own->claim(10, 7));
  EXPECT_TRUE(own->take(Resource::kListEntry));
  TestProcess child([&](const auto &ready) {
    own.reset();
    ready();
    pause();
  });
  EXPECT_EQ(own->find(10, 7).value().process, uint32_t(getpid()));
  EXPECT_EQ(own->used(Resource::kListEntry), 1u);
}

// What is there stays in use. What others must not get at the same time is refused.
TEST(Registry, AProcessThatIsStoppedWithTheLockStopsNobody) {
  const Folder folder;
  auto own = folder.open();
  must(own->claim(10, 8));
  TestProcess other([&](const auto &ready) {
    const auto its = folder.open();
    must(its->claim(10, 7));
    const int fd = ::open(Registry::path_of(folder.path, 1).c_str(), O_RDWR);
    if (::flock(fd, LOCK_EX) != 0) return;
    ready();
    ::raise(SIGSTOP);
    ::flock(fd, LOCK_UN);
    pause();
  });
  int status = 0;
  ASSERT_EQ(::waitpid(other.pid(), &status, WUNTRACED), other.pid());
  ASSERT_TRUE(WIFSTOPPED(status));
  EXPECT_EQ(own->find(10, 7).value().process, uint32_t(other.pid()));
  EXPECT_TRUE(own->has_vni(10));
  EXPECT_EQ(own->services().size(), 1u);
  EXPECT_TRUE(own->take(Resource::kListEntry));
  EXPECT_EQ(own->usage(0).list_entries, 0u) << "it was taken without a service";
  own->release(10, 8);
  EXPECT_FALSE(own->find(10, 8).has_value());
  const auto claimed = own->claim(10, 9);
  const auto opened = Registry::open(folder.path, 1, {});
  const auto used = own->use(1, "cxi0");
  for (const Error *const error : {&claimed.error(), &opened.error(), &used.error()}) {
    EXPECT_EQ(error->code, FI_EAGAIN);
    EXPECT_NE(error->text.find("process " + std::to_string(other.pid()) + ", which is stopped"),
              std::string::npos)
        << error->text;
  }
  ::kill(other.pid(), SIGCONT);
  EXPECT_EQ(must(own->claim(10, 9)), 9);
}

TEST(Registry, ProcessesThatRaceForPidsGetDifferentOnes) {
  const Folder folder;
  auto own = folder.open();
  std::vector<std::unique_ptr<TestProcess>> others;
  for (int i = 0; i < 4; ++i)
    others.push_back(std::make_unique<TestProcess>([&](const auto &ready) {
      const auto its = folder.open();
      for (int k = 0; k < 100; ++k) must(its->claim(10, kAnyPid));
      must(its->claim(11, kAnyPid));
      ready();
      pause();
    }));
  std::set<uint32_t> owners;
  for (Pid pid = 0; pid < 4; ++pid) owners.insert(own->find(11, pid).value().process);
  EXPECT_EQ(owners.size(), 4u);
}

TEST(Registry, AFileOfSomethingElseIsRefusedInWords) {
  const Folder folder;
  std::ofstream(Registry::path_of(folder.path, 1)) << "something else";
  const auto refused = Registry::open(folder.path, 1, {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, FI_EINVAL);
  EXPECT_NE(refused.error().text.find("remove it"), std::string::npos);
  EXPECT_EQ(Registry::open("/no/such/folder", 1, {}).error().code, ENOENT);
}

// A file as another version writes it: the magic number, the place of the slots, and one of them.
void write_other(const std::string &path, uint32_t process, uint64_t start_time, bool first) {
  std::vector<uint64_t> words(200);
  words[0] = first ? 0x3169786374666577 : 0x3969786374666577;
  const size_t at = first ? 32 : 64, size = first ? 24 : 40;
  const uint32_t shape[3] = {uint32_t(at), uint32_t(size), 30};
  if (!first) std::memcpy(&words[1], shape, sizeof shape);
  auto *const bytes = reinterpret_cast<char *>(words.data());
  std::memcpy(bytes + at + size, &start_time, sizeof start_time);
  std::memcpy(bytes + at + size + 8, &process, sizeof process);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes, std::streamsize(words.size() * 8));
  if (first) file.write(std::vector<char>(30000).data(), 30000);
}

TEST(Registry, AFileOfAnotherVersionIsReplacedWhenNobodyUsesIt) {
  const Folder folder;
  const std::string path = folder.path + "/cxi-nic-1";
  const uint32_t own = uint32_t(getpid());
  for (const bool first : {true, false}) {
    SCOPED_TRACE(first);
    write_other(path, own, start_time_of(own), first);
    const auto refused = Registry::open(folder.path, 1, {});
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().text.find("process " + std::to_string(own)), std::string::npos)
        << refused.error().text;
    write_other(path, own, start_time_of(own) + 1, first);  // a process of our number, once
    auto fresh = folder.open();
    EXPECT_EQ(must(fresh->claim(10, 7)), 7);
    EXPECT_EQ(folder.open()->find(10, 7).value().process, own) << "all see the new one";
  }
}

TEST(Registry, ThoseWhoReplaceAFileAtOnceShareTheNewOne) {
  const Folder folder;
  for (int round = 0; round < 20; ++round) {
    write_other(folder.path + "/cxi-nic-1", uint32_t(getpid()), 1, true);  // not ours
    std::vector<std::unique_ptr<Registry>> all(6);
    std::vector<std::thread> threads;
    for (auto &one : all)
      threads.emplace_back([&] {
        one = folder.open();
        must(one->claim(10, kAnyPid));
      });
    for (std::thread &thread : threads) thread.join();
    for (Pid pid = 0; pid < 6; ++pid) EXPECT_TRUE(all[0]->find(10, pid).has_value()) << pid;
  }
}

TEST(Registry, AnotherVersionThatLiesAboutItsSlotsIsRefused) {
  const Folder folder;
  const std::string path = folder.path + "/cxi-nic-1";
  for (const std::vector<uint32_t> &shape : std::vector<std::vector<uint32_t>>{
           {0xffffffff, 24, 1}, {64, 0xffffffff, 60000}, {64, 4, 2}, {64, 40, 0xffffffff}}) {
    write_other(path, 1, 1, false);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(8);
    file.write(reinterpret_cast<const char *>(shape.data()), 12);
    file.close();
    EXPECT_EQ(Registry::open(folder.path, 1, {}).error().code, FI_EINVAL);
  }
}

TEST(Registry, WhatOthersHaveSpoiledIsNoIndex) {
  const Folder folder;
  auto own = folder.open();
  std::fstream file(Registry::path_of(folder.path, 1),
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(8);  // behind the magic number
  const std::vector<char> noise(std::filesystem::file_size(Registry::path_of(folder.path, 1)) - 8,
                                '\xee');
  file.write(noise.data(), std::streamsize(noise.size()));
  file.close();
  EXPECT_FALSE(own->find(10, 7).has_value());
  EXPECT_FALSE(own->has_vni(10));
  (void)own->take(Resource::kListEntry);
  EXPECT_FALSE(own->services().empty());
  (void)own->usage(0);
  EXPECT_EQ(own->use(1, "cxi0").error().code, FI_EINVAL);
  EXPECT_EQ(own->create({}).error().code, FI_ENOSPC);
  EXPECT_EQ(must(own->claim(10, 7)), 7);
}

}  // namespace
}  // namespace weft::cxi
