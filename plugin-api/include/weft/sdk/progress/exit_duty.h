// SPDX-License-Identifier: BSD-2-Clause
// ExitDuty: what an object has to do when the process exits without closing it: messages that were
// injected, and whose end nobody is told of, still wait for a connection, or for room in a socket.
//
// Example:
//    class Sender : private ExitDuty {
//     public:
//      Sender(Engine &engine, uint64_t close_linger_ns) : ExitDuty(engine, close_linger_ns) {}
//      void wait_for_connection(bool report) {
//        waiting_ = true;
//        if (!report) owe();  // no completion tells the application when it may exit
//      }
//     private:
//      bool owes(bool) override { return waiting_; }
//      bool waiting_ = false;
//    };
//
// exit() makes progress until nobody owes anything, and waits for each no longer than fi_close
// would; where nothing is owed it does nothing. It runs no code of an object of a parent in a child
// after fork(). Not for a message whose completion the application wants: that tells it how long to
// wait.
#ifndef WEFT_SDK_PROGRESS_EXIT_DUTY_H
#define WEFT_SDK_PROGRESS_EXIT_DUTY_H

#include <weft/sdk/progress/fork_mark.h>

#include <cstdint>

namespace weft::sdk {

class Engine;

class ExitDuty {
 public:
  ExitDuty(const ExitDuty &) = delete;
  ExitDuty &operator=(const ExitDuty &) = delete;

 protected:
  // `most_ns`: exit() waits no longer.
  ExitDuty(Engine &engine, uint64_t most_ns) : owner_(engine), most_ns_(most_ns) {}
  ~ExitDuty() { settle(); }

  // Something waits that exit() must see to. With the engine's lock held; as often as there is
  // such.
  void owe() {
    if (!is_listed_) [[unlikely]]
      enlist();
  }
  // Exit does nothing any more. With the engine's lock held, or when nobody else uses the object.
  void settle() {
    if (is_listed_) leave();
  }

 private:
  friend class Engine;
  friend class Exit;
  // Whether something of that kind still waits. With the engine's lock held, after progress; from
  // time to time before exit(), too, so that who owes nothing is forgotten.
  virtual bool owes(bool exits) = 0;
  void enlist();
  void leave();

  Engine &owner_;
  const uint64_t most_ns_;
  const ForkMark mark_;
  bool is_listed_ = false;
};

}  // namespace weft::sdk

#endif
