// SPDX-License-Identifier: BSD-2-Clause
// trace: records the calls and completions of the objects that it is on, in the format of
// formats/trace.h. This file has its parameters and attaches it to objects; recorder.h writes the
// records.
#include <weft/sdk/unit.h>
#include <weft/sdk/unit/log.h>

#include "plugins/hook-trace/object_ops.h"
#include "plugins/hook-trace/queue_ops.h"
#include "plugins/hook-trace/recorder.h"
#include "plugins/hook-trace/transfer_ops.h"

namespace weft::trace {
namespace {

using namespace weft::sdk;

class HookTrace : public Recorder,
                  public TransferOps<HookTrace>,
                  public QueueOps<HookTrace>,
                  public ObjectOps<HookTrace> {
 public:
  static constexpr weft_param kParams[] = {
      size_param("size", "1M", "bytes of a thread's ring, 64 for each record", 1 << 14, 1 << 30),
      int_param("max_threads", "64", "rings at most; threads beyond only count what they lose", 1,
                1024),
      string_param("directory", nullptr,
                   "folder of the trace file; none: that of the user's processes in /dev/shm"),
      bool_param("keep", "no", "leave the file when the process ends by itself"),
      list_param("classes", nullptr, "objects to record: ep, cq, eq, ...; none: all"),
      list_param("ops", nullptr,
                 "operations or groups to record: tagged, cq, send, ...; none: all"),
      size_param("min_size", "0", "leave out transfers of fewer bytes"),
      list_param("peers", nullptr, "leave out transfers to and from other fi_addr_t; none: all"),
      int_param("sample", "1", "record one of so many runs of 64 posts and reads", 1, 1000000),
      string_param("start", "now", "now, or error: record from the first error on"),
      string_param("stop", "never", "never, or error: keep what led to the first error"),
  };
  static constexpr UnitInfo info{
      .name = "trace",
      .summary = "records calls and completions in shared memory, for weft trace",
      .version = FI_VERSION(1, 0),
      .maturity = WEFT_MATURITY_BETA,
      .security = WEFT_SECURITY_NO_NETWORK,
      .params = kParams};
  using ObjectState = Seen;

  static Result<std::unique_ptr<HookTrace>> create(const weft_instance *instance) {
    const Params<HookTrace> params(instance);
    Settings settings;
    settings.store.ring_bytes = params.size("size");
    settings.store.max_threads = uint32_t(params.integer("max_threads"));
    settings.store.directory = params.string("directory");
    settings.store.keep = params.flag("keep");
    WEFT_TRY(settings.ops, at(read_ops(params.list("ops")), params.origin("ops")));
    WEFT_TRY(settings.classes, at(read_classes(params.list("classes")), params.origin("classes")));
    WEFT_TRY(settings.peers, at(read_peers(params.list("peers")), params.origin("peers")));
    settings.min_size = params.size("min_size");
    settings.sample = uint32_t(params.integer("sample"));
    WEFT_TRY(const size_t start, params.word("start", {"now", "error"}));
    WEFT_TRY(const size_t stop, params.word("stop", {"never", "error"}));
    if (start == 1) settings.store.phase = Phase::kWaiting;
    settings.store.stop_at_error = stop == 1;
    return std::make_unique<HookTrace>(instance, std::move(settings));
  }

  using Recorder::Recorder;

  Result<std::unique_ptr<Seen>> attach(fid *fid) {
    // Not memory regions: there may be one per message, and the domain records their registration.
    if (fid->fclass == FI_CLASS_MR) return nullptr;
    WEFT_TRY(Store * store, Store::join(settings().store));
    std::unique_ptr<Seen> seen;
    try {
      seen = std::make_unique<Seen>(store, fid, settings().mask(fid->fclass));
    } catch (...) {
      store->leave();
      throw;
    }
    const weft_fid_header *header = header_of(fid);
    if (ObjectEntry *entry = store->add_object(header->id_core); entry != nullptr) {
      entry->parent = header->parent_core != nullptr ? header_of(header->parent_core)->id_core : 0;
      entry->fclass = uint32_t(fid->fclass);
      if (const weft_instance *element = header->instance; element != nullptr) {
        entry->place = element->place;
        put(entry->element, element->unit != nullptr ? element->unit->name : "");
        put(entry->stack, element->stack != nullptr ? element->stack : "");
      }
      seen->entry = entry;
      publish(*entry);
    }
    return seen;
  }

 private:
  template <class T>
  static Result<T> at(Result<T> result, const char *origin) {
    if (result) return result;
    return fail(result.error().code, "%s (%s)", result.error().text.c_str(), origin);
  }
  static void publish(ObjectEntry &entry) {
    __atomic_store_n(reinterpret_cast<uint32_t *>(&entry.state),
                     uint32_t(trace::ObjectState::kOpen), __ATOMIC_RELEASE);
  }
};

constexpr PluginInfo kPlugin{.name = "hook-trace",
                             .vendor = "weft",
                             .version = WEFT_VERSION,
                             .license = "BSD-2-Clause",
                             .required_core_caps = WEFT_CORE_CAP_HOOKS};

}  // namespace
}  // namespace weft::trace

WEFT_PLUGIN(weft::trace::kPlugin, weft::trace::HookTrace)
