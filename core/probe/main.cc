// SPDX-License-Identifier: BSD-2-Clause
// weft-probe: runs a plugin's code where it can hurt nobody.
//
//   weft-probe --manifest tcp.so --output plugins.d/tcp.yaml    writes the manifest from the descriptor
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/loader/descriptor.h"
#include "core/loader/manifest_writer.h"
#include "core/loader/open_library.h"
#include "core/probe/services.h"

namespace weft {
namespace {

constexpr const char *kUsage = "usage: weft-probe --manifest FILE.so --output FILE.yaml\n";

int complain(const std::string &file, const Rejection &rejection) {
  std::fprintf(stderr, "weft-probe: %s: %s: %s\n", file.c_str(), rejection.cause.c_str(),
               rejection.remedy.c_str());
  return 1;
}

int write_manifest(const std::string &file, const std::string &output) {
  std::error_code error;
  const std::filesystem::path library = std::filesystem::absolute(file, error);
  Checked<OpenPlugin> plugin = open_plugin(library);
  if (!plugin) return complain(file, plugin.error());
  const weft_offer offer = make_offer(&probe_services());
  const Answer answer = ask(*plugin, offer);
  Checked<PluginRecord> record = check_descriptor(answer.desc, answer.why);
  if (!record) return complain(file, record.error());
  const std::filesystem::path folder = std::filesystem::absolute(output, error).parent_path();
  const std::string relative = library.lexically_normal().lexically_relative(folder.lexically_normal());
  if (Result<void> done = write_atomically(output, manifest_yaml(*record, relative)); !done) {
    std::fprintf(stderr, "weft-probe: %s\n", done.error().text.c_str());
    return 1;
  }
  return 0;
}

int run(const std::vector<std::string> &args) {
  if (args.size() == 4 && args[0] == "--manifest" && args[2] == "--output")
    return write_manifest(args[1], args[3]);
  std::fputs(kUsage, args.size() == 1 && args[0] == "--help" ? stdout : stderr);
  return args.size() == 1 && args[0] == "--help" ? 0 : 2;
}

}  // namespace
}  // namespace weft

int main(int argc, char **argv) {
  const int status = weft::run({argv + 1, argv + argc});
  std::fflush(nullptr);
  _exit(status);  // the plugin's destructors and atexit handlers are not ours to run
}
