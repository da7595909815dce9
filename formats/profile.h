// SPDX-License-Identifier: BSD-2-Clause
// The segment of the hook profile, PID.profile in weft::runtime_directory(): counters and
// histograms that a process keeps up to date and any process of the same user may read at any time.
//
//   header | types | fields | records ...
//
// The segment describes itself. A reader knows only this file: each type of record has a name and
// fields, and each field has a name, kind, unit and place.
//
// Example:
//    #include <atomic>
//    #include <cstring>
//    #include <vector>
//    // Copies a record of the mapped segment. False: it is free.
//    bool read(const Record &record, std::vector<char> &copy) {
//      copy.resize(record.size);
//      uint32_t before = 0, after = 0;
//      do {
//        before = __atomic_load_n(&record.sequence, __ATOMIC_ACQUIRE);
//        std::memcpy(copy.data(), &record, record.size);
//        std::atomic_thread_fence(std::memory_order_acquire);
//        after = __atomic_load_n(&record.sequence, __ATOMIC_RELAXED);
//      } while ((before & 1) != 0 || before != after);  // odd: it is being written
//      return record.live != 0;
//    }
//
// A writer never waits for readers. Threads that share an object write to different records with
// the same labels: a reader sums them. `structure` of the header is such a sequence for the whole
// segment: records come and go only while it is odd. When an object closes, its counts are added to
// the record of all closed objects, so that sums never fall. Numbers have the machine's byte order:
// the segment never leaves the machine.
//
// The writer holds a lock on the file (flock) as long as it lives; a file without it is abandoned.
//
// Not for data that must survive the process: the segment is removed with it.
#ifndef WEFT_FORMATS_PROFILE_H
#define WEFT_FORMATS_PROFILE_H

#include <bit>
#include <cstddef>
#include <cstdint>

namespace weft::profile {

inline constexpr char kMagic[8] = {'W', 'E', 'F', 'T', 'P', 'R', 'O', 'F'};
inline constexpr uint32_t kVersion = 1;

// The purpose of a field.
enum Kind : uint32_t {
  kLabel = 1,      // names the object or the operation of the record
  kCounter = 2,    // only grows
  kGauge = 3,      // goes up and down
  kHistogram = 4,  // `count` counters, one for each bucket
};
// The type of its `count` values.
enum Type : uint32_t { kU32 = 1, kU64 = 2, kText = 3 };  // text: bytes up to the first zero

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t header_size;
  uint64_t size;       // bytes of the file
  uint64_t structure;  // odd while records come or go
  uint64_t used;       // end of the last record
  uint32_t type_count, type_size;
  uint64_t types;  // offset of the first TypeEntry
  uint32_t field_count, field_size;
  uint64_t fields;   // offset of the first FieldEntry
  uint64_t records;  // offset of the first record; each is followed by the next
  uint64_t lost;     // records for which there was no room; their counts are missing
  uint64_t pid;
  uint64_t start_ticks;  // of the process, as in /proc/PID/stat; PIDs are used again
  uint64_t opened_ns;    // CLOCK_REALTIME, when counting began
  char program[64];
};
static_assert(sizeof(Header) == 176);

struct TypeEntry {
  char name[32];
  char help[96];
  uint32_t first_field, field_count;
  uint32_t record_size;
  uint32_t reserved;
};
static_assert(sizeof(TypeEntry) == 144);

struct FieldEntry {
  char name[32];
  char unit[16];
  char help[96];
  uint32_t kind;      // Kind
  uint32_t type;      // Type
  uint32_t offset;    // from the start of the record
  uint32_t count;     // of numbers or bytes
  uint32_t sub_bits;  // histograms: see bucket_of
  // Histograms: 1 + index in the type of the counter with the sum of all values; or 0.
  uint32_t sum;
};
static_assert(sizeof(FieldEntry) == 168);

struct Record {
  uint32_t type;      // index of its TypeEntry
  uint32_t size;      // to the next record, a multiple of 64
  uint32_t live;      // 0: free, to be passed over
  uint32_t sequence;  // odd while it is written
};

// Buckets of a histogram: the values below 2^sub_bits have one each; above, each power of two is
// cut into 2^sub_bits equal parts. The last bucket takes all larger values.
constexpr uint32_t bucket_of(uint64_t value, uint32_t sub_bits, uint32_t count) {
  uint64_t bucket = value;
  if (value >> sub_bits != 0) {
    const uint32_t shift = 63 - static_cast<uint32_t>(std::countl_zero(value)) - sub_bits;
    bucket = (uint64_t{shift} << sub_bits) + (value >> shift);
  }
  return bucket < count ? static_cast<uint32_t>(bucket) : count - 1;
}
// The smallest value of a bucket.
constexpr uint64_t bucket_start(uint32_t bucket, uint32_t sub_bits) {
  if (bucket >> sub_bits == 0) return bucket;
  const uint32_t shift = (bucket >> sub_bits) - 1;
  const uint64_t mantissa = (bucket & ((1u << sub_bits) - 1)) | (1u << sub_bits);
  return shift + sub_bits > 63 ? UINT64_MAX : mantissa << shift;
}
// The number of buckets for values up to 2^bits.
constexpr uint32_t buckets_to(uint32_t bits, uint32_t sub_bits) {
  return (bits - sub_bits + 1) << sub_bits;
}

}  // namespace weft::profile

#endif
