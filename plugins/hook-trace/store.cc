// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/hook-trace/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <weft/abandoned.h>
#include <weft/runtime_dir.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace weft::trace {

std::atomic<bool> ticks_are_tsc{false};
thread_local constinit Slot this_thread;

namespace {

// Threads outlive stores and stores outlive threads, so these connect them. Nothing else in the
// plugin is global.
constinit std::mutex mutex;  // taken when rings, rows and users come and go
constinit Store *the_store = nullptr;
constinit uint64_t generations = kFirstGeneration;

constexpr uint64_t kPage = 4096;
constexpr uint32_t kMaxThreads = 1024;
constexpr int32_t kAfterError = 256;  // records after the error that stops the recording
constexpr size_t kDeadKept = 64;      // traces of killed processes in the runtime folder

uint64_t page_up(uint64_t size) {
  return (size + kPage - 1) & ~(kPage - 1);
}

// The first line of a small file in /proc or /sys; empty: there is no such file.
std::string read_line(const char *path) {
  char text[1024];
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const ssize_t n = ::read(fd, text, sizeof text);
  ::close(fd);
  std::string line(text, n > 0 ? size_t(n) : 0);
  return line.substr(0, line.find('\n'));
}

template <size_t kSize>
void put_text(char (&place)[kSize], const std::string &text) {
  const size_t n = std::min(text.size(), kSize - 1);
  std::memcpy(place, text.data(), n);
  place[n] = '\0';
}

// Whether time stamps agree between processors and continue while these sleep. The kernel uses them
// as its own clock only if they do.
bool tsc_is_steady() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0x80000007, &a, &b, &c, &d) == 0 || (d & (1u << 8)) == 0) return false;
  return read_line("/sys/devices/system/clocksource/clocksource0/current_clocksource") == "tsc";
#else
  return false;
#endif
}

// Its destructor runs at the end of each thread that has taken a ring.
struct ThreadEnd {
  ~ThreadEnd() { Store::end_of_thread(this_thread, gettid() == getpid()); }
  void touch() {}
};
thread_local ThreadEnd thread_end;

uint64_t process_start() {
  const std::string stat = read_line("/proc/self/stat");
  const size_t end_of_name = stat.rfind(')');
  if (end_of_name == std::string::npos) return 0;
  size_t at = end_of_name + 1;
  for (int field = 3; field < 22 && at != std::string::npos; ++field) at = stat.find(' ', at + 1);
  return at == std::string::npos ? 0 : strtoull(stat.c_str() + at, nullptr, 10);
}

// Where the parts of the file lie.
FileHeader layout_of(const StoreOptions &options) {
  const auto records = std::bit_floor(
      std::max<uint64_t>(options.ring_bytes / sizeof(Record), kPage / sizeof(Record)));
  FileHeader layout{};
  layout.magic = kMagic;
  layout.version = kVersion;
  layout.header_size = sizeof layout;
  layout.object_offset = page_up(sizeof layout);
  layout.object_size = sizeof(ObjectEntry);
  layout.object_count = options.objects;
  layout.address_offset =
      page_up(layout.object_offset + uint64_t(options.objects) * sizeof(ObjectEntry));
  layout.address_size = sizeof(AddressEntry);
  layout.address_count = options.addresses;
  layout.ring_offset =
      page_up(layout.address_offset + uint64_t(options.addresses) * sizeof(AddressEntry));
  layout.ring_header_size = kRingHeaderSize;
  layout.ring_size = page_up(kRingHeaderSize + records * sizeof(Record));
  layout.ring_count = std::min(options.max_threads, kMaxThreads);
  layout.record_size = sizeof(Record);
  layout.record_count = uint32_t(records);
  layout.file_size = layout.ring_offset + layout.ring_count * layout.ring_size;
  return layout;
}

// Fills in the process, its clocks and the time.
void describe_process(FileHeader &header) {
  header.clock = ticks_are_tsc.load() ? Clock::kTsc : Clock::kMonotonic;
  header.pid = uint32_t(getpid());
  header.uid = geteuid();
  header.process_start = process_start();
  char text[256] = {};
  if (gethostname(text, sizeof text - 1) == 0) put_text(header.host, text);
  put_text(header.boot_id, read_line("/proc/sys/kernel/random/boot_id"));
  const ssize_t n = readlink("/proc/self/exe", text, sizeof text);
  if (n > 0) put_text(header.program, std::string(text, size_t(n)));
  std::string arguments = read_line("/proc/self/cmdline");
  std::replace(arguments.begin(), arguments.end(), '\0', ' ');
  put_text(header.arguments, arguments);
  header.begin = both_clocks(ticks);
  timespec real;
  const uint64_t before = monotonic_ns();
  clock_gettime(CLOCK_REALTIME, &real);
  const uint64_t passed = (before + monotonic_ns()) / 2 - header.begin.monotonic_ns;
  header.begin_real_ns = uint64_t(real.tv_sec) * 1000000000 + uint64_t(real.tv_nsec) - passed;
}

}  // namespace

void Slot::note_clock() {
  const ClockPair pair = both_clocks(ticks);
  __atomic_store_n(&ring->latest.monotonic_ns, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&ring->latest.ticks, pair.ticks, __ATOMIC_RELEASE);
  __atomic_store_n(&ring->latest.monotonic_ns, pair.monotonic_ns, __ATOMIC_RELEASE);
}

void Store::note_clock() {
  const ClockPair pair = both_clocks(ticks);
  __atomic_store_n(&header_->latest.monotonic_ns, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&header_->latest.ticks, pair.ticks, __ATOMIC_RELEASE);
  __atomic_store_n(&header_->latest.monotonic_ns, pair.monotonic_ns, __ATOMIC_RELEASE);
}

// Reserves memory for a part of the file. Without it a write is a SIGBUS when the file system is
// full.
bool Store::reserve(uint64_t offset, uint64_t size) {
  int rc;
  do rc = posix_fallocate(fd_, off_t(offset), off_t(size));
  while (rc == EINTR);
  return rc == 0;
}

namespace {

// Whether a file has a whole header and was not meant to be kept. Asked of files whose process is
// gone.
bool is_trace_to_go(int file) {
  FileHeader header{};
  return pread(file, &header, sizeof header, 0) == ssize_t(sizeof header) &&
         header.magic == kMagic && header.keep == 0;
}

// Killed processes leave their traces to be read. Of those, the newest kDeadKept stay.
void sweep(const std::string &directory) {
  DIR *const files = opendir(directory.c_str());
  if (files == nullptr) return;
  std::vector<std::pair<timespec, std::string>> dead;
  while (const dirent *entry = readdir(files)) {
    if (!std::string_view(entry->d_name).ends_with(".trace")) continue;
    remove_abandoned(dirfd(files), entry->d_name, [&](int file) {
      struct stat found = {};
      if (is_trace_to_go(file) && fstat(file, &found) == 0)
        dead.emplace_back(found.st_mtim, entry->d_name);
      return false;
    });
  }
  std::sort(dead.begin(), dead.end(), [](const auto &a, const auto &b) {
    return std::pair(a.first.tv_sec, a.first.tv_nsec) > std::pair(b.first.tv_sec, b.first.tv_nsec);
  });
  for (size_t i = kDeadKept; i < dead.size(); ++i)
    remove_abandoned(dirfd(files), dead[i].second.c_str(), is_trace_to_go);
  closedir(files);
}

}  // namespace

// Makes the trace file. A file of a dead process that had our number keeps its name. It is locked
// before it has a header, as long as the process lives.
Result<void> Store::make_file(const std::string &directory) {
  for (int attempt = 0;; ++attempt) {
    path_ = directory + "/" + std::to_string(getpid()) +
            (attempt == 0 ? "" : "." + std::to_string(attempt)) + ".trace";
    fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd_ >= 0) {
      (void)flock(fd_, LOCK_EX | LOCK_NB);  // where there are no locks nothing is swept either
      return {};
    }
    if (errno == EEXIST && attempt < 100) continue;
    const int code = errno;
    const std::string path = std::exchange(path_, "");
    return fail(code, "the trace file %s cannot be made: %s", path.c_str(), strerror(code));
  }
}

// Gives the file its size and maps it. Reserves the memory of the tables; that of the rings is
// reserved when threads take them.
Result<void> Store::map_file(const FileHeader &layout) {
  const auto size = static_cast<unsigned long long>(layout.file_size);
  if (ftruncate(fd_, off_t(layout.file_size)) != 0) {
    const int code = errno;
    return fail(code, "the trace file %s cannot have %llu bytes: %s: lower size or max_threads",
                path_.c_str(), size, strerror(code));
  }
  if (!reserve(0, layout.object_offset) ||
      !reserve(layout.address_offset, layout.ring_offset - layout.address_offset))
    return fail(FI_ENOMEM, "no room for the trace file %s: make some there, or set directory",
                path_.c_str());
  void *bytes = mmap(nullptr, layout.file_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (bytes == MAP_FAILED) {
    const int code = errno;
    return fail(code, "mmap of %llu bytes of %s: %s: lower size or max_threads", size,
                path_.c_str(), strerror(code));
  }
  bytes_ = static_cast<uint8_t *>(bytes);
  return {};
}

// The gate lies on a page that fork() clears, so a child finds kInherited there.
Result<void> Store::make_gate() {
  void *page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || madvise(page, kPage, MADV_WIPEONFORK) != 0) {
    const int code = errno;
    if (page != MAP_FAILED) munmap(page, kPage);
    return fail(code, "a page that fork() clears: %s", strerror(code));
  }
  gate_ = static_cast<uint64_t *>(page);
  *gate_ = kShut;
  return {};
}

// Writes the header, the magic number last: readers do not accept the file before it is complete.
void Store::publish_header(FileHeader header) {
  header.magic = 0;
  header_ = reinterpret_cast<FileHeader *>(bytes_);
  *header_ = header;
  __atomic_store_n(&header_->magic, kMagic, __ATOMIC_RELEASE);
}

Result<Store *> Store::create(const StoreOptions &options) {
  std::string directory = options.directory;
  if (directory.empty()) {
    WEFT_TRY(directory, runtime_directory());
    sweep(directory);
  }
  std::unique_ptr<Store> store(new Store());
  WEFT_CHECK(store->make_file(directory));
  FileHeader header = layout_of(options);
  WEFT_CHECK(store->map_file(header));
  WEFT_CHECK(store->make_gate());
  ticks_are_tsc.store(tsc_is_steady());
  describe_process(header);
  header.keep = options.keep ? 1 : 0;
  header.phase = uint32_t(options.phase);
  store->publish_header(header);
  store->phase_ = options.phase;
  store->stop_at_error_ = options.stop_at_error;
  store->watches_errors_ = options.stop_at_error || options.phase == Phase::kWaiting;
  store->generation_ = generations++;
  if (options.phase == Phase::kRecording) *store->gate_ = store->generation_;
  return store.release();
}

Store::~Store() {
  if (gate_ != nullptr) munmap(gate_, kPage);
  const bool keep = header_ != nullptr && header_->keep != 0;
  if (bytes_ != nullptr) munmap(bytes_, header_ != nullptr ? header_->file_size : kPage);
  if (fd_ >= 0) ::close(fd_);
  if (!path_.empty() && !keep) unlink(path_.c_str());
}

Result<Store *> Store::join(const StoreOptions &options) {
  std::lock_guard lock(mutex);
  if (the_store != nullptr && the_store->is_inherited()) {
    // The parent's store. Inherited objects still refer to it; new objects get a new file.
    the_store = nullptr;
  }
  if (the_store == nullptr) {
    WEFT_TRY(the_store, create(options));
  }
  ++the_store->users_;
  return the_store;
}

void Store::stay() {
  std::lock_guard lock(mutex);
  ++users_;
}

void Store::leave() {
  std::lock_guard lock(mutex);
  if (--users_ > 0) return;
  if (is_inherited()) return;  // the file is the parent's; the mapping goes with the child
  // No object is left, so no thread is inside a call. A thread that records again finds another
  // generation.
  for (Slot *&owner : owners_) {
    if (owner != nullptr) *owner = Slot{};
  }
  header_->ended = 1;
  if (the_store == this) the_store = nullptr;
  delete this;
}

RingHeader *Store::ring_at(uint32_t index) {
  return reinterpret_cast<RingHeader *>(bytes_ + header_->ring_offset + index * header_->ring_size);
}

// The slow part of slot(): the thread has no ring of this store, or nothing is recorded now.
Slot *Store::find_slot(Slot &slot) {
  const uint64_t gate = __atomic_load_n(gate_, __ATOMIC_RELAXED);
  if (gate == kInherited) return nullptr;
  if (gate == kShut && !passes_stop()) return nullptr;
  if (slot.generation == generation_) return &slot;
  if (slot.full == generation_) return miss(slot);
  return take_ring(slot);
}

Slot *Store::take_ring(Slot &slot) {
  thread_end.touch();
  std::lock_guard lock(mutex);
  const uint32_t depth = slot.depth;
  slot = Slot{};
  slot.depth = depth;
  uint32_t index = header_->rings_used;
  if (index < header_->ring_count &&
      reserve(header_->ring_offset + index * header_->ring_size, header_->ring_size)) {
    __atomic_store_n(&header_->rings_used, index + 1, __ATOMIC_RELEASE);
  } else {
    // Takes the ring that was given back first.
    index = UINT32_MAX;
    for (uint32_t i = 0; i < header_->rings_used; ++i) {
      if (owners_[i] == nullptr && (index == UINT32_MAX || given_back_[i] < given_back_[index]))
        index = i;
    }
    if (index == UINT32_MAX) {
      slot.full = generation_;
      return miss(slot);
    }
  }
  owners_[index] = &slot;
  RingHeader *ring = ring_at(index);
#ifdef MADV_POPULATE_WRITE
  (void)madvise(ring, header_->ring_size, MADV_POPULATE_WRITE);  // else page by page, as it fills
#endif
  ring->first = ring->head;
  ring->tid = uint32_t(gettid());
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof name);
  std::memcpy(ring->name, name, sizeof name);
  __atomic_store_n(&ring->state, uint32_t(RingState::kTaken), __ATOMIC_RELEASE);
  slot.ring = ring;
  slot.records = reinterpret_cast<Record *>(reinterpret_cast<uint8_t *>(ring) + kRingHeaderSize);
  slot.mask = header_->record_count - 1;
  slot.next = ring->head;
  slot.generation = generation_;
  slot.note_clock();
  return &slot;
}

// The thread has no ring. It asks again after 1024 records, because other threads may have ended.
Slot *Store::miss(Slot &slot) {
  __atomic_fetch_add(&header_->lost_records, 1, __ATOMIC_RELAXED);
  if (++slot.skipped % 1024 == 0) slot.full = 0;
  return nullptr;
}

void Store::end_of_thread(Slot &slot, bool last) {
  std::lock_guard lock(mutex);
  Store *store = the_store;
  if (store == nullptr || store->is_inherited()) return;
  if (slot.generation == store->generation_) {
    const auto index = uint32_t(
        (reinterpret_cast<uint8_t *>(slot.ring) - store->bytes_ - store->header_->ring_offset) /
        store->header_->ring_size);
    slot.note_clock();
    __atomic_store_n(&slot.ring->state, uint32_t(RingState::kGivenBack), __ATOMIC_RELEASE);
    store->owners_[index] = nullptr;
    store->given_back_[index] = ++store->times_given_back_;
    slot = Slot{};
  }
  if (last) {  // exit() with objects still open; the plugin gets no other call
    store->header_->ended = 1;
    if (store->header_->keep == 0) unlink(store->path_.c_str());
  }
}

void Store::set_phase(Phase phase) {
  __atomic_store_n(&header_->phase, uint32_t(phase), __ATOMIC_RELAXED);
  __atomic_store_n(gate_, phase == Phase::kRecording ? generation_ : kShut, __ATOMIC_RELAXED);
}

// Whether this is one of the last kAfterError records before a stop.
bool Store::passes_stop() {
  if (phase_.load(std::memory_order_relaxed) != Phase::kStopping) return false;
  if (left_.fetch_sub(1, std::memory_order_relaxed) > 0) return true;
  phase_.store(Phase::kFrozen, std::memory_order_relaxed);
  set_phase(Phase::kFrozen);
  return false;
}

void Store::change_phase() {
  if (is_inherited()) return;
  Phase was = phase_.load(std::memory_order_relaxed);
  if (was == Phase::kWaiting &&
      phase_.compare_exchange_strong(was, Phase::kRecording, std::memory_order_relaxed)) {
    set_phase(Phase::kRecording);
  } else if (was == Phase::kRecording && stop_at_error_) {
    left_.store(kAfterError, std::memory_order_relaxed);
    if (phase_.compare_exchange_strong(was, Phase::kStopping, std::memory_order_relaxed))
      set_phase(Phase::kStopping);
  }
}

ObjectEntry *Store::add_object(uint64_t id) {
  std::lock_guard lock(mutex);
  auto *const table = reinterpret_cast<ObjectEntry *>(bytes_ + header_->object_offset);
  ObjectEntry *entry = nullptr;
  if (header_->objects_used < header_->object_count) {
    const uint64_t needed = uint64_t(header_->objects_used + 1) * sizeof(ObjectEntry);
    if (needed > objects_reserved_) {
      const uint64_t size = std::min<uint64_t>(
          16 * kPage, uint64_t(header_->object_count) * sizeof(ObjectEntry) - objects_reserved_);
      if (reserve(header_->object_offset + objects_reserved_, size)) objects_reserved_ += size;
    }
    if (needed <= objects_reserved_) {
      entry = &table[header_->objects_used];
      __atomic_store_n(&header_->objects_used, header_->objects_used + 1, __ATOMIC_RELEASE);
    }
  }
  for (uint32_t i = 0; entry == nullptr && i < header_->objects_used; ++i) {
    ObjectEntry *one = &table[(next_closed_ + i) % header_->objects_used];
    if (one->state != ObjectState::kClosed) continue;
    next_closed_ = (next_closed_ + i + 1) % header_->objects_used;
    entry = one;
    ++header_->lost_objects;
  }
  if (entry == nullptr) {
    ++header_->lost_objects;
    return nullptr;
  }
  __atomic_store_n(reinterpret_cast<uint32_t *>(&entry->state), uint32_t(ObjectState::kFree),
                   __ATOMIC_RELEASE);
  *entry = ObjectEntry{};
  entry->id = id;
  entry->opened = ticks();
  note_clock();
  return entry;
}

void Store::close_object(ObjectEntry *entry) {
  std::lock_guard lock(mutex);
  entry->closed = ticks();
  __atomic_store_n(reinterpret_cast<uint32_t *>(&entry->state), uint32_t(ObjectState::kClosed),
                   __ATOMIC_RELEASE);
  note_clock();
}

bool Store::wants_addresses() const {
  return __atomic_load_n(&header_->addresses_used, __ATOMIC_RELAXED) < header_->address_count;
}

void Store::add_address(uint32_t av, uint32_t peer, const char *text) {
  std::lock_guard lock(mutex);
  if (header_->addresses_used >= header_->address_count) {
    ++header_->lost_addresses;
    return;
  }
  auto *const table = reinterpret_cast<AddressEntry *>(bytes_ + header_->address_offset);
  AddressEntry &entry = table[header_->addresses_used];
  entry.av = av;
  entry.peer = peer;
  put_text(entry.address, text);
  __atomic_store_n(&header_->addresses_used, header_->addresses_used + 1, __ATOMIC_RELEASE);
}

}  // namespace weft::trace
