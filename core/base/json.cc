// SPDX-License-Identifier: BSD-2-Clause
#include "core/base/json.h"

#include <nlohmann/json.hpp>

namespace weft {

std::string dump(const nlohmann::ordered_json &json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

nlohmann::ordered_json json_of(const DecisionRecord &record) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Decision &decision : record.decisions()) {
    nlohmann::ordered_json entry;
    entry["candidate"] = decision.candidate;
    entry["stage"] = std::string(stage_name(decision.stage));
    entry["accepted"] = decision.accepted;
    entry["reason"] = decision.reason;
    entry["remedy"] = decision.remedy;
    entry["rule"] = decision.rule;
    if (decision.lost) entry["lost"] = true;
    list.push_back(std::move(entry));
  }
  return list;
}

std::string DecisionRecord::to_json() const {
  return dump(json_of(*this));
}

}  // namespace weft
