// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/hook-profile/segment.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <weft/abandoned.h>
#include <weft/runtime_dir.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace weft::profile {
namespace {

constexpr size_t kPiece = 256 << 10;  // reserved from the file system at once

struct Field {
  const char *name, *unit, *help;
  Kind kind;
  Type type;
  size_t offset, count;
  uint32_t sub_bits = 0;
  const char *sum = nullptr;
};

#define WEFT_TEXT_LABEL_(T, name, help) \
  { #name, "", help, kLabel, kText, offsetof(T, labels.name), sizeof(Labels::name) }
#define WEFT_LABELS_(T, object_help)                                                               \
  {"object", "", object_help ", 0: all that are closed", kLabel, kU64, offsetof(T, labels.object), \
   1},                                                                                             \
      WEFT_TEXT_LABEL_(T, element, "provider or layer that made the object"),                      \
      WEFT_TEXT_LABEL_(T, stack, "the stack that it belongs to"),                                  \
      WEFT_TEXT_LABEL_(T, operation, "what the calls ask for"),                                    \
      WEFT_TEXT_LABEL_(T, peer, "where the peer is: process, host, remote; any: not known")
#define WEFT_COUNTER_(name, unit, help) {#name, unit, help, kCounter, kU64, offsetof(T, name), 1},
#define WEFT_HISTOGRAM_(name, unit, help, buckets, sub_bits, sum) \
  {#name, unit, help, kHistogram, kU64, offsetof(T, name), buckets, sub_bits, sum},

namespace operation {
using T = OperationRecord;
constexpr Field kFields[] = {WEFT_LABELS_(T, "number of the endpoint"),
                             WEFT_PROFILE_OPERATION_FIELDS(WEFT_COUNTER_, WEFT_HISTOGRAM_)};
}  // namespace operation
namespace queue {
using T = QueueRecord;
constexpr Field kFields[] = {WEFT_LABELS_(T, "number of the completion queue"),
                             WEFT_PROFILE_QUEUE_FIELDS(WEFT_COUNTER_, WEFT_HISTOGRAM_)};
}  // namespace queue
#undef WEFT_TEXT_LABEL_
#undef WEFT_LABELS_
#undef WEFT_COUNTER_
#undef WEFT_HISTOGRAM_

constexpr size_t record_size(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}
constexpr size_t kCountersAt = sizeof(Record) + sizeof(Labels);
struct TypeOf {
  const char *name, *help;
  const Field *fields;
  size_t field_count;
  size_t size, counters;  // offset of the counters, which go to the end of the struct
  size_t end;
};
const TypeOf kTypes[] = {
    {"operation", "operations that were posted on an endpoint", operation::kFields,
     std::size(operation::kFields), record_size(sizeof(OperationRecord)), kCountersAt,
     sizeof(OperationRecord)},
    {"queue", "reads of a completion queue", queue::kFields, std::size(queue::kFields),
     record_size(sizeof(QueueRecord)), kCountersAt, sizeof(QueueRecord)},
};
enum : uint32_t { kOperationType, kQueueType };

template <size_t kSize>
void set(char (&to)[kSize], std::string_view text) {
  const size_t length = std::min(text.size(), kSize - 1);
  std::memcpy(to, text.data(), length);
  std::memset(to + length, 0, kSize - length);
}

// Field 22 of /proc/self/stat. The program name before it, in parentheses, may have any characters.
uint64_t start_ticks() {
  char text[1024];
  const int file = ::open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return 0;
  text[length] = '\0';
  const char *at = strrchr(text, ')');
  for (int field = 2; at != nullptr && field < 22; ++field) {
    at = strchr(at + 1, ' ');
  }
  return at != nullptr ? strtoull(at + 1, nullptr, 10) : 0;
}

std::string program_name() {
  char text[64] = {};
  const int file = ::open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  const ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  std::string name(text, length > 0 ? static_cast<size_t>(length) : 0);
  while (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

// Removes the segments of processes that ended without closing their objects: a plugin is not
// called at the end of its process. A draft is locked a moment after it is made, so of those only
// the ones whose process number is free.
void sweep(const std::string &folder) {
  DIR *const files = opendir(folder.c_str());
  if (files == nullptr) return;
  while (const dirent *entry = readdir(files)) {
    const std::string_view name(entry->d_name);
    const bool is_draft = name.ends_with(".profile.new");
    if (!is_draft && !name.ends_with(".profile")) continue;
    if (is_draft && (kill(pid_t(std::atoi(entry->d_name)), 0) == 0 || errno != ESRCH)) continue;
    remove_abandoned(dirfd(files), entry->d_name, [](int) { return true; });
  }
  closedir(files);
}

}  // namespace

std::shared_ptr<Segment> Segment::open(size_t size, std::string &why) {
  std::shared_ptr<Segment> segment(new Segment(size, why));
  return segment->base_ != nullptr ? segment : nullptr;
}

Segment::Segment(size_t size, std::string &why) : pid_(getpid()) {
  size_ = std::max(size / kPiece, size_t{1}) * kPiece;
  const Result<std::string> folder = runtime_directory();
  if (!folder) {
    why = folder.error().text;
  } else {
    sweep(*folder);
    path_ = *folder + "/" + std::to_string(pid_) + ".profile";
    // The file gets its name when it is complete, so that no reader sees half a header.
    const std::string draft = path_ + ".new";
    unlink(draft.c_str());
    file_ = ::open(draft.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    // The lock is gone when no process has the file open: a reader sees that it is abandoned.
    if (file_ >= 0 && flock(file_, LOCK_EX | LOCK_NB) == 0 &&
        ftruncate(file_, static_cast<off_t>(size_)) == 0 &&
        (errno = posix_fallocate(file_, 0, kPiece)) == 0) {
      void *at = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
      if (at != MAP_FAILED) {
        base_ = static_cast<char *>(at);
        backed_ = kPiece;
        describe();
        if (rename(draft.c_str(), path_.c_str()) == 0) return;
      }
    }
    const int code = errno;
    why = path_ + ": " + strerror(code) + ": set WEFT_RUNTIME_DIR to a folder with room";
    unlink(draft.c_str());
    if (base_ != nullptr) munmap(base_, size_);
    if (file_ >= 0) close(file_);
    base_ = nullptr;
    file_ = -1;
    path_.clear();
  }
  void *at = mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return;
  base_ = static_cast<char *>(at);
  backed_ = size_;
  describe();
}

Segment::~Segment() {
  if (file_ >= 0) {
    close(file_);
    if (pid_ == getpid()) unlink(path_.c_str());
  }
  if (base_ != nullptr) munmap(base_, size_);
}

void Segment::describe() {
  Header &head = header();
  std::memcpy(head.magic, kMagic, sizeof head.magic);
  head.version = kVersion;
  head.header_size = sizeof head;
  head.size = size_;
  head.type_size = sizeof(TypeEntry);
  head.field_size = sizeof(FieldEntry);
  head.types = sizeof head;
  head.fields = head.types + sizeof(TypeEntry) * std::size(kTypes);
  head.pid = static_cast<uint64_t>(pid_);
  head.start_ticks = start_ticks();
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  head.opened_ns = static_cast<uint64_t>(now.tv_sec) * 1000000000 + uint64_t(now.tv_nsec);
  set(head.program, program_name());
  auto *types = reinterpret_cast<TypeEntry *>(base_ + head.types);
  auto *fields = reinterpret_cast<FieldEntry *>(base_ + head.fields);
  for (const TypeOf &type : kTypes) {
    TypeEntry &entry = types[head.type_count++];
    set(entry.name, type.name);
    set(entry.help, type.help);
    entry.first_field = head.field_count;
    entry.field_count = static_cast<uint32_t>(type.field_count);
    entry.record_size = static_cast<uint32_t>(type.size);
    for (size_t i = 0; i < type.field_count; ++i) {
      const Field &field = type.fields[i];
      FieldEntry &out = fields[head.field_count++];
      set(out.name, field.name);
      set(out.unit, field.unit);
      set(out.help, field.help);
      out.kind = field.kind;
      out.type = field.type;
      out.offset = static_cast<uint32_t>(field.offset);
      out.count = static_cast<uint32_t>(field.count);
      out.sub_bits = field.sub_bits;
      for (size_t j = 0; field.sum != nullptr && j < type.field_count; ++j) {
        if (std::strcmp(type.fields[j].name, field.sum) == 0) out.sum = uint32_t(j + 1);
      }
    }
  }
  head.records = record_size(head.fields + sizeof(FieldEntry) * head.field_count);
  head.used = head.records;
}

bool Segment::grow(size_t end) {
  if (end > size_) return false;
  while (backed_ < end) {
    if (posix_fallocate(file_, static_cast<off_t>(backed_), kPiece) != 0) return false;
    backed_ += kPiece;
  }
  return true;
}

Record *Segment::allocate(uint32_t type, const Labels &labels) {
  const size_t size = kTypes[type].size;
  std::lock_guard lock(mutex_);
  Record *record = nullptr;
  const auto again = std::find_if(free_.begin(), free_.end(),
                                  [&](const Record *one) { return one->size == size; });
  std::atomic_ref<uint64_t> structure(header().structure);
  if (again == free_.end() && !grow(header().used + size)) {
    bump(header().lost, 1);
    return nullptr;
  }
  structure.fetch_add(1);
  if (again != free_.end()) {
    record = *again;
    free_.erase(again);
  } else {
    record = reinterpret_cast<Record *>(base_ + header().used);
    bump(header().used, size);
  }
  record->type = type;
  record->size = static_cast<uint32_t>(size);
  std::memcpy(record + 1, &labels, sizeof labels);
  std::atomic_ref<uint32_t>(record->live).store(1);
  structure.fetch_add(1);
  return record;
}

OperationRecord *Segment::operation(const Labels &labels) {
  static_assert(offsetof(OperationRecord, labels) == sizeof(Record));
  return reinterpret_cast<OperationRecord *>(allocate(kOperationType, labels));
}
QueueRecord *Segment::queue(const Labels &labels) {
  static_assert(offsetof(QueueRecord, labels) == sizeof(Record));
  return reinterpret_cast<QueueRecord *>(allocate(kQueueType, labels));
}

void Segment::retire(OperationRecord *record) {
  if (record != nullptr) retire(&record->head, kTypes[kOperationType].counters);
}
void Segment::retire(QueueRecord *record) {
  if (record != nullptr) retire(&record->head, kTypes[kQueueType].counters);
}

void Segment::retire(Record *record, size_t counters) {
  const auto labels = [](Record *of) { return reinterpret_cast<Labels *>(of + 1); };
  const auto words = [&](Record *of) {
    return reinterpret_cast<uint64_t *>(reinterpret_cast<char *>(of) + counters);
  };
  const size_t count = (kTypes[record->type].end - counters) / sizeof(uint64_t);
  std::lock_guard lock(mutex_);
  std::atomic_ref<uint64_t> structure(header().structure);
  structure.fetch_add(1);
  std::atomic_ref<uint64_t>(labels(record)->object).store(0);
  const auto found = std::find_if(closed_.begin(), closed_.end(), [&](Record *one) {
    return one->type == record->type &&
           std::memcmp(labels(one), labels(record), sizeof(Labels)) == 0;
  });
  if (found == closed_.end()) {
    closed_.push_back(record);
  } else {
    write(**found, [&] {
      for (size_t i = 0; i < count; ++i) bump(words(*found)[i], value_of(words(record)[i]));
    });
    std::atomic_ref<uint32_t>(record->live).store(0);
    write(*record, [&] {
      for (size_t i = 0; i < count; ++i)
        std::atomic_ref<uint64_t>(words(record)[i]).store(0, std::memory_order_release);
    });
    free_.push_back(record);
  }
  structure.fetch_add(1);
}

}  // namespace weft::profile
