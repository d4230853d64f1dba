// The exported functions: choose a CPU level once, then pass the work on to it.
#include <cstring>

#include "conv.h"
#include "linear.h"
#include "rowwise.h"
#include "scan.h"
#include "slices.hpp"

#define TUSTIN_DECLARE(level)                     \
  namespace level {                               \
  int run_scan(const TustinScan*, bool gradient); \
  int run_conv(const TustinConv*, bool gradient); \
  int run_conv_update(const TustinConvUpdate*);   \
  int run_gate(const TustinGate*, bool gradient); \
  int run_norm(const TustinNorm*, bool gradient); \
  int run_linear(const TustinLinear*);            \
  }
#ifndef TUSTIN_LEVELS  // best first
#if defined(__x86_64__)
#define TUSTIN_LEVELS(X) X(v4) X(v3) X(v2)
#else
#define TUSTIN_LEVELS(X) X(baseline)
#endif
#endif
TUSTIN_LEVELS(TUSTIN_DECLARE)

namespace {

struct Level {
  const char* name;
  bool (*supported)();
  int (*run_scan)(const TustinScan*, bool gradient);
  int (*run_conv)(const TustinConv*, bool gradient);
  int (*run_conv_update)(const TustinConvUpdate*);
  int (*run_gate)(const TustinGate*, bool gradient);
  int (*run_norm)(const TustinNorm*, bool gradient);
  int (*run_linear)(const TustinLinear*);
};

[[maybe_unused]] bool has_baseline() { return true; }
#if defined(__x86_64__)
[[maybe_unused]] bool has_v2() { return true; }
[[maybe_unused]] bool has_v3() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}
[[maybe_unused]] bool has_v4() {
  return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

#define TUSTIN_ENTRY(level)                                                                             \
  {#level,          has_##level,     level::run_scan, level::run_conv, level::run_conv_update,          \
   level::run_gate, level::run_norm,    level::run_linear},
constexpr Level kLevels[] = {TUSTIN_LEVELS(TUSTIN_ENTRY)};
#undef TUSTIN_ENTRY

const Level* best_level() {
  const Level* level = kLevels;
  while (!level->supported()) ++level;
  return level;
}

const Level* current = best_level();

}  // namespace

extern "C" {

int tustin_scan_forward(const TustinScan* scan) { return current->run_scan(scan, false); }
int tustin_scan_backward(const TustinScan* scan) { return current->run_scan(scan, true); }
int tustin_conv_forward(const TustinConv* conv) { return current->run_conv(conv, false); }
int tustin_conv_backward(const TustinConv* conv) { return current->run_conv(conv, true); }
int tustin_conv_update(const TustinConvUpdate* update) { return current->run_conv_update(update); }
int tustin_gate_forward(const TustinGate* gate) { return current->run_gate(gate, false); }
int tustin_gate_backward(const TustinGate* gate) { return current->run_gate(gate, true); }
int tustin_norm_forward(const TustinNorm* norm) { return current->run_norm(norm, false); }
int tustin_norm_backward(const TustinNorm* norm) { return current->run_norm(norm, true); }
int tustin_linear(const TustinLinear* linear) { return current->run_linear(linear); }

int64_t tustin_argument_bytes(const char* function) {
  const struct {
    const char* name;
    size_t bytes;
  } known[] = {{"tustin_conv_update", sizeof(TustinConvUpdate)}, {"tustin_scan_", sizeof(TustinScan)},
               {"tustin_conv_", sizeof(TustinConv)},             {"tustin_gate_", sizeof(TustinGate)},
               {"tustin_norm_", sizeof(TustinNorm)},             {"tustin_linear", sizeof(TustinLinear)}};
  for (const auto& entry : known)
    if (!strncmp(function, entry.name, strlen(entry.name))) return static_cast<int64_t>(entry.bytes);
  return 0;
}

int tustin_chunk_length(void) { return TUSTIN_CHUNK; }
int64_t tustin_slices(int64_t D, int64_t groups_B, int64_t groups_C) { return Slices(D, groups_B, groups_C).count(); }
const char* tustin_discretization_name(int32_t discretization) {
#define TUSTIN_NAME(name) #name,
  static const char* const names[] = {TUSTIN_DISCRETIZATIONS(TUSTIN_NAME) nullptr};
#undef TUSTIN_NAME
  return names[discretization];
}

const char* tustin_cpu_level(void) { return current->name; }

int tustin_set_cpu_level(const char* name) {
  for (const Level& level : kLevels)
    if (!strcmp(level.name, name) && level.supported()) {
      current = &level;
      return 0;
    }
  return 1;
}

}  // extern "C"
