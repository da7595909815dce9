// SPDX-License-Identifier: BSD-2-Clause
// Snapshot: the records of one process, from its trace file (it may be alive or dead) or from a
// saved trace.
//
// Example:
//     Result<void> add_to_saved(const std::string &trace_file, const std::string &saved_file) {
//       WEFT_TRY(std::vector<Snapshot> saved, read_saved(saved_file));
//       WEFT_TRY(Snapshot process, read_process(trace_file));  // "/dev/shm/weft-0/4711.trace"
//       saved.push_back(std::move(process));
//       return write_saved(saved_file, saved);
//     }
//
// The process may have died while it wrote, and the file may be damaged: the reader checks all of
// it against its size, and leaves out and counts incomplete records. Times are ticks here; to_ns()
// turns them into nanoseconds of CLOCK_MONOTONIC. Not for analysis: timeline.h.
#ifndef WEFT_TOOLS_TRACE_SNAPSHOT_H
#define WEFT_TOOLS_TRACE_SNAPSHOT_H

#include <weft/result.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/trace.h"

namespace weft::trace {

struct ClockInfo {
  Clock kind = Clock::kMonotonic;
  uint64_t begin_ticks = 0, begin_monotonic_ns = 0, begin_real_ns = 0;
  uint64_t span_ticks = 1, span_ns = 1;  // never 0

  int64_t to_ns(uint64_t ticks) const;       // on CLOCK_MONOTONIC of the host
  uint64_t length_ns(uint64_t ticks) const;  // of a duration
  int64_t to_real_ns(int64_t monotonic_ns) const;
};

struct ObjectInfo {
  uint64_t id = 0, parent = 0;
  uint32_t fclass = 0;
  bool closed = false;
  uint64_t opened = 0, closed_at = 0;
  uint32_t place = 0, cq_format = 0;
  std::string element, stack, address, peer;
  uint32_t tx_cq = 0, rx_cq = 0, eq = 0, av = 0, srx = 0, ep_type = 0;
  uint64_t tx_bind_flags = 0, rx_bind_flags = 0, tx_op_flags = 0, rx_op_flags = 0, caps = 0;
  uint64_t reads_in_vain = 0;
};

struct AddressInfo {
  uint32_t av = 0, peer = 0;
  std::string address;
};

struct ThreadInfo {
  uint32_t tid = 0;
  std::string name;
  bool ended = false;
  uint64_t written = 0;  // the first written - records.size() - torn are overwritten
  uint64_t torn = 0;
  std::vector<Record> records;

  uint64_t overwritten() const {
    const uint64_t there = records.size() + torn;
    return written > there ? written - there : 0;
  }
};

struct Snapshot {
  uint32_t pid = 0;
  std::string host, boot_id, program, arguments;
  bool alive = false, ended = false;
  ClockInfo clock;
  std::vector<ObjectInfo> objects;
  std::vector<AddressInfo> addresses;
  std::vector<ThreadInfo> threads;
  uint64_t lost_records = 0, lost_objects = 0, lost_addresses = 0;
  Phase phase = Phase::kRecording;
};

// The bytes of a trace file. They may be mapped, and change while they are read.
Result<Snapshot> read_bytes(std::span<const uint8_t> bytes);
// A trace file of this machine. `alive` says whether its process still runs.
Result<Snapshot> read_process(const std::string &path);
// The header alone, for lists.
Result<FileHeader> read_header(const std::string &path);
// Whether the process of a header still runs. Process numbers are used again, so this also compares
// its start time.
bool is_alive(const FileHeader &header);

Result<std::vector<Snapshot>> parse_saved(std::string_view bytes);
std::string to_saved(const std::vector<Snapshot> &processes);
Result<std::vector<Snapshot>> read_saved(const std::string &path);
// `only_new`: nobody chose the name. Others can guess it, so what is there already is an error, and
// no link is followed.
Result<void> write_saved(const std::string &path, const std::vector<Snapshot> &processes,
                         bool only_new = false);

// A trace file or a saved trace; the first bytes tell which.
Result<std::vector<Snapshot>> read_any(const std::string &path);

// The trace files of this user's processes, by name; without those that a process has not finished
// making.
Result<std::vector<std::string>> trace_files();

const char *class_name(uint32_t fclass);
const char *phase_name(Phase phase);

}  // namespace weft::trace

#endif
