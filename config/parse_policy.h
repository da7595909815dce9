// SPDX-License-Identifier: BSD-2-Clause
// Reads the text of one policy file, weft.yaml(5).
//
// Example (statements):
//     Diagnostics diag;
//     const std::optional<weft::PolicyContent> policy =
//         parse_policy("/etc/weft/10-site.yaml", "version: 1\nuse: [rdm]\n", diag);
//     if (policy && policy->use && !diag.has_errors()) {
//       const Rule &place = policy->use->origin.where;  // /etc/weft/10-site.yaml, 2, 7
//     }
//
// One file only: merging files, environment and API is the core's task, and so is the check that
// the named units exist.
#ifndef WEFT_CONFIG_PARSE_POLICY_H
#define WEFT_CONFIG_PARSE_POLICY_H

#include <optional>
#include <string_view>

#include "config/diagnostics.h"
#include "config/policy.h"

namespace weft::config {

// Nothing if the text is no YAML. If `diag` has errors, the policy is what could be read: it must
// not be applied, but its names can be checked. `path` is the file in each Origin.
std::optional<PolicyContent> parse_policy(std::string_view path, std::string_view text,
                                          Diagnostics &diag);

}  // namespace weft::config

#endif
