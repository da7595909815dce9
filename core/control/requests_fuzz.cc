// SPDX-License-Identifier: BSD-2-Clause
// Any text that a program may write to the control socket, while a fabric is open whose plugin
// counts and lies about it. Every answer is a JSON object that says whether the request was carried
// out.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "core/control/requests.h"

namespace {

// Its counters have the bytes of the input as names: any bytes, up to the first 0.
struct Liar {
  weft_fid_header header{};
  fid_fabric fabric{};
  fi_ops ops{};
  std::string text;
};
Liar &liar_of(struct fid *fid) {
  return *static_cast<Liar *>(fid->context);
}

size_t read(struct fid *fid, weft_counter *counters, size_t count) {
  const std::string &text = liar_of(fid).text;
  const size_t most = text.size() > count ? count : text.size();
  for (size_t i = 0; i < most; ++i)
    counters[i] = {text[i] == 'n' ? nullptr : text.c_str() + i, uint64_t(text[i]) << 56};
  return text.empty() ? 0 : text.size() + (text[0] % 3 == 0 ? SIZE_MAX / 2 : 0);
}
const char *describe(struct fid *fid, size_t index) {
  const std::string &text = liar_of(fid).text;
  return index < text.size() && text[index] % 2 == 0 ? text.c_str() + index : nullptr;
}
int open_ops(struct fid *, const char *, uint64_t, void **out, void *) {
  static weft_counters_ops counters{sizeof counters, read, describe};
  *out = &counters;
  return 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static weft::ObjectTable objects;
  static weft::Front front({});
  const std::string_view request(reinterpret_cast<const char *>(data), size);
  Liar liar;
  liar.header.magic = WEFT_FID_MAGIC;
  liar.header.struct_size = sizeof liar.header;
  liar.fabric.fid.fclass = FI_CLASS_FABRIC;
  liar.fabric.fid.context = &liar;
  liar.fabric.fid.ops = &liar.ops;
  liar.ops.size = sizeof liar.ops;
  liar.ops.ops_open = open_ops;
  liar.text = request.substr(0, 2000);
  weft_error why{};
  if (objects.opened(&liar.fabric.fid, nullptr, &why) != 0) std::abort();
  weft::Controller controller(front, objects);
  const auto check = [&](std::string_view text) {
    const std::string answer = controller.answer(text);
    const nlohmann::json read = nlohmann::json::parse(answer, nullptr, false);
    if (!read.is_object() || !read["ok"].is_boolean()) std::abort();
    if (!read["ok"].get<bool>() && read["error"].get<std::string>().empty()) std::abort();
    return read;
  };
  check(request);
  const nlohmann::json counted = check(R"({"do": "counters"})");
  if (!counted["ok"].get<bool>() || !counted["fabrics"].is_array()) std::abort();
  objects.closing(&liar.fabric.fid);
  return 0;
}
