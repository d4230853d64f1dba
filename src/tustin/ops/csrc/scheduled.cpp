// The rules whose loops gain from an order of the instructions that the others lose by; CMakeLists.txt says which order.
#include "passes.hpp"

namespace TUSTIN_LEVEL {

#define TUSTIN_HERE(name)                                                        \
  template void run_task<float, name>(const TustinScan&, Arena&, int64_t, bool); \
  template void run_task<double, name>(const TustinScan&, Arena&, int64_t, bool);
TUSTIN_SCHEDULED(TUSTIN_HERE)
#undef TUSTIN_HERE

}  // namespace TUSTIN_LEVEL
