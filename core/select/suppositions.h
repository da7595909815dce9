// SPDX-License-Identifier: BSD-2-Clause
// What a question supposes in place of what this machine has: a file of the policy that is not
// installed, the name of another host, another program, another network interface. `weft policy
// test` asks so.
//
// Example:
//     // The policy as it would be if a file were installed.
//     inline Result<Policy> policy_with(PolicySources sources, const std::string &file) {
//       Suppositions supposed;
//       WEFT_CHECK(supposed.add("file", "/etc/weft/10-site.yaml", file, sources));
//       sources.stand_ins = supposed.files();
//       return load_policy(sources);
//     }
//
// Only what a policy can ask for is here (rules.h). A plugin sees the machine as it is. Not for an
// application: nothing in its environment supposes anything.
#ifndef WEFT_CORE_SELECT_SUPPOSITIONS_H
#define WEFT_CORE_SELECT_SUPPOSITIONS_H

#include <weft/result.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/select/policy.h"
#include "core/select/rules.h"

namespace weft {

class Suppositions {
 public:
  // The words of weft_diagnosis_ops::suppose(): "file", "hostname", "executable", "netdev". A place
  // where no file is read is an error, and so is a name that is none.
  Result<void> add(std::string_view what, const std::string &name, const std::string &value,
                   const PolicySources &sources);

  const std::map<std::string, std::string> &files() const { return files_; }
  // The host and program as they are supposed.
  Place applied_to(Place place) const;

 private:
  std::map<std::string, std::string> files_;
  std::optional<std::string> hostname_, executable_;
  std::vector<SupposedDevice> devices_;
};

}  // namespace weft

#endif
