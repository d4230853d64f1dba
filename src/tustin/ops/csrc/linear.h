/* The C interface of a linear layer for one token, or a few. */
#pragma once

#include "scan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out = x·weightᵀ + bias. All are float and contiguous.

   x        (rows, K)
   weight   (N, K)
   bias     (N,), may be NULL
   out      (rows, N) */
typedef struct {
  int32_t threads;
  int64_t rows, K, N;
  void *x, *weight, *bias, *out;
} TustinLinear;

/* Returns 0. */
TUSTIN_EXPORT int tustin_linear(const TustinLinear*);

#ifdef __cplusplus
}
#endif
