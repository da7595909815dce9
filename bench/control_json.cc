// SPDX-License-Identifier: BSD-2-Clause
#include "control_json.h"

#include "bench_options.h"

namespace weft::bench {

using nlohmann::json;

json to_json(const Spec &spec) {
  return {{"test", test_name(spec.test)},
          {"size", spec.size},
          {"window", spec.window},
          {"ack_every", spec.ack_every},
          {"iterations", spec.iterations},
          {"check", spec.check},
          {"more", spec.more},
          {"inject", spec.inject}};
}

Spec spec_from_json(const json &j) {
  Spec spec;
  if (!parse_test(j.value("test", ""), &spec.test)) fail("the peer asks for an unknown test");
  spec.size = j.value("size", size_t{0});
  spec.window = j.value("window", 0u);
  spec.ack_every = j.value("ack_every", 0u);
  spec.iterations = j.value("iterations", uint64_t{0});
  spec.check = j.value("check", false);
  spec.more = j.value("more", false);
  spec.inject = j.value("inject", false);
  if (spec.size == 0 || spec.size > kMaxSize || spec.window == 0 || spec.window > 1024 ||
      spec.ack_every == 0 || spec.window % spec.ack_every != 0 || spec.iterations == 0) {
    fail("the peer asks for an impossible measurement: %s", j.dump());
  }
  return spec;
}

json to_json(const FabricOptions &options) {
  return {{"provider", options.provider}, {"domain", options.domain},
          {"rdm", options.rdm},           {"tagged", options.tagged},
          {"rma", options.rma},           {"split_cq", options.split_cq},
          {"level", options.level},       {"thread_safe", options.thread_safe},
          {"wait_fd", options.wait_fd},   {"selective", options.selective},
          {"counters", options.counters}, {"multi_recv", options.multi_recv}};
}

FabricOptions fabric_from_json(const json &j) {
  FabricOptions options;
  options.provider = j.value("provider", "");
  // A domain names an interface of one host; the server finds its own by address.
  options.rdm = j.value("rdm", false);
  options.tagged = j.value("tagged", false);
  options.rma = j.value("rma", false);
  options.split_cq = j.value("split_cq", false);
  options.level = j.value("level", uint64_t{0});
  options.thread_safe = j.value("thread_safe", false);
  options.wait_fd = j.value("wait_fd", false);
  options.selective = j.value("selective", false);
  options.counters = j.value("counters", false);
  options.multi_recv = j.value("multi_recv", false);
  return options;
}

json to_json(const Library &library) {
  return {{"path", library.path}, {"version", library.version}};
}

json to_json(const MemoryResult &r) {
  return {{"before_bytes", r.before_bytes},
          {"after_bytes", r.after_bytes},
          {"per_endpoint_bytes", r.per_endpoint},
          {"connect_us", r.connect_us}};
}

}  // namespace weft::bench
