// SPDX-License-Identifier: BSD-2-Clause
#include "core/base/plugin_calls.h"

namespace weft {

void PluginCalls::listen(Listener listener, void *arg) {
  const std::lock_guard lock(mutex_);
  listener_ = listener;
  arg_ = arg;
}

const PluginCalls::Call *PluginCalls::last_of(std::thread::id thread) const {
  for (auto call = open_.rbegin(); call != open_.rend(); ++call)
    if (call->thread == thread) return &*call;
  return nullptr;
}

std::optional<PluginCalls::Call> PluginCalls::innermost(std::thread::id thread) const {
  const std::lock_guard lock(mutex_);
  const Call *call = last_of(thread);
  return call != nullptr ? std::optional(*call) : std::nullopt;
}

void PluginCalls::tell(const Call *call) const {
  if (listener_ == nullptr) return;
  if (call == nullptr)
    listener_(arg_, nullptr, nullptr, nullptr);
  else
    listener_(arg_, call->unit.c_str(), call->library.c_str(), call->name);
}

PluginCalls::Inside::Inside(PluginCalls *calls, const std::string &unit, const std::string &library,
                            const char *name)
    : calls_(calls) {
  if (calls_ == nullptr) return;
  const std::lock_guard lock(calls_->mutex_);
  call_ = calls_->open_.insert(calls_->open_.end(),
                               {unit, library, name, Clock::now(), std::this_thread::get_id()});
  calls_->tell(&*call_);
}

PluginCalls::Inside::~Inside() {
  if (calls_ == nullptr) return;
  const std::lock_guard lock(calls_->mutex_);
  calls_->open_.erase(call_);
  calls_->tell(calls_->last_of(std::this_thread::get_id()));
}

}  // namespace weft
