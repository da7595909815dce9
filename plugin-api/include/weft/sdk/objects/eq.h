// SPDX-License-Identifier: BSD-2-Clause
// Eq: an event queue (fi_eq.3) for connection and other control events, fed by any number of
// engines.
//
// Example:
//    void report(Eq &eq, struct fid *ep, int err, const std::string &private_data) {
//      if (err == 0)
//        eq.push_cm(FI_CONNECTED, ep, nullptr, std::as_bytes(std::span(private_data)));
//      else
//        eq.push_error({.fid = ep, .err = err, .err_data = private_data});
//    }
//    void attach(Eq &eq, Engine &engine) { eq.add_source(engine); }  // readers progress it
//
// It has a lock of its own, which is taken after an engine's. So push with the engine's lock held,
// but not add_source, remove_source or a read. forget() drops the queued events of a fid that
// closes, with the fi_info that they carry.
//
// With FI_PEER in fi_eq_attr.flags the queue is imported (fi_peer.3, PEER EQ): its events go to the
// owner's, by fi_eq_write. That has no form for an error, so an error stays here, and what comes
// after it too, until the owner has read it: fi_eq_read() of no bytes makes progress and gives
// -FI_EAVAIL, fi_eq_readerr() the error. No connection is reported through such a queue.
#ifndef WEFT_SDK_OBJECTS_EQ_H
#define WEFT_SDK_OBJECTS_EQ_H

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/progress/engine.h>
#include <weft/sdk/progress/wait.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace weft::sdk {

class WaitSet;

struct EventError {
  struct fid *fid = nullptr;
  void *context = nullptr;
  uint64_t data = 0;
  int err = 0;  // positive FI_E...
  int prov_errno = 0;
  std::string err_data;
};

class Eq final : public Object<Eq, fid_eq> {
 public:
  // `fabric`, a struct fid_fabric whose api_version is set, counts its open objects in `children`.
  static Result<Eq *> open(const weft_instance *instance, struct fid *fabric,
                           std::atomic<size_t> &children, const fi_eq_attr *attr, void *context);

  // For the provider. `info` (of a connection request) belongs to the queue until the event is
  // read.
  void push_cm(uint32_t event, struct fid *fid, fi_info *info, std::span<const std::byte> data);
  void push(uint32_t event, struct fid *fid, uint64_t data) {
    push(event, fid, data, fid->context);
  }
  // For an operation with a context of its own (fi_av_insert).
  void push(uint32_t event, struct fid *fid, uint64_t data, void *context);
  void push_error(EventError error);
  // Drops its unread events. `requests` gets the handles of connection requests among them.
  void forget(struct fid *fid, std::vector<fid_t> *requests = nullptr);
  // Counted. `data`: events also come of what moves data (fi_join_collective), so whoever waits for
  // events is woken by all of it.
  void add_source(Engine &engine, bool data = false);
  void remove_source(Engine &engine, bool data = false);
  std::atomic<size_t> users{0};  // objects bound; a queue with some is busy
  bool is_imported() const { return owner_ != nullptr; }

  // Called with the fi_info of a connection request that is dropped unread.
  void (*drop_request)(fi_info *info, const weft_instance *owner) = nullptr;
  // What fi_eq_strerror says of a prov_errno; null, or what gives null: the operating system's
  // text.
  const char *(*text_of)(int prov_errno) = nullptr;

  // fi_ops_eq
  ssize_t read(uint32_t *event, void *buf, size_t len, uint64_t flags);
  ssize_t readerr(struct fi_eq_err_entry *buf, uint64_t flags);
  ssize_t write(uint32_t event, const void *buf, size_t len, uint64_t flags);
  ssize_t sread(uint32_t *event, void *buf, size_t len, int timeout, uint64_t flags);
  const char *strerror(int prov_errno, const void *err_data, char *buf, size_t len);

  // fi_ops
  int close();
  int control(int command, void *arg);

  int trywait();
  bool poll();

 private:
  struct Event {
    uint32_t event = 0;
    bool error = false;
    bool cm = false;  // bytes are a fi_eq_cm_entry and private data
    struct fid *fid = nullptr;
    fi_info *info = nullptr;
    std::vector<std::byte> bytes;  // the entry as the reader gets it
    EventError failure;
  };
  Eq(const weft_instance *instance, std::atomic<size_t> &children, uint64_t flags,
     uint32_t api_version, fid_eq *owner, void *context);
  ~Eq() = default;
  void enqueue(Event event);
  void hand_over();
  ssize_t read_for_owner(const void *buf, size_t len);
  void progress();
  ssize_t take(uint32_t *event, void *buf, size_t len, uint64_t flags);
  void drop(Event &event);
  template <class Call>
  int with_descriptor(Call call);

  std::atomic<size_t> &children_;
  fid_eq *const owner_;  // FI_PEER; null: this one is the application's
  const bool writable_;
  const bool
      sized_;  // whether err_data and err_data_size of an error entry are inputs too (API 1.5)
  std::mutex mutex_;  // of the queue, and of notify()
  std::deque<Event> events_;
  std::string last_err_data_;
  WaitObject wait_;
  WaitSet *wait_set_ = nullptr;  // FI_WAIT_SET: the set it joined
  // Taken before an engine's lock, and held while progress runs, so that no engine goes away
  // meanwhile. Guards the wait object's descriptors, too.
  std::mutex sources_mutex_;
  struct Source {
    Engine *engine;
    bool data;
    size_t count;
  };
  std::vector<Source> sources_;
  // Its own: an event queue may have many engines, or none.
  Turn turn_;
};

}  // namespace weft::sdk

#endif
