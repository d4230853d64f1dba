/* The C interface of the selective scan: plain structs and functions, no C++ and no Python in sight. */
#pragma once

#include <stdint.h>

#ifdef _WIN32
#define TUSTIN_EXPORT __declspec(dllexport)
#else
#define TUSTIN_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum { TUSTIN_FLOAT32 = 0, TUSTIN_FLOAT64 = 1, TUSTIN_BFLOAT16 = 2, TUSTIN_FLOAT16 = 3 };

/* The rules, in the order of their numbers. */
#ifndef TUSTIN_DISCRETIZATIONS
#define TUSTIN_DISCRETIZATIONS(X)                                                \
  X(mamba) X(zoh) X(foh) X(bil) X(pol) X(hoh) X(hoh3) X(rk4) X(rk4_raw) \
  X(true_foh) X(true_bil) X(exptrap)
#endif

/* A strided tensor; strides are in elements. data is NULL where an argument is not given. */
typedef struct {
  void* data;
  int32_t dtype;
  int64_t stride[4];
} TustinTensor;

/* Everything of one scan. "Real" is double if `real` is TUSTIN_FLOAT64 and float otherwise.

   u, delta, z, mix, out and their gradients    (batch, D, L), any dtype, any strides; mix is λ, ½ if not given
   B, C, d_B, d_C                               (batch, G, N, L), any dtype, any strides; G = 1 for one B per token,
                                                or G = 0: constant, (D, N), in stride[0] and stride[1]
   A, d_A (D, N); D, delta_bias, d_D, d_delta_bias (D,)            Real, contiguous
   initial_state, last_state and their gradients (batch, D, N)     Real, contiguous; for a rule of two samples two of them,
                                                one after the other: h, and the product B·u of the token before
   chunk_states (batch, chunks, N, D)                              Real, contiguous: the state before each chunk

   The gradients of B and C per token, of A, D and delta_bias are sums. Each has a buffer of partial sums, which
   tustin_scan_backward adds up in a fixed order:
   partial_B, partial_C (batch, slices, L, N) or, constant, (batch, D, N); partial_A (batch, D, N);
   partial_D, partial_bias (batch, D).                             Real, contiguous

   With `careful` the fast path is never taken. It changes no bit of the results, which is tested by it. */
typedef struct {
  int32_t discretization, real, delta_softplus, reverse, threads, careful;
  int64_t batch, D, L, N, groups_B, groups_C;
  TustinTensor u, delta, z, B, C, mix, out;
  void *A, *D_skip, *delta_bias, *initial_state, *last_state, *chunk_states;

  TustinTensor d_out, d_u, d_delta, d_z, d_B, d_C, d_mix;
  void *d_last_state, *d_initial_state, *d_A, *d_D, *d_delta_bias;
  void *partial_A, *partial_B, *partial_C, *partial_D, *partial_bias;
} TustinScan;

/* Both return 0, or 1 if memory ran out. */
TUSTIN_EXPORT int tustin_scan_forward(const TustinScan*);
TUSTIN_EXPORT int tustin_scan_backward(const TustinScan*);

TUSTIN_EXPORT int64_t tustin_argument_bytes(const char* function); /* size of the struct that it takes */
TUSTIN_EXPORT int tustin_chunk_length(void); /* tokens between two chunk states */
TUSTIN_EXPORT int64_t tustin_slices(int64_t D, int64_t groups_B,
                                    int64_t groups_C);        /* partial sums per token of B and C */
TUSTIN_EXPORT const char* tustin_discretization_name(int32_t discretization); /* NULL after the last one */
TUSTIN_EXPORT const char* tustin_cpu_level(void);             /* the level in use */
TUSTIN_EXPORT int tustin_set_cpu_level(const char* name);     /* 0, or 1 if this CPU does not have it */

#ifdef __cplusplus
}
#endif
