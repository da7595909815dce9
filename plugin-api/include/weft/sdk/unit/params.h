// SPDX-License-Identifier: BSD-2-Clause
// Parameters of a unit: declared as a constant, read by name, checked at compile time.
//
// Example:
//    #include <weft/sdk/unit/unit_info.h>
//    constexpr weft_param kParams[] = {
//        list_param("interfaces", nullptr, "which interfaces to use, best first: hsn*, !docker*"),
//        size_param("eager_size", "16K", "largest message that is sent at once, in bytes", 64,
//                   1 << 20),
//    };
//    struct Tcp {
//      static constexpr UnitInfo info{.name = "tcp", .summary = "messages", .params = kParams};
//      explicit Tcp(const weft_instance *instance) {
//        const Params<Tcp> params(instance);
//        eager_size = params.size("eager_size");  // another name or type does not compile
//      }
//      size_t eager_size;
//    };
//
// The core has merged site, user and environment, parsed the value and checked its limits. What
// only the unit knows to be wrong it returns from create() as FI_EINVAL: then the core tells which
// variable of the environment it was, and creates the unit without that. A setting that it must not
// go without (a key) it refuses with another error. Not for values that change: a unit reads its
// parameters when it is created.
#ifndef WEFT_SDK_UNIT_PARAMS_H
#define WEFT_SDK_UNIT_PARAMS_H

#include <weft/plugin.h>
#include <weft/result.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace weft::sdk {

// Defaults are text, parsed as any other value; nullptr: none. Help is one sentence.
constexpr weft_param bool_param(const char *name, const char *fallback, const char *help) {
  return {sizeof(weft_param), WEFT_TYPE_BOOL, name, fallback, help, 0, 0};
}
constexpr weft_param int_param(const char *name, const char *fallback, const char *help,
                               int64_t minimum = 0, int64_t maximum = 0) {
  return {sizeof(weft_param), WEFT_TYPE_INT, name, fallback, help, minimum, maximum};
}
constexpr weft_param size_param(const char *name, const char *fallback, const char *help,
                                int64_t minimum = 0, int64_t maximum = 0) {
  return {sizeof(weft_param), WEFT_TYPE_SIZE, name, fallback, help, minimum, maximum};
}
constexpr weft_param string_param(const char *name, const char *fallback, const char *help) {
  return {sizeof(weft_param), WEFT_TYPE_STRING, name, fallback, help, 0, 0};
}
constexpr weft_param list_param(const char *name, const char *fallback, const char *help) {
  return {sizeof(weft_param), WEFT_TYPE_LIST, name, fallback, help, 0, 0};
}

// Every unit with queues has this parameter; the SDK reads it: Engine::yield_after.
constexpr weft_param yield_after_param(const char *fallback = "128") {
  return int_param("yield_after", fallback,
                   "a thread that has read a queue or a counter so many times in a row and found "
                   "nothing gives its processor to others; 0: never",
                   0, 1 << 20);
}

namespace params_detail {

// Not constexpr on purpose: to get here while compiling is an error that shows this name.
inline void the_unit_declares_no_parameter_of_this_name_and_type() {}

// Null: the core handed over fewer values than the unit declares parameters.
const weft_value *value_at(const weft_instance *instance, uint32_t index);
// The same by name, for code that serves all units; null: the unit declares no such parameter.
const weft_value *value_of(const weft_instance *instance, std::string_view name);
std::string_view text(const weft_value *value);
std::vector<std::string> split(const weft_value *value);
Result<size_t> word(const weft_value *value, const char *name,
                    std::initializer_list<std::string_view> words);

}  // namespace params_detail

template <class Unit>
class Params {
 public:
  // The index of a parameter, found by the compiler. Type 0: any.
  template <uint32_t kType>
  class Name {
   public:
    consteval Name(const char *name) {  // NOLINT(google-explicit-constructor): it is the point
      for (uint32_t i = 0; i < Unit::info.params.size(); ++i) {
        const weft_param &param = Unit::info.params[i];
        if (std::string_view(param.name) == name && (kType == 0 || param.type == kType)) {
          index = i;
          return;
        }
      }
      params_detail::the_unit_declares_no_parameter_of_this_name_and_type();
    }
    uint32_t index = 0;
  };

  explicit Params(const weft_instance *instance) : instance_(instance) {}

  bool flag(Name<WEFT_TYPE_BOOL> name) const { return number(name.index) != 0; }
  int64_t integer(Name<WEFT_TYPE_INT> name) const { return number(name.index); }
  size_t size(Name<WEFT_TYPE_SIZE> name) const { return static_cast<size_t>(number(name.index)); }
  // Lives as long as the instance; empty where there is no value.
  std::string_view string(Name<WEFT_TYPE_STRING> name) const {
    return params_detail::text(value(name.index));
  }
  // Which of `words` the value is, for a parameter that takes no other. The error names them and
  // the nearest: whoever returns it from create() gets the default in place of a wrong variable.
  Result<size_t> word(Name<WEFT_TYPE_STRING> name,
                      std::initializer_list<std::string_view> words) const {
    return params_detail::word(value(name.index), Unit::info.params[name.index].name, words);
  }
  std::vector<std::string> list(Name<WEFT_TYPE_LIST> name) const {
    return params_detail::split(value(name.index));
  }

  bool is_default(Name<0> name) const {
    const weft_value *v = value(name.index);
    return v == nullptr || v->is_default != 0;
  }
  // Where the value was set, for messages: "/etc/weft/10-site.yaml:12:3".
  const char *origin(Name<0> name) const {
    const weft_value *v = value(name.index);
    return v != nullptr && v->origin_core != nullptr ? v->origin_core : "default";
  }

 private:
  const weft_value *value(uint32_t index) const {
    return params_detail::value_at(instance_, index);
  }
  int64_t number(uint32_t index) const {
    const weft_value *v = value(index);
    return v != nullptr ? v->number : 0;
  }

  const weft_instance *instance_;
};

}  // namespace weft::sdk

#endif
