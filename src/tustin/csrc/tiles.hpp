// Moving pieces of strided tensors of any dtype into small dense tiles of Real, and back.
//
// A tile has one row per token, `pitch` apart; a row holds the values of neighbouring channels (or states), zero beyond the
// last. `channel` and `token` are the steps in the tensor, in elements; a negative `token` walks time backwards.
#pragma once

#include "scan.h"
#include "vec.hpp"

namespace TUSTIN_LEVEL {

inline float bits_to_float(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}
inline uint32_t float_to_bits(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}

struct BFloat16 {
  uint16_t bits;
  operator float() const { return bits_to_float(uint32_t(bits) << 16); }
  BFloat16() = default;
  explicit BFloat16(float x) {
    const uint32_t b = float_to_bits(x);
    const uint32_t rounded = (b + 0x7fff + ((b >> 16) & 1)) >> 16;  // to nearest, ties to even
    bits = uint16_t(x == x ? rounded : 0x7fc0);
  }
};

struct Float16 {
  uint16_t bits;
  operator float() const {
    const uint32_t sign = uint32_t(bits & 0x8000) << 16, rest = uint32_t(bits & 0x7fff) << 13;
    const float scaled = bits_to_float(rest) * 5.192296858534828e33f;  // 2¹¹²: also makes subnormals normal
    const uint32_t finite = float_to_bits(scaled), special = rest | 0x7f800000;
    return bits_to_float(sign | ((bits & 0x7c00) == 0x7c00 ? special : finite));
  }
  Float16() = default;
  explicit Float16(float x) {
    const uint32_t b = float_to_bits(x), sign = (b >> 16) & 0x8000, magnitude = b & 0x7fffffff;
    const uint32_t normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - (112u << 23)) >> 13;
    const uint32_t subnormal = float_to_bits(bits_to_float(magnitude) + 0.5f) - 0x3f000000;  // the addition rounds
    const uint32_t finite = magnitude < (113u << 23) ? subnormal : normal;
    const uint32_t special = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
    bits = uint16_t(sign | (magnitude >= 0x477ff000 ? special : finite));
  }
};

inline int element_size(int dtype) { return dtype == TUSTIN_FLOAT64 ? 8 : dtype == TUSTIN_FLOAT32 ? 4 : 2; }

// As many neighbouring elements as a register has lanes, and back.
template <class Element, class Real>
TUSTIN_INLINE Register<Real> load_row(const Element* p) {
  Real row[kRegisterLanes<Real>];
  for (int i = 0; i < kRegisterLanes<Real>; ++i) row[i] = Real(p[i]);
  return load_register<Register<Real>>(row);
}
template <class Element, class Real>
TUSTIN_INLINE void store_row(Element* p, Register<Real> v) {
  Real row[kRegisterLanes<Real>];
  store_register(row, v);
  for (int i = 0; i < kRegisterLanes<Real>; ++i) p[i] = Element(row[i]);
}

template <class Element, class Real>
void load_tile(const Element* p, int64_t channel, int64_t token, int channels, int tokens, Real* tile, int pitch) {
  constexpr int W = kRegisterLanes<Real>;
  int k = 0;
  if (channels == W && channel == 1) {
    for (; k < tokens; ++k) store_register(tile + k * pitch, load_row<Element, Real>(p + k * token));
  } else if (channels == W && (token == 1 || token == -1)) {
    for (; k + W <= tokens; k += W) {
      Register<Real> rows[W];
      const Element* first = token == 1 ? p + k : p - (k + W - 1);
      for (int i = 0; i < W; ++i) rows[i] = load_row<Element, Real>(first + i * channel);
      transpose<Real>(rows);
      for (int j = 0; j < W; ++j) store_register(tile + (token == 1 ? k + j : k + W - 1 - j) * pitch, rows[j]);
    }
  }
  for (; k < tokens; ++k) {
    for (int i = 0; i < channels; ++i) tile[k * pitch + i] = Real(p[i * channel + k * token]);
    for (int i = channels; i < W; ++i) tile[k * pitch + i] = 0;
  }
}

template <class Element, class Real>
void store_tile(Element* p, int64_t channel, int64_t token, int channels, int tokens, const Real* tile, int pitch) {
  constexpr int W = kRegisterLanes<Real>;
  int k = 0;
  if (channels == W && channel == 1) {
    for (; k < tokens; ++k)
      store_row<Element, Real>(p + k * token, load_register<Register<Real>>(tile + k * pitch));
  } else if (channels == W && (token == 1 || token == -1)) {
    for (; k + W <= tokens; k += W) {
      Register<Real> rows[W];
      Element* first = token == 1 ? p + k : p - (k + W - 1);
      for (int j = 0; j < W; ++j)
        rows[j] = load_register<Register<Real>>(tile + (token == 1 ? k + j : k + W - 1 - j) * pitch);
      transpose<Real>(rows);
      for (int i = 0; i < W; ++i) store_row<Element, Real>(first + i * channel, rows[i]);
    }
  }
  for (; k < tokens; ++k)
    for (int i = 0; i < channels; ++i) p[i * channel + k * token] = Element(tile[k * pitch + i]);
}

// The same for a tensor of whatever dtype, any number of channels wide, a register at a time.
template <class Real>
void load_tile(const TustinTensor& t, int64_t offset, int64_t channel, int64_t token, int channels, int tokens,
               Real* tile, int pitch) {
  for (int i = 0; i < pitch; i += kRegisterLanes<Real>) {
    const int left = channels - i, width = left < 0 ? 0 : left < kRegisterLanes<Real> ? left : kRegisterLanes<Real>;
    const int64_t first = offset + i * channel;
#define TUSTIN_CASE(dtype, Element) \
  case dtype: load_tile((const Element*)t.data + first, channel, token, width, tokens, tile + i, pitch); break;
    switch (t.dtype) {
      TUSTIN_CASE(TUSTIN_FLOAT32, float)
      TUSTIN_CASE(TUSTIN_FLOAT64, double)
      TUSTIN_CASE(TUSTIN_BFLOAT16, BFloat16)
      TUSTIN_CASE(TUSTIN_FLOAT16, Float16)
    }
#undef TUSTIN_CASE
  }
}

template <class Real>
void store_tile(const TustinTensor& t, int64_t offset, int64_t channel, int64_t token, int channels, int tokens,
                const Real* tile, int pitch) {
  for (int i = 0; i < channels; i += kRegisterLanes<Real>) {
    const int left = channels - i, width = left < kRegisterLanes<Real> ? left : kRegisterLanes<Real>;
    const int64_t first = offset + i * channel;
#define TUSTIN_CASE(dtype, Element) \
  case dtype: store_tile((Element*)t.data + first, channel, token, width, tokens, tile + i, pitch); break;
    switch (t.dtype) {
      TUSTIN_CASE(TUSTIN_FLOAT32, float)
      TUSTIN_CASE(TUSTIN_FLOAT64, double)
      TUSTIN_CASE(TUSTIN_BFLOAT16, BFloat16)
      TUSTIN_CASE(TUSTIN_FLOAT16, Float16)
    }
#undef TUSTIN_CASE
  }
}

}  // namespace TUSTIN_LEVEL
