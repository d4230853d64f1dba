// The rules that hold their input. They are compiled by themselves, because their loops gain from an order of the
// instructions that the others lose by; CMakeLists.txt says which.
#include "passes.hpp"

namespace TUSTIN_LEVEL {

#define TUSTIN_HERE(name)                                                        \
  template void run_task<float, name>(const TustinScan&, Arena&, int64_t, bool); \
  template void run_task<double, name>(const TustinScan&, Arena&, int64_t, bool);
TUSTIN_HOLDS(TUSTIN_HERE)
#undef TUSTIN_HERE

}  // namespace TUSTIN_LEVEL
