// SPDX-License-Identifier: BSD-2-Clause
// Exit: what exit() does for the engines of the process, whose threads it ends.
//
// Example:
//    #include <weft/sdk/progress/engine.h>
//    // exit() sends what waits in the engine, as long as it is in the list.
//    inline void watch(Engine &engine) { Exit::own().add(engine); }
//
// Each plugin has one. Not for objects that only close: the application does that, or the kernel.
#ifndef WEFT_PLUGIN_API_SDK_PROGRESS_EXIT_H
#define WEFT_PLUGIN_API_SDK_PROGRESS_EXIT_H

#include <poll.h>
#include <weft/sdk/progress/engine.h>
#include <weft/sdk/progress/exit_duty.h>
#include <weft/sdk/progress/fork_mark.h>

#include <mutex>
#include <vector>

namespace weft::sdk {

class Exit {
 public:
  static Exit &own();

  // With the engine's lock held. What waits by flush_later() leaves.
  void add(Engine &engine);
  void remove(Engine &engine);
  // The same; exit() waits for it (exit_duty.h).
  void add(ExitDuty &duty);
  void remove(ExitDuty &duty);
  // In a child after fork() a thread of the parent may have held the mutex, and nobody gives it
  // back: then exit() does not get it, either.
  void remove_in_child(Engine &engine);

 private:
  struct Late {
    Engine *engine;
    ForkMark mark;
  };

  static void run();
  void arm();
  void flush(const Late &late);
  bool work(ExitDuty &duty, uint64_t begin, std::vector<pollfd> &fds);

  // By the thread that exits it is taken again where the progress adds and removes.
  std::recursive_mutex mutex_;
  std::vector<Late> late_;
  std::vector<ExitDuty *> duties_;
  bool armed_ = false;
};

}  // namespace weft::sdk

#endif
