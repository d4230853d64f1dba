/* The C interface of what the model does to each number, or to each row of numbers: the gate and the norm. */
#pragma once

#include "scan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out = (a + b)/2·silu(gate), number by number; d_sum is the gradient of a + b, so of a and of b. All have `count`
   elements of `dtype`, contiguous. Computed in double if that is TUSTIN_FLOAT64, and in float otherwise. */
typedef struct {
  int32_t dtype, threads;
  int64_t count;
  void *a, *b, *gate, *out;
  void *d_out, *d_sum, *d_gate;
} TustinGate;

/* out = x/√(mean(x²) + eps)·weight, the mean over a row. Computed in double if a dtype is TUSTIN_FLOAT64, and in float
   otherwise. All contiguous.

   x, d_x               (rows, D), of dtype_x
   out, d_out           (rows, D), of dtype_weight
   weight, d_weight     (D,), of dtype_weight */
typedef struct {
  int32_t dtype_x, dtype_weight, threads;
  int64_t rows, D;
  double eps;
  void *x, *weight, *out;
  void *d_out, *d_x, *d_weight;
} TustinNorm;

/* All return 0, or 1 if memory ran out. */
TUSTIN_EXPORT int tustin_gate_forward(const TustinGate*);
TUSTIN_EXPORT int tustin_gate_backward(const TustinGate*);
TUSTIN_EXPORT int tustin_norm_forward(const TustinNorm*);
TUSTIN_EXPORT int tustin_norm_backward(const TustinNorm*);

#ifdef __cplusplus
}
#endif
