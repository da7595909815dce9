// SPDX-License-Identifier: BSD-2-Clause
// Saved traces (trace.proto): written and read.
#include <fcntl.h>
#include <weft/printable.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tools/trace/mapping.h"
#include "tools/trace/snapshot.h"
#include "tools/trace/trace.pb.h"

namespace weft::trace {
namespace {

constexpr const char kSavedMagic[] = "weft trace";
constexpr uint32_t kSavedVersion = 1;

ObjectInfo parse_object(const saved::Object &o) {
  ObjectInfo object;
  object.id = o.id();
  object.parent = o.parent();
  object.fclass = o.fclass();
  object.closed = o.closed();
  object.opened = o.opened_ticks();
  object.closed_at = o.closed_ticks();
  object.place = o.place();
  object.cq_format = o.cq_format();
  object.element = printable(o.element());
  object.stack = printable(o.stack());
  object.address = printable(o.address());
  object.peer = printable(o.peer());
  object.tx_cq = o.tx_cq();
  object.rx_cq = o.rx_cq();
  object.eq = o.eq();
  object.av = o.av();
  object.srx = o.srx();
  object.ep_type = o.ep_type();
  object.tx_bind_flags = o.tx_bind_flags();
  object.rx_bind_flags = o.rx_bind_flags();
  object.tx_op_flags = o.tx_op_flags();
  object.rx_op_flags = o.rx_op_flags();
  object.caps = o.caps();
  object.reads_in_vain = o.reads_in_vain();
  return object;
}

void save_object(const ObjectInfo &object, saved::Object &o) {
  o.set_id(object.id);
  o.set_parent(object.parent);
  o.set_fclass(object.fclass);
  o.set_closed(object.closed);
  o.set_opened_ticks(object.opened);
  o.set_closed_ticks(object.closed_at);
  o.set_place(object.place);
  o.set_cq_format(object.cq_format);
  o.set_element(object.element);
  o.set_stack(object.stack);
  o.set_address(object.address);
  o.set_peer(object.peer);
  o.set_tx_cq(object.tx_cq);
  o.set_rx_cq(object.rx_cq);
  o.set_eq(object.eq);
  o.set_av(object.av);
  o.set_srx(object.srx);
  o.set_ep_type(object.ep_type);
  o.set_tx_bind_flags(object.tx_bind_flags);
  o.set_rx_bind_flags(object.rx_bind_flags);
  o.set_tx_op_flags(object.tx_op_flags);
  o.set_rx_op_flags(object.rx_op_flags);
  o.set_caps(object.caps);
  o.set_reads_in_vain(object.reads_in_vain);
}

}  // namespace

Result<std::vector<Snapshot>> parse_saved(std::string_view bytes) {
  saved::Trace trace;
  if (bytes.size() > INT32_MAX || !trace.ParseFromArray(bytes.data(), int(bytes.size())) ||
      trace.magic() != kSavedMagic)
    return fail(FI_EINVAL, "not a trace: neither a process's file nor a saved one");
  if (trace.version() != kSavedVersion)
    return fail(FI_ENOSYS, "a saved trace of version %u: this program knows %u", trace.version(),
                kSavedVersion);
  std::vector<Snapshot> processes;
  for (const saved::Process &p : trace.processes()) {
    Snapshot &process = processes.emplace_back();
    process.pid = p.pid();
    process.host = printable(p.host());
    process.boot_id = printable(p.boot_id());
    process.program = printable(p.program());
    process.arguments = printable(p.arguments());
    process.alive = p.alive();
    process.ended = p.ended();
    process.lost_records = p.lost_records();
    process.lost_objects = p.lost_objects();
    process.lost_addresses = p.lost_addresses();
    for (const Phase phase : {Phase::kWaiting, Phase::kStopping, Phase::kFrozen}) {
      if (p.phase() == phase_name(phase)) process.phase = phase;
    }
    process.clock = {p.clock().kind() == "tsc" ? Clock::kTsc : Clock::kMonotonic,
                     p.clock().begin_ticks(),
                     p.clock().begin_monotonic_ns(),
                     p.clock().begin_real_ns(),
                     std::max<uint64_t>(p.clock().span_ticks(), 1),
                     std::max<uint64_t>(p.clock().span_ns(), 1)};
    for (const saved::Object &o : p.objects()) process.objects.push_back(parse_object(o));
    for (const saved::Address &a : p.addresses())
      process.addresses.push_back({a.av(), a.peer(), printable(a.address())});
    for (const saved::Thread &t : p.threads()) {
      if (t.records().size() % sizeof(Record) != 0)
        return fail(FI_EINVAL, "a damaged trace: the records of thread %u are cut off", t.tid());
      ThreadInfo &thread = process.threads.emplace_back();
      thread.tid = t.tid();
      thread.name = printable(t.name());
      thread.ended = t.ended();
      thread.written = t.written();
      thread.torn = t.torn();
      thread.records.resize(t.records().size() / sizeof(Record));
      if (!thread.records.empty())
        std::memcpy(thread.records.data(), t.records().data(), t.records().size());
    }
  }
  return processes;
}

std::string to_saved(const std::vector<Snapshot> &processes) {
  saved::Trace trace;
  trace.set_magic(kSavedMagic);
  trace.set_version(kSavedVersion);
  for (const Snapshot &process : processes) {
    saved::Process &p = *trace.add_processes();
    p.set_pid(process.pid);
    p.set_host(process.host);
    p.set_boot_id(process.boot_id);
    p.set_program(process.program);
    p.set_arguments(process.arguments);
    p.set_alive(process.alive);
    p.set_ended(process.ended);
    p.set_lost_records(process.lost_records);
    p.set_lost_objects(process.lost_objects);
    p.set_lost_addresses(process.lost_addresses);
    p.set_phase(phase_name(process.phase));
    saved::Clock &clock = *p.mutable_clock();
    clock.set_kind(process.clock.kind == Clock::kTsc ? "tsc" : "monotonic");
    clock.set_begin_ticks(process.clock.begin_ticks);
    clock.set_begin_monotonic_ns(process.clock.begin_monotonic_ns);
    clock.set_begin_real_ns(process.clock.begin_real_ns);
    clock.set_span_ticks(process.clock.span_ticks);
    clock.set_span_ns(process.clock.span_ns);
    for (const ObjectInfo &object : process.objects) save_object(object, *p.add_objects());
    for (const AddressInfo &address : process.addresses) {
      saved::Address &a = *p.add_addresses();
      a.set_av(address.av);
      a.set_peer(address.peer);
      a.set_address(address.address);
    }
    for (const ThreadInfo &thread : process.threads) {
      saved::Thread &t = *p.add_threads();
      t.set_tid(thread.tid);
      t.set_name(thread.name);
      t.set_ended(thread.ended);
      t.set_written(thread.written);
      t.set_torn(thread.torn);
      t.set_records(thread.records.data(), thread.records.size() * sizeof(Record));
    }
  }
  return trace.SerializeAsString();
}

Result<std::vector<Snapshot>> read_saved(const std::string &path) {
  WEFT_TRY(const std::unique_ptr<Mapping> mapping, Mapping::of(path));
  const auto bytes = mapping->bytes();
  return of_file(parse_saved({reinterpret_cast<const char *>(bytes.data()), bytes.size()}), path);
}

Result<void> write_saved(const std::string &path, const std::vector<Snapshot> &processes,
                         bool only_new) {
  const std::string bytes = to_saved(processes);
  if (bytes.empty())
    return fail(FI_E2BIG, "%s: more than 2 GiB cannot be saved: lower size", path.c_str());
  const int fd =
      open(path.c_str(),
           O_WRONLY | O_CREAT | O_CLOEXEC | (only_new ? O_EXCL | O_NOFOLLOW : O_TRUNC), 0666);
  if (fd < 0) {
    const int code = errno;
    return fail(code, "%s cannot be written: %s: name a file with -o", path.c_str(),
                strerror(code));
  }
  std::FILE *const file = fdopen(fd, "wb");
  const bool whole = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if (std::fclose(file) != 0 || !whole)
    return fail(errno != 0 ? errno : FI_EIO, "%s cannot be written: %s", path.c_str(),
                strerror(errno));
  return {};
}

Result<std::vector<Snapshot>> read_any(const std::string &path) {
  WEFT_TRY(const std::unique_ptr<Mapping> mapping, Mapping::of(path));
  const auto bytes = mapping->bytes();
  if (bytes.size() >= sizeof(uint64_t) && std::memcmp(bytes.data(), &kMagic, sizeof kMagic) == 0) {
    WEFT_TRY(Snapshot process, read_process(path));
    return std::vector<Snapshot>{std::move(process)};
  }
  return read_saved(path);
}

}  // namespace weft::trace
