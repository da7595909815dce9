// SPDX-License-Identifier: BSD-2-Clause
#include "av_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <weft/runtime_dir.h>
#include <weft/sdk/progress/engine.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>

#include "address_codec.h"
#include "address_ib.h"

namespace weft::sdk {
namespace {

constexpr std::string_view kPrefix = "av";  // of the names of all such files

// The bytes of the file that are locked; their contents do not matter.
constexpr off_t kOpenByte = 0;   // shared by all processes that have the file open
constexpr off_t kWriteByte = 1;  // held by the writer, shared by readers

// The kernel frees the locks of a process that dies. A process that was stopped while it wrote
// should not stop the others, so they wait this long at most.
constexpr uint64_t kReaderPatienceNs = 100'000'000;
constexpr uint64_t kWriterPatienceNs = 2'000'000'000;

enum class Wait { kNot, kReader, kWriter };

// 0, or an errno; EAGAIN: another one has it. The lock belongs to the open file, not the process.
int set_lock(int fd, off_t byte, int type, Wait wait = Wait::kNot) {
  const uint64_t end = now_ns() + (wait == Wait::kReader ? kReaderPatienceNs : kWriterPatienceNs);
  for (unsigned tries = 0;; ++tries) {
    struct flock lock {};
    lock.l_type = short(type);
    lock.l_whence = SEEK_SET;
    lock.l_start = byte;
    lock.l_len = 1;
    if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return 0;
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) return errno;
    if (wait == Wait::kNot || now_ns() > end) return EAGAIN;
    // The kernel has no lock with a deadline. Most are held for microseconds.
    const timespec pause{.tv_sec = 0, .tv_nsec = 100'000};
    if (tries < 50)
      sched_yield();
    else
      nanosleep(&pause, nullptr);
  }
}

// Of IPv6: the scope stands where the native form has the flow label.
constexpr size_t kFlow = offsetof(sockaddr_in6, sin6_flowinfo),
                 kScope = offsetof(sockaddr_in6, sin6_scope_id);
constexpr size_t kFamily = sizeof(sa_family_t);  // not written

// Where an address begins in its native form, and how many bytes of it a record has.
struct Part {
  size_t at, size;
};
Part part_of(const AddressCodec &codec) {
  if (codec.format == FI_SOCKADDR_IN6) return {kFamily, kScope - kFamily};
  return {codec.packed_at, codec.packed_size};
}

bool belongs(uint32_t format, uint32_t native) {
  if (native != FI_SOCKADDR_IP) return format == native;
  return format == FI_SOCKADDR_IN || format == FI_SOCKADDR_IN6;
}

}  // namespace

Result<std::string> AvFile::path_of(std::string_view domain, std::string_view name) {
  std::string file(kPrefix);
  for (const std::string_view part : {domain, name}) {
    file += '.';
    for (const char c : part) {
      if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
          c == '_') {
        file += c;
      } else {
        char text[4];
        std::snprintf(text, sizeof text, "%%%02x", unsigned(static_cast<unsigned char>(c)));
        file += text;
      }
    }
  }
  if (name.empty()) return fail(FI_EINVAL, "fi_av_attr.name is empty: a shared vector has a name");
  if (file.size() > 255)
    return fail(FI_EINVAL, "fi_av_attr.name: \"%.60s...\" is too long for a file's name",
                std::string(name).c_str());
  WEFT_TRY(const std::string folder, runtime_directory());
  return folder + "/" + file;
}

size_t AvFile::record_size(uint32_t native) {
  const AddressCodec &largest =
      *codec_of(native == FI_SOCKADDR_IP ? uint32_t(FI_SOCKADDR_IN6) : native);
  return (offsetof(Record, address) + part_of(largest).size + 7) / 8 * 8;
}

Result<std::optional<Address>> AvFile::parse(const Record &record, uint32_t native) {
  if (record.reserved != 0) return fail(FI_EINVAL, "a reserved byte is not 0");
  if (record.format == 0) return std::optional<Address>();
  if (!belongs(record.format, native))
    return fail(FI_EINVAL, "format %u is not that of the vector", unsigned(record.format));
  const AddressCodec &codec = *codec_of(record.format);
  const Part part = part_of(codec);
  for (size_t at = part.size; at < record_size(native) - offsetof(Record, address); ++at)
    if (record.address[at] != 0) return fail(FI_EINVAL, "a byte behind the address is not 0");
  alignas(8) unsigned char native_form[Address::kMaxSize] = {};
  std::memcpy(native_form + part.at, record.address, part.size);
  if (codec.format == FI_SOCKADDR_IN6) {
    store(native_form, kScope, load<uint32_t>(native_form, kFlow));
    store(native_form, kFlow, uint32_t(0));
  }
  if (codec.format == FI_SOCKADDR_IN) store(native_form, 0, sa_family_t(AF_INET));
  if (codec.format == FI_SOCKADDR_IN6) store(native_form, 0, sa_family_t(AF_INET6));
  if (codec.format == FI_SOCKADDR_IB) store(native_form, 0, kFamilyIb);
  WEFT_TRY(const Address address, read_address(codec.format, native_form, codec.size));
  if (!address.names_peer())
    return fail(FI_EINVAL, "%s names no peer", address.to_string().c_str());
  return std::optional<Address>(address);
}

AvFile::Record AvFile::make_record(const std::optional<Address> &address) {
  Record record{};
  if (!address) return record;
  const AddressCodec &codec = *codec_of(address->format());
  const Part part = part_of(codec);
  record.format = uint8_t(codec.format);
  std::memcpy(record.address, static_cast<const char *>(address->data()) + part.at, part.size);
  if (codec.format == FI_SOCKADDR_IN6)
    store(record.address, kFlow - kFamily, load<uint32_t>(address->data(), kScope));
  return record;
}

// Whether the name still means the file.
bool AvFile::is_named() const {
  struct stat mine, named;
  return fstat(fd_, &mine) == 0 && lstat(path_.c_str(), &named) == 0 &&
         mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
}

AvFile::~AvFile() {
  // The process that gets the lock for itself is the last one. It gives up its share first, so that
  // one of several processes that leave at the same time gets the lock.
  if (linked_) {
    set_lock(fd_, kOpenByte, F_UNLCK);
    if (set_lock(fd_, kOpenByte, F_WRLCK) == 0 && is_named()) unlink(path_.c_str());
  }
  if (header_ != nullptr) munmap(header_, kHeaderSize);
  if (names_ != nullptr) munmap(const_cast<fi_addr_t *>(names_), kNamesSize);
  ::close(fd_);
}

Result<std::unique_ptr<AvFile>> AvFile::open(const Settings &settings) {
  const char *path = settings.path.c_str();
  const uint64_t end = now_ns() + kWriterPatienceNs;
  do {
    const int make = settings.read_only ? 0 : O_CREAT;
    // Not blocking: the name might be one of a FIFO.
    const int fd = ::open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | make, 0600);
    if (fd < 0 && errno == ENOENT && settings.read_only)
      return fail(FI_ENOENT, "no shared address vector %s: FI_READ opens what exists", path);
    if (fd < 0)
      return fail(errno,
                  "shared address vector: cannot open %s: %s: remove it, or choose another name",
                  path, std::strerror(errno));
    std::unique_ptr<AvFile> file(new (std::nothrow) AvFile(fd, settings));
    if (file == nullptr) {
      ::close(fd);
      return fail(FI_ENOMEM, "no memory for a shared address vector");
    }
    struct stat status;
    if (fstat(fd, &status) != 0)
      return fail(errno, "shared address vector: %s: %s", path, std::strerror(errno));
    // One with two names is another file of this user, which somebody has linked here.
    if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 077) != 0 ||
        status.st_nlink > 1)
      return fail(FI_EACCES,
                  "shared address vector: %s is not a file that only user %u may open (owner %u, "
                  "mode %o): remove it, or choose another name",
                  path, unsigned(geteuid()), unsigned(status.st_uid), unsigned(status.st_mode));
    const bool first = set_lock(fd, kOpenByte, F_WRLCK) == 0;
    if (!first) {
      if (const int error = set_lock(fd, kOpenByte, F_RDLCK, Wait::kWriter); error != 0)
        return fail(error == EAGAIN ? FI_EAGAIN : error,
                    "shared address vector: cannot lock %s: %s", path, std::strerror(error));
    }
    // The last process before may have removed the file while this one waited.
    if (!file->is_named()) continue;
    file->linked_ = true;
    if (first && settings.read_only)  // what dead processes left; it goes
      return fail(FI_ENOENT, "no shared address vector %s: FI_READ opens what exists", path);
    WEFT_CHECK(first ? file->initialize(settings) : file->attach(settings));
    return file;
  } while (now_ns() < end);
  return fail(FI_EAGAIN, "shared address vector: %s comes and goes: try again", path);
}

// Files that killed processes have left: nobody shares the lock of one.
void AvFile::remove_abandoned() const {
  const size_t slash = path_.rfind('/');
  DIR *const files = opendir(path_.substr(0, slash + 1).c_str());
  if (files == nullptr) return;
  while (const dirent *const entry = readdir(files)) {
    const std::string_view name(entry->d_name);
    if (!name.starts_with(std::string(kPrefix) + ".") || name == path_.substr(slash + 1)) continue;
    const int fd =
        openat(dirfd(files), entry->d_name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) continue;
    struct stat mine, named;
    if (set_lock(fd, kOpenByte, F_WRLCK) == 0 && fstat(fd, &mine) == 0 &&
        fstatat(dirfd(files), entry->d_name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
        mine.st_ino == named.st_ino)
      unlinkat(dirfd(files), entry->d_name, 0);
    ::close(fd);
  }
  closedir(files);
}

Result<void> AvFile::initialize(const Settings &settings) {
  remove_abandoned();
  // Its pages are needed at once: where there is no room for them, a write to the mapping would end
  // the process.
  int error = ftruncate(fd_, 0) != 0 ? errno : posix_fallocate(fd_, 0, kHeaderSize);
  if (error == 0 && (ftruncate(fd_, kRecordsAt) != 0 || fchmod(fd_, 0600) != 0)) error = errno;
  if (error != 0)
    return fail(error, "shared address vector: cannot make %s: %s (see `df`)", path_.c_str(),
                std::strerror(error));
  void *memory = mmap(nullptr, kHeaderSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (memory == MAP_FAILED)
    return fail(errno, "shared address vector: cannot map %s: %s", path_.c_str(),
                std::strerror(errno));
  header_ = new (memory) Header{};
  header_->magic = kMagic;
  header_->version = kVersion;
  header_->addr_format = settings.addr_format;
  header_->native = settings.native;
  WEFT_CHECK(map_names(settings.map_addr));
  header_->map_addr = reinterpret_cast<uintptr_t>(names_);
  if (error = set_lock(fd_, kOpenByte, F_RDLCK); error != 0)  // lets the others in
    return fail(error, "shared address vector: cannot lock %s: %s", path_.c_str(),
                std::strerror(error));
  return {};
}

Result<void> AvFile::attach(const Settings &settings) {
  struct stat status;
  if (fstat(fd_, &status) != 0 || status.st_size < kRecordsAt)
    return fail(FI_EINVAL, "shared address vector: %s is too short for one: remove it",
                path_.c_str());
  const int protection = settings.read_only ? PROT_READ : PROT_READ | PROT_WRITE;
  void *memory = mmap(nullptr, kHeaderSize, protection, MAP_SHARED, fd_, 0);
  if (memory == MAP_FAILED)
    return fail(errno, "shared address vector: cannot map %s: %s", path_.c_str(),
                std::strerror(errno));
  header_ = static_cast<Header *>(memory);
  if (header_->magic != kMagic || header_->version != kVersion)
    return fail(FI_EINVAL,
                "shared address vector: %s is none of this version of weft: end the processes that "
                "use it, or remove it",
                path_.c_str());
  if (header_->addr_format != settings.addr_format || header_->native != settings.native)
    return fail(FI_EINVAL,
                "shared address vector: %s has addresses of format %u (%u), and this domain %u "
                "(%u): choose another name",
                path_.c_str(), header_->addr_format, header_->native, settings.addr_format,
                settings.native);
  WEFT_CHECK(counters());
  return map_names(settings.map_addr != 0 ? settings.map_addr : header_->map_addr);
}

// Where possible at the same address in each process.
Result<void> AvFile::map_names(uint64_t where) {
  void *memory = mmap(reinterpret_cast<void *>(uintptr_t(where)), kNamesSize, PROT_READ, MAP_SHARED,
                      fd_, kHeaderSize);
  if (memory == MAP_FAILED)
    return fail(errno, "shared address vector: cannot map %zu bytes of %s: %s (see `ulimit -v`)",
                kNamesSize, path_.c_str(), std::strerror(errno));
  names_ = static_cast<const fi_addr_t *>(memory);
  return {};
}

Result<AvFile::Counters> AvFile::counters() const {
  // The changes first: records that are read later are at least as new.
  Counters counters;
  counters.changes = header_->changes.load(std::memory_order_acquire);
  counters.end = header_->end.load(std::memory_order_acquire);
  struct stat status;
  if (counters.end > kMaxEntries || counters.end < seen_end_ || fstat(fd_, &status) != 0 ||
      status.st_size < place_of(counters.end))
    return fail(FI_EIO, "shared address vector: %s is damaged: it says it has %u entries",
                path_.c_str(), counters.end);
  return counters;
}

Result<void> AvFile::lock(LockKind kind) {
  const int error = kind == kWrite ? set_lock(fd_, kWriteByte, F_WRLCK, Wait::kWriter)
                                   : set_lock(fd_, kWriteByte, F_RDLCK, Wait::kReader);
  if (error == 0) return {};
  return fail(error,
              "shared address vector: cannot lock %s: %s: another process has been at it for long",
              path_.c_str(), std::strerror(error));
}

void AvFile::unlock() {
  // Other processes look only now, so none of them has to wait for a long insertion to end.
  if (written_end_ > seen_end_) {
    seen_end_ = written_end_;
    header_->end.store(seen_end_, std::memory_order_release);
  }
  if (written_again_) {
    written_again_ = false;
    seen_changes_ = header_->changes.fetch_add(1, std::memory_order_acq_rel) + 1;
  }
  set_lock(fd_, kWriteByte, F_UNLCK);
}

Result<void> AvFile::read(
    uint32_t from, uint32_t to,
    const std::function<void(uint32_t, const std::optional<Address> &)> &take) {
  constexpr uint32_t kBatch = 512;
  char bytes[kBatch * sizeof(Record)];
  while (from < to) {
    const uint32_t wanted = std::min(to - from, kBatch);
    const ssize_t got = pread(fd_, bytes, wanted * record_size_, place_of(from));
    if (got != ssize_t(wanted * record_size_))
      return fail(FI_EIO, "shared address vector: %s is damaged: it was cut short", path_.c_str());
    for (uint32_t i = 0; i < wanted; ++i) {
      Record record{};
      std::memcpy(&record, bytes + i * record_size_, record_size_);
      const auto address = parse(record, native_);
      if (!address)
        return fail(FI_EIO, "shared address vector: %s is damaged: entry %u: %s", path_.c_str(),
                    from + i, address.error().text.c_str());
      take(from + i, *address);
    }
    from += wanted;
  }
  return {};
}

Result<void> AvFile::write(uint32_t index, const std::optional<Address> &address) {
  const Record record = make_record(address);
  const fi_addr_t name = address ? index : FI_ADDR_NOTAVAIL;
  ssize_t put = pwrite(fd_, &name, sizeof name, off_t(kHeaderSize + index * sizeof name));
  if (put == ssize_t(sizeof name)) put = pwrite(fd_, &record, record_size_, place_of(index));
  if (put != ssize_t(record_size_)) {
    const int error = put < 0 ? errno : ENOSPC;
    return fail(error, "shared address vector: cannot write to %s: %s (see `df`)", path_.c_str(),
                std::strerror(error));
  }
  if (index < seen_end_)
    written_again_ = true;
  else
    written_end_ = std::max(written_end_, index + 1);
  return {};
}

}  // namespace weft::sdk
