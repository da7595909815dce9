// SPDX-License-Identifier: BSD-2-Clause
#include "tools/trace/snapshot.h"

#include <fcntl.h>
#include <rdma/fabric.h>
#include <signal.h>
#include <unistd.h>
#include <weft/printable.h>
#include <weft/runtime_dir.h>
#include <weft/sdk/progress/unique_fd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "formats/trace_clock.h"
#include "tools/trace/mapping.h"

namespace weft::trace {
namespace {

template <size_t kSize>
std::string text_of(const char (&place)[kSize]) {
  return printable({place, strnlen(place, kSize)});
}

// A value of a file that a process may be writing to.
template <class T>
T load(const uint8_t *place) {
  T value;
  std::memcpy(&value, place, sizeof value);
  return value;
}
uint32_t load_sequence(const uint8_t *record) {
  return __atomic_load_n(reinterpret_cast<const uint32_t *>(record), __ATOMIC_ACQUIRE);
}

// offset + count * size within the file, without overflow.
bool fits(uint64_t file, uint64_t offset, uint64_t count, uint64_t size) {
  if (offset > file || size == 0) return false;
  return count <= (file - offset) / size;
}

Result<FileHeader> check_header(std::span<const uint8_t> bytes) {
  FileHeader h{};
  if (bytes.size() < sizeof h) return fail(FI_EINVAL, "too short for a trace file: cut off?");
  h = load<FileHeader>(bytes.data());
  if (h.magic != kMagic) return fail(FI_EINVAL, "not a trace file");
  if (h.version != kVersion)
    return fail(FI_ENOSYS, "a trace file of version %u: this program knows %u", h.version,
                kVersion);
  if (h.header_size < sizeof h || h.object_size < sizeof(ObjectEntry) ||
      h.address_size < sizeof(AddressEntry) || h.record_size != sizeof(Record) ||
      h.ring_header_size < sizeof(RingHeader) || h.ring_header_size % 8 != 0 ||
      h.ring_offset % 8 != 0 || h.ring_size % 8 != 0 || !std::has_single_bit(h.record_count) ||
      !fits(bytes.size(), h.object_offset, h.object_count, h.object_size) ||
      !fits(bytes.size(), h.address_offset, h.address_count, h.address_size) ||
      !fits(bytes.size(), h.ring_offset, h.ring_count, h.ring_size) ||
      !fits(h.ring_size, h.ring_header_size, h.record_count, sizeof(Record)))
    return fail(FI_EINVAL, "a damaged trace file: its header does not fit its %zu bytes",
                bytes.size());
  h.objects_used = std::min(h.objects_used, h.object_count);
  h.addresses_used = std::min(h.addresses_used, h.address_count);
  h.rings_used = std::min(h.rings_used, h.ring_count);
  return h;
}

// Keeps the pair that is furthest from the begin: a longer stretch gives a better tick length.
void widen(ClockInfo &clock, const ClockPair &pair) {
  if (pair.monotonic_ns <= clock.begin_monotonic_ns || pair.ticks <= clock.begin_ticks) return;
  const uint64_t span = pair.monotonic_ns - clock.begin_monotonic_ns;
  if (span <= clock.span_ns) return;
  clock.span_ns = span;
  clock.span_ticks = pair.ticks - clock.begin_ticks;
}

ThreadInfo read_ring(const FileHeader &h, const uint8_t *ring, ClockInfo &clock) {
  auto header = load<RingHeader>(ring);
  header.head = __atomic_load_n(
      reinterpret_cast<const uint64_t *>(ring + offsetof(RingHeader, head)), __ATOMIC_ACQUIRE);
  widen(clock, header.latest);
  ThreadInfo thread;
  thread.tid = header.tid;
  thread.name = text_of(header.name);
  thread.ended = header.state == uint32_t(RingState::kGivenBack);
  header.first = std::min(header.first, header.head);
  thread.written = header.head - header.first;
  const uint64_t count = std::min<uint64_t>(thread.written, h.record_count);
  const uint8_t *records = ring + h.ring_header_size;
  thread.records.reserve(count);
  // Reads one record more than the count: the last may be complete before the count is. The numbers
  // may wrap, because `head` can be anything in a damaged file.
  for (uint64_t i = 0; i <= count; ++i) {
    const uint64_t n = header.head - count + i;
    const uint8_t *place = records + (n & (h.record_count - 1)) * sizeof(Record);
    const auto wanted = uint32_t(n + 1) != 0 ? uint32_t(n + 1) : 1;
    if (load_sequence(place) != wanted) {
      if (i < count) ++thread.torn;
      continue;
    }
    const auto record = load<Record>(place);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (load_sequence(place) != wanted) {
      if (i < count) ++thread.torn;
      continue;
    }
    if (i == count) ++thread.written;
    thread.records.push_back(record);
    thread.records.back().sequence = wanted;
  }
  return thread;
}

ObjectInfo read_object(const ObjectEntry &e) {
  ObjectInfo object;
  object.id = e.id;
  object.parent = e.parent;
  object.fclass = e.fclass;
  object.closed = e.state == ObjectState::kClosed;
  object.opened = e.opened;
  object.closed_at = e.closed;
  object.place = e.place;
  object.cq_format = e.cq_format;
  object.element = text_of(e.element);
  object.stack = text_of(e.stack);
  object.address = text_of(e.address);
  object.peer = text_of(e.peer);
  object.tx_cq = e.tx_cq;
  object.rx_cq = e.rx_cq;
  object.eq = e.eq;
  object.av = e.av;
  object.srx = e.srx;
  object.ep_type = e.ep_type;
  object.tx_bind_flags = e.tx_bind_flags;
  object.rx_bind_flags = e.rx_bind_flags;
  object.tx_op_flags = e.tx_op_flags;
  object.rx_op_flags = e.rx_op_flags;
  object.caps = e.caps;
  object.reads_in_vain = e.reads_in_vain;
  return object;
}

std::string first_line(const char *path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Times are clamped to nine years, so that sums and differences of two cannot overflow.
constexpr int64_t kFar = int64_t{1} << 58;
template <class T>
int64_t near(T ns) {
  return int64_t(std::clamp<T>(ns, T(-kFar), T(kFar)));
}
}  // namespace

int64_t ClockInfo::to_ns(uint64_t ticks) const {
  const auto since = int64_t(ticks - begin_ticks);
  const auto ns = static_cast<__int128>(since) * std::min(span_ns, uint64_t{1} << 60) / span_ticks;
  return near(static_cast<__int128>(begin_monotonic_ns) + ns);
}
uint64_t ClockInfo::length_ns(uint64_t ticks) const {
  const auto ns = static_cast<unsigned __int128>(ticks) * span_ns / span_ticks;
  return ns < uint64_t(kFar) ? uint64_t(ns) : uint64_t(kFar);
}
int64_t ClockInfo::to_real_ns(int64_t monotonic_ns) const {
  return near(static_cast<__int128>(monotonic_ns) + begin_real_ns - begin_monotonic_ns);
}

Result<Snapshot> read_bytes(std::span<const uint8_t> bytes) {
  WEFT_TRY(const FileHeader h, check_header(bytes));
  Snapshot process;
  process.pid = h.pid;
  process.host = text_of(h.host);
  process.boot_id = text_of(h.boot_id);
  process.program = text_of(h.program);
  process.arguments = text_of(h.arguments);
  while (!process.arguments.empty() && process.arguments.back() == ' ')
    process.arguments.pop_back();
  process.ended = h.ended != 0;
  process.lost_records = h.lost_records;
  process.lost_objects = h.lost_objects;
  process.lost_addresses = h.lost_addresses;
  process.phase = h.phase <= uint32_t(Phase::kFrozen) ? Phase(h.phase) : Phase::kRecording;
  ClockInfo &clock = process.clock;
  clock.kind = h.clock == Clock::kTsc ? Clock::kTsc : Clock::kMonotonic;
  clock.begin_ticks = h.begin.ticks;
  clock.begin_monotonic_ns = h.begin.monotonic_ns;
  clock.begin_real_ns = h.begin_real_ns;
  widen(clock, h.latest);
  for (uint32_t i = 0; i < h.objects_used; ++i) {
    const auto entry =
        load<ObjectEntry>(bytes.data() + h.object_offset + uint64_t(i) * h.object_size);
    if (entry.state == ObjectState::kOpen || entry.state == ObjectState::kClosed)
      process.objects.push_back(read_object(entry));
  }
  for (uint32_t i = 0; i < h.addresses_used; ++i) {
    const auto entry =
        load<AddressEntry>(bytes.data() + h.address_offset + uint64_t(i) * h.address_size);
    process.addresses.push_back({entry.av, entry.peer, text_of(entry.address)});
  }
  for (uint32_t i = 0; i < h.rings_used; ++i) {
    ThreadInfo thread = read_ring(h, bytes.data() + h.ring_offset + i * h.ring_size, clock);
    if (thread.written > 0) process.threads.push_back(std::move(thread));
  }
  if (clock.kind == Clock::kMonotonic) clock.span_ticks = clock.span_ns = 1;
  return process;
}

Result<Snapshot> read_process(const std::string &path) {
  WEFT_TRY(const std::unique_ptr<Mapping> mapping, Mapping::of(path));
  WEFT_TRY(const FileHeader h, of_file(check_header(mapping->bytes()), path));
  WEFT_TRY(Snapshot process, of_file(read_bytes(mapping->bytes()), path));
  process.alive = is_alive(h);
#if defined(__x86_64__)
  // The time stamps of this boot still count, so the clocks can be compared up to now.
  if (process.clock.kind == Clock::kTsc &&
      process.boot_id == first_line("/proc/sys/kernel/random/boot_id"))
    widen(process.clock, both_clocks(time_stamp));
#endif
  return process;
}

Result<FileHeader> read_header(const std::string &path) {
  WEFT_TRY(const std::unique_ptr<Mapping> mapping, Mapping::of(path));
  return of_file(check_header(mapping->bytes()), path);
}

bool is_alive(const FileHeader &h) {
  if (text_of(h.boot_id) != first_line("/proc/sys/kernel/random/boot_id")) return false;
  const std::string stat = first_line(("/proc/" + std::to_string(h.pid) + "/stat").c_str());
  size_t at = stat.rfind(')');
  if (at == std::string::npos) return false;
  if (at + 2 < stat.size() && stat[at + 2] == 'Z') return false;
  ++at;
  for (int field = 3; field < 22 && at != std::string::npos; ++field) at = stat.find(' ', at + 1);
  return at != std::string::npos && strtoull(stat.c_str() + at, nullptr, 10) == h.process_start;
}

// Whether the process that the file is named after still makes it: the hook writes the magic number
// last.
static bool is_being_made(const std::filesystem::path &path) {
  uint64_t magic = 0;
  const sdk::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (pread(file.get(), &magic, sizeof magic, 0) < 0) return false;
  const pid_t pid = atoi(path.filename().c_str());
  return magic == 0 && pid > 0 && (kill(pid, 0) == 0 || errno == EPERM);
}

Result<std::vector<std::string>> trace_files() {
  WEFT_TRY(const std::string folder, runtime_directory());
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".trace" && !is_being_made(it->path()))
      found.push_back(it->path().string());
  }
  if (error) return fail(error.value(), "%s: %s", folder.c_str(), error.message().c_str());
  std::sort(found.begin(), found.end());
  return found;
}

const char *class_name(uint32_t fclass) {
  switch (fclass) {
    case FI_CLASS_FABRIC:
      return "fabric";
    case FI_CLASS_DOMAIN:
      return "domain";
    case FI_CLASS_EP:
      return "ep";
    case FI_CLASS_SEP:
      return "sep";
    case FI_CLASS_RX_CTX:
      return "rx_ctx";
    case FI_CLASS_SRX_CTX:
      return "srx_ctx";
    case FI_CLASS_TX_CTX:
      return "tx_ctx";
    case FI_CLASS_STX_CTX:
      return "stx_ctx";
    case FI_CLASS_PEP:
      return "pep";
    case FI_CLASS_AV:
      return "av";
    case FI_CLASS_MR:
      return "mr";
    case FI_CLASS_EQ:
      return "eq";
    case FI_CLASS_CQ:
      return "cq";
    case FI_CLASS_CNTR:
      return "cntr";
    case FI_CLASS_WAIT:
      return "wait";
    case FI_CLASS_POLL:
      return "poll";
    default:
      return "object";
  }
}

const char *phase_name(Phase phase) {
  switch (phase) {
    case Phase::kRecording:
      return "recording";
    case Phase::kWaiting:
      return "waiting";
    case Phase::kStopping:
      return "stopping";
    case Phase::kFrozen:
      return "frozen";
  }
  return "recording";
}

}  // namespace weft::trace
