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
  X(none, kNote)                \
  X(send, kPostTx)              \
  X(sendv, kPostTx)             \
  X(sendmsg, kPostTx)           \
  X(senddata, kPostTx)          \
  X(inject, kInject)            \
  X(injectdata, kInject)        \
  X(recv, kPostRx)              \
  X(recvv, kPostRx)             \
  X(recvmsg, kPostRx)           \
  X(tsend, kPostTx)             \
  X(tsendv, kPostTx)            \
  X(tsendmsg, kPostTx)          \
  X(tsenddata, kPostTx)         \
  X(tinject, kInject)           \
  X(tinjectdata, kInject)       \
  X(trecv, kPostRx)             \
  X(trecvv, kPostRx)            \
  X(trecvmsg, kPostRx)          \
  X(read, kPostTx)              \
  X(readv, kPostTx)             \
  X(readmsg, kPostTx)           \
  X(write, kPostTx)             \
  X(writev, kPostTx)            \
  X(writemsg, kPostTx)          \
  X(writedata, kPostTx)         \
  X(inject_write, kInject)      \
  X(inject_writedata, kInject)  \
  X(atomic, kPostTx)            \
  X(atomicv, kPostTx)           \
  X(atomicmsg, kPostTx)         \
  X(inject_atomic, kInject)     \
  X(fetch_atomic, kPostTx)      \
  X(fetch_atomicv, kPostTx)     \
  X(fetch_atomicmsg, kPostTx)   \
  X(compare_atomic, kPostTx)    \
  X(compare_atomicv, kPostTx)   \
  X(compare_atomicmsg, kPostTx) \
  X(cancel, kCall)              \
  X(setopt, kCall)              \
  X(tx_ctx, kCall)              \
  X(rx_ctx, kCall)              \
  X(cq_read, kRead)             \
  X(cq_readfrom, kRead)         \
  X(cq_readerr, kRead)          \
  X(cq_sread, kRead)            \
  X(cq_sreadfrom, kRead)        \
  X(cq_signal, kCall)           \
  X(completion, kNote)          \
  X(completion_error, kNote)    \
  X(eq_read, kRead)             \
  X(eq_sread, kRead)            \
  X(eq_readerr, kRead)          \
  X(eq_write, kCall)            \
  X(cntr_read, kRead)           \
  X(cntr_readerr, kRead)        \
  X(cntr_wait, kCall)           \
  X(cntr_add, kCall)            \
  X(cntr_set, kCall)            \
  X(cntr_adderr, kCall)         \
  X(cntr_seterr, kCall)         \
  X(setname, kCall)             \
  X(getname, kCall)             \
  X(getpeer, kCall)             \
  X(connect, kCall)             \
  X(listen, kCall)              \
  X(accept, kCall)              \
  X(reject, kCall)              \
  X(shutdown, kCall)            \
  X(join, kCall)                \
  X(domain, kCall)              \
  X(passive_ep, kCall)          \
  X(eq_open, kCall)             \
  X(wait_open, kCall)           \
  X(trywait, kCall)             \
  X(av_open, kCall)             \
  X(cq_open, kCall)             \
  X(endpoint, kCall)            \
  X(scalable_ep, kCall)         \
  X(cntr_open, kCall)           \
  X(poll_open, kCall)           \
  X(stx_ctx, kCall)             \
  X(srx_ctx, kCall)             \
  X(close, kCall)               \
  X(bind, kCall)                \
  X(control, kCall)             \
  X(mr_reg, kCall)              \
  X(mr_regv, kCall)             \
  X(mr_regattr, kCall)          \
  X(av_insert, kCall)           \
  X(av_insertsvc, kCall)        \
  X(av_insertsym, kCall)        \
  X(av_remove, kCall)           \
  X(wait, kCall)                \
  X(poll, kRead)                \
  X(retries, kNote)

enum class Op : uint16_t {
#define WEFT_TRACE_OP_(name, kind) name,
  WEFT_TRACE_OPS(WEFT_TRACE_OP_)
#undef WEFT_TRACE_OP_
      count
};
enum class Kind : uint8_t { kNote, kCall, kPostTx, kPostRx, kInject, kRead };

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

enum class Clock : uint32_t { kTsc = 1, kMonotonic = 2 };  // monotonic: nanoseconds

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
enum class Phase : uint32_t { kRecording = 0, kWaiting = 1, kStopping = 2, kFrozen = 3 };

enum class ObjectState : uint32_t { kFree = 0, kOpen = 1, kClosed = 2 };

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
enum class RingState : uint32_t { kUnused = 0, kTaken = 1, kGivenBack = 2 };
inline constexpr size_t kRingHeaderSize = 64;

}  // namespace weft::trace

#endif
