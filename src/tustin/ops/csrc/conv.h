/* The C interface of the short causal convolution. */
#pragma once

#include "scan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Everything of one convolution, y_k = silu(bias + Σ_j weight_j x_{k−K+1+j}), each channel for itself. All is computed in
   double if `real` is TUSTIN_FLOAT64, and in float otherwise. Tensors have any dtype and any strides.

   x, out, d_out, d_x   (batch, D, L)
   weight, d_weight     (D, K)
   bias, d_bias         (D,), bias may be NULL */
typedef struct {
  int32_t real, silu, reverse, threads;
  int64_t batch, D, L, K;
  TustinTensor x, weight, bias, out;
  TustinTensor d_out, d_x, d_weight, d_bias;
} TustinConv;

/* The same for the next tokens of a sequence, of which the newest samples are kept: state (batch, D, S), oldest first, with
   S of at least K − 1. It is overwritten by the newest S of state and x. */
typedef struct {
  int32_t real, silu, threads;
  int64_t batch, D, L, K, S;
  TustinTensor state, x, weight, bias, out;
} TustinConvUpdate;

/* All return 0, or 1 if memory ran out. */
TUSTIN_EXPORT int tustin_conv_forward(const TustinConv*);
TUSTIN_EXPORT int tustin_conv_backward(const TustinConv*);
TUSTIN_EXPORT int tustin_conv_update(const TustinConvUpdate*);

#ifdef __cplusplus
}
#endif
