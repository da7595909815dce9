// SPDX-License-Identifier: BSD-2-Clause
// Trace files as the hook writes them, read back by the tools; damaged files; parameters.
#include "plugins/hook-trace/store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "plugin-api/sdk/testing/test_rounds.h"
#include "plugins/hook-trace/settings.h"
#include "tools/trace/convert.h"
#include "tools/trace/deadline.h"
#include "tools/trace/report.h"
#include "tools/trace/snapshot.h"
#include "tools/trace/timeline.h"

namespace weft::trace {
namespace {

using testing::HasSubstr;

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "weft-trace-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string &path() const { return path_; }
  std::string file(const char *name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

Record numbered(uint64_t n) {
  return {.begin = ticks(),
          .context = n,
          .tag = ~n,
          .size = n,
          .object = 1,
          .peer = kNoPeer,
          .op = uint16_t(Op::send),
          .fclass = FI_CLASS_EP};
}

Store *join(const Folder &folder, StoreOptions options = {}) {
  options.directory = folder.path();
  auto store = Store::join(options);
  EXPECT_TRUE(store) << store.error().text;
  return *store;
}

void write(Store &store, uint64_t from, uint64_t to) {
  for (uint64_t n = from; n < to; ++n) {
    if (Slot *slot = store.slot()) slot->write(numbered(n));
  }
}

// ---- rings ----

TEST(Store, RecordsComeBackInOrder) {
  const Folder folder;
  Store *store = join(folder);
  write(*store, 0, 100);
  const auto read = read_process(store->path());
  ASSERT_TRUE(read) << read.error().text;
  EXPECT_EQ(read->pid, uint32_t(getpid()));
  EXPECT_TRUE(read->alive);
  ASSERT_EQ(read->threads.size(), 1u);
  const ThreadInfo &thread = read->threads[0];
  EXPECT_EQ(thread.tid, uint32_t(gettid()));
  EXPECT_EQ(thread.overwritten(), 0u);
  ASSERT_EQ(thread.records.size(), 100u);
  for (size_t n = 0; n < 100; ++n) {
    EXPECT_EQ(thread.records[n].context, n);
    EXPECT_EQ(thread.records[n].tag, ~uint64_t(n));
  }
  const std::string path = store->path();
  store->leave();
  EXPECT_FALSE(std::filesystem::exists(path)) << "the last user has left";
}

TEST(Store, KeepsTheLastRecordsAndCountsTheOthers) {
  const Folder folder;
  Store *store = join(folder, {.ring_bytes = 1 << 14});
  const uint64_t capacity = (1 << 14) / sizeof(Record);
  write(*store, 0, 3 * capacity + 7);
  const auto read = read_process(store->path());
  ASSERT_TRUE(read) << read.error().text;
  ASSERT_EQ(read->threads.size(), 1u);
  EXPECT_EQ(read->threads[0].records.size(), capacity);
  EXPECT_EQ(read->threads[0].overwritten(), 2 * capacity + 7);
  EXPECT_EQ(read->threads[0].records.front().context, 2 * capacity + 7);
  EXPECT_EQ(read->threads[0].records.back().context, 3 * capacity + 6);
  store->leave();
}

TEST(Store, RingsAreReusedAndThreadsWithoutOneAreCounted) {
  const Folder folder;
  Store *store = join(folder, {.ring_bytes = 1 << 14, .max_threads = 3});
  write(*store, 0, 1);
  // Threads one after the other: any number of them use three rings.
  for (int i = 0; i < 20; ++i) std::thread([&] { write(*store, 100, 110); }).join();
  EXPECT_EQ(store->header().rings_used, 3u);
  EXPECT_EQ(store->header().lost_records, 0u);
  auto read = read_process(store->path());
  ASSERT_TRUE(read) << read.error().text;
  ASSERT_EQ(read->threads.size(), 3u);
  for (const ThreadInfo &thread : read->threads) {
    // A ring that is used again shows the records of its last thread only.
    EXPECT_EQ(thread.records.size(), thread.tid == uint32_t(gettid()) ? 1u : 10u);
    EXPECT_EQ(thread.ended, thread.tid != uint32_t(gettid()));
  }
  // Threads at the same time: the main thread has one ring, two are free.
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 5; ++i) {
    threads.emplace_back([&] {
      write(*store, 0, 1);
      ready.fetch_add(1);
      while (ready.load() < 5) std::this_thread::yield();
      write(*store, 1, 10);
    });
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(store->header().lost_records, 30u);
  store->leave();
}

TEST(Store, AReaderSeesOnlyWholeRecordsDuringWrites) {
  const Folder folder;
  Store *store = join(folder, {.ring_bytes = 1 << 14});
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> written{0};
  std::thread writer([&] {
    for (uint64_t n = 0; !stop; ++n) {
      store->slot()->write(numbered(n));
      written.store(n + 1);
    }
  });
  while (written.load() < 1000) std::this_thread::yield();
  for (int i = 0; i < 200; ++i) {
    const auto read = read_process(store->path());
    ASSERT_TRUE(read) << read.error().text;
    ASSERT_EQ(read->threads.size(), 1u);
    uint64_t last = 0;
    for (const Record &record : read->threads[0].records) {
      ASSERT_EQ(record.tag, ~record.context) << "torn";
      ASSERT_EQ(record.size, record.context) << "torn";
      if (last != 0) {
        ASSERT_GT(record.context, last);
      }
      last = record.context;
    }
  }
  stop = true;
  writer.join();
  store->leave();
}

TEST(Store, ARecordThatWasBeingWrittenIsLeftOut) {
  const Folder folder;
  Store *store = join(folder);
  write(*store, 0, 10);
  // As a thread leaves it that is killed while it writes.
  this_thread.records[4].sequence = 0;
  const auto read = read_process(store->path());
  ASSERT_TRUE(read) << read.error().text;
  EXPECT_EQ(read->threads[0].records.size(), 9u);
  EXPECT_EQ(read->threads[0].torn, 1u);
  EXPECT_EQ(read->threads[0].overwritten(), 0u);
  store->leave();
}

TEST(Store, AKilledProcessLeavesItsRecords) {
  const Folder folder;
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    StoreOptions options;
    options.directory = folder.path();
    auto store = Store::join(options);
    write(**store, 0, 500);
    (void)!::write(go[1], "x", 1);
    for (;;) pause();
  }
  char byte;
  ASSERT_EQ(::read(go[0], &byte, 1), 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(go[0]);
  close(go[1]);
  const auto read = read_process(folder.path() + "/" + std::to_string(child) + ".trace");
  ASSERT_TRUE(read) << read.error().text;
  EXPECT_FALSE(read->alive);
  EXPECT_FALSE(read->ended);
  ASSERT_EQ(read->threads.size(), 1u);
  EXPECT_EQ(read->threads[0].records.size(), 500u);
}

TEST(Store, OfTheTracesOfKilledProcessesTheNewestStay) {
  namespace fs = std::filesystem;
  const Folder folder;
  ASSERT_EQ(setenv("WEFT_RUNTIME_DIR", folder.path().c_str(), 1), 0);
  // A process that lives, with an old file: it does not count as killed.
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    (void)Store::join({});
    (void)!::write(go[1], "x", 1);
    for (;;) pause();
  }
  char byte;
  ASSERT_EQ(::read(go[0], &byte, 1), 1);
  const std::string alive = folder.path() + "/" + std::to_string(child) + ".trace";
  const auto age = [](const std::string &path, time_t seconds) {
    const timespec times[2] = {{.tv_sec = seconds, .tv_nsec = 0},
                               {.tv_sec = seconds, .tv_nsec = 0}};
    EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), 0) << path;
  };
  // Copies have no lock, as what killed processes leave. One has the number of this process.
  std::ifstream file(alive, std::ios::binary);
  FileHeader header{};
  file.read(reinterpret_cast<char *>(&header), sizeof header);
  const auto leave = [&](const std::string &name, time_t made) {
    const std::string path = folder.path() + "/" + name;
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char *>(&header), sizeof header);
    age(path, made);
    return path;
  };
  age(alive, 1);
  constexpr int kMany = 70, kKept = 64;
  for (int i = 0; i < kMany; ++i) leave(std::to_string(1'000'000'000 + i) + ".trace", 100 + i);
  leave(std::to_string(getpid()) + ".trace", 1000);
  header.keep = 1;
  const std::string kept = leave("2000000000.trace", 1);
  header.magic = 0;
  const std::string unfinished = leave("2000000001.trace", 1);
  // What is no plain file stays as it is.
  const std::string link = folder.path() + "/2000000002.trace";
  const std::string pipe_file = folder.path() + "/2000000003.trace";
  ASSERT_EQ(symlink(kept.c_str(), link.c_str()), 0);
  ASSERT_EQ(mkfifo(pipe_file.c_str(), 0600), 0);
  const auto store = Store::join({});
  ASSERT_TRUE(store) << store.error().text;
  int stayed = 0;
  for (int i = 0; i < kMany; ++i) {
    const bool there =
        fs::exists(folder.path() + "/" + std::to_string(1'000'000'000 + i) + ".trace");
    stayed += there;
    EXPECT_EQ(there, i > kMany - kKept) << i;
  }
  EXPECT_EQ(stayed, kKept - 1) << "and the one with our number";
  for (const std::string &path : {alive, kept, unfinished, link, pipe_file, (*store)->path()})
    EXPECT_TRUE(fs::exists(fs::symlink_status(path))) << path;
  const auto files = trace_files();
  EXPECT_TRUE(files);
  (*store)->leave();
  unsetenv("WEFT_RUNTIME_DIR");
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(go[0]);
  close(go[1]);
}

TEST(Store, AForkedChildDoesNotWriteIntoItsParentsRings) {
  const Folder folder;
  Store *store = join(folder);
  write(*store, 0, 5);
  const pid_t child = fork();
  if (child == 0) {
    int status = 0;
    if (store->slot() != nullptr) status |= 1;
    StoreOptions options;
    options.directory = folder.path();
    auto own = Store::join(options);
    if (!own || *own == store) status |= 2;
    if (own) write(**own, 0, 3);
    if (own && (*own)->path() == store->path()) status |= 4;
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  write(*store, 5, 6);
  const auto read = read_process(store->path());
  ASSERT_TRUE(read) << read.error().text;
  EXPECT_EQ(read->threads[0].records.size(), 6u);
  store->leave();
}

TEST(Store, RowsOfClosedObjectsAreReused) {
  const Folder folder;
  Store *store = join(folder, {.objects = 4});
  for (uint64_t id = 1; id <= 20; ++id) {
    ObjectEntry *entry = store->add_object(id);
    ASSERT_NE(entry, nullptr) << id;
    entry->state = ObjectState::kOpen;
    if (id > 2) store->close_object(entry);
  }
  EXPECT_EQ(store->header().lost_objects, 16u);
  const auto read = read_process(store->path());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->objects.size(), 4u);
  store->leave();
}

TEST(Store, StartsAndStopsAtTheFirstError) {
  const Folder folder;
  Store *store = join(folder, {.phase = Phase::kWaiting, .stop_at_error = true});
  EXPECT_EQ(store->slot(), nullptr);
  store->saw_error();
  for (int i = 0; i < 1000; ++i) ASSERT_NE(store->slot(), nullptr);
  store->saw_error();
  int after = 0;
  while (store->slot() != nullptr) ++after;
  EXPECT_EQ(after, 256);
  EXPECT_EQ(Phase(store->header().phase), Phase::kFrozen);
  store->saw_error();
  EXPECT_EQ(store->slot(), nullptr);
  store->leave();
}

TEST(Store, GivesTheReasonWhyThereIsNoFile) {
  StoreOptions options;
  options.directory = "/nonexistent/folder";
  const auto store = Store::join(options);
  ASSERT_FALSE(store);
  EXPECT_THAT(store.error().text, HasSubstr("/nonexistent/folder"));
}

// ---- parameters ----

TEST(Settings, KnowGroupsAndOperations) {
  const auto mask = read_ops({"tagged", "cq_read"});
  ASSERT_TRUE(mask);
  EXPECT_TRUE(mask->has(Op::tsend));
  EXPECT_TRUE(mask->has(Op::trecvmsg));
  EXPECT_TRUE(mask->has(Op::cq_read));
  EXPECT_FALSE(mask->has(Op::send));
  EXPECT_FALSE(mask->has(Op::completion));
  const auto wrong = read_ops({"tsned"});
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().text, HasSubstr("tsned"));
  EXPECT_EQ(*read_classes({"ep", "ep", "cq"}),
            (uint64_t{1} << FI_CLASS_EP) | (uint64_t{1} << FI_CLASS_CQ));
  EXPECT_FALSE(read_classes({"eps"}));
  EXPECT_EQ(*read_peers({"0", "17"}), (std::vector<uint32_t>{0, 17}));
  EXPECT_FALSE(read_peers({"17x"}));
  EXPECT_FALSE(read_peers({"-1"}));
}

// ---- damaged files ----

std::vector<uint8_t> bytes_of(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(Snapshot, GarbageIsRefused) {
  const Folder folder;
  Store *store =
      join(folder, {.ring_bytes = 1 << 14, .max_threads = 2, .objects = 8, .addresses = 8});
  write(*store, 0, 300);
  store->add_address(3, 4, "10.0.0.1:5");
  std::vector<uint8_t> good = bytes_of(store->path());
  store->leave();
  ASSERT_TRUE(read_bytes(good));
  for (const size_t size : {size_t(0), size_t(7), sizeof(FileHeader), good.size() - 1})
    EXPECT_FALSE(read_bytes(std::span(good).first(size))) << size;
  // Any damage to the header: refused, or read within bounds (a sanitizer would tell).
  std::mt19937_64 random(1);
  for (unsigned i = 0; i < sdk::rounds(20000); ++i) {
    std::vector<uint8_t> bad = good;
    for (int k = 0; k < 4; ++k) bad[random() % sizeof(FileHeader)] = uint8_t(random());
    (void)read_bytes(bad);
  }
  for (unsigned i = 0; i < sdk::rounds(2000); ++i) {
    std::vector<uint8_t> bad = good;
    for (int k = 0; k < 64; ++k) bad[random() % bad.size()] = uint8_t(random());
    std::memcpy(bad.data(), good.data(), sizeof(FileHeader));
    const auto read = read_bytes(bad);
    ASSERT_TRUE(read);
    const std::vector<Snapshot> one{*read};
    (void)make_report(build_timeline(one));
  }
}

void use(const std::vector<uint8_t> &bytes) {
  const auto read = read_bytes(bytes);
  if (!read) return;
  const std::vector<Snapshot> one{*read};
  const Timeline timeline = build_timeline(one);
  (void)to_text(make_report(timeline));
  std::ostringstream out;
  write_trace(timeline, Form::kCsv, out);
}

// Any number in any field: the reader refuses the file or reads it, and ends.
TEST(Snapshot, AFieldMayHoldAnyNumber) {
  const Folder folder;
  Store *store =
      join(folder, {.ring_bytes = 1 << 12, .max_threads = 2, .objects = 4, .addresses = 4});
  write(*store, 0, 40);
  store->add_object(1)->state = ObjectState::kOpen;
  store->add_address(3, 4, "10.0.0.1:5");
  const std::vector<uint8_t> good = bytes_of(store->path());
  store->leave();
  FileHeader head;
  std::memcpy(&head, good.data(), sizeof head);
  struct Part {
    const char *what;
    size_t from, size;
  };
  const Part parts[] = {{"header", 0, sizeof head},
                        {"object", head.object_offset, sizeof(ObjectEntry)},
                        {"address", head.address_offset, sizeof(AddressEntry)},
                        {"ring", head.ring_offset, sizeof(RingHeader)},
                        {"record", head.ring_offset + head.ring_header_size, 2 * sizeof(Record)}};
  const Deadline deadline(100);
  for (const Part &part : parts) {
    for (size_t at = 0; at + 4 <= part.size; at += 4 * sdk::kRoundsDivisor) {
      for (const size_t width : {4, 8}) {
        if (at % width != 0 || at + width > part.size) continue;
        const uint64_t all = width == 4 ? UINT32_MAX : UINT64_MAX;
        for (const uint64_t value : {uint64_t{0}, uint64_t{1}, all, all - 1, all - 40, all / 2,
                                     all / 2 + 1, uint64_t{1} << 20}) {
          deadline.says(part.what, at, value);
          std::vector<uint8_t> bad = good;
          std::memcpy(bad.data() + part.from + at, &value, width);
          use(bad);
        }
      }
    }
  }
}

// ---- saved traces ----

// In a folder that others may write to. Who guesses the name that nobody chose makes a link there.
TEST(Snapshot, ANameThatNobodyChoseFollowsNoLink) {
  const Folder folder;
  const std::string private_file = folder.file("private"), guessed = folder.file("weft-1.trace");
  std::ofstream(private_file) << "private";
  ASSERT_EQ(symlink(private_file.c_str(), guessed.c_str()), 0);
  const std::vector<Snapshot> processes(1);
  const auto refused = write_saved(guessed, processes, /*only_new=*/true);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().text, HasSubstr("name a file with -o"));
  EXPECT_EQ(std::filesystem::file_size(private_file), 7u);
  EXPECT_TRUE(write_saved(folder.file("weft-2.trace"), processes, /*only_new=*/true));
  EXPECT_TRUE(write_saved(guessed, processes)) << "the user named it";
}

TEST(Snapshot, ASavedSnapshotReadsBackTheSame) {
  const Folder folder;
  Store *store = join(folder);
  write(*store, 0, 50);
  ObjectEntry *entry = store->add_object(7);
  std::strcpy(entry->element, "tcp");
  std::strcpy(entry->address, "127.0.0.1:5");
  entry->tx_cq = 3;
  entry->state = ObjectState::kOpen;
  store->add_address(3, 4, "10.0.0.1:5");
  const auto live = read_process(store->path());
  ASSERT_TRUE(live);
  const std::string path = folder.file("saved");
  ASSERT_TRUE(write_saved(path, {*live, *live}));
  const auto read = read_any(path);
  ASSERT_TRUE(read) << read.error().text;
  ASSERT_EQ(read->size(), 2u);
  const Snapshot &back = (*read)[1];
  EXPECT_EQ(back.pid, live->pid);
  EXPECT_EQ(back.boot_id, live->boot_id);
  EXPECT_EQ(back.clock.span_ns, live->clock.span_ns);
  ASSERT_EQ(back.objects.size(), 1u);
  EXPECT_EQ(back.objects[0].element, "tcp");
  EXPECT_EQ(back.objects[0].address, "127.0.0.1:5");
  EXPECT_EQ(back.objects[0].tx_cq, 3u);
  ASSERT_EQ(back.addresses.size(), 1u);
  EXPECT_EQ(back.addresses[0].address, "10.0.0.1:5");
  ASSERT_EQ(back.threads.size(), 1u);
  ASSERT_EQ(back.threads[0].records.size(), 50u);
  EXPECT_EQ(std::memcmp(back.threads[0].records.data(), live->threads[0].records.data(),
                        50 * sizeof(Record)),
            0);
  store->leave();
  EXPECT_FALSE(parse_saved("weft"));
  EXPECT_FALSE(read_any(folder.file("absent")));
}

}  // namespace
}  // namespace weft::trace
