// SPDX-License-Identifier: BSD-2-Clause
// Address vectors that several processes share by a name: the file, its readers and hostile files.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/runtime_dir.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "plugin-api/sdk/addresses/av_file.h"
#include "plugin-api/sdk/testing/test_av.h"
#include "plugin-api/sdk/testing/test_instance.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A child process that takes turns with the test by tell() and told(). `work` runs in the child,
// which has one thread.
class Child {
 public:
  explicit Child(const std::function<void(Child &)> &work) {
    int down[2], up[2];
    if (pipe(down) != 0 || pipe(up) != 0) std::abort();
    pid_ = fork();
    in_ = pid_ == 0 ? down[0] : up[0];
    out_ = pid_ == 0 ? up[1] : down[1];
    ::close(pid_ == 0 ? down[1] : down[0]);
    ::close(pid_ == 0 ? up[0] : up[1]);
    if (pid_ != 0) return;
    work(*this);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  ~Child() {
    ::close(out_);
    ::close(in_);
    if (pid_ <= 0) return;
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    EXPECT_TRUE(killed_ || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << status;
  }
  void tell() { EXPECT_EQ(write(out_, "x", 1), 1); }
  bool told() {
    char byte;
    return readable(in_, kPatienceMs) && read(in_, &byte, 1) == 1;
  }
  void kill() {
    killed_ = true;
    ::kill(pid_, SIGKILL);
    siginfo_t gone;
    EXPECT_EQ(waitid(P_PID, id_t(pid_), &gone, WEXITED | WNOWAIT), 0);
  }

 private:
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
  bool killed_ = false;
};

TEST(AvShared, VectorsOfTheSameNameShareTheirEntries) {
  Name name;
  Vector a(FI_SOCKADDR_IN, named(name.text)), b(FI_SOCKADDR_IN, named(name.text));
  struct stat status;
  ASSERT_EQ(stat(name.path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(a.insert(v4(1)), 0u);
  EXPECT_EQ(b.lookup(0), "10.0.0.1:7471");
  EXPECT_EQ(b.insert(v4(2)), 1u);
  EXPECT_EQ(a.find(v4(2)), 1u);
  EXPECT_EQ(a.insert(v4(3)), 2u);
  User user;
  {
    Guard guard(b.domain.engine.lock());
    b.av->add_user(user, true);
  }
  EXPECT_EQ(a.remove(1), 0);
  EXPECT_EQ(b.index_of(1), Av::kNone);
  EXPECT_EQ(a.insert(v4(9)), 1u) << "used again";
  EXPECT_EQ(b.index_of(1), 1u);
  EXPECT_EQ(b.lookup(1), "10.0.0.9:7471");
  EXPECT_EQ(b.remove(1), 0);
  EXPECT_EQ(b.remove(1), -FI_EINVAL);
  EXPECT_EQ(a.remove(1), -FI_EINVAL) << "gone here too";
  EXPECT_THAT(user.removed, ElementsAre(1, 1));
  EXPECT_THAT(user.inserted, ElementsAre(std::pair(2u, std::string("10.0.0.3:7471")),
                                         std::pair(1u, std::string("10.0.0.9:7471"))));
  Guard guard(b.domain.engine.lock());
  b.av->remove_user(user);
}

// Endpoints do so: the peer may be there at another index.
TEST(AvShared, AUserThatIsToldOfARemovalMayLookForOthers) {
  struct Curious final : AvUser {
    explicit Curious(Av &av) : av(av) {}
    void on_av_removed(uint32_t index) override {
      const Address address = *av.address(index);
      found.push_back(av.find(address));
      other.push_back(av.index_of(3));
    }
    Av &av;
    std::vector<uint32_t> found, other;
  };
  Name name;
  Vector a(FI_SOCKADDR_IN, named(name.text)), b(FI_SOCKADDR_IN, named(name.text));
  for (uint32_t i = 1; i <= 4; ++i) a.insert(v4(i));
  EXPECT_EQ(b.find(v4(4)), 3u);
  Curious user(*b.av);
  {
    Guard guard(b.domain.engine.lock());
    b.av->add_user(user);
  }
  EXPECT_EQ(a.remove(0), 0);
  EXPECT_EQ(a.remove(1), 0);
  EXPECT_EQ(b.index_of(0), Av::kNone);
  EXPECT_THAT(user.found, ElementsAre(0, 1));
  EXPECT_THAT(user.other, ElementsAre(3, 3));
  EXPECT_EQ(b.av->count(), 2u);
  Guard guard(b.domain.engine.lock());
  b.av->remove_user(user);
}

TEST(AvShared, TheLastVectorRemovesTheFile) {
  Name name;
  {
    Vector a(FI_SOCKADDR_IN, named(name.text));
    {
      Vector b(FI_SOCKADDR_IN, named(name.text));
      b.insert(v4(1));
    }
    EXPECT_TRUE(name.exists());
    EXPECT_EQ(a.lookup(0), "10.0.0.1:7471");
  }
  EXPECT_FALSE(name.exists());
  Vector again(FI_SOCKADDR_IN, named(name.text));
  EXPECT_EQ(again.lookup(0), "none");
}

TEST(AvShared, AReadOnlyVectorSeesChangesAndMakesNone) {
  Name name;
  TestDomain domain;
  EXPECT_EQ(try_open(domain, named(name.text, FI_READ)), -FI_ENOENT) << "it must exist";
  Vector a(FI_SOCKADDR_IN, named(name.text));
  a.insert(v4(1));
  Vector b(FI_SOCKADDR_IN, named(name.text, FI_READ | FI_AV_USER_ID));
  EXPECT_EQ(b.lookup(0), "10.0.0.1:7471");
  a.insert(v4(2));
  a.remove(0);
  EXPECT_EQ(b.lookup(0), "none");
  EXPECT_EQ(b.find(v4(2)), 1u);
  const sockaddr_in three = v4(3);
  fi_addr_t out = 1;
  EXPECT_EQ(fi_av_insert(b.c, &three, 1, &out, 0, nullptr), -FI_EACCES);
  EXPECT_EQ(fi_av_insertsvc(b.c, "10.0.0.1", "5", &out, 0, nullptr), -FI_EACCES);
  EXPECT_EQ(fi_av_insertsym(b.c, "10.0.0.1", 1, "5", 1, &out, 0, nullptr), -FI_EACCES);
  EXPECT_EQ(fi_av_remove(b.c, &out, 1, 0), -FI_EACCES);
  EXPECT_EQ(fi_av_set_user_id(b.c, 1, 99, 0), 0) << "identifiers are the process's own";
}

TEST(AvShared, SayWhereTheNamesAre) {
  Name name;
  TestDomain one, two;
  fi_av_attr attr = named(name.text), other = named(name.text), third = named(name.text);
  fid_av *a = nullptr, *b = nullptr, *c = nullptr;
  ASSERT_EQ(open_av(one.context, FI_SOCKADDR_IN, &attr, &a, nullptr), 0);
  ASSERT_EQ(open_av(two.context, FI_SOCKADDR_IN, &other, &b, nullptr), 0);
  EXPECT_NE(attr.map_addr, nullptr);
  EXPECT_NE(attr.map_addr, other.map_addr) << "each has the names, and there is one at each place";
  third.map_addr = &third;
  ASSERT_EQ(open_av(two.context, FI_SOCKADDR_IN, &third, &c, nullptr), 0);
  EXPECT_EQ(third.map_addr, &third);
  for (fid_av *av : {a, b, c}) EXPECT_EQ(fi_close(&av->fid), 0);
  fi_av_attr unnamed{};
  unnamed.map_addr = &third;
  ASSERT_EQ(open_av(one.context, FI_SOCKADDR_IN, &unnamed, &a, nullptr), 0);
  EXPECT_EQ(unnamed.map_addr, &third) << "ignored";
  EXPECT_EQ(fi_close(&a->fid), 0);
}

// A process reads there what another one inserted, before it calls anything.
TEST(AvShared, TheNamesAreAtMapAddr) {
  Name name;
  fi_av_attr attr = named(name.text);
  TestDomain domain;
  fid_av *av = nullptr;
  ASSERT_EQ(open_av(domain.context, FI_SOCKADDR_IN, &attr, &av, nullptr), 0);
  const auto *names = static_cast<const volatile fi_addr_t *>(attr.map_addr);
  Child child([&](Child &self) {
    fi_av_attr mine = named(name.text, FI_READ);
    TestDomain own;
    fid_av *read = nullptr;
    EXPECT_EQ(open_av(own.context, FI_SOCKADDR_IN, &mine, &read, nullptr), 0);
    const auto *seen = static_cast<const volatile fi_addr_t *>(mine.map_addr);
    self.tell();
    if (!self.told()) _exit(2);
    for (fi_addr_t i = 0; i < 1000; ++i) EXPECT_EQ(seen[i], i == 500 ? kNotAvailable : i);
    EXPECT_EQ(fi_close(&read->fid), 0);
  });
  ASSERT_TRUE(child.told());
  for (uint32_t i = 0; i < 1000; ++i) {
    const sockaddr_in peer = v4(i + 1);
    fi_addr_t out = 0;
    ASSERT_EQ(fi_av_insert(av, &peer, 1, &out, 0, nullptr), 1);
    EXPECT_EQ(names[i], out);
  }
  fi_addr_t gone = 500;
  ASSERT_EQ(fi_av_remove(av, &gone, 1, 0), 0);
  EXPECT_EQ(names[500], kNotAvailable);
  child.tell();
  EXPECT_EQ(fi_close(&av->fid), 0);
}

TEST(AvShared, TheFileOfAKilledProcessGoesWithTheNextVector) {
  Name lost, living, next;
  Vector used(FI_SOCKADDR_IN, named(living.text));
  Child child([&](Child &parent) {
    Vector own(FI_SOCKADDR_IN, named(lost.text));
    parent.tell();
    parent.told();
  });
  ASSERT_TRUE(child.told());
  {
    Vector other(FI_SOCKADDR_IN, named(next.text));
    EXPECT_TRUE(lost.exists()) << "it is used";
  }
  child.kill();
  EXPECT_TRUE(lost.exists());
  Vector other(FI_SOCKADDR_IN, named(next.text));
  EXPECT_FALSE(lost.exists());
  EXPECT_TRUE(living.exists());
  EXPECT_TRUE(next.exists());
}

TEST(AvShared, NamesBelongToTheDomain) {
  EXPECT_NE(*AvFile::path_of("eth0", "x"), *AvFile::path_of("eth1", "x"));
  EXPECT_NE(*AvFile::path_of("a.b", "c"), *AvFile::path_of("a", "b.c"));
  EXPECT_EQ(std::filesystem::path(*AvFile::path_of("", "../../etc/passwd")).parent_path(),
            runtime_directory().value())
      << "where no other user can take the name";
  TestDomain domain;
  EXPECT_EQ(try_open(domain, named("")), -FI_EINVAL);
  EXPECT_EQ(try_open(domain, named(std::string(300, 'x'))), -FI_EINVAL);
  Name name;
  Vector a(FI_SOCKADDR_IN, named(name.text));
  fi_av_attr attr = named(name.text);
  fid_av *other = nullptr;
  ASSERT_EQ(open_av(domain.context, FI_SOCKADDR_IN, &attr, &other, nullptr, "eth9"), 0);
  a.insert(v4(1));
  EXPECT_EQ(Av::from(other)->count(), 0u);
  EXPECT_EQ(fi_close(&other->fid), 0);
  EXPECT_EQ(try_open(domain, named(name.text), FI_ADDR_STR), -FI_EINVAL) << "another format";
}

TEST(AvShared, ProcessesSeeEachOther) {
  Name name;
  Child child([&](Child &self) {
    Vector v(FI_SOCKADDR, named(name.text));
    if (!self.told()) _exit(2);
    EXPECT_EQ(v.lookup(0), "10.0.0.1:7471");
    EXPECT_EQ(v.lookup(1), "[fe80::2%4711]:7471") << "its scope too";
    EXPECT_EQ(v.insert(v4(3)), 2u);
    EXPECT_EQ(v.remove(0), 0);
    self.tell();
    if (!self.told()) _exit(2);
  });
  Vector v(FI_SOCKADDR, named(name.text));
  v.insert(v4(1));
  v.insert(v6(2, 4711));
  child.tell();
  ASSERT_TRUE(child.told());
  EXPECT_EQ(v.lookup(0), "none");
  EXPECT_EQ(v.lookup(2), "10.0.0.3:7471");
  child.tell();
}

TEST(AvShared, ProcessesInsertAtTheSameTime) {
  Name name;
  constexpr uint32_t kEach = 2000;
  const auto insert = [&](Vector &v, uint32_t first) {
    std::vector<fi_addr_t> mine;
    for (uint32_t i = 0; i < kEach; ++i) {
      mine.push_back(v.insert(v4(first + i)));
      if (i % 3 == 0) {
        EXPECT_EQ(v.remove(mine.back()), 0);
        mine.pop_back();
      }
    }
    for (const fi_addr_t index : mine) EXPECT_NE(v.lookup(index), "none");
  };
  Vector v(FI_SOCKADDR_IN, named(name.text));
  {
    Child child([&](Child &self) {
      Vector own(FI_SOCKADDR_IN, named(name.text));
      self.tell();
      insert(own, 100'000);
      // Exits without closing `own`. The descriptors inherited from the parent close, too.
      _exit(testing::Test::HasFailure() ? 1 : 0);
    });
    ASSERT_TRUE(child.told());
    insert(v, 1);
  }
  std::map<std::string, int> seen;
  for (uint32_t i = 0; i < 2 * kEach; ++i) ++seen[v.lookup(i)];
  EXPECT_EQ(v.av->count(), 2 * (kEach - kEach / 3 - 1));
  seen.erase("none");
  EXPECT_EQ(seen.size(), v.av->count()) << "no index was given out twice";
}

TEST(AvShared, EntriesOfDeadProcessesAreNotFound) {
  Name name;
  {
    Child child([&](Child &self) {
      Vector v(FI_SOCKADDR_IN, named(name.text));
      v.insert(v4(1));
      self.tell();
      self.told();
    });
    ASSERT_TRUE(child.told());
    child.kill();
  }
  EXPECT_TRUE(name.exists());
  TestDomain domain;
  EXPECT_EQ(try_open(domain, named(name.text, FI_READ)), -FI_ENOENT);
  Vector v(FI_SOCKADDR_IN, named(name.text));
  EXPECT_EQ(v.lookup(0), "none");
  EXPECT_EQ(v.insert(v4(2)), 0u);
}

// A file that another process of the same user has made. `fd` keeps it open and locked, so that it
// counts as in use.
class Forged {
 public:
  Forged() {
    fd = ::open(name.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct flock lock {};
    lock.l_type = F_RDLCK;
    lock.l_len = 1;
    EXPECT_EQ(fcntl(fd, F_OFD_SETLK, &lock), 0);
    header()->magic = AvFile::kMagic;
    header()->version = AvFile::kVersion;
    header()->addr_format = header()->native = FI_SOCKADDR_IN;
    EXPECT_EQ(ftruncate(fd, AvFile::kRecordsAt), 0);
    flush();
  }
  ~Forged() { ::close(fd); }
  AvFile::Header *header() { return reinterpret_cast<AvFile::Header *>(page); }
  void flush() { EXPECT_EQ(pwrite(fd, page, sizeof page, 0), ssize_t(sizeof page)); }
  void record(uint32_t index, const AvFile::Record &record) {
    EXPECT_EQ(pwrite(fd, &record, record_size, AvFile::kRecordsAt + off_t(index * record_size)),
              ssize_t(record_size));
  }
  void good(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) record(i, AvFile::make_record(SockAddr(v4(i + 1))));
    header()->end = count;
    flush();
  }
  int open() {
    TestDomain domain;
    const int rc = try_open(domain, named(name.text));
    EXPECT_EQ(domain.instance.log().size(), rc == 0 ? 0u : 1u);
    return rc;
  }

  const size_t record_size = AvFile::record_size(FI_SOCKADDR_IN);
  Name name;
  int fd;
  alignas(AvFile::Header) char page[AvFile::kHeaderSize] = {};
};

TEST(AvSharedHostile, InvalidHeadersAreRefused) {
  {
    Forged file;
    file.good(3);
    EXPECT_EQ(file.open(), 0) << "a valid file";
  }
  {
    Forged file;
    EXPECT_EQ(ftruncate(file.fd, AvFile::kRecordsAt - 1), 0);
    EXPECT_EQ(file.open(), -FI_EINVAL);
  }
  {
    Forged file;
    file.header()->magic ^= 1;
    file.flush();
    EXPECT_EQ(file.open(), -FI_EINVAL);
  }
  {
    Forged file;
    file.header()->version = AvFile::kVersion - 1;
    file.flush();
    EXPECT_EQ(file.open(), -FI_EINVAL);
  }
  {
    Forged file;
    file.good(3);
    file.header()->end = 4;
    file.flush();
    EXPECT_EQ(file.open(), -FI_EIO) << "more entries than bytes";
  }
  {
    Forged file;
    file.header()->end = UINT32_MAX;
    file.flush();
    EXPECT_EQ(ftruncate(file.fd, AvFile::kRecordsAt + off_t(UINT32_MAX) * 24), 0);
    EXPECT_EQ(file.open(), -FI_EIO);
  }
}

TEST(AvSharedHostile, InvalidRecordsAreRefused) {
  const AvFile::Record good = AvFile::make_record(SockAddr(v4(1)));
  AvFile::Record bad[5] = {good, good, good, good, good};
  bad[0].format = 5;
  bad[1].reserved = 1;
  bad[2].format = FI_SOCKADDR_IN6;
  std::memset(bad[3].address, 0, 2);      // the port
  std::memset(bad[4].address + 2, 0, 4);  // the address
  for (const AvFile::Record &record : bad) {
    EXPECT_FALSE(AvFile::parse(record, FI_SOCKADDR_IN));
    Forged file;
    file.good(3);
    file.record(1, record);
    EXPECT_EQ(file.open(), -FI_EIO);
  }
  AvFile::Record longer = good;
  longer.address[6] = 1;
  EXPECT_FALSE(AvFile::parse(longer, FI_SOCKADDR_IP)) << "a byte behind an IPv4 address";
  EXPECT_EQ(**AvFile::parse(AvFile::make_record(SockAddr(v6(7, 3))), FI_SOCKADDR_IP),
            Address(SockAddr(v6(7, 3))));
  EXPECT_EQ(*AvFile::parse(AvFile::make_record(std::nullopt), FI_SOCKADDR_IP), std::nullopt);
}

TEST(AvSharedHostile, LaterDamageLeavesTheEntriesThatWereRead) {
  for (int way = 0; way < 4; ++way) {
    Forged file;
    file.good(3);
    Vector v(FI_SOCKADDR_IN, named(file.name.text));
    EXPECT_EQ(v.lookup(2), "10.0.0.3:7471");
    AvFile::Record bad{};
    bad.format = 9;
    switch (way) {
      case 0:  // fewer than there were
        file.header()->end = 2;
        break;
      case 1:  // more than can be
        file.header()->end = UINT32_MAX;
        break;
      case 2:  // a record that is none
        file.record(3, bad);
        file.header()->end = 4;
        break;
      case 3:  // cut, but for the header
        file.header()->changes = 7;
        EXPECT_EQ(ftruncate(file.fd, AvFile::kRecordsAt + off_t(file.record_size)), 0);
        break;
    }
    file.flush();
    EXPECT_EQ(v.index_of(0), 0u);
    EXPECT_THAT(v.domain.instance.log(), ElementsAre(HasSubstr("damaged"))) << way;
    EXPECT_EQ(v.lookup(2), "10.0.0.3:7471");
    EXPECT_EQ(v.find(v4(1)), 0u);
    const sockaddr_in one = v4(1);
    fi_addr_t out = 0;
    EXPECT_EQ(fi_av_insert(v.c, &one, 1, &out, 0, nullptr), -FI_EIO);
    EXPECT_EQ(fi_av_remove(v.c, &out, 1, 0), -FI_EIO);
  }
}

TEST(AvSharedHostile, AnyBytesAreReadOrRefused) {
  std::mt19937 random(4711);
  for (int round = 0; round < 300; ++round) {
    Forged file;
    file.good(5);
    Vector v(FI_SOCKADDR_IN, named(file.name.text));
    char *bytes = file.page;
    for (uint32_t i = 0; i < 3; ++i)
      bytes[offsetof(AvFile::Header, end) + random() % 8] = char(random());  // the counters
    AvFile::Record record;
    for (uint32_t i = 0; i < 4; ++i) {
      for (size_t at = 0; at < sizeof record; ++at)
        reinterpret_cast<char *>(&record)[at] = char(random() % 7);
      file.record(random() % 6, record);
    }
    file.flush();
    Guard guard(v.domain.engine.lock());
    for (uint32_t i = 0; i < 10; ++i) {
      const uint32_t index = v.av->index_of(i);
      if (index != Av::kNone) {
        ASSERT_TRUE(v.av->address(index));
      }
    }
    EXPECT_LE(v.domain.instance.log().size(), 1u);
  }
}

TEST(AvSharedHostile, AFileOfAnotherUserIsRefused) {
  Name name;
  TestDomain domain;
  const char *path = name.path.c_str();
  ASSERT_EQ(symlink("/dev/null", path), 0);
  EXPECT_EQ(try_open(domain, named(name.text)), -ELOOP);
  unlink(path);
  ASSERT_EQ(mkdir(path, 0700), 0);
  EXPECT_EQ(try_open(domain, named(name.text)), -EISDIR);
  rmdir(path);
  ASSERT_EQ(mkfifo(path, 0600), 0);
  EXPECT_EQ(try_open(domain, named(name.text)), -FI_EACCES);
  unlink(path);
  const int fd = ::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(fchmod(fd, 0640), 0);
  EXPECT_EQ(try_open(domain, named(name.text)), -FI_EACCES) << "others may read it";
  ASSERT_EQ(fchmod(fd, 0600), 0);
  const std::string other = name.path + ".private";
  ASSERT_EQ(::link(path, other.c_str()), 0);
  ASSERT_EQ(::write(fd, "private", 7), 7);
  EXPECT_EQ(try_open(domain, named(name.text)), -FI_EACCES) << "it is another file, linked here";
  struct stat linked = {};
  EXPECT_EQ(fstat(fd, &linked), 0);
  EXPECT_EQ(linked.st_size, 7);
  unlink(other.c_str());
  if (geteuid() == 0) {
    ASSERT_EQ(fchown(fd, 12345, 12345), 0);
    EXPECT_EQ(try_open(domain, named(name.text)), -FI_EACCES) << "another user owns it";
  }
  ::close(fd);
  for (const std::string &line : domain.instance.log()) EXPECT_THAT(line, HasSubstr(name.path));
}

TEST(AvSharedHostile, ALockThatIsNeverReleasedDoesNotBlockOthers) {
  Name name;
  Vector v(FI_SOCKADDR_IN, named(name.text));
  v.insert(v4(1));
  const int fd = ::open(name.path.c_str(), O_RDWR | O_CLOEXEC);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_start = 1;
  lock.l_len = 1;
  ASSERT_EQ(fcntl(fd, F_OFD_SETLK, &lock), 0);
  EXPECT_EQ(v.lookup(0), "10.0.0.1:7471");
  const sockaddr_in two = v4(2);
  fi_addr_t out;
  EXPECT_EQ(fi_av_insert(v.c, &two, 1, &out, 0, nullptr), -FI_EAGAIN);
  uint32_t changes = 1;
  ASSERT_EQ(pwrite(fd, &changes, sizeof changes, offsetof(AvFile::Header, changes)), 4);
  EXPECT_EQ(v.lookup(0), "10.0.0.1:7471") << "known addresses stay";
  ::close(fd);
  EXPECT_EQ(fi_av_insert(v.c, &two, 1, &out, 0, nullptr), 1);
}

TEST(AvShared, AFullFileSystemLosesOnlyWhatDidNotFit) {
  Name name;
  Vector v(FI_SOCKADDR_IN, named(name.text));
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit now = before;
  now.rlim_cur = AvFile::kRecordsAt + 2 * AvFile::record_size(FI_SOCKADDR_IN);
  setrlimit(RLIMIT_FSIZE, &now);
  const sockaddr_in peers[] = {v4(1), v4(2), v4(3)};
  fi_addr_t out[3];
  int errors[3];
  EXPECT_EQ(fi_av_insert(v.c, peers, 3, out, FI_SYNC_ERR, errors), 2);
  EXPECT_THAT(errors, ElementsAre(0, 0, EFBIG));
  EXPECT_THAT(out, ElementsAre(0, 1, kNotAvailable));
  Name other;
  TestDomain domain;
  now.rlim_cur = 100;
  setrlimit(RLIMIT_FSIZE, &now);
  EXPECT_EQ(try_open(domain, named(other.text)), -EFBIG);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_FALSE(other.exists());
  EXPECT_EQ(v.lookup(2), "none");
  EXPECT_EQ(v.insert(v4(3)), 2u);
}

TEST(AvShared, NoDescriptorLeftIsAnError) {
  Name name;
  TestDomain domain;
  {
    NoMoreFiles no_more;
    EXPECT_EQ(try_open(domain, named(name.text)), -EMFILE);
  }
  const size_t before = open_files();
  EXPECT_EQ(try_open(domain, named(name.text)), 0);
  EXPECT_EQ(open_files(), before);
}

}  // namespace
}  // namespace weft::sdk
