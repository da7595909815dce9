// SPDX-License-Identifier: BSD-2-Clause
#include "config/policy_docs.h"

#include <nlohmann/json.hpp>

#include "config/policy_keys.h"

namespace weft::config {

namespace {

using Json = nlohmann::ordered_json;

// ---- the JSON Schema ----

Json reference(const char *name) {
  return {{"$ref", std::string("#/$defs/") + name}};
}

Json array_of(Json items) {
  return {{"type", "array"}, {"items", std::move(items)}};
}

Json object_of(std::string_view parent);

// The keys that may be final, as a pattern: "providers(\.(enable|disable|rank))?|use|...".
std::string final_pattern(std::string_view parent) {
  std::string out;
  for_each_beneath(parent, [&](const PolicyKey &key) {
    if (!key.may_be_final) return;
    out.append(out.empty() ? "" : "|").append(key.name());
    if (key.form == KeyForm::kGroup) out += "(\\.(" + final_pattern(key.path) + "))?";
    if (key.form == KeyForm::kStacks) out += "(\\.[^.]+)?";
    if (key.form == KeyForm::kParams) out += "(\\.[^.]+){0,2}";
  });
  return out;
}

// What the schema says of the value, without the meaning of the key.
Json schema_of_form(const PolicyKey &key) {
  switch (key.form) {
    case KeyForm::kVersion:
      return {{"const", 1}};
    case KeyForm::kGroup:
      return object_of(key.path);
    case KeyForm::kUnits:
      return array_of(reference("name"));
    case KeyForm::kLabels:
      return array_of(reference("label"));
    case KeyForm::kFolders:
      return array_of({{"type", "string"}, {"pattern", "^/"}});
    case KeyForm::kKeys:
      return array_of({{"type", "string"}, {"pattern", "^(" + final_pattern("") + ")$"}});
    case KeyForm::kRules:
      return array_of(reference("rule"));
    case KeyForm::kStacks:
      return {{"type", "object"},
              {"propertyNames", reference("label")},
              {"additionalProperties", reference("chain")}};
    case KeyForm::kBranches: {
      Json branches = array_of(reference("chain"));
      branches["minItems"] = 1;
      branches["maxItems"] = WEFT_MAX_INNER;
      return branches;
    }
    case KeyForm::kParams:
      return {{"type", "object"},
              {"propertyNames", reference("name")},
              {"additionalProperties", reference("settings")}};
    case KeyForm::kSettings:
      return reference("settings");
    case KeyForm::kUnit:
      return reference("name");
    case KeyForm::kNumber:
      return {{"type", "integer"}, {"minimum", key.more.minimum}, {"maximum", key.more.maximum}};
    case KeyForm::kBoolean:
      return {{"enum", {true, false, "yes", "no", "on", "off", 1, 0}}};
    case KeyForm::kPattern:
      return reference("glob");
    case KeyForm::kSubnet:
      return {{"type", "string"}};
    case KeyForm::kEpType:
    case KeyForm::kAllowDeny:
    case KeyForm::kShmNone:
    case KeyForm::kFailSkip:
      return {{"enum", words_of(key.form)}};
  }
  return {};
}

Json schema_of(const PolicyKey &key) {
  Json out = {{"description", key.meaning}};
  out.update(schema_of_form(key));
  if (key.more.built_in.empty()) return out;
  if (key.form == KeyForm::kNumber)
    out["default"] = std::stoll(std::string(key.more.built_in));
  else
    out["default"] = key.more.built_in;
  return out;
}

// A map with the keys that the table has beneath `parent`.
Json object_of(std::string_view parent) {
  Json required, any_of, one_of, properties = Json::object();
  for_each_beneath(parent, [&](const PolicyKey &key) {
    if (key.more.need == KeyNeed::kRequired) required.push_back(key.name());
    if (key.more.need == KeyNeed::kAnyOf) any_of.push_back({{"required", {key.name()}}});
    if (key.more.need == KeyNeed::kOneOf) one_of.push_back({{"required", {key.name()}}});
    properties[std::string(key.name())] = schema_of(key);
  });
  Json out = {{"type", "object"}};
  if (!required.empty()) out["required"] = std::move(required);
  if (!any_of.empty()) out["anyOf"] = std::move(any_of);
  if (!one_of.empty()) out["oneOf"] = std::move(one_of);
  out["additionalProperties"] = false;
  out["properties"] = std::move(properties);
  return out;
}

// What more than one key refers to.
Json definitions() {
  const Json text_or_number = {"string", "integer"};
  const Json scalar = {"string", "number", "boolean"};
  Json out;
  out["name"] = {{"type", text_or_number}, {"pattern", "^[a-z0-9_-]{1,63}$"}};
  out["label"] = {{"type", text_or_number}, {"pattern", "^[A-Za-z0-9_-]{1,63}$"}};
  out["glob"] = {{"type", scalar}, {"minLength", 1}};
  out["settings"] = {{"type", "object"},
                     {"propertyNames", {{"pattern", "^[a-z0-9_]{1,63}$"}}},
                     {"additionalProperties",
                      {{"type", {"string", "number", "boolean", "array"}},
                       {"items", {{"type", scalar}, {"minLength", 1}, {"pattern", "^[^,]*$"}}}}}};
  for_each_beneath("providers", [&](const PolicyKey &key) {
    if (key.form == KeyForm::kRules) out["rule"] = object_of(std::string(key.path) + "[]");
  });
  for_each_beneath("", [&](const PolicyKey &key) {
    if (key.form != KeyForm::kStacks) return;
    out["element"] = object_of(std::string(key.path) + ".LABEL[]");
    out["chain"] = array_of(reference("element"));
    out["chain"]["minItems"] = 1;
  });
  return out;
}

// On one line: {"a": 1, "b": [2, 3]}
std::string one_line(const Json &json) {
  std::string out;
  for (const auto &[key, value] : json.items()) {
    if (!out.empty()) out += ", ";
    if (json.is_object()) out += Json(key).dump() + ": ";
    out += value.is_structured() ? one_line(value) : value.dump();
  }
  return json.is_object() ? "{" + out + "}" : "[" + out + "]";
}

// An object or array stands on one line if it fits in the 100 columns behind `column`.
std::string pretty(const Json &json, size_t indent, size_t column) {
  if (!json.is_structured()) return json.dump();
  std::string line = one_line(json);
  if (column + line.size() + 1 <= 100) return line;
  std::string out;
  const std::string blanks(indent + 2, ' ');
  for (const auto &[key, value] : json.items()) {
    const std::string start = blanks + (json.is_object() ? Json(key).dump() + ": " : "");
    out += (out.empty() ? "\n" : ",\n") + start + pretty(value, indent + 2, start.size());
  }
  out += "\n" + std::string(indent, ' ');
  return json.is_object() ? "{" + out + "}" : "[" + out + "]";
}

// ---- the manual page ----

// The form of a value behind the name of its key.
std::string form_of(const PolicyKey &key) {
  const auto list = [](const char *entry) {
    return std::string(" : Li [ Em ") + entry + " , ...\\& Li \\&]";
  };
  switch (key.form) {
    case KeyForm::kVersion:
      return " : Li 1";
    case KeyForm::kGroup:
      return "";
    case KeyForm::kUnits:
      return list("name");
    case KeyForm::kLabels:
      return list("label");
    case KeyForm::kFolders:
      return list("folder");
    case KeyForm::kKeys:
      return list("key");
    case KeyForm::kRules:
      return list("rule");
    case KeyForm::kStacks:
      return " : Li { Em label : Li [ Em element , ...\\& Li ], ...}";
    case KeyForm::kBranches:
      return " : Li [[ Em element , ...\\& Li ], ...\\& Li \\&]";
    case KeyForm::kParams:
      return " : Li { Em name : Li { Em key : Em value , ...\\& Li }, ...}";
    case KeyForm::kSettings:
      return " : Li { Em key : Em value , ...\\& Li }";
    case KeyForm::kUnit:
      return " : Em name";
    case KeyForm::kNumber:
      return " : Em number";
    case KeyForm::kBoolean:
      return " : Em boolean";
    case KeyForm::kPattern:
      return " : Em pattern";
    case KeyForm::kSubnet:
      return " : Em subnet";
    case KeyForm::kEpType:
    case KeyForm::kAllowDeny:
    case KeyForm::kShmNone:
    case KeyForm::kFailSkip: {
      std::string out;
      for (const std::string_view word : words_of(key.form))
        out.append(out.empty() ? " : Li " : " | ").append(word);
      return out;
    }
  }
  return "";
}

// A number in a line of text.
std::string number_text(int64_t number) {
  return number < 0 ? "\\" + std::to_string(number) : std::to_string(number);
}

void add_final_keys(std::vector<std::string> &lines, std::string_view parent) {
  for_each_beneath(parent, [&](const PolicyKey &key) {
    if (!key.may_be_final) return;
    const std::string line = ".Li " + std::string(key.path);
    lines.push_back(line);
    if (key.form == KeyForm::kGroup) add_final_keys(lines, key.path);
    if (key.form == KeyForm::kStacks) lines.push_back(line + ". Ns Em label");
    if (key.form == KeyForm::kParams) {
      lines.push_back(line + ". Ns Em name");
      lines.push_back(line + ". Ns Em name Ns Li \\&. Ns Em key");
    }
  });
}

std::string final_keys() {
  std::vector<std::string> lines;
  add_final_keys(lines, "");
  std::string out = "Keys are written with dots, and each stands for all beneath it:\n";
  for (const std::string &line : lines) out += line + (&line == &lines.back() ? " .\n" : " ,\n");
  return out;
}

// "ENTRY has NEED .Ic rank , .Ic enable ."; empty without a key of that need.
std::string needed_of(std::string_view parent, KeyNeed need, std::string_view words) {
  std::vector<std::string_view> names;
  for_each_beneath(parent, [&](const PolicyKey &key) {
    if (key.more.need == need) names.push_back(key.name());
  });
  if (names.empty()) return "";
  std::string out = std::string(words) + "\n";
  for (size_t i = 0; i < names.size(); ++i) {
    if (i != 0 && i + 1 == names.size()) out += "and\n";
    out.append(".Ic ").append(names[i]);
    out += i + 1 == names.size() ? " .\n" : i + 2 == names.size() ? "\n" : " ,\n";
  }
  return out;
}

// The keys of the entries of a list, with a sentence in front.
std::string entries(std::string_view entry, const std::string &path) {
  const std::string start(entry);
  return start + " has the keys\n" + policy_manual(path) + ".Pp\n" +
         needed_of(path, KeyNeed::kAnyOf, "It has one or more of") +
         needed_of(path, KeyNeed::kOneOf, "It has exactly one of");
}

}  // namespace

std::string policy_schema() {
  Json schema = {
      {"$schema", "https://json-schema.org/draft/2020-12/schema"},
      {"title", "weft.yaml"},
      {"description", "Which providers, layers and hooks weft uses, and how; see weft.yaml(5)."}};
  schema.update(object_of(""));
  schema["$defs"] = definitions();
  return pretty(schema, 0, 0) + "\n";
}

std::string policy_manual(std::string_view parent) {
  const bool is_compact = parent.find('[') != std::string_view::npos;
  std::string out = is_compact ? ".Bl -tag -width Ds -compact\n" : ".Bl -tag -width Ds\n";
  for_each_beneath(parent, [&](const PolicyKey &key) {
    const std::string path(key.path);
    out.append(".It Ic ").append(key.name()).append(form_of(key)).append("\n");
    out.append(key.meaning).append("\n");
    if (key.more.need == KeyNeed::kRequired) out += "Required.\n";
    if (key.form == KeyForm::kKeys) out += final_keys();
    out += manual_text(key.path);
    if (key.form == KeyForm::kNumber)
      out +=
          "From " + number_text(key.more.minimum) + " to " + number_text(key.more.maximum) + ".\n";
    if (!key.more.built_in.empty()) out.append("Default: ").append(key.more.built_in) += ".\n";
    if (key.form == KeyForm::kGroup) out += policy_manual(path);
    if (key.form == KeyForm::kRules) out += entries("A rule", path + "[]");
    if (key.form == KeyForm::kStacks) out += entries("An element", path + ".LABEL[]");
  });
  return out + ".El\n";
}

}  // namespace weft::config
