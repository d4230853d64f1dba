// The rules that are faster with -fschedule-insns; the others are slower with it. CMakeLists.txt sets the flag.
#include "passes.hpp"

namespace TUSTIN_LEVEL {

#define TUSTIN_HERE(name)                                                        \
  template void run_task<float, name>(const TustinScan&, Arena&, int64_t, bool); \
  template void run_task<double, name>(const TustinScan&, Arena&, int64_t, bool);
TUSTIN_SCHEDULED(TUSTIN_HERE)
#undef TUSTIN_HERE

}  // namespace TUSTIN_LEVEL
