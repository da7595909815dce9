// SPDX-License-Identifier: BSD-2-Clause
// fi_info: asks fi_getinfo which fabric interfaces there are and prints the answer. Options and the
// plain output are those of fi_info(1), so that scripts which grep it still work; --json is for new
// scripts.
#include "tools/fi_info/lists.h"
#include "tools/fi_info/options.h"
#include "tools/finish_output.h"

int main(int argc, char **argv) {
  using namespace weft::info;
  Options options;
  if (const std::optional<int> status = parse_command_line(argc, argv, options)) return *status;
  const int status = options.env    ? list_environment(options)
                     : options.list ? list_providers(options)
                                    : list_interfaces(options);
  return weft::finish_output("fi_info", status);
}
