// SPDX-License-Identifier: BSD-2-Clause
// CqSource: the completion queue of a device, which a Cq (cq.h) reads straight into the
// application's entries.
//
// Example:
//    struct Device;  // has finished operations
//    bool next(Device &device, void *&context, size_t &length, int &err);
//    class Source final : public CqSource {
//     public:
//      explicit Source(Device &device) : device_(device) {}
//      void read(CqWriter &out) override {
//        void *context;
//        size_t length;
//        int err;
//        while (out.room() != 0 && next(device_, context, length, err)) {
//          if (err == 0) {
//            out.put({.context = context, .flags = FI_SEND | FI_MSG, .len = length});
//          } else {
//            out.put_error({.context = context, .flags = FI_SEND | FI_MSG, .err = err});
//          }
//        }
//      }
//      int wait_fd() override;
//      bool arm() override;
//     private:
//      Device &device_;
//    };
//
// A Cq with a source has an engine of its own, and so a lock of its own: reading it touches nothing
// of the domain. All calls are with that lock held. The source belongs to the queue, and goes with
// it. Entries that software makes (Cq::push) come out before those of the device. Not for providers
// that make all entries themselves: they push().
#ifndef WEFT_SDK_DEVICES_CQ_SOURCE_H
#define WEFT_SDK_DEVICES_CQ_SOURCE_H

#include <weft/sdk/devices/device_engine.h>
#include <weft/sdk/objects/cq.h>

namespace weft::sdk {

// Writes a completion in the format of a queue. Returns where the next one goes.
inline char *write_entry(char *out, enum fi_cq_format format, const Completion &c) {
  // The four formats begin alike. The largest has all fields, and most applications want it.
  auto *const e = reinterpret_cast<fi_cq_tagged_entry *>(out);
  e->op_context = c.context;
  if (format != FI_CQ_FORMAT_TAGGED) {
    if (format == FI_CQ_FORMAT_CONTEXT) return out + sizeof(fi_cq_entry);
    e->flags = c.flags;
    e->len = c.len;
    if (format == FI_CQ_FORMAT_MSG) return out + sizeof(fi_cq_msg_entry);
    e->buf = c.buf;
    e->data = c.data;
    return out + sizeof(fi_cq_data_entry);
  }
  e->flags = c.flags;
  e->len = c.len;
  e->buf = c.buf;
  e->data = c.data;
  e->tag = c.tag;
  return out + sizeof *e;
}

// Where completions of the device go. What stands behind an error goes into the queue's ring, where
// it waits until the application has read the error.
class CqWriter {
 public:
  // How many more completions the reader wants. What the device has given is taken all the same.
  size_t room() const { return room_; }
  void put(const Completion &completion) {
    if (rings_ || room_ == 0) [[unlikely]]
      return put_in_ring(completion.context, completion.flags, completion.len, completion.buf,
                         completion.data, completion.tag, completion.src_addr);
    --room_;
    ++written_;
    at_ = write_entry(at_, cq_.format_, completion);
    if (sources_ != nullptr) *sources_++ = completion.src_addr;
  }
  void put_error(CompletionError error);

 private:
  friend class Cq;
  // `entries` null: into the ring.
  CqWriter(Cq &cq, void *entries, size_t room, fi_addr_t *sources)
      : cq_(cq),
        room_(room),
        at_(static_cast<char *>(entries)),
        sources_(sources),
        rings_(entries == nullptr) {}
  // Not a Completion, so that put() can have its own in registers.
  void put_in_ring(void *context, uint64_t flags, size_t len, void *buf, uint64_t data,
                   uint64_t tag, fi_addr_t source);

  Cq &cq_;
  size_t room_;
  char *at_;
  size_t written_ = 0;
  fi_addr_t *sources_;
  bool rings_;
};

// arm() is false where the device has completions that were not asked for.
class CqSource : public DeviceSource {
 public:
  // Takes completions off the device, the oldest first, until the device has none or out.room()
  // is 0.
  virtual void read(CqWriter &out) = 0;
  // What fi_cq_strerror says of a prov_errno; null: what the operating system says.
  virtual const char *text_of(int prov_errno) const {
    (void)prov_errno;
    return nullptr;
  }
};

}  // namespace weft::sdk

#endif
