// SPDX-License-Identifier: BSD-2-Clause
// What the fuzz target of whole endpoints has: an application with two endpoints, of which one is
// the victim and one its friend, and a hostile process that speaks to the victim by sockets and
// memory.
//
// Example:
//    inline void run(Bytes &input) {
//      Application application;
//      Hostile hostile(application.name());
//      hostile.connect(input);
//      hostile.scribble(input);
//      application.poll();
//    }
//
// The memory is real, so a sanitizer sees what the victim does with it. Not for what is done in
// which order: shm_fuzz.cc.
#ifndef WEFT_PLUGINS_SHM_FUZZ_WORLD_H
#define WEFT_PLUGINS_SHM_FUZZ_WORLD_H

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <weft/plugin.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugins/shm/host_socket.h"
#include "plugins/shm/wire/hello.h"
#include "plugins/shm/wire/pair_memory.h"
#include "plugins/shm/wire/record.h"
#include "tests/fuzz/check.h"

namespace weft::shm::fuzz {

// The input, as numbers. Behind its end everything is 0.
class Bytes {
 public:
  Bytes(const uint8_t *data, size_t size) : at_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  uint8_t byte() { return left_ == 0 ? 0 : (--left_, *at_++); }
  uint64_t number() {
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return value;
  }
  // Mostly small, sometimes anything.
  uint64_t size() {
    const uint8_t how = byte();
    return how < 128 ? how : how < 224 ? uint64_t(byte()) << (how % 16) : number();
  }

 private:
  const uint8_t *at_;
  size_t left_;
};

// Memory of the hostile process that the victim may write to (process_vm_writev).
inline constexpr size_t kArena = 64 << 10;
uint8_t *arena();

class Application {
 public:
  Application();
  ~Application();
  sdk::Address name() const { return name_; }
  void introduce(const sdk::Address &hostile);
  void post(Bytes &input);
  void send(Bytes &input);
  void access(Bytes &input);
  void poll(int reads = 8);
  void cancel(Bytes &input);
  // The victim and its friend still talk to each other.
  void check_friends();

 private:
  struct Buffer {
    std::unique_ptr<uint8_t[]> bytes;
    size_t size = 0;
  };
  fid_ep *open_endpoint(fid_cq *cq);
  Buffer &buffer(size_t size);
  static bool drain(fid_cq *cq, const void *wanted);

  weft_instance instance_{};
  fi_info *info_ = nullptr;
  fid_fabric *fabric_ = nullptr;
  fid_domain *domain_ = nullptr;
  fid_av *av_ = nullptr;
  fid_cq *cq_ = nullptr, *friends_cq_ = nullptr;
  fid_ep *victim_ = nullptr, *friend_ = nullptr;
  fid_mr *region_ = nullptr;
  fi_addr_t to_friend_ = 0, to_hostile_ = 0;
  sdk::Address name_;
  std::vector<uint8_t> registered_;
  std::deque<Buffer> buffers_;
};

class Hostile {
 public:
  explicit Hostile(const sdk::Address &victim);
  const sdk::Address &name() const { return name_; }
  void connect(Bytes &input);
  void accept();           // what the victim asks for
  void say(Bytes &input);  // any packet
  void put(Bytes &input);  // a record
  void take();             // records of the victim, whose ids it notes
  void scribble(Bytes &input);
  void lie(Bytes &input);  // about what it has taken
  void leave(Bytes &input);

 private:
  struct Link {
    sdk::UniqueFd socket;
    PairMemory memory;
    Geometry geometry;
    unsigned out = 0;
    std::optional<Producer> producer;
    std::optional<Consumer> consumer;
  };
  void add(sdk::UniqueFd socket, PairMemory memory, const Geometry &geometry, bool asked);
  Link *some(Bytes &input);
  uint64_t some_id(Bytes &input);
  void put_body(Content &content, Type type, uint8_t flags, Bytes &input);

  const sdk::Address victim_, name_;
  const uint64_t probe_ = 0x1234567;
  sdk::UniqueFd listener_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<uint64_t> ids_;  // of what the victim has asked or offered
};

}  // namespace weft::shm::fuzz

#endif
