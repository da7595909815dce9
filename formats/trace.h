// SPDX-License-Identifier: BSD-2-Clause
// The trace file of a process, as it is in memory: hook-trace writes it, tools/trace reads it.
//
// Example:
//    const FileHeader *file_in(const void *mapping) {
//      auto *file = static_cast<const FileHeader *>(mapping);
//      return file->magic == kMagic && file->version == kVersion ? file : nullptr;
//    }
//    const ObjectEntry *objects_of(const FileHeader &file) {
//      auto *bytes = reinterpret_cast<const char *>(&file);
//      return reinterpret_cast<const ObjectEntry *>(bytes + file.object_offset);
//    }
//
// One header, a table of objects, a table of addresses, then one ring of fixed-size records per
// thread. Every struct has a fixed size, and the header states offsets, sizes and counts; a reader
// checks them against the size of the file. Times are ticks of the clock that the header names. Not
// an interchange format: only a machine of the same byte order reads it, and `weft trace record`
// saves another (tools/trace/trace.proto).
#ifndef WEFT_FORMATS_TRACE_H
#define WEFT_FORMATS_TRACE_H

#include <cstddef>
#include <cstdint>

namespace weft::trace {

inline constexpr uint64_t kMagic = 0x3143525454464557;  // "WEFTTRC1", lowest byte first
inline constexpr uint32_t kVersion = 1;

// X(operation, kind). The order is part of the format: new ones go to the end.
//   post_tx, post_rx   start a transfer that a completion ends; inject   starts one without;
//   read               takes from a queue; note   is a fact that a call revealed, not a call;
//   call               all other calls
#define WEFT_TRACE_OPS(X)       \
  X(none, note)                 \
  X(send, post_tx)              \
  X(sendv, post_tx)             \
  X(sendmsg, post_tx)           \
  X(senddata, post_tx)          \
  X(inject, inject)             \
  X(injectdata, inject)         \
  X(recv, post_rx)              \
  X(recvv, post_rx)             \
  X(recvmsg, post_rx)           \
  X(tsend, post_tx)             \
  X(tsendv, post_tx)            \
  X(tsendmsg, post_tx)          \
  X(tsenddata, post_tx)         \
  X(tinject, inject)            \
  X(tinjectdata, inject)        \
  X(trecv, post_rx)             \
  X(trecvv, post_rx)            \
  X(trecvmsg, post_rx)          \
  X(read, post_tx)              \
  X(readv, post_tx)             \
  X(readmsg, post_tx)           \
  X(write, post_tx)             \
  X(writev, post_tx)            \
  X(writemsg, post_tx)          \
  X(writedata, post_tx)         \
  X(inject_write, inject)       \
  X(inject_writedata, inject)   \
  X(atomic, post_tx)            \
  X(atomicv, post_tx)           \
  X(atomicmsg, post_tx)         \
  X(inject_atomic, inject)      \
  X(fetch_atomic, post_tx)      \
  X(fetch_atomicv, post_tx)     \
  X(fetch_atomicmsg, post_tx)   \
  X(compare_atomic, post_tx)    \
  X(compare_atomicv, post_tx)   \
  X(compare_atomicmsg, post_tx) \
  X(cancel, call)               \
  X(setopt, call)               \
  X(tx_ctx, call)               \
  X(rx_ctx, call)               \
  X(cq_read, read)              \
  X(cq_readfrom, read)          \
  X(cq_readerr, read)           \
  X(cq_sread, read)             \
  X(cq_sreadfrom, read)         \
  X(cq_signal, call)            \
  X(completion, note)           \
  X(completion_error, note)     \
  X(eq_read, read)              \
  X(eq_sread, read)             \
  X(eq_readerr, read)           \
  X(eq_write, call)             \
  X(cntr_read, read)            \
  X(cntr_readerr, read)         \
  X(cntr_wait, call)            \
  X(cntr_add, call)             \
  X(cntr_set, call)             \
  X(cntr_adderr, call)          \
  X(cntr_seterr, call)          \
  X(setname, call)              \
  X(getname, call)              \
  X(getpeer, call)              \
  X(connect, call)              \
  X(listen, call)               \
  X(accept, call)               \
  X(reject, call)               \
  X(shutdown, call)             \
  X(join, call)                 \
  X(domain, call)               \
  X(passive_ep, call)           \
  X(eq_open, call)              \
  X(wait_open, call)            \
  X(trywait, call)              \
  X(av_open, call)              \
  X(cq_open, call)              \
  X(endpoint, call)             \
  X(scalable_ep, call)          \
  X(cntr_open, call)            \
  X(poll_open, call)            \
  X(stx_ctx, call)              \
  X(srx_ctx, call)              \
  X(close, call)                \
  X(bind, call)                 \
  X(control, call)              \
  X(mr_reg, call)               \
  X(mr_regv, call)              \
  X(mr_regattr, call)           \
  X(av_insert, call)            \
  X(av_insertsvc, call)         \
  X(av_insertsym, call)         \
  X(av_remove, call)            \
  X(wait, call)                 \
  X(poll, read)                 \
  X(retries, note)

enum class Op : uint16_t {
#define WEFT_TRACE_OP_(name, kind) name,
  WEFT_TRACE_OPS(WEFT_TRACE_OP_)
#undef WEFT_TRACE_OP_
      count
};
enum class Kind : uint8_t { note, call, post_tx, post_rx, inject, read };

struct OpInfo {
  const char *name;
  Kind kind;
};
inline constexpr OpInfo kOps[] = {
#define WEFT_TRACE_OP_(name, kind) {#name, Kind::kind},
    WEFT_TRACE_OPS(WEFT_TRACE_OP_)
#undef WEFT_TRACE_OP_
};
inline constexpr size_t kOpCount = static_cast<size_t>(Op::count);
inline constexpr uint32_t kNoPeer = 0xffffffff;
// The duration of most posts in quick succession, and of reads after reads in vain.
inline constexpr uint32_t kNotMeasured = 0xffffffff;

// One call that returned, or one completion. The members of each sort of record:
//                 size                 peer       tag                    flags        context
//   posts         bytes                fi_addr_t  tag, remote address    of the call  op_context
//                                                 of RMA, else CQ data
//   completion    bytes, as reported   source     tag, else CQ data      reported     op_context
//                                      (kNoPeer where it may be an id of FI_AV_USER_ID)
//   completion_error: the same, result = -err
//   reads         entries taken        -          ticks of the first     how many     what it was
//                                                 read in vain           were in vain asked for
//   eq_*          bytes                -          event                  -            id of the fid
//   cntr_*        value                -          ticks as above         as above     -
//   retries       posts in vain        -          operation              -            -
//   opens, mr_*   -, bytes             -          id of what was opened  flags        -
//   bind          -                    -          id of what was bound   flags        -
// A call in vain returned -FI_EAGAIN. Such calls are counted, not recorded one by one.
struct Record {
  uint32_t sequence;  // position in the thread's stream, from 1, modulo 2^32; 0: being written
  uint32_t duration;  // ticks; 0xfffffffe: that or more; kNotMeasured
  uint64_t begin;     // ticks
  uint64_t context;
  uint64_t tag;
  uint64_t flags;
  uint64_t size;
  uint32_t object;  // id of the object that was called
  uint32_t peer;    // an fi_addr_t, or kNoPeer
  int32_t result;
  uint16_t op;
  uint8_t depth;   // 0: called by the application; 1: from inside a call of depth 0, ...
  uint8_t fclass;  // FI_CLASS_... of the object
};
static_assert(sizeof(Record) == 64);

enum class Clock : uint32_t { tsc = 1, monotonic = 2 };  // monotonic: nanoseconds

// One moment on both clocks; all 0: none.
struct ClockPair {
  uint64_t ticks;
  uint64_t monotonic_ns;
};

struct FileHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t header_size;
  uint64_t file_size;
  uint64_t object_offset;
  uint32_t object_size, object_count;
  uint64_t address_offset;
  uint32_t address_size, address_count;
  uint64_t ring_offset;
  uint64_t ring_size;  // bytes from one ring to the next
  uint32_t ring_count, ring_header_size;
  uint32_t record_size, record_count;  // of each ring; a power of two

  uint32_t pid, uid;
  uint64_t process_start;  // clock ticks after boot, field 22 of /proc/PID/stat
  Clock clock;
  uint32_t ended;          // 1: the process has exited by itself
  ClockPair begin;         // when the file was made
  uint64_t begin_real_ns;  // the same moment on CLOCK_REALTIME
  ClockPair latest;        // when an object was opened or closed last
  char host[64];
  char boot_id[40];
  char program[256];  // /proc/PID/exe
  char arguments[256];

  uint32_t rings_used;  // the first so many have records
  uint32_t objects_used;
  uint32_t addresses_used;
  uint32_t keep;          // 1: not to be removed when the process ends
  uint64_t lost_records;  // of threads that got no ring
  uint64_t lost_objects;  // the table was full
  uint64_t lost_addresses;
  uint32_t phase;  // Phase
  uint32_t reserved;
};
static_assert(sizeof(FileHeader) <= 1024);

// Whether calls are recorded now.
enum class Phase : uint32_t { recording = 0, waiting = 1, stopping = 2, frozen = 3 };

enum class ObjectState : uint32_t { free = 0, open = 1, closed = 2 };

struct ObjectEntry {
  uint64_t id;
  uint64_t parent;  // id; 0: a fabric
  ObjectState state;
  uint32_t fclass;
  uint64_t opened, closed;  // ticks
  uint32_t place;           // of the element in its stack, 0 next to the application
  uint32_t cq_format;       // enum fi_cq_format + 1; 0: not known
  char element[32];         // name of the unit that made the object
  char stack[64];
  char address[64];  // of an endpoint: its own, as fi_tostr writes addresses without the prefix
  char peer[64];     // of a connected endpoint
  uint32_t tx_cq, rx_cq, eq, av, srx;  // ids of what is bound
  uint32_t ep_type;                    // enum fi_ep_type
  uint64_t tx_bind_flags, rx_bind_flags;
  uint64_t tx_op_flags, rx_op_flags;
  uint64_t caps;
  uint64_t reads_in_vain;  // of a queue, when it was closed
};
static_assert(sizeof(ObjectEntry) % 8 == 0);

// The address of a peer number, from the first insertions into address vectors.
struct AddressEntry {
  uint32_t av;    // id
  uint32_t peer;  // the fi_addr_t
  char address[56];
};
static_assert(sizeof(AddressEntry) == 64);

struct RingHeader {
  uint32_t state;  // RingState
  uint32_t tid;
  char name[16];   // of the thread
  uint64_t head;   // records written
  uint64_t first;  // of these, the first that belongs to this thread: rings are used again
  ClockPair latest;
};
static_assert(sizeof(RingHeader) == 56);
enum class RingState : uint32_t { unused = 0, taken = 1, given_back = 2 };
inline constexpr size_t kRingHeaderSize = 64;

}  // namespace weft::trace

#endif
