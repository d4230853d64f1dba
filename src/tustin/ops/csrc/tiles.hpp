// Moving pieces of strided tensors of any dtype into small dense tiles of Real, and back.
//
// A tile has one row per token, `pitch` apart; a row holds the values of neighbouring channels (or states), zero beyond the
// last. `channel` and `token` are the steps in the tensor, in elements; a negative `token` walks time backwards.
#pragma once

#include "scan.h"
#include "vec.hpp"

namespace TUSTIN_LEVEL {

template <class To, class From>
TUSTIN_INLINE To same_bits(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To y;
  __builtin_memcpy(&y, &x, sizeof y);
  return y;
}

// The 16-bit formats. The conversions are written once for a number (Float = float, Bits = uint32_t) and for a register of
// them; they round to the nearest, ties to even.
struct BFloat16 {
  uint16_t bits;

  template <class Float, class Bits>
  static TUSTIN_INLINE Float widen(Bits b) {
    return same_bits<Float>(b << 16);
  }
  template <class Bits, class Float>
  static TUSTIN_INLINE Bits narrow(Float x) {
    const Bits b = same_bits<Bits>(x), rounded = (b + 0x7fff + ((b >> 16) & 1)) >> 16;
    return x == x ? rounded : Bits{} + 0x7fc0;
  }
};

struct Float16 {
  uint16_t bits;

  template <class Float, class Bits>
  static TUSTIN_INLINE Float widen(Bits b) {
    const Bits sign = (b & 0x8000) << 16, rest = (b & 0x7fff) << 13;
    const Bits finite =
        same_bits<Bits>(same_bits<Float>(rest) * 5.192296858534828e33f);  // 2¹¹²: makes subnormals normal
    return same_bits<Float>(sign | ((b & 0x7c00) == 0x7c00 ? rest | 0x7f800000 : finite));
  }
  template <class Bits, class Float>
  static TUSTIN_INLINE Bits narrow(Float x) {
    const Bits b = same_bits<Bits>(x), sign = (b >> 16) & 0x8000, size = b & 0x7fffffff;
    const Bits normal = (size + 0xfff + ((size >> 13) & 1) - (112u << 23)) >> 13;
    const Bits subnormal = same_bits<Bits>(same_bits<Float>(size) + 0.5f) - 0x3f000000u;  // the addition rounds
    const Bits finite = size < (113u << 23) ? subnormal : normal;
    const Bits special = size > 0x7f800000u ? Bits{} + 0x7e00 : Bits{} + 0x7c00;
    return sign | (size >= 0x477ff000u ? special : finite);
  }
};

template <class Element>
constexpr bool kIsHalf = false;
template <>
inline constexpr bool kIsHalf<BFloat16> = true;
template <>
inline constexpr bool kIsHalf<Float16> = true;

template <class Real, class Element>
TUSTIN_INLINE Real to_real(Element x) {
  if constexpr (kIsHalf<Element>)
    return Real(Element::template widen<float>(uint32_t(x.bits)));
  else
    return Real(x);
}
template <class Element, class Real>
TUSTIN_INLINE Element from_real(Real x) {
  if constexpr (kIsHalf<Element>)
    return {uint16_t(Element::template narrow<uint32_t>(float(x)))};
  else
    return Element(x);
}

template <class Real>
constexpr int kDtype = sizeof(Real) == 8 ? TUSTIN_FLOAT64 : TUSTIN_FLOAT32;

// As many neighbouring elements as a register has lanes, and back.
typedef uint32_t Words __attribute__((vector_size(kRegisterBytes)));
typedef uint16_t Halves __attribute__((vector_size(kRegisterBytes / 2)));

// Between the two widths; the numbers of a narrowing fit. GCC takes several instructions where there is one.
TUSTIN_INLINE Words to_words(Halves bits) {
#if defined(__AVX512F__) && TUSTIN_REGISTER_BYTES == 64
  return (Words)_mm512_cvtepu16_epi32((__m256i)bits);
#elif defined(__AVX2__) && TUSTIN_REGISTER_BYTES == 32
  return (Words)_mm256_cvtepu16_epi32((__m128i)bits);
#else
  return __builtin_convertvector(bits, Words);
#endif
}
TUSTIN_INLINE Halves to_halves(Words bits) {
#if defined(__AVX512F__) && TUSTIN_REGISTER_BYTES == 64
  return (Halves)_mm512_cvtepi32_epi16((__m512i)bits);
#elif defined(__AVX2__) && TUSTIN_REGISTER_BYTES == 32
  const __m256i twice = _mm256_packus_epi32((__m256i)bits, (__m256i)bits);  // the halves of each sixteen bytes, twice
  return (Halves)_mm256_castsi256_si128(_mm256_permute4x64_epi64(twice, 0b1000));
#else
  return __builtin_convertvector(bits, Halves);
#endif
}

template <class Half>
TUSTIN_INLINE Register<float> widen_row(Halves bits) {
  return Half::template widen<Register<float>>(to_words(bits));
}
template <class Half>
TUSTIN_INLINE Halves narrow_row(Register<float> v) {
  return to_halves(Half::template narrow<Words>(v));
}
#if defined(__AVX512F__) && TUSTIN_REGISTER_BYTES == 64  // has instructions for it
template <>
TUSTIN_INLINE Register<float> widen_row<Float16>(Halves bits) {
  return _mm512_cvtph_ps((__m256i)bits);
}
template <>
TUSTIN_INLINE Halves narrow_row<Float16>(Register<float> v) {
  return (Halves)_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
}
#elif defined(__F16C__) && TUSTIN_REGISTER_BYTES == 32
template <>
TUSTIN_INLINE Register<float> widen_row<Float16>(Halves bits) {
  return _mm256_cvtph_ps((__m128i)bits);
}
template <>
TUSTIN_INLINE Halves narrow_row<Float16>(Register<float> v) {
  return (Halves)_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
}
#endif

template <class Element, class Real>
TUSTIN_INLINE Register<Real> load_row(const Element* p) {
  if constexpr (kIsHalf<Element> && sizeof(Real) == 4) {
    return widen_row<Element>(load_register<Halves>(&p->bits));
  } else {
    Real row[kRegisterLanes<Real>];
    for (int i = 0; i < kRegisterLanes<Real>; ++i) row[i] = to_real<Real>(p[i]);
    return load_register<Register<Real>>(row);
  }
}
template <class Element, class Real>
TUSTIN_INLINE void store_row(Element* p, Register<Real> v) {
  if constexpr (kIsHalf<Element> && sizeof(Real) == 4) {
    store_register(&p->bits, narrow_row<Element>(v));
  } else {
    Real row[kRegisterLanes<Real>];
    store_register(row, v);
    for (int i = 0; i < kRegisterLanes<Real>; ++i) p[i] = from_real<Element>(row[i]);
  }
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
    for (int i = 0; i < channels; ++i) tile[k * pitch + i] = to_real<Real>(p[i * channel + k * token]);
    for (int i = channels; i < W; ++i) tile[k * pitch + i] = 0;
  }
}

template <class Element, class Real>
void store_tile(Element* p, int64_t channel, int64_t token, int channels, int tokens, const Real* tile, int pitch) {
  constexpr int W = kRegisterLanes<Real>;
  int k = 0;
  if (channels == W && channel == 1) {
    for (; k < tokens; ++k) store_row<Element, Real>(p + k * token, load_register<Register<Real>>(tile + k * pitch));
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
    for (int i = 0; i < channels; ++i) p[i * channel + k * token] = from_real<Element>(tile[k * pitch + i]);
}

// The same for a tensor of whatever dtype, any number of channels wide, a register at a time.
template <class Real>
void load_tile(const TustinTensor& t, int64_t offset, int64_t channel, int64_t token, int channels, int tokens,
               Real* tile, int pitch) {
  for (int i = 0; i < pitch; i += kRegisterLanes<Real>) {
    const int left = channels - i, width = left < 0 ? 0 : left < kRegisterLanes<Real> ? left : kRegisterLanes<Real>;
    const int64_t first = offset + i * channel;
#define TUSTIN_CASE(dtype, Element)                                                            \
  case dtype:                                                                                  \
    load_tile((const Element*)t.data + first, channel, token, width, tokens, tile + i, pitch); \
    break;
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
#define TUSTIN_CASE(dtype, Element)                                                       \
  case dtype:                                                                             \
    store_tile((Element*)t.data + first, channel, token, width, tokens, tile + i, pitch); \
    break;
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
