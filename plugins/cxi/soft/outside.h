// SPDX-License-Identifier: BSD-2-Clause
// Outside: what an engine needs of the host and of the network around its process.
//
// Example:
//    // A host with one process, and no network.
//    class Alone final : public Outside {
//     public:
//      explicit Alone(Pool &entries) : entries_(entries) {}
//      Pool &pool(Nid) override { return entries_; }
//      Result<Pid> claim(Nid, Vni, Pid pid) override { return pid == kAnyPid ? next_++ : pid; }
//      void release(Nid, Vni, Pid) override {}
//      Rc send(const Packet &) override { return Rc::kUndeliverable; }
//
//     private:
//      Pool &entries_;
//      Pid next_ = 0;
//    };
//
// All calls come with the engine's lock held, and must not call the engine. Not for memory, time or
// threads.
#ifndef WEFT_PLUGINS_CXI_SOFT_OUTSIDE_H
#define WEFT_PLUGINS_CXI_SOFT_OUTSIDE_H

#include <weft/result.h>

#include <cstdint>

#include "plugins/cxi/nic/telemetry.h"
#include "plugins/cxi/nic/words.h"
#include "plugins/cxi/soft/packet.h"

namespace weft::cxi {

// What the processes of a host share of a NIC: what a service limits, and what the NIC counts.
enum class Resource : uint8_t { kListEntry, kTriggered };

class Pool {
 public:
  virtual ~Pool() = default;
  virtual bool take(Resource resource) = 0;  // false: there is none left
  virtual void give(Resource resource) = 0;
  virtual uint32_t used(Resource resource) const = 0;
  virtual uint32_t limit(Resource resource) const = 0;
  virtual void count(Telemetry which) = 0;
};

class Outside {
 public:
  virtual ~Outside() = default;
  virtual Pool &pool(Nid nid) = 0;  // of a NIC that this process has opened
  // A PID for a process: FI_EADDRINUSE where another has it. kAnyPid: one that is free.
  virtual Result<Pid> claim(Nid nid, Vni vni, Pid pid) = 0;
  virtual void release(Nid nid, Vni vni, Pid pid) = 0;
  // For an endpoint that is not in this process. kOk: a reply will come to Engine::on_reply().
  virtual Rc send(const Packet &packet) = 0;
  // Whether puts wait at a lossless portal: then Engine::try_waiting() is to be called now and
  // then.
  virtual void on_waiting(bool) {}
};

}  // namespace weft::cxi

#endif
