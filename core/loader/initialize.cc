// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/initialize.h"

#include <signal.h>

#include <condition_variable>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>

namespace weft {
namespace {

tl::unexpected<Rejection> failed_init(std::string cause, bool passing = false) {
  return tl::unexpected<Rejection>(
      Rejection{Stage::kInit, std::move(cause), kFaultyPlugin, true, passing});
}

}  // namespace

Checked<void> initialize(const weft_plugin_desc &desc, const weft_offer &offer, void *&state) {
  state = nullptr;
  if (desc.init == nullptr) return {};
  weft_error why{};
  why.struct_size = sizeof why;
  int32_t code = 0;
  try {
    code = desc.init(&offer, &state, &why);
  } catch (const std::bad_alloc &) {
    return failed_init("init() ran out of memory", true);
  } catch (const std::exception &e) {
    return failed_init(std::string("an exception left init(): ") + e.what());
  } catch (...) {
    return failed_init("an exception left init()");
  }
  if (code == 0) return {};
  if (code > 0)
    return failed_init("init() returned " + std::to_string(code) +
                       ", which is neither 0 nor negative");
  const std::string text(why.text, strnlen(why.text, sizeof why.text));
  return with_remedy(reject(Stage::kInit, "init() failed with %d: %s", code,
                            text.empty() ? "the plugin gave no reason" : text.c_str()),
                     "see the plugin's documentation, or disable it in the site's configuration");
}

Checked<void> initialize_within(std::chrono::milliseconds budget, const weft_plugin_desc &desc,
                                const weft_offer &offer, void *&state) {
  state = nullptr;
  if (desc.init == nullptr) return {};
  struct Call {  // shared with a thread that may outlive this call
    std::mutex mutex;
    std::condition_variable ended;
    std::optional<Checked<void>> result;
    void *state = nullptr;
  };
  const auto call = std::make_shared<Call>();
  // The application's signals are for its own threads.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  std::thread thread;
  try {
    thread = std::thread([call, &desc, &offer] {
      void *made = nullptr;
      Checked<void> result = initialize(desc, offer, made);
      const std::lock_guard lock(call->mutex);
      call->state = made;
      call->result = std::move(result);
      call->ended.notify_one();
    });
  } catch (const std::system_error &e) {
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    return with_remedy(reject(Stage::kInit, "no thread could be started for init(): %s", e.what()),
                       "raise the limit of processes (ulimit -u)");
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  std::unique_lock lock(call->mutex);
  if (!call->ended.wait_for(lock, budget, [&] { return call->result.has_value(); })) {
    thread.detach();
    return failed_init("init() did not return within " + std::to_string(budget.count()) + " ms",
                       true);
  }
  state = call->state;
  Checked<void> result = *std::move(call->result);
  lock.unlock();
  thread.join();
  return result;
}

Checked<void> finish(const weft_plugin_desc &desc, void *state) {
  if (desc.fini == nullptr) return {};
  try {
    desc.fini(state);
  } catch (...) {
    return failed_init("an exception left fini()");
  }
  return {};
}

}  // namespace weft
